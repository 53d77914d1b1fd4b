/* Vector primitives of the kernels, by instruction set of the build:
 *   LNL_VEC 0  scalar: no vectors, every kernel is its own specification
 *   LNL_VEC 1  simd128
 *   LNL_VEC 2  relaxed: with the relaxed dot product and multiply-add
 * In wasm the compiler's flags choose. Natively -DLNL_SIMDE[=1] and
 * -DLNL_SIMDE=2 run the same code through SIMDe, for the sanitizers.
 *
 * Kernels use the wasm_* intrinsics as they are; this header adds what differs
 * between instruction sets and what several kernels share. */
#ifndef LNL_VEC_H
#define LNL_VEC_H

#include "forms/half.h"

#if defined(__wasm_relaxed_simd__)
#define LNL_VEC 2
#elif defined(__wasm_simd128__)
#define LNL_VEC 1
#elif defined(LNL_SIMDE)
#define LNL_VEC LNL_SIMDE
#else
#define LNL_VEC 0
#endif

#if LNL_VEC == 2
#define VEC_ISA_NAME "relaxed"
#elif LNL_VEC == 1
#define VEC_ISA_NAME "simd128"
#else
#define VEC_ISA_NAME "scalar"
#endif

#define VEC_INLINE static inline __attribute__((always_inline))
/* Own functions even where inlining looks cheap: the engine optimises a
 * function at its next call, never in the middle of one. */
#define VEC_NOINLINE __attribute__((noinline))
#if defined(__clang__)
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
/* Where a loop must stay one: engines move the loads of a basic block to its
 * front and spill them, so that small bodies run faster than long ones. */
#define VEC_LOOP _Pragma("clang loop unroll(disable)")
/* A product that is then added is rounded twice, as in the specification. */
#pragma STDC FP_CONTRACT OFF
#else
#define VEC_UNROLL _Pragma("GCC unroll 8")
#define VEC_LOOP   _Pragma("GCC unroll 1")
#endif

#if LNL_VEC

#if defined(__wasm__)
#include <wasm_simd128.h>
/* Ends an expression for the optimiser: after a dot product it keeps the loads
 * of the next one from being hoisted above it (the engine would spill them);
 * outside a loop it makes a constant opaque, so that it stays in a register. */
#define VEC_KEEP(x) __asm__ volatile("" : "+r"(x))
/* The same for a pointer: what is derived from it stays a constant offset. */
#define VEC_KEEP_POINTER(p) __asm__ volatile("" : "+r"(p))
#else
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/wasm/simd128.h>
#define VEC_KEEP(x)         ((void)(x))
#define VEC_KEEP_POINTER(p) ((void)(p))
#endif

VEC_INLINE v128_t vec_opaque_i16(int16_t value) {
  v128_t v = wasm_i16x8_splat(value);
  VEC_KEEP(v);
  return v;
}
VEC_INLINE v128_t vec_opaque_i32(int32_t value) {
  v128_t v = wasm_i32x4_splat(value);
  VEC_KEEP(v);
  return v;
}
VEC_INLINE v128_t vec_opaque_f32(float value) {
  v128_t v = wasm_f32x4_splat(value);
  VEC_KEEP(v);
  return v;
}
VEC_INLINE v128_t vec_zero(void) { return wasm_i32x4_splat(0); }

/* a * b + c: one rounding in the relaxed build (where the engine fuses), two
 * in the base build. */
VEC_INLINE v128_t vec_madd(v128_t a, v128_t b, v128_t c) {
#if LNL_VEC == 2 && defined(__wasm__)
  return wasm_f32x4_relaxed_madd(a, b, c);
#else
  return wasm_f32x4_add(wasm_f32x4_mul(a, b), c);
#endif
}

/* (v0 + v2) + (v1 + v3) */
VEC_INLINE float vec_sum_f32(v128_t v) {
  v = wasm_f32x4_add(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(v, 0) + wasm_f32x4_extract_lane(v, 1);
}

/* --- codes x int8 ------------------------------------------------------------
 * The exact dot product of 32 codes, 0..63 each, with 32 int8 activations
 * (-127..127), spread over four int32 lanes: lane i gets values 4i..4i+3 and
 * 16+4i..16+4i+3 of them in VEC_I32 and VEC_I16; 2i, 2i+1, 8+2i, ... in VEC_WIDE.
 *   VEC_WIDE  both sides widened to 16 bits, the codes once for all tokens
 *   VEC_I32   the relaxed dot product that adds to 32 bits
 *   VEC_I16   the relaxed dot product in 16 bits (2 * 2 * 63 * 127 fits), for
 *             processors where the other one is made of five instructions
 * The code is the 7-bit operand, so that every engine gives the same result. */
typedef enum vec_mode { VEC_WIDE, VEC_I32, VEC_I16 } vec_mode;

typedef struct vec_codes {
  v128_t v[4]; /* VEC_WIDE: 4 vectors of 8; else 2 of 16 */
} vec_codes;

/* 32 codes, as bytes. */
VEC_INLINE vec_codes vec_codes_make(v128_t first, v128_t second, const vec_mode mode) {
  if (mode != VEC_WIDE) return (vec_codes){{first, second, first, second}};
  return (vec_codes){{wasm_u16x8_extend_low_u8x16(first), wasm_u16x8_extend_high_u8x16(first),
                      wasm_u16x8_extend_low_u8x16(second), wasm_u16x8_extend_high_u8x16(second)}};
}

/* acc + the products of 32 int16 with 32 int8. */
VEC_INLINE v128_t vec_dot_wide(v128_t acc, const v128_t w[4], const int8_t *a) {
  VEC_UNROLL for (int i = 0; i < 4; i++) {
    acc = wasm_i32x4_add(acc, wasm_i32x4_dot_i16x8(w[i], wasm_i16x8_load8x8(a + 8 * i)));
    VEC_KEEP(acc);
  }
  return acc;
}

#if LNL_VEC == 2
#if defined(__wasm__)
#define vec_relaxed_dot_i32 wasm_i32x4_relaxed_dot_i8x16_i7x16_add
#define vec_relaxed_dot_i16 wasm_i16x8_relaxed_dot_i8x16_i7x16
#else
/* The deterministic meaning, and a trap where it would be the engine's choice. */
VEC_INLINE v128_t vec_relaxed_dot_i16(v128_t i8, v128_t i7) {
  int8_t a[16], b[16];
  int16_t sum[8];
  memcpy(a, &i8, 16);
  memcpy(b, &i7, 16);
  for (int i = 0; i < 8; i++) {
    LNL_ASSERT(b[2 * i] >= 0 && b[2 * i + 1] >= 0);
    sum[i] = (int16_t)(a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1]);
  }
  v128_t out;
  memcpy(&out, sum, 16);
  return out;
}
VEC_INLINE v128_t vec_relaxed_dot_i32(v128_t i8, v128_t i7, v128_t acc) {
  return wasm_i32x4_add(acc, wasm_i32x4_extadd_pairwise_i16x8(vec_relaxed_dot_i16(i8, i7)));
}
#endif

/* Whether the dot product to 32 bits is worth its name. On x86 without VNNI it
 * is built around an instruction that saturates at 16 bits, and shows it when
 * the operand is not kept to 7 bits: 2 * min(255 * 127 * 2, 32767). Natively
 * the tests say which mode to run. */
#if defined(__wasm__)
VEC_INLINE bool vec_dot_i32_is_fast(void) {
  v128_t a = wasm_i8x16_splat(127), b = wasm_i8x16_splat(-1);
  VEC_KEEP(a);
  VEC_KEEP(b);
  return wasm_i32x4_extract_lane(vec_relaxed_dot_i32(a, b, vec_zero()), 0) != 65534;
}
#else
extern bool vec_native_dot_i32_is_fast; /* forms.c */
static inline bool vec_dot_i32_is_fast(void) { return vec_native_dot_i32_is_fast; }
#endif

/* Whether the second operand of the dot product to 32 bits may use all of its
 * 8 bits, unsigned and without saturation, as with VNNI. An engine chooses
 * once, so the largest product speaks for all: 4 * 255 * 127. */
#if defined(__wasm__)
#define vec_dot_u8_i32 vec_relaxed_dot_i32
VEC_INLINE bool vec_dot_takes_u8(void) {
  v128_t a = wasm_i8x16_splat(127), b = wasm_i8x16_splat(-1);
  VEC_KEEP(a);
  VEC_KEEP(b);
  return wasm_i32x4_extract_lane(vec_relaxed_dot_i32(a, b, vec_zero()), 0) == 129540;
}
#else
VEC_INLINE v128_t vec_dot_u8_i32(v128_t i8, v128_t u8, v128_t acc) {
  int8_t a[16];
  uint8_t b[16];
  int32_t sum[4];
  memcpy(a, &i8, 16);
  memcpy(b, &u8, 16);
  memcpy(sum, &acc, 16);
  for (int i = 0; i < 16; i++) sum[i / 4] += a[i] * b[i];
  memcpy(&acc, sum, 16);
  return acc;
}
extern bool vec_native_dot_takes_u8; /* forms.c */
static inline bool vec_dot_takes_u8(void) { return vec_native_dot_takes_u8; }
#endif
#endif

/* ones: vec_opaque_i16(1). */
VEC_INLINE v128_t vec_dot_codes(vec_codes codes, const int8_t *a, v128_t ones, const vec_mode mode) {
#if LNL_VEC == 2
  if (mode == VEC_I32) {
    v128_t sum = vec_relaxed_dot_i32(wasm_v128_load(a), codes.v[0], vec_zero());
    VEC_KEEP(sum);
    sum = vec_relaxed_dot_i32(wasm_v128_load(a + 16), codes.v[1], sum);
    VEC_KEEP(sum);
    return sum;
  }
  if (mode == VEC_I16) {
    v128_t sum = vec_relaxed_dot_i16(wasm_v128_load(a), codes.v[0]);
    VEC_KEEP(sum);
    sum = wasm_i16x8_add(sum, vec_relaxed_dot_i16(wasm_v128_load(a + 16), codes.v[1]));
    VEC_KEEP(sum);
    return wasm_i32x4_dot_i16x8(sum, ones);
  }
#endif
  (void)mode;
  (void)ones;
  return vec_dot_wide(vec_zero(), codes.v, a);
}

/* --- halves ------------------------------------------------------------------- */
/* The constants of the conversion, opaque: made once outside a loop. */
typedef struct vec_half {
  v128_t fields, top, scale, infinity;
} vec_half;
VEC_INLINE vec_half vec_half_make(void) {
  return (vec_half){vec_opaque_i32((int32_t)0x8fffe000), vec_opaque_i32(0x0f800000), vec_opaque_f32(0x1p112f),
                    vec_opaque_i32(0x7f800000)};
}
/* half_to_float of four halves that stand in the upper 16 bits of each lane,
 * if they are finite: an exponent of 31 comes out as 2^16 and more. */
VEC_INLINE v128_t vec_half_finite(v128_t upper, const vec_half *c) {
  return wasm_f32x4_mul(wasm_v128_and(wasm_i32x4_shr(upper, 3), c->fields), c->scale);
}
/* The same for all halves. */
VEC_INLINE v128_t vec_half_any(v128_t upper, const vec_half *c) {
  const v128_t bits = wasm_v128_and(wasm_i32x4_shr(upper, 3), c->fields);
  const v128_t special = wasm_i32x4_eq(wasm_v128_and(bits, c->top), c->top);
  return wasm_v128_or(wasm_f32x4_mul(bits, c->scale), wasm_v128_and(special, c->infinity));
}
/* The first and the last four of eight halves, each in the upper 16 bits. */
VEC_INLINE v128_t vec_upper_low(v128_t v) { return wasm_i16x8_shuffle(v, v, 0, 0, 1, 1, 2, 2, 3, 3); }
VEC_INLINE v128_t vec_upper_high(v128_t v) { return wasm_i16x8_shuffle(v, v, 4, 4, 5, 5, 6, 6, 7, 7); }

/* dst[i] = d * bytes[i] for 16 int8: one rounding each. */
VEC_INLINE void vec_store_scaled_i8(float *dst, v128_t bytes, v128_t d) {
  const v128_t low = wasm_i16x8_extend_low_i8x16(bytes), high = wasm_i16x8_extend_high_i8x16(bytes);
  const v128_t quarter[4] = {wasm_i32x4_extend_low_i16x8(low), wasm_i32x4_extend_high_i16x8(low),
                             wasm_i32x4_extend_low_i16x8(high), wasm_i32x4_extend_high_i16x8(high)};
  VEC_UNROLL for (int i = 0; i < 4; i++)
      wasm_v128_store(dst + 4 * i, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(quarter[i]), d));
}

/* --- exp ------------------------------------------------------------------------
 * x = n ln 2 + r, |r| <= ln 2 / 2; exp(x) = 2^n (1 + r + r^2 p(r)), p of degree
 * 4 by a Remez fit (3e-9), so that rounding dominates: about 1e-7 relative.
 * Below ln(2^-126) the result is 0; above 88.376 (2.4e38) it is infinite;
 * NaN stays NaN. */
static const float vec_exp_table[] = {
    -87.33654f,
    89, /* n = 128 makes the scale infinite */
    /* 1.5 * 2^23 aligns the integer part with bit 0; the 127 is the exponent's bias. */
    0x1.8p23f + 127.0f,
    0x1.715476p0f,
    -0x1.62e4p-1f, /* its product is exact: few bits */
    -0x1.7f7d1cp-20f,
    1.3814613e-3f,
    8.3687098e-3f,
    4.1668387e-2f,
    1.6666521e-1f,
    4.9999993e-1f,
    1,
};
/* The table, opaque: an engine loads a constant faster than it makes one. */
VEC_INLINE const float *vec_exp_constants(void) {
  const float *table = vec_exp_table;
  VEC_KEEP_POINTER(table);
  return table;
}
VEC_INLINE v128_t vec_exp_with(v128_t x, const float *table) {
#define EXP_CONSTANT(i) wasm_v128_load32_splat(table + (i))
  const v128_t low = EXP_CONSTANT(0), magic = EXP_CONSTANT(2);
  v128_t tiny = wasm_f32x4_lt(x, low);
  x = wasm_f32x4_pmax(wasm_f32x4_pmin(x, EXP_CONSTANT(1)), low);
  v128_t biased = vec_madd(x, EXP_CONSTANT(3), magic);
  v128_t n = wasm_f32x4_sub(biased, magic);
  v128_t scale = wasm_i32x4_shl(biased, 23);
  v128_t r = vec_madd(n, EXP_CONSTANT(4), x);
  r = vec_madd(n, EXP_CONSTANT(5), r);
  v128_t p = EXP_CONSTANT(6);
  p = vec_madd(p, r, EXP_CONSTANT(7));
  p = vec_madd(p, r, EXP_CONSTANT(8));
  p = vec_madd(p, r, EXP_CONSTANT(9));
  p = vec_madd(p, r, EXP_CONSTANT(10));
  p = vec_madd(wasm_f32x4_mul(r, r), p, r);
  v128_t y = wasm_f32x4_mul(wasm_f32x4_add(p, EXP_CONSTANT(11)), scale);
#undef EXP_CONSTANT
  return wasm_v128_andnot(y, tiny);
}
VEC_INLINE v128_t vec_exp(v128_t x) { return vec_exp_with(x, vec_exp_constants()); }

/* --- tanh -----------------------------------------------------------------------
 * Up to 0.6: x + x^3 p(x^2), p of degree 4 by a Remez fit (3e-9); above
 * 1 - 2 / (1 + exp(2 |x|)), where the fraction is at most 0.87 of the result
 * and off by 1.5e-7 and 2.5 roundings. So 3.5e-7 relative; NaN stays NaN. */
VEC_INLINE v128_t vec_tanh(v128_t x) {
  const v128_t one = wasm_f32x4_splat(1), size = wasm_f32x4_abs(x), square = wasm_f32x4_mul(x, x);
  v128_t p = wasm_f32x4_splat(-5.9058689e-3f);
  p = vec_madd(p, square, wasm_f32x4_splat(2.0805385e-2f));
  p = vec_madd(p, square, wasm_f32x4_splat(-5.3786684e-2f));
  p = vec_madd(p, square, wasm_f32x4_splat(1.3331958e-1f));
  p = vec_madd(p, square, wasm_f32x4_splat(-3.3333299e-1f));
  const v128_t near = vec_madd(wasm_f32x4_mul(x, square), p, x);
  const v128_t e = vec_exp(wasm_f32x4_add(size, size));
  const v128_t far = wasm_f32x4_sub(one, wasm_f32x4_div(wasm_f32x4_splat(2), wasm_f32x4_add(one, e)));
  const v128_t sign = wasm_v128_and(x, wasm_i32x4_splat(INT32_MIN));
  return wasm_v128_bitselect(near, wasm_v128_or(far, sign), wasm_f32x4_le(size, wasm_f32x4_splat(0.6f)));
}

#endif
#endif
