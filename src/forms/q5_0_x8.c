/* Q5_0 with 8 rows interleaved: blocks of [8 scales][8 vectors of nibbles, as in
 * q4_0_x8.c][2 vectors of top bits, for rows 0-3 and 4-7: bit g of byte c of a
 * row is that of value 4 g + c]. */
#include "packings.h"
#include "x8_bytes.h"

#if LNL_VEC

enum { BLOCK = 32, STORED_BYTES = 22, ZERO = 16, TOP_AT = X8_SCALES + 128, BLOCK_BYTES = TOP_AT + 32 };

/* Bit 4 g + c of each word becomes bit 8 c + g. */
VEC_INLINE v128_t transpose_top(v128_t words) {
  v128_t out = vec_zero();
  VEC_UNROLL for (int c = 0; c < 4; c++) {
    v128_t b = wasm_v128_and(wasm_u32x4_shr(words, c), wasm_i32x4_splat(0x11111111));
    b = wasm_v128_and(wasm_v128_or(b, wasm_u32x4_shr(b, 3)), wasm_i32x4_splat(0x03030303));
    b = wasm_v128_and(wasm_v128_or(b, wasm_u32x4_shr(b, 6)), wasm_i32x4_splat(0x000f000f));
    b = wasm_v128_and(wasm_v128_or(b, wasm_u32x4_shr(b, 12)), wasm_i32x4_splat(0x000000ff));
    out = wasm_v128_or(out, wasm_i32x4_shl(b, 8 * c));
  }
  return out;
}
/* Codes of four rows. */
VEC_INLINE void pack_codes(const uint8_t *const block[4], uint8_t *codes, uint8_t *top) {
  v128_t row[4], words = vec_zero();
  VEC_UNROLL for (int r = 0; r < 4; r++) row[r] = wasm_v128_load(block[r] + 6);
  x8_transpose(codes, row);
  words = wasm_v128_load32_lane(block[0] + 2, words, 0);
  words = wasm_v128_load32_lane(block[1] + 2, words, 1);
  words = wasm_v128_load32_lane(block[2] + 2, words, 2);
  words = wasm_v128_load32_lane(block[3] + 2, words, 3);
  wasm_v128_store(top, transpose_top(words));
}

static void pack(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k) {
  static const uint8_t zero[STORED_BYTES]; /* a block of a missing row */
  for (size_t b = 0; b < k / BLOCK; b++, src += STORED_BYTES, dst += BLOCK_BYTES) {
    const uint8_t *block[FORM_GROUP];
    for (uint32_t r = 0; r < FORM_GROUP; r++) {
      block[r] = r < row_count ? src + (size_t)(r * row_bytes) : zero;
      memcpy(dst + x8_scale_at(r), block[r], 2);
    }
    VEC_LOOP for (uint32_t half = 0; half < 2; half++)
        pack_codes(block + 4 * half, dst + X8_SCALES + 16 * half, dst + TOP_AT + 16 * half);
  }
}

/* Value i of the block is (code - 16) d. */
static int code(const uint8_t *block, uint32_t row, uint32_t i) {
  const uint8_t byte = x8_byte(block, row, i % 16);
  const int top = block[TOP_AT + 4 * row + i % 4] >> (i / 4) & 1;
  return ((i < 16 ? byte & 15 : byte >> 4) | top << 4) - ZERO;
}

static FORM_SMALL void decode_row(const uint8_t *group, uint32_t row, float *dst, uint32_t k) {
  for (; k; k -= BLOCK, group += BLOCK_BYTES, dst += BLOCK) {
    const float d = x8_scale(group, row);
    for (uint32_t i = 0; i < BLOCK; i++) dst[i] = (float)code(group, row, i) * d;
  }
}

#define RECORD_BYTES(mode) ((uint32_t)X8_BYTES_SIZE(BLOCK, mode) + X8_RECORD_END)

VEC_INLINE void prepare(uint8_t *record, size_t step, lnl_q8 x, size_t blocks, const vec_mode mode) {
  for (; blocks; blocks--, record += step, x.q += BLOCK, x.d++) {
    x8_bytes_prepare(record, x.q, BLOCK, mode);
    x8_record_end(record + X8_BYTES_SIZE(BLOCK, mode), x8_bytes_start(x.q, BLOCK, ZERO, mode), *x.d);
  }
}

/* The codes of values 4 group .. 4 group + 3 of four rows. */
VEC_INLINE v128_t codes_of(const uint8_t *w, v128_t top, const int group, v128_t nibble, v128_t sixteen) {
  const v128_t packed = wasm_v128_load(w + 32 * (group % 4));
  const v128_t low = wasm_v128_and(group < 4 ? packed : wasm_u16x8_shr(packed, 4), nibble);
  const v128_t at_4 = group < 4   ? wasm_i16x8_shl(top, 4 - group)
                      : group > 4 ? wasm_u16x8_shr(top, group - 4)
                                  : top;
  return wasm_v128_or(low, wasm_v128_and(at_4, sixteen));
}

VEC_INLINE void dot(const uint8_t *w, const uint8_t *a, float *out, size_t blocks, const uint32_t n,
                    const vec_mode mode) {
  const x8_scales scales = x8_scales_make();
  const v128_t ones = vec_opaque_i16(1), nibble = vec_opaque_i16(0x0f0f), sixteen = vec_opaque_i16(0x1010);
  const x8_bytes_masks mask = x8_bytes_masks_make();
  v128_t seen = vec_zero(), acc[2 * X8_TILE];
  VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) acc[i] = wasm_v128_load(out + 4 * i);
  for (; blocks; blocks--, w += BLOCK_BYTES, a += n * RECORD_BYTES(mode)) {
    v128_t sum[2 * X8_TILE];
    const v128_t top[2] = {wasm_v128_load(w + TOP_AT), wasm_v128_load(w + TOP_AT + 16)};
    x8_start(sum, a, n, RECORD_BYTES(mode));
    VEC_UNROLL for (int group = 0; group < 8; group++) {
      const v128_t codes[2] = {codes_of(w + X8_SCALES, top[0], group, nibble, sixteen),
                               codes_of(w + X8_SCALES + 16, top[1], group, nibble, sixteen)};
      x8_bytes_dot(sum, codes, a, group, n, RECORD_BYTES(mode), &mask, mode);
    }
    if (mode == VEC_I16)
      VEC_UNROLL for (uint32_t i = 0; i < 2 * n; i++) sum[i] = wasm_i32x4_dot_i16x8(sum[i], ones);
    seen = x8_seen(seen, w);
    x8_add(acc, sum, w, a, n, RECORD_BYTES(mode), &scales);
  }
  x8_finish(out, acc, seen, n);
}

X8_CODE_KERNELS
static void matmul(const lnl_matmul *m) { x8_matmul(m, X8_CODE_KERNEL, TYPE_Q5_0, X8_CODE_FACTOR); }

const lnl_packing q5_0_x8 = {
    "q5_0x8.q8." VEC_ISA_NAME, BLOCK_BYTES, pack, decode_row, matmul,
};

#endif
