/* Every computation that is not a matrix product. Each kernel exists as scalar
 * C (name_scalar: the specification) and in the best ISA of the build (name).
 * list.inc names them all, so that the tests cover what is declared. None
 * allocates, all take tails of any length, all are deterministic, and a
 * token's result never depends on what else is in the batch. */
#ifndef LNL_KERNELS_H
#define LNL_KERNELS_H

#include "../forms/form.h"

/* y[i] = x[i] * w[i] / sqrt(mean(x^2) + eps), i < n. y may be x. */
#define KERNEL_RMS_NORM(name) void name(float *y, const float *x, const float *w, uint32_t n, float eps)
/* y[i] += x[i] */
#define KERNEL_ADD(name) void name(float *y, const float *x, uint32_t n)
/* y[i] = silu(gate[i]) * up[i], silu(v) = v / (1 + exp(-v)). y may be gate or up. */
#define KERNEL_SILU_MUL(name) void name(float *y, const float *gate, const float *up, uint32_t n)
/* Quantises one row of n (a multiple of 32) floats: d = max|x| / 127 a block,
 * q = round-to-nearest-even(x * (127 / max|x|)), sums as lnl_q8. A block below
 * 2^-100 everywhere counts as zero: d = 0. One that holds an infinity or a NaN
 * gets d = NaN and q = 0, so that whatever is made of it is NaN. */
#define KERNEL_QUANT_Q8(name) void name(int8_t *q, float *d, int16_t *sums, const float *x, uint32_t n)
/* Rotates n_head heads of d_head values in place by the angles whose cosines
 * and sines are given, [n_rot / 2] each; values beyond n_rot stay. Pairs are
 * (2i, 2i+1) for rope_norm, (i, i + n_rot/2) for rope_neox. */
#define KERNEL_ROPE(name)                                                                                    \
  void name(float *x, uint32_t n_head, uint32_t d_head, uint32_t n_rot, const float *cos, const float *sin)
/* IEEE half conversion, round to nearest even; NaN stays NaN. */
#define KERNEL_F32_TO_F16(name) void name(uint16_t *dst, const float *src, uint32_t n)
/* Index of the largest value (the first of equals; NaN never wins), n >= 1. */
#define KERNEL_ARGMAX(name) uint32_t name(const float *x, uint32_t n)
/* log(sum(exp(x[i]))) without overflow; double accumulation over blocks. */
#define KERNEL_LOG_SUM_EXP(name) double name(const float *x, uint32_t n)
/* Causal attention of one token for the query heads head_begin..head_end-1,
 * online softmax over tiles of ATTN_TILE positions, so that scratch does not
 * grow with the context.
 *   q, out: [n_head, d_head] and [n_head, d_value]; out overlaps no input
 *   k, v:   [n_ctx, n_kv_head, d_head or d_value], f32 or f16 (kv_f16)
 *   n_key:  positions to look at, 0..n_key-1, at least 1
 * Query head h reads kv head h / (n_head / n_kv_head).
 * scratch: attn_scratch_bytes(), 16-byte aligned. */
typedef struct lnl_attn {
  float *out;
  const float *q;
  const void *k, *v;
  bool kv_f16;
  uint32_t n_head, n_kv_head, d_head, d_value, n_key, head_begin, head_end;
  float scale; /* usually 1 / sqrt(d_head) */
  void *scratch;
} lnl_attn;
enum { ATTN_TILE = 64 };
#define KERNEL_ATTN(name) void name(const lnl_attn *a)
uint64_t attn_scratch_bytes(uint32_t d_head, uint32_t d_value);

#define LNL_KERNEL(TYPE, name)                                                                               \
  KERNEL_##TYPE(name##_scalar);                                                                              \
  KERNEL_##TYPE(name);
#include "list.inc"
#undef LNL_KERNEL

#endif
