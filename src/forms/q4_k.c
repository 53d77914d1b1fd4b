/* Q4_K: blocks of 256, [d: f16][dmin: f16][12 bytes: 8 scales and 8 minima of
 * 6 bits][128 bytes of codes]. Sub-block j of 32 values: d sc_j code - dmin m_j.
 * Codes of sub-blocks 2i and 2i + 1: low and high nibbles of 32 bytes. */
#include "form_impl.h"
#include "k_scales.h"

enum { BLOCK = 256, BLOCK_BYTES = 144, SUB_BLOCKS = 8, SCALES_AT = 4, CODES_AT = 16 };

static inline int code_at(const uint8_t *codes, int j, int i) {
  const int byte = codes[j / 2 * 32 + i];
  return j % 2 ? byte >> 4 : byte & 15;
}

void q4_k_decode_scalar(const uint8_t *src, float *dst, uint64_t n) {
  for (; n; n -= BLOCK, src += BLOCK_BYTES) {
    const float d = load_half(src), dmin = load_half(src + 2);
    for (int j = 0; j < SUB_BLOCKS; j++) {
      int scale, min;
      scale_min(src + SCALES_AT, j, &scale, &min);
      const float step = d * (float)scale, offset = dmin * (float)min;
      for (int i = 0; i < 32; i++) {
        const float product = step * (float)code_at(src + CODES_AT, j, i);
        *dst++ = product - offset;
      }
    }
  }
}

#if LNL_VEC

VEC_INLINE v128_t low_i16_to_f32(v128_t v) {
  return wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(v));
}
VEC_INLINE v128_t high_i16_to_f32(v128_t v) {
  return wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(v));
}

/* For four sub-blocks, whose factors d sc and -dmin m are given, and the
 * activations from value `at` on: adds the minima, returns the scales. */
VEC_INLINE v128_t scales_4(v128_t *acc, v128_t d, v128_t minus_min, const lnl_q8 *x, size_t at) {
  const v128_t x_d = wasm_v128_load(x->d + at / 32);
  *acc = vec_madd(wasm_f32x4_mul(block_sums_4(x->sums + at / 16), x_d), minus_min, *acc);
  return wasm_f32x4_mul(d, x_d);
}

VEC_INLINE void dot(const lnl_matmul *m, uint32_t row, uint32_t token, const uint32_t n,
                    const vec_mode mode) {
  const uint8_t *w = matmul_row(m, row);
  const size_t k = m->k;
  const lnl_q8 x = matmul_q8(m, token);
  const v128_t nibble = vec_opaque_i16(0x0f0f), ones = vec_opaque_i16(1);
  v128_t acc[MATMUL_TILE];
  float scale[MATMUL_TILE * SUB_BLOCKS];
  MATMUL_Q_POINTERS(q, x, n, k)
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) acc[t] = vec_zero();
  for (size_t at = 0; at < k; at += BLOCK, w += BLOCK_BYTES) {
    const v128_t packed = scales_mins(w + SCALES_AT);
    const v128_t scales = wasm_u16x8_extend_low_u8x16(packed), mins = wasm_u16x8_extend_high_u8x16(packed);
    const v128_t d = wasm_f32x4_splat(load_half(w)), minus_dmin = wasm_f32x4_splat(-load_half(w + 2));
    const v128_t d_low = wasm_f32x4_mul(low_i16_to_f32(scales), d);
    const v128_t d_high = wasm_f32x4_mul(high_i16_to_f32(scales), d);
    const v128_t min_low = wasm_f32x4_mul(low_i16_to_f32(mins), minus_dmin);
    const v128_t min_high = wasm_f32x4_mul(high_i16_to_f32(mins), minus_dmin);
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
      wasm_v128_store(scale + SUB_BLOCKS * t, scales_4(&acc[t], d_low, min_low, &x, t * k + at));
      wasm_v128_store(scale + SUB_BLOCKS * t + 4, scales_4(&acc[t], d_high, min_high, &x, t * k + at + 128));
    }
    const float *factor = scale;
    const uint8_t *codes = w + CODES_AT;
    VEC_KEEP_POINTER(factor);
    VEC_LOOP for (int j = 0; j < SUB_BLOCKS; j += 2, factor += 2, codes += 32) {
      const v128_t first = wasm_v128_load(codes), second = wasm_v128_load(codes + 16);
      const vec_codes low = vec_codes_make(wasm_v128_and(first, nibble), wasm_v128_and(second, nibble), mode);
      const vec_codes high = vec_codes_make(wasm_v128_and(wasm_u16x8_shr(first, 4), nibble),
                                            wasm_v128_and(wasm_u16x8_shr(second, 4), nibble), mode);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        const v128_t dot_low = vec_dot_codes(low, q[t], ones, mode);
        const v128_t dot_high = vec_dot_codes(high, q[t] + 32, ones, mode);
        const float *at_t = factor + SUB_BLOCKS * t;
        acc[t] = vec_madd(wasm_f32x4_convert_i32x4(dot_low), wasm_v128_load32_splat(at_t), acc[t]);
        acc[t] = vec_madd(wasm_f32x4_convert_i32x4(dot_high), wasm_v128_load32_splat(at_t + 1), acc[t]);
        q[t] += 64;
      }
    }
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) * matmul_y(m, row, token + t) = vec_sum_f32(acc[t]);
}
MATMUL_DEFINE(q4_k, dot, VEC_I16)

/* 16 values step code - offset, rounded as the specification rounds. */
VEC_INLINE void store_values(float *dst, v128_t codes, v128_t step, v128_t offset) {
  vec_store_scaled_i8(dst, codes, step);
  VEC_UNROLL for (int i = 0; i < 16; i += 4)
      wasm_v128_store(dst + i, wasm_f32x4_sub(wasm_v128_load(dst + i), offset));
}

void q4_k_decode(const uint8_t *src, float *dst, uint64_t n) {
  const v128_t nibble = wasm_i8x16_splat(15);
  for (; n; n -= BLOCK, src += BLOCK_BYTES) {
    const float d = load_half(src), dmin = load_half(src + 2);
    for (int j = 0; j < SUB_BLOCKS; j++, dst += 32) {
      int scale, min;
      scale_min(src + SCALES_AT, j, &scale, &min);
      const v128_t step = wasm_f32x4_splat(d * (float)scale), offset = wasm_f32x4_splat(dmin * (float)min);
      for (int i = 0; i < 32; i += 16) {
        const v128_t packed = wasm_v128_load(src + CODES_AT + j / 2 * 32 + i);
        store_values(dst + i, wasm_v128_and(j % 2 ? wasm_u16x8_shr(packed, 4) : packed, nibble), step,
                     offset);
      }
    }
  }
}

#endif
