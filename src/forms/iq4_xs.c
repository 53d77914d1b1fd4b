/* IQ4_XS: blocks of 256, [d: f16][u16: upper 2 bits of 8 scales][4 bytes: lower
 * nibbles of the scales][128 bytes of codes, 16 for a sub-block], sub-block j of
 * 32 values: d (sc_j - 32) values[code]. */
#include "iq4_values.h"

#define FORM(suffix) iq4_xs_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 136, SUB = 32, ZERO = 0, HAS_MIN = 0, CODES_AT = 8 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int j = 0; j < BLOCK / SUB; j++) iq4_values_scalar(w + CODES_AT + 16 * j, code + SUB * j);
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w);
  const int high = load_u16(w + 2);
  for (int j = 0; j < BLOCK / SUB; j++) {
    const int low = w[4 + j / 2] >> (j % 2 * 4) & 15;
    scale[j] = d * (float)((low | (high >> (2 * j) & 3) << 4) - 32);
    min[j] = 0;
  }
}
#if LNL_VEC
/* Nibbles, and pairs of bits, spread to bytes. */
VEC_INLINE void block_scales(const uint8_t *w, float *scale, float *min) {
  uint32_t nibbles;
  memcpy(&nibbles, w + 4, 4);
  uint64_t low = nibbles, high = load_u16(w + 2);
  low = (low | low << 16) & 0x0000ffff0000ffff;
  low = (low | low << 8) & 0x00ff00ff00ff00ff;
  low = (low | low << 4) & 0x0f0f0f0f0f0f0f0f;
  high = (high | high << 24) & 0x000000ff000000ff;
  high = (high | high << 12) & 0x000f000f000f000f;
  high = (high | high << 6) & 0x0303030303030303;
  const v128_t wide = wasm_i16x8_sub(
      wasm_u16x8_extend_low_u8x16(wasm_i64x2_splat((int64_t)(low | high << 4))), wasm_i16x8_splat(32));
  const v128_t d = wasm_f32x4_splat(load_half(w));
  wasm_v128_store(scale, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(wide)), d));
  wasm_v128_store(scale + 4, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(wide)), d));
  (void)min;
}
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  for (int j = 0; j < BLOCK / SUB; j++) iq4_values_vec(w + CODES_AT + 16 * j, code + SUB * j);
}
#endif

#include "unpacked_form.h"
