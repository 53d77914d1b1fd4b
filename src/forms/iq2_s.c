/* IQ2_S: blocks of 256, [d: f16][32 bytes: lower 8 bits of entries in a grid of
 * 1024][32 bytes of signs][8 bytes: their upper 2 bits][8 bytes: scales of 4 bits
 * for 16 values], value = d (0.5 + scale) / 4 times the grid's. */
#include "iq_grid.h"

#define FORM(suffix) iq2_s_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 82, SUB = 16, ZERO = 0, HAS_MIN = 0 };
enum { SIGNS_AT = 34, HIGH_AT = 66, SCALES_AT = 74 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static const iq_levels levels = IQ_LEVELS(8, 25, 43);
VEC_INLINE void codes_by(const uint8_t *w, int8_t *code, const iq_put put, const iq_levels *table) {
  VEC_LOOP for (int i = 0; i < BLOCK / 16; i++) {
    const uint8_t *low = w + 2 + 2 * i;
    const int high = w[HIGH_AT + i / 2] >> (i % 2 * 4);
    const uint16_t entry[2] = {iq2_s_grid[low[0] | (high & 3) << 8],
                               iq2_s_grid[low[1] | (high >> 2 & 3) << 8]};
    put(code + 16 * i, entry, load_u16(w + SIGNS_AT + 2 * i), table);
  }
}
IQ_BLOCK_CODES(iq2_put)
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  iq2_scales(load_half(w), w + SCALES_AT, scale, min);
}
#define block_scales block_scales_scalar

#include "unpacked_form.h"
