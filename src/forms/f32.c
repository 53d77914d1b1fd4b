/* F32: floats as they are. */
#include "../vec.h"

#define FORM(suffix) f32_##suffix
enum { VALUE_BYTES = 4 };

static inline float load_1(const uint8_t *src) { return load_f32(src); }
#if LNL_VEC
VEC_INLINE v128_t load_4(const uint8_t *src) { return wasm_v128_load(src); }
VEC_INLINE void load_8(const uint8_t *src, v128_t out[2]) {
  out[0] = wasm_v128_load(src);
  out[1] = wasm_v128_load(src + 16);
}
#endif

#include "float_form.h"
