/* The gated activation: silu(gate) * up. */
#include <math.h>

#include "kernels.h"
#include "../vec.h"

void silu_mul_scalar(float *y, const float *gate, const float *up, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const float v = gate[i];
    y[i] = v / (1.0f + expf(-v)) * up[i];
  }
}

#if LNL_VEC

VEC_INLINE v128_t silu_mul_4(v128_t gate, v128_t up) {
  const v128_t one = wasm_f32x4_splat(1.0f);
  const v128_t denominator = wasm_f32x4_add(one, vec_exp(wasm_f32x4_neg(gate)));
  return wasm_f32x4_mul(wasm_f32x4_div(gate, denominator), up);
}

void silu_mul(float *y, const float *gate, const float *up, uint32_t n) {
  uint32_t i = 0;
  for (; n - i >= 4; i += 4)
    wasm_v128_store(y + i, silu_mul_4(wasm_v128_load(gate + i), wasm_v128_load(up + i)));
  if (i == n) return;
  /* The tail takes the same path, so that a value does not depend on its place. */
  float g[4] = {0}, u[4] = {0};
  memcpy(g, gate + i, (n - i) * sizeof(float));
  memcpy(u, up + i, (n - i) * sizeof(float));
  wasm_v128_store(g, silu_mul_4(wasm_v128_load(g), wasm_v128_load(u)));
  memcpy(y + i, g, (n - i) * sizeof(float));
}

#else

void silu_mul(float *y, const float *gate, const float *up, uint32_t n) { silu_mul_scalar(y, gate, up, n); }

#endif
