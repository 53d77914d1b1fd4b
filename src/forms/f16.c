/* F16: IEEE halves. */
#include "../vec.h"

#define FORM(suffix) f16_##suffix
enum { VALUE_BYTES = 2 };

static inline float load_1(const uint8_t *src) { return load_half(src); }
#if LNL_VEC
VEC_INLINE v128_t load_4(const uint8_t *src) { return vec_half_to_f32(wasm_i32x4_load16x4(src)); }
VEC_INLINE void load_8(const uint8_t *src, v128_t out[2]) {
  v128_t half = wasm_v128_load(src);
  out[0] = vec_half_to_f32(wasm_i32x4_extend_low_i16x8(half));
  out[1] = vec_half_to_f32(wasm_i32x4_extend_high_i16x8(half));
}
#endif

#include "float_form.h"
