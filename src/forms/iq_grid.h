/* What the IQ1, IQ2 and IQ3 forms share: a grid entry stands for 8 values (IQ3:
 * 4), in so few levels that it fits into 16 bits; private to src/forms. */
#ifndef LNL_IQ_GRID_H
#define LNL_IQ_GRID_H

#include "../vec.h"

extern const uint16_t iq2_xxs_grid[256], iq2_xs_grid[512], iq2_s_grid[1024], iq1_grid[2048];
extern const uint16_t iq3_xxs_grid[256], iq3_s_grid[512];

/* The levels by a nibble: of its lower code and of its upper code of 2 bits; of a
 * code of 4 bits. IQ1's -1, 0, 1 are in eighths, as is what is added. The rest are
 * constants, here because an engine loads one faster than it makes one. */
typedef struct iq_levels {
  int8_t low[16], high[16];
  uint8_t even[16], nibble[16], spread[16], bit[16];
} iq_levels;
#define IQ_CONSTANTS                                                                                         \
  {255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0},                                          \
      {15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15},                                      \
      {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},                                                      \
      {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128}
#define IQ_LEVELS(a, b, c)                                                                                   \
  {{a, b, c, 0, a, b, c, 0, a, b, c, 0, a, b, c, 0},                                                         \
   {a, a, a, a, b, b, b, b, c, c, c, c, 0, 0, 0, 0},                                                         \
   IQ_CONSTANTS}

/* 16 values from grid entries: two (IQ3: four), and a bit for each value. */
typedef void (*iq_put)(int8_t *out, const uint16_t *entry, uint32_t bits, const iq_levels *levels);

/* The sign bits of 8 values are stored as 7, since their number is even. */
static inline uint32_t iq_signs(uint32_t seven) {
  seven &= 127;
  return seven | (uint32_t)(__builtin_popcount(seven) & 1) << 7;
}
/* Those of 16 values, two such fields. */
static inline uint32_t iq_signs_16(uint32_t fields) { return iq_signs(fields) | iq_signs(fields >> 7) << 8; }

/* IQ2_XS, IQ2_S: a scale of 4 bits for each 16 of 256 values. */
static inline void iq2_scales(float d, const uint8_t *scales, float *scale, float *min) {
  for (int j = 0; j < 16; j++) {
    scale[j] = d * (0.5f + (float)(scales[j / 2] >> (j % 2 * 4) & 15)) * 0.25f;
    min[j] = 0;
  }
}

/* IQ2: the values of two entries, negative where the bit is 1. */
static inline void iq2_put_scalar(int8_t *out, const uint16_t *entry, uint32_t bits,
                                  const iq_levels *levels) {
  for (int i = 0; i < 16; i++) {
    const int8_t value = levels->low[entry[i / 8] >> (2 * (i % 8)) & 3];
    out[i] = (int8_t)(bits >> i & 1 ? -value : value);
  }
}
/* IQ3: of four entries. */
static inline void iq3_put_scalar(int8_t *out, const uint16_t *entry, uint32_t bits,
                                  const iq_levels *levels) {
  for (int i = 0; i < 16; i++) {
    const int8_t value = levels->low[entry[i / 4] >> (4 * (i % 4)) & 15];
    out[i] = (int8_t)(bits >> i & 1 ? -value : value);
  }
}
/* IQ1: of two entries, plus an eighth, or minus where the bit is 1. */
static inline void iq1_put_scalar(int8_t *out, const uint16_t *entry, uint32_t bits,
                                  const iq_levels *levels) {
  for (int i = 0; i < 16; i++)
    out[i] = (int8_t)(levels->low[entry[i / 8] >> (2 * (i % 8)) & 3] + (bits >> i & 1 ? -1 : 1));
}

#if LNL_VEC
/* -1 where the bit is 1. */
VEC_INLINE v128_t iq_mask(uint32_t bits, const iq_levels *levels) {
  const v128_t bit = wasm_v128_load(levels->bit);
  const v128_t spread = wasm_i8x16_swizzle(wasm_i32x4_splat((int32_t)bits), wasm_v128_load(levels->spread));
  return wasm_i8x16_eq(wasm_v128_and(spread, bit), bit);
}
VEC_INLINE v128_t iq_negate(v128_t v, uint32_t bits, const iq_levels *levels) {
  const v128_t mask = iq_mask(bits, levels);
  return wasm_i8x16_sub(wasm_v128_xor(v, mask), mask);
}
/* The first 8 bytes as 16 nibbles. */
VEC_INLINE v128_t iq_nibbles(v128_t v, const iq_levels *levels) {
  const v128_t nibble = wasm_v128_load(levels->nibble);
  return wasm_i8x16_shuffle(wasm_v128_and(v, nibble), wasm_v128_and(wasm_u16x8_shr(v, 4), nibble), 0, 16, 1,
                            17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
/* The 16 codes of two entries, as levels. */
VEC_INLINE v128_t iq_two_bits(const uint16_t *entry, const iq_levels *levels) {
  v128_t v = iq_nibbles(wasm_i32x4_splat((int32_t)(entry[0] | (uint32_t)entry[1] << 16)), levels);
  v = wasm_i8x16_shuffle(v, v, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return wasm_v128_bitselect(wasm_i8x16_swizzle(wasm_v128_load(levels->low), v),
                             wasm_i8x16_swizzle(wasm_v128_load(levels->high), v),
                             wasm_v128_load(levels->even));
}
VEC_INLINE void iq2_put(int8_t *out, const uint16_t *entry, uint32_t bits, const iq_levels *levels) {
  wasm_v128_store(out, iq_negate(iq_two_bits(entry, levels), bits, levels));
}
VEC_INLINE void iq1_put(int8_t *out, const uint16_t *entry, uint32_t bits, const iq_levels *levels) {
  const v128_t eighth = wasm_v128_or(iq_mask(bits, levels), wasm_i8x16_splat(1));
  wasm_v128_store(out, wasm_i8x16_add(iq_two_bits(entry, levels), eighth));
}
VEC_INLINE void iq3_put(int8_t *out, const uint16_t *entry, uint32_t bits, const iq_levels *levels) {
  const uint64_t four =
      entry[0] | (uint64_t)entry[1] << 16 | (uint64_t)entry[2] << 32 | (uint64_t)entry[3] << 48;
  const v128_t codes = iq_nibbles(wasm_i64x2_splat((int64_t)four), levels);
  wasm_v128_store(out, iq_negate(wasm_i8x16_swizzle(wasm_v128_load(levels->low), codes), bits, levels));
}
#endif

/* A file that defines codes_by(w, code, put, levels) and its levels gets its block
 * functions from put. */
#define IQ_BLOCK_CODES_SCALAR(put)                                                                           \
  static inline void block_codes_scalar(const uint8_t *w, int8_t *code) {                                    \
    codes_by(w, code, put##_scalar, &levels);                                                                \
  }
#if LNL_VEC
#define IQ_BLOCK_CODES(put)                                                                                  \
  IQ_BLOCK_CODES_SCALAR(put)                                                                                 \
  VEC_INLINE void block_codes(const uint8_t *w, int8_t *code) {                                              \
    const iq_levels *table = &levels;                                                                        \
    VEC_KEEP_POINTER(table);                                                                                 \
    codes_by(w, code, put, table);                                                                           \
  }
#else
#define IQ_BLOCK_CODES(put) IQ_BLOCK_CODES_SCALAR(put)
#endif

#endif
