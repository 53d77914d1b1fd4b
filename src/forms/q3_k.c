/* Q3_K: blocks of 256, [32 bytes: top bits][64 bytes: lower 2 bits][12 bytes:
 * 16 scales of 6 bits, less 32][d: f16], value = d (sc - 32) (code - 4), a scale
 * for 16 values. Value 128 h + 32 g + i has its lower bits at bit 2 g of byte i
 * of half h, and its top bit at bit 4 h + g of byte i. */
#include "../vec.h"

#define FORM(suffix) q3_k_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 110, SUB = 16, ZERO = 4, HAS_MIN = 0 };
enum { CODES_AT = 32, SCALES_AT = 96, D_AT = 108 };
#define CODES_SIGNED  0
#define BLOCK_FACTORS 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < BLOCK; i++) {
    const int low = w[CODES_AT + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    code[i] = (int8_t)(low | (w[i % 32] >> (i / 32) & 1) << 2);
  }
}
/* Scale j: its low 4 bits in byte j % 8 (upper nibbles for j >= 8), its upper 2
 * at bit 2 (j / 4) of byte 8 + j % 4. */
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w + D_AT);
  const uint8_t *packed = w + SCALES_AT;
  for (int j = 0; j < BLOCK / SUB; j++) {
    const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
    const int high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
    scale[j] = d * (float)((low | high << 4) - 32);
    min[j] = 0;
  }
}
#if LNL_VEC
VEC_INLINE void block_scales(const uint8_t *w, float *scale, float *min) {
  const v128_t nibble = wasm_i8x16_splat(15), packed = wasm_v128_load64_zero(w + SCALES_AT);
  const v128_t low = wasm_i64x2_shuffle(wasm_v128_and(packed, nibble), wasm_u8x16_shr(packed, 4), 0, 2);
  const v128_t upper = wasm_v128_load32_splat(w + SCALES_AT + 8);
  const v128_t high =
      wasm_i32x4_shuffle(wasm_i32x4_shuffle(wasm_i32x4_shl(upper, 4), wasm_i32x4_shl(upper, 2), 0, 4, 0, 4),
                         wasm_i32x4_shuffle(upper, wasm_u32x4_shr(upper, 2), 0, 4, 0, 4), 0, 1, 4, 5);
  const v128_t scales = wasm_v128_or(low, wasm_v128_and(high, wasm_i8x16_splat(0x30)));
  vec_store_scaled_i8(scale, wasm_i8x16_sub(scales, wasm_i8x16_splat(32)),
                      wasm_f32x4_splat(load_half(w + D_AT)));
  (void)min;
}
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  const v128_t mask = wasm_i8x16_splat(3), four = wasm_i8x16_splat(4);
  for (int i = 0; i < 4; i++) {
    const v128_t low = wasm_v128_load(w + CODES_AT + 16 * i);
    const v128_t top = wasm_u8x16_shr(wasm_v128_load(w + i % 2 * 16), 4 * (unsigned)(i / 2));
    int8_t *out = code + i / 2 * 128 + i % 2 * 16;
    const v128_t top_4[4] = {wasm_i16x8_shl(top, 2), wasm_i16x8_shl(top, 1), top, wasm_u16x8_shr(top, 1)};
    const v128_t low_4[4] = {low, wasm_u16x8_shr(low, 2), wasm_u16x8_shr(low, 4), wasm_u16x8_shr(low, 6)};
    VEC_UNROLL for (int g = 0; g < 4; g++) wasm_v128_store(
        out + 32 * g, wasm_v128_or(wasm_v128_and(low_4[g], mask), wasm_v128_and(top_4[g], four)));
  }
}
#endif

#include "unpacked_form.h"
