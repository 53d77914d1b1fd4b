/* Causal attention of one token: softmax(scale q K^T) V. Caches of blocks: attn_block.c. */
#include <math.h>

#include "kernels.h"
#include "../vec.h"

/* Query heads that share the loads of keys and values, and those of one kv head
 * whose running softmax is held at a time. */
enum { ATTN_HEADS = 4, ATTN_SPAN = 64 };

/* Running softmax of one head; the weighted values add up in its output. */
typedef struct attn_state {
  float largest, total;
} attn_state;

uint64_t attn_scratch_bytes(uint32_t d_head, uint32_t d_value) {
  const uint64_t queries = (uint64_t)ATTN_HEADS * align_up(d_head, 4) * sizeof(float);
  const uint64_t bytes = queries + ATTN_HEADS * ATTN_TILE * sizeof(float) + ATTN_SPAN * sizeof(attn_state);
  return align_up(u64_max(bytes, attn_block_scratch_bytes(d_head, d_value)), 16);
}

static float key_at(const lnl_attn *a, uint32_t position, uint32_t kv_head, uint32_t i) {
  return attn_kv_value(a->k, a->kv, ATTN_K, a->n_ctx, a->d_head, position, kv_head, i);
}
static float value_at(const lnl_attn *a, uint32_t position, uint32_t kv_head, uint32_t i) {
  return attn_kv_value(a->v, a->kv, ATTN_V, a->n_ctx, a->d_value, position, kv_head, i);
}

static float score_scalar(const lnl_attn *a, uint32_t head, uint32_t position) {
  const uint32_t kv_head = head / (a->n_head / a->n_kv_head);
  const float *q = a->q + (size_t)head * a->d_head;
  float dot = 0;
  for (uint32_t i = 0; i < a->d_head; i++) {
    const float product = q[i] * key_at(a, position, kv_head, i);
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
      total += weight;
      for (uint32_t i = 0; i < a->d_value; i++) {
        const float product = weight * value_at(a, p, kv_head, i);
        out[i] += product;
      }
    }
    for (uint32_t i = 0; i < a->d_value; i++) out[i] /= total;
  }
}

#if LNL_VEC

/* Positions of one kv head. Rows of keys and values follow one another. */
typedef struct attn_tile {
  const lnl_attn *a;
  const uint8_t *keys, *values;
  uint32_t count;
  float *weights; /* [ATTN_HEADS, ATTN_TILE]: scores, then exp(score - largest) */
  float *queries; /* [ceil(d_head / 4), ATTN_HEADS, 4] */
} attn_tile;

/* What halves_4 leaves out is made up for in the weights; in the queries, as far
 * as those have room, and then in the scale. */
#define HALF_WEIGHT 0x1p112f
#define HALF_QUERY  0x1p96f
#define HALF_SCORE  0x1p16f

/* Four halves as floats, but for the factor 2^112. */
VEC_INLINE v128_t halves_4(const uint8_t *src, v128_t fields) {
  return wasm_v128_and(wasm_i32x4_shl(wasm_i32x4_load16x4(src), 13), fields);
}
static v128_t half_fields(void) { return vec_half_make().fields; }

/* Queries of n heads, four values of each head side by side. */
static VEC_NOINLINE void queries_make(const attn_tile *tile, uint32_t head, uint32_t n) {
  const uint32_t d = tile->a->d_head;
  const float factor = tile->a->kv == ATTN_F16 ? HALF_QUERY : 1;
  const v128_t factors = wasm_f32x4_splat(factor);
  for (uint32_t h = 0; h < n; h++) {
    const float *q = tile->a->q + (size_t)(head + h) * d;
    float *to = tile->queries + 4 * h;
    uint32_t i = 0;
    for (; d - i >= 4; i += 4, to += 4 * ATTN_HEADS)
      wasm_v128_store(to, wasm_f32x4_mul(wasm_v128_load(q + i), factors));
    for (; i < d; i++) *to++ = q[i] * factor;
  }
}

/* q . k of n heads and np positions from p on. */
VEC_INLINE void scores_at(const attn_tile *tile, uint32_t p, v128_t fields, const uint32_t n,
                          const uint32_t np, const bool f16) {
  const uint32_t d = tile->a->d_head;
  const size_t item = f16 ? 2 : 4, row = d * item;
  const float *q = tile->queries, *q_end = q + d / 4 * 4 * ATTN_HEADS;
  const uint8_t *key = tile->keys + p * row;
  v128_t sum[ATTN_HEADS][4];
  VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
    VEC_UNROLL for (uint32_t j = 0; j < np; j++) sum[h][j] = vec_zero();
  }
  VEC_LOOP for (; q < q_end; q += 4 * ATTN_HEADS, key += 4 * item) {
    v128_t k[4];
    VEC_UNROLL for (uint32_t j = 0; j < np; j++) k[j] =
        f16 ? halves_4(key + j * row, fields) : wasm_v128_load(key + j * row);
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
      const v128_t q_h = wasm_v128_load(q + 4 * h);
      VEC_UNROLL for (uint32_t j = 0; j < np; j++) sum[h][j] = vec_madd(k[j], q_h, sum[h][j]);
    }
  }
  VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
    VEC_UNROLL for (uint32_t j = 0; j < np; j++) {
      float dot = vec_sum_f32(sum[h][j]);
      for (uint32_t i = 0; i < d % 4; i++) {
        const uint8_t *at = key + j * row + i * item;
        const float product = (f16 ? load_half(at) * (1 / HALF_WEIGHT) : load_f32(at)) * q[4 * h + i];
        dot += product;
      }
      tile->weights[h * ATTN_TILE + p + j] = dot;
    }
  }
}

/* weights[h][p] = q_h . k_p for n heads from `head` on. */
VEC_INLINE void tile_scores(const attn_tile *tile, uint32_t head, const uint32_t n, const bool f16) {
  const v128_t fields = half_fields();
  const uint32_t np = n == 4 ? 2 : 4;
  uint32_t p = 0;
  queries_make(tile, head, n);
  for (; tile->count - p >= np; p += np) scores_at(tile, p, fields, n, np, f16);
  for (; p < tile->count; p++) scores_at(tile, p, fields, n, 1, f16);
}

/* out[h] += weights[h] V, 8 values of V at a time down the tile. */
VEC_INLINE void tile_values(const attn_tile *tile, uint32_t head, const uint32_t n, const bool f16) {
  const v128_t fields = half_fields();
  const uint32_t d = tile->a->d_value;
  const size_t item = f16 ? 2 : 4, row = d * item;
  float *out = tile->a->out + (size_t)head * d;
  uint32_t i = 0;
  for (; d - i >= 8; i += 8) {
    v128_t low[ATTN_HEADS], high[ATTN_HEADS];
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
      low[h] = wasm_v128_load(out + (size_t)h * d + i);
      high[h] = wasm_v128_load(out + (size_t)h * d + i + 4);
    }
    const uint8_t *value = tile->values + i * item;
    const float *weight = tile->weights, *end = weight + tile->count;
    VEC_LOOP for (; weight < end; value += row, weight++) {
      const v128_t v_low = f16 ? halves_4(value, fields) : wasm_v128_load(value);
      const v128_t v_high = f16 ? halves_4(value + 8, fields) : wasm_v128_load(value + 16);
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
        const uint8_t *at = tile->values + p * row + i * item;
        const float value = f16 ? load_half(at) * (1 / HALF_WEIGHT) : load_f32(at);
        const float product = tile->weights[h * ATTN_TILE + p] * value;
        out[(size_t)h * d + i] += product;
      }
}

/* Functions of their own for 1, 2 and 4 heads: see VEC_NOINLINE. */
#define ATTN_VARIANT(name, n, f16)                                                                           \
  static VEC_NOINLINE void name##_##n##_##f16(const attn_tile *tile, uint32_t head) {                        \
    name(tile, head, n, f16);                                                                                \
  }
#define ATTN_VARIANTS(name)                                                                                  \
  ATTN_VARIANT(name, 1, 0)                                                                                   \
  ATTN_VARIANT(name, 2, 0)                                                                                   \
  ATTN_VARIANT(name, 4, 0)                                                                                   \
  ATTN_VARIANT(name, 1, 1)                                                                                   \
  ATTN_VARIANT(name, 2, 1)                                                                                   \
  ATTN_VARIANT(name, 4, 1)                                                                                   \
  static void name##_n(const attn_tile *tile, uint32_t head, uint32_t n, bool f16) {                         \
    if (f16) {                                                                                               \
      (n == 4 ? name##_4_1 : n == 2 ? name##_2_1 : name##_1_1)(tile, head);                                  \
    } else {                                                                                                 \
      (n == 4 ? name##_4_0 : n == 2 ? name##_2_0 : name##_1_0)(tile, head);                                  \
    }                                                                                                        \
  }
ATTN_VARIANTS(tile_scores)
ATTN_VARIANTS(tile_values)

/* Turns a tile's scores into weights relative to the largest score so far, and
 * rescales what was summed relative to the one before. */
static VEC_NOINLINE void tile_softmax(const attn_tile *tile, uint32_t h, float *out, attn_state *state) {
  float *weights = tile->weights + h * ATTN_TILE;
  const uint32_t count = tile->count, d_value = tile->a->d_value;
  const bool f16 = tile->a->kv == ATTN_F16;
  const v128_t scale = wasm_f32x4_splat(f16 ? tile->a->scale * HALF_SCORE : tile->a->scale);
  const v128_t unit = wasm_f32x4_splat(f16 ? HALF_WEIGHT : 1);
  for (uint32_t p = 0; p < count; p += 4)
    wasm_v128_store(weights + p, wasm_f32x4_mul(wasm_v128_load(weights + p), scale));
  for (uint32_t p = count; p % 4; p++) weights[p] = -INFINITY; /* weight 0 */
  v128_t largest_4 = wasm_f32x4_splat(state->largest);
  for (uint32_t p = 0; p < count; p += 4) largest_4 = wasm_f32x4_max(largest_4, wasm_v128_load(weights + p));
  const float largest =
      fmaxf(fmaxf(wasm_f32x4_extract_lane(largest_4, 0), wasm_f32x4_extract_lane(largest_4, 1)),
            fmaxf(wasm_f32x4_extract_lane(largest_4, 2), wasm_f32x4_extract_lane(largest_4, 3)));
  const v128_t largest_all = wasm_f32x4_splat(largest);
  v128_t total = vec_zero();
  const float *exp_constants = vec_exp_constants();
  for (uint32_t p = 0; p < count; p += 4) {
    const v128_t weight =
        vec_exp_with(wasm_f32x4_sub(wasm_v128_load(weights + p), largest_all), exp_constants);
    wasm_v128_store(weights + p, wasm_f32x4_mul(weight, unit));
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

/* Whether all of n halves are finite: halves_4 takes them to be. */
static VEC_NOINLINE bool halves_are_finite(const uint8_t *src, size_t n) {
  const v128_t magnitude = vec_opaque_i16(0x7fff);
  v128_t largest = vec_zero();
  size_t i = 0;
  for (; n - i >= 32; i += 32)
    VEC_UNROLL for (uint32_t j = 0; j < 32; j += 8) largest =
        wasm_i16x8_max(largest, wasm_v128_and(wasm_v128_load(src + 2 * (i + j)), magnitude));
  for (; n - i >= 8; i += 8)
    largest = wasm_i16x8_max(largest, wasm_v128_and(wasm_v128_load(src + 2 * i), magnitude));
  bool finite = !wasm_v128_any_true(wasm_i16x8_ge(largest, wasm_i16x8_splat(0x7c00)));
  for (; i < n; i++) finite = finite && (load_u16(src + 2 * i) & 0x7fff) < 0x7c00;
  return finite;
}

/* Query heads begin..end-1, all of one kv head and at most ATTN_SPAN: a tile
 * goes through all of them while it is near. */
static void heads_run(attn_tile *tile, attn_state *states, uint32_t begin, uint32_t end) {
  const lnl_attn *a = tile->a;
  const bool f16 = a->kv == ATTN_F16;
  const size_t first = (size_t)(begin / (a->n_head / a->n_kv_head)) * a->n_ctx, item = f16 ? 2 : 4;
  memset(a->out + (size_t)begin * a->d_value, 0, (size_t)(end - begin) * a->d_value * sizeof(float));
  for (uint32_t h = 0; h < end - begin; h++) states[h] = (attn_state){-INFINITY, 0};
  for (uint32_t at = 0; at < a->n_key; at += tile->count) {
    tile->count = u32_min(a->n_key - at, ATTN_TILE);
    tile->keys = (const uint8_t *)a->k + (first + at) * a->d_head * item;
    tile->values = (const uint8_t *)a->v + (first + at) * a->d_value * item;
    const bool finite = !f16 || (halves_are_finite(tile->keys, (size_t)tile->count * a->d_head) &&
                                 halves_are_finite(tile->values, (size_t)tile->count * a->d_value));
    for (uint32_t head = begin, n; head < end; head += n) {
      n = end - head >= 4 ? 4 : end - head >= 2 ? 2 : 1;
      tile_scores_n(tile, head, n, f16);
      for (uint32_t h = 0; h < n; h++) {
        attn_state *state = &states[head + h - begin];
        tile_softmax(tile, h, a->out + (size_t)(head + h) * a->d_value, state);
        if (!finite) state->total = NAN;
      }
      tile_values_n(tile, head, n, f16);
    }
  }
  for (uint32_t head = begin; head < end; head++) {
    float *out = a->out + (size_t)head * a->d_value;
    for (uint32_t i = 0; i < a->d_value; i++) out[i] /= states[head - begin].total;
  }
}

void attn(const lnl_attn *a) {
  if (a->kv != ATTN_F32 && a->kv != ATTN_F16) {
    attn_block(a);
    return;
  }
  attn_tile tile = {.a = a, .weights = a->scratch};
  tile.queries = tile.weights + ATTN_HEADS * ATTN_TILE;
  attn_state *states = (attn_state *)(void *)(tile.queries + ATTN_HEADS * align_up(a->d_head, 4));
  const uint32_t group = a->n_head / a->n_kv_head;
  for (uint32_t begin = a->head_begin, end; begin < a->head_end; begin = end) {
    end = u32_min(u32_min(a->head_end, (begin / group + 1) * group), begin + ATTN_SPAN);
    heads_run(&tile, states, begin, end);
  }
}

#else

void attn(const lnl_attn *a) { attn_scalar(a); }

#endif
