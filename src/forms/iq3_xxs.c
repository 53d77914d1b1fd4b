/* IQ3_XXS: blocks of 256, [d: f16][64 bytes: an entry in a grid of 256 for each 4
 * values][u32 for each 32 values: 4 times 7 signs, 4 bits of scale], value =
 * d (0.5 + scale) / 2 times the grid's. */
#include "iq_grid.h"

#define FORM(suffix) iq3_xxs_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 98, SUB = 32, ZERO = 0, HAS_MIN = 0, SIGNS_AT = 66 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static const iq_levels levels = {{4, 12, 20, 28, 36, 44, 52, 62}, {0}, IQ_CONSTANTS};
VEC_INLINE void codes_by(const uint8_t *w, int8_t *code, const iq_put put, const iq_levels *table) {
  VEC_LOOP for (int i = 0; i < BLOCK / 16; i++) {
    const uint8_t *index = w + 2 + 4 * i;
    const uint16_t entry[4] = {iq3_xxs_grid[index[0]], iq3_xxs_grid[index[1]], iq3_xxs_grid[index[2]],
                               iq3_xxs_grid[index[3]]};
    uint32_t signs;
    memcpy(&signs, w + SIGNS_AT + i / 2 * 4, 4);
    put(code + 16 * i, entry, iq_signs_16(signs >> (i % 2 * 14)), table);
  }
}
IQ_BLOCK_CODES(iq3_put)
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w);
  for (int j = 0; j < BLOCK / SUB; j++) {
    scale[j] = d * (0.5f + (float)(w[SIGNS_AT + 4 * j + 3] >> 4)) * 0.5f;
    min[j] = 0;
  }
}
#define block_scales block_scales_scalar

#include "unpacked_form.h"
