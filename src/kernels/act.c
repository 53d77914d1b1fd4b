/* Activations of feed-forward networks, gated or not, and the soft cap. */
#include <math.h>

#include "kernels.h"
#include "../vec.h"

/* The tanh form of GELU is x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
#define GELU_LINEAR 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define GELU_CUBIC  0.07135481282553023f
#define OAI_ALPHA   1.702f
#define OAI_LIMIT   7.0f

static float silu_1(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }
static float gelu_1(float gate, float up) {
  const float u = gate * (GELU_LINEAR + GELU_CUBIC * (gate * gate));
  return gate / (1.0f + expf(-u)) * up;
}
static float oai_1(float gate, float up) {
  const float x = gate < OAI_LIMIT ? gate : OAI_LIMIT;
  const float y = up > OAI_LIMIT ? OAI_LIMIT : up < -OAI_LIMIT ? -OAI_LIMIT : up;
  return x / (1.0f + expf(-OAI_ALPHA * x)) * (y + 1.0f);
}

#define ACT_SCALAR(name, act_1)                                                                              \
  void name##_scalar(float *y, const float *gate, const float *up, uint32_t n) {                             \
    for (uint32_t i = 0; i < n; i++) y[i] = act_1(gate[i], up ? up[i] : 1.0f);                               \
  }
ACT_SCALAR(silu_mul, silu_1)
ACT_SCALAR(gelu_mul, gelu_1)
ACT_SCALAR(swiglu_oai, oai_1)

void softcap_scalar(float *y, const float *x, uint32_t n, float cap) {
  for (uint32_t i = 0; i < n; i++) y[i] = cap * tanhf(x[i] / cap);
}

#if LNL_VEC

/* x / (1 + exp(-u)) */
VEC_INLINE v128_t gated_4(v128_t x, v128_t u) {
  const v128_t one = wasm_f32x4_splat(1.0f);
  return wasm_f32x4_div(x, wasm_f32x4_add(one, vec_exp(wasm_f32x4_neg(u))));
}
VEC_INLINE v128_t silu_4(v128_t gate, v128_t up) { return wasm_f32x4_mul(gated_4(gate, gate), up); }
VEC_INLINE v128_t gelu_4(v128_t gate, v128_t up) {
  const v128_t cubic = wasm_f32x4_mul(wasm_f32x4_splat(GELU_CUBIC), wasm_f32x4_mul(gate, gate));
  const v128_t u = wasm_f32x4_mul(gate, wasm_f32x4_add(wasm_f32x4_splat(GELU_LINEAR), cubic));
  return wasm_f32x4_mul(gated_4(gate, u), up);
}
VEC_INLINE v128_t oai_4(v128_t gate, v128_t up) {
  const v128_t limit = wasm_f32x4_splat(OAI_LIMIT);
  const v128_t x = wasm_f32x4_min(gate, limit),
               y = wasm_f32x4_max(wasm_f32x4_min(up, limit), wasm_f32x4_neg(limit));
  return wasm_f32x4_mul(gated_4(x, wasm_f32x4_mul(x, wasm_f32x4_splat(OAI_ALPHA))),
                        wasm_f32x4_add(y, wasm_f32x4_splat(1.0f)));
}
VEC_INLINE v128_t softcap_4(v128_t x, v128_t cap, v128_t inverse) {
  return wasm_f32x4_mul(vec_tanh(wasm_f32x4_mul(x, inverse)), cap);
}

/* The tail takes the same path, so that a value does not depend on its place. */
#define ACT_VECTOR(name, act_4)                                                                              \
  void name(float *y, const float *gate, const float *up, uint32_t n) {                                      \
    const v128_t one = wasm_f32x4_splat(1.0f);                                                               \
    uint32_t i = 0;                                                                                          \
    for (; n - i >= 4; i += 4)                                                                               \
      wasm_v128_store(y + i, act_4(wasm_v128_load(gate + i), up ? wasm_v128_load(up + i) : one));            \
    if (i == n) return;                                                                                      \
    float g[4] = {0}, u[4] = {1, 1, 1, 1};                                                                   \
    memcpy(g, gate + i, (n - i) * sizeof(float));                                                            \
    if (up) memcpy(u, up + i, (n - i) * sizeof(float));                                                      \
    wasm_v128_store(g, act_4(wasm_v128_load(g), wasm_v128_load(u)));                                         \
    memcpy(y + i, g, (n - i) * sizeof(float));                                                               \
  }
ACT_VECTOR(silu_mul, silu_4)
ACT_VECTOR(gelu_mul, gelu_4)
ACT_VECTOR(swiglu_oai, oai_4)

void softcap(float *y, const float *x, uint32_t n, float cap) {
  const v128_t caps = wasm_f32x4_splat(cap), inverse = wasm_f32x4_splat(1 / cap);
  uint32_t i = 0;
  for (; n - i >= 4; i += 4) wasm_v128_store(y + i, softcap_4(wasm_v128_load(x + i), caps, inverse));
  if (i == n) return;
  float tail[4] = {0};
  memcpy(tail, x + i, (n - i) * sizeof(float));
  wasm_v128_store(tail, softcap_4(wasm_v128_load(tail), caps, inverse));
  memcpy(y + i, tail, (n - i) * sizeof(float));
}

#else

void silu_mul(float *y, const float *gate, const float *up, uint32_t n) { silu_mul_scalar(y, gate, up, n); }
void gelu_mul(float *y, const float *gate, const float *up, uint32_t n) { gelu_mul_scalar(y, gate, up, n); }
void swiglu_oai(float *y, const float *gate, const float *up, uint32_t n) {
  swiglu_oai_scalar(y, gate, up, n);
}
void softcap(float *y, const float *x, uint32_t n, float cap) { softcap_scalar(y, x, n, cap); }

#endif
