/* TQ2_0: blocks of 256, [64 bytes of codes: two_bits.h][d: f16], value = d (code - 1). */
#include "two_bits.h"

#define FORM(suffix) tq2_0_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 66, SUB = 32, ZERO = 1, HAS_MIN = 0, D_AT = 64 };
#define CODES_SIGNED  0
#define BLOCK_FACTORS 0

static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {
  for (int i = 0; i < BLOCK; i++) code[i] = (int8_t)two_bits_at(w, i);
}
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w + D_AT);
  for (int j = 0; j < BLOCK / SUB; j++) scale[j] = d, min[j] = 0;
}
#define block_codes  two_bits_load
#define block_scales block_scales_scalar

#include "unpacked_form.h"
