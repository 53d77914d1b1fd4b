/* Q4_0 with 8 rows interleaved: blocks of [8 scales][8 vectors], each vector
 * the stored bytes 4 j .. 4 j + 3 of four rows (x8.h). */
#include "nibbles_x8.h"
#include "packings.h"

#if LNL_VEC

enum { BLOCK = 32, WORDS = 4, BLOCK_BYTES = X8_SCALES + FORM_GROUP * 4 * WORDS, ZERO = NIBBLES_ZERO };

static void pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k) {
  x8_pack(src, row_bytes, row_count, dst, k, 4 * WORDS, 0);
}

/* Value i of the block is (code - 8) d. */
static int code(const uint8_t *block, uint32_t row, uint32_t i) {
  const uint8_t byte = x8_byte(block, row, i % 16);
  return (i < 16 ? byte & 15 : byte >> 4) - ZERO;
}

static FORM_SMALL void decode_row(const uint8_t *group, uint32_t row, float *dst, uint32_t k) {
  for (; k; k -= BLOCK, group += BLOCK_BYTES, dst += BLOCK) {
    const float d = x8_scale(group, row);
    for (uint32_t i = 0; i < BLOCK; i++) dst[i] = (float)code(group, row, i) * d;
  }
}

VEC_INLINE void prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode) {
  nibbles_prepare(record, step, x, blocks, mode, false);
}
VEC_INLINE void dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                    const vec_mode mode) {
  nibbles_dot(w, a, out, blocks, n, mode, false);
}
X8_CODE_KERNELS
static void matmul(const lnl_matmul *m) { x8_matmul(m, X8_CODE_KERNEL, TYPE_Q4_0, X8_CODE_FACTOR); }

const lnl_packing q4_0_x8 = {
    "q4_0x8.q8." VEC_ISA_NAME, BLOCK_BYTES, pack, decode_row, matmul,
};

#endif
