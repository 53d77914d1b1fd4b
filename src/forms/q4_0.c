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

void q4_0_matmul_scalar(const lnl_matmul *m) {
  for (uint32_t token = 0; token < m->n_tok; token++) {
    const lnl_q8 x = matmul_q8(m, token);
    for (uint32_t row = m->row_begin; row < m->row_end; row++) {
      const uint8_t *w = matmul_row(m, row);
      float sum = 0;
      for (uint32_t b = 0; b < m->k / BLOCK; b++, w += BLOCK_BYTES) {
        const int8_t *q = x.q + b * BLOCK;
        int32_t dot = 0;
        for (int i = 0; i < 16; i++)
          dot += ((w[2 + i] & 15) - ZERO) * q[i] + ((w[2 + i] >> 4) - ZERO) * q[i + 16];
        const float term = load_half(w) * x.d[b] * (float)dot;
        sum += term;
      }
      *matmul_y(m, row, token) = sum;
    }
  }
}

#if LNL_VEC

VEC_INLINE void dot(const lnl_matmul *m, uint32_t row, uint32_t token, const uint32_t n) {
  const uint8_t *w = matmul_row(m, row);
  const size_t k = m->k;
  const lnl_q8 x = matmul_q8(m, token);
  const v128_t nibble = vec_opaque_i16(0x0f0f), minus_zero = vec_opaque_i16(-ZERO);
  v128_t acc[MATMUL_TILE];
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) acc[t] = vec_zero();
  for (size_t b = 0; b < k / BLOCK; b++, w += BLOCK_BYTES) {
    const v128_t packed = wasm_v128_load(w + 2);
    const v128_t d = wasm_f32x4_splat(load_half(w));
    const vec_codes low = vec_codes_make(wasm_v128_and(packed, nibble));
    const vec_codes high = vec_codes_make(wasm_v128_and(wasm_u16x8_shr(packed, 4), nibble));
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
      const size_t at = t * (k / 32) + b;
      const int8_t *q = x.q + at * 32;
      v128_t dot = vec_zero_point(x.sums + at * 2, minus_zero);
      dot = vec_dot(dot, low, q);
      dot = vec_dot(dot, high, q + 16);
      const v128_t scale = wasm_f32x4_mul(d, wasm_v128_load32_splat(x.d + at));
      acc[t] = vec_madd(wasm_f32x4_convert_i32x4(dot), scale, acc[t]);
    }
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) *matmul_y(m, row, token + t) = vec_sum_f32(acc[t]);
}
static VEC_NOINLINE void dot_1(const lnl_matmul *m, uint32_t row, uint32_t token) { dot(m, row, token, 1); }
static VEC_NOINLINE void dot_4(const lnl_matmul *m, uint32_t row, uint32_t token) {
  dot(m, row, token, MATMUL_TILE);
}
void q4_0_matmul(const lnl_matmul *m) { matmul_tiles(m, dot_1, dot_4); }

void q4_0_decode(const uint8_t *src, float *dst, uint64_t n) {
  const v128_t nibble = wasm_i8x16_splat(15), zero = wasm_i8x16_splat(ZERO);
  for (; n; n -= BLOCK, src += BLOCK_BYTES, dst += BLOCK) {
    const v128_t d = wasm_f32x4_splat(load_half(src));
    const v128_t packed = wasm_v128_load(src + 2);
    vec_store_scaled_i8(dst, wasm_i8x16_sub(wasm_v128_and(packed, nibble), zero), d);
    vec_store_scaled_i8(dst + 16, wasm_i8x16_sub(wasm_u8x16_shr(packed, 4), zero), d);
  }
}

#else

void q4_0_matmul(const lnl_matmul *m) { q4_0_matmul_scalar(m); }
void q4_0_decode(const uint8_t *src, float *dst, uint64_t n) { q4_0_decode_scalar(src, dst, n); }

#endif
