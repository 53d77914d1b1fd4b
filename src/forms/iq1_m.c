/* IQ1_M: blocks of 256, [32 bytes: the lower 8 bits of an entry in a grid of 2048 for
 * each 8 values][16 bytes, a nibble each: their upper 3 bits and a sign][4 u16: 4 times
 * 3 bits of scale, for 16 values each, and 4 bits of d: f16], value = d (1 + 2 scale)
 * (the grid's + 1/8, or - 1/8 by the sign). */
#include "iq_grid.h"

#define FORM(suffix) iq1_m_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 56, SUB = 16, ZERO = 0, HAS_MIN = 0, HIGH_AT = 32, SCALES_AT = 48 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static const iq_levels levels = IQ_LEVELS(-8, 0, 8);
VEC_INLINE void codes_by(const uint8_t *w, int8_t *code, const iq_put put, const iq_levels *table) {
  VEC_LOOP for (int i = 0; i < BLOCK / 16; i++) {
    const uint8_t *low = w + 2 * i;
    const uint32_t high = w[HIGH_AT + i];
    const uint16_t entry[2] = {iq1_grid[low[0] | (high & 7) << 8], iq1_grid[low[1] | (high >> 4 & 7) << 8]};
    put(code + 16 * i, entry, (high & 8 ? 0xff : 0) | (high & 128 ? 0xff00 : 0), table);
  }
}
IQ_BLOCK_CODES(iq1_put)
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  uint16_t field[4];
  memcpy(field, w + SCALES_AT, 8);
  const float d = half_to_float(
      (uint16_t)(field[0] >> 12 | (field[1] >> 12) << 4 | (field[2] >> 12) << 8 | (field[3] >> 12) << 12));
  for (int j = 0; j < BLOCK / SUB; j++) {
    scale[j] = d * (float)(1 + 2 * (field[j / 4] >> (j % 4 * 3) & 7)) * 0.125f;
    min[j] = 0;
  }
}
#define block_scales block_scales_scalar

#include "unpacked_form.h"
