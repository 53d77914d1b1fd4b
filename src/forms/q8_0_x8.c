/* Q8_0 with 8 rows interleaved: blocks of [8 scales][16 vectors], each vector
 * values 4 j .. 4 j + 3 of four rows (x8.h) as u = q + 128. */
#include "packings.h"
#include "x8.h"

#if LNL_VEC

enum { BLOCK = 32, WORDS = 8, BLOCK_BYTES = X8_SCALES + FORM_GROUP * 4 * WORDS, ZERO = 128 };

static void pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k) {
  x8_pack(src, row_bytes, row_count, dst, k, 4 * WORDS, INT8_MIN);
}

static FORM_SMALL void decode_row(const uint8_t *group, uint32_t row, float *dst, uint32_t k) {
  for (; k; k -= BLOCK, group += BLOCK_BYTES, dst += BLOCK) {
    const float d = x8_scale(group, row);
    for (uint32_t i = 0; i < BLOCK; i++) dst[i] = (float)(x8_byte(group, row, i) - ZERO) * d;
  }
}

/* The exact integer sum of a block, in one of four ways:
 *   U8    u a, the relaxed dot product taking u as it is (vec_dot_takes_u8);
 *         start: -128 sum(a)
 *   WIDE  the same in 16 bits: the even bytes of a vector, then the odd ones,
 *         with activations in that order
 *   I32, I16 (the dot product to 32 and to 16 bits)  a sign moves from one
 *         operand to the other: with s = -1 where a < 0, else 0, and
 *         ~q = q ^ s = u ^ (s ^ 0x80), a q = |a| ~q - |a| s.
 *         |a| is the 7-bit operand (a is never -128), exact for q = -128, too;
 *         start: -sum(|a| s), which is the same for all rows. */
typedef enum q8_mode { U8, WIDE, I32, I16 } q8_mode;
#define RECORD_ACTIVATIONS(mode) ((mode) == U8 ? 32 : 64)
#define RECORD_BYTES(mode)       (RECORD_ACTIVATIONS(mode) + X8_RECORD_END)

/* WIDE: the even ones at 0 and 16 of the record, the odd ones at 32 and 48;
 * I32, I16: |a| and s ^ 0x80 in the same way. */
VEC_INLINE void prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const q8_mode mode) {
  const v128_t top = wasm_i8x16_splat((int8_t)0x80);
  for (; blocks; blocks--, record += step, x.q += BLOCK, x.d++, x.sums += 2) {
    v128_t negative = vec_zero();
    VEC_UNROLL for (int i = 0; i < 2; i++) {
      const v128_t v = wasm_v128_load(x.q + 16 * i);
      if (mode == U8) {
        wasm_v128_store(record + 16 * i, v);
      } else if (mode == WIDE) {
        wasm_v128_store(record + 16 * i, wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 8));
        wasm_v128_store(record + 32 + 16 * i, wasm_i16x8_shr(v, 8));
      } else {
        const v128_t size = wasm_i8x16_abs(v), s = wasm_i8x16_lt(v, vec_zero());
        wasm_v128_store(record + 16 * i, size);
        wasm_v128_store(record + 32 + 16 * i, wasm_v128_xor(s, top));
        negative = wasm_i16x8_add(negative, wasm_u16x8_extadd_pairwise_u8x16(wasm_v128_and(size, s)));
      }
    }
    int32_t start = -ZERO * (x.sums[0] + x.sums[1]);
    if (mode == I32 || mode == I16) {
      negative = wasm_u32x4_extadd_pairwise_u16x8(negative);
      negative = wasm_i32x4_add(negative, wasm_i32x4_shuffle(negative, negative, 2, 3, 0, 1));
      start = wasm_i32x4_extract_lane(negative, 0) + wasm_i32x4_extract_lane(negative, 1);
    }
    x8_record_end(record + RECORD_ACTIVATIONS(mode), start, *x.d);
  }
}

/* sum + the products of vector w of 4 rows with the activations at a. */
VEC_INLINE v128_t dot_step(v128_t sum, v128_t w, v128_t a, v128_t a2, v128_t ones, const q8_mode mode) {
#if LNL_VEC == 2
  if (mode == U8) return vec_dot_u8_i32(a, w, sum);
  if (mode == I32) return vec_relaxed_dot_i32(wasm_v128_xor(w, a2), a, sum);
  if (mode == I16)
    return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(vec_relaxed_dot_i16(wasm_v128_xor(w, a2), a), ones));
#endif
  (void)mode, (void)a2, (void)ones;
  return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(w, a));
}

VEC_INLINE void dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                    const q8_mode mode) {
  const x8_scales scales = x8_scales_make();
  const v128_t ones = vec_opaque_i16(1), even = mode == WIDE ? vec_opaque_i16(0x00ff) : ones;
  v128_t seen = vec_zero(), acc[2 * X8_TILE];
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) acc[i] = wasm_v128_load(out + 4 * i);
  for (; blocks; blocks--, w += BLOCK_BYTES, a += n * RECORD_BYTES(mode)) {
    v128_t sum[2 * X8_TILE];
    x8_start(sum, a, n, RECORD_BYTES(mode));
    VEC_UNROLL for (int j = 0; j < WORDS; j++) {
      const v128_t u[2] = {wasm_v128_load(w + X8_SCALES + 32 * j),
                           wasm_v128_load(w + X8_SCALES + 32 * j + 16)};
      VEC_UNROLL for (int part = 0; part < (mode == WIDE ? 2 : 1); part++) {
        v128_t rows[2];
        VEC_UNROLL for (int i = 0; i < 2; i++) rows[i] = mode != WIDE ? u[i]
                                                         : part       ? wasm_u16x8_shr(u[i], 8)
                                                                      : wasm_v128_and(u[i], even);
        VEC_UNROLL for (uint32_t t = 0; t < n; t++) {
          const uint8_t *at = a + t * RECORD_BYTES(mode) + 32 * part + 4 * j;
          const v128_t x = wasm_v128_load32_splat(at);
          const v128_t x2 = mode == I32 || mode == I16 ? wasm_v128_load32_splat(at + 32) : x;
          VEC_UNROLL for (uint32_t i = 0; i < 2; i++) {
            sum[2 * t + i] = dot_step(sum[2 * t + i], rows[i], x, x2, ones, mode);
            VEC_KEEP(sum[2 * t + i]);
          }
        }
      }
    }
    seen = x8_seen(seen, w);
    x8_add(acc, sum, w, a, n, RECORD_BYTES(mode), &scales);
  }
  x8_finish(out, acc, seen, n);
}

#if LNL_VEC == 2
X8_KERNEL(U8)
X8_KERNEL(I32)
X8_KERNEL(I16)
static void matmul(const lnl_matmul *m) {
  x8_matmul(m,
            vec_dot_takes_u8()      ? &kernel_U8
            : vec_dot_i32_is_fast() ? &kernel_I32
                                    : &kernel_I16,
            TYPE_Q8_0, 0x1p112f);
}
#else
X8_KERNEL(WIDE)
static void matmul(const lnl_matmul *m) { x8_matmul(m, &kernel_WIDE, TYPE_Q8_0, 0x1p112f); }
#endif

const lnl_packing q8_0_x8 = {
    "q8_0x8.q8." VEC_ISA_NAME, BLOCK_BYTES, pack, decode_row, matmul,
};

#endif
