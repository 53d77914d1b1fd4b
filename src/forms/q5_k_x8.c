/* Q5_K with 8 rows interleaved: k_x8.h. */
#include "k_x8.h"
#include "packings.h"

#if LNL_VEC

enum { BLOCK = 256, STORED_BYTES = 176, STORED_CODES_AT = 48, TOP_AT = 16 };
enum { PAIR_BYTES = K_PAIR_BYTES + K_TOP_BYTES, BLOCK_BYTES = K_CODES_AT + SUBS / 2 * PAIR_BYTES };

/* The top bits of four rows: bit j of byte i of the stored ones is that of value i of
 * sub-block j. */
VEC_INLINE void pack_top(const uint8_t *const block[4], uint8_t *dst) {
  const v128_t low = wasm_i8x16_splat(1), high = wasm_i8x16_splat(16);
  v128_t bits[8]; /* of values 4 g .. 4 g + 3 */
  _Alignas(16) uint8_t vectors[256];
  for (int i = 0; i < 2; i++) {
    v128_t row[4];
    VEC_UNROLL for (int r = 0; r < 4; r++) row[r] = wasm_v128_load(block[r] + TOP_AT + 16 * i);
    x8_transpose(vectors + 128 * i, row);
  }
  for (int g = 0; g < 8; g++) bits[g] = wasm_v128_load(vectors + 32 * g);
  VEC_LOOP for (int p = 0; p < SUBS / 2; p++, dst += PAIR_BYTES)
      VEC_LOOP for (int half = 0; half < 2; half++) {
    v128_t top = vec_zero();
    VEC_UNROLL for (int q = 3; q >= 0; q--) {
      v128_t *v = &bits[4 * half + q];
      const v128_t pair = wasm_v128_or(wasm_v128_and(*v, low), wasm_v128_and(wasm_i16x8_shl(*v, 3), high));
      top = wasm_v128_or(wasm_i16x8_shl(top, 1), pair);
      *v = wasm_u8x16_shr(*v, 2);
    }
    wasm_v128_store(dst + 32 * half, top);
  }
}
static void pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k) {
  static const uint8_t zero[STORED_BYTES]; /* a block of a missing row */
  for (size_t b = 0; b < k / BLOCK; b++, src += STORED_BYTES, dst += BLOCK_BYTES) {
    const uint8_t *block[FORM_GROUP];
    for (uint32_t r = 0; r < FORM_GROUP; r++) block[r] = r < row_count ? src + (size_t)(r * row_bytes) : zero;
    k_pack_scales(dst, block);
    VEC_LOOP for (uint32_t half = 0; half < 2; half++) {
      k_pack_codes(block + 4 * half, STORED_CODES_AT, dst + K_CODES_AT + 16 * half, PAIR_BYTES);
      pack_top(block + 4 * half, dst + K_CODES_AT + K_PAIR_BYTES + 16 * half);
    }
  }
}

static FORM_SMALL void decode_row(const uint8_t *group, uint32_t row, float *dst, uint32_t k) {
  for (; k; k -= BLOCK, group += BLOCK_BYTES, dst += BLOCK) {
    uint8_t codes[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i++) {
      codes[i] = k_nibble(group, row, i, PAIR_BYTES);
      const uint8_t *top = group + K_CODES_AT + i / 64 * PAIR_BYTES + K_PAIR_BYTES + i % 32 / 16 * 32;
      codes[i] |= (uint8_t)((top[4 * row + i % 4] >> (i % 64 / 32 * 4 + i % 16 / 4) & 1) << 4);
    }
    k_decode_row(group, row, dst, codes);
  }
}

VEC_INLINE void prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode) {
  k_prepare(record, step, x, blocks, mode, true);
}
VEC_INLINE void dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                    const vec_mode mode) {
  k_dot(w, a, out, blocks, n, mode, true);
}

X8_CODE_KERNELS_SMALL
static void matmul(const lnl_matmul *m) { x8_matmul(m, X8_CODE_KERNEL, TYPE_Q5_K, 0); }

const lnl_packing q5_k_x8 = {
    "q5_kx8.q8." VEC_ISA_NAME, BLOCK_BYTES, pack, decode_row, matmul,
};

#endif
