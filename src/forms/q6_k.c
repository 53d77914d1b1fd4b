/* Q6_K: blocks of 256, [128 bytes: low nibbles][64 bytes: upper 2 bits]
 * [16 int8 scales][d: f16], value = d sc (code - 32), a scale for 16 values.
 * Each half of 128 values: value 32 g + i has its low nibble in byte
 * 32 (g % 2) + i (low half of the byte for g < 2) and its upper bits at 2 g of
 * byte i. */
#include "form_impl.h"

enum { BLOCK = 256, BLOCK_BYTES = 210, ZERO = 32, HIGH_AT = 128, SCALES_AT = 192, D_AT = 208 };

static inline int code_at(const uint8_t *block, int i) {
  const int half = i / 128, group = i % 128 / 32, at = i % 32;
  const int low = block[64 * half + 32 * (group % 2) + at];
  const int high = block[HIGH_AT + 32 * half + at] >> (2 * group) & 3;
  return (group < 2 ? low & 15 : low >> 4) | high << 4;
}
static inline int scale_at(const uint8_t *block, int i) { return (int8_t)block[SCALES_AT + i / 16]; }

void q6_k_decode_scalar(const uint8_t *src, float *dst, uint64_t n) {
  for (; n; n -= BLOCK, src += BLOCK_BYTES) {
    const float d = load_half(src + D_AT);
    for (int i = 0; i < BLOCK; i++)
      *dst++ = d * (float)scale_at(src, i) * (float)(code_at(src, i) - ZERO);
  }
}

void q6_k_matmul_scalar(const lnl_matmul *m) {
  for (uint32_t token = 0; token < m->n_tok; token++) {
    const lnl_q8 x = matmul_q8(m, token);
    for (uint32_t row = m->row_begin; row < m->row_end; row++) {
      const uint8_t *w = matmul_row(m, row);
      float sum = 0;
      for (uint32_t b = 0; b < m->k / BLOCK; b++, w += BLOCK_BYTES) {
        const float d = load_half(w + D_AT);
        for (int first = 0; first < BLOCK; first += 16) {
          const size_t at = (size_t)b * BLOCK + (size_t)first;
          int dot = 0;
          for (int i = 0; i < 16; i++) dot += (code_at(w, first + i) - ZERO) * x.q[at + (size_t)i];
          const float term = d * (float)scale_at(w, first) * x.d[at / 32] * (float)dot;
          sum += term;
        }
      }
      *matmul_y(m, row, token) = sum;
    }
  }
}

#if LNL_VEC

/* The codes of values 128 half + 32 group + 16 part .. + 15. */
VEC_INLINE v128_t codes_load(const uint8_t *w, int half, int part, int group, v128_t nibble, v128_t upper) {
  const v128_t low = wasm_v128_load(w + 64 * half + 32 * (group % 2) + 16 * part);
  const v128_t high = wasm_v128_load(w + HIGH_AT + 32 * half + 16 * part);
  const v128_t high_at_4 = group == 0   ? wasm_i16x8_shl(high, 4)
                           : group == 1 ? wasm_i16x8_shl(high, 2)
                           : group == 2 ? high
                                        : wasm_u16x8_shr(high, 2);
  return wasm_v128_or(wasm_v128_and(group < 2 ? low : wasm_u16x8_shr(low, 4), nibble),
                      wasm_v128_and(high_at_4, upper));
}

/* sum of scale * sum of activations over 128 values, as floats times x_d. */
VEC_INLINE v128_t zero_points(v128_t scales, const int16_t *sums, v128_t x_d) {
  return wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_dot_i16x8(scales, wasm_v128_load(sums))), x_d);
}

VEC_INLINE void dot(const lnl_matmul *m, uint32_t row, uint32_t token, const uint32_t n) {
  const uint8_t *w = matmul_row(m, row);
  const size_t k = m->k;
  const lnl_q8 x = matmul_q8(m, token);
  const v128_t nibble = vec_opaque_i16(0x0f0f), upper = vec_opaque_i16(0x3030);
  v128_t acc[MATMUL_TILE];
  float scale[MATMUL_TILE][16];
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) acc[t] = vec_zero();
  for (size_t b = 0; b < k / BLOCK; b++, w += BLOCK_BYTES) {
    const float d = load_half(w + D_AT);
    const v128_t minus_zero = wasm_f32x4_splat((float)-ZERO * d), d_all = wasm_f32x4_splat(d);
    VEC_UNROLL for (int half = 0; half < 2; half++) {
      const v128_t scales = wasm_i16x8_load8x8(w + SCALES_AT + 8 * half);
      const v128_t low = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(scales)), d_all);
      const v128_t high = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(scales)), d_all);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        const size_t at = t * (k / 32) + b * 8 + (size_t)half * 4;
        const v128_t x_d = wasm_v128_load(x.d + at);
        acc[t] = vec_madd(zero_points(scales, x.sums + at * 2, x_d), minus_zero, acc[t]);
        wasm_v128_store(scale[t] + 8 * half, wasm_f32x4_mul(low, wasm_i32x4_shuffle(x_d, x_d, 0, 0, 1, 1)));
        wasm_v128_store(scale[t] + 8 * half + 4, wasm_f32x4_mul(high, wasm_i32x4_shuffle(x_d, x_d, 2, 2, 3, 3)));
      }
    }
    VEC_UNROLL for (int half = 0; half < 2; half++)
      VEC_UNROLL for (int part = 0; part < 2; part++)
        VEC_UNROLL for (int group = 0; group < 4; group++) {
          const vec_codes codes = vec_codes_make(codes_load(w, half, part, group, nibble, upper));
          const int at = 8 * half + 2 * group + part;
          VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
            const v128_t dot = vec_dot(vec_zero(), codes, x.q + t * k + b * BLOCK + (size_t)at * 16);
            acc[t] = vec_madd(wasm_f32x4_convert_i32x4(dot), wasm_v128_load32_splat(&scale[t][at]), acc[t]);
          }
        }
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) *matmul_y(m, row, token + t) = vec_sum_f32(acc[t]);
}
static VEC_NOINLINE void dot_1(const lnl_matmul *m, uint32_t row, uint32_t token) { dot(m, row, token, 1); }
static VEC_NOINLINE void dot_4(const lnl_matmul *m, uint32_t row, uint32_t token) {
  dot(m, row, token, MATMUL_TILE);
}
void q6_k_matmul(const lnl_matmul *m) { matmul_tiles(m, dot_1, dot_4); }

void q6_k_decode(const uint8_t *src, float *dst, uint64_t n) {
  const v128_t nibble = wasm_i8x16_splat(15), upper = wasm_i8x16_splat(0x30), zero = wasm_i8x16_splat(ZERO);
  for (; n; n -= BLOCK, src += BLOCK_BYTES, dst += BLOCK) {
    const float d = load_half(src + D_AT);
    VEC_UNROLL for (int half = 0; half < 2; half++)
      VEC_UNROLL for (int part = 0; part < 2; part++)
        VEC_UNROLL for (int group = 0; group < 4; group++) {
          const int first = 128 * half + 32 * group + 16 * part;
          const v128_t step = wasm_f32x4_splat(d * (float)scale_at(src, first));
          const v128_t codes = codes_load(src, half, part, group, nibble, upper);
          vec_store_scaled_i8(dst + first, wasm_i8x16_sub(codes, zero), step);
        }
  }
}

#else

void q6_k_matmul(const lnl_matmul *m) { q6_k_matmul_scalar(m); }
void q6_k_decode(const uint8_t *src, float *dst, uint64_t n) { q6_k_decode_scalar(src, dst, n); }

#endif
