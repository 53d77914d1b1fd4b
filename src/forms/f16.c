/* F16: IEEE halves. */
#include "../vec.h"

#define FORM(suffix) f16_##suffix
enum { VALUE_BYTES = 2 };

static inline float load_1(const uint8_t *src) { return load_half(src); }
#if LNL_VEC
/* Infinite and NaN weights are rare, so they are only noticed here: `largest`
 * holds the largest halves seen, their sign shifted out. */
typedef struct load_state {
  vec_half half;
  v128_t largest;
} load_state;
VEC_INLINE load_state load_begin(void) { return (load_state){vec_half_make(), vec_zero()}; }
VEC_INLINE void load_notice(load_state *s, v128_t halves) {
  s->largest = wasm_u16x8_max(s->largest, wasm_i16x8_shl(halves, 1));
}
VEC_INLINE v128_t load_4(const uint8_t *src, load_state *s) {
  const v128_t halves = wasm_v128_load64_zero(src);
  load_notice(s, halves);
  return vec_half_finite(vec_upper_low(halves), &s->half);
}
VEC_INLINE void load_8(const uint8_t *src, v128_t out[2], load_state *s) {
  const v128_t halves = wasm_v128_load(src);
  load_notice(s, halves);
  out[0] = vec_half_finite(vec_upper_low(halves), &s->half);
  out[1] = vec_half_finite(vec_upper_high(halves), &s->half);
}
VEC_INLINE bool load_failed(const load_state *s) {
  return wasm_v128_any_true(wasm_u16x8_ge(s->largest, wasm_i16x8_splat((int16_t)0xf800)));
}
#endif

#include "float_form.h"
