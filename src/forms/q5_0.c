/* Q5_0: blocks of 32, [d: f16][32 codes of 5 bits], value = d (code - 16). */
#include "five_bits.h"

#define FORM(suffix) q5_0_##suffix
enum { BLOCK = 32, BLOCK_BYTES = 22, SUB = 32, ZERO = 16, HAS_MIN = 0 };
#define CODES_SIGNED  0
#define BLOCK_FACTORS 1

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < BLOCK; i++) code[i] = (int8_t)five_bits_at(w + 2, i);
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  *scale = load_half(w);
  *min = 0;
}
#if LNL_VEC
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  v128_t codes[2];
  five_bits_load(w + 2, codes);
  wasm_v128_store(code, codes[0]);
  wasm_v128_store(code + 16, codes[1]);
}
#endif

#include "unpacked_form.h"
