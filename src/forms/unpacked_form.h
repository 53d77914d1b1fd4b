/* The functions of a form over unpacked.h. The including file defines
 *   FORM(suffix)            its symbols
 *   BLOCK, BLOCK_BYTES      values and bytes a block: 256 values are whole
 * blocks SUB                     values that share a scale: 16 or 32 ZERO value
 * = scale (code - ZERO) [+ min] HAS_MIN                 1 where `min` is added
 *   CODES_SIGNED            1 where codes are any int8, else they are 0..63
 *   block_codes_scalar      the codes of a block
 *   block_scales            its scales (and minima: what is added), one a SUB
 *   block_codes             block_codes_scalar with vectors, in builds that
 * have them */
#include "unpacked.h"

void FORM(decode_scalar)(const uint8_t *src, float *dst, uint64_t n) {
  for (; n; n -= BLOCK, src += BLOCK_BYTES) {
    int8_t code[BLOCK];
    float scale[BLOCK / SUB], min[BLOCK / SUB];
    block_codes_scalar(src, code);
    block_scales_scalar(src, scale, min);
    for (int i = 0; i < BLOCK; i++) {
      const float product = scale[i / SUB] * (float)(code[i] - ZERO);
      *dst++ = HAS_MIN ? product + min[i / SUB] : product;
    }
  }
}

#if LNL_VEC
static void unpack(unpacked *out, const uint8_t *w, uint32_t blocks) {
#if BLOCK_FACTORS
  unpack_factors(out, w, blocks, BLOCK_BYTES, HAS_MIN);
#endif
  VEC_LOOP for (uint32_t b = 0; b < blocks; b++, w += BLOCK_BYTES) {
    block_codes(w, out->code + b * BLOCK);
#if !BLOCK_FACTORS
    block_scales(w, out->scale + b * (BLOCK / SUB), out->min + b * (BLOCK / SUB));
#endif
  }
}
static const unpack_rules rules = {BLOCK, BLOCK_BYTES, SUB, ZERO, HAS_MIN, CODES_SIGNED, unpack};
void FORM(decode)(const uint8_t *src, float *dst, uint64_t n) { unpacked_decode(&rules, src, dst, n); }
void FORM(matmul)(const lnl_matmul *m) { unpacked_matmul(&rules, m); }
#endif
