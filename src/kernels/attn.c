/* Causal attention of one token: softmax(scale q K^T) V. */
#include <math.h>

#include "kernels.h"
#include "../vec.h"

/* Query heads that go through a tile of keys and values together, so that
 * each is loaded (and widened) once for all of them. */
enum { ATTN_HEADS = 4 };

uint64_t attn_scratch_bytes(uint32_t d_head, uint32_t d_value) {
  (void)d_head;
  return align_up((uint64_t)ATTN_HEADS * (ATTN_TILE + (uint64_t)d_value) * sizeof(float), 16);
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

/* n query heads of one kv head over positions first..first+count-1. */
typedef struct attn_tile {
  const lnl_attn *a;
  uint32_t head, kv_head, first, count;
  float *weights; /* [n, ATTN_TILE]: scores, then exp(score - largest) */
  float *sums;    /* [n, d_value]: the weighted values so far */
} attn_tile;

VEC_INLINE void kv_load_8(v128_t out[2], const void *kv, const bool f16, size_t i, const vec_half *half) {
  if (f16) {
    const v128_t halves = wasm_v128_load((const uint16_t *)kv + i);
    out[0] = vec_half_any(vec_upper_low(halves), half);
    out[1] = vec_half_any(vec_upper_high(halves), half);
  } else {
    out[0] = wasm_v128_load((const float *)kv + i);
    out[1] = wasm_v128_load((const float *)kv + i + 4);
  }
}

/* weights[h][p] = scale q_h . k_p. One order of additions for every n. */
VEC_INLINE void tile_scores(const attn_tile *tile, const uint32_t n, const bool f16) {
  const lnl_attn *a = tile->a;
  const uint32_t d = a->d_head;
  const float *q = a->q + (size_t)tile->head * d;
  const vec_half half = vec_half_make();
  for (uint32_t p = 0; p < tile->count; p++) {
    const size_t at = ((size_t)(tile->first + p) * a->n_kv_head + tile->kv_head) * d;
    v128_t even[ATTN_HEADS], odd[ATTN_HEADS];
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) even[h] = odd[h] = vec_zero();
    uint32_t i = 0;
    for (; d - i >= 8; i += 8) {
      v128_t key[2];
      kv_load_8(key, a->k, f16, at + i, &half);
      VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
        even[h] = vec_madd(key[0], wasm_v128_load(q + (size_t)h * d + i), even[h]);
        odd[h] = vec_madd(key[1], wasm_v128_load(q + (size_t)h * d + i + 4), odd[h]);
      }
    }
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
      float dot = vec_sum_f32(wasm_f32x4_add(even[h], odd[h]));
      for (uint32_t j = i; j < d; j++) {
        const float product = kv_at(a->k, f16, at + j) * q[(size_t)h * d + j];
        dot += product;
      }
      tile->weights[h * ATTN_TILE + p] = dot * a->scale;
    }
  }
}

/* sums[h] += weights[h] V, 8 values of V at a time down the tile. */
VEC_INLINE void tile_values(const attn_tile *tile, const uint32_t n, const bool f16) {
  const lnl_attn *a = tile->a;
  const uint32_t d = a->d_value;
  const size_t stride = (size_t)a->n_kv_head * d;
  const size_t start = ((size_t)tile->first * a->n_kv_head + tile->kv_head) * d;
  const vec_half half = vec_half_make();
  uint32_t i = 0;
  for (; d - i >= 8; i += 8) {
    v128_t low[ATTN_HEADS], high[ATTN_HEADS];
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
      low[h] = wasm_v128_load(tile->sums + (size_t)h * d + i);
      high[h] = wasm_v128_load(tile->sums + (size_t)h * d + i + 4);
    }
    for (uint32_t p = 0; p < tile->count; p++) {
      const size_t at = start + p * stride + i;
      v128_t value[2];
      kv_load_8(value, a->v, f16, at, &half);
      VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
        const v128_t weight = wasm_v128_load32_splat(tile->weights + h * ATTN_TILE + p);
        low[h] = vec_madd(weight, value[0], low[h]);
        high[h] = vec_madd(weight, value[1], high[h]);
      }
    }
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
      wasm_v128_store(tile->sums + (size_t)h * d + i, low[h]);
      wasm_v128_store(tile->sums + (size_t)h * d + i + 4, high[h]);
    }
  }
  for (; i < d; i++)
    for (uint32_t h = 0; h < n; h++)
      for (uint32_t p = 0; p < tile->count; p++) {
        const float product = tile->weights[h * ATTN_TILE + p] * kv_at(a->v, f16, start + p * stride + i);
        tile->sums[(size_t)h * d + i] += product;
      }
}

/* Functions of their own, one for each way to run them: see VEC_NOINLINE. */
#define ATTN_VARIANTS(name)                                                                                  \
  static VEC_NOINLINE void name##_f32_1(const attn_tile *tile) { name(tile, 1, false); }                     \
  static VEC_NOINLINE void name##_f32_2(const attn_tile *tile) { name(tile, 2, false); }                     \
  static VEC_NOINLINE void name##_f32_4(const attn_tile *tile) { name(tile, 4, false); }                     \
  static VEC_NOINLINE void name##_f16_1(const attn_tile *tile) { name(tile, 1, true); }                      \
  static VEC_NOINLINE void name##_f16_2(const attn_tile *tile) { name(tile, 2, true); }                      \
  static VEC_NOINLINE void name##_f16_4(const attn_tile *tile) { name(tile, 4, true); }                      \
  static void name##_run(const attn_tile *tile, uint32_t n) {                                                \
    if (tile->a->kv_f16)                                                                                     \
      (n == 4 ? name##_f16_4 : n == 2 ? name##_f16_2 : name##_f16_1)(tile);                                  \
    else                                                                                                     \
      (n == 4 ? name##_f32_4 : n == 2 ? name##_f32_2 : name##_f32_1)(tile);                                  \
  }
ATTN_VARIANTS(tile_scores)
ATTN_VARIANTS(tile_values)

/* Running softmax of one head. */
typedef struct attn_state {
  float largest, total;
} attn_state;

/* Turns a tile's scores into weights relative to the largest score so far, and
 * rescales what was summed relative to the one before. */
static void tile_softmax(float *weights, uint32_t count, float *sums, uint32_t d_value, attn_state *state) {
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
      wasm_v128_store(sums + i, wasm_f32x4_mul(wasm_v128_load(sums + i), factor_all));
    for (; i < d_value; i++) sums[i] *= factor;
    state->total *= factor;
    state->largest = largest;
  }
  state->total += vec_sum_f32(total);
}

/* n (1, 2 or 4) query heads of one kv head, over all positions. */
static void attn_heads(const lnl_attn *a, uint32_t head, uint32_t n) {
  float *weights = a->scratch, *sums = weights + ATTN_HEADS * ATTN_TILE;
  attn_tile tile = {a, head, head / (a->n_head / a->n_kv_head), 0, 0, weights, sums};
  attn_state state[ATTN_HEADS];
  for (uint32_t h = 0; h < n; h++) state[h] = (attn_state){-INFINITY, 0};
  memset(sums, 0, (size_t)n * a->d_value * sizeof(float));
  for (; tile.first < a->n_key; tile.first += tile.count) {
    tile.count = u32_min(a->n_key - tile.first, ATTN_TILE);
    tile_scores_run(&tile, n);
    for (uint32_t h = 0; h < n; h++)
      tile_softmax(weights + h * ATTN_TILE, tile.count, sums + (size_t)h * a->d_value, a->d_value, &state[h]);
    tile_values_run(&tile, n);
  }
  for (uint32_t h = 0; h < n; h++) {
    float *out = a->out + (size_t)(head + h) * a->d_value;
    for (uint32_t i = 0; i < a->d_value; i++) out[i] = sums[(size_t)h * a->d_value + i] / state[h].total;
  }
}

void attn(const lnl_attn *a) {
  const uint32_t group = a->n_head / a->n_kv_head;
  for (uint32_t head = a->head_begin; head < a->head_end;) {
    const uint32_t left = u32_min(a->head_end, (head / group + 1) * group) - head;
    const uint32_t n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    attn_heads(a, head, n);
    head += n;
  }
}

#else

void attn(const lnl_attn *a) { attn_scalar(a); }

#endif
