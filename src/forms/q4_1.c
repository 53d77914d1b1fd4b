/* Q4_1: blocks of 32, [d: f16][m: f16][16 bytes: code i low, code i + 16 high
 * nibble], value = d code + m. */
#include "../vec.h"

#define FORM(suffix) q4_1_##suffix
enum { BLOCK = 32, BLOCK_BYTES = 20, SUB = 32, ZERO = 0, HAS_MIN = 1 };
#define CODES_SIGNED  0
#define BLOCK_FACTORS 1

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < 16; i++) {
    code[i] = (int8_t)(w[4 + i] & 15);
    code[i + 16] = (int8_t)(w[4 + i] >> 4);
  }
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  *scale = load_half(w);
  *min = load_half(w + 2);
}
#if LNL_VEC
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  const v128_t packed = wasm_v128_load(w + 4);
  wasm_v128_store(code, wasm_v128_and(packed, wasm_i8x16_splat(15)));
  wasm_v128_store(code + 16, wasm_u8x16_shr(packed, 4));
}
#endif

#include "unpacked_form.h"
