/* Q4_1 with 8 rows interleaved: blocks of [8 scales][8 minima][8 vectors]
 * (nibbles_x8.h). */
#include "nibbles_x8.h"
#include "packings.h"

#if LNL_VEC

enum { BLOCK = 32, STORED_BYTES = 20, CODES_AT = 2 * X8_SCALES, BLOCK_BYTES = CODES_AT + 128 };

static void pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k) {
  static const uint8_t zero[STORED_BYTES]; /* a block of a missing row */
  for (size_t b = 0; b < k / BLOCK; b++, src += STORED_BYTES, dst += BLOCK_BYTES)
    VEC_LOOP for (uint32_t r = 0; r < FORM_GROUP; r++) {
      const uint8_t *block = r < row_count ? src + (size_t)(r * row_bytes) : zero;
      memcpy(dst + x8_scale_at(r), block, 2);
      memcpy(dst + X8_SCALES + x8_scale_at(r), block + 2, 2);
      for (uint32_t i = 0; i < 4; i++) memcpy(dst + CODES_AT + 32 * i + 4 * r, block + 4 + 4 * i, 4);
    }
}

static FORM_SMALL void decode_row(const uint8_t *group, uint32_t row, float *dst, uint32_t k) {
  for (; k; k -= BLOCK, group += BLOCK_BYTES, dst += BLOCK) {
    const float d = x8_scale(group, row), min = x8_scale(group + X8_SCALES, row);
    for (uint32_t i = 0; i < BLOCK; i++) {
      const uint8_t byte = x8_byte(group + X8_SCALES, row, i % 16);
      const float product = d * (float)(i < 16 ? byte & 15 : byte >> 4);
      dst[i] = product + min;
    }
  }
}

VEC_INLINE void prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode) {
  nibbles_prepare(record, step, x, blocks, mode, true);
}
VEC_INLINE void dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                    const vec_mode mode) {
  nibbles_dot(w, a, out, blocks, n, mode, true);
}

X8_CODE_KERNELS_SMALL
static void matmul(const lnl_matmul *m) { x8_matmul(m, X8_CODE_KERNEL, TYPE_Q4_1, X8_CODE_FACTOR); }

const lnl_packing q4_1_x8 = {
    "q4_1x8.q8." VEC_ISA_NAME, BLOCK_BYTES, pack, decode_row, matmul,
};

#endif
