/* NVFP4: blocks of 64, [4 scales: u8, unsigned floats of 4 bits of exponent (7 is that
 * of 1) and 3 of fraction, 0x7f being 0][8 bytes for each 16 values: code i low, code
 * i + 8 high nibble], value = scale / 2 values[code]. */
#include "fp4_values.h"

#define FORM(suffix) nvfp4_##suffix
enum { BLOCK = 64, BLOCK_BYTES = 36, SUB = 16, ZERO = 0, HAS_MIN = 0 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < 32; i++) {
    code[i / 8 * 16 + i % 8] = fp4_values[w[4 + i] & 15];
    code[i / 8 * 16 + i % 8 + 8] = fp4_values[w[4 + i] >> 4];
  }
}
/* The bits moved to a float's fields are 2^120 too small, subnormals too. */
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  for (int j = 0; j < BLOCK / SUB; j++) {
    scale[j] = w[j] == 0x7f ? 0 : float_from_bits((uint32_t)(w[j] & 0x7f) << 20) * 0x1p119f;
    min[j] = 0;
  }
}
#if LNL_VEC
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  const v128_t table = wasm_v128_load(fp4_values);
  VEC_UNROLL for (int i = 0; i < 2; i++) {
    const v128_t packed = wasm_v128_load(w + 4 + 16 * i);
    const v128_t low = wasm_i8x16_swizzle(table, wasm_v128_and(packed, wasm_i8x16_splat(15)));
    const v128_t high = wasm_i8x16_swizzle(table, wasm_u8x16_shr(packed, 4));
    wasm_v128_store(code + 32 * i, wasm_i64x2_shuffle(low, high, 0, 2));
    wasm_v128_store(code + 32 * i + 16, wasm_i64x2_shuffle(low, high, 1, 3));
  }
}
#endif
#define block_scales block_scales_scalar

#include "unpacked_form.h"
