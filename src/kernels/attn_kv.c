/* How the key-value cache of a layer is laid out, and written. */
#include "attn_rows.h"

#include <string.h>

#include "../forms/form_impl.h"
#include "../forms/half.h"

enum { SCALE_BYTES = KV_GROUP * sizeof(uint16_t) };

static uint32_t blocks_of(uint32_t d) { return (d + KV_BLOCK - 1) / KV_BLOCK; }
static size_t block_bytes(attn_kv kv) {
  return SCALE_BYTES + KV_GROUP * KV_BLOCK / (kv == ATTN_Q4_0 ? 2 : 1);
}

uint64_t attn_kv_bytes(attn_kv kv, uint32_t n_ctx, uint32_t n_kv_head, uint32_t d) {
  if (kv == ATTN_F32 || kv == ATTN_F16) return (uint64_t)n_ctx * n_kv_head * d * (kv == ATTN_F16 ? 2 : 4);
  return (uint64_t)n_kv_head * kv_group_count(n_ctx) * blocks_of(d) * block_bytes(kv);
}

/* The codes of one position, i in its group. */
static void put_k8(uint8_t *units, uint32_t i, const int8_t *codes) {
  for (uint32_t u = 0; u < 16; u++) memcpy(units + 16 * u + 2 * i, codes + 2 * u, 2);
}
static void put_v8(uint8_t *units, uint32_t i, const int8_t *codes) {
  uint8_t *to = units + 64 * (i / 2) + i % 2;
  for (uint32_t v = 0; v < KV_BLOCK; v++) to[2 * v] = (uint8_t)codes[v];
}
static uint8_t nibbles(int8_t lower, int8_t upper) { return (uint8_t)((lower + 8) | (upper + 8) << 4); }
static void put_k4(uint8_t *units, uint32_t i, const int8_t *codes) {
  for (uint32_t m = 0; m < 8; m++, codes += 4) {
    units[16 * m + 2 * i] = nibbles(codes[0], codes[2]);
    units[16 * m + 2 * i + 1] = nibbles(codes[1], codes[3]);
  }
}
static void put_v4(uint8_t *units, uint32_t i, const int8_t *codes) {
  uint8_t *to = units + 32 * (i / 2) + i % 2;
  for (uint32_t v = 0; v < KV_BLOCK / 2; v++) to[2 * v] = nibbles(codes[v], codes[v + 16]);
}

bool attn_halves_are_finite(const uint8_t *src, size_t n) {
  bool finite = true;
  size_t i = 0;
#if LNL_VEC
  const v128_t magnitude = vec_opaque_i16(0x7fff);
  v128_t largest = vec_zero();
  for (; n - i >= 32; i += 32)
    VEC_UNROLL for (uint32_t j = 0; j < 32; j += 8) largest =
        wasm_i16x8_max(largest, wasm_v128_and(wasm_v128_load(src + 2 * (i + j)), magnitude));
  for (; n - i >= 8; i += 8)
    largest = wasm_i16x8_max(largest, wasm_v128_and(wasm_v128_load(src + 2 * i), magnitude));
  finite = !wasm_v128_any_true(wasm_i16x8_ge(largest, wasm_i16x8_splat(0x7c00)));
#endif
  for (; i < n; i++) finite = finite && (load_u16(src + 2 * i) & 0x7fff) < 0x7c00;
  return finite;
}

bool attn_kv_store(void *kv_data, attn_kv kv, attn_part part, uint32_t n_ctx, uint32_t n_kv_head, uint32_t d,
                   uint32_t position, const float *row) {
  if (kv == ATTN_F32 || kv == ATTN_F16) {
    bool finite = true;
    for (uint32_t head = 0; head < n_kv_head; head++, row += d) {
      const size_t at = ((size_t)head * n_ctx + position) * d;
      if (kv == ATTN_F16) {
        f32_to_f16((uint16_t *)kv_data + at, row, d);
        finite = attn_halves_are_finite((const uint8_t *)kv_data + 2 * at, d) && finite;
      } else {
        memcpy((float *)kv_data + at, row, d * sizeof(float));
      }
    }
    return finite;
  }
  static void (*const put[2][2])(uint8_t *, uint32_t, const int8_t *) = {{put_k8, put_v8}, {put_k4, put_v4}};
  const uint32_t blocks = blocks_of(d), i = position % KV_GROUP;
  for (uint32_t head = 0; head < n_kv_head; head++) {
    const size_t group = (size_t)head * kv_group_count(n_ctx) + position / KV_GROUP;
    uint8_t *block = (uint8_t *)kv_data + group * blocks * block_bytes(kv);
    for (uint32_t at = 0; at < d; at += KV_BLOCK, block += block_bytes(kv)) {
      const uint32_t count = u32_min(d - at, KV_BLOCK);
      const float *values = row + (size_t)head * d + at;
      float last[KV_BLOCK] = {0};
      if (count < KV_BLOCK) values = memcpy(last, values, count * sizeof(float));
      int8_t codes[KV_BLOCK];
      uint16_t scale;
      (kv == ATTN_Q8_0 ? quant_kv_q8_0 : quant_kv_q4_0)(codes, &scale, values, KV_BLOCK);
      memcpy(block + i * sizeof scale, &scale, sizeof scale);
      put[kv == ATTN_Q4_0][part](block + SCALE_BYTES, i, codes);
    }
  }
  return true;
}

/* What put_* have put. */
static FORM_SMALL void take_codes(int8_t codes[KV_BLOCK], const uint8_t *units, uint32_t i, attn_kv kv,
                                  attn_part part) {
  if (part == ATTN_K && kv == ATTN_Q8_0) {
    for (uint32_t u = 0; u < 16; u++) memcpy(codes + 2 * u, units + 16 * u + 2 * i, 2);
  } else if (part == ATTN_K) {
    for (uint32_t m = 0; m < 8; m++, codes += 4) {
      const uint8_t *from = units + 16 * m + 2 * i;
      for (uint32_t j = 0; j < 2; j++) {
        codes[j] = (int8_t)((from[j] & 15) - 8);
        codes[j + 2] = (int8_t)((from[j] >> 4) - 8);
      }
    }
  } else if (kv == ATTN_Q8_0) {
    const uint8_t *from = units + 64 * (i / 2) + i % 2;
    for (uint32_t v = 0; v < KV_BLOCK; v++) codes[v] = (int8_t)from[2 * v];
  } else {
    const uint8_t *from = units + 32 * (i / 2) + i % 2;
    for (uint32_t v = 0; v < KV_BLOCK / 2; v++) {
      codes[v] = (int8_t)((from[2 * v] & 15) - 8);
      codes[v + 16] = (int8_t)((from[2 * v] >> 4) - 8);
    }
  }
}

FORM_SMALL void attn_kv_widen(float *out, const void *kv_data, attn_kv kv, attn_part part, uint32_t n_ctx,
                              uint32_t d, uint32_t position, uint32_t count, uint32_t head) {
  const uint32_t blocks = blocks_of(d);
  for (uint32_t p = position; p < position + count; p++) {
    const size_t group = (size_t)head * kv_group_count(n_ctx) + p / KV_GROUP;
    const uint8_t *block = (const uint8_t *)kv_data + group * blocks * block_bytes(kv);
    for (uint32_t at = 0; at < d; at += KV_BLOCK, block += block_bytes(kv)) {
      int8_t codes[KV_BLOCK];
      take_codes(codes, block + SCALE_BYTES, p % KV_GROUP, kv, part);
      const float scale = load_half(block + p % KV_GROUP * sizeof(uint16_t));
      const uint32_t n = u32_min(d - at, KV_BLOCK);
      for (uint32_t v = 0; v < n; v++) *out++ = scale * (float)codes[v];
    }
  }
}

float attn_kv_value(const void *kv_data, attn_kv kv, attn_part part, uint32_t n_ctx, uint32_t d,
                    uint32_t position, uint32_t head, uint32_t value) {
  const size_t at = ((size_t)head * n_ctx + position) * d + value;
  if (kv == ATTN_F32) return ((const float *)kv_data)[at];
  if (kv == ATTN_F16) return half_to_float(((const uint16_t *)kv_data)[at]);
  const size_t group = (size_t)head * kv_group_count(n_ctx) + position / KV_GROUP;
  const uint8_t *block =
      (const uint8_t *)kv_data + (group * blocks_of(d) + value / KV_BLOCK) * block_bytes(kv);
  const uint32_t i = position % KV_GROUP, v = value % KV_BLOCK;
  const float scale = load_half(block + i * sizeof(uint16_t));
  const uint32_t unit = part == ATTN_K ? v / 2 : 4 * (i / 2) + v / 8;
  const uint32_t place = part == ATTN_K ? 2 * i + v % 2 : 2 * (v % 8) + i % 2;
  const uint8_t *units = block + SCALE_BYTES;
  if (kv == ATTN_Q8_0) return scale * (float)(int8_t)units[16 * unit + place];
  const uint32_t m = part == ATTN_K ? unit / 2 : unit / 4 * 2 + unit % 2;
  const bool upper = part == ATTN_K ? unit % 2 : unit / 2 % 2;
  return scale * (float)((units[16 * m + place] >> (upper ? 4 : 0) & 15) - 8);
}
