/* IQ2_XS: blocks of 256, [d: f16][u16 for each 8 values: 9 bits of entry in a grid
 * of 512, 7 signs][8 bytes: scales of 4 bits for 16 values], value = d (0.5 + scale)
 * / 4 times the grid's. */
#include "iq_grid.h"

#define FORM(suffix) iq2_xs_##suffix
enum { BLOCK = 256, BLOCK_BYTES = 74, SUB = 16, ZERO = 0, HAS_MIN = 0, SCALES_AT = 66 };
#define CODES_SIGNED  1
#define BLOCK_FACTORS 0

static const iq_levels levels = IQ_LEVELS(8, 25, 43);
VEC_INLINE void codes_by(const uint8_t *w, int8_t *code, const iq_put put, const iq_levels *table) {
  VEC_LOOP for (int i = 0; i < BLOCK / 16; i++) {
    const uint32_t a = load_u16(w + 2 + 4 * i), b = load_u16(w + 4 + 4 * i);
    const uint16_t entry[2] = {iq2_xs_grid[a & 511], iq2_xs_grid[b & 511]};
    put(code + 16 * i, entry, iq_signs(a >> 9) | iq_signs(b >> 9) << 8, table);
  }
}
IQ_BLOCK_CODES(iq2_put)
static inline void block_scales_scalar(const uint8_t *w, float *scale, float *min) {
  iq2_scales(load_half(w), w + SCALES_AT, scale, min);
}
#define block_scales block_scales_scalar

#include "unpacked_form.h"
