/* Attention: softmax(scale q K^T) V. Keys and values both in blocks: attn_block.c. */
#include <math.h>

#include "attn_rows.h"
#include "../vec.h"

uint64_t attn_scratch_bytes(uint32_t d_head, uint32_t d_value) {
  const uint64_t queries = (uint64_t)ATTN_ROWS * align_up(d_head, 4);
  const uint64_t wide = (uint64_t)ATTN_TILE * u32_max(d_head, d_value);
  const uint64_t bytes = (ATTN_ROWS * ATTN_TILE + queries + wide) * sizeof(float);
  return align_up(u64_max(bytes, attn_block_scratch_bytes(d_head, d_value)), 16);
}

/* --- shares of threads ----------------------------------------------------------- */
uint64_t attn_share_begin(const lnl_attn *a, uint32_t thread, uint32_t thread_count) {
  uint64_t head_work = 0; /* keys that the tokens see */
  for (uint32_t t = 0; t < a->n_tok; t++) {
    const attn_range keys = attn_keys(a, t);
    head_work += keys.end - keys.begin;
  }
  const uint64_t begin = head_work * a->n_kv_head * thread / thread_count;
  uint64_t left = begin % head_work;
  uint32_t token = 0;
  for (; left > 0; token++) {
    const attn_range keys = attn_keys(a, token);
    left -= u64_min(left, keys.end - keys.begin);
  }
  return begin / head_work * a->n_tok + token;
}

void attn_share(const lnl_attn *a, uint32_t thread, uint32_t thread_count) {
  const uint32_t group = a->n_head / a->n_kv_head, n_tok = a->n_tok;
  if (n_tok == 1) {
    lnl_attn part = *a;
    part.head_begin = (uint32_t)((uint64_t)a->n_head * thread / thread_count);
    part.head_end = (uint32_t)((uint64_t)a->n_head * (thread + 1) / thread_count);
    attn(&part);
    return;
  }
  const uint64_t end = attn_share_begin(a, thread + 1, thread_count);
  for (uint64_t at = attn_share_begin(a, thread, thread_count), next; at < end; at = next) {
    const uint32_t token = (uint32_t)(at % n_tok), kv_head = (uint32_t)(at / n_tok);
    next = u64_min(at - token + n_tok, end);
    lnl_attn part = *a;
    part.n_tok = (uint32_t)(next - at);
    part.position += token;
    part.q += (size_t)token * a->q_stride;
    part.out += (size_t)token * a->out_stride;
    part.head_begin = kv_head * group;
    part.head_end = part.head_begin + group;
    attn(&part);
  }
}

/* --- specification ----------------------------------------------------------------- */
static float key_at(const lnl_attn *a, uint32_t position, uint32_t kv_head, uint32_t i) {
  return attn_kv_value(a->k, a->kv[ATTN_K], ATTN_K, a->n_ctx, a->d_head, position, kv_head, i);
}
static float value_at(const lnl_attn *a, uint32_t position, uint32_t kv_head, uint32_t i) {
  return attn_kv_value(a->v, a->kv[ATTN_V], ATTN_V, a->n_ctx, a->d_value, position, kv_head, i);
}

static float score_scalar(const lnl_attn *a, const float *q, uint32_t kv_head, uint32_t position) {
  float dot = 0;
  for (uint32_t i = 0; i < a->d_head; i++) {
    const float product = q[i] * key_at(a, position, kv_head, i);
    dot += product;
  }
  const float score = dot * a->scale;
  return a->softcap > 0 ? a->softcap * tanhf(score / a->softcap) : score;
}

/* The largest score, then the weighted mean. */
static void head_scalar(const lnl_attn *a, uint32_t token, uint32_t head) {
  const uint32_t kv_head = head / (a->n_head / a->n_kv_head);
  const attn_range keys = attn_keys(a, token);
  const float *q = a->q + (size_t)token * a->q_stride + (size_t)head * a->d_head;
  float *out = a->out + (size_t)token * a->out_stride + (size_t)head * a->d_value;
  const float sink = a->sinks ? a->sinks[head] : -INFINITY;
  float largest = sink;
  for (uint32_t p = keys.begin; p < keys.end; p++) largest = fmaxf(largest, score_scalar(a, q, kv_head, p));
  for (uint32_t i = 0; i < a->d_value; i++) out[i] = 0;
  float total = expf(sink - largest);
  for (uint32_t p = keys.begin; p < keys.end; p++) {
    const float weight = expf(score_scalar(a, q, kv_head, p) - largest);
    total += weight;
    for (uint32_t i = 0; i < a->d_value; i++) {
      const float product = weight * value_at(a, p, kv_head, i);
      out[i] += product;
    }
  }
  for (uint32_t i = 0; i < a->d_value; i++) out[i] /= total;
}

void attn_scalar(const lnl_attn *a) {
  for (uint32_t token = 0; token < a->n_tok; token++)
    for (uint32_t head = a->head_begin; head < a->head_end; head++) head_scalar(a, token, head);
}

#if LNL_VEC

/* --- softmax of a tile --------------------------------------------------------------- */
VEC_NOINLINE void attn_softmax(float *weights, attn_range seen, attn_row *row, float floor, float unit,
                               float cap) {
  const uint32_t begin = seen.begin & ~7u, end = (seen.end + 7) & ~7u;
  memset(weights, 0, begin * sizeof(float));
  memset(weights + end, 0, (ATTN_TILE - end) * sizeof(float));
  row->keep = 1;
  row->add = 0;
  if (begin == end) return;
  const v128_t scale = wasm_f32x4_splat(row->scale), units = wasm_f32x4_splat(unit);
  for (uint32_t p = begin; p < end; p += 4)
    wasm_v128_store(weights + p, wasm_f32x4_mul(wasm_v128_load(weights + p), scale));
  if (cap > 0) softcap(weights + begin, weights + begin, end - begin, cap);
  for (uint32_t p = begin; p < seen.begin; p++) weights[p] = -INFINITY; /* weight 0 */
  for (uint32_t p = seen.end; p < end; p++) weights[p] = -INFINITY;
  /* pmax is one instruction where max is eight. It passes over a NaN, which
   * then shows in its weight. */
  v128_t most = wasm_f32x4_splat(floor), most_high = most;
  for (uint32_t p = begin; p < end; p += 8) {
    most = wasm_f32x4_pmax(most, wasm_v128_load(weights + p));
    most_high = wasm_f32x4_pmax(most_high, wasm_v128_load(weights + p + 4));
  }
  most = wasm_f32x4_pmax(most, most_high);
  most = wasm_f32x4_pmax(most, wasm_i32x4_shuffle(most, most, 2, 3, 0, 1));
  const float largest = fmaxf(wasm_f32x4_extract_lane(most, 0), wasm_f32x4_extract_lane(most, 1));
  const v128_t largest_all = wasm_f32x4_splat(largest);
  v128_t total = vec_zero();
  const float *exp_constants = vec_exp_constants();
  for (uint32_t p = begin; p < end; p += 8) {
    const v128_t low = vec_exp_with(wasm_f32x4_sub(wasm_v128_load(weights + p), largest_all), exp_constants);
    const v128_t high =
        vec_exp_with(wasm_f32x4_sub(wasm_v128_load(weights + p + 4), largest_all), exp_constants);
    wasm_v128_store(weights + p, wasm_f32x4_mul(low, units));
    wasm_v128_store(weights + p + 4, wasm_f32x4_mul(high, units));
    total = wasm_f32x4_add(total, wasm_f32x4_add(low, high));
  }
  const float now = fmaxf(largest, row->largest);
  const v128_t factors = vec_exp(wasm_f32x4_make(row->largest - now, largest - now, 0, 0));
  row->keep = wasm_f32x4_extract_lane(factors, 0);
  row->add = wasm_f32x4_extract_lane(factors, 1);
  row->total = row->total * row->keep + vec_sum_f32(total) * row->add;
  row->largest = now;
}

/* --- caches of floats and halves -------------------------------------------------------- */
/* Rows of keys and values follow one another. A tile of halves that many rows
 * read is widened first, for its keys and then for its values: as halves_4
 * does, so that all sums are the same. Blocks are always made floats. */
typedef struct attn_tile {
  const uint8_t *data; /* keys or values of the tile's positions */
  uint32_t d;          /* values of each */
  bool f16;
  float *weights; /* [ATTN_ROWS, ATTN_TILE]: scores, then exp(score - largest) */
  float *queries; /* [ATTN_ROWS / ATTN_QUAD][ceil(d_head / 4)][ATTN_QUAD][4] */
} attn_tile;
/* So many rows make up for the widening. */
enum { WIDE_ROWS = 12 };

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

static VEC_NOINLINE void widen_halves(float *to, const uint8_t *src, size_t n) {
  const v128_t fields = half_fields();
  size_t i = 0;
  for (; n - i >= 4; i += 4) wasm_v128_store(to + i, halves_4(src + 2 * i, fields));
  for (; i < n; i++) to[i] = load_half(src + 2 * i) * (1 / HALF_WEIGHT);
}

/* Queries of n rows, four values of each of a quad side by side. */
static VEC_NOINLINE void queries_make(float *queries, const attn_row *rows, uint32_t n, uint32_t d,
                                      float factor) {
  const v128_t factors = wasm_f32x4_splat(factor);
  const uint32_t quad_floats = (d + 3) / 4 * 4 * ATTN_QUAD;
  for (uint32_t r = 0; r < n; r++) {
    const float *q = rows[r].q;
    float *to = queries + r / ATTN_QUAD * quad_floats + r % ATTN_QUAD * 4;
    uint32_t i = 0;
    for (; d - i >= 4; i += 4, to += 4 * ATTN_QUAD)
      wasm_v128_store(to, wasm_f32x4_mul(wasm_v128_load(q + i), factors));
    for (; i < d; i++) *to++ = q[i] * factor;
  }
}

/* Values 4 i..4 i + 3 of row r's query stand 4 i ATTN_QUAD from here. */
static inline const float *quad_queries(const attn_tile *tile, uint32_t r) {
  return tile->queries + r / ATTN_QUAD * ((tile->d + 3) / 4 * 4 * ATTN_QUAD) + r % ATTN_QUAD * 4;
}

/* Lanes 0 and 2 have the halves of the sum of a, 1 and 3 those of b: added up
 * as vec_sum_f32 does. */
VEC_INLINE v128_t half_sums(v128_t a, v128_t b) {
  return wasm_f32x4_add(wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), wasm_i32x4_shuffle(a, b, 2, 6, 3, 7));
}
VEC_INLINE v128_t sums_4(v128_t a, v128_t b, v128_t c, v128_t d) {
  const v128_t ab = half_sums(a, b), cd = half_sums(c, d);
  return wasm_f32x4_add(wasm_i64x2_shuffle(ab, cd, 0, 2), wasm_i64x2_shuffle(ab, cd, 1, 3));
}

/* q . k of n rows and np positions from p on. */
VEC_INLINE void scores_at(const attn_tile *tile, const float *q, float *weights, uint32_t p, v128_t fields,
                          const uint32_t n, const uint32_t np, const bool f16) {
  const uint32_t d = tile->d;
  const size_t item = f16 ? 2 : 4, row = d * item;
  const float *q_end = q + d / 4 * 4 * ATTN_QUAD;
  const uint8_t *key = tile->data + p * row;
  float *to = weights + p;
  v128_t sum[ATTN_QUAD][4];
  VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
    VEC_UNROLL for (uint32_t j = 0; j < np; j++) sum[h][j] = vec_zero();
  }
  VEC_LOOP for (; q < q_end; q += 4 * ATTN_QUAD, key += 4 * item) {
    v128_t k[4];
    VEC_UNROLL for (uint32_t j = 0; j < np; j++) k[j] =
        f16 ? halves_4(key + j * row, fields) : wasm_v128_load(key + j * row);
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
      const v128_t q_h = wasm_v128_load(q + 4 * h);
      VEC_UNROLL for (uint32_t j = 0; j < np; j++) sum[h][j] = vec_madd(k[j], q_h, sum[h][j]);
    }
  }
  if (np == 4) {
    VEC_UNROLL for (uint32_t h = 0; h < n; h++)
        wasm_v128_store(to + h * ATTN_TILE, sums_4(sum[h][0], sum[h][1], sum[h][2], sum[h][3]));
  } else if (np == 2) {
    VEC_UNROLL for (uint32_t h = 0; h < n; h += 2) {
      const uint32_t next = h + 1 < n ? h + 1 : h;
      const v128_t sums = sums_4(sum[h][0], sum[h][1], sum[next][0], sum[next][1]);
      wasm_v128_store64_lane(to + h * ATTN_TILE, sums, 0);
      if (next > h) wasm_v128_store64_lane(to + next * ATTN_TILE, sums, 1);
    }
  } else {
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) to[h * ATTN_TILE] = vec_sum_f32(sum[h][0]);
  }
}

/* weights[h][p] = q_h . k_p for rows r..r+n-1, r a multiple of ATTN_QUAD or
 * n less than that, and positions begin..end-1. */
VEC_INLINE void tile_scores(const attn_tile *tile, uint32_t r, attn_range range, const uint32_t n,
                            const bool f16) {
  const v128_t fields = half_fields();
  const uint32_t np = n > 2 ? 2 : 4;
  const float *q = tile->queries + r / ATTN_QUAD * ((tile->d + 3) / 4 * 4 * ATTN_QUAD) + r % ATTN_QUAD * 4;
  float *weights = tile->weights + r * ATTN_TILE;
  uint32_t p = range.begin;
  for (; range.end - p >= np; p += np) scores_at(tile, q, weights, p, fields, n, np, f16);
  for (; p < range.end; p++) scores_at(tile, q, weights, p, fields, n, 1, f16);
}

/* out[h] += weights[h] V for values i..i + 4 w - 1 of V, down the tile. */
VEC_INLINE void values_at(float *const *out, const uint8_t *value, const float *weight, const float *end,
                          size_t row, const uint32_t n, const uint32_t w, const bool f16, v128_t fields) {
  v128_t sum[ATTN_QUAD][8];
  VEC_UNROLL for (uint32_t h = 0; h < n; h++) VEC_UNROLL for (uint32_t j = 0; j < w; j++) sum[h][j] =
      wasm_v128_load(out[h] + 4 * j);
  VEC_LOOP for (; weight < end; value += row, weight++) {
    v128_t weights[ATTN_QUAD];
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) weights[h] = wasm_v128_load32_splat(weight + h * ATTN_TILE);
    VEC_UNROLL for (uint32_t j = 0; j < w; j++) {
      const v128_t v = f16 ? halves_4(value + 8 * j, fields) : wasm_v128_load(value + 16 * j);
      VEC_UNROLL for (uint32_t h = 0; h < n; h++) sum[h][j] = vec_madd(weights[h], v, sum[h][j]);
    }
  }
  VEC_UNROLL for (uint32_t h = 0; h < n; h++) VEC_UNROLL for (uint32_t j = 0; j < w; j++)
      wasm_v128_store(out[h] + 4 * j, sum[h][j]);
}

/* out[h] += weights[h] V: eight sums are under way, since each waits for its last. */
VEC_INLINE void tile_values(const attn_tile *tile, const attn_row *rows, uint32_t r, attn_range range,
                            const uint32_t n, const bool f16) {
  const v128_t fields = half_fields();
  const uint32_t d = tile->d, vectors = 8 / n;
  const size_t item = f16 ? 2 : 4, row = d * item;
  const float *weights = tile->weights + r * ATTN_TILE + range.begin,
              *end = weights - range.begin + range.end;
  const uint8_t *values = tile->data + range.begin * row;
  float *out[ATTN_QUAD];
  VEC_UNROLL for (uint32_t h = 0; h < n; h++) out[h] = rows[r + h].out;
  for (uint32_t i = 0, step; d - i >= 8; i += step, values += step * item) {
    step = d - i >= 4 * vectors ? 4 * vectors : 8;
    if (vectors > 2 && step == 8)
      values_at(out, values, weights, end, row, n, 2, f16, fields);
    else
      values_at(out, values, weights, end, row, n, vectors, f16, fields);
    VEC_UNROLL for (uint32_t h = 0; h < n; h++) out[h] += step;
  }
}

/* What scores and values leave over where d is no multiple of 4 or 8: seldom,
 * so once for all. */
static float tile_at(const attn_tile *tile, uint32_t p, uint32_t i) {
  const size_t at = (size_t)p * tile->d + i;
  return tile->f16 ? load_half(tile->data + 2 * at) * (1 / HALF_WEIGHT) : load_f32(tile->data + 4 * at);
}
static VEC_NOINLINE void scores_rest(const attn_tile *tile, uint32_t r, uint32_t n, attn_range range) {
  for (uint32_t h = r; h < r + n; h++)
    for (uint32_t p = range.begin; p < range.end; p++)
      for (uint32_t i = tile->d / 4 * 4; i < tile->d; i++) {
        const float product = tile_at(tile, p, i) * quad_queries(tile, h)[i / 4 * 4 * ATTN_QUAD + i % 4];
        tile->weights[h * ATTN_TILE + p] += product;
      }
}
static VEC_NOINLINE void values_rest(const attn_tile *tile, const attn_row *rows, uint32_t r, uint32_t n,
                                     attn_range range) {
  for (uint32_t h = r; h < r + n; h++)
    for (uint32_t i = tile->d / 8 * 8; i < tile->d; i++)
      for (uint32_t p = range.begin; p < range.end; p++) {
        const float product = tile->weights[h * ATTN_TILE + p] * tile_at(tile, p, i);
        rows[h].out[i] += product;
      }
}

/* Functions of their own for 1 to 4 rows: see VEC_NOINLINE. */
#define ATTN_VARIANT(n, f16)                                                                                 \
  static VEC_NOINLINE void scores_##n##_##f16(const attn_tile *tile, uint32_t r, attn_range range) {         \
    tile_scores(tile, r, range, n, f16);                                                                     \
  }                                                                                                          \
  static VEC_NOINLINE void values_##n##_##f16(const attn_tile *tile, const attn_row *rows, uint32_t r,       \
                                              attn_range range) {                                            \
    tile_values(tile, rows, r, range, n, f16);                                                               \
  }
ATTN_VARIANT(1, 0)
ATTN_VARIANT(2, 0)
ATTN_VARIANT(3, 0)
ATTN_VARIANT(4, 0)
ATTN_VARIANT(1, 1)
ATTN_VARIANT(2, 1)
ATTN_VARIANT(3, 1)
ATTN_VARIANT(4, 1)
#undef ATTN_VARIANT
static void scores_n(const attn_tile *tile, uint32_t r, uint32_t n, attn_range range) {
  if (tile->f16) {
    ATTN_OF_ROWS(scores, n, 1)(tile, r, range);
  } else {
    ATTN_OF_ROWS(scores, n, 0)(tile, r, range);
  }
  if (tile->d % 4 > 0) scores_rest(tile, r, n, range);
}
static void values_n(const attn_tile *tile, const attn_row *rows, uint32_t r, uint32_t n, attn_range range) {
  if (range.begin >= range.end) return;
  if (tile->f16) {
    ATTN_OF_ROWS(values, n, 1)(tile, rows, r, range);
  } else {
    ATTN_OF_ROWS(values, n, 0)(tile, rows, r, range);
  }
  if (tile->d % 8 > 0) values_rest(tile, rows, r, n, range);
}

/* The values that n rows see of a tile: what all of them see together, what
 * lies before and after that row by row, and so each row in order. A weight of
 * 0 would not do: the value may be infinite. */
static void values_seen(const attn_tile *tile, const attn_row *rows, uint32_t r, uint32_t n, uint32_t at) {
  attn_range seen[ATTN_QUAD], all = {0, ATTN_TILE};
  for (uint32_t h = 0; h < n; h++) {
    seen[h] = attn_seen(&rows[r + h], at);
    all.begin = u32_max(all.begin, seen[h].begin);
    all.end = u32_min(all.end, seen[h].end);
  }
  all.end = u32_max(all.begin, all.end);
  for (uint32_t h = 0; h < n; h++)
    values_n(tile, rows, r + h, 1, (attn_range){seen[h].begin, u32_min(seen[h].end, all.begin)});
  values_n(tile, rows, r, n, all);
  for (uint32_t h = 0; h < n; h++)
    values_n(tile, rows, r + h, 1, (attn_range){u32_max(seen[h].begin, all.end), seen[h].end});
}

/* Keys or values of a tile, from its first position on. */
typedef struct float_part {
  const uint8_t *data; /* of blocks: all of them */
  uint32_t d;
  attn_part which;
  bool f16, widen;
} float_part;

static bool in_blocks(const lnl_attn *a, attn_part which) { return a->kv[which] >= ATTN_Q8_0; }

static float_part part_at(const lnl_attn *a, attn_part which, size_t first, uint32_t n) {
  const bool f16 = a->kv[which] == ATTN_F16, blocks = in_blocks(a, which);
  const uint32_t d = which == ATTN_K ? a->d_head : a->d_value;
  const uint8_t *data = which == ATTN_K ? a->k : a->v;
  return (float_part){data + (blocks ? 0 : first * d * (f16 ? 2 : 4)), d, which, f16,
                      blocks || (f16 && n >= WIDE_ROWS)};
}

/* What the kernels read of it, from position `at` of the head on; wide [count, d]
 * holds it where it is widened. */
static void tile_read(attn_tile *tile, const float_part *part, float *wide, uint32_t count, const lnl_attn *a,
                      uint32_t kv_head, uint32_t at) {
  if (in_blocks(a, part->which))
    attn_kv_widen(wide, part->data, a->kv[part->which], part->which, a->n_ctx, part->d, at, count, kv_head);
  else if (part->widen)
    widen_halves(wide, part->data, (size_t)count * part->d);
  tile->data = part->widen ? (const uint8_t *)wide : part->data;
  tile->f16 = part->f16 && !part->widen;
  tile->d = part->d;
}

/* Whether what a row sees of it is finite; of floats that shows by itself. */
static bool part_is_finite(const float_part *part, uint32_t begin, uint32_t end) {
  return !part->f16 ||
         attn_halves_are_finite(part->data + (size_t)begin * part->d * 2, (size_t)(end - begin) * part->d);
}

/* n rows of a kv head: a tile goes through all of them while it is near. */
static void attn_float(const lnl_attn *a, uint32_t kv_head, attn_row *rows, uint32_t n) {
  const bool k16 = a->kv[ATTN_K] == ATTN_F16, v16 = a->kv[ATTN_V] == ATTN_F16;
  const size_t first = (size_t)kv_head * a->n_ctx;
  attn_tile tile = {.weights = a->scratch};
  tile.queries = tile.weights + ATTN_ROWS * ATTN_TILE;
  float *wide = tile.queries + ATTN_ROWS * align_up(a->d_head, 4);
  queries_make(tile.queries, rows, n, a->d_head, k16 ? HALF_QUERY : 1);
  for (uint32_t r = 0; r < n; r++) {
    rows[r].scale = k16 ? a->scale * HALF_SCORE : a->scale;
    memset(rows[r].out, 0, a->d_value * sizeof(float));
  }
  const attn_range tiles = attn_tiles(rows, n);
  for (uint32_t at = tiles.begin; at < tiles.end; at += ATTN_TILE) {
    const uint32_t count = u32_min(tiles.end - at, ATTN_TILE);
    const float_part keys = part_at(a, ATTN_K, first + at, n), values = part_at(a, ATTN_V, first + at, n);
    const bool finite = a->finite || (part_is_finite(&keys, 0, count) && part_is_finite(&values, 0, count));
    tile_read(&tile, &keys, wide, count, a, kv_head, at);
    for (uint32_t r = 0, m; r < n; r += m) {
      m = u32_min(n - r, ATTN_QUAD);
      scores_n(&tile, r, m, attn_seen_any(rows + r, m, at));
    }
    for (uint32_t r = 0; r < n; r++) {
      attn_row *row = &rows[r];
      const attn_range seen = attn_seen(row, at);
      attn_softmax(tile.weights + r * ATTN_TILE, seen, row, row->largest, v16 ? HALF_WEIGHT : 1, a->softcap);
      const float keep = row->keep;
      if (keep != 1)
        for (uint32_t i = 0; i < a->d_value; i++) row->out[i] *= keep;
      if (!finite &&
          !(part_is_finite(&keys, seen.begin, seen.end) && part_is_finite(&values, seen.begin, seen.end)))
        row->total = NAN;
    }
    tile_read(&tile, &values, wide, count, a, kv_head, at);
    for (uint32_t r = 0, m; r < n; r += m) {
      m = u32_min(n - r, ATTN_QUAD);
      values_seen(&tile, rows, r, m, at);
    }
  }
  for (uint32_t r = 0; r < n; r++) {
    const float total = rows[r].total;
    for (uint32_t i = 0; i < a->d_value; i++) rows[r].out[i] /= total;
  }
}

void attn(const lnl_attn *a) {
  const uint32_t group = a->n_head / a->n_kv_head;
  attn_row rows[ATTN_ROWS];
  for (uint32_t begin = a->head_begin, end; begin < a->head_end; begin = end) {
    const uint32_t kv_head = begin / group;
    end = u32_min(a->head_end, (kv_head + 1) * group);
    const uint32_t heads = end - begin, count = a->n_tok * heads;
    for (uint32_t first = 0, n; first < count; first += n) {
      n = u32_min(count - first, ATTN_ROWS);
      for (uint32_t r = 0; r < n; r++) {
        const uint32_t token = (first + r) / heads, head = begin + (first + r) % heads;
        const float sink = a->sinks ? a->sinks[head] : -INFINITY;
        rows[r] = (attn_row){
            .q = a->q + (size_t)token * a->q_stride + (size_t)head * a->d_head,
            .out = a->out + (size_t)token * a->out_stride + (size_t)head * a->d_value,
            .keys = attn_keys(a, token),
            .largest = sink,
            .total = 1, /* exp(sink - largest); the first tile multiplies it by 0 if there is none */
        };
      }
      (in_blocks(a, ATTN_K) && in_blocks(a, ATTN_V) ? attn_block : attn_float)(a, kv_head, rows, n);
    }
  }
}

#else

void attn(const lnl_attn *a) { attn_scalar(a); }

#endif
