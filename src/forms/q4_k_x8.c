/* Q4_K with 8 rows interleaved: k_x8.h. */
#include "k_x8.h"
#include "packings.h"

#if LNL_VEC

enum { BLOCK = 256, STORED_BYTES = 144, STORED_CODES_AT = 16 };
enum { PAIR_BYTES = K_PAIR_BYTES, BLOCK_BYTES = K_CODES_AT + SUBS / 2 * PAIR_BYTES };

static void pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k) {
  static const uint8_t zero[STORED_BYTES]; /* a block of a missing row */
  for (size_t b = 0; b < k / BLOCK; b++, src += STORED_BYTES, dst += BLOCK_BYTES) {
    const uint8_t *block[FORM_GROUP];
    for (uint32_t r = 0; r < FORM_GROUP; r++) block[r] = r < row_count ? src + (size_t)(r * row_bytes) : zero;
    k_pack_scales(dst, block);
    VEC_LOOP for (uint32_t half = 0; half < 2; half++) {
      k_pack_codes(block + 4 * half, STORED_CODES_AT, dst + K_CODES_AT + 16 * half, PAIR_BYTES);
    }
  }
}

static FORM_SMALL void decode_row(const uint8_t *group, uint32_t row, float *dst, uint32_t k) {
  for (; k; k -= BLOCK, group += BLOCK_BYTES, dst += BLOCK) {
    uint8_t codes[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i++) {
      codes[i] = k_nibble(group, row, i, PAIR_BYTES);
    }
    k_decode_row(group, row, dst, codes);
  }
}

VEC_INLINE void prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode) {
  k_prepare(record, step, x, blocks, mode, false);
}
VEC_INLINE void dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                    const vec_mode mode) {
  k_dot(w, a, out, blocks, n, mode, false);
}

X8_CODE_KERNELS
static void matmul(const lnl_matmul *m) { x8_matmul(m, X8_CODE_KERNEL, TYPE_Q4_K, 0); }

const lnl_packing q4_k_x8 = {
    "q4_kx8.q8." VEC_ISA_NAME, BLOCK_BYTES, pack, decode_row, matmul,
};

#endif
