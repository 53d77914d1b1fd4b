/* Reductions over the logits. */
#include <math.h>

#include "kernels.h"
#include "../vec.h"

/* The largest value, NaN aside; -infinity when there is none. */
static float largest_scalar(const float *x, uint32_t n) {
  float largest = -INFINITY;
  for (uint32_t i = 0; i < n; i++)
    if (x[i] > largest) largest = x[i];
  return largest;
}

uint32_t argmax_scalar(const float *x, uint32_t n) {
  const float largest = largest_scalar(x, n);
  for (uint32_t i = 0; i < n; i++)
    if (x[i] == largest) return i;
  return 0; /* nothing but NaN */
}

double log_sum_exp_scalar(const float *x, uint32_t n) {
  const double largest = (double)largest_scalar(x, n);
  if (isinf(largest)) { /* the differences would be NaN */
    for (uint32_t i = 0; i < n; i++)
      if (isnan(x[i])) return NAN;
    return largest;
  }
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += exp((double)x[i] - largest);
  return largest + log(sum);
}

#if LNL_VEC

static float largest_value(const float *x, uint32_t n) {
  v128_t largest = wasm_f32x4_splat(-INFINITY), other = largest;
  uint32_t i = 0;
  /* pmax(a, b) = a < b ? b : a, so that a NaN in b is left aside */
  for (; n - i >= 8; i += 8) {
    largest = wasm_f32x4_pmax(largest, wasm_v128_load(x + i));
    other = wasm_f32x4_pmax(other, wasm_v128_load(x + i + 4));
  }
  float lanes[9];
  wasm_v128_store(lanes, largest);
  wasm_v128_store(lanes + 4, other);
  lanes[8] = largest_scalar(x + i, n - i);
  return largest_scalar(lanes, 9);
}

uint32_t argmax(const float *x, uint32_t n) {
  const float largest = largest_value(x, n);
  const v128_t largest_all = wasm_f32x4_splat(largest);
  uint32_t i = 0;
  while (n - i >= 4 && !wasm_v128_any_true(wasm_f32x4_eq(wasm_v128_load(x + i), largest_all))) i += 4;
  for (; i < n; i++)
    if (x[i] == largest) return i;
  return 0;
}

/* Values that are added up in floats before the double takes over. */
enum { SUM_BLOCK = 256 };

double log_sum_exp(const float *x, uint32_t n) {
  const float largest = largest_value(x, n);
  if (isinf(largest)) return log_sum_exp_scalar(x, n);
  const v128_t largest_all = wasm_f32x4_splat(largest);
  double sum = 0;
  uint32_t i = 0;
  while (n - i >= 4) {
    const uint32_t end = i + u32_min((n - i) & ~3u, SUM_BLOCK);
    v128_t part = vec_zero();
    for (; i < end; i += 4)
      part = wasm_f32x4_add(part, vec_exp(wasm_f32x4_sub(wasm_v128_load(x + i), largest_all)));
    sum += (double)vec_sum_f32(part);
  }
  for (; i < n; i++) sum += exp((double)x[i] - (double)largest);
  return (double)largest + log(sum);
}

#else

uint32_t argmax(const float *x, uint32_t n) { return argmax_scalar(x, n); }
double log_sum_exp(const float *x, uint32_t n) { return log_sum_exp_scalar(x, n); }

#endif
