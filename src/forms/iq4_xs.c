/* IQ4_XS: blocks of 256, [d: f16][u16: upper 2 bits of 8 scales][4 bytes: lower
 * nibbles of the scales][128 bytes of codes, 16 for a sub-block], sub-block j of
 * 32 values: d (sc_j - 32) values[code]. */
#include "iq4_values.h"

#define FORM(suffix) iq4_xs_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 136, SUB = 32, ZERO = 0, HAS_MIN = 0, CODES_AT = 8 };
#define CODES_SIGNED 1

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int j = 0; j < BLOCK / SUB; j++) iq4_values_scalar(w + CODES_AT + 16 * j, code + SUB * j);
}
static inline void block_scales(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w);
  const int high = load_u16(w + 2);
  for (int j = 0; j < BLOCK / SUB; j++) {
    const int low = w[4 + j / 2] >> (j % 2 * 4) & 15;
    scale[j] = d * (float)((low | (high >> (2 * j) & 3) << 4) - 32);
    min[j] = 0;
  }
}
#if LNL_VEC
VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {
  for (int j = 0; j < BLOCK / SUB; j++) iq4_values_vec(w + CODES_AT + 16 * j, code + SUB * j);
}
#endif

#include "unpacked.h"
