/* What attn.c, attn_block.c and attn_kv.c share. A row is one query head of one token;
 * rows that read the same kv head go over its keys and values together. */
#ifndef LNL_ATTN_ROWS_H
#define LNL_ATTN_ROWS_H

#include "kernels.h"

/* Rows that share the loads of keys and values, and that go through a tile
 * while it is near. */
enum { ATTN_QUAD = 4, ATTN_ROWS = 32 };

/* The function `name` of so many rows, 1 to ATTN_QUAD, and of a kind. */
#define ATTN_OF_ROWS(name, n, kind)                                                                          \
  ((n) == 4 ? name##_4_##kind : (n) == 3 ? name##_3_##kind : (n) == 2 ? name##_2_##kind : name##_1_##kind)

/* Whether all of n halves are finite, as the kernels take them to be. */
bool attn_halves_are_finite(const uint8_t *src, size_t n);

typedef struct attn_range {
  uint32_t begin, end;
} attn_range;

typedef struct attn_row {
  const float *q;
  float *out;
  attn_range keys;      /* that it sees; never empty */
  float scale;          /* of the scores that the kernel gives */
  float largest, total; /* running softmax: the largest score, the sum of exp(score - largest) */
  float keep, add;      /* factors of what was summed before the tile, and of the tile */
} attn_row;

/* The keys that a token sees. */
static inline attn_range attn_keys(const lnl_attn *a, uint32_t token) {
  if (!a->causal) return (attn_range){0, a->n_key};
  const uint32_t end = a->position + token + 1;
  return (attn_range){a->window && a->window < end ? end - a->window : 0, end};
}

/* What a row sees of the tile that starts at position `at`, counted from there;
 * 0 to 0 if nothing. */
static inline attn_range attn_seen(const attn_row *row, uint32_t at) {
  if (row->keys.begin >= at + ATTN_TILE || row->keys.end <= at) return (attn_range){0, 0};
  return (attn_range){row->keys.begin > at ? row->keys.begin - at : 0,
                      u32_min(row->keys.end - at, ATTN_TILE)};
}
/* What any of n rows sees of it. */
static inline attn_range attn_seen_any(const attn_row *rows, uint32_t n, uint32_t at) {
  attn_range all = {ATTN_TILE, 0};
  for (uint32_t r = 0; r < n; r++) {
    const attn_range seen = attn_seen(&rows[r], at);
    if (seen.begin == seen.end) continue;
    all.begin = u32_min(all.begin, seen.begin);
    all.end = u32_max(all.end, seen.end);
  }
  return all.end > 0 ? all : (attn_range){0, 0};
}
/* The keys that any of n rows sees, from the start of a tile on. */
static inline attn_range attn_tiles(const attn_row *rows, uint32_t n) {
  attn_range all = rows[0].keys;
  for (uint32_t r = 1; r < n; r++) {
    all.begin = u32_min(all.begin, rows[r].keys.begin);
    all.end = u32_max(all.end, rows[r].keys.end);
  }
  all.begin -= all.begin % ATTN_TILE;
  return all;
}

/* Turns a tile's scores into exp(score - m) x unit, m being the largest of the
 * scores that are seen and of `floor`; weights [ATTN_TILE] of positions that
 * are not seen become 0. Sets keep and add, and carries largest and total on. */
void attn_softmax(float *weights, attn_range seen, attn_row *row, float floor, float unit, float cap);

/* At most ATTN_ROWS rows of a kv head over a cache of blocks. */
void attn_block(const lnl_attn *a, uint32_t kv_head, attn_row *rows, uint32_t n);
uint64_t attn_block_scratch_bytes(uint32_t d_head, uint32_t d_value);

#endif
