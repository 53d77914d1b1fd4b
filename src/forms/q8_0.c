/* Q8_0: blocks of 32, [d: f16][32 int8], value = d q. */
#include "form_impl.h"

enum { BLOCK = 32, BLOCK_BYTES = 34 };

void q8_0_decode_scalar(const uint8_t *src, float *dst, uint64_t n) {
  for (; n; n -= BLOCK, src += BLOCK_BYTES, dst += BLOCK) {
    const float d = load_half(src);
    for (int i = 0; i < BLOCK; i++) dst[i] = (float)(int8_t)src[2 + i] * d;
  }
}

void q8_0_matmul_scalar(const lnl_matmul *m) {
  for (uint32_t token = 0; token < m->n_tok; token++) {
    const lnl_q8 x = matmul_q8(m, token);
    for (uint32_t row = m->row_begin; row < m->row_end; row++) {
      const uint8_t *w = matmul_row(m, row);
      float sum = 0;
      for (uint32_t b = 0; b < m->k / BLOCK; b++, w += BLOCK_BYTES) {
        int32_t dot = 0;
        for (int i = 0; i < BLOCK; i++) dot += (int8_t)w[2 + i] * x.q[b * BLOCK + i];
        const float term = load_half(w) * x.d[b] * (float)dot;
        sum += term;
      }
      *matmul_y(m, row, token) = sum;
    }
  }
}

#if LNL_VEC

#if LNL_VEC == 2
/* Neither operand is 7 bits wide, so a sign moves from one to the other. With
 * s = -1 where that sign is negative, else 0, and ~v = v ^ s:
 *
 *   one token:  a w = |a| (~w - s) = |a| ~w - |a| s
 *   a tile:     a w = (w ^ s)(~a - s) - a s'
 *
 * In the first |a| is the 7-bit operand (a is never -128). In the second it is
 * u = w ^ s, 0..127 for every int8 w: for w < 0, w = -u - 1 and so
 * a w = -a u - a, where ~a u = -a u - u. Both are exact for w = -128, where the
 * usual (w ^ s) - s overflows, and both give every lane the same integer. */
typedef struct q8_0_weights {
  v128_t u[2], negative[2]; /* w ^ s; 1 where w < 0 */
  v128_t s[2], start;       /* start: the sum of u over negative w */
} q8_0_weights;
#else
typedef struct q8_0_weights {
  v128_t w[4];
} q8_0_weights;
#endif

VEC_INLINE q8_0_weights weights_load(const uint8_t *w) {
  q8_0_weights out;
#if LNL_VEC == 2
  const v128_t one = wasm_i8x16_splat(1);
  out.start = vec_zero();
  VEC_UNROLL for (int i = 0; i < 2; i++) {
    const v128_t v = wasm_v128_load(w + 16 * i);
    out.s[i] = wasm_i8x16_lt(v, vec_zero());
    out.u[i] = wasm_v128_xor(v, out.s[i]);
    out.negative[i] = wasm_v128_and(out.s[i], one);
    out.start = vec_relaxed_dot(out.negative[i], out.u[i], out.start);
  }
#else
  VEC_UNROLL for (int i = 0; i < 4; i++) out.w[i] = wasm_i16x8_load8x8(w + 8 * i);
#endif
  return out;
}

VEC_INLINE v128_t weights_dot(const q8_0_weights *w, const int8_t *q) {
#if LNL_VEC == 2
  v128_t dot = w->start, excess = vec_zero();
  VEC_UNROLL for (int i = 0; i < 2; i++) {
    const v128_t a = wasm_v128_load(q + 16 * i);
    dot = vec_relaxed_dot(wasm_v128_xor(a, w->s[i]), w->u[i], dot);
    VEC_KEEP(dot);
    excess = vec_relaxed_dot(a, w->negative[i], excess);
    VEC_KEEP(excess);
  }
  return wasm_i32x4_sub(dot, excess);
#else
  v128_t dot = vec_zero();
  VEC_UNROLL for (int i = 0; i < 4; i++) {
    dot = wasm_i32x4_add(dot, wasm_i32x4_dot_i16x8(w->w[i], wasm_i16x8_load8x8(q + 8 * i)));
    VEC_KEEP(dot);
  }
  return dot;
#endif
}

/* The same lanes for a single use of the block. */
VEC_INLINE v128_t block_dot(const uint8_t *w, const int8_t *q) {
#if LNL_VEC == 2
  v128_t dot = vec_zero(), excess = vec_zero();
  VEC_UNROLL for (int i = 0; i < 2; i++) {
    const v128_t a = wasm_v128_load(q + 16 * i);
    const v128_t s = wasm_i8x16_lt(a, vec_zero());
    const v128_t size = wasm_i8x16_abs(a);
    dot = vec_relaxed_dot(wasm_v128_xor(wasm_v128_load(w + 16 * i), s), size, dot);
    VEC_KEEP(dot);
    excess = vec_relaxed_dot(s, size, excess);
    VEC_KEEP(excess);
  }
  return wasm_i32x4_sub(dot, excess);
#else
  const q8_0_weights wide = weights_load(w);
  return weights_dot(&wide, q);
#endif
}

VEC_INLINE v128_t block_scaled(v128_t acc, v128_t dot, v128_t d, const float *x_d) {
  return vec_madd(wasm_f32x4_convert_i32x4(dot), wasm_f32x4_mul(d, wasm_v128_load32_splat(x_d)), acc);
}

static VEC_NOINLINE void dot_1(const lnl_matmul *m, uint32_t row, uint32_t token) {
  const uint8_t *w = matmul_row(m, row);
  const lnl_q8 x = matmul_q8(m, token);
  v128_t acc = vec_zero();
  for (size_t b = 0; b < m->k / BLOCK; b++, w += BLOCK_BYTES)
    acc = block_scaled(acc, block_dot(w + 2, x.q + b * BLOCK), wasm_f32x4_splat(load_half(w)), x.d + b);
  *matmul_y(m, row, token) = vec_sum_f32(acc);
}

static VEC_NOINLINE void dot_4(const lnl_matmul *m, uint32_t row, uint32_t token) {
  const uint8_t *w = matmul_row(m, row);
  const size_t blocks = m->k / BLOCK;
  const lnl_q8 x = matmul_q8(m, token);
  v128_t acc[MATMUL_TILE];
  VEC_UNROLL for (int t = 0; t < MATMUL_TILE; t++) acc[t] = vec_zero();
  for (size_t b = 0; b < blocks; b++, w += BLOCK_BYTES) {
    const q8_0_weights wide = weights_load(w + 2);
    const v128_t d = wasm_f32x4_splat(load_half(w));
    VEC_UNROLL for (int t = 0; t < MATMUL_TILE; t++) {
      const size_t at = t * blocks + b;
      acc[t] = block_scaled(acc[t], weights_dot(&wide, x.q + at * BLOCK), d, x.d + at);
    }
  }
  VEC_UNROLL for (int t = 0; t < MATMUL_TILE; t++) *matmul_y(m, row, token + t) = vec_sum_f32(acc[t]);
}
void q8_0_matmul(const lnl_matmul *m) { matmul_tiles(m, dot_1, dot_4); }

void q8_0_decode(const uint8_t *src, float *dst, uint64_t n) {
  for (; n; n -= BLOCK, src += BLOCK_BYTES, dst += BLOCK) {
    const v128_t d = wasm_f32x4_splat(load_half(src));
    vec_store_scaled_i8(dst, wasm_v128_load(src + 2), d);
    vec_store_scaled_i8(dst + 16, wasm_v128_load(src + 18), d);
  }
}

#else

void q8_0_matmul(const lnl_matmul *m) { q8_0_matmul_scalar(m); }
void q8_0_decode(const uint8_t *src, float *dst, uint64_t n) { q8_0_decode_scalar(src, dst, n); }

#endif
