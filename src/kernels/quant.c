/* Activations to int8 blocks, and floats to halves: both the same to the bit
 * in every build. */
#include <math.h>

#include "kernels.h"
#include "../vec.h"

/* A block whose largest magnitude is below this counts as zero (its inverse
 * scale would overflow); one that holds an infinity or a NaN gets d = NaN and
 * q = 0, so that whatever uses it is NaN, too. Magnitudes are compared as the
 * floats' bits, in which NaN is above infinity above every number. */
#define LEAST_MAGNITUDE 0x1p-100f
enum { INFINITY_BITS = 0x7f800000, MAGNITUDE_BITS = 0x7fffffff };

typedef struct block_scale {
  float d, inverse;
} block_scale;

static inline block_scale block_scale_make(uint32_t largest_bits) {
  if (largest_bits >= INFINITY_BITS) return (block_scale){NAN, 0};
  const float largest = float_from_bits(largest_bits);
  if (largest < LEAST_MAGNITUDE) return (block_scale){0, 0};
  return (block_scale){largest / 127.0f, 127.0f / largest};
}

void quant_q8_scalar(int8_t *q, float *d, int16_t *sums, const float *x, uint32_t n) {
  for (uint32_t b = 0; b < n / 32; b++, x += 32, q += 32) {
    uint32_t largest = 0;
    for (int i = 0; i < 32; i++) largest = u32_max(largest, float_bits(x[i]) & MAGNITUDE_BITS);
    const block_scale scale = block_scale_make(largest);
    d[b] = scale.d;
    for (int half = 0; half < 2; half++) {
      int sum = 0;
      for (int i = 16 * half; i < 16 * half + 16; i++) {
        q[i] = scale.inverse == 0 ? 0 : (int8_t)rintf(x[i] * scale.inverse);
        sum += q[i];
      }
      sums[2 * b + (uint32_t)half] = (int16_t)sum;
    }
  }
}

/* The scale of a block for the cache: x is code * d. */
typedef struct kv_scale {
  uint16_t half;
  float inverse; /* 0: all codes are 0 */
} kv_scale;

static inline kv_scale kv_scale_of(uint16_t half) {
  if ((half & 0x7fff) >= 0x7c00) return (kv_scale){0x7e00, 0};
  return (kv_scale){half, (half & 0x7fff) == 0 ? 0 : 1.0f / half_to_float(half)};
}
static inline kv_scale kv_scale_q8_0(uint32_t largest_bits) {
  if (largest_bits >= INFINITY_BITS) return kv_scale_of(0x7c00);
  const float d = float_from_bits(largest_bits) / 127.0f;
  uint16_t half = float_to_half(d);
  half += half_to_float(half) < d;
  return kv_scale_of(half);
}
/* least, most: of the block, both finite, or largest_bits says that not all is. */
static inline kv_scale kv_scale_q4_0(uint32_t largest_bits, float least, float most) {
  if (largest_bits >= INFINITY_BITS) return kv_scale_of(0x7c00);
  return kv_scale_of(float_to_half((most >= -least ? most : least) / -8.0f));
}

static void kv_codes(int8_t *q, const float *x, float inverse, int least, int most) {
  for (int i = 0; i < 32; i++) {
    const int code = inverse == 0 ? 0 : (int)rintf(x[i] * inverse);
    q[i] = (int8_t)(code < least ? least : code > most ? most : code);
  }
}

static uint32_t largest_bits_scalar(const float *x) {
  uint32_t largest = 0;
  for (int i = 0; i < 32; i++) largest = u32_max(largest, float_bits(x[i]) & MAGNITUDE_BITS);
  return largest;
}

void quant_kv_q8_0_scalar(int8_t *q, uint16_t *d, const float *x, uint32_t n) {
  for (uint32_t b = 0; b < n / 32; b++, x += 32, q += 32) {
    const kv_scale scale = kv_scale_q8_0(largest_bits_scalar(x));
    d[b] = scale.half;
    kv_codes(q, x, scale.inverse, -127, 127);
  }
}

void quant_kv_q4_0_scalar(int8_t *q, uint16_t *d, const float *x, uint32_t n) {
  for (uint32_t b = 0; b < n / 32; b++, x += 32, q += 32) {
    float least = x[0], most = x[0];
    for (int i = 1; i < 32; i++) {
      least = x[i] < least ? x[i] : least;
      most = x[i] > most ? x[i] : most;
    }
    const kv_scale scale = kv_scale_q4_0(largest_bits_scalar(x), least, most);
    d[b] = scale.half;
    kv_codes(q, x, scale.inverse, -8, 7);
  }
}

void f32_to_f16_scalar(uint16_t *dst, const float *src, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) dst[i] = float_to_half(src[i]);
}

#if LNL_VEC

/* Eight floats, scaled and rounded, as int16. Adding 1.5 * 2^23 leaves the
 * nearest integer (ties to even) in the low bits. */
VEC_INLINE v128_t round_8(const float *x, v128_t inverse) {
  const v128_t magic = wasm_f32x4_splat(0x1.8p23f);
  const v128_t low = wasm_f32x4_mul(wasm_v128_load(x), inverse);
  const v128_t high = wasm_f32x4_mul(wasm_v128_load(x + 4), inverse);
  return wasm_i16x8_narrow_i32x4(wasm_i32x4_sub(wasm_f32x4_add(low, magic), magic),
                                 wasm_i32x4_sub(wasm_f32x4_add(high, magic), magic));
}

VEC_INLINE int16_t sum_16(v128_t a, v128_t b) {
  v128_t sum = wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_add(a, b));
  sum = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
  return (int16_t)(wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1));
}

VEC_INLINE uint32_t largest_bits_32(const float *x) {
  const v128_t magnitude = wasm_i32x4_splat(MAGNITUDE_BITS);
  v128_t largest = vec_zero();
  VEC_UNROLL for (int i = 0; i < 32; i += 4) largest =
      wasm_i32x4_max(largest, wasm_v128_and(wasm_v128_load(x + i), magnitude));
  largest = wasm_i32x4_max(largest, wasm_i32x4_shuffle(largest, largest, 2, 3, 0, 1));
  largest = wasm_i32x4_max(largest, wasm_i32x4_shuffle(largest, largest, 1, 0, 3, 2));
  return (uint32_t)wasm_i32x4_extract_lane(largest, 0);
}

void quant_q8(int8_t *q, float *d, int16_t *sums, const float *x, uint32_t n) {
  for (uint32_t b = 0; b < n / 32; b++, x += 32, q += 32) {
    const block_scale scale = block_scale_make(largest_bits_32(x));
    d[b] = scale.d;
    if (scale.inverse == 0) {
      memset(q, 0, 32);
      sums[2 * b] = sums[2 * b + 1] = 0;
      continue;
    }
    const v128_t inverse = wasm_f32x4_splat(scale.inverse);
    VEC_UNROLL for (uint32_t half = 0; half < 2; half++) {
      const v128_t low = round_8(x + 16 * half, inverse), high = round_8(x + 16 * half + 8, inverse);
      wasm_v128_store(q + 16 * half, wasm_i8x16_narrow_i16x8(low, high));
      sums[2 * b + half] = sum_16(low, high);
    }
  }
}

VEC_INLINE void kv_codes_32(int8_t *q, const float *x, float inverse, int least, int most) {
  const v128_t factor = wasm_f32x4_splat(inverse);
  const v128_t floor = wasm_i8x16_splat((int8_t)least), ceiling = wasm_i8x16_splat((int8_t)most);
  VEC_UNROLL for (int i = 0; i < 32; i += 16) {
    const v128_t codes = wasm_i8x16_narrow_i16x8(round_8(x + i, factor), round_8(x + i + 8, factor));
    wasm_v128_store(q + i, wasm_i8x16_max(floor, wasm_i8x16_min(ceiling, codes)));
  }
}

void quant_kv_q8_0(int8_t *q, uint16_t *d, const float *x, uint32_t n) {
  for (uint32_t b = 0; b < n / 32; b++, x += 32, q += 32) {
    const kv_scale scale = kv_scale_q8_0(largest_bits_32(x));
    d[b] = scale.half;
    if (scale.inverse == 0)
      memset(q, 0, 32);
    else
      kv_codes_32(q, x, scale.inverse, -127, 127);
  }
}

void quant_kv_q4_0(int8_t *q, uint16_t *d, const float *x, uint32_t n) {
  for (uint32_t b = 0; b < n / 32; b++, x += 32, q += 32) {
    v128_t least = wasm_v128_load(x), most = least;
    for (int i = 4; i < 32; i += 4) {
      least = wasm_f32x4_min(least, wasm_v128_load(x + i));
      most = wasm_f32x4_max(most, wasm_v128_load(x + i));
    }
    least = wasm_f32x4_min(least, wasm_i32x4_shuffle(least, least, 2, 3, 0, 1));
    least = wasm_f32x4_min(least, wasm_i32x4_shuffle(least, least, 1, 0, 3, 2));
    most = wasm_f32x4_max(most, wasm_i32x4_shuffle(most, most, 2, 3, 0, 1));
    most = wasm_f32x4_max(most, wasm_i32x4_shuffle(most, most, 1, 0, 3, 2));
    const kv_scale scale = kv_scale_q4_0(largest_bits_32(x), wasm_f32x4_extract_lane(least, 0),
                                         wasm_f32x4_extract_lane(most, 0));
    d[b] = scale.half;
    if (scale.inverse == 0)
      memset(q, 0, 32);
    else
      kv_codes_32(q, x, scale.inverse, -8, 7);
  }
}

/* float_to_half of four values, in the low 16 bits of each lane. */
VEC_INLINE v128_t to_half_4(v128_t value) {
  const v128_t sign = wasm_v128_and(wasm_u32x4_shr(value, 16), wasm_i32x4_splat(0x8000));
  const v128_t magnitude = wasm_v128_and(value, wasm_i32x4_splat(MAGNITUDE_BITS));
  /* normal: rebias the exponent, round the 13 bits that go */
  const v128_t odd = wasm_v128_and(wasm_u32x4_shr(magnitude, 13), wasm_i32x4_splat(1));
  const v128_t rebias = wasm_i32x4_splat(0xfff - 0x38000000);
  const v128_t normal = wasm_u32x4_shr(wasm_i32x4_add(wasm_i32x4_add(magnitude, odd), rebias), 13);
  /* below 2^-14: let the addition of 0.5 align and round */
  const v128_t half = wasm_f32x4_splat(0.5f);
  const v128_t subnormal = wasm_i32x4_sub(wasm_f32x4_add(magnitude, half), half);
  const v128_t is_subnormal = wasm_i32x4_lt(magnitude, wasm_i32x4_splat(0x38800000));
  const v128_t is_infinite = wasm_i32x4_ge(magnitude, wasm_i32x4_splat(0x477ff000));
  const v128_t is_nan = wasm_i32x4_gt(magnitude, wasm_i32x4_splat(INFINITY_BITS));
  v128_t out = wasm_v128_bitselect(subnormal, normal, is_subnormal);
  out = wasm_v128_bitselect(wasm_i32x4_splat(0x7c00), out, is_infinite);
  out = wasm_v128_bitselect(wasm_i32x4_splat(0x7e00), out, is_nan);
  return wasm_v128_or(out, sign);
}

VEC_INLINE void to_half_8(uint16_t *dst, const float *src) {
  wasm_v128_store(
      dst, wasm_u16x8_narrow_i32x4(to_half_4(wasm_v128_load(src)), to_half_4(wasm_v128_load(src + 4))));
}

void f32_to_f16(uint16_t *dst, const float *src, uint32_t n) {
  uint32_t i = 0;
  for (; n - i >= 8; i += 8) to_half_8(dst + i, src + i);
  f32_to_f16_scalar(dst + i, src + i, n - i);
}

#else

void quant_q8(int8_t *q, float *d, int16_t *sums, const float *x, uint32_t n) {
  quant_q8_scalar(q, d, sums, x, n);
}
void quant_kv_q8_0(int8_t *q, uint16_t *d, const float *x, uint32_t n) { quant_kv_q8_0_scalar(q, d, x, n); }
void quant_kv_q4_0(int8_t *q, uint16_t *d, const float *x, uint32_t n) { quant_kv_q4_0_scalar(q, d, x, n); }
void f32_to_f16(uint16_t *dst, const float *src, uint32_t n) { f32_to_f16_scalar(dst, src, n); }

#endif
