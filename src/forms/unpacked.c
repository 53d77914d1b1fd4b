/* The product and the decoder of the forms that are unpacked to bytes. A piece
 * of a row is unpacked once for many tokens. */
#include "unpacked.h"

#if LNL_VEC

/* Rows and tokens whose sums are under way at a time. The pieces of their
 * activations should stay in the first-level cache. */
enum { ROWS = 8, TOKENS = 16 };

/* factor[j] = scale[j] x.d for the subs of 128 values; returns acc with what is
 * added for each unit of the activations' sums. */
VEC_INLINE v128_t factors_128(v128_t acc, float *factor, const float *scale, const float *offset,
                              const float *x_d, const int16_t *sums, const uint32_t sub) {
  const v128_t d = wasm_v128_load(x_d);
  if (sub == 32) {
    wasm_v128_store(factor, wasm_f32x4_mul(wasm_v128_load(scale), d));
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

/* The exact dot product of `sub` codes with activations, over four lanes. */
VEC_INLINE v128_t sub_dot(const v128_t w[4], const int8_t *q, v128_t ones, const uint32_t sub,
                          const vec_mode mode) {
  v128_t sum = vec_zero();
#if LNL_VEC == 2
  if (mode == VEC_I16) {
    sum = vec_relaxed_dot_i16(wasm_v128_load(q), w[0]);
    VEC_KEEP(sum);
    if (sub == 32) sum = wasm_i16x8_add(sum, vec_relaxed_dot_i16(wasm_v128_load(q + 16), w[1]));
    VEC_KEEP(sum);
    return wasm_i32x4_dot_i16x8(sum, ones);
  }
#endif
  (void)mode;
  (void)ones;
  VEC_UNROLL for (uint32_t i = 0; i < sub / 8; i++) {
    sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(w[i], wasm_i16x8_load8x8(q + 8 * i)));
    VEC_KEEP(sum);
  }
  return sum;
}

/* acc[t] += the product of an unpacked piece, min being its offsets, with that
 * of n tokens, whose activations are k apart; x: the first. */
VEC_INLINE void dot(v128_t *acc, const unpacked *w, lnl_q8 x, size_t k, uint32_t values, const uint32_t n,
                    const uint32_t sub, const vec_mode mode) {
  const v128_t ones = vec_opaque_i16(1);
  const uint32_t whole = values / 128, most = UNPACKED / sub;
  float factors[MATMUL_TILE * UNPACKED / 16];
  v128_t sum[MATMUL_TILE];
  MATMUL_Q_POINTERS(q, x, n, k)
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
    const float *x_d = x.d + t * k / 32;
    const int16_t *sums = x.sums + t * k / 16;
    float *factor = factors + t * most;
    sum[t] = acc[t];
    for (uint32_t i = 0; i < whole; i++) {
      const uint32_t first = i * 128 / sub;
      sum[t] = factors_128(sum[t], factor + first, w->scale + first, w->min + first, x_d + 4 * i,
                           sums + 8 * i, sub);
    }
    VEC_LOOP for (uint32_t j = whole * 128 / sub; j < values / sub; j++) {
      const float d = x_d[j * sub / 32];
      const int total = sub == 16 ? sums[j] : sums[2 * j] + sums[2 * j + 1];
      factor[j] = w->scale[j] * d;
      sum[t] = wasm_f32x4_add(sum[t], wasm_f32x4_make((float)total * d * w->min[j], 0, 0, 0));
    }
  }
  const float *factor = factors;
  const int8_t *code = w->code;
  VEC_KEEP_POINTER(factor);
  VEC_LOOP for (uint32_t j = 0; j < values / sub; j++, factor++, code += sub) {
    v128_t codes[4];
    VEC_UNROLL for (uint32_t i = 0; i < (mode == VEC_WIDE ? sub / 8 : sub / 16); i++) codes[i] =
        mode == VEC_WIDE ? wasm_i16x8_load8x8(code + 8 * i) : wasm_v128_load(code + 16 * i);
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
      const v128_t product = sub_dot(codes, q[t], ones, sub, mode);
      sum[t] = vec_madd(wasm_f32x4_convert_i32x4(product), wasm_v128_load32_splat(factor + t * most), sum[t]);
      q[t] += sub;
    }
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) acc[t] = sum[t];
}

/* One mode for each build and kind of codes: unpacking takes the time, whatever
 * the processor. */
typedef void (*piece_dot)(v128_t *acc, const unpacked *w, lnl_q8 x, size_t k, uint32_t values);
typedef struct piece_dots {
  piece_dot one, tile; /* 1 and MATMUL_TILE tokens */
} piece_dots;
#define PIECE_DOTS(sub, mode)                                                                                \
  static VEC_NOINLINE void dot_1_##sub##_##mode(v128_t *acc, const unpacked *w, lnl_q8 x, size_t k,          \
                                                uint32_t values) {                                           \
    dot(acc, w, x, k, values, 1, sub, mode);                                                                 \
  }                                                                                                          \
  static VEC_NOINLINE void dot_4_##sub##_##mode(v128_t *acc, const unpacked *w, lnl_q8 x, size_t k,          \
                                                uint32_t values) {                                           \
    dot(acc, w, x, k, values, MATMUL_TILE, sub, mode);                                                       \
  }                                                                                                          \
  static const piece_dots dots_##sub##_##mode = {dot_1_##sub##_##mode, dot_4_##sub##_##mode};
PIECE_DOTS(16, VEC_WIDE)
PIECE_DOTS(32, VEC_WIDE)
#if LNL_VEC == 2
PIECE_DOTS(16, VEC_I16)
PIECE_DOTS(32, VEC_I16)
#endif

static const piece_dots *dots_for(const unpack_rules *rules) {
#if LNL_VEC == 2
  if (!rules->codes_signed) return rules->sub == 16 ? &dots_16_VEC_I16 : &dots_32_VEC_I16;
#endif
  return rules->sub == 16 ? &dots_16_VEC_WIDE : &dots_32_VEC_WIDE;
}

/* min becomes what is added for each unit of the activations' sum. */
static void offsets_make(const unpack_rules *rules, unpacked *w) {
  const v128_t minus_zero = wasm_f32x4_splat((float)-rules->zero);
  for (uint32_t j = 0; j < UNPACKED / rules->sub; j += 4) {
    const v128_t product = wasm_f32x4_mul(wasm_v128_load(w->scale + j), minus_zero);
    wasm_v128_store(w->min + j,
                    rules->has_min ? wasm_f32x4_add(wasm_v128_load(w->min + j), product) : product);
  }
}

/* `rows` rows from `first` on with `tokens` tokens from `token` on. */
static void matmul_tile(const unpack_rules *rules, const lnl_matmul *m, uint32_t first, uint32_t rows,
                        uint32_t token, uint32_t tokens) {
  const piece_dots *dots = dots_for(rules);
  v128_t acc[ROWS * TOKENS];
  static const unpacked zero;
  unpacked w = zero;
  memset(acc, 0, sizeof *acc * rows * tokens);
  const uint32_t piece_blocks = UNPACKED / rules->block, piece_bytes = piece_blocks * rules->block_bytes;
  const uint8_t *src = matmul_row(m, first);
  for (uint32_t at = 0; at < m->k; at += UNPACKED, src += piece_bytes) {
    const bool whole = m->k - at >= UNPACKED;
    const uint32_t values = whole ? UNPACKED : m->k - at,
                   blocks = whole ? piece_blocks : values / rules->block;
    for (uint32_t row = 0; row < rows; row++) {
      rules->unpack(&w, src + (size_t)(row * m->row_bytes), blocks);
      offsets_make(rules, &w);
      for (uint32_t t = 0; t < tokens;) {
        lnl_q8 x = matmul_q8(m, token + t);
        x.q += at, x.d += at / 32, x.sums += at / 16;
        const bool tile = tokens - t >= MATMUL_TILE;
        (tile ? dots->tile : dots->one)(&acc[row * tokens + t], &w, x, m->k, values);
        t += tile ? MATMUL_TILE : 1;
      }
    }
  }
  for (uint32_t row = 0; row < rows; row++)
    for (uint32_t t = 0; t < tokens; t++)
      *matmul_y(m, first + row, token + t) = vec_sum_f32(acc[row * tokens + t]);
}

void unpacked_matmul(const unpack_rules *rules, const lnl_matmul *m) {
  const uint32_t rows = m->n_tok < MATMUL_TILE ? 1 : ROWS; /* one row is one stream */
  for (uint32_t first = m->row_begin; first < m->row_end; first += rows)
    for (uint32_t token = 0; token < m->n_tok; token += TOKENS)
      matmul_tile(rules, m, first, u32_min(m->row_end - first, rows), token,
                  u32_min(m->n_tok - token, TOKENS));
}

void unpacked_decode(const unpack_rules *rules, const uint8_t *src, float *dst, uint64_t n) {
  const v128_t zero = wasm_i8x16_splat((int8_t)rules->zero);
  const uint32_t shift = rules->sub == 16 ? 0 : 1;
  unpacked w;
  while (n) {
    const uint32_t values = n < UNPACKED ? (uint32_t)n : UNPACKED, blocks = values / rules->block;
    rules->unpack(&w, src, blocks);
    for (uint32_t i = 0; i < values / 16; i++, dst += 16) {
      vec_store_scaled_i8(dst, wasm_i8x16_sub(wasm_v128_load(w.code + 16 * i), zero),
                          wasm_f32x4_splat(w.scale[i >> shift]));
      if (!rules->has_min) continue;
      const v128_t min = wasm_f32x4_splat(w.min[i >> shift]);
      VEC_UNROLL for (int j = 0; j < 16; j += 4)
          wasm_v128_store(dst + j, wasm_f32x4_add(wasm_v128_load(dst + j), min));
    }
    src += (size_t)blocks * rules->block_bytes;
    n -= values;
  }
}

#endif
