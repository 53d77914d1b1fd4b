/* Q4_K with 8 rows interleaved: blocks of
 *   [d: 8 f16][dmin: 8 f16][scales: 8 bytes for each sub-block][minima: the same]
 *   [32 vectors, 8 for each pair of sub-blocks and half of the rows: x8.h]
 * a vector being 4 stored bytes of each of four rows: low nibbles are codes of
 * sub-block 2 p, high ones of 2 p + 1. */
#include "k_scales.h"
#include "packings.h"
#include "x8.h"

enum { BLOCK = 256, STORED_BYTES = 144, SUBS = 8 };
enum { DMIN_AT = 16, SCALES_AT = 32, MINS_AT = 96, CODES_AT = 160, PAIR_BYTES = 256, BLOCK_BYTES = 1184 };

#if LNL_VEC
/* Codes of four rows. */
VEC_INLINE void pack_codes(const uint8_t *const block[4], uint8_t *dst) {
  for (int i = 0; i < 128; i += 16) {
    v128_t row[4];
    VEC_UNROLL for (int r = 0; r < 4; r++) row[r] = wasm_v128_load(block[r] + 16 + i);
    x8_transpose(dst + 8 * i, row);
  }
}
#else
static void pack_codes(const uint8_t *const block[4], uint8_t *dst) {
  for (int i = 0; i < 32; i++)
    for (int r = 0; r < 4; r++) memcpy(dst + 32 * i + 4 * r, block[r] + 16 + 4 * i, 4);
}
#endif

static void pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k) {
  static const uint8_t zero[STORED_BYTES]; /* a block of a missing row */
  for (size_t b = 0; b < k / BLOCK; b++, src += STORED_BYTES, dst += BLOCK_BYTES) {
    const uint8_t *block[FORM_GROUP];
    VEC_LOOP for (uint32_t r = 0; r < FORM_GROUP; r++) {
      block[r] = r < row_count ? src + (size_t)(r * row_bytes) : zero;
      memcpy(dst + 2 * r, block[r], 2);
      memcpy(dst + DMIN_AT + 2 * r, block[r] + 2, 2);
      for (int j = 0; j < SUBS; j++) {
        int scale, min;
        scale_min(block[r] + 4, j, &scale, &min);
        dst[SCALES_AT + 8 * j + (int)r] = (uint8_t)scale;
        dst[MINS_AT + 8 * j + (int)r] = (uint8_t)min;
      }
    }
    pack_codes(block, dst + CODES_AT);
    pack_codes(block + 4, dst + CODES_AT + 16);
  }
}

static int code(const uint8_t *block, uint32_t row, uint32_t i) {
  const uint8_t byte = block[CODES_AT + i / 64 * PAIR_BYTES + i % 32 / 4 * 32 + row * 4 + i % 4];
  return i % 64 < 32 ? byte & 15 : byte >> 4;
}

static void decode_row(const uint8_t *group, uint32_t row, float *dst, uint32_t k) {
  for (; k; k -= BLOCK, group += BLOCK_BYTES) {
    const float d = load_half(group + 2 * row), dmin = load_half(group + DMIN_AT + 2 * row);
    for (uint32_t i = 0; i < BLOCK; i++) {
      const uint32_t sub = i / 32 * 8 + row;
      const float step = d * (float)group[SCALES_AT + sub];
      const float offset = dmin * (float)group[MINS_AT + sub];
      const float product = step * (float)code(group, row, i);
      *dst++ = product - offset;
    }
  }
}

static FORM_SMALL void matmul_scalar(const lnl_matmul *m) {
  for (uint32_t token = 0; token < m->n_tok; token++) {
    const lnl_q8 x = matmul_q8(m, token);
    for (uint32_t row = m->row_begin; row < m->row_end; row++) {
      const uint8_t *block = matmul_row(m, row / FORM_GROUP);
      const uint32_t r = row % FORM_GROUP;
      float sum = 0;
      for (uint32_t b = 0; b < m->k / BLOCK; b++, block += BLOCK_BYTES) {
        const float d = load_half(block + 2 * r), dmin = load_half(block + DMIN_AT + 2 * r);
        for (uint32_t j = 0; j < SUBS; j++) {
          const size_t sub = (size_t)b * SUBS + j;
          int dot = 0;
          for (uint32_t i = 0; i < 32; i++) dot += code(block, r, 32 * j + i) * x.q[sub * 32 + i];
          const float term = d * (float)block[SCALES_AT + 8 * j + r] * x.d[sub] * (float)dot;
          const float offset = dmin * (float)block[MINS_AT + 8 * j + r] * x.d[sub] *
                               (float)(x.sums[2 * sub] + x.sums[2 * sub + 1]);
          sum += term;
          sum -= offset;
        }
      }
      *matmul_y(m, row, token) = sum;
    }
  }
}

#if LNL_VEC

/* A record: [activations][d of each sub-block][-d sum(q) of each].
 *
 * VEC_I32, VEC_I16: the activations are the int8 themselves. In 16 bits a lane
 * adds up 16 products, at most 16 x 15 x 127 = 30480, before the scale takes
 * part in the step to 32 bits.
 *
 * VEC_WIDE: a vector is 8 int16, each of four codes. Those of sub-block 2 p
 * (and 2 p + 1) are masked where they stand, 1 and 256 (16 and 4096) times too
 * large, or shifted; the activations make all products 256 times too large,
 * and 32 of them times a scale are still exact as a float. */
#define RECORD_SUB(mode)   ((mode) == VEC_WIDE ? 64 : 32)
#define RECORD_D(mode)     (SUBS * RECORD_SUB(mode))
#define RECORD_BYTES(mode) (RECORD_D(mode) + 8 * SUBS)

VEC_INLINE void prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode) {
  const v128_t upper = wasm_i16x8_splat((int16_t)0xff00);
  for (; blocks; blocks--, record += step, x.q += BLOCK, x.d += SUBS, x.sums += 2 * SUBS) {
    uint8_t *at = record;
    for (int j = 0; j < SUBS; j++, at += RECORD_SUB(mode)) VEC_UNROLL for (int i = 0; i < 2; i++) {
        const v128_t v = wasm_v128_load(x.q + 32 * j + 16 * i);
        if (mode != VEC_WIDE) {
          wasm_v128_store(at + 16 * i, v);
        } else if (j % 2 == 0) {
          wasm_v128_store(at + 16 * i, wasm_i16x8_shl(v, 8));
          wasm_v128_store(at + 32 + 16 * i, wasm_i16x8_shr(v, 8));
        } else {
          wasm_v128_store(at + 16 * i, wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 4));
          wasm_v128_store(at + 32 + 16 * i, wasm_v128_and(v, upper));
        }
      }
    VEC_UNROLL for (int i = 0; i < 2; i++) {
      const v128_t d = wasm_v128_load(x.d + 4 * i);
      wasm_v128_store(at + 16 * i, d);
      wasm_v128_store(at + 4 * SUBS + 16 * i,
                      wasm_f32x4_neg(wasm_f32x4_mul(block_sums_4(x.sums + 8 * i), d)));
    }
  }
}

VEC_INLINE v128_t dot_step(v128_t sum, v128_t codes, v128_t a, const vec_mode mode) {
#if LNL_VEC == 2
  if (mode == VEC_I32) return vec_relaxed_dot_i32(a, codes, sum);
  if (mode == VEC_I16) return wasm_i16x8_add(sum, vec_relaxed_dot_i16(a, codes));
#endif
  (void)mode;
  return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(codes, a));
}

/* The codes of a vector for the first (and in VEC_WIDE the second) part of a
 * sub-block's activations. */
VEC_INLINE v128_t codes_of(v128_t v, const int sub, const int part, const v128_t mask[3],
                           const vec_mode mode) {
  if (mode != VEC_WIDE) return wasm_v128_and(sub ? wasm_u16x8_shr(v, 4) : v, mask[0]);
  return sub && part ? wasm_u16x8_shr(v, 12) : wasm_v128_and(v, mask[sub ? 1 : 2 * part]);
}

/* Eight bytes as what multiplies the sums of rows 0-3 and 4-7. */
VEC_INLINE void bytes_to_f32(const uint8_t *bytes, v128_t out[2]) {
  const v128_t wide = wasm_u16x8_load8x8(bytes);
  out[0] = wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(wide));
  out[1] = wasm_f32x4_convert_i32x4(wasm_u32x4_extend_high_u16x8(wide));
}
/* acc[i] += scales x sums x d for one sub-block; sums[2 t + half]. */
VEC_INLINE void scale_add(v128_t *acc, const v128_t *sum, const uint8_t *scales, const uint8_t *d,
                          const uint32_t n, const vec_mode mode) {
  v128_t s[2];
  if (mode == VEC_I16) {
    const v128_t wide = wasm_u16x8_load8x8(scales);
    s[0] = vec_upper_low(wide);
    s[1] = vec_upper_high(wide);
  } else {
    bytes_to_f32(scales, s);
  }
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
    const v128_t d_t = wasm_v128_load32_splat(d + t * RECORD_BYTES(mode));
    VEC_UNROLL for (uint32_t h = 0; h < 2; h++) {
      const uint32_t i = 2 * t + h;
      const v128_t scaled = mode == VEC_I16 ? wasm_f32x4_convert_i32x4(wasm_i32x4_dot_i16x8(sum[i], s[h]))
                                            : wasm_f32x4_mul(wasm_f32x4_convert_i32x4(sum[i]), s[h]);
      acc[i] = vec_madd(scaled, d_t, acc[i]);
    }
  }
}

VEC_INLINE void dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                    const vec_mode mode) {
  const vec_half half = vec_half_make();
  const v128_t mask[3] = {vec_opaque_i16(mode == VEC_WIDE ? 0x000f : 0x0f0f), vec_opaque_i16(0x00f0),
                          vec_opaque_i16(0x0f00)};
  const v128_t exact = vec_opaque_f32(0x1p-8f);
  v128_t total[2 * X8_TILE];
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) total[i] = wasm_v128_load(out + 4 * i);
  for (; blocks; blocks--, w += BLOCK_BYTES, a += n * RECORD_BYTES(mode)) {
    v128_t acc[2 * X8_TILE];
    VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) acc[i] = vec_zero();
    const uint8_t *offset = a + RECORD_D(mode) + 4 * SUBS, *mins = w + MINS_AT;
    VEC_LOOP for (int j = 0; j < SUBS; j++, mins += 8, offset += 4) {
      v128_t min[2];
      bytes_to_f32(mins, min);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        const v128_t x = wasm_v128_load32_splat(offset + t * RECORD_BYTES(mode));
        acc[2 * t] = vec_madd(min[0], x, acc[2 * t]);
        acc[2 * t + 1] = vec_madd(min[1], x, acc[2 * t + 1]);
      }
    }
    VEC_UNROLL for (uint32_t h = 0; h < 2; h++) {
      const v128_t upper = wasm_i32x4_shl(wasm_i32x4_load16x4(w + DMIN_AT + 8 * h), 16);
      const v128_t dmin = vec_half_any(upper, &half);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        total[2 * t + h] = vec_madd(acc[2 * t + h], dmin, total[2 * t + h]);
        acc[2 * t + h] = vec_zero();
      }
    }
    const uint8_t *codes = w + CODES_AT, *scales = w + SCALES_AT, *x = a, *d = a + RECORD_D(mode);
    VEC_LOOP for (int p = 0; p < SUBS;
                  p += 2, codes += PAIR_BYTES, scales += 16, x += 2 * RECORD_SUB(mode), d += 8) {
      if (n == 1) { /* each vector is loaded once */
        v128_t sum[4];
        VEC_UNROLL for (int i = 0; i < 4; i++) sum[i] = vec_zero();
        VEC_UNROLL for (int g = 0; g < 8; g++) VEC_UNROLL for (int h = 0; h < 2; h++) {
          const v128_t v = wasm_v128_load(codes + 32 * g + 16 * h);
          VEC_UNROLL for (int sub = 0; sub < 2; sub++)
              VEC_UNROLL for (int part = 0; part < RECORD_SUB(mode) / 32; part++) {
            const v128_t x_t = wasm_v128_load32_splat(x + sub * RECORD_SUB(mode) + 32 * part + 4 * g);
            v128_t *s = &sum[2 * sub + h];
            *s = dot_step(*s, codes_of(v, sub, part, mask, mode), x_t, mode);
            VEC_KEEP(*s);
          }
        }
        scale_add(acc, sum, scales, d, n, mode);
        scale_add(acc, sum + 2, scales + 8, d + 4, n, mode);
      } else {
        VEC_UNROLL for (int sub = 0; sub < 2; sub++) {
          v128_t sum[2 * X8_TILE];
          VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) sum[i] = vec_zero();
          VEC_UNROLL for (int g = 0; g < 8; g++) {
            const v128_t v0 = wasm_v128_load(codes + 32 * g), v1 = wasm_v128_load(codes + 32 * g + 16);
            VEC_UNROLL for (int part = 0; part < RECORD_SUB(mode) / 32; part++) {
              const v128_t c0 = codes_of(v0, sub, part, mask, mode), c1 = codes_of(v1, sub, part, mask, mode);
              VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
                const v128_t x_t = wasm_v128_load32_splat(x + t * RECORD_BYTES(mode) +
                                                          sub * RECORD_SUB(mode) + 32 * part + 4 * g);
                sum[2 * t] = dot_step(sum[2 * t], c0, x_t, mode);
                VEC_KEEP(sum[2 * t]);
                sum[2 * t + 1] = dot_step(sum[2 * t + 1], c1, x_t, mode);
                VEC_KEEP(sum[2 * t + 1]);
              }
            }
          }
          scale_add(acc, sum, scales + 8 * sub, d + 4 * sub, n, mode);
        }
      }
    }
    VEC_UNROLL for (uint32_t h = 0; h < 2; h++) {
      v128_t factor = vec_half_any(wasm_i32x4_shl(wasm_i32x4_load16x4(w + 8 * h), 16), &half);
      if (mode == VEC_WIDE) factor = wasm_f32x4_mul(factor, exact);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) total[2 * t + h] =
          vec_madd(acc[2 * t + h], factor, total[2 * t + h]);
    }
  }
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) wasm_v128_store(out + 4 * i, total[i]);
}

X8_CODE_KERNELS
static void matmul(const lnl_matmul *m) { x8_matmul_of(m, X8_CODE_KERNEL, BLOCK); }

#else
#define matmul matmul_scalar
#endif

const lnl_packing q4_k_x8 = {
    "q4_kx8.q8." VEC_ISA_NAME, BLOCK_BYTES, pack, decode_row, matmul_scalar, matmul,
};
