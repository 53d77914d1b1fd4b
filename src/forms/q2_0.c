/* Q2_0: blocks of 64, [d: f16][16 bytes, code i at bit 2 (i % 4) of byte i / 4],
 * value = d (code - 1). */
#include "../vec.h"

#define FORM(suffix) q2_0_##suffix
enum { BLOCK = 64, BLOCK_BYTES = 18, SUB = 32, ZERO = 1, HAS_MIN = 0 };
#define CODES_SIGNED  0
#define BLOCK_FACTORS 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < BLOCK; i++) code[i] = (int8_t)(w[2 + i / 4] >> (i % 4 * 2) & 3);
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w);
  for (int j = 0; j < BLOCK / SUB; j++) scale[j] = d, min[j] = 0;
}
#if LNL_VEC
/* Nibbles to bytes, then their halves. */
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  const v128_t nibble = wasm_i8x16_splat(15), mask = wasm_i16x8_splat(0x0303), v = wasm_v128_load(w + 2);
  const v128_t low = wasm_v128_and(v, nibble), high = wasm_u8x16_shr(v, 4);
  const v128_t nibbles[2] = {
      wasm_i8x16_shuffle(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
      wasm_i8x16_shuffle(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
  VEC_UNROLL for (int i = 0; i < 2; i++) {
    const v128_t first = wasm_u16x8_extend_low_u8x16(nibbles[i]),
                 second = wasm_u16x8_extend_high_u8x16(nibbles[i]);
    wasm_v128_store(code + 32 * i, wasm_v128_and(wasm_v128_or(first, wasm_i16x8_shl(first, 6)), mask));
    wasm_v128_store(code + 32 * i + 16, wasm_v128_and(wasm_v128_or(second, wasm_i16x8_shl(second, 6)), mask));
  }
}
#endif
#define block_scales block_scales_scalar

#include "unpacked_form.h"
