/* The kernel of the packed forms Q4_K and Q5_K: blocks of
 *   [d: 8 f16][dmin: 8 f16][scales: 8 bytes for each sub-block][minima: the same]
 *   4 times, for a pair of sub-blocks:
 *     [16 vectors, 2 for each 4 values: x8.h][4 vectors of top bits: Q5_K]
 * a vector being 4 stored bytes of each of four rows: low nibbles are codes of
 * sub-block 2 p, high ones of 2 p + 1. Top bits are those of the first and the last
 * 16 values, for rows 0-3, then 4-7: bit g % 4 of a byte for sub-block 2 p and
 * 4 + g % 4 for 2 p + 1. Private to src/forms. */
#ifndef LNL_K_X8_H
#define LNL_K_X8_H

#include "k_scales.h"
#include "x8.h"

enum {
  K_DMIN_AT = 16,
  K_SCALES_AT = 32,
  K_MINS_AT = 96,
  K_CODES_AT = 160,
  K_PAIR_BYTES = 256,
  K_TOP_BYTES = 64
};

#if LNL_VEC

enum { SUBS = 8 };

/* [d][dmin][scales and minima] of the stored blocks of 8 rows. */
VEC_INLINE void k_pack_scales(uint8_t *dst, const uint8_t *const block[FORM_GROUP]) {
  v128_t row[FORM_GROUP];
  VEC_UNROLL for (int r = 0; r < FORM_GROUP; r++) {
    memcpy(dst + 2 * r, block[r], 2);
    memcpy(dst + K_DMIN_AT + 2 * r, block[r] + 2, 2);
    row[r] = scales_mins(block[r] + 4);
  }
  x8_transpose_bytes(dst + K_SCALES_AT, row); /* minima follow scales */
}
/* The interleaved codes of four rows, whose nibbles begin at block[r] + at. */
VEC_INLINE void k_pack_codes(const uint8_t *const block[4], uint32_t at, uint8_t *dst, uint32_t pair_bytes) {
  VEC_LOOP for (uint32_t i = 0; i < 8; i++) {
    v128_t row[4];
    VEC_UNROLL for (int r = 0; r < 4; r++) row[r] = wasm_v128_load(block[r] + at + 16 * i);
    x8_transpose(dst + i / 2 * pair_bytes + i % 2 * 128, row);
  }
}

/* Value i of a row is d scale code - dmin min; codes: those of its block. */
static inline void k_decode_row(const uint8_t *group, uint32_t row, float *dst, const uint8_t *codes) {
  const float d = load_half(group + 2 * row), dmin = load_half(group + K_DMIN_AT + 2 * row);
  for (uint32_t i = 0; i < 32 * SUBS; i++) {
    const uint32_t sub = i / 32 * 8 + row;
    const float step = d * (float)group[K_SCALES_AT + sub], offset = dmin * (float)group[K_MINS_AT + sub];
    const float product = step * (float)codes[i];
    dst[i] = product - offset;
  }
}
/* The nibble of value i. */
static inline uint8_t k_nibble(const uint8_t *block, uint32_t row, uint32_t i, uint32_t pair_bytes) {
  const uint8_t byte = block[K_CODES_AT + i / 64 * pair_bytes + i % 32 / 4 * 32 + row * 4 + i % 4];
  return i % 64 < 32 ? byte & 15 : byte >> 4;
}

/* A record: [activations][d of each sub-block][-d sum(q) of each].
 *
 * VEC_I32, VEC_I16: the activations are the int8 themselves. In 16 bits a lane
 * adds up 16 products, at most 16 x 15 x 127 = 30480, before the scale takes
 * part in the step to 32 bits. Codes of 5 bits take that step twice, after 8
 * products each.
 *
 * VEC_WIDE: a vector is 8 int16, each of four codes. Those of sub-block 2 p
 * (and 2 p + 1) are masked where they stand, 1 and 256 (16 and 4096) times too
 * large, or shifted; the activations make all products 256 times too large,
 * and 32 of them times a scale are still exact as a float. Codes of 5 bits are
 * masked as bytes, even ones and odd ones. */
#define RECORD_SUB(mode)   ((mode) == VEC_WIDE ? 64 : 32)
#define RECORD_D(mode)     (SUBS * RECORD_SUB(mode))
#define RECORD_BYTES(mode) (RECORD_D(mode) + 8 * SUBS)

VEC_INLINE void k_prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode,
                          const bool five) {
  const v128_t upper = wasm_i16x8_splat((int16_t)0xff00);
  for (; blocks; blocks--, record += step, x.q += 32 * SUBS, x.d += SUBS, x.sums += 2 * SUBS) {
    uint8_t *at = record;
    for (int j = 0; j < SUBS; j++, at += RECORD_SUB(mode)) VEC_UNROLL for (int i = 0; i < 2; i++) {
        const v128_t v = wasm_v128_load(x.q + 32 * j + 16 * i);
        if (mode != VEC_WIDE) {
          wasm_v128_store(at + 16 * i, v);
        } else if (five || j % 2 == 0) {
          wasm_v128_store(at + 16 * i, wasm_i16x8_shl(v, 8));
          wasm_v128_store(at + 32 + 16 * i, wasm_i16x8_shr(v, 8));
        } else {
          wasm_v128_store(at + 16 * i, wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 4));
          wasm_v128_store(at + 32 + 16 * i, wasm_v128_and(v, upper));
        }
      }
    VEC_UNROLL for (int i = 0; i < 2; i++) {
      const v128_t d = wasm_v128_load(x.d + 4 * i);
      wasm_v128_store(at + 16 * i, d);
      wasm_v128_store(at + 4 * SUBS + 16 * i,
                      wasm_f32x4_neg(wasm_f32x4_mul(block_sums_4(x.sums + 8 * i), d)));
    }
  }
}

typedef struct k_masks {
  v128_t nibble[3], sixteen;
} k_masks;

/* The codes of a vector, that of values 4 g .. 4 g + 3 of two sub-blocks, for the
 * first (and in VEC_WIDE the second) part of a sub-block's activations. */
VEC_INLINE v128_t k_codes(v128_t v, const v128_t *top, const int g, const int sub, const int part,
                          const k_masks *mask, const vec_mode mode, const bool five) {
  if (five) {
    const v128_t low = wasm_v128_and(sub ? wasm_u16x8_shr(v, 4) : v, mask->nibble[0]);
    const int q = g % 4;
    const v128_t bits = sub == 0 ? wasm_i16x8_shl(top[g / 4], 4 - q)
                        : q > 0  ? wasm_u16x8_shr(top[g / 4], q)
                                 : top[g / 4];
    const v128_t codes = wasm_v128_or(low, wasm_v128_and(bits, mask->sixteen));
    return mode == VEC_WIDE ? wasm_v128_and(codes, mask->nibble[1 + part]) : codes;
  }
  if (mode != VEC_WIDE) return wasm_v128_and(sub ? wasm_u16x8_shr(v, 4) : v, mask->nibble[0]);
  return sub && part ? wasm_u16x8_shr(v, 12) : wasm_v128_and(v, mask->nibble[sub ? 1 : 2 * part]);
}
/* Eight bytes as what multiplies the sums of rows 0-3 and 4-7. */
VEC_INLINE void bytes_to_f32(const uint8_t *bytes, v128_t out[2]) {
  const v128_t wide = wasm_u16x8_load8x8(bytes);
  out[0] = wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(wide));
  out[1] = wasm_f32x4_convert_i32x4(wasm_u32x4_extend_high_u16x8(wide));
}
/* The scales of 8 rows: as what multiplies the sums, and in VEC_I16 adds their
 * two lanes. */
VEC_INLINE void k_scales_load(const uint8_t *scales, v128_t s[2], const vec_mode mode) {
  if (mode != VEC_I16) {
    bytes_to_f32(scales, s);
    return;
  }
  const v128_t wide = wasm_u16x8_load8x8(scales);
  s[0] = vec_upper_low(wide);
  s[1] = vec_upper_high(wide);
}
/* acc[i] += scales x sums x d for one sub-block; sums[2 t + half]. first: what
 * already is scaled, if `five` in VEC_I16. */
VEC_INLINE void k_scale_add(v128_t *acc, const v128_t *sum, const v128_t *first, const uint8_t *scales,
                            const uint8_t *d, const uint32_t n, const vec_mode mode, const bool five) {
  v128_t s[2];
  k_scales_load(scales, s, mode);
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
    const v128_t d_t = wasm_v128_load32_splat(d + t * RECORD_BYTES(mode));
    VEC_UNROLL for (uint32_t h = 0; h < 2; h++) {
      const uint32_t i = 2 * t + h;
      v128_t scaled;
      if (mode == VEC_I16) {
        scaled = wasm_i32x4_dot_i16x8(sum[i], s[h]);
        scaled = wasm_f32x4_convert_i32x4(five ? wasm_i32x4_add(scaled, first[i]) : scaled);
      } else {
        scaled = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(sum[i]), s[h]);
      }
      acc[i] = vec_madd(scaled, d_t, acc[i]);
    }
  }
}
/* The step to 32 bits half way. */
VEC_INLINE void k_scale_first(v128_t *first, v128_t *sum, const uint8_t *scales, const uint32_t n) {
  v128_t s[2];
  k_scales_load(scales, s, VEC_I16);
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) {
    first[i] = wasm_i32x4_dot_i16x8(sum[i], s[i % 2]);
    sum[i] = vec_zero();
  }
}

VEC_INLINE void k_dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                      const vec_mode mode, const bool five) {
  const uint32_t pair_bytes = five ? K_PAIR_BYTES + K_TOP_BYTES : K_PAIR_BYTES;
  const bool twice = five && mode == VEC_I16;
  const vec_half half = vec_half_make();
  const v128_t ones = vec_opaque_i16(1);
  const bool wide = mode == VEC_WIDE;
  const k_masks mask = {{vec_opaque_i16(wide && !five ? 0x000f : 0x0f0f),
                         wide ? vec_opaque_i16(five ? 0x00ff : 0x00f0) : ones,
                         wide ? vec_opaque_i16(five ? (int16_t)0xff00 : 0x0f00) : ones},
                        five ? vec_opaque_i16(0x1010) : ones};
  const v128_t exact = vec_opaque_f32(0x1p-8f);
  v128_t total[2 * X8_TILE];
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) total[i] = wasm_v128_load(out + 4 * i);
  for (; blocks; blocks--, w += K_CODES_AT + SUBS / 2 * pair_bytes, a += n * RECORD_BYTES(mode)) {
    v128_t acc[2 * X8_TILE];
    VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) acc[i] = vec_zero();
    const uint8_t *offset = a + RECORD_D(mode) + 4 * SUBS, *mins = w + K_MINS_AT;
    VEC_LOOP for (int j = 0; j < SUBS; j++, mins += 8, offset += 4) {
      v128_t min[2];
      bytes_to_f32(mins, min);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        const v128_t x = wasm_v128_load32_splat(offset + t * RECORD_BYTES(mode));
        acc[2 * t] = vec_madd(min[0], x, acc[2 * t]);
        acc[2 * t + 1] = vec_madd(min[1], x, acc[2 * t + 1]);
      }
    }
    VEC_UNROLL for (uint32_t h = 0; h < 2; h++) {
      const v128_t upper = wasm_i32x4_shl(wasm_i32x4_load16x4(w + K_DMIN_AT + 8 * h), 16);
      const v128_t dmin = vec_half_any(upper, &half);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        total[2 * t + h] = vec_madd(acc[2 * t + h], dmin, total[2 * t + h]);
        acc[2 * t + h] = vec_zero();
      }
    }
    const uint8_t *codes = w + K_CODES_AT, *scales = w + K_SCALES_AT, *x = a, *d = a + RECORD_D(mode);
    VEC_LOOP for (int p = 0; p < SUBS;
                  p += 2, codes += pair_bytes, scales += 16, x += 2 * RECORD_SUB(mode), d += 8) {
      if (n == 1) { /* each vector is loaded once */
        v128_t sum[4], first[4], top[2][2];
        VEC_UNROLL for (int i = 0; i < 4; i++) {
          sum[i] = vec_zero();
          if (five) top[i % 2][i / 2] = wasm_v128_load(codes + K_PAIR_BYTES + 16 * i);
        }
        VEC_UNROLL for (int g = 0; g < 8; g++) VEC_UNROLL for (int h = 0; h < 2; h++) {
          if (twice && g == 4 && h == 0) {
            k_scale_first(first, sum, scales, n);
            k_scale_first(first + 2, sum + 2, scales + 8, n);
          }
          const v128_t v = wasm_v128_load(codes + 32 * g + 16 * h);
          VEC_UNROLL for (int sub = 0; sub < 2; sub++)
              VEC_UNROLL for (int part = 0; part < RECORD_SUB(mode) / 32; part++) {
            const v128_t x_t = wasm_v128_load32_splat(x + sub * RECORD_SUB(mode) + 32 * part + 4 * g);
            v128_t *s = &sum[2 * sub + h];
            *s = x8_dot_step(*s, k_codes(v, top[h], g, sub, part, &mask, mode, five), x_t, mode);
            VEC_KEEP(*s);
          }
        }
        k_scale_add(acc, sum, first, scales, d, n, mode, five);
        k_scale_add(acc, sum + 2, first + 2, scales + 8, d + 4, n, mode, five);
      } else {
        VEC_UNROLL for (int sub = 0; sub < 2; sub++) {
          v128_t sum[2 * X8_TILE], first[2 * X8_TILE], top[2][2];
          VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) sum[i] = vec_zero();
          if (five)
            VEC_UNROLL for (int i = 0; i < 4; i++) top[i % 2][i / 2] =
                wasm_v128_load(codes + K_PAIR_BYTES + 16 * i);
          VEC_UNROLL for (int g = 0; g < 8; g++) {
            if (twice && g == 4) k_scale_first(first, sum, scales + 8 * sub, n);
            const v128_t v0 = wasm_v128_load(codes + 32 * g), v1 = wasm_v128_load(codes + 32 * g + 16);
            VEC_UNROLL for (int part = 0; part < RECORD_SUB(mode) / 32; part++) {
              const v128_t c0 = k_codes(v0, top[0], g, sub, part, &mask, mode, five);
              const v128_t c1 = k_codes(v1, top[1], g, sub, part, &mask, mode, five);
              VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
                const v128_t x_t = wasm_v128_load32_splat(x + t * RECORD_BYTES(mode) +
                                                          sub * RECORD_SUB(mode) + 32 * part + 4 * g);
                sum[2 * t] = x8_dot_step(sum[2 * t], c0, x_t, mode);
                VEC_KEEP(sum[2 * t]);
                sum[2 * t + 1] = x8_dot_step(sum[2 * t + 1], c1, x_t, mode);
                VEC_KEEP(sum[2 * t + 1]);
              }
            }
          }
          k_scale_add(acc, sum, first, scales + 8 * sub, d + 4 * sub, n, mode, five);
        }
      }
    }
    x8_add_super(total, acc, w, n, mode, &half, exact);
  }
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) wasm_v128_store(out + 4 * i, total[i]);
}

#endif
#endif
