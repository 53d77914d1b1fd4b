/* IQ4_NL: blocks of 32, [d: f16][16 bytes of codes], value = d values[code]. */
#include "iq4_values.h"

#define FORM(suffix) iq4_nl_##suffix
enum { BLOCK = 32, BLOCK_BYTES = 18, SUB = 32, ZERO = 0, HAS_MIN = 0 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 1

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) { iq4_values_scalar(w + 2, code); }
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  *scale = load_half(w);
  *min = 0;
}
#if LNL_VEC
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) { iq4_values_vec(w + 2, code); }
#endif

#include "unpacked_form.h"
