/* What the packed forms share whose codes have more than 4 bits and are bytes
 * when they are multiplied, with a zero point; private to src/forms.
 *
 * The zero point costs nothing: a sum begins with -zero x the sum of the
 * activations. In VEC_I16 each of a row's two 16-bit lanes begins with that of
 * its own activations, so that the lane ends up as the sum of (code - zero) a,
 * which fits: 8 x 32 x 127 and 16 x 16 x 127 are 32512; overflows on the way
 * there cancel out. In VEC_WIDE the even bytes of a vector are multiplied as
 * they are and the odd ones where they stand, 256 times too large; the
 * activations make all products 256 times too large. */
#ifndef LNL_X8_BYTES_H
#define LNL_X8_BYTES_H

#include "x8.h"

#if LNL_VEC

/* What `count` activations take in a record: in VEC_WIDE, for each 16 of them,
 * the even ones, then the odd ones. */
#define X8_BYTES_SIZE(count, mode) ((mode) == VEC_WIDE ? 2 * (count) : (count))
VEC_INLINE void x8_bytes_prepare(uint8_t *at, const int8_t *q, const int count, const vec_mode mode) {
  for (int i = 0; i < count; i += 16, q += 16) {
    const v128_t v = wasm_v128_load(q);
    if (mode == VEC_WIDE) {
      wasm_v128_store(at + 2 * i, wasm_i16x8_shl(v, 8));
      wasm_v128_store(at + 2 * i + 16, wasm_i16x8_shr(v, 8));
    } else {
      wasm_v128_store(at + i, v);
    }
  }
}
/* What the sum of those activations begins with, for all rows. */
VEC_INLINE int32_t x8_bytes_start(const int8_t *q, const int count, const int zero, const vec_mode mode) {
  v128_t sum = wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(q));
  for (int i = 16; i < count; i += 16)
    sum = wasm_i16x8_add(sum, wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(q + i)));
  sum = wasm_i16x8_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
  sum = wasm_i16x8_add(sum, wasm_i32x4_shuffle(sum, sum, 1, 0, 3, 2));
  if (mode == VEC_I16)
    return wasm_i32x4_extract_lane(wasm_i16x8_mul(sum, wasm_i16x8_splat((int16_t)-zero)), 0);
  const int total = wasm_i16x8_extract_lane(sum, 0) + wasm_i16x8_extract_lane(sum, 1);
  return (mode == VEC_WIDE ? -256 : -1) * zero * total;
}

/* Masks for VEC_WIDE, opaque. */
typedef struct x8_bytes_masks {
  v128_t even, odd;
} x8_bytes_masks;
VEC_INLINE x8_bytes_masks x8_bytes_masks_make(void) {
  return (x8_bytes_masks){vec_opaque_i16(0x00ff), vec_opaque_i16((int16_t)0xff00)};
}

/* sum[2 t + half] += codes of 4 values x activations 4 group .. 4 group + 3 of
 * those at x, for each of n tokens, whose records are record_bytes apart. */
VEC_INLINE void x8_bytes_dot(v128_t *sum, const v128_t codes[2], const uint8_t *x, const int group,
                             const uint32_t n, const uint32_t record_bytes, const x8_bytes_masks *mask,
                             const vec_mode mode) {
#if LNL_VEC == 2
  if (mode != VEC_WIDE) {
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
      const v128_t a = wasm_v128_load32_splat(x + t * record_bytes + 4 * group);
      VEC_UNROLL for (int h = 0; h < 2; h++) {
        v128_t *s = &sum[2 * t + h];
        *s = mode == VEC_I32 ? vec_relaxed_dot_i32(a, codes[h], *s)
                             : wasm_i16x8_add(*s, vec_relaxed_dot_i16(a, codes[h]));
        VEC_KEEP(*s);
      }
    }
    return;
  }
#endif
  (void)mode;
  VEC_UNROLL for (int part = 0; part < 2; part++) {
    const v128_t m = part ? mask->odd : mask->even;
    const v128_t c[2] = {wasm_v128_and(codes[0], m), wasm_v128_and(codes[1], m)};
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
      const uint8_t *at = x + t * record_bytes + group / 4 * 32 + group % 4 * 4 + 16 * part;
      const v128_t a = wasm_v128_load32_splat(at);
      VEC_UNROLL for (int h = 0; h < 2; h++) {
        v128_t *s = &sum[2 * t + h];
        *s = wasm_i32x4_add(*s, wasm_i32x4_dot_i16x8(c[h], a));
        VEC_KEEP(*s);
      }
    }
  }
}

#endif
#endif
