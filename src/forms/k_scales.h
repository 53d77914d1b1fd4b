/* What Q4_K and Q5_K share: [12 bytes: 8 scales and 8 minima of 6 bits]. */
#ifndef LNL_K_SCALES_H
#define LNL_K_SCALES_H

#include "../vec.h"

/* Scale and minimum of sub-block j: the low 6 bits of a byte each for j < 4;
 * above, a nibble of a third group of bytes and the top 2 bits of the others. */
static inline void scale_min(const uint8_t *packed, int j, int *scale, int *min) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *min = packed[j + 4] & 63;
  } else {
    *scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    *min = packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
  }
}

#if LNL_VEC
/* scale_min of all sub-blocks: 8 scales, then 8 minima, as bytes. */
VEC_INLINE v128_t scales_mins(const uint8_t *packed) {
  uint32_t part[3];
  memcpy(part, packed, 12);
  return wasm_i32x4_make(
      (int32_t)(part[0] & 0x3f3f3f3f), (int32_t)((part[2] & 0x0f0f0f0f) | (part[0] >> 2 & 0x30303030)),
      (int32_t)(part[1] & 0x3f3f3f3f), (int32_t)((part[2] >> 4 & 0x0f0f0f0f) | (part[1] >> 2 & 0x30303030)));
}
#endif

#endif
