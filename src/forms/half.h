/* IEEE half-precision conversion, one value at a time: the specification that
 * the SIMD conversions equal to the bit. */
#ifndef LNL_HALF_H
#define LNL_HALF_H

#include <string.h>

#include "../base.h"

static inline float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static inline uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

/* The half is moved into a float's fields and scaled by 2^112, which maps
 * zeros, subnormals and normals alike; only infinity and NaN (exponent 31)
 * need the float's own top exponent, and stay what they are when scaled. */
static inline float half_to_float(uint16_t half) {
  uint32_t bits = (uint32_t)(half & 0x7fff) << 13;
  bits |= bits >= 0x0f800000u ? 0x7f800000u : 0;
  bits |= (uint32_t)(half & 0x8000) << 16;
  return float_from_bits(bits) * 0x1p112f;
}

/* Round to nearest even; overflow gives infinity, NaN gives the quiet NaN. */
static inline uint16_t float_to_half(float value) {
  uint32_t bits = float_bits(value);
  uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* 65520 and above */
  if (magnitude < 0x38800000u) { /* below 2^-14: the unit is 2^-24, as that of 0.5..1 in a float */
    float aligned = float_from_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (float_bits(aligned) - 0x3f000000u));
  }
  magnitude += 0xfff + (magnitude >> 13 & 1);
  return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

static inline uint16_t load_u16(const uint8_t *p) {
  uint16_t value;
  memcpy(&value, p, 2);
  return value;
}
static inline float load_half(const uint8_t *p) { return half_to_float(load_u16(p)); }
static inline float load_f32(const uint8_t *p) {
  float value;
  memcpy(&value, p, 4);
  return value;
}

#endif
