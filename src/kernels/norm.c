/* Normalisation and addition. */
#include <math.h>

#include "kernels.h"
#include "../vec.h"

void rms_norm_scalar(float *y, const float *x, const float *w, uint32_t n, float eps) {
  double sum = 0; /* as the specification: no error of its own */
  for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  const float scale = 1.0f / sqrtf((float)(sum / n) + eps);
  for (uint32_t i = 0; i < n; i++) y[i] = x[i] * scale * w[i];
}

void layer_norm_scalar(float *y, const float *x, const float *w, uint32_t n, float eps) {
  double sum = 0, squares = 0;
  for (uint32_t i = 0; i < n; i++) sum += (double)x[i];
  const double mean = sum / n;
  for (uint32_t i = 0; i < n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
  const float scale = 1.0f / sqrtf((float)(squares / n) + eps);
  for (uint32_t i = 0; i < n; i++) y[i] = (float)((double)x[i] - mean) * scale * w[i];
}

void vec_add_scalar(float *y, const float *x, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) y[i] += x[i];
}

#if LNL_VEC

void rms_norm(float *y, const float *x, const float *w, uint32_t n, float eps) {
  v128_t even = vec_zero(), odd = vec_zero();
  uint32_t i = 0;
  for (; n - i >= 8; i += 8) {
    const v128_t a = wasm_v128_load(x + i), b = wasm_v128_load(x + i + 4);
    even = vec_madd(a, a, even);
    odd = vec_madd(b, b, odd);
  }
  float sum = vec_sum_f32(wasm_f32x4_add(even, odd));
  for (; i < n; i++) sum += x[i] * x[i];

  const float scale = 1.0f / sqrtf(sum / (float)n + eps);
  const v128_t scale_all = wasm_f32x4_splat(scale);
  for (i = 0; n - i >= 4; i += 4) {
    const v128_t scaled = wasm_f32x4_mul(wasm_v128_load(x + i), scale_all);
    wasm_v128_store(y + i, wasm_f32x4_mul(scaled, wasm_v128_load(w + i)));
  }
  for (; i < n; i++) y[i] = x[i] * scale * w[i];
}

/* Two passes: the mean, then the squares of what lies around it. */
void layer_norm(float *y, const float *x, const float *w, uint32_t n, float eps) {
  v128_t sums = vec_zero();
  uint32_t i = 0;
  for (; n - i >= 4; i += 4) sums = wasm_f32x4_add(sums, wasm_v128_load(x + i));
  float mean = vec_sum_f32(sums);
  for (; i < n; i++) mean += x[i];
  mean /= (float)n;

  const v128_t mean_all = wasm_f32x4_splat(mean);
  v128_t squares = vec_zero();
  for (i = 0; n - i >= 4; i += 4) {
    const v128_t around = wasm_f32x4_sub(wasm_v128_load(x + i), mean_all);
    squares = vec_madd(around, around, squares);
  }
  float sum = vec_sum_f32(squares);
  for (; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);

  const float scale = 1.0f / sqrtf(sum / (float)n + eps);
  const v128_t scale_all = wasm_f32x4_splat(scale);
  for (i = 0; n - i >= 4; i += 4) {
    const v128_t around = wasm_f32x4_sub(wasm_v128_load(x + i), mean_all);
    wasm_v128_store(y + i, wasm_f32x4_mul(wasm_f32x4_mul(around, scale_all), wasm_v128_load(w + i)));
  }
  for (; i < n; i++) y[i] = (x[i] - mean) * scale * w[i];
}

void vec_add(float *y, const float *x, uint32_t n) {
  uint32_t i = 0;
  for (; n - i >= 4; i += 4)
    wasm_v128_store(y + i, wasm_f32x4_add(wasm_v128_load(y + i), wasm_v128_load(x + i)));
  for (; i < n; i++) y[i] += x[i];
}

#else

void rms_norm(float *y, const float *x, const float *w, uint32_t n, float eps) {
  rms_norm_scalar(y, x, w, n, eps);
}
void layer_norm(float *y, const float *x, const float *w, uint32_t n, float eps) {
  layer_norm_scalar(y, x, w, n, eps);
}
void vec_add(float *y, const float *x, uint32_t n) { vec_add_scalar(y, x, n); }

#endif
