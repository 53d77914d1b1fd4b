/* F32: floats as they are. */
#include "../vec.h"

#define FORM(suffix) f32_##suffix
enum { VALUE_BYTES = 4 };

static inline float load_1(const uint8_t *src) { return load_f32(src); }
#if LNL_VEC
typedef struct load_state {
  char none;
} load_state;
VEC_INLINE load_state load_begin(void) { return (load_state){0}; }
VEC_INLINE bool load_failed(const load_state *s) { return (void)s, false; }
VEC_INLINE v128_t load_4(const uint8_t *src, load_state *s) {
  (void)s;
  return wasm_v128_load(src);
}
VEC_INLINE void load_8(const uint8_t *src, v128_t out[2], load_state *s) {
  (void)s;
  out[0] = wasm_v128_load(src);
  out[1] = wasm_v128_load(src + 16);
}
#endif

#include "float_form.h"
