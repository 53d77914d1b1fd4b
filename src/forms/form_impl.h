/* What the files of the forms share; private to src/forms. */
#ifndef LNL_FORM_IMPL_H
#define LNL_FORM_IMPL_H

#include "form.h"
#include "../vec.h"

/* For what need not be fast: specifications are a good part of the module. */
#if defined(__clang__)
#define FORM_SMALL __attribute__((minsize))
#else
#define FORM_SMALL
#endif

#define LNL_FORM(NAME, name, id, block_len, block_bytes, activation)                                         \
  FORM_SMALL void name##_decode_scalar(const uint8_t *src, float *dst, uint64_t n);                          \
  void name##_decode(const uint8_t *src, float *dst, uint64_t n);                                            \
  void name##_matmul(const lnl_matmul *m);
#include "list.inc"
#undef LNL_FORM

static inline const uint8_t *matmul_row(const lnl_matmul *m, uint32_t row) {
  return m->w + (size_t)(row * m->row_bytes);
}
static inline float *matmul_y(const lnl_matmul *m, uint32_t row, uint32_t token) {
  return m->y + (size_t)token * m->y_stride + row;
}
/* The quantised activations of one token. */
static inline lnl_q8 matmul_q8(const lnl_matmul *m, uint32_t token) {
  size_t k = m->k;
  return (lnl_q8){m->x_q8.q + token * k, m->x_q8.d + token * (k / 32), m->x_q8.sums + token * (k / 16)};
}

#if LNL_VEC

/* The most tokens that share one unpacking of a weight block. */
enum { MATMUL_TILE = 4 };

/* One row times one token, or times the MATMUL_TILE tokens from `token` on.
 * Both must give the same bits: the same lanes, in the same order. */
typedef void (*matmul_dot)(const lnl_matmul *m, uint32_t row, uint32_t token);

/* Tiles the product: 16 rows of weights, then all tokens against them, so that
 * the weights come from memory once and then from the first-level cache. */
static inline void matmul_tiles(const lnl_matmul *m, matmul_dot dot_1, matmul_dot dot_4) {
  const uint32_t rows = m->n_tok < MATMUL_TILE ? 1 : 16;
  for (uint32_t first = m->row_begin; first < m->row_end; first += rows) {
    const uint32_t end = u32_min(m->row_end - first, rows) + first;
    uint32_t token = 0;
    for (; m->n_tok - token >= MATMUL_TILE; token += MATMUL_TILE)
      for (uint32_t row = first; row < end; row++) dot_4(m, row, token);
    for (; token < m->n_tok; token++)
      for (uint32_t row = first; row < end; row++) dot_1(m, row, token);
  }
}

/* Where the quantised values of n tokens are, for loops that advance them. */
#define MATMUL_Q_POINTERS(q, x, n, k)                                                                        \
  const int8_t *q[MATMUL_TILE];                                                                              \
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) q[t] = (x).q + t * (k);

/* The factors of four consecutive blocks that begin with a half each. */
VEC_INLINE v128_t block_factors_4(const uint8_t *w, uint32_t block_bytes, const vec_half *half) {
  v128_t upper = wasm_v128_load16_lane(w, vec_zero(), 1);
  upper = wasm_v128_load16_lane(w + block_bytes, upper, 3);
  upper = wasm_v128_load16_lane(w + 2 * block_bytes, upper, 5);
  upper = wasm_v128_load16_lane(w + 3 * block_bytes, upper, 7);
  return vec_half_any(upper, half);
}
/* The sums of four consecutive blocks of 32 activations, as floats. */
VEC_INLINE v128_t block_sums_4(const int16_t *sums) {
  return wasm_f32x4_convert_i32x4(wasm_i32x4_extadd_pairwise_i16x8(wasm_v128_load(sums)));
}

/* Defines name##_matmul from dot(m, row, token, n, mode), once for each mode
 * that is worth having in this build; in the relaxed build one of two is
 * chosen by what the processor is good at, the results being the same. */
#define MATMUL_ROW_FUNCTIONS(dot, mode)                                                                      \
  static VEC_NOINLINE void dot##_1_##mode(const lnl_matmul *m, uint32_t row, uint32_t token) {               \
    dot(m, row, token, 1, mode);                                                                             \
  }                                                                                                          \
  static VEC_NOINLINE void dot##_4_##mode(const lnl_matmul *m, uint32_t row, uint32_t token) {               \
    dot(m, row, token, MATMUL_TILE, mode);                                                                   \
  }
#if LNL_VEC == 2
#define MATMUL_DEFINE(name, dot, slow_mode)                                                                  \
  MATMUL_ROW_FUNCTIONS(dot, VEC_I32)                                                                         \
  MATMUL_ROW_FUNCTIONS(dot, slow_mode)                                                                       \
  void name##_matmul(const lnl_matmul *m) {                                                                  \
    if (vec_dot_i32_is_fast())                                                                               \
      matmul_tiles(m, dot##_1_VEC_I32, dot##_4_VEC_I32);                                                     \
    else                                                                                                     \
      matmul_tiles(m, dot##_1_##slow_mode, dot##_4_##slow_mode);                                             \
  }
#else
#define MATMUL_DEFINE(name, dot, slow_mode)                                                                  \
  MATMUL_ROW_FUNCTIONS(dot, VEC_WIDE)                                                                        \
  void name##_matmul(const lnl_matmul *m) { matmul_tiles(m, dot##_1_VEC_WIDE, dot##_4_VEC_WIDE); }
#endif

#endif
#endif
