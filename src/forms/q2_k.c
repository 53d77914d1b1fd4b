/* Q2_K: blocks of 256, [16 bytes: scale low, minimum high nibble][64 bytes of
 * codes][d: f16][dmin: f16], value = d sc code - dmin m, a scale for 16 values.
 * Each half of 128 values: value 32 g + i has its code at bit 2 g of byte i of
 * its 32. */
#include "../vec.h"

#define FORM(suffix) q2_k_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 84, SUB = 16, ZERO = 0, HAS_MIN = 1, CODES_AT = 16, D_AT = 80 };
#define CODES_SIGNED 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < BLOCK; i++)
    code[i] = (int8_t)(w[CODES_AT + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
}
static inline void block_scales(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w + D_AT), minus_dmin = -load_half(w + D_AT + 2);
  for (int j = 0; j < BLOCK / SUB; j++) {
    scale[j] = d * (float)(w[j] & 15);
    min[j] = minus_dmin * (float)(w[j] >> 4);
  }
}
#if LNL_VEC
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  const v128_t mask = wasm_i8x16_splat(3);
  VEC_UNROLL for (int i = 0; i < 4; i++) {
    const v128_t packed = wasm_v128_load(w + CODES_AT + 16 * i);
    int8_t *out = code + i / 2 * 128 + i % 2 * 16;
    wasm_v128_store(out, wasm_v128_and(packed, mask));
    wasm_v128_store(out + 32, wasm_v128_and(wasm_u16x8_shr(packed, 2), mask));
    wasm_v128_store(out + 64, wasm_v128_and(wasm_u16x8_shr(packed, 4), mask));
    wasm_v128_store(out + 96, wasm_v128_and(wasm_u16x8_shr(packed, 6), mask));
  }
}
#endif

#include "unpacked.h"
