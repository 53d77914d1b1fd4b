/* The kernel of the packed forms whose codes are nibbles, Q4_0 and Q4_1: blocks of
 * [8 scales][8 minima: Q4_1][8 vectors], each vector the stored bytes 4 j .. 4 j + 3
 * of four rows (x8.h); private to src/forms. */
#ifndef LNL_NIBBLES_X8_H
#define LNL_NIBBLES_X8_H

#include "x8.h"

enum { NIBBLES_ZERO = 8 };

#if LNL_VEC

/* VEC_I32, VEC_I16: the activations are the int8 themselves. In VEC_I16 a lane
 * of 16 bits adds up 16 products, at most 16 x 15 x 127 = 30480; the start,
 * -8 sum(a), sits in the first of a row's two lanes, whose own products are
 * some of those that it stands for, so that lane stays within +-32512.
 *
 * With minima codes have no zero point. In the place of the start a record has
 * sum(a) as a float, which multiplies them.
 *
 * VEC_WIDE: a vector is 8 int16, each of four codes, two to a row. Three of the
 * codes need no shift: they are masked where they stand, 16 or 256 times too
 * large, and the activations make up for it, so that all products are 256
 * times too large (which the factor takes away). */
#define RECORD_ACTIVATIONS(mode) ((mode) == VEC_WIDE ? 64 : 32)
#define RECORD_BYTES(mode)       (RECORD_ACTIVATIONS(mode) + X8_RECORD_END)

VEC_INLINE void nibbles_prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode,
                                const bool has_min) {
  const v128_t upper = wasm_i16x8_splat((int16_t)0xff00);
  for (; blocks; blocks--, record += step, x.q += 32, x.d++, x.sums += 2) {
    const v128_t low = wasm_v128_load(x.q), high = wasm_v128_load(x.q + 16);
    const int total = x.sums[0] + x.sums[1];
    int32_t start = -NIBBLES_ZERO * total;
    if (mode == VEC_WIDE) {
      wasm_v128_store(record, wasm_i16x8_shl(low, 8));
      wasm_v128_store(record + 16, wasm_i16x8_shr(wasm_i16x8_shl(high, 8), 4));
      wasm_v128_store(record + 32, wasm_i16x8_shr(low, 8));
      wasm_v128_store(record + 48, wasm_v128_and(high, upper));
      start *= 256;
    } else {
      wasm_v128_store(record, low);
      wasm_v128_store(record + 16, high);
      if (mode == VEC_I16) start &= 0xffff;
    }
    if (has_min) {
      const float sum = (float)total * (mode == VEC_WIDE ? 256.0f : 1.0f);
      memcpy(&start, &sum, 4);
    }
    x8_record_end(record + RECORD_ACTIVATIONS(mode), start, *x.d);
  }
}

typedef struct code_masks {
  v128_t nibble[3];
} code_masks;
/* The codes of a vector that meet activations part * 16 of the record. */
VEC_INLINE v128_t codes_of(const uint8_t *w, const int part, const code_masks *mask, const vec_mode mode) {
  const v128_t v = wasm_v128_load(w);
  if (mode == VEC_WIDE) return part < 3 ? wasm_v128_and(v, mask->nibble[part]) : wasm_u16x8_shr(v, 12);
  return wasm_v128_and(part ? wasm_u16x8_shr(v, 4) : v, mask->nibble[0]);
}

VEC_INLINE void nibbles_dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                            const vec_mode mode, const bool has_min) {
  const uint32_t codes_at = has_min ? 2 * X8_SCALES : X8_SCALES, block_bytes = codes_at + 128;
  const x8_scales scales = x8_scales_make();
  const v128_t ones = vec_opaque_i16(1);
  const code_masks mask = {{vec_opaque_i16(mode == VEC_WIDE ? 0x000f : 0x0f0f),
                            mode == VEC_WIDE ? vec_opaque_i16(0x00f0) : ones,
                            mode == VEC_WIDE ? vec_opaque_i16(0x0f00) : ones}};
  v128_t seen = vec_zero(), acc[2 * X8_TILE];
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) acc[i] = wasm_v128_load(out + 4 * i);
  for (; blocks; blocks--, w += block_bytes, a += n * RECORD_BYTES(mode)) {
    v128_t sum[2 * X8_TILE];
    if (has_min)
      VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) sum[i] = vec_zero();
    else
      x8_start(sum, a, n, RECORD_BYTES(mode));
    VEC_UNROLL for (int j = 0; j < 4; j++) {
      VEC_UNROLL for (int part = 0; part < RECORD_ACTIVATIONS(mode) / 16; part++) {
        const v128_t rows_0 = codes_of(w + codes_at + 32 * j, part, &mask, mode);
        const v128_t rows_4 = codes_of(w + codes_at + 32 * j + 16, part, &mask, mode);
        VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
          const v128_t x = wasm_v128_load32_splat(a + t * RECORD_BYTES(mode) + 16 * part + 4 * j);
          sum[2 * t] = x8_dot_step(sum[2 * t], rows_0, x, mode);
          VEC_KEEP(sum[2 * t]);
          sum[2 * t + 1] = x8_dot_step(sum[2 * t + 1], rows_4, x, mode);
          VEC_KEEP(sum[2 * t + 1]);
        }
      }
    }
    if (mode == VEC_I16)
      VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) sum[i] = wasm_i32x4_dot_i16x8(sum[i], ones);
    seen = x8_seen(seen, w);
    x8_add(acc, sum, w, a, n, RECORD_BYTES(mode), &scales);
    if (has_min) {
      seen = x8_seen(seen, w + X8_SCALES);
      x8_add_min(acc, w + X8_SCALES, a, n, RECORD_BYTES(mode), &scales);
    }
  }
  x8_finish(out, acc, seen, n);
}

#endif
#endif
