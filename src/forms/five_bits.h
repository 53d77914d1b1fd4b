/* What the forms of 32 codes of 5 bits share: [u32: the top bits of codes
 * 0..31][16 bytes: code i low, code i + 16 high nibble]. */
#ifndef LNL_FIVE_BITS_H
#define LNL_FIVE_BITS_H

#include "../vec.h"

enum { FIVE_BITS_BYTES = 20 };

static inline uint8_t five_bits_at(const uint8_t *bits, int i) {
  const int nibble = i < 16 ? bits[4 + i] & 15 : bits[4 + i - 16] >> 4;
  return (uint8_t)(nibble | (bits[i / 8] >> i % 8 & 1) << 4);
}

#if LNL_VEC
/* Codes 0..15 and 16..31. */
VEC_INLINE void five_bits_load(const uint8_t *bits, v128_t out[2]) {
  const v128_t top = wasm_v128_load32_splat(bits), packed = wasm_v128_load(bits + 4);
  const v128_t bit = wasm_i64x2_splat((int64_t)0x8040201008040201), sixteen = wasm_i8x16_splat(16);
  const v128_t first =
      wasm_v128_and(wasm_i8x16_shuffle(top, top, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1), bit);
  const v128_t second =
      wasm_v128_and(wasm_i8x16_shuffle(top, top, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3), bit);
  out[0] = wasm_v128_or(wasm_v128_and(packed, wasm_i8x16_splat(15)),
                        wasm_v128_and(wasm_i8x16_eq(first, bit), sixteen));
  out[1] = wasm_v128_or(wasm_u8x16_shr(packed, 4), wasm_v128_and(wasm_i8x16_eq(second, bit), sixteen));
}
#endif
#endif
