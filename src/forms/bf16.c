/* BF16: the upper halves of 32-bit floats. */
#include "../vec.h"

#define FORM(suffix) bf16_##suffix
enum { VALUE_BYTES = 2 };

static inline float load_1(const uint8_t *src) { return float_from_bits((uint32_t)load_u16(src) << 16); }
#if LNL_VEC
typedef struct load_state {
  char none;
} load_state;
VEC_INLINE load_state load_begin(void) { return (load_state){0}; }
VEC_INLINE bool load_failed(const load_state *s) { return (void)s, false; }
VEC_INLINE v128_t load_4(const uint8_t *src, load_state *s) {
  (void)s;
  return wasm_i32x4_shl(wasm_u32x4_load16x4(src), 16);
}
VEC_INLINE void load_8(const uint8_t *src, v128_t out[2], load_state *s) {
  (void)s;
  v128_t half = wasm_v128_load(src);
  out[0] = wasm_i32x4_shl(wasm_u32x4_extend_low_u16x8(half), 16);
  out[1] = wasm_i32x4_shl(wasm_u32x4_extend_high_u16x8(half), 16);
}
#endif

#include "float_form.h"
