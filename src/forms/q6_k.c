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
    for (int i = 0; i < BLOCK; i++) *dst++ = d * (float)scale_at(src, i) * (float)(code_at(src, i) - ZERO);
  }
}

#if LNL_VEC

/* The codes of values 128 half + 32 group + 16 part .. + 15. */
VEC_INLINE v128_t codes_load(const uint8_t *w, size_t half, size_t part, const size_t group, v128_t nibble,
                             v128_t upper) {
  const v128_t low = wasm_v128_load(w + 64 * half + 32 * (group % 2) + 16 * part);
  const v128_t high = wasm_v128_load(w + HIGH_AT + 32 * half + 16 * part);
  const v128_t high_at_4 = group == 0   ? wasm_i16x8_shl(high, 4)
                           : group == 1 ? wasm_i16x8_shl(high, 2)
                           : group == 2 ? high
                                        : wasm_u16x8_shr(high, 2);
  return wasm_v128_or(wasm_v128_and(group < 2 ? low : wasm_u16x8_shr(low, 4), nibble),
                      wasm_v128_and(high_at_4, upper));
}

/* 16 codes ready to be multiplied, with their scale. The scale takes part in
 * the integer product: 16 values give at most 63 * 128 * 127 * 16 / 4 lanes,
 * 32 of them less than 2^24, which a float holds exactly. */
typedef struct scaled_codes {
#if LNL_VEC == 2
  v128_t codes, scale;
#else
  v128_t low, high; /* code times scale, as int16 */
#endif
} scaled_codes;

VEC_INLINE scaled_codes scaled_codes_make(v128_t codes, const uint8_t *scale_at) {
  const v128_t scale = wasm_i16x8_extend_low_i8x16(wasm_v128_load8_splat(scale_at));
#if LNL_VEC == 2
  return (scaled_codes){codes, scale};
#else
  return (scaled_codes){wasm_i16x8_mul(wasm_u16x8_extend_low_u8x16(codes), scale),
                        wasm_i16x8_mul(wasm_u16x8_extend_high_u8x16(codes), scale)};
#endif
}
VEC_INLINE v128_t scaled_codes_dot(const scaled_codes *c, const int8_t *q) {
#if LNL_VEC == 2
  v128_t dot = wasm_i32x4_dot_i16x8(vec_relaxed_dot_i16(wasm_v128_load(q), c->codes), c->scale);
#else
  v128_t dot = wasm_i32x4_add(wasm_i32x4_dot_i16x8(c->low, wasm_i16x8_load8x8(q)),
                              wasm_i32x4_dot_i16x8(c->high, wasm_i16x8_load8x8(q + 8)));
#endif
  VEC_KEEP(dot);
  return dot;
}

VEC_INLINE void dot(const lnl_matmul *m, uint32_t row, uint32_t token, const uint32_t n) {
  const uint8_t *w = matmul_row(m, row);
  const size_t k = m->k;
  const lnl_q8 x = matmul_q8(m, token);
  const v128_t nibble = vec_opaque_i16(0x0f0f), upper = vec_opaque_i16(0x3030);
  const v128_t minus_zero = vec_opaque_f32(-ZERO);
  v128_t acc[MATMUL_TILE];
  float scale[MATMUL_TILE * 8];
  MATMUL_Q_POINTERS(q, x, n, k)
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) acc[t] = vec_zero();
  for (size_t at = 0; at < k; at += BLOCK, w += BLOCK_BYTES) {
    const v128_t d = wasm_f32x4_splat(load_half(w + D_AT));
    VEC_UNROLL for (size_t half = 0; half < 2; half++) {
      const v128_t scales = wasm_i16x8_load8x8(w + SCALES_AT + 8 * half);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        const size_t first = t * k + at + half * 128;
        const v128_t factor = wasm_f32x4_mul(d, wasm_v128_load(x.d + first / 32));
        const v128_t zero = wasm_i32x4_dot_i16x8(scales, wasm_v128_load(x.sums + first / 16));
        acc[t] = vec_madd(wasm_f32x4_mul(wasm_f32x4_convert_i32x4(zero), minus_zero), factor, acc[t]);
        wasm_v128_store(scale + 8 * t + 4 * half, factor);
      }
    }
    const float *factor = scale;
    VEC_KEEP_POINTER(factor);
    VEC_LOOP for (size_t half = 0; half < 2; half++, factor += 4) {
      VEC_UNROLL for (size_t group = 0; group < 4; group++) {
        const uint8_t *scale_at = w + SCALES_AT + 8 * half + 2 * group;
        const scaled_codes first = scaled_codes_make(codes_load(w, half, 0, group, nibble, upper), scale_at);
        const scaled_codes second =
            scaled_codes_make(codes_load(w, half, 1, group, nibble, upper), scale_at + 1);
        VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
          const v128_t dot =
              wasm_i32x4_add(scaled_codes_dot(&first, q[t]), scaled_codes_dot(&second, q[t] + 16));
          const v128_t factor_t = wasm_v128_load32_splat(factor + 8 * t + group);
          acc[t] = vec_madd(wasm_f32x4_convert_i32x4(dot), factor_t, acc[t]);
          q[t] += 32;
        }
      }
    }
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) * matmul_y(m, row, token + t) = vec_sum_f32(acc[t]);
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
    for (size_t half = 0; half < 2; half++)
      for (size_t part = 0; part < 2; part++) VEC_UNROLL for (size_t group = 0; group < 4; group++) {
          const size_t first = 128 * half + 32 * group + 16 * part;
          const v128_t step = wasm_f32x4_splat(d * (float)scale_at(src, (int)first));
          const v128_t codes = codes_load(src, half, part, group, nibble, upper);
          vec_store_scaled_i8(dst + first, wasm_i8x16_sub(codes, zero), step);
        }
  }
}

#endif
