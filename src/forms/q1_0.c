/* Q1_0: blocks of 128, [d: f16][128 bits], value = d where the bit is 1, else -d. */
#include "../vec.h"

#define FORM(suffix) q1_0_##suffix
enum { BLOCK = 128, BLOCK_BYTES = 18, SUB = 32, ZERO = 1, HAS_MIN = 0 };
#define CODES_SIGNED  0
#define BLOCK_FACTORS 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < BLOCK; i++) code[i] = (int8_t)(w[2 + i / 8] >> (i % 8) << 1 & 2);
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w);
  for (int j = 0; j < BLOCK / SUB; j++) scale[j] = d, min[j] = 0;
}
#if LNL_VEC
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  const v128_t bit = wasm_i64x2_splat((int64_t)0x8040201008040201), two = wasm_i8x16_splat(2);
  VEC_LOOP for (int i = 0; i < BLOCK / 16; i++) {
    const v128_t v = wasm_v128_load16_splat(w + 2 + 2 * i);
    const v128_t spread = wasm_i8x16_shuffle(v, v, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    wasm_v128_store(code + 16 * i, wasm_v128_and(wasm_i8x16_eq(wasm_v128_and(spread, bit), bit), two));
  }
}
#endif
#define block_scales block_scales_scalar

#include "unpacked_form.h"
