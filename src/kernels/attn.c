/* Causal attention of one token: softmax(scale q K^T) V. */
#include <math.h>

#include "kernels.h"
#include "../vec.h"

/* Query heads that go through a tile of keys and values together, so that
 * each is loaded once for all of them; and those whose running softmax is held
 * at a time. */
enum { ATTN_HEADS = 4, ATTN_SPAN = 64 };

/* Running softmax of one head; the weighted values add up in its output. */
typedef struct attn_state {
  float largest, total;
} attn_state;

uint64_t attn_scratch_bytes(uint32_t d_head, uint32_t d_value) {
  const uint64_t tile = (uint64_t)ATTN_TILE * (d_head + (uint64_t)d_value), weights = ATTN_HEADS * ATTN_TILE;
  return align_up((tile + weights) * sizeof(float) + ATTN_SPAN * sizeof(attn_state), 16);
}

/* Value i of a key or value row, whichever the cache holds. */
static inline float kv_at(const void *kv, bool f16, size_t i) {
  return f16 ? half_to_float(((const uint16_t *)kv)[i]) : ((const float *)kv)[i];
}

static float score_scalar(const lnl_attn *a, uint32_t head, uint32_t position) {
  const uint32_t kv_head = head / (a->n_head / a->n_kv_head);
  const float *q = a->q + (size_t)head * a->d_head;
  const size_t at = ((size_t)position * a->n_kv_head + kv_head) * a->d_head;
  float dot = 0;
  for (uint32_t i = 0; i < a->d_head; i++) {
    const float product = q[i] * kv_at(a->k, a->kv_f16, at + i);
    dot += product;
  }
  return dot * a->scale;
}

/* The specification: the largest score, then the weighted mean. */
void attn_scalar(const lnl_attn *a) {
  for (uint32_t head = a->head_begin; head < a->head_end; head++) {
    const uint32_t kv_head = head / (a->n_head / a->n_kv_head);
    float *out = a->out + (size_t)head * a->d_value;
    float largest = -INFINITY;
    for (uint32_t p = 0; p < a->n_key; p++) largest = fmaxf(largest, score_scalar(a, head, p));
    for (uint32_t i = 0; i < a->d_value; i++) out[i] = 0;
    float total = 0;
    for (uint32_t p = 0; p < a->n_key; p++) {
      const float weight = expf(score_scalar(a, head, p) - largest);
      const size_t at = ((size_t)p * a->n_kv_head + kv_head) * a->d_value;
      total += weight;
      for (uint32_t i = 0; i < a->d_value; i++) {
        const float product = weight * kv_at(a->v, a->kv_f16, at + i);
        out[i] += product;
      }
    }
    for (uint32_t i = 0; i < a->d_value; i++) out[i] /= total;
  }
}

#if LNL_VEC

/* A tile of one kv head: positions first..first+count-1. Values are copied to
 * be contiguous (rows of all kv heads lie between those of one, at a distance
 * that falls into few sets of the first-level cache), halves to be floats. */
typedef struct attn_tile {
  const lnl_attn *a;
  uint32_t first, count;
  const float *keys; /* key_stride apart */
  size_t key_stride;
  float *key_copy;    /* [ATTN_TILE, d_head] */
  float *values;      /* [ATTN_TILE, d_value] */
  float *weights;     /* [ATTN_HEADS, ATTN_TILE]: scores, then exp(score - largest) */
  attn_state *states; /* [ATTN_SPAN] */
} attn_tile;

/* count rows of d values, stride apart from value `at` on, as contiguous floats. */
static VEC_NOINLINE void rows_copy(float *dst, const void *src, bool f16, size_t at, size_t stride,
                                   uint32_t d, uint32_t count) {
  const vec_half half = vec_half_make();
  for (uint32_t p = 0; p < count; p++, at += stride, dst += d) {
    if (!f16) {
      memcpy(dst, (const float *)src + at, d * sizeof(float));
      continue;
    }
    uint32_t i = 0;
    for (; d - i >= 8; i += 8) {
      const v128_t halves = wasm_v128_load((const uint16_t *)src + at + i);
      wasm_v128_store(dst + i, vec_half_any(vec_upper_low(halves), &half));
      wasm_v128_store(dst + i + 4, vec_half_any(vec_upper_high(halves), &half));
    }
    for (; i < d; i++) dst[i] = kv_at(src, true, at + i);
  }
}

static void tile_load(attn_tile *tile, uint32_t kv_head) {
  const lnl_attn *a = tile->a;
  const size_t row = (size_t)tile->first * a->n_kv_head + kv_head;
  const size_t key_stride = (size_t)a->n_kv_head * a->d_head;
  rows_copy(tile->values, a->v, a->kv_f16, row * a->d_value, (size_t)a->n_kv_head * a->d_value, a->d_value,
            tile->count);
  if (a->kv_f16) {
    rows_copy(tile->key_copy, a->k, true, row * a->d_head, key_stride, a->d_head, tile->count);
    tile->keys = tile->key_copy;
    tile->key_stride = a->d_head;
  } else {
    tile->keys = (const float *)a->k + row * a->d_head;
    tile->key_stride = key_stride;
  }
}

/* weights[h][p] = scale q_h . k_p for n heads from `head` on. One order of
 * additions for every n. */
VEC_INLINE void tile_scores(const attn_tile *tile, uint32_t head, const uint32_t n) {
  const uint32_t d = tile->a->d_head;
  const float *q = tile->a->q + (size_t)head * d, *key = tile->keys;
  for (uint32_t p = 0; p < tile->count; p++, key += tile->key_stride) {
    v128_t even[ATTN_HEADS], odd[ATTN_HEADS];
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) even[h] = odd[h] = vec_zero();
    uint32_t i = 0;
    for (; d - i >= 8; i += 8) {
      const v128_t low = wasm_v128_load(key + i), high = wasm_v128_load(key + i + 4);
      VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
        even[h] = vec_madd(low, wasm_v128_load(q + (size_t)h * d + i), even[h]);
        odd[h] = vec_madd(high, wasm_v128_load(q + (size_t)h * d + i + 4), odd[h]);
      }
    }
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
      float dot = vec_sum_f32(wasm_f32x4_add(even[h], odd[h]));
      for (uint32_t j = i; j < d; j++) {
        const float product = key[j] * q[(size_t)h * d + j];
        dot += product;
      }
      tile->weights[h * ATTN_TILE + p] = dot * tile->a->scale;
    }
  }
}

/* out[h] += weights[h] V, 8 values of V at a time down the tile. */
VEC_INLINE void tile_values(const attn_tile *tile, uint32_t head, const uint32_t n) {
  const uint32_t d = tile->a->d_value;
  float *out = tile->a->out + (size_t)head * d;
  uint32_t i = 0;
  for (; d - i >= 8; i += 8) {
    v128_t low[ATTN_HEADS], high[ATTN_HEADS];
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
      low[h] = wasm_v128_load(out + (size_t)h * d + i);
      high[h] = wasm_v128_load(out + (size_t)h * d + i + 4);
    }
    const float *value = tile->values + i, *weight = tile->weights;
    for (uint32_t p = 0; p < tile->count; p++, value += d, weight++) {
      const v128_t v_low = wasm_v128_load(value), v_high = wasm_v128_load(value + 4);
      VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
        const v128_t weight_h = wasm_v128_load32_splat(weight + h * ATTN_TILE);
        low[h] = vec_madd(weight_h, v_low, low[h]);
        high[h] = vec_madd(weight_h, v_high, high[h]);
      }
    }
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
      wasm_v128_store(out + (size_t)h * d + i, low[h]);
      wasm_v128_store(out + (size_t)h * d + i + 4, high[h]);
    }
  }
  for (; i < d; i++)
    for (uint32_t h = 0; h < n; h++)
      for (uint32_t p = 0; p < tile->count; p++) {
        const float product = tile->weights[h * ATTN_TILE + p] * tile->values[(size_t)p * d + i];
        out[(size_t)h * d + i] += product;
      }
}

/* Functions of their own for 1, 2 and 4 heads: see VEC_NOINLINE. */
#define ATTN_VARIANTS(name)                                                                                  \
  static VEC_NOINLINE void name##_1(const attn_tile *tile, uint32_t head) { name(tile, head, 1); }           \
  static VEC_NOINLINE void name##_2(const attn_tile *tile, uint32_t head) { name(tile, head, 2); }           \
  static VEC_NOINLINE void name##_4(const attn_tile *tile, uint32_t head) { name(tile, head, 4); }           \
  static void name##_n(const attn_tile *tile, uint32_t head, uint32_t n) {                                   \
    (n == 4 ? name##_4 : n == 2 ? name##_2 : name##_1)(tile, head);                                          \
  }
ATTN_VARIANTS(tile_scores)
ATTN_VARIANTS(tile_values)

/* Turns a tile's scores into weights relative to the largest score so far, and
 * rescales what was summed relative to the one before. */
static void tile_softmax(float *weights, uint32_t count, float *out, uint32_t d_value, attn_state *state) {
  for (uint32_t p = count; p % 4; p++) weights[p] = -INFINITY; /* weight 0 */
  v128_t largest_4 = wasm_f32x4_splat(state->largest);
  for (uint32_t p = 0; p < count; p += 4) largest_4 = wasm_f32x4_max(largest_4, wasm_v128_load(weights + p));
  const float largest =
      fmaxf(fmaxf(wasm_f32x4_extract_lane(largest_4, 0), wasm_f32x4_extract_lane(largest_4, 1)),
            fmaxf(wasm_f32x4_extract_lane(largest_4, 2), wasm_f32x4_extract_lane(largest_4, 3)));
  const v128_t largest_all = wasm_f32x4_splat(largest);
  v128_t total = vec_zero();
  for (uint32_t p = 0; p < count; p += 4) {
    const v128_t weight = vec_exp(wasm_f32x4_sub(wasm_v128_load(weights + p), largest_all));
    wasm_v128_store(weights + p, weight);
    total = wasm_f32x4_add(total, weight);
  }
  if (largest != state->largest) {
    const v128_t factor_all = vec_exp(wasm_f32x4_splat(state->largest - largest));
    const float factor = wasm_f32x4_extract_lane(factor_all, 0);
    uint32_t i = 0;
    for (; d_value - i >= 4; i += 4)
      wasm_v128_store(out + i, wasm_f32x4_mul(wasm_v128_load(out + i), factor_all));
    for (; i < d_value; i++) out[i] *= factor;
    state->total *= factor;
    state->largest = largest;
  }
  state->total += vec_sum_f32(total);
}

/* Query heads begin..end-1 (at most ATTN_SPAN) with the tile's positions. */
static void tile_heads(attn_tile *tile, uint32_t begin, uint32_t end) {
  const lnl_attn *a = tile->a;
  const uint32_t group = a->n_head / a->n_kv_head;
  for (uint32_t head = begin; head < end;) {
    const uint32_t group_end = u32_min(end, (head / group + 1) * group);
    tile_load(tile, head / group);
    while (head < group_end) {
      const uint32_t left = group_end - head, n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
      tile_scores_n(tile, head, n);
      for (uint32_t h = 0; h < n; h++)
        tile_softmax(tile->weights + h * ATTN_TILE, tile->count, a->out + (size_t)(head + h) * a->d_value,
                     a->d_value, &tile->states[head + h - begin]);
      tile_values_n(tile, head, n);
      head += n;
    }
  }
}

/* All heads go through a tile before the next one is read, so that memory is
 * read in order. */
void attn(const lnl_attn *a) {
  attn_tile tile = {0};
  tile.a = a;
  tile.key_copy = a->scratch;
  tile.values = tile.key_copy + (size_t)ATTN_TILE * a->d_head;
  tile.weights = tile.values + (size_t)ATTN_TILE * a->d_value;
  tile.states = (attn_state *)(void *)(tile.weights + ATTN_HEADS * ATTN_TILE);
  for (uint32_t begin = a->head_begin; begin < a->head_end; begin += ATTN_SPAN) {
    const uint32_t end = u32_min(a->head_end - begin, ATTN_SPAN) + begin;
    memset(a->out + (size_t)begin * a->d_value, 0, (size_t)(end - begin) * a->d_value * sizeof(float));
    for (uint32_t h = 0; h < end - begin; h++) tile.states[h] = (attn_state){-INFINITY, 0};
    for (tile.first = 0; tile.first < a->n_key; tile.first += tile.count) {
      tile.count = u32_min(a->n_key - tile.first, ATTN_TILE);
      tile_heads(&tile, begin, end);
    }
    for (uint32_t head = begin; head < end; head++) {
      float *out = a->out + (size_t)head * a->d_value;
      const float total = tile.states[head - begin].total;
      for (uint32_t i = 0; i < a->d_value; i++) out[i] /= total;
    }
  }
}

#else

void attn(const lnl_attn *a) { attn_scalar(a); }

#endif
