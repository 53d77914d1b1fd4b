/* Rotary position embedding. Both variants round as the specification does:
 * the results are the same to the bit. */
#include "kernels.h"
#include "../vec.h"

#include <math.h>

/* (a, b) rotated by the angle with this cosine and sine. */
static inline void rotate(float *a, float *b, float c, float s) {
  const float ac = *a * c, bs = *b * s, as = *a * s, bc = *b * c;
  *a = ac - bs;
  *b = as + bc;
}

/* Pairs first..n_rot/2-1 of one head. */
static inline void rotate_norm(float *x, uint32_t first, uint32_t n_rot, const float *cos, const float *sin) {
  for (uint32_t i = first; i < n_rot / 2; i++) rotate(&x[2 * i], &x[2 * i + 1], cos[i], sin[i]);
}
static inline void rotate_neox(float *x, uint32_t first, uint32_t n_rot, const float *cos, const float *sin) {
  for (uint32_t i = first; i < n_rot / 2; i++) rotate(&x[i], &x[i + n_rot / 2], cos[i], sin[i]);
}

void rope_norm_scalar(float *x, uint32_t n_head, uint32_t d_head, uint32_t n_rot, const float *cos,
                      const float *sin) {
  for (uint32_t h = 0; h < n_head; h++) rotate_norm(x + (size_t)h * d_head, 0, n_rot, cos, sin);
}

void rope_neox_scalar(float *x, uint32_t n_head, uint32_t d_head, uint32_t n_rot, const float *cos,
                      const float *sin) {
  for (uint32_t h = 0; h < n_head; h++) rotate_neox(x + (size_t)h * d_head, 0, n_rot, cos, sin);
}

#if LNL_VEC

VEC_INLINE void rotate_4(v128_t *a, v128_t *b, v128_t c, v128_t s) {
  const v128_t ac = wasm_f32x4_mul(*a, c), bs = wasm_f32x4_mul(*b, s);
  const v128_t as = wasm_f32x4_mul(*a, s), bc = wasm_f32x4_mul(*b, c);
  *a = wasm_f32x4_sub(ac, bs);
  *b = wasm_f32x4_add(as, bc);
}

void rope_norm(float *x, uint32_t n_head, uint32_t d_head, uint32_t n_rot, const float *cos,
               const float *sin) {
  for (uint32_t h = 0; h < n_head; h++, x += d_head) {
    uint32_t i = 0;
    for (; n_rot / 2 - i >= 4; i += 4) {
      const v128_t low = wasm_v128_load(x + 2 * i), high = wasm_v128_load(x + 2 * i + 4);
      v128_t a = wasm_i32x4_shuffle(low, high, 0, 2, 4, 6), b = wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
      rotate_4(&a, &b, wasm_v128_load(cos + i), wasm_v128_load(sin + i));
      wasm_v128_store(x + 2 * i, wasm_i32x4_shuffle(a, b, 0, 4, 1, 5));
      wasm_v128_store(x + 2 * i + 4, wasm_i32x4_shuffle(a, b, 2, 6, 3, 7));
    }
    rotate_norm(x, i, n_rot, cos, sin);
  }
}

void rope_neox(float *x, uint32_t n_head, uint32_t d_head, uint32_t n_rot, const float *cos,
               const float *sin) {
  for (uint32_t h = 0; h < n_head; h++, x += d_head) {
    float *upper = x + n_rot / 2;
    uint32_t i = 0;
    for (; n_rot / 2 - i >= 4; i += 4) {
      v128_t a = wasm_v128_load(x + i), b = wasm_v128_load(upper + i);
      rotate_4(&a, &b, wasm_v128_load(cos + i), wasm_v128_load(sin + i));
      wasm_v128_store(x + i, a);
      wasm_v128_store(upper + i, b);
    }
    rotate_neox(x, i, n_rot, cos, sin);
  }
}

#else

void rope_norm(float *x, uint32_t n_head, uint32_t d_head, uint32_t n_rot, const float *cos,
               const float *sin) {
  rope_norm_scalar(x, n_head, d_head, n_rot, cos, sin);
}
void rope_neox(float *x, uint32_t n_head, uint32_t d_head, uint32_t n_rot, const float *cos,
               const float *sin) {
  rope_neox_scalar(x, n_head, d_head, n_rot, cos, sin);
}

#endif

/* Reduced by multiples of pi / 2, which is the sum of three numbers of which the first two
 * have 33 bits (Cody and Waite), then the series of Taylor, which on +-pi / 4 end below 2^-54. */
void rope_sin_cos(double angle, double *sin, double *cos) {
  enum { TERMS = 8 };
  static const double half_pi[3] = {0x1.921fb54400000p+0, 0x1.0b4611a600000p-34, 0x1.3198a2e037073p-69};
  if (!(fabs(angle) < 0x1p31)) { /* a NaN, too */
    *sin = *cos = (double)NAN;
    return;
  }
  const double n = nearbyint(angle * 0x1.45f306dc9c883p-1);
  double r = angle;
  for (int i = 0; i < 3; i++) r -= n * half_pi[i];
  const double z = r * r;
  double s = 1, c = 1;
  VEC_UNROLL for (int i = TERMS; i > 0; i--) {
    s = 1 - z * (1.0 / (2 * i * (2 * i + 1))) * s;
    c = 1 - z * (1.0 / ((2 * i - 1) * 2 * i)) * c;
  }
  s *= r;
  const uint32_t quarter = (uint32_t)(int64_t)n % 4;
  const double a = quarter % 2 ? c : s, b = quarter % 2 ? s : c;
  *sin = quarter & 2 ? -a : a;
  *cos = quarter == 1 || quarter == 2 ? -b : b;
}
