/* F16: IEEE halves. */
#include "../vec.h"

#define FORM(suffix) f16_##suffix
enum { VALUE_BYTES = 2 };

static inline float load_1(const uint8_t *src) { return load_half(src); }
#if LNL_VEC
typedef vec_half load_constants;
VEC_INLINE load_constants load_prepare(void) { return vec_half_make(); }
VEC_INLINE v128_t load_4(const uint8_t *src, const load_constants *c) { return vec_half_load_4(src, c); }
VEC_INLINE void load_8(const uint8_t *src, v128_t out[2], const load_constants *c) {
  const v128_t halves = wasm_v128_load(src);
  out[0] = vec_half_low(halves, c);
  out[1] = vec_half_high(halves, c);
}
#endif

#include "float_form.h"
