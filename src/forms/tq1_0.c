/* TQ1_0: blocks of 256, [48 bytes of 5 trits][4 bytes of 4 trits][d: f16], value =
 * d (trit - 1). The first trit of a byte is 3 byte / 256, the rest goes on with the
 * lower 8 bits of 3 byte. Trit n of byte i is value 32 n + i for the first 32 bytes,
 * 160 + 16 n + i for the next 16, 240 + 4 n + i for the last 4. */
#include "../vec.h"

#define FORM(suffix) tq1_0_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 54, SUB = 32, ZERO = 1, HAS_MIN = 0, D_AT = 52 };
#define CODES_SIGNED  0
#define BLOCK_FACTORS 0

static inline void trits_scalar(const uint8_t *w, int8_t *code, int bytes, int trits) {
  for (int i = 0; i < bytes; i++)
    for (uint32_t n = 0, rest = w[i]; n < (uint32_t)trits; n++, rest = (uint8_t)(3 * rest))
      code[(int)n * bytes + i] = (int8_t)(3 * rest >> 8);
}
static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  trits_scalar(w, code, 32, 5);
  trits_scalar(w + 32, code + 160, 16, 5);
  trits_scalar(w + 48, code + 240, 4, 4);
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w + D_AT);
  for (int j = 0; j < BLOCK / SUB; j++) scale[j] = d, min[j] = 0;
}
#if LNL_VEC
/* 3 v / 256 of a byte: 1 from 86 on, 2 from 171 on. */
VEC_INLINE v128_t first_trits(v128_t v) {
  const v128_t one = wasm_u8x16_ge(v, wasm_i8x16_splat(86)),
               two = wasm_u8x16_ge(v, wasm_i8x16_splat((int8_t)171));
  return wasm_i8x16_neg(wasm_i8x16_add(one, two));
}
VEC_INLINE v128_t next_trits(v128_t v) { return wasm_i8x16_add(v, wasm_i8x16_add(v, v)); }
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  VEC_LOOP for (int part = 0; part < 3; part++) {
    v128_t v = wasm_v128_load(w + 16 * part);
    int8_t *out = part < 2 ? code + 16 * part : code + 160;
    VEC_LOOP for (int n = 0; n < 5; n++, v = next_trits(v), out += part < 2 ? 32 : 16)
        wasm_v128_store(out, first_trits(v));
  }
  v128_t v = wasm_v128_load32_splat(w + 48), v3 = next_trits(v), v9 = next_trits(v3), v27 = next_trits(v9);
  v = wasm_i32x4_shuffle(wasm_i32x4_shuffle(v, v3, 0, 4, 0, 4), wasm_i32x4_shuffle(v9, v27, 0, 4, 0, 4), 0, 1,
                         4, 5);
  wasm_v128_store(code + 240, first_trits(v));
}
#endif
#define block_scales block_scales_scalar

#include "unpacked_form.h"
