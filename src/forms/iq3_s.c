/* IQ3_S: blocks of 256, [d: f16][64 bytes: the lower 8 bits of an entry in a grid of
 * 512 for each 4 values][8 bytes: their upper bit][32 bytes of signs][4 bytes: scales
 * of 4 bits for 32 values], value = d (1 + 2 scale) times the grid's. */
#include "iq_grid.h"

#define FORM(suffix) iq3_s_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 110, SUB = 32, ZERO = 0, HAS_MIN = 0 };
enum { HIGH_AT = 66, SIGNS_AT = 74, SCALES_AT = 106 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static const iq_levels levels = {{1, 3, 5, 7, 9, 11, 13, 15}, {0}, IQ_CONSTANTS};
VEC_INLINE void codes_by(const uint8_t *w, int8_t *code, const iq_put put, const iq_levels *table) {
  VEC_LOOP for (int i = 0; i < BLOCK / 16; i++) {
    const uint8_t *low = w + 2 + 4 * i;
    const int high = w[HIGH_AT + i / 2] << 8 >> (i % 2 * 4);
    const uint16_t entry[4] = {iq3_s_grid[low[0] | (high & 256)], iq3_s_grid[low[1] | (high >> 1 & 256)],
                               iq3_s_grid[low[2] | (high >> 2 & 256)],
                               iq3_s_grid[low[3] | (high >> 3 & 256)]};
    put(code + 16 * i, entry, load_u16(w + SIGNS_AT + 2 * i), table);
  }
}
IQ_BLOCK_CODES(iq3_put)
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  const float d = load_half(w);
  for (int j = 0; j < BLOCK / SUB; j++) {
    scale[j] = d * (float)(1 + 2 * (w[SCALES_AT + j / 2] >> (j % 2 * 4) & 15));
    min[j] = 0;
  }
}
#define block_scales block_scales_scalar

#include "unpacked_form.h"
