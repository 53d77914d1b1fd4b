/* The body of a form whose values are floats of some encoding. The including
 * file defines FORM(suffix) -> its symbol, VALUE_BYTES, load_1 (one value) and,
 * for builds with vectors, load_8 and load_4 with the load_state that they
 * share, begun by load_begin. load_failed: they met a value that they do not
 * convert, so that the results must be made by load_1. */
#include "form_impl.h"

void FORM(decode_scalar)(const uint8_t *src, float *dst, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) dst[i] = load_1(src + i * VALUE_BYTES);
}

#if LNL_VEC

static float dot_scalar(const uint8_t *w, const float *x, size_t k) {
  float sum = 0;
  for (size_t i = 0; i < k; i++) {
    float product = load_1(w + i * VALUE_BYTES) * x[i];
    sum += product;
  }
  return sum;
}

/* One row with n tokens: the order of additions is the same for every n. */
VEC_INLINE void dot(const lnl_matmul *m, uint32_t row, uint32_t token, const uint32_t n) {
  const uint8_t *w = matmul_row(m, row);
  const float *x = m->x_f32 + (size_t)token * m->k;
  const size_t k = m->k;
  load_state state = load_begin();
  v128_t even[MATMUL_TILE], odd[MATMUL_TILE];
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) even[t] = odd[t] = vec_zero();
  size_t i = 0;
  for (; k - i >= 8; i += 8) {
    v128_t wide[2];
    load_8(w + i * VALUE_BYTES, wide, &state);
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
      const float *at = x + t * k + i;
      even[t] = vec_madd(wide[0], wasm_v128_load(at), even[t]);
      odd[t] = vec_madd(wide[1], wasm_v128_load(at + 4), odd[t]);
    }
  }
  if (k - i >= 4) {
    v128_t wide = load_4(w + i * VALUE_BYTES, &state);
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) even[t] =
        vec_madd(wide, wasm_v128_load(x + t * k + i), even[t]);
    i += 4;
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
    float sum = vec_sum_f32(wasm_f32x4_add(even[t], odd[t]));
    for (size_t j = i; j < k; j++) {
      float product = load_1(w + j * VALUE_BYTES) * x[t * k + j];
      sum += product;
    }
    *matmul_y(m, row, token + t) = load_failed(&state) ? dot_scalar(w, x + t * k, k) : sum;
  }
}
static VEC_NOINLINE void dot_1(const lnl_matmul *m, uint32_t row, uint32_t token) { dot(m, row, token, 1); }
static VEC_NOINLINE void dot_4(const lnl_matmul *m, uint32_t row, uint32_t token) {
  dot(m, row, token, MATMUL_TILE);
}
void FORM(matmul)(const lnl_matmul *m) { matmul_tiles(m, dot_1, dot_4); }

void FORM(decode)(const uint8_t *src, float *dst, uint64_t n) {
  load_state state = load_begin();
  uint64_t i = 0;
  for (; n - i >= 8; i += 8) {
    v128_t wide[2];
    load_8(src + i * VALUE_BYTES, wide, &state);
    wasm_v128_store(dst + i, wide[0]);
    wasm_v128_store(dst + i + 4, wide[1]);
  }
  if (load_failed(&state)) i = 0;
  for (; i < n; i++) dst[i] = load_1(src + i * VALUE_BYTES);
}

#endif
