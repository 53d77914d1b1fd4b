/* The 16 values that a code of IQ4_NL and IQ4_XS stands for. */
#ifndef LNL_IQ4_VALUES_H
#define LNL_IQ4_VALUES_H

#include "../vec.h"

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* 32 codes: i low, i + 16 high nibble of byte i. */
static inline void iq4_values_scalar(const uint8_t *codes, int8_t *out) {
  for (int i = 0; i < 16; i++) {
    out[i] = iq4_values[codes[i] & 15];
    out[i + 16] = iq4_values[codes[i] >> 4];
  }
}
#if LNL_VEC
VEC_INLINE void iq4_values_vec(const uint8_t *codes, int8_t *out) {
  const v128_t table = wasm_v128_load(iq4_values), packed = wasm_v128_load(codes);
  wasm_v128_store(out, wasm_i8x16_swizzle(table, wasm_v128_and(packed, wasm_i8x16_splat(15))));
  wasm_v128_store(out + 16, wasm_i8x16_swizzle(table, wasm_u8x16_shr(packed, 4)));
}
#endif
#endif
