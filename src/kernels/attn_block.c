/* Attention over a cache of 8- or 4-bit blocks. All sums
 * are of integers: queries and softmax weights are rounded to 15 bits and a
 * sign, codes of the cache are widened as they are loaded, and their products
 * add up exactly in 32 bits. So a block costs two instructions for 8 values and
 * a head, whichever engine runs it, and scales are applied to sums only. */
#include <math.h>

#include "attn_rows.h"
#include "../vec.h"

enum { LARGEST_CODE = 32767 };

static uint32_t block_count(uint32_t d) { return (d + KV_BLOCK - 1) / KV_BLOCK; }

uint64_t attn_block_scratch_bytes(uint32_t d_head, uint32_t d_value) {
  const uint64_t queries =
      (uint64_t)block_count(d_head) * ATTN_QUAD * (KV_BLOCK * sizeof(int16_t) + sizeof(int32_t));
  const uint64_t sums = (uint64_t)block_count(d_value) * ATTN_QUAD * KV_BLOCK * sizeof(float);
  const uint64_t weights = (uint64_t)ATTN_QUAD * ATTN_TILE * (sizeof(float) + sizeof(int16_t));
  return queries + sums + weights + ATTN_QUAD * ATTN_TILE * sizeof(float);
}

#if LNL_VEC

/* Positions of one kv head, and up to ATTN_QUAD rows that read them. */
typedef struct block_tile {
  const uint8_t *keys, *values;      /* from the tile's first group of positions on */
  uint32_t key_blocks, value_blocks; /* of a group */
  attn_row *rows;
  attn_range seen[ATTN_QUAD], groups; /* by each row; by any, as whole groups */
  int16_t *queries;                   /* codes [key_blocks * 16][ATTN_QUAD][2] */
  int32_t *query_sums;                /* of those of a block [key_blocks][ATTN_QUAD] */
  float *weights;                     /* [ATTN_QUAD][ATTN_TILE]: scores, then exp(score - largest) */
  int16_t *codes;               /* [ATTN_TILE / 2][ATTN_QUAD][2]: weights x scales of a block of values */
  float *scales;                /* [ATTN_QUAD][ATTN_TILE] */
  float *sums;                  /* [ATTN_QUAD][value_blocks * KV_BLOCK] */
  float units[ATTN_QUAD];       /* what a code stands for */
  int32_t code_sums[ATTN_QUAD]; /* of the codes of the weights */
} block_tile;

enum { MAGNITUDE = 0x7fffffff, INFINITE = 0x7f800000 };

VEC_INLINE size_t block_bytes(const int bits) {
  return KV_GROUP * sizeof(uint16_t) + KV_GROUP * KV_BLOCK * (size_t)bits / 8;
}

/* The largest of four magnitudes, as bits: NaN is above infinity. */
static inline uint32_t largest_4(v128_t bits) {
  bits = wasm_i32x4_max(bits, wasm_i32x4_shuffle(bits, bits, 2, 3, 0, 1));
  bits = wasm_i32x4_max(bits, wasm_i32x4_shuffle(bits, bits, 1, 0, 3, 2));
  return (uint32_t)wasm_i32x4_extract_lane(bits, 0);
}
static inline int32_t sum_4(v128_t v) {
  v = wasm_i32x4_add(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1));
  return wasm_i32x4_extract_lane(v, 0) + wasm_i32x4_extract_lane(v, 1);
}

/* Eight values, rounded to int16. 1.5 * 2^23 leaves the integer in the low bits. */
VEC_INLINE v128_t round_8(v128_t low, v128_t high) {
  const v128_t magic = wasm_f32x4_splat(0x1.8p23f);
  return wasm_i16x8_narrow_i32x4(wasm_i32x4_sub(wasm_f32x4_add(low, magic), magic),
                                 wasm_i32x4_sub(wasm_f32x4_add(high, magic), magic));
}

VEC_INLINE v128_t halves_4(const uint8_t *src, const vec_half *half) {
  return vec_half_any(wasm_i32x4_shl(wasm_u32x4_load16x4(src), 16), half);
}

/* The codes of n queries, in pairs, those of the heads side by side. A query
 * below 2^-100 counts as zero; one that is not finite makes its head NaN. */
static VEC_NOINLINE void queries_make(block_tile *tile, uint32_t n, uint32_t d, float scale) {
  memset(tile->queries, 0, (size_t)tile->key_blocks * KV_BLOCK * ATTN_QUAD * sizeof(int16_t));
  memset(tile->query_sums, 0, (size_t)tile->key_blocks * ATTN_QUAD * sizeof(int32_t));
  for (uint32_t h = 0; h < n; h++) {
    const float *q = tile->rows[h].q;
    uint32_t i = 0, largest = 0;
    v128_t bits = vec_zero();
    for (; d - i >= 4; i += 4)
      bits = wasm_i32x4_max(bits, wasm_v128_and(wasm_v128_load(q + i), wasm_i32x4_splat(MAGNITUDE)));
    largest = largest_4(bits);
    for (; i < d; i++) largest = u32_max(largest, float_bits(q[i]) & MAGNITUDE);
    const float magnitude = float_from_bits(largest);
    const bool finite = largest < INFINITE;
    tile->rows[h].scale = finite ? magnitude / LARGEST_CODE * scale : NAN;
    if (!finite) continue;
    if (magnitude < 0x1p-100f) continue;
    const v128_t inverse = wasm_f32x4_splat(LARGEST_CODE / magnitude);
    int16_t *to = tile->queries + 2 * h;
    for (i = 0; i < d; i += 8, to += 4 * 2 * ATTN_QUAD) {
      float last[8] = {0};
      const float *from = q + i;
      if (d - i < 8) from = memcpy(last, q + i, (d - i) * sizeof(float));
      const v128_t codes = round_8(wasm_f32x4_mul(wasm_v128_load(from), inverse),
                                   wasm_f32x4_mul(wasm_v128_load(from + 4), inverse));
      tile->query_sums[i / KV_BLOCK * ATTN_QUAD + h] += sum_4(wasm_i32x4_extadd_pairwise_i16x8(codes));
      wasm_v128_store32_lane(to, codes, 0);
      wasm_v128_store32_lane(to + 2 * ATTN_QUAD, codes, 1);
      wasm_v128_store32_lane(to + 4 * ATTN_QUAD, codes, 2);
      wasm_v128_store32_lane(to + 6 * ATTN_QUAD, codes, 3);
    }
  }
}

/* The 16 codes of a unit as words. Codes of 4 bits are 8 too large; two units
 * lie in the same bytes, the second in the upper halves. */
VEC_INLINE void widen(v128_t out[2], const uint8_t *unit, const int bits, const bool upper, v128_t nibble) {
  if (bits == 8) {
    out[0] = wasm_i16x8_load8x8(unit);
    out[1] = wasm_i16x8_load8x8(unit + 8);
    return;
  }
  v128_t bytes = wasm_v128_load(unit);
  bytes = upper ? wasm_u8x16_shr(bytes, 4) : wasm_v128_and(bytes, nibble);
  out[0] = wasm_u16x8_extend_low_u8x16(bytes);
  out[1] = wasm_u16x8_extend_high_u8x16(bytes);
}

/* acc[0..1] of each of n heads += codes[0..1] x the head's pair of words. Few
 * loads a step: the engine moves them to the front and keeps them in registers. */
VEC_INLINE void add_products(v128_t acc[ATTN_QUAD][2], const v128_t codes[2], const int16_t *pairs,
                             const uint32_t n) {
  const v128_t all = wasm_v128_load(pairs);
  VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
    const v128_t pair = h == 0   ? wasm_i32x4_shuffle(all, all, 0, 0, 0, 0)
                        : h == 1 ? wasm_i32x4_shuffle(all, all, 1, 1, 1, 1)
                        : h == 2 ? wasm_i32x4_shuffle(all, all, 2, 2, 2, 2)
                                 : wasm_i32x4_shuffle(all, all, 3, 3, 3, 3);
    acc[h][0] = wasm_i32x4_add(acc[h][0], wasm_i32x4_dot_i16x8(codes[0], pair));
    VEC_KEEP(acc[h][0]);
    acc[h][1] = wasm_i32x4_add(acc[h][1], wasm_i32x4_dot_i16x8(codes[1], pair));
    VEC_KEEP(acc[h][1]);
  }
}

/* Scores of n heads before query_scale. Lanes are positions. */
VEC_INLINE void tile_scores(block_tile *tile, const uint32_t n, const int bits) {
  const vec_half half = vec_half_make();
  const v128_t nibble = vec_opaque_i16(0x0f0f);
  const uint8_t *block = tile->keys + tile->groups.begin / KV_GROUP * tile->key_blocks * block_bytes(bits);
  for (uint32_t p = tile->groups.begin; p < tile->groups.end; p += KV_GROUP) {
    const int16_t *query = tile->queries;
    for (uint32_t b = 0; b < tile->key_blocks; b++, block += block_bytes(bits)) {
      v128_t acc[ATTN_QUAD][2];
      VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
        const int32_t zero = bits == 8 ? 0 : -8 * tile->query_sums[b * ATTN_QUAD + h];
        acc[h][0] = acc[h][1] = wasm_i32x4_splat(zero);
      }
      const uint8_t *codes = block + KV_GROUP * sizeof(uint16_t);
      VEC_LOOP for (int i = 0; i < KV_BLOCK / 4; i++, codes += 4 * bits, query += 4 * ATTN_QUAD) {
        v128_t keys[2];
        widen(keys, codes, bits, false, nibble);
        add_products(acc, keys, query, n);
        widen(keys, bits == 8 ? codes + 16 : codes, bits, true, nibble);
        add_products(acc, keys, query + 2 * ATTN_QUAD, n);
      }
      const v128_t scale[2] = {halves_4(block, &half), halves_4(block + 8, &half)};
      VEC_UNROLL for (uint32_t h = 0; h < n; h++) VEC_UNROLL for (uint32_t i = 0; i < 2; i++) {
        float *score = tile->weights + h * ATTN_TILE + p + 4 * i;
        v128_t sum = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(acc[h][i]), scale[i]);
        if (b > 0) sum = wasm_f32x4_add(wasm_v128_load(score), sum);
        wasm_v128_store(score, sum);
      }
    }
  }
}

/* The scales of block b of the values that row h sees, x LARGEST_CODE / the
 * largest of them; 0 for other positions, which are nobody's. */
static VEC_NOINLINE void scales_make(block_tile *tile, uint32_t b, uint32_t h, const int bits) {
  const vec_half half = vec_half_make();
  const attn_range seen = tile->seen[h];
  const uint32_t begin = seen.begin / KV_GROUP * KV_GROUP;
  const size_t group_bytes = tile->value_blocks * block_bytes(bits);
  const uint8_t *block = tile->values + b * block_bytes(bits) + begin / KV_GROUP * group_bytes;
  float *scales = tile->scales + h * ATTN_TILE;
  for (uint32_t p = begin; p < seen.end; p += KV_GROUP, block += group_bytes) {
    wasm_v128_store(scales + p, halves_4(block, &half));
    wasm_v128_store(scales + p + 4, halves_4(block + 8, &half));
  }
  memset(scales, 0, seen.begin * sizeof(float));
  memset(scales + seen.end, 0, (ATTN_TILE - seen.end) * sizeof(float));
  v128_t largest_bits = vec_zero();
  for (uint32_t p = begin; p < seen.end; p += 4)
    largest_bits =
        wasm_i32x4_max(largest_bits, wasm_v128_and(wasm_v128_load(scales + p), wasm_i32x4_splat(MAGNITUDE)));
  const uint32_t bits_of_largest = largest_4(largest_bits);
  const float largest = float_from_bits(bits_of_largest);
  const v128_t inverse =
      wasm_f32x4_splat(bits_of_largest > 0 && bits_of_largest < INFINITE ? LARGEST_CODE / largest : 0);
  for (uint32_t p = begin; p < seen.end; p += 4)
    wasm_v128_store(scales + p, wasm_f32x4_mul(wasm_v128_load(scales + p), inverse));
  tile->units[h] = bits_of_largest < INFINITE ? largest / LARGEST_CODE : NAN;
}

/* Codes of weight x scale for n rows and block b of the values. */
static VEC_NOINLINE void codes_make(block_tile *tile, uint32_t b, uint32_t n, const int bits) {
  const float *scales[ATTN_QUAD];
  for (uint32_t h = 0; h < ATTN_QUAD; h++) {
    const attn_range seen = tile->seen[h], before = tile->seen[h > 0 ? h - 1 : 0];
    const bool same = h > 0 && (h >= n || (seen.begin == before.begin && seen.end == before.end));
    if (!same) scales_make(tile, b, h, bits);
    scales[h] = same ? scales[h - 1] : tile->scales + h * ATTN_TILE;
    if (same) tile->units[h] = tile->units[h - 1];
  }
  v128_t sum[ATTN_QUAD];
  for (uint32_t h = 0; h < ATTN_QUAD; h++) sum[h] = vec_zero();
  for (uint32_t p = tile->groups.begin; p < tile->groups.end; p += KV_GROUP) {
    v128_t codes[ATTN_QUAD];
    VEC_UNROLL for (uint32_t h = 0; h < ATTN_QUAD; h++) {
      const float *weights = tile->weights + h * ATTN_TILE + p, *scale = scales[h] + p;
      codes[h] = round_8(wasm_f32x4_mul(wasm_v128_load(weights), wasm_v128_load(scale)),
                         wasm_f32x4_mul(wasm_v128_load(weights + 4), wasm_v128_load(scale + 4)));
      sum[h] = wasm_i32x4_add(sum[h], wasm_i32x4_extadd_pairwise_i16x8(codes[h]));
    }
    int16_t *to = tile->codes + p * ATTN_QUAD;
    const v128_t low_01 = wasm_i32x4_shuffle(codes[0], codes[1], 0, 4, 1, 5);
    const v128_t low_23 = wasm_i32x4_shuffle(codes[2], codes[3], 0, 4, 1, 5);
    const v128_t high_01 = wasm_i32x4_shuffle(codes[0], codes[1], 2, 6, 3, 7);
    const v128_t high_23 = wasm_i32x4_shuffle(codes[2], codes[3], 2, 6, 3, 7);
    wasm_v128_store(to, wasm_i64x2_shuffle(low_01, low_23, 0, 2));
    wasm_v128_store(to + 2 * ATTN_QUAD, wasm_i64x2_shuffle(low_01, low_23, 1, 3));
    wasm_v128_store(to + 4 * ATTN_QUAD, wasm_i64x2_shuffle(high_01, high_23, 0, 2));
    wasm_v128_store(to + 6 * ATTN_QUAD, wasm_i64x2_shuffle(high_01, high_23, 1, 3));
  }
  for (uint32_t h = 0; h < n; h++) tile->code_sums[h] = sum_4(sum[h]);
}

/* Values i..i+7 of block b for n rows: sums = keep x sums + the tile's. */
VEC_INLINE void sum_8(block_tile *tile, uint32_t b, uint32_t i, const uint32_t n, const int bits,
                      const bool upper) {
  const v128_t nibble = vec_opaque_i16(0x0f0f);
  const size_t group_bytes = tile->value_blocks * block_bytes(bits);
  const uint8_t *group = tile->values + tile->groups.begin / KV_GROUP * group_bytes + b * block_bytes(bits) +
                         KV_GROUP * sizeof(uint16_t) + 2 * (i - 16 * upper);
  v128_t acc[ATTN_QUAD][2];
  VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
    const int32_t zero = bits == 8 ? 0 : -8 * tile->code_sums[h];
    acc[h][0] = acc[h][1] = wasm_i32x4_splat(zero);
  }
  const int16_t *code = tile->codes + tile->groups.begin * ATTN_QUAD;
  for (uint32_t p = tile->groups.begin; p < tile->groups.end; p += KV_GROUP, group += group_bytes) {
    const uint8_t *unit = group;
    VEC_LOOP for (uint32_t j = 0; j < KV_GROUP; j += 4, unit += 16 * bits, code += 4 * ATTN_QUAD) {
      v128_t values[2];
      widen(values, unit, bits, upper, nibble);
      add_products(acc, values, code, n);
      widen(values, unit + 8 * bits, bits, upper, nibble);
      add_products(acc, values, code + 2 * ATTN_QUAD, n);
    }
  }
  VEC_UNROLL for (uint32_t h = 0; h < n; h++) {
    float *sum = tile->sums + (h * tile->value_blocks + b) * KV_BLOCK + i;
    const v128_t keep = wasm_f32x4_splat(tile->rows[h].keep);
    const v128_t add = wasm_f32x4_splat(tile->units[h] * tile->rows[h].add);
    VEC_UNROLL for (uint32_t j = 0; j < 2; j++) wasm_v128_store(
        sum + 4 * j, wasm_f32x4_add(wasm_f32x4_mul(wasm_v128_load(sum + 4 * j), keep),
                                    wasm_f32x4_mul(wasm_f32x4_convert_i32x4(acc[h][j]), add)));
  }
}
VEC_INLINE void tile_values(block_tile *tile, uint32_t b, const uint32_t n, const int bits) {
  const uint32_t lower = bits == 4 ? 16 : 32; /* values before those in the upper halves */
  VEC_LOOP for (uint32_t i = 0; i < lower; i += 8) sum_8(tile, b, i, n, bits, false);
  if (bits == 4) VEC_LOOP for (uint32_t i = lower; i < KV_BLOCK; i += 8) sum_8(tile, b, i, n, bits, true);
}

/* Functions of their own for 1 to 4 rows: see VEC_NOINLINE. */
#define BLOCK_VARIANT(n, bits)                                                                               \
  static VEC_NOINLINE void scores_##n##_##bits(block_tile *tile) { tile_scores(tile, n, bits); }             \
  static VEC_NOINLINE void values_##n##_##bits(block_tile *tile, uint32_t b) {                               \
    tile_values(tile, b, n, bits);                                                                           \
  }
BLOCK_VARIANT(1, 8)
BLOCK_VARIANT(2, 8)
BLOCK_VARIANT(3, 8)
BLOCK_VARIANT(4, 8)
BLOCK_VARIANT(1, 4)
BLOCK_VARIANT(2, 4)
BLOCK_VARIANT(3, 4)
BLOCK_VARIANT(4, 4)
#undef BLOCK_VARIANT

static void scores_n(block_tile *tile, uint32_t n, int bits) {
  if (bits == 8) {
    ATTN_OF_ROWS(scores, n, 8)(tile);
  } else {
    ATTN_OF_ROWS(scores, n, 4)(tile);
  }
}
static void values_n(block_tile *tile, uint32_t b, uint32_t n, int bits) {
  codes_make(tile, b, n, bits);
  if (bits == 8) {
    ATTN_OF_ROWS(values, n, 8)(tile, b);
  } else {
    ATTN_OF_ROWS(values, n, 4)(tile, b);
  }
}

/* n rows of a kv head over all positions that they see. */
static void quad_run(block_tile *tile, const lnl_attn *a, uint32_t kv_head, uint32_t n) {
  const int key_bits = a->kv[ATTN_K] == ATTN_Q8_0 ? 8 : 4, bits = a->kv[ATTN_V] == ATTN_Q8_0 ? 8 : 4;
  const size_t key_bytes = tile->key_blocks * block_bytes(key_bits),
               value_bytes = tile->value_blocks * block_bytes(bits);
  const size_t first = (size_t)kv_head * kv_group_count(a->n_ctx);
  queries_make(tile, n, a->d_head, a->scale);
  memset(tile->weights, 0, ATTN_QUAD * ATTN_TILE * sizeof(float)); /* of rows beyond n, too */
  memset(tile->sums, 0, (size_t)n * tile->value_blocks * KV_BLOCK * sizeof(float));
  const attn_range tiles = attn_tiles(tile->rows, n);
  for (uint32_t at = tiles.begin; at < tiles.end; at += ATTN_TILE) {
    tile->keys = (const uint8_t *)a->k + (first + at / KV_GROUP) * key_bytes;
    tile->values = (const uint8_t *)a->v + (first + at / KV_GROUP) * value_bytes;
    tile->groups = attn_seen_any(tile->rows, n, at);
    tile->groups.begin = tile->groups.begin / KV_GROUP * KV_GROUP;
    scores_n(tile, n, key_bits);
    for (uint32_t h = 0; h < n; h++) {
      tile->seen[h] = attn_seen(&tile->rows[h], at);
      /* Relative to the tile's largest, which therefore is 1: so much is known
       * of the codes that will be made of the weights. */
      attn_softmax(tile->weights + h * ATTN_TILE, tile->seen[h], &tile->rows[h], -INFINITY, 1, a->softcap);
    }
    for (uint32_t b = 0; b < tile->value_blocks; b++) values_n(tile, b, n, bits);
  }
  for (uint32_t h = 0; h < n; h++) {
    const float *sum = tile->sums + (size_t)h * tile->value_blocks * KV_BLOCK;
    for (uint32_t i = 0; i < a->d_value; i++) tile->rows[h].out[i] = sum[i] / tile->rows[h].total;
  }
}

void attn_block(const lnl_attn *a, uint32_t kv_head, attn_row *rows, uint32_t n) {
  block_tile tile = {.key_blocks = block_count(a->d_head), .value_blocks = block_count(a->d_value)};
  tile.sums = a->scratch;
  tile.weights = tile.sums + (size_t)ATTN_QUAD * tile.value_blocks * KV_BLOCK;
  tile.scales = tile.weights + ATTN_QUAD * ATTN_TILE;
  tile.query_sums = (int32_t *)(void *)(tile.scales + ATTN_QUAD * ATTN_TILE);
  tile.codes = (int16_t *)(void *)(tile.query_sums + (size_t)tile.key_blocks * ATTN_QUAD);
  tile.queries = tile.codes + ATTN_QUAD * ATTN_TILE;
  for (uint32_t r = 0, m; r < n; r += m) {
    m = u32_min(n - r, ATTN_QUAD);
    tile.rows = rows + r;
    quad_run(&tile, a, kv_head, m);
  }
}

#endif
