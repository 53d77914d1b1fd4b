/* The loops around the kernels of packed forms with blocks of 32. */
#include "x8.h"

/* Rows and tokens whose sums are under way at a time; and the room for records:
 * a long row is cut, its sums being continued. The more groups share a set of
 * records the better, while their weights must stay in the cache from one tile
 * of tokens to the next. */
enum { GROUPS = 32, TILE_GROUPS = 8, RECORDS_BYTES = 16 << 10 };

void x8_matmul_of(const lnl_matmul *m, const x8_kernel *kernel, uint32_t block_len) {
  _Alignas(16) uint8_t records[RECORDS_BYTES];
  _Alignas(16) float acc[GROUPS * FORM_GROUP];
  const uint32_t groups_each = m->n_tok == 1 ? GROUPS : TILE_GROUPS;
  const size_t blocks = m->k / block_len;
  for (uint32_t first = m->row_begin; first < m->row_end; first += groups_each * FORM_GROUP) {
    const uint32_t rows = u32_min(m->row_end - first, groups_each * FORM_GROUP);
    const uint32_t groups = (rows + FORM_GROUP - 1) / FORM_GROUP;
    const uint8_t *w = m->w + (size_t)(first / FORM_GROUP * m->row_bytes);
    for (uint32_t token = 0; token < m->n_tok; token += X8_TILE) {
      const uint32_t left = u32_min(m->n_tok - token, X8_TILE);
      const uint32_t n = left == 3 ? 4 : left; /* three are four, one of them twice */
      const size_t step = (size_t)n * kernel->record_bytes;
      memset(acc, 0, (size_t)groups * n * FORM_GROUP * sizeof(float));
      for (size_t b = 0, count; b < blocks; b += count) {
        count = u32_min((uint32_t)(blocks - b), (uint32_t)(RECORDS_BYTES / step));
        for (uint32_t t = 0; t < n; t++) {
          lnl_q8 x = matmul_q8(m, token + u32_min(t, left - 1));
          x.q += b * block_len, x.d += b * (block_len / 32), x.sums += b * (block_len / 16);
          kernel->prepare(records + t * kernel->record_bytes, step, x, count);
        }
        const uint8_t *at = w + b * kernel->block_bytes;
        void (*dot)(const uint8_t *, const uint8_t *, float *, size_t) = n == 1   ? kernel->dot_1
                                                                         : n == 2 ? kernel->dot_2
                                                                                  : kernel->dot_4;
        for (uint32_t g = 0; g < groups; g++, at += m->row_bytes)
          dot(at, records, acc + (size_t)g * n * FORM_GROUP, count);
      }
      for (uint32_t row = 0; row < rows; row++)
        for (uint32_t t = 0; t < left; t++)
          *matmul_y(m, first + row, token + t) = acc[(row / FORM_GROUP * n + t) * FORM_GROUP + row % FORM_GROUP];
    }
  }
}

void x8_matmul(const lnl_matmul *m, const x8_kernel *kernel) { x8_matmul_of(m, kernel, 32); }
