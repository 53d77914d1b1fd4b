/* MXFP4: blocks of 32, [e: u8][16 bytes: code i low, code i + 16 high nibble],
 * value = 2^(e - 128) values[code]. */
#include "fp4_values.h"

#define FORM(suffix) mxfp4_##suffix
enum { BLOCK = 32, BLOCK_BYTES = 17, SUB = 32, ZERO = 0, HAS_MIN = 0 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < 16; i++) {
    code[i] = fp4_values[w[1 + i] & 15];
    code[i + 16] = fp4_values[w[1 + i] >> 4];
  }
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const uint32_t e = *w; /* 2^-128 and 2^-127 are subnormal */
  *scale = float_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  *min = 0;
}
#if LNL_VEC
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  const v128_t table = wasm_v128_load(fp4_values), packed = wasm_v128_load(w + 1);
  wasm_v128_store(code, wasm_i8x16_swizzle(table, wasm_v128_and(packed, wasm_i8x16_splat(15))));
  wasm_v128_store(code + 16, wasm_i8x16_swizzle(table, wasm_u8x16_shr(packed, 4)));
}
#endif
#define block_scales block_scales_scalar

#include "unpacked_form.h"
