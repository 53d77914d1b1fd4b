/* Q4_0 with 8 rows interleaved: blocks of [8 scales][8 vectors], each vector
 * the stored bytes 4 j .. 4 j + 3 of four rows (x8.h). */
#include "packings.h"
#include "x8.h"

enum { BLOCK = 32, WORDS = 4, BLOCK_BYTES = X8_SCALES + FORM_GROUP * 4 * WORDS, ZERO = 8 };

static void pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k) {
  x8_pack(src, row_bytes, row_count, dst, k, WORDS, 0);
}

/* Value i of the block is (code - 8) d. */
static int code(const uint8_t *block, uint32_t row, uint32_t i) {
  const uint8_t byte = x8_byte(block, row, i % 16);
  return (i < 16 ? byte & 15 : byte >> 4) - ZERO;
}

static void decode_row(const uint8_t *group, uint32_t row, float *dst, uint32_t k) {
  for (; k; k -= BLOCK, group += BLOCK_BYTES, dst += BLOCK) {
    const float d = x8_scale(group, row);
    for (uint32_t i = 0; i < BLOCK; i++) dst[i] = (float)code(group, row, i) * d;
  }
}

static void matmul_scalar(const lnl_matmul *m) {
  for (uint32_t token = 0; token < m->n_tok; token++) {
    const lnl_q8 x = matmul_q8(m, token);
    for (uint32_t row = m->row_begin; row < m->row_end; row++) {
      const uint8_t *block = matmul_row(m, row / FORM_GROUP);
      float sum = 0;
      for (uint32_t b = 0; b < m->k / BLOCK; b++, block += BLOCK_BYTES) {
        int32_t dot = 0;
        for (uint32_t i = 0; i < BLOCK; i++) dot += code(block, row % FORM_GROUP, i) * x.q[b * BLOCK + i];
        const float term = x8_scale(block, row % FORM_GROUP) * x.d[b] * (float)dot;
        sum += term;
      }
      *matmul_y(m, row, token) = sum;
    }
  }
}

#if LNL_VEC

/* VEC_I32, VEC_I16: the activations are the int8 themselves. In VEC_I16 a lane
 * of 16 bits adds up 16 products, at most 16 x 15 x 127 = 30480; the start,
 * -8 sum(a), sits in the first of a row's two lanes, whose own products are
 * some of those that it stands for, so that lane stays within +-32512.
 *
 * VEC_WIDE: a vector is 8 int16, each of four codes, two to a row. Three of the
 * codes need no shift: they are masked where they stand, 16 or 256 times too
 * large, and the activations make up for it, so that all products are 256
 * times too large (which the factor takes away). */
#define RECORD_ACTIVATIONS(mode) ((mode) == VEC_WIDE ? 64 : 32)
#define RECORD_BYTES(mode)       (RECORD_ACTIVATIONS(mode) + X8_RECORD_END)

VEC_INLINE void prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode) {
  const v128_t upper = wasm_i16x8_splat((int16_t)0xff00);
  for (; blocks; blocks--, record += step, x.q += BLOCK, x.d++, x.sums += 2) {
    const v128_t low = wasm_v128_load(x.q), high = wasm_v128_load(x.q + 16);
    int32_t start = -ZERO * (x.sums[0] + x.sums[1]);
    if (mode == VEC_WIDE) {
      wasm_v128_store(record, wasm_i16x8_shl(low, 8));
      wasm_v128_store(record + 16, wasm_i16x8_shr(wasm_i16x8_shl(high, 8), 4));
      wasm_v128_store(record + 32, wasm_i16x8_shr(low, 8));
      wasm_v128_store(record + 48, wasm_v128_and(high, upper));
      start *= 256;
    } else {
      wasm_v128_store(record, low);
      wasm_v128_store(record + 16, high);
      if (mode == VEC_I16) start &= 0xffff;
    }
    x8_record_end(record + RECORD_ACTIVATIONS(mode), start, *x.d);
  }
}

/* sums + codes x activations, for 4 rows. */
VEC_INLINE v128_t dot_step(v128_t sum, v128_t codes, v128_t a, const vec_mode mode) {
#if LNL_VEC == 2
  if (mode == VEC_I32) return vec_relaxed_dot_i32(a, codes, sum);
  if (mode == VEC_I16) return wasm_i16x8_add(sum, vec_relaxed_dot_i16(a, codes));
#endif
  (void)mode;
  return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(codes, a));
}

typedef struct code_masks {
  v128_t nibble[3];
} code_masks;
/* The codes of a vector that meet activations part * 16 of the record. */
VEC_INLINE v128_t codes_of(const uint8_t *w, const int part, const code_masks *mask, const vec_mode mode) {
  const v128_t v = wasm_v128_load(w);
  if (mode == VEC_WIDE) return part < 3 ? wasm_v128_and(v, mask->nibble[part]) : wasm_u16x8_shr(v, 12);
  return wasm_v128_and(part ? wasm_u16x8_shr(v, 4) : v, mask->nibble[0]);
}

VEC_INLINE void dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                    const vec_mode mode) {
  const x8_scales scales = x8_scales_make();
  const v128_t ones = vec_opaque_i16(1);
  const code_masks mask = {{vec_opaque_i16(mode == VEC_WIDE ? 0x000f : 0x0f0f),
                            mode == VEC_WIDE ? vec_opaque_i16(0x00f0) : ones,
                            mode == VEC_WIDE ? vec_opaque_i16(0x0f00) : ones}};
  v128_t seen = vec_zero(), acc[2 * X8_TILE];
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) acc[i] = wasm_v128_load(out + 4 * i);
  for (; blocks; blocks--, w += BLOCK_BYTES, a += n * RECORD_BYTES(mode)) {
    v128_t sum[2 * X8_TILE];
    x8_start(sum, a, n, RECORD_BYTES(mode));
    VEC_UNROLL for (int j = 0; j < WORDS; j++) {
      VEC_UNROLL for (int part = 0; part < RECORD_ACTIVATIONS(mode) / 16; part++) {
        const v128_t rows_0 = codes_of(w + X8_SCALES + 32 * j, part, &mask, mode);
        const v128_t rows_4 = codes_of(w + X8_SCALES + 32 * j + 16, part, &mask, mode);
        VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
          const v128_t x = wasm_v128_load32_splat(a + t * RECORD_BYTES(mode) + 16 * part + 4 * j);
          sum[2 * t] = dot_step(sum[2 * t], rows_0, x, mode);
          VEC_KEEP(sum[2 * t]);
          sum[2 * t + 1] = dot_step(sum[2 * t + 1], rows_4, x, mode);
          VEC_KEEP(sum[2 * t + 1]);
        }
      }
    }
    if (mode == VEC_I16)
      VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) sum[i] = wasm_i32x4_dot_i16x8(sum[i], ones);
    seen = x8_seen(seen, w);
    x8_add(acc, sum, w, a, n, RECORD_BYTES(mode), &scales);
  }
  x8_finish(out, acc, seen, n);
}

X8_CODE_KERNELS
static void matmul(const lnl_matmul *m) { x8_matmul(m, X8_CODE_KERNEL, X8_CODE_FACTOR); }

#else
#define matmul matmul_scalar
#endif

const lnl_packing q4_0_x8 = {
    "q4_0x8.q8." VEC_ISA_NAME, BLOCK_BYTES, pack, decode_row, matmul_scalar, matmul,
};
