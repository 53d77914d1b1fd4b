/* Weights that stay in the source (DOMAIN_STREAMED) and pass through a bounded
 * window of linear memory each time a step needs them.
 *
 * A step's rows come in pieces, each of as many rows as a slot of the window
 * holds (a multiple of 16, or one row that is looked up), as stored. A weight that
 * is held packed elsewhere is packed on its way from the slot into the kernel, a few
 * rows at a time, by the thread that multiplies them: so the kernel, and with it
 * every bit of the result, is that of the resident model, the window holds no more
 * than stored bytes, and the packed rows never leave the processor's cache.
 *
 * With two slots the next piece is read while one is multiplied. Where reading is
 * synchronous that takes threads: the others begin, thread 0 reads and then joins
 * them (pool_start), so nothing waits for a thread that only reads. Else the host
 * only begins to read, and says so (lnl_need_later): then all compute meanwhile.
 *
 * Of a mixture of experts only those are read that tokens have chosen. Experts have
 * places of their own in the window, as many as there is room for, each for one
 * matrix; the one that was not used for longest gives way. */
#ifndef LNL_STREAM_H
#define LNL_STREAM_H

#include "mem.h"
#include "plan.h"
#include "pool.h"

enum {
  STREAM_SLOT_BYTES = 4 << 20, /* by default: one read (LNL_MAX_NEED_BYTES) */
  STREAM_PACK_BYTES =
      256 << 10 /* of packed rows a thread, unless 16 rows are more: they stay in the L2 cache */
};

/* A place for the matrix of one expert, as stored. */
typedef struct stream_expert {
  const lnl_weight *weight; /* NULL: empty */
  uint32_t expert;
  uint64_t used; /* by lnl_window.clock */
} stream_expert;

/* Rows of one weight in a slot. */
typedef struct stream_piece {
  lnl_weight *weight; /* NULL: none */
  uint32_t step;      /* of the plan, which needs it */
  uint32_t at,
      end; /* rows of that step's result (all experts together), or its tokens where rows are looked up */
  uint32_t row_begin, row_count; /* of the weight */
  uint64_t bytes, loaded_bytes;
  uint8_t *data;         /* the slot, or the expert's place */
  stream_expert *expert; /* NULL: in a slot */
} stream_piece;

typedef struct lnl_window {
  uint8_t *slots; /* [slot_count], slot_bytes apart, 64-byte aligned */
  uint64_t slot_bytes;
  uint64_t piece_bytes; /* of the largest piece: a slot, or an expert */
  uint32_t slot_count;
  uint8_t *packed; /* [threads], packed_bytes apart: rows on their way into a kernel */
  uint64_t packed_bytes;
  stream_expert *experts; /* [expert_count] */
  uint8_t *expert_data;   /* [expert_count], expert_bytes apart */
  uint64_t expert_bytes;
  uint32_t expert_count;
  uint64_t clock, hits, misses; /* of uses of the experts' places */
  stream_piece now, ahead;      /* the piece that is computed, and the one that is read meanwhile */
  uint32_t at;                  /* where in the present step to go on */
  uint32_t claimed;             /* rows of `now` that threads have taken; changed atomically */
  bool running;                 /* the other threads are at `now` */
  bool later;                   /* the host will bring what is read ahead when `now` is done */
  uint64_t fetched_bytes;       /* since the model was bound */
} lnl_window;

/* Measure/bind of the window for the weights of the model that are streamed; takes
 * nothing when none is. wish_bytes: lnl_plan_options.window_bytes; ahead: it is worth
 * while to read one piece ahead; expert_count: places for experts, none or at least 2. */
void stream_layout(lnl_window *w, lnl_arena *arena, const lnl_model *model, uint32_t thread_count, bool ahead,
                   uint64_t wish_bytes, uint32_t expert_count);

/* The piece is the whole matrix of expert e: finds its place, or takes
 * one for it. Its loaded_bytes say whether it is there. */
void stream_take_expert(lnl_window *w, stream_piece *piece, uint32_t e);

/* How many rows of a weight that is held packed a thread packs at a time: no more
 * than a piece has. */
uint32_t stream_pack_rows(const lnl_weight *w, uint64_t piece_bytes);

/* Bytes that a token reads of the weight's: what keeping it in memory saves. */
uint64_t stream_token_bytes(const lnl_model *model, const lnl_weight *w);
/* Bytes that are read through the window for each token, one at a time. */
uint64_t stream_fetched_a_token(const lnl_model *model);

/* Whether step i of the plan reads a weight that is streamed. */
bool stream_is_needed(const lnl_model *model, const lnl_plan *plan, uint32_t i);

#endif
