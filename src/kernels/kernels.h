/* Every computation that is not a matrix product. Each kernel exists as scalar
 * C (name_scalar: the specification) and in the best ISA of the build (name).
 * list.inc names them all, so that the tests cover what is declared. None
 * allocates, all take tails of any length, all are deterministic, and a
 * token's result never depends on what else is in the batch. */
#ifndef LNL_KERNELS_H
#define LNL_KERNELS_H

#include "../forms/form.h"

/* rms_norm:   y[i] = x[i] * w[i] / sqrt(mean(x^2) + eps), i < n
 * layer_norm: the same of x - mean(x). y may be x. */
#define KERNEL_RMS_NORM(name) void name(float *y, const float *x, const float *w, uint32_t n, float eps)
/* y[i] += x[i] */
#define KERNEL_ADD(name) void name(float *y, const float *x, uint32_t n)
/* y[i] = act(gate[i]) * up[i]; up may be NULL for ones, y may be gate or up.
 *   silu_mul:   v / (1 + exp(-v))
 *   gelu_mul:   0.5 v (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3)))
 *   swiglu_oai: v / (1 + exp(-1.702 v)) with v at most 7, times up + 1 with up
 *               from -7 to 7 (gpt-oss) */
#define KERNEL_GATED(name) void name(float *y, const float *gate, const float *up, uint32_t n)
/* y[i] = cap tanh(x[i] / cap), cap > 0. y may be x. */
#define KERNEL_SOFTCAP(name) void name(float *y, const float *x, uint32_t n, float cap)
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
/* Sine and cosine to 2^-50 for angles up to 2^20, beyond with the error that an angle of
 * that size has itself; NaN from 2^31 on. A tenth of the code of the C library's. */
void rope_sin_cos(double angle, double *sin, double *cos);
/* IEEE half conversion, round to nearest even; NaN stays NaN. */
#define KERNEL_F32_TO_F16(name) void name(uint16_t *dst, const float *src, uint32_t n)
/* Index of the largest value (the first of equals; NaN never wins), n >= 1. */
#define KERNEL_ARGMAX(name) uint32_t name(const float *x, uint32_t n)
/* log(sum(exp(x[i]))) without overflow; double accumulation over blocks. */
#define KERNEL_LOG_SUM_EXP(name) double name(const float *x, uint32_t n)
/* Quantises one row of n (a multiple of 32) floats for a cache of blocks: one
 * code a byte, one half d a block; values are d x code.
 *   Q8_0: d = max|x| / 127, rounded up to a half, so that codes are -127..127
 *   Q4_0: d = the value of the largest magnitude (the first of equals) / -8,
 *         rounded to a half; codes are -8..7, anything above becomes 7
 * Codes are x / d, rounded to nearest even. A block with an infinity, a NaN or
 * a d that no half holds gets d = NaN and codes 0. The same to the bit in every
 * build. */
#define KERNEL_QUANT_KV(name) void name(int8_t *q, uint16_t *d, const float *x, uint32_t n)
/* How a layer's K or V holds rows of d values a kv head and position: all of a
 * head side by side, so that attention reads memory in order.
 *   ATTN_F32, ATTN_F16: [n_kv_head, n_ctx, d]
 *   ATTN_Q8_0, ATTN_Q4_0: blocks of KV_BLOCK values of KV_GROUP positions,
 *     [n_kv_head, ceil(n_ctx / KV_GROUP), ceil(d / KV_BLOCK)], each the halves
 *     [KV_GROUP] and then 16 units of 16 codes. Code 2 i + j of unit u is
 *       K: of position i, value 2 u + j
 *       V: of value 8 (u % 4) + i, position 2 (u / 4) + j
 *     so that a vector of products has positions (K) or values (V) for lanes.
 *     Q8_0: a byte each. Q4_0: code + 8 in half a byte, the upper halves of
 *     16 bytes being unit 2 m + 1 beside 2 m (K), 4 m + 2, 4 m + 3 beside 4 m,
 *     4 m + 1 (V): a byte is of one position, and threads may write side by side.
 * 32 values take 34 or 18 bytes; what fills up the last block of a row and the
 * last group of n_ctx comes on top. */
typedef enum attn_kv { ATTN_F32, ATTN_F16, ATTN_Q8_0, ATTN_Q4_0 } attn_kv;
enum { KV_BLOCK = 32, KV_GROUP = 8 };
static inline uint32_t kv_group_count(uint32_t n_ctx) {
  return (uint32_t)(((uint64_t)n_ctx + KV_GROUP - 1) / KV_GROUP);
}
/* Bytes of a layer's K or V. */
uint64_t attn_kv_bytes(attn_kv kv, uint32_t n_ctx, uint32_t n_kv_head, uint32_t d);
/* Writes the row of one position, [n_kv_head, d], where attn reads it. which: K or V. False: some
 * of it became a half that is not finite (see lnl_attn.finite). */
typedef enum attn_part { ATTN_K, ATTN_V } attn_part;
bool attn_kv_store(void *kv_data, attn_kv kv, attn_part part, uint32_t n_ctx, uint32_t n_kv_head, uint32_t d,
                   uint32_t position, const float *row);
/* count positions of one head of a cache of blocks as floats, [count, d]. */
void attn_kv_widen(float *out, const void *kv_data, attn_kv kv, attn_part part, uint32_t n_ctx, uint32_t d,
                   uint32_t position, uint32_t count, uint32_t head);
/* One value of a cache, as attn takes it: the specification of the layout. */
float attn_kv_value(const void *kv_data, attn_kv kv, attn_part part, uint32_t n_ctx, uint32_t d,
                    uint32_t position, uint32_t head, uint32_t value);
/* Attention of n_tok tokens that follow one another, for the query heads
 * head_begin..head_end-1: online softmax over tiles of ATTN_TILE positions, so
 * that scratch does not grow with the context.
 *   q, out:   rows of tokens, q_stride and out_stride floats apart; in each
 *             [n_head, d_head] and [n_head, d_value]; out overlaps no input
 *   k, v:     as attn_kv says; kv: how each is held, in any two ways. Blocks
 *             beside floats or halves are made floats tile by tile, which is slower
 *   position: of token 0
 *   causal:   token t sees keys 0..position + t, which must be in the cache;
 *             false: each token sees keys 0..n_key - 1 (n_key at least 1), and
 *             neither position nor window matters
 *   window:   the token at position p sees keys above p - window only; 0: all
 *   softcap:  a score s becomes softcap * tanh(s / softcap); 0: it stays
 *   finite:   no half of k and v that a token sees is infinite or NaN: it is not looked for
 *   sinks:    [n_head], a further logit of each head that takes part in the
 *             softmax but has no value; -infinity: no part. NULL: none
 * Scores are q . k * scale, then softcap. The result of a token is the same to
 * the bit whatever tokens and heads a call has. What the cache holds of
 * positions that a token does not see does not matter; what is not finite in
 * those it sees, in a query or in a sink makes the heads that see it NaN.
 * Two of blocks are summed in integers: queries and weights are rounded to 1/32767 of
 * the largest of a head (weights: of what it sees of a tile, times the largest
 * scale of a block of values there).
 * Query head h reads kv head h / (n_head / n_kv_head).
 * scratch: attn_scratch_bytes(), 16-byte aligned. */
typedef struct lnl_attn {
  float *out;
  const float *q;
  const void *k, *v;
  attn_kv kv[2]; /* by attn_part */
  bool causal, finite;
  uint32_t n_ctx; /* positions that k and v have room for */
  uint32_t n_head, n_kv_head, d_head, d_value, head_begin, head_end;
  uint32_t n_tok, q_stride, out_stride, position, n_key, window;
  float scale; /* usually 1 / sqrt(d_head) */
  float softcap;
  const float *sinks;
  void *scratch;
} lnl_attn;
enum { ATTN_TILE = 64 };
#define KERNEL_ATTN(name) void name(const lnl_attn *a)
/* Whatever the cache holds, however many tokens. */
uint64_t attn_scratch_bytes(uint32_t d_head, uint32_t d_value);
/* One thread's share of attn over all tokens and all kv heads (head_begin and
 * head_end are not read): pairs of kv head and token, dealt out by the number
 * of keys that they see, so that the shares of a prompt cost the same; of one
 * token, query heads: a model may have fewer kv heads than there are threads.
 * thread_count calls do what attn does, to the bit. */
void attn_share(const lnl_attn *a, uint32_t thread, uint32_t thread_count);
/* Where the share of a thread begins in several tokens: kv head * n_tok + token. */
uint64_t attn_share_begin(const lnl_attn *a, uint32_t thread, uint32_t thread_count);

#define LNL_KERNEL(TYPE, name)                                                                               \
  KERNEL_##TYPE(name##_scalar);                                                                              \
  KERNEL_##TYPE(name);
#include "list.inc"
#undef LNL_KERNEL

#endif
