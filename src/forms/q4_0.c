/* Q4_0: blocks of 32, [d: f16][16 bytes: code i low, code i + 16 high nibble],
 * value = d (code - 8). */
#include "form_impl.h"

enum { BLOCK = 32, BLOCK_BYTES = 18, ZERO = 8 };

void q4_0_decode_scalar(const uint8_t *src, float *dst, uint64_t n) {
  for (; n; n -= BLOCK, src += BLOCK_BYTES, dst += BLOCK) {
    const float d = load_half(src);
    const uint8_t *code = src + 2;
    for (int i = 0; i < 16; i++) {
      dst[i] = (float)((code[i] & 15) - ZERO) * d;
      dst[i + 16] = (float)((code[i] >> 4) - ZERO) * d;
    }
  }
}

#if LNL_VEC

VEC_INLINE vec_codes block_codes(const uint8_t *w, v128_t nibble, const vec_mode mode) {
  const v128_t packed = wasm_v128_load(w + 2);
  return vec_codes_make(wasm_v128_and(packed, nibble), wasm_v128_and(wasm_u16x8_shr(packed, 4), nibble),
                        mode);
}

VEC_INLINE void dot(const lnl_matmul *m, uint32_t row, uint32_t token, const uint32_t n,
                    const vec_mode mode) {
  const uint8_t *w = matmul_row(m, row);
  const size_t blocks = m->k / BLOCK;
  const lnl_q8 x = matmul_q8(m, token);
  const vec_half half = vec_half_make();
  const v128_t nibble = vec_opaque_i16(0x0f0f), ones = vec_opaque_i16(1), minus_zero = vec_opaque_f32(-ZERO);
  v128_t acc[MATMUL_TILE];
  float scale[MATMUL_TILE * 4];
  MATMUL_Q_POINTERS(q, x, n, m->k)
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) acc[t] = vec_zero();
  size_t b = 0;
  for (; blocks - b >= 4; b += 4) {
    const v128_t d = block_factors_4(w, BLOCK_BYTES, &half);
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
      const size_t at = t * blocks + b;
      const v128_t scales = wasm_f32x4_mul(d, wasm_v128_load(x.d + at));
      acc[t] = vec_madd(wasm_f32x4_mul(block_sums_4(x.sums + at * 2), minus_zero), scales, acc[t]);
      wasm_v128_store(scale + 4 * t, scales);
    }
    const float *factor = scale;
    VEC_KEEP_POINTER(factor);
    VEC_LOOP for (int i = 0; i < 4; i++, w += BLOCK_BYTES, factor++) {
      const vec_codes codes = block_codes(w, nibble, mode);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        const v128_t dot = vec_dot_codes(codes, q[t], ones, mode);
        q[t] += BLOCK;
        acc[t] = vec_madd(wasm_f32x4_convert_i32x4(dot), wasm_v128_load32_splat(factor + 4 * t), acc[t]);
      }
    }
  }
  for (; b < blocks; b++, w += BLOCK_BYTES) {
    const float d = load_half(w);
    const vec_codes codes = block_codes(w, nibble, mode);
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
      const size_t at = t * blocks + b;
      const v128_t zero = wasm_i32x4_make(-ZERO * (x.sums[at * 2] + x.sums[at * 2 + 1]), 0, 0, 0);
      const v128_t dot = wasm_i32x4_add(vec_dot_codes(codes, q[t], ones, mode), zero);
      q[t] += BLOCK;
      acc[t] = vec_madd(wasm_f32x4_convert_i32x4(dot), wasm_f32x4_splat(d * x.d[at]), acc[t]);
    }
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) * matmul_y(m, row, token + t) = vec_sum_f32(acc[t]);
}
MATMUL_DEFINE(q4_0, dot, VEC_I16)

void q4_0_decode(const uint8_t *src, float *dst, uint64_t n) {
  const v128_t nibble = wasm_i8x16_splat(15), zero = wasm_i8x16_splat(ZERO);
  for (; n; n -= BLOCK, src += BLOCK_BYTES, dst += BLOCK) {
    const v128_t d = wasm_f32x4_splat(load_half(src));
    const v128_t packed = wasm_v128_load(src + 2);
    vec_store_scaled_i8(dst, wasm_i8x16_sub(wasm_v128_and(packed, nibble), zero), d);
    vec_store_scaled_i8(dst + 16, wasm_i8x16_sub(wasm_u8x16_shr(packed, 4), zero), d);
  }
}

#endif
