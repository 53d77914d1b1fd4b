/* IQ1_S: blocks of 256, [d: f16][32 bytes: the lower 8 bits of an entry in a grid of
 * 2048 for each 8 values][u16 for each 32 values: 4 times their upper 3 bits, 3 bits
 * of scale, a sign], value = d (1 + 2 scale) (the grid's + 1/8, or - 1/8 by the sign). */
#include "iq_grid.h"

#define FORM(suffix) iq1_s_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 50, SUB = 32, ZERO = 0, HAS_MIN = 0, HIGH_AT = 34 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static const iq_levels levels = IQ_LEVELS(-8, 0, 8);
VEC_INLINE void codes_by(const uint8_t *w, int8_t *code, const iq_put put, const iq_levels *table) {
  VEC_LOOP for (int i = 0; i < BLOCK / 16; i++) {
    const uint8_t *low = w + 2 + 2 * i;
    const uint32_t field = load_u16(w + HIGH_AT + i / 2 * 2), high = field >> (i % 2 * 6);
    const uint16_t entry[2] = {iq1_grid[low[0] | (high & 7) << 8], iq1_grid[low[1] | (high >> 3 & 7) << 8]};
    put(code + 16 * i, entry, field & 0x8000 ? 0xffff : 0, table);
  }
}
IQ_BLOCK_CODES(iq1_put)
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w);
  for (int j = 0; j < BLOCK / SUB; j++) {
    scale[j] = d * (float)(1 + 2 * (load_u16(w + HIGH_AT + 2 * j) >> 12 & 7)) * 0.125f;
    min[j] = 0;
  }
}
#define block_scales block_scales_scalar

#include "unpacked_form.h"
