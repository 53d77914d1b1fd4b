/* Q5_K: blocks of 256, [d: f16][dmin: f16][12 bytes: 8 scales and 8 minima of
 * 6 bits][32 bytes: top bits][128 bytes: lower nibbles]. Sub-block j of 32
 * values: d sc_j code - dmin m_j. Nibbles of sub-blocks 2i and 2i + 1: low and
 * high ones of 32 bytes; the top bit of value i of sub-block j: bit j of byte i. */
#include "../vec.h"
#include "k_scales.h"

#define FORM(suffix) q5_k_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 176, SUB = 32, ZERO = 0, HAS_MIN = 1 };
enum { SCALES_AT = 4, TOP_AT = 16, CODES_AT = 48 };
#define CODES_SIGNED  0
#define BLOCK_FACTORS 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < BLOCK; i++) {
    const int j = i / 32, byte = w[CODES_AT + j / 2 * 32 + i % 32];
    code[i] = (int8_t)((j % 2 ? byte >> 4 : byte & 15) | (w[TOP_AT + i % 32] >> j & 1) << 4);
  }
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w), minus_dmin = -load_half(w + 2);
  for (int j = 0; j < BLOCK / SUB; j++) {
    int scale_j, min_j;
    scale_min(w + SCALES_AT, j, &scale_j, &min_j);
    scale[j] = d * (float)scale_j;
    min[j] = minus_dmin * (float)min_j;
  }
}
#if LNL_VEC
VEC_INLINE void store_8(float *dst, v128_t wide, float d) {
  const v128_t factor = wasm_f32x4_splat(d);
  wasm_v128_store(dst, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(wide)), factor));
  wasm_v128_store(dst + 4,
                  wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(wide)), factor));
}
VEC_INLINE void block_scales(const uint8_t *w, float *scale, float *min) {
  const v128_t packed = scales_mins(w + SCALES_AT);
  store_8(scale, wasm_u16x8_extend_low_u8x16(packed), load_half(w));
  store_8(min, wasm_u16x8_extend_high_u8x16(packed), -load_half(w + 2));
}
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  const v128_t nibble = wasm_i8x16_splat(15), sixteen = wasm_i8x16_splat(16);
  for (int part = 0; part < 2; part++, code += 16) {
    const v128_t top = wasm_v128_load(w + TOP_AT + 16 * part);
    VEC_UNROLL for (int i = 0; i < 4; i++) {
      const v128_t packed = wasm_v128_load(w + CODES_AT + 32 * i + 16 * part);
      const v128_t top_even = i == 0   ? wasm_i16x8_shl(top, 4)
                              : i == 1 ? wasm_i16x8_shl(top, 2)
                              : i == 2 ? top
                                       : wasm_u16x8_shr(top, 2);
      const v128_t top_odd = i == 0   ? wasm_i16x8_shl(top, 3)
                             : i == 1 ? wasm_i16x8_shl(top, 1)
                             : i == 2 ? wasm_u16x8_shr(top, 1)
                                      : wasm_u16x8_shr(top, 3);
      wasm_v128_store(code + 64 * i,
                      wasm_v128_or(wasm_v128_and(packed, nibble), wasm_v128_and(top_even, sixteen)));
      wasm_v128_store(code + 64 * i + 32, wasm_v128_or(wasm_v128_and(wasm_u16x8_shr(packed, 4), nibble),
                                                       wasm_v128_and(top_odd, sixteen)));
    }
  }
}
#endif

#include "unpacked_form.h"
