/* What the packed forms share, those with blocks of 32 above all; private to
 * src/forms.
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
   * records of 1, 2 or 4 tokens: the same bits for a token in each. dot_2 may
   * be NULL, for forms that are worth less code. */
  void (*dot_1)(const uint8_t *w, const uint8_t *a, float *acc, size_t blocks);
  void (*dot_2)(const uint8_t *w, const uint8_t *a, float *acc, size_t blocks);
  void (*dot_4)(const uint8_t *w, const uint8_t *a, float *acc, size_t blocks);
} x8_kernel;

/* lnl_packing.matmul of a type by such functions. The d that `prepare` gets come
 * multiplied with factor, a power of two, 2^112 at most (see x8_scales); 0: as they
 * are. */
void x8_matmul(const lnl_matmul *m, const x8_kernel *kernel, lnl_type type, float factor);

/* The scales of rows r and r + 4 share 4 bytes. */
static inline uint32_t x8_scale_at(uint32_t row) { return row % 4 * 4 + row / 4 * 2; }
static inline float x8_scale(const uint8_t *block, uint32_t row) {
  return load_half(block + x8_scale_at(row));
}

/* Byte i of a row's codes in a block. */
static inline uint8_t x8_byte(const uint8_t *block, uint32_t row, uint32_t i) {
  return block[X8_SCALES + i / 4 * 32 + row / 4 * 16 + row % 4 * 4 + i % 4];
}

#if LNL_VEC

/* Words 0..3 of four rows, each to the vector of that word: dst, dst + 32, ... */
VEC_INLINE void x8_transpose(uint8_t *dst, const v128_t row[4]) {
  const v128_t low_01 = wasm_i32x4_shuffle(row[0], row[1], 0, 4, 1, 5);
  const v128_t low_23 = wasm_i32x4_shuffle(row[2], row[3], 0, 4, 1, 5);
  const v128_t high_01 = wasm_i32x4_shuffle(row[0], row[1], 2, 6, 3, 7);
  const v128_t high_23 = wasm_i32x4_shuffle(row[2], row[3], 2, 6, 3, 7);
  wasm_v128_store(dst, wasm_i64x2_shuffle(low_01, low_23, 0, 2));
  wasm_v128_store(dst + 32, wasm_i64x2_shuffle(low_01, low_23, 1, 3));
  wasm_v128_store(dst + 64, wasm_i64x2_shuffle(high_01, high_23, 0, 2));
  wasm_v128_store(dst + 96, wasm_i64x2_shuffle(high_01, high_23, 1, 3));
}

VEC_INLINE v128_t x8_interleave_low(v128_t a, v128_t b) {
  return wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
VEC_INLINE v128_t x8_interleave_high(v128_t a, v128_t b) {
  return wasm_i8x16_shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
/* dst[8 j + r] = byte j of row[r], j < 16. */
VEC_INLINE void x8_transpose_bytes(uint8_t *dst, const v128_t row[8]) {
  v128_t a[8], b[8]; /* of a column the bytes of rows 0 and 4, ...; then of 0, 2, 4 and 6, ... */
  VEC_UNROLL for (int i = 0; i < 4; i++) {
    a[i] = x8_interleave_low(row[i], row[i + 4]);
    a[i + 4] = x8_interleave_high(row[i], row[i + 4]);
  }
  VEC_UNROLL for (int i = 0; i < 8; i += 4) VEC_UNROLL for (int j = i; j < i + 2; j++) {
    b[j] = x8_interleave_low(a[j], a[j + 2]);
    b[j + 2] = x8_interleave_high(a[j], a[j + 2]);
  }
  VEC_UNROLL for (int i = 0; i < 8; i += 2) {
    wasm_v128_store(dst + 16 * i, x8_interleave_low(b[i], b[i + 1]));
    wasm_v128_store(dst + 16 * i + 16, x8_interleave_high(b[i], b[i + 1]));
  }
}

/* lnl_packing.pack of blocks of [scale: f16][16 or 32 bytes], each byte xored with `flip`. Four
 * rows at a time: few streams, and pointers that stay in registers. A missing row has the codes
 * of the first, and scales of 0. */
VEC_INLINE void x8_pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k,
                        const uint32_t bytes, const int8_t flip) {
  const uint32_t packed_bytes = X8_SCALES + FORM_GROUP * bytes;
  const v128_t flips = wasm_i8x16_splat(flip);
  VEC_LOOP for (uint32_t half = 0; half < 2; half++) {
    const uint8_t *row[4];
    uint8_t *to = dst;
    VEC_UNROLL for (uint32_t i = 0; i < 4; i++) {
      const uint32_t r = 4 * half + i;
      row[i] = r < row_count ? src + (size_t)(r * row_bytes) : src;
    }
    VEC_LOOP for (uint32_t b = 0; b < k / 32; b++, to += packed_bytes) {
      VEC_UNROLL for (uint32_t i = 0; i < 4; i++) memcpy(to + x8_scale_at(i) + 2 * half, row[i], 2);
      VEC_UNROLL for (uint32_t at = 0; at < bytes; at += 16) {
        v128_t v[4];
        VEC_UNROLL for (uint32_t i = 0; i < 4; i++) v[i] =
            wasm_v128_xor(wasm_v128_load(row[i] + 2 + at), flips);
        x8_transpose(to + X8_SCALES + 8 * at + 16 * half, v);
      }
      VEC_UNROLL for (uint32_t i = 0; i < 4; i++) row[i] += 2 + bytes;
    }
  }
  for (uint32_t r = row_count; r < FORM_GROUP; r++)
    for (uint32_t b = 0; b < k / 32; b++) memset(dst + b * packed_bytes + x8_scale_at(r), 0, 2);
}

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

/* The scales of a block. A half becomes a float when its bits move up to the
 * float's fields, but 2^112 too small; the d of the records make up for that
 * (the factor of x8_matmul). The 16-bit product with (0x2000, 0) moves and extends the
 * first half of each lane at once, that with (0, 0x2000) the second. */
typedef struct x8_scales {
  v128_t first, second, fields;
} x8_scales;
VEC_INLINE x8_scales x8_scales_make(void) {
  return (x8_scales){vec_opaque_i32(0x2000), vec_opaque_i32(0x20000000), vec_opaque_i32((int32_t)0x8fffe000)};
}

/* acc[2 t + half] += sum x scale x d of rows 0-3 or 4-7 and token t. */
VEC_INLINE void x8_add(v128_t *acc, const v128_t *sum, const uint8_t *w, const uint8_t *a, const uint32_t n,
                       const uint32_t record_bytes, const x8_scales *c) {
  const v128_t halves = wasm_v128_load(w);
  const v128_t d0 = wasm_v128_and(wasm_i32x4_dot_i16x8(halves, c->first), c->fields);
  const v128_t d1 = wasm_v128_and(wasm_i32x4_dot_i16x8(halves, c->second), c->fields);
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
    const v128_t d = wasm_v128_load32_splat(a + (t + 1) * record_bytes - 4);
    acc[2 * t] = vec_madd(wasm_f32x4_convert_i32x4(sum[2 * t]), wasm_f32x4_mul(d0, d), acc[2 * t]);
    acc[2 * t + 1] =
        vec_madd(wasm_f32x4_convert_i32x4(sum[2 * t + 1]), wasm_f32x4_mul(d1, d), acc[2 * t + 1]);
  }
}

/* acc[2 t + half] += minima x d x the float that the record has in the place of
 * the start. */
VEC_INLINE void x8_add_min(v128_t *acc, const uint8_t *mins, const uint8_t *a, const uint32_t n,
                           const uint32_t record_bytes, const x8_scales *c) {
  const v128_t halves = wasm_v128_load(mins);
  const v128_t m0 = wasm_v128_and(wasm_i32x4_dot_i16x8(halves, c->first), c->fields);
  const v128_t m1 = wasm_v128_and(wasm_i32x4_dot_i16x8(halves, c->second), c->fields);
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
    const v128_t sum = wasm_v128_load32_splat(a + (t + 1) * record_bytes - 8);
    const v128_t d = wasm_v128_load32_splat(a + (t + 1) * record_bytes - 4);
    acc[2 * t] = vec_madd(wasm_f32x4_mul(m0, d), sum, acc[2 * t]);
    acc[2 * t + 1] = vec_madd(wasm_f32x4_mul(m1, d), sum, acc[2 * t + 1]);
  }
}

/* The largest scales seen, without their signs: infinite and NaN ones, rather
 * than being converted each, turn the row's result into NaN at the end. */
VEC_INLINE v128_t x8_seen(v128_t seen, const uint8_t *w) {
  return wasm_u16x8_max(seen, wasm_i16x8_shl(wasm_v128_load(w), 1));
}
VEC_INLINE void x8_finish(float *out, const v128_t *acc, v128_t seen, const uint32_t n) {
  const v128_t bad = wasm_u16x8_ge(seen, wasm_i16x8_splat((int16_t)0xf800));
  const v128_t nan[2] = {wasm_i32x4_shr(wasm_i32x4_shl(bad, 16), 16), wasm_i32x4_shr(bad, 16)};
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++)
      wasm_v128_store(out + 4 * i, wasm_v128_or(acc[i], nan[i % 2]));
}

/* sums + codes x activations, for 4 rows. */
VEC_INLINE v128_t x8_dot_step(v128_t sum, v128_t codes, v128_t a, const vec_mode mode) {
#if LNL_VEC == 2
  if (mode == VEC_I32) return vec_relaxed_dot_i32(a, codes, sum);
  if (mode == VEC_I16) return wasm_i16x8_add(sum, vec_relaxed_dot_i16(a, codes));
#endif
  (void)mode;
  return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(codes, a));
}

/* total += acc x the factors (halves of 8 rows in order) of a super-block; `exact`
 * undoes what products are too large by in VEC_WIDE. */
VEC_INLINE void x8_add_super(v128_t *total, const v128_t *acc, const uint8_t *factors, const uint32_t n,
                             const vec_mode mode, const vec_half *half, v128_t exact) {
  VEC_UNROLL for (uint32_t h = 0; h < 2; h++) {
    v128_t factor = vec_half_any(wasm_i32x4_shl(wasm_i32x4_load16x4(factors + 8 * h), 16), half);
    if (mode == VEC_WIDE) factor = wasm_f32x4_mul(factor, exact);
    VEC_UNROLL for (uint32_t t = 0; t < n; t++) total[2 * t + h] =
        vec_madd(acc[2 * t + h], factor, total[2 * t + h]);
  }
}

/* dot_<n> of an x8_kernel from dot(w, a, acc, blocks, n, mode). */
#define X8_FUNCTION(dot, n, mode)                                                                            \
  static VEC_NOINLINE void dot##_##n##_##mode(const uint8_t *w, const uint8_t *a, float *acc,                \
                                              size_t blocks) {                                               \
    dot(w, a, acc, blocks, n, mode);                                                                         \
  }
#define X8_FUNCTIONS(dot, mode)                                                                              \
  X8_FUNCTION(dot, 1, mode)                                                                                  \
  X8_FUNCTION(dot, 2, mode)                                                                                  \
  X8_FUNCTION(dot, 4, mode)

/* kernel_<mode>, from the file's prepare(record, step, x, blocks, mode), dot as
 * above, BLOCK_BYTES and RECORD_BYTES(mode); and the same without dot_2. */
#define X8_PREPARE(mode)                                                                                     \
  static void prepare_##mode(uint8_t *record, size_t step, lnl_q8 x, size_t blocks) {                        \
    prepare(record, step, x, blocks, mode);                                                                  \
  }
#define X8_KERNEL(mode)                                                                                      \
  X8_PREPARE(mode)                                                                                           \
  X8_FUNCTIONS(dot, mode)                                                                                    \
  static const x8_kernel kernel_##mode = {BLOCK_BYTES,  RECORD_BYTES(mode), prepare_##mode,                  \
                                          dot_1_##mode, dot_2_##mode,       dot_4_##mode};
#define X8_KERNEL_SMALL(mode)                                                                                \
  X8_PREPARE(mode)                                                                                           \
  X8_FUNCTION(dot, 1, mode)                                                                                  \
  X8_FUNCTION(dot, 4, mode)                                                                                  \
  static const x8_kernel kernel_##mode = {BLOCK_BYTES, RECORD_BYTES(mode), prepare_##mode, dot_1_##mode,     \
                                          NULL,        dot_4_##mode};

/* The kernels of codes that have the modes of vec_mode, and the one for this
 * machine. In VEC_WIDE products are 256 times too large: where d takes the
 * factor of x8_matmul, that makes up for it. */
#if LNL_VEC == 2
#define X8_CODE_KERNELS                                                                                      \
  X8_KERNEL(VEC_I32)                                                                                         \
  X8_KERNEL(VEC_I16)
#define X8_CODE_KERNELS_SMALL                                                                                \
  X8_KERNEL_SMALL(VEC_I32)                                                                                   \
  X8_KERNEL_SMALL(VEC_I16)
#define X8_CODE_KERNEL (vec_dot_i32_is_fast() ? &kernel_VEC_I32 : &kernel_VEC_I16)
#define X8_CODE_FACTOR 0x1p112f
#else
#define X8_CODE_KERNELS       X8_KERNEL(VEC_WIDE)
#define X8_CODE_KERNELS_SMALL X8_KERNEL_SMALL(VEC_WIDE)
#define X8_CODE_KERNEL        (&kernel_VEC_WIDE)
#define X8_CODE_FACTOR        0x1p104f
#endif

#endif
#endif
