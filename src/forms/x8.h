/* What the packed forms with blocks of 32 share; private to src/forms.
 *
 * A group of 8 rows is a sequence of blocks, [8 scales: f16][vectors of 16
 * bytes], a vector being 4 bytes of each of 4 rows, first rows 0-3, then 4-7.
 * So lanes are rows: an activation is loaded into all lanes at once, nothing is
 * added across lanes at the end, and a group is one sequential stream. */
#ifndef LNL_X8_H
#define LNL_X8_H

#include "form_impl.h"

enum { X8_SCALES = 2 * FORM_GROUP, X8_TILE = 4 };

/* The other operand is prepared once for many groups: a record for each block
 * and token, those of a block next to each other, of
 *   [activations as the kernel wants them][int32 start][float d]
 * where start is what the integer sum of the block begins with. */
enum { X8_RECORD_END = 8 };

typedef struct x8_kernel {
  uint32_t block_bytes, record_bytes;
  /* Writes the records of `blocks` blocks of one token, `step` bytes apart. */
  void (*prepare)(uint8_t *record, size_t step, lnl_q8 x, size_t blocks);
  /* acc[8 t + r] += the product of `blocks` blocks of a group, row r, with the
   * records of 1, 2 or 4 tokens: the same bits for a token in each. */
  void (*dot_1)(const uint8_t *w, const uint8_t *a, float *acc, size_t blocks);
  void (*dot_2)(const uint8_t *w, const uint8_t *a, float *acc, size_t blocks);
  void (*dot_4)(const uint8_t *w, const uint8_t *a, float *acc, size_t blocks);
} x8_kernel;

/* lnl_packing.matmul by such functions. */
void x8_matmul(const lnl_matmul *m, const x8_kernel *kernel);
/* The same for blocks of another length, a multiple of 32: `blocks` are those. */
void x8_matmul_of(const lnl_matmul *m, const x8_kernel *kernel, uint32_t block_len);

/* lnl_packing.pack: `words` groups of four bytes after the half of a block, each
 * word xored with `flip`. */
static inline void x8_pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k,
                           const uint32_t words, const uint32_t flip) {
  static const uint8_t zero[2 + 32]; /* a block of a missing row */
  const size_t stored = 2 + 4 * words, packed = FORM_GROUP * stored;
  for (size_t b = 0; b < k / 32; b++, src += stored, dst += packed)
    for (uint32_t r = 0; r < FORM_GROUP; r++) {
      const uint8_t *block = r < row_count ? src + (size_t)(r * row_bytes) : zero;
      memcpy(dst + 2 * r, block, 2);
      uint8_t *at = dst + X8_SCALES + r / 4 * 16 + r % 4 * 4;
      for (uint32_t i = 0; i < words; i++) {
        uint32_t word;
        memcpy(&word, block + 2 + 4 * i, 4);
        word ^= flip;
        memcpy(at + (size_t)i * 32, &word, 4);
      }
    }
}
/* Byte i of a row's codes in a block. */
static inline uint8_t x8_byte(const uint8_t *block, uint32_t row, uint32_t i) {
  return block[X8_SCALES + i / 4 * 32 + row / 4 * 16 + row % 4 * 4 + i % 4];
}
static inline float x8_scale(const uint8_t *block, uint32_t row) { return load_half(block + 2 * row); }

#if LNL_VEC

VEC_INLINE void x8_record_end(uint8_t *at, int32_t start, float d) {
  memcpy(at, &start, 4);
  memcpy(at + 4, &d, 4);
}

/* The sums of a block to begin with. */
VEC_INLINE void x8_start(v128_t *sum, const uint8_t *a, const uint32_t n, const uint32_t record_bytes) {
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
    sum[2 * t] = wasm_v128_load32_splat(a + (t + 1) * record_bytes - 8);
    sum[2 * t + 1] = sum[2 * t];
  }
}

/* Scales of 4 rows; an exponent of 31 is not seen (see x8_seen). scale is
 * 2^112 times what the sums want. */
VEC_INLINE v128_t x8_scales_4(const uint8_t *w, v128_t fields, v128_t scale) {
  return wasm_f32x4_mul(wasm_v128_and(wasm_i32x4_shl(wasm_i32x4_load16x4(w), 13), fields), scale);
}

/* acc[2 t + half] += sums x scales. Where n is large the accumulators stay in
 * memory: registers are for the sums. */
VEC_INLINE void x8_add(v128_t *acc, const v128_t *sum, const uint8_t *w, const uint8_t *a, const uint32_t n,
                       const uint32_t record_bytes, v128_t fields, v128_t scale) {
  const v128_t d0 = x8_scales_4(w, fields, scale), d1 = x8_scales_4(w + 8, fields, scale);
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
    const v128_t d = wasm_v128_load32_splat(a + (t + 1) * record_bytes - 4);
    acc[2 * t] = vec_madd(wasm_f32x4_convert_i32x4(sum[2 * t]), wasm_f32x4_mul(d0, d), acc[2 * t]);
    acc[2 * t + 1] = vec_madd(wasm_f32x4_convert_i32x4(sum[2 * t + 1]), wasm_f32x4_mul(d1, d), acc[2 * t + 1]);
  }
}

/* The largest scales seen, without their signs: infinite and NaN ones, rather
 * than being converted each, turn the row's result into NaN at the end. */
VEC_INLINE v128_t x8_seen(v128_t seen, const uint8_t *w) {
  return wasm_u16x8_max(seen, wasm_i16x8_shl(wasm_v128_load(w), 1));
}
VEC_INLINE void x8_finish(float *out, const v128_t *acc, v128_t seen, const uint32_t n) {
  const v128_t bad = wasm_u16x8_ge(seen, wasm_i16x8_splat((int16_t)0xf800));
  const v128_t nan[2] = {wasm_i32x4_extend_low_i16x8(bad), wasm_i32x4_extend_high_i16x8(bad)};
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++)
      wasm_v128_store(out + 4 * i, wasm_v128_or(acc[i], nan[i % 2]));
}

/* dot_1, dot_2 and dot_4 of an x8_kernel from dot(w, a, acc, blocks, n, mode). */
#define X8_FUNCTIONS(dot, mode)                                                                              \
  static VEC_NOINLINE void dot##_1_##mode(const uint8_t *w, const uint8_t *a, float *acc, size_t blocks) {   \
    dot(w, a, acc, blocks, 1, mode);                                                                         \
  }                                                                                                          \
  static VEC_NOINLINE void dot##_2_##mode(const uint8_t *w, const uint8_t *a, float *acc, size_t blocks) {   \
    dot(w, a, acc, blocks, 2, mode);                                                                         \
  }                                                                                                          \
  static VEC_NOINLINE void dot##_4_##mode(const uint8_t *w, const uint8_t *a, float *acc, size_t blocks) {   \
    dot(w, a, acc, blocks, 4, mode);                                                                         \
  }

#endif
#endif
