/* The loops around the kernels of packed forms. */
#include "x8.h"

#if LNL_VEC

/* Groups whose sums are under way at a time, for one token and for several: the
 * more of them share a set of records the better, while their weights must stay in
 * the cache from one tile of tokens to the next. And the room for records: a row
 * is cut into panels, and a panel where need be, the sums being continued. */
enum { GROUPS = FORM_TILE, TILE_GROUPS = 8, RECORDS_BYTES = 16 << 10 };

/* A tile of n tokens, from `token` on. Its d are multiplied with factor[t] (if
 * that is not 0) before the kernel, its results with after[t]. */
typedef struct tile {
  uint32_t token, n;
  float factor[X8_TILE], after[X8_TILE];
} tile;

static bool has_large(const float *d, size_t count) {
  v128_t largest = vec_zero(); /* as integers, among which NaN is the largest */
  size_t i = 0;
  for (; count - i >= 4; i += 4) largest = wasm_i32x4_max(largest, wasm_v128_load(d + i));
  for (; i < count; i++) largest = wasm_i32x4_max(largest, wasm_v128_load32_splat(d + i));
  return wasm_v128_any_true(wasm_i32x4_gt(largest, wasm_f32x4_splat(0x1p14f)));
}

/* Activations above about 2^21 would leave the range of a float by the factor:
 * for such a token most of it is applied to the results instead. */
static tile tile_make(const lnl_matmul *m, const x8_kernel *kernel, uint32_t token, float factor) {
  const uint32_t left = m->n_tok - token;
  tile out = {.token = token, .n = left >= X8_TILE ? X8_TILE : left >= 2 && kernel->dot_2 ? 2 : 1};
  for (uint32_t t = 0; t < out.n; t++) {
    const bool large = factor != 0 && has_large(matmul_q8(m, token + t).d, m->k / 32);
    out.after[t] = large ? 0x1p107f : 1;
    out.factor[t] = factor / out.after[t];
  }
  return out;
}

/* The records of `count` blocks from block b on. */
static void tile_prepare(const tile *tile, const lnl_matmul *m, const x8_kernel *kernel, uint32_t block_len,
                         size_t b, size_t count, uint8_t *records) {
  float scaled[RECORDS_BYTES / 32];
  for (uint32_t t = 0; t < tile->n; t++, records += kernel->record_bytes) {
    lnl_q8 x = matmul_q8(m, tile->token + t);
    x.q += b * block_len, x.d += b * (block_len / 32), x.sums += b * (block_len / 16);
    if (tile->factor[t] != 0) {
      for (size_t i = 0; i < count * (block_len / 32); i++) scaled[i] = x.d[i] * tile->factor[t];
      x.d = scaled;
    }
    kernel->prepare(records, (size_t)tile->n * kernel->record_bytes, x, count);
  }
}

/* A processor fetches memory ahead by itself, but within a page of 4 KiB and after the
 * first few lines of it: each new page makes it wait for an address and a line. So its
 * first lines are read some pages before they are used; more lines, or lines elsewhere
 * in the page, disturb what it does by itself. Measured on an Intel Xeon (NOTES.md), and
 * not on processors without AVX-VNNI, so those are left alone. */
enum { PAGE_BYTES = 4096, LINE_BYTES = 64, TOUCHED_BYTES = 8 * LINE_BYTES, AHEAD_BYTES = 3 * PAGE_BYTES };
static bool pages_are_touched(void) {
#if LNL_VEC == 2
  return vec_dot_takes_u8();
#else
  return false;
#endif
}
/* The pages that begin within `bytes` bytes from `from` on; nothing at or after `end`. */
static void touch_pages(const uint8_t *from, size_t bytes, const uint8_t *end) {
  const size_t first = (PAGE_BYTES - (uintptr_t)from % PAGE_BYTES) % PAGE_BYTES;
  for (size_t at = first; at < bytes && at + TOUCHED_BYTES <= (size_t)(end - from); at += PAGE_BYTES)
    for (size_t line = 0; line < TOUCHED_BYTES; line += LINE_BYTES)
      (void)*(const volatile uint8_t *)(from + at + line);
}

/* Rows first .. first + rows - 1, which are of one tile of the matrix and begin with
 * a group, and a tile of tokens. */
static void tile_matmul(const tile *tile, const lnl_matmul *m, const x8_kernel *kernel, const lnl_form *form,
                        uint32_t first, uint32_t rows) {
  _Alignas(16) uint8_t records[RECORDS_BYTES];
  _Alignas(16) float acc[GROUPS * FORM_GROUP] = {0};
  const uint32_t n = tile->n, sums = n * FORM_GROUP; /* of a group */
  const uint32_t panel = form_panel(m->k), group = (m->w_row_begin + first) / FORM_GROUP;
  const uint32_t most = RECORDS_BYTES / (n * kernel->record_bytes);
  void (*const dot)(const uint8_t *, const uint8_t *, float *, size_t) = n == 1   ? kernel->dot_1
                                                                         : n == 2 ? kernel->dot_2
                                                                                  : kernel->dot_4;
  const uint8_t *end = m->w + form_group_count(m->w_n_row) * form_group_bytes(form, m->k);
  const bool touch = n == 1 && pages_are_touched();
  for (uint32_t column = 0; column < m->k; column += panel) {
    const uint8_t *w = m->w + form_panel_at(form, m->w_n_row, m->k, group, column);
    const uint32_t blocks = u32_min(panel, m->k - column) / form->block_len;
    const uint32_t parts = (blocks + most - 1) / most, part = (blocks + parts - 1) / parts;
    for (uint32_t b = 0, count; b < blocks; b += count) {
      count = u32_min(blocks - b, part);
      tile_prepare(tile, m, kernel, form->block_len, column / form->block_len + b, count, records);
      const uint8_t *at = w + (size_t)b * kernel->block_bytes;
      for (uint32_t row = 0; row < rows; row += FORM_GROUP, at += (size_t)blocks * kernel->block_bytes) {
        if (touch && (size_t)(end - at) > AHEAD_BYTES)
          touch_pages(at + AHEAD_BYTES, (size_t)count * kernel->block_bytes, end);
        dot(at, records, acc + row / FORM_GROUP * sums, count);
      }
    }
  }
  for (uint32_t row = 0; row < rows; row++) {
    const float *sum = acc + row / FORM_GROUP * sums + row % FORM_GROUP;
    for (uint32_t t = 0; t < n; t++)
      *matmul_y(m, first + row, tile->token + t) = tile->after[t] * sum[t * FORM_GROUP];
  }
}

void x8_matmul(const lnl_matmul *m, const x8_kernel *kernel, lnl_type type, float factor) {
  const lnl_form *form = form_find(type);
  const uint32_t rows_most = (m->n_tok == 1 ? GROUPS : TILE_GROUPS) * FORM_GROUP;
  for (uint32_t first = m->row_begin, rows; first < m->row_end; first += rows) {
    rows = rows_most - (m->w_row_begin + first) % rows_most; /* no further than the matrix's own tile */
    rows = u32_min(m->row_end - first, rows);
    for (uint32_t token = 0; token < m->n_tok;) {
      const tile tile = tile_make(m, kernel, token, factor);
      tile_matmul(&tile, m, kernel, form, first, rows);
      token += tile.n;
    }
  }
}

#endif
