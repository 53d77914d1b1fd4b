/* IQ2_XXS: blocks of 256, [d: f16][8 bytes for each 32 values: 4 entries of a grid
 * of 256][u32: 4 times 7 signs, 4 bits of scale], value = d (0.5 + scale) / 4 times
 * the grid's. */
#include "iq_grid.h"

#define FORM(suffix) iq2_xxs_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 66, SUB = 32, ZERO = 0, HAS_MIN = 0 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static const iq_levels levels = IQ_LEVELS(8, 25, 43);
VEC_INLINE void codes_by(const uint8_t *w, int8_t *code, const iq_put put, const iq_levels *table) {
  VEC_LOOP for (int i = 0; i < BLOCK / 16; i++) {
    const uint8_t *at = w + 2 + i / 2 * 8, *index = at + i % 2 * 2;
    const uint16_t entry[2] = {iq2_xxs_grid[index[0]], iq2_xxs_grid[index[1]]};
    uint32_t signs;
    memcpy(&signs, at + 4, 4);
    put(code + 16 * i, entry, iq_signs_16(signs >> (i % 2 * 14)), table);
  }
}
IQ_BLOCK_CODES(iq2_put)
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w);
  for (int j = 0; j < BLOCK / SUB; j++) {
    scale[j] = d * (0.5f + (float)(w[2 + 8 * j + 7] >> 4)) * 0.25f;
    min[j] = 0;
  }
}
#define block_scales block_scales_scalar

#include "unpacked_form.h"
