/* Q8_0: blocks of 32, [d: f16][32 int8], value = d q. */
#include "form_impl.h"

enum { BLOCK = 32, BLOCK_BYTES = 34 };

void q8_0_decode_scalar(const uint8_t *src, float *dst, uint64_t n) {
  for (; n; n -= BLOCK, src += BLOCK_BYTES, dst += BLOCK) {
    const float d = load_half(src);
    for (int i = 0; i < BLOCK; i++) dst[i] = (float)(int8_t)src[2 + i] * d;
  }
}

#if LNL_VEC

/* VEC_I32: neither operand is 7 bits wide, so a sign moves from one to the
 * other. With s = -1 where that sign is negative, else 0, and ~v = v ^ s:
 *
 *   one token:  a w = |a| ~w - |a| s,  s and ~ by the sign of a
 *   a tile:     a w = u ~a + n u - n a,  s and ~ by the sign of w, u = w ^ s, n = -s
 *
 * In the first |a| is the 7-bit operand (a is never -128). In the second it is
 * u, 0..127 for every int8 w: where w < 0, w = -u - 1 and ~a = -a - 1, so that
 * u ~a + u - a = -a u - a = a w. Both are exact for w = -128, too, where the
 * usual (w ^ s) - s overflows, and both give every lane the same integer. */
typedef struct q8_weights {
  v128_t w[4];                    /* VEC_WIDE */
  v128_t u[2], s[2], n[2], start; /* VEC_I32; start: the sum of n u */
} q8_weights;

VEC_INLINE q8_weights weights_load(const uint8_t *w, const vec_mode mode) {
  q8_weights out;
#if LNL_VEC == 2
  if (mode == VEC_I32) {
    const v128_t one = wasm_i8x16_splat(1);
    out.start = vec_zero();
    VEC_UNROLL for (int i = 0; i < 2; i++) {
      const v128_t v = wasm_v128_load(w + 16 * i);
      out.s[i] = wasm_i8x16_lt(v, vec_zero());
      out.u[i] = wasm_v128_xor(v, out.s[i]);
      out.n[i] = wasm_v128_and(out.s[i], one);
      out.start = vec_relaxed_dot_i32(out.n[i], out.u[i], out.start);
    }
    return out;
  }
#endif
  (void)mode;
  VEC_UNROLL for (int i = 0; i < 4; i++) out.w[i] = wasm_i16x8_load8x8(w + 8 * i);
  return out;
}

VEC_INLINE v128_t weights_dot(const q8_weights *w, const int8_t *q, const vec_mode mode) {
#if LNL_VEC == 2
  if (mode == VEC_I32) {
    v128_t dot = w->start, excess = vec_zero();
    VEC_UNROLL for (int i = 0; i < 2; i++) {
      const v128_t a = wasm_v128_load(q + 16 * i);
      dot = vec_relaxed_dot_i32(wasm_v128_xor(a, w->s[i]), w->u[i], dot);
      VEC_KEEP(dot);
      excess = vec_relaxed_dot_i32(a, w->n[i], excess);
      VEC_KEEP(excess);
    }
    return wasm_i32x4_sub(dot, excess);
  }
#endif
  (void)mode;
  return vec_dot_wide(vec_zero(), w->w, q);
}

/* The same lanes, for a single use of the block. */
VEC_INLINE v128_t block_dot(const uint8_t *w, const int8_t *q, const vec_mode mode) {
#if LNL_VEC == 2
  if (mode == VEC_I32) {
    v128_t dot = vec_zero(), excess = vec_zero();
    VEC_UNROLL for (int i = 0; i < 2; i++) {
      const v128_t a = wasm_v128_load(q + 16 * i);
      const v128_t s = wasm_i8x16_lt(a, vec_zero()), size = wasm_i8x16_abs(a);
      dot = vec_relaxed_dot_i32(wasm_v128_xor(wasm_v128_load(w + 16 * i), s), size, dot);
      VEC_KEEP(dot);
      excess = vec_relaxed_dot_i32(s, size, excess);
      VEC_KEEP(excess);
    }
    return wasm_i32x4_sub(dot, excess);
  }
#endif
  const q8_weights wide = weights_load(w, mode);
  return weights_dot(&wide, q, mode);
}

/* acc[t] += the block's product with token t, times factor[4 t]; q[t] advances. */
VEC_INLINE void block_add(v128_t *acc, const float *factor, const uint8_t *w, const int8_t **q,
                          const uint32_t n, const vec_mode mode) {
  q8_weights weights;
  if (n > 1) weights = weights_load(w + 2, mode);
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
    const v128_t dot = n > 1 ? weights_dot(&weights, q[t], mode) : block_dot(w + 2, q[t], mode);
    acc[t] = vec_madd(wasm_f32x4_convert_i32x4(dot), wasm_v128_load32_splat(factor + 4 * t), acc[t]);
    q[t] += BLOCK;
  }
}

VEC_INLINE void dot(const lnl_matmul *m, uint32_t row, uint32_t token, const uint32_t n,
                    const vec_mode mode) {
  const uint8_t *w = matmul_row(m, row);
  const size_t k = m->k, blocks = k / BLOCK;
  const lnl_q8 x = matmul_q8(m, token);
  const vec_half half = vec_half_make();
  v128_t acc[MATMUL_TILE];
  float scale[MATMUL_TILE * 4];
  MATMUL_Q_POINTERS(q, x, n, k)
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) acc[t] = vec_zero();
  size_t b = 0;
  for (; blocks - b >= 4; b += 4) {
    const v128_t d = block_factors_4(w, BLOCK_BYTES, &half);
    VEC_UNROLL for (uint32_t t = 0; t < n; t++)
        wasm_v128_store(scale + 4 * t, wasm_f32x4_mul(d, wasm_v128_load(x.d + t * blocks + b)));
    const float *factor = scale;
    VEC_KEEP_POINTER(factor);
    VEC_LOOP for (int i = 0; i < 4; i++, w += BLOCK_BYTES, factor++) block_add(acc, factor, w, q, n, mode);
  }
  for (; b < blocks; b++, w += BLOCK_BYTES) {
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) scale[4 * t] = load_half(w) * x.d[t * blocks + b];
    block_add(acc, scale, w, q, n, mode);
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) * matmul_y(m, row, token + t) = vec_sum_f32(acc[t]);
}
MATMUL_DEFINE(q8_0, dot, VEC_WIDE)

void q8_0_decode(const uint8_t *src, float *dst, uint64_t n) {
  for (; n; n -= BLOCK, src += BLOCK_BYTES, dst += BLOCK) {
    const v128_t d = wasm_f32x4_splat(load_half(src));
    vec_store_scaled_i8(dst, wasm_v128_load(src + 2), d);
    vec_store_scaled_i8(dst + 16, wasm_v128_load(src + 18), d);
  }
}

#endif
