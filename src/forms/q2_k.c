/* Q2_K: blocks of 256, [16 bytes: scale low, minimum high nibble][64 bytes of
 * codes][d: f16][dmin: f16], value = d sc code - dmin m, a scale for 16 values.
 * Codes: two_bits.h. */
#include "two_bits.h"

#define FORM(suffix) q2_k_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 84, SUB = 16, ZERO = 0, HAS_MIN = 1, CODES_AT = 16, D_AT = 80 };
#define CODES_SIGNED  0
#define BLOCK_FACTORS 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < BLOCK; i++) code[i] = (int8_t)two_bits_at(w + CODES_AT, i);
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w + D_AT), minus_dmin = -load_half(w + D_AT + 2);
  for (int j = 0; j < BLOCK / SUB; j++) {
    scale[j] = d * (float)(w[j] & 15);
    min[j] = minus_dmin * (float)(w[j] >> 4);
  }
}
#if LNL_VEC
VEC_INLINE void block_scales(const uint8_t *w, float *scale, float *min) {
  const v128_t packed = wasm_v128_load(w);
  vec_store_scaled_i8(scale, wasm_v128_and(packed, wasm_i8x16_splat(15)),
                      wasm_f32x4_splat(load_half(w + D_AT)));
  vec_store_scaled_i8(min, wasm_u8x16_shr(packed, 4), wasm_f32x4_splat(-load_half(w + D_AT + 2)));
}
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) { two_bits_load(w + CODES_AT, code); }
#endif

#include "unpacked_form.h"
