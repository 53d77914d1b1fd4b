/* Q6_K with 8 rows interleaved and codes widened to bytes, which takes 30 %
 * more memory and saves most of the work on each: blocks of
 *   [d: 8 f16][scales: 8 int8 for each 16 values]
 *   [128 vectors, each the codes of values 4 g .. 4 g + 3 of four rows: x8.h] */
#include "packings.h"
#include "x8_bytes.h"

#if LNL_VEC

enum { BLOCK = 256, STORED_BYTES = 210, SUBS = 8, ZERO = 32 };
enum { SCALES_AT = 16, CODES_AT = SCALES_AT + 8 * 16, BLOCK_BYTES = CODES_AT + 8 * BLOCK };

/* The stored block: q6_k.c. */
enum { HIGH_AT = 128, STORED_SCALES_AT = 192, STORED_D_AT = 208 };

/* Codes of four rows. */
VEC_INLINE void pack_codes(const uint8_t *const block[4], uint8_t *dst) {
  const v128_t nibble = wasm_i8x16_splat(15), upper = wasm_i8x16_splat(0x30);
  VEC_LOOP for (int half = 0; half < 2; half++) VEC_LOOP for (int i = 0; i < 32; i += 16) {
    v128_t codes[4][4]; /* of each group of 32 values and row */
    VEC_UNROLL for (int r = 0; r < 4; r++) {
      const v128_t low = wasm_v128_load(block[r] + 64 * half + i);
      const v128_t next = wasm_v128_load(block[r] + 64 * half + 32 + i);
      const v128_t high = wasm_v128_load(block[r] + HIGH_AT + 32 * half + i);
      codes[0][r] = wasm_v128_or(wasm_v128_and(low, nibble), wasm_v128_and(wasm_i16x8_shl(high, 4), upper));
      codes[1][r] = wasm_v128_or(wasm_v128_and(next, nibble), wasm_v128_and(wasm_i16x8_shl(high, 2), upper));
      codes[2][r] = wasm_v128_or(wasm_u8x16_shr(low, 4), wasm_v128_and(high, upper));
      codes[3][r] = wasm_v128_or(wasm_u8x16_shr(next, 4), wasm_v128_and(wasm_u16x8_shr(high, 2), upper));
    }
    VEC_UNROLL for (int g = 0; g < 4; g++) x8_transpose(dst + 8 * (128 * half + 32 * g + i), codes[g]);
  }
}

static void pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k) {
  static const uint8_t zero[STORED_BYTES]; /* a block of a missing row */
  for (size_t b = 0; b < k / BLOCK; b++, src += STORED_BYTES, dst += BLOCK_BYTES) {
    const uint8_t *block[FORM_GROUP];
    v128_t scales[FORM_GROUP];
    VEC_UNROLL for (uint32_t r = 0; r < FORM_GROUP; r++) {
      block[r] = r < row_count ? src + (size_t)(r * row_bytes) : zero;
      memcpy(dst + 2 * r, block[r] + STORED_D_AT, 2);
      scales[r] = wasm_v128_load(block[r] + STORED_SCALES_AT);
    }
    x8_transpose_bytes(dst + SCALES_AT, scales);
    VEC_LOOP for (uint32_t half = 0; half < 2; half++)
        pack_codes(block + 4 * half, dst + CODES_AT + 16 * half);
  }
}

static int code(const uint8_t *block, uint32_t row, uint32_t i) {
  return block[CODES_AT + i / 4 * 32 + row * 4 + i % 4] - ZERO;
}
static int scale_at(const uint8_t *block, uint32_t row, uint32_t i) {
  return (int8_t)block[SCALES_AT + i / 16 * 8 + row];
}

static FORM_SMALL void decode_row(const uint8_t *group, uint32_t row, float *dst, uint32_t k) {
  for (; k; k -= BLOCK, group += BLOCK_BYTES) {
    const float d = load_half(group + 2 * row);
    for (uint32_t i = 0; i < BLOCK; i++)
      *dst++ = d * (float)scale_at(group, row, i) * (float)code(group, row, i);
  }
}

/* A record: [activations][what the sum of each 16 begins with][d of each 32].
 * The integer product of 32 values, scales included, is less than 2^24: exact
 * as a float. */
#define RECORD_START(mode) ((uint32_t)X8_BYTES_SIZE(BLOCK, mode))
#define RECORD_D(mode)     (RECORD_START(mode) + 4 * 16)
#define RECORD_BYTES(mode) (RECORD_D(mode) + 4 * SUBS)

VEC_INLINE void prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode) {
  for (; blocks; blocks--, record += step, x.q += BLOCK, x.d += SUBS) {
    x8_bytes_prepare(record, x.q, BLOCK, mode);
    for (int j = 0; j < 16; j++) {
      const int32_t start = x8_bytes_start(x.q + 16 * j, 16, ZERO, mode);
      memcpy(record + RECORD_START(mode) + 4 * j, &start, 4);
    }
    memcpy(record + RECORD_D(mode), x.d, 4 * SUBS);
  }
}

/* 16 values: part[i] += scales x (codes x activations + start). */
VEC_INLINE void sub_dot(v128_t *part, const uint8_t *codes, const uint8_t *scales, const uint8_t *x,
                        const uint8_t *start, const uint32_t n, const x8_bytes_masks *mask,
                        const vec_mode mode) {
  v128_t sum[2 * X8_TILE];
  VEC_UNROLL for (uint32_t t = 0; t < n; t++) sum[2 * t] = sum[2 * t + 1] =
      wasm_v128_load32_splat(start + t * RECORD_BYTES(mode));
  VEC_UNROLL for (int g = 0; g < 4; g++) {
    const v128_t c[2] = {wasm_v128_load(codes + 32 * g), wasm_v128_load(codes + 32 * g + 16)};
    x8_bytes_dot(sum, c, x, g, n, RECORD_BYTES(mode), mask, mode);
  }
  const v128_t wide = wasm_i16x8_load8x8(scales);
  if (mode == VEC_I16) {
    const v128_t s[2] = {vec_upper_low(wide), vec_upper_high(wide)};
    VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) part[i] =
        wasm_i32x4_add(part[i], wasm_i32x4_dot_i16x8(sum[i], s[i % 2]));
  } else {
    const v128_t s[2] = {wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(wide)),
                         wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(wide))};
    VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) part[i] =
        vec_madd(wasm_f32x4_convert_i32x4(sum[i]), s[i % 2], part[i]);
  }
}

VEC_INLINE void dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                    const vec_mode mode) {
  const vec_half half = vec_half_make();
  const x8_bytes_masks mask = x8_bytes_masks_make();
  const v128_t exact = vec_opaque_f32(0x1p-8f);
  v128_t total[2 * X8_TILE];
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) total[i] = wasm_v128_load(out + 4 * i);
  for (; blocks; blocks--, w += BLOCK_BYTES, a += n * RECORD_BYTES(mode)) {
    v128_t acc[2 * X8_TILE];
    VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) acc[i] = vec_zero();
    const uint8_t *codes = w + CODES_AT, *scales = w + SCALES_AT;
    const uint8_t *x = a, *start = a + RECORD_START(mode), *d = a + RECORD_D(mode);
    VEC_LOOP for (int j = 0; j < SUBS; j++) {
      v128_t part[2 * X8_TILE];
      VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) part[i] = vec_zero();
      sub_dot(part, codes, scales, x, start, n, &mask, mode);
      sub_dot(part, codes + 128, scales + 8, x + X8_BYTES_SIZE(16, mode), start + 4, n, &mask, mode);
      VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
        const v128_t d_t = wasm_v128_load32_splat(d + t * RECORD_BYTES(mode));
        VEC_UNROLL for (uint32_t i = 2 * t; i < 2 * t + 2; i++) acc[i] =
            vec_madd(mode == VEC_I16 ? wasm_f32x4_convert_i32x4(part[i]) : part[i], d_t, acc[i]);
      }
      codes += 256, scales += 16, x += X8_BYTES_SIZE(32, mode), start += 8, d += 4;
    }
    x8_add_super(total, acc, w, n, mode, &half, exact);
  }
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) wasm_v128_store(out + 4 * i, total[i]);
}

X8_CODE_KERNELS
static void matmul(const lnl_matmul *m) { x8_matmul(m, X8_CODE_KERNEL, TYPE_Q6_K, 0); }

const lnl_packing q6_k_x8 = {
    "q6_kx8.q8." VEC_ISA_NAME, BLOCK_BYTES, pack, decode_row, matmul,
};

#endif
