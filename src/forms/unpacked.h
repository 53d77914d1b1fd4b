/* The body of a form whose blocks become bytes before they are multiplied: one
 * product kernel for every format that needs none of its own. The including
 * file defines
 *   FORM(suffix)            its symbols
 *   BLOCK, BLOCK_BYTES      values and bytes a block: 32 or 256 values
 *   SUB                     values that share a scale: 16 or 32
 *   ZERO                    value = scale (code - ZERO) [+ min]
 *   HAS_MIN                 1 where `min` is added
 *   CODES_SIGNED            1 where codes are any int8, else they are 0..63
 *   block_codes_scalar      the codes of a block
 *   block_scales            its scales (and minima: what is added), one a SUB
 *   block_codes             block_codes_scalar with vectors, in builds that have them */
#include "form_impl.h"

void FORM(decode_scalar)(const uint8_t *src, float *dst, uint64_t n) {
  for (; n; n -= BLOCK, src += BLOCK_BYTES) {
    int8_t code[BLOCK];
    float scale[BLOCK / SUB], min[BLOCK / SUB];
    block_codes_scalar(src, code);
    block_scales(src, scale, min);
    for (int i = 0; i < BLOCK; i++) {
      const float product = scale[i / SUB] * (float)(code[i] - ZERO);
      *dst++ = HAS_MIN ? product + min[i / SUB] : product;
    }
  }
}

void FORM(matmul_scalar)(const lnl_matmul *m) {
  for (uint32_t token = 0; token < m->n_tok; token++) {
    const lnl_q8 x = matmul_q8(m, token);
    for (uint32_t row = m->row_begin; row < m->row_end; row++) {
      const uint8_t *w = matmul_row(m, row);
      float sum = 0;
      for (size_t at = 0; at < m->k; w += BLOCK_BYTES) {
        int8_t code[BLOCK];
        float scale[BLOCK / SUB], min[BLOCK / SUB];
        block_codes_scalar(w, code);
        block_scales(w, scale, min);
        for (int j = 0; j < BLOCK / SUB; j++, at += SUB) {
          int dot = 0, total = 0;
          for (int i = 0; i < SUB; i++) {
            dot += (code[j * SUB + i] - ZERO) * x.q[at + (size_t)i];
            total += x.q[at + (size_t)i];
          }
          const float term = scale[j] * x.d[at / 32] * (float)dot;
          sum += term;
          const float offset = HAS_MIN ? min[j] * x.d[at / 32] * (float)total : 0;
          sum += offset;
        }
      }
      *matmul_y(m, row, token) = sum;
    }
  }
}

#if LNL_VEC

enum { CHUNK = 256, CHUNK_SUBS = CHUNK / SUB, SUBS_32 = 32 / SUB };

/* Up to CHUNK values of a row, ready for any number of tokens. offset: what is
 * added for each unit of the activations' sum, minima and zero points. */
typedef struct chunk {
  int8_t code[CHUNK];
  float scale[CHUNK_SUBS], offset[CHUNK_SUBS];
} chunk;

VEC_INLINE void chunk_unpack(chunk *c, const uint8_t *w, uint32_t values) {
  float min[CHUNK_SUBS];
  for (uint32_t at = 0; at < values; at += BLOCK, w += BLOCK_BYTES) {
    block_codes(w, c->code + at);
    block_scales(w, c->scale + at / SUB, min + at / SUB);
  }
  for (uint32_t j = 0; j < values / SUB; j++) {
    c->offset[j] = HAS_MIN ? min[j] : 0;
    if (!HAS_MIN || ZERO != 0) c->offset[j] += c->scale[j] * (float)-ZERO;
  }
}

/* factor[j] = scale[j] x.d for the SUBs of 128 values; returns acc with their offsets. */
VEC_INLINE v128_t factors_128(v128_t acc, float *factor, const float *scale, const float *offset,
                              const float *x_d, const int16_t *sums) {
  const v128_t d = wasm_v128_load(x_d);
  if (SUB == 32) {
    wasm_v128_store(factor, wasm_f32x4_mul(wasm_v128_load(scale), d));
    if (!HAS_MIN && ZERO == 0) return acc;
    return vec_madd(wasm_f32x4_mul(block_sums_4(sums), d), wasm_v128_load(offset), acc);
  }
  const v128_t d_low = wasm_i32x4_shuffle(d, d, 0, 0, 1, 1), d_high = wasm_i32x4_shuffle(d, d, 2, 2, 3, 3);
  wasm_v128_store(factor, wasm_f32x4_mul(wasm_v128_load(scale), d_low));
  wasm_v128_store(factor + 4, wasm_f32x4_mul(wasm_v128_load(scale + 4), d_high));
  const v128_t s = wasm_v128_load(sums);
  const v128_t s_low = wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(s));
  const v128_t s_high = wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(s));
  acc = vec_madd(wasm_f32x4_mul(s_low, d_low), wasm_v128_load(offset), acc);
  return vec_madd(wasm_f32x4_mul(s_high, d_high), wasm_v128_load(offset + 4), acc);
}

/* The exact dot product of SUB codes with activations, over four lanes. */
VEC_INLINE v128_t sub_dot(const v128_t w[4], const int8_t *q, v128_t ones, const vec_mode mode) {
  v128_t sum = vec_zero();
#if LNL_VEC == 2
  if (mode == VEC_I16) {
    sum = vec_relaxed_dot_i16(wasm_v128_load(q), w[0]);
    VEC_KEEP(sum);
    if (SUB == 32) sum = wasm_i16x8_add(sum, vec_relaxed_dot_i16(wasm_v128_load(q + 16), w[1]));
    VEC_KEEP(sum);
    return wasm_i32x4_dot_i16x8(sum, ones);
  }
#endif
  (void)mode;
  (void)ones;
  VEC_UNROLL for (int i = 0; i < SUB / 8; i++) {
    sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(w[i], wasm_i16x8_load8x8(q + 8 * i)));
    VEC_KEEP(sum);
  }
  return sum;
}

VEC_INLINE void dot(const lnl_matmul *m, uint32_t row, uint32_t token, const uint32_t n,
                    const vec_mode mode) {
  const uint8_t *w = matmul_row(m, row);
  const uint32_t k = m->k;
  const lnl_q8 x = matmul_q8(m, token);
  const v128_t ones = vec_opaque_i16(1);
  v128_t acc[MATMUL_TILE];
  chunk c;
  float factors[MATMUL_TILE * CHUNK_SUBS];
  MATMUL_Q_POINTERS(q, x, n, (size_t)k)
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) acc[t] = vec_zero();
  for (uint32_t at = 0; at < k; at += CHUNK, w += CHUNK / BLOCK * BLOCK_BYTES) {
    const uint32_t values = u32_min(k - at, CHUNK), whole = values / 128;
    chunk_unpack(&c, w, values);
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
      const float *x_d = x.d + ((size_t)t * k + at) / 32;
      const int16_t *sums = x.sums + ((size_t)t * k + at) / 16;
      float *factor = factors + t * CHUNK_SUBS;
      for (uint32_t i = 0; i < whole; i++) {
        const uint32_t first = i * 128 / SUB;
        acc[t] =
            factors_128(acc[t], factor + first, c.scale + first, c.offset + first, x_d + 4 * i, sums + 8 * i);
      }
      for (uint32_t j = whole * 128 / SUB; j < values / SUB; j++) {
        const float d = x_d[j / SUBS_32];
        factor[j] = c.scale[j] * d;
        if (HAS_MIN || ZERO != 0) {
          const int total = SUB == 16 ? sums[j] : sums[2 * j] + sums[2 * j + 1];
          acc[t] = wasm_f32x4_add(acc[t], wasm_f32x4_make((float)total * d * c.offset[j], 0, 0, 0));
        }
      }
    }
    const float *factor = factors;
    const int8_t *code = c.code;
    VEC_KEEP_POINTER(factor);
    VEC_LOOP for (uint32_t j = 0; j < values / SUB; j++, factor++, code += SUB) {
      v128_t codes[4];
      VEC_UNROLL for (int i = 0; i < (mode == VEC_WIDE ? SUB / 8 : SUB / 16); i++) codes[i] =
          mode == VEC_WIDE ? wasm_i16x8_load8x8(code + 8 * i) : wasm_v128_load(code + 16 * i);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        const v128_t sum = sub_dot(codes, q[t], ones, mode);
        const v128_t factor_t = wasm_v128_load32_splat(factor + t * CHUNK_SUBS);
        acc[t] = vec_madd(wasm_f32x4_convert_i32x4(sum), factor_t, acc[t]);
        q[t] += SUB;
      }
    }
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) * matmul_y(m, row, token + t) = vec_sum_f32(acc[t]);
}
/* One mode for each build: unpacking takes the time, whatever the processor. */
#if LNL_VEC == 2 && !CODES_SIGNED
#define MODE VEC_I16
#else
#define MODE VEC_WIDE
#endif
static VEC_NOINLINE void dot_1(const lnl_matmul *m, uint32_t row, uint32_t token) {
  dot(m, row, token, 1, MODE);
}
static VEC_NOINLINE void dot_4(const lnl_matmul *m, uint32_t row, uint32_t token) {
  dot(m, row, token, MATMUL_TILE, MODE);
}
void FORM(matmul)(const lnl_matmul *m) { matmul_tiles(m, dot_1, dot_4); }

void FORM(decode)(const uint8_t *src, float *dst, uint64_t n) {
  const v128_t zero = wasm_i8x16_splat(ZERO);
  for (; n; n -= BLOCK, src += BLOCK_BYTES) {
    int8_t code[BLOCK];
    float scale[BLOCK / SUB], min[BLOCK / SUB];
    block_codes(src, code);
    block_scales(src, scale, min);
    for (int i = 0; i < BLOCK; i += 16, dst += 16) {
      const v128_t codes = wasm_i8x16_sub(wasm_v128_load(code + i), zero);
      vec_store_scaled_i8(dst, codes, wasm_f32x4_splat(scale[i / SUB]));
      if (!HAS_MIN) continue;
      const v128_t offset = wasm_f32x4_splat(min[i / SUB]);
      VEC_UNROLL for (int j = 0; j < 16; j += 4)
          wasm_v128_store(dst + j, wasm_f32x4_add(wasm_v128_load(dst + j), offset));
    }
  }
}

#else

void FORM(matmul)(const lnl_matmul *m) { FORM(matmul_scalar)(m); }
void FORM(decode)(const uint8_t *src, float *dst, uint64_t n) { FORM(decode_scalar)(src, dst, n); }

#endif
