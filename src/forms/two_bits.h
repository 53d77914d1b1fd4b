/* Codes of 2 bits in groups of 128, as Q2_K, Q3_K and TQ2_0 have them: value
 * 32 g + i at bit 2 g of byte i of 32; private to src/forms. */
#ifndef LNL_TWO_BITS_H
#define LNL_TWO_BITS_H

#include "../vec.h"

static inline int two_bits_at(const uint8_t *packed, int i) {
  return packed[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}
#if LNL_VEC
/* 256 codes. */
VEC_INLINE void two_bits_load(const uint8_t *packed, int8_t *code) {
  const v128_t mask = wasm_i8x16_splat(3);
  VEC_LOOP for (int i = 0; i < 4; i++) {
    const v128_t v = wasm_v128_load(packed + 16 * i);
    int8_t *out = code + i / 2 * 128 + i % 2 * 16;
    wasm_v128_store(out, wasm_v128_and(v, mask));
    wasm_v128_store(out + 32, wasm_v128_and(wasm_u16x8_shr(v, 2), mask));
    wasm_v128_store(out + 64, wasm_v128_and(wasm_u16x8_shr(v, 4), mask));
    wasm_v128_store(out + 96, wasm_v128_and(wasm_u16x8_shr(v, 6), mask));
  }
}
#endif

#endif
