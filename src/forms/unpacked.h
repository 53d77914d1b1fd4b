/* What forms share whose blocks become bytes before they are multiplied: one
 * product kernel and one decoder for every format that needs none of its own.
 * Private to src/forms; a form's file includes unpacked_form.h. */
#ifndef LNL_UNPACKED_H
#define LNL_UNPACKED_H

#include "form_impl.h"

enum { UNPACKED = 1024 };

/* Up to UNPACKED values of a row, ready for any number of tokens. Value i is
 * scale[i / sub] (code[i] - zero) [+ min[i / sub]]. */
typedef struct unpacked {
  int8_t code[UNPACKED];
  float scale[UNPACKED / 16], min[UNPACKED / 16];
} unpacked;

typedef struct unpack_rules {
  uint32_t block, block_bytes; /* values and bytes a block; UNPACKED is whole blocks */
  uint32_t sub;                /* values that share a scale: 16 or 32 */
  int32_t zero;
  bool has_min;      /* else min is not added, nor need it be set */
  bool codes_signed; /* codes are any int8, else they are 0..63 */
  void (*unpack)(unpacked *out, const uint8_t *w, uint32_t blocks);
} unpack_rules;

#if LNL_VEC
/* The scales (and minima) of blocks of 32 that begin with a half (or two). */
VEC_INLINE void unpack_factors(unpacked *out, const uint8_t *w, uint32_t blocks, uint32_t block_bytes,
                               const bool has_min) {
  const vec_half half = vec_half_make();
  uint32_t b = 0;
  for (; blocks - b >= 4; b += 4, w += 4 * (size_t)block_bytes) {
    wasm_v128_store(out->scale + b, block_factors_4(w, block_bytes, &half));
    if (has_min) wasm_v128_store(out->min + b, block_factors_4(w + 2, block_bytes, &half));
  }
  VEC_LOOP for (; b < blocks; b++, w += block_bytes) {
    out->scale[b] = load_half(w);
    if (has_min) out->min[b] = load_half(w + 2);
  }
}
#endif

/* lnl_form's functions, by such rules. */
void unpacked_decode(const unpack_rules *rules, const uint8_t *src, float *dst, uint64_t n);
void unpacked_matmul(const unpack_rules *rules, const lnl_matmul *m);

#endif
