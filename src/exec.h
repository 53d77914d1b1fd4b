/* Runs a plan. Never does I/O: when a step needs a weight that has not arrived
 * it stops with NEED_BYTES, and goes on from that step when called again. */
#ifndef LNL_EXEC_H
#define LNL_EXEC_H

#include "kv.h"
#include "plan.h"
#include "pool.h"
#include "stream.h"

typedef struct lnl_exec {
  const lnl_plan *plan;
  const lnl_model *model;
  lnl_kv *kv;
  const float *inverse_freq; /* [ROPE_SET_COUNT][n_rot / 2]: base ^ (-2i / n_rot) */
  uint8_t *slab;             /* at least plan->slab_bytes, 64-byte aligned */
  lnl_pool *pool;            /* who computes; may have one thread */
  lnl_window *window;        /* for the weights that are streamed; NULL when none is */
  uint8_t *scratch;          /* [thread_count], scratch_bytes apart, 64-byte aligned */
  uint64_t scratch_bytes;    /* of one thread: at least attn_scratch_bytes */
  const int32_t *tokens;     /* [n_tok] */
  uint32_t n_tok;            /* 1..plan->token_rows */
  uint32_t position;         /* of the first token */
  bool long_text;            /* the factors for long texts, where the model has two sets, are in use */
  uint32_t output_begin;     /* first token whose logits are wanted; n_tok: none */
  uint32_t step;             /* where to go on: 0 at the start */
  uint32_t step_limit;       /* most steps a call; 0: all */
  uint32_t ready_end;        /* private: steps before it have their weights */
} lnl_exec;

/* LNL_OK when all steps ran; LNL_MORE after step_limit steps, so that a host
 * with a clock can time each; LNL_NEED_BYTES with *weight set to the one that
 * is missing, or with *piece set to what is missing in the window (the other of
 * the two is NULL); LNL_THREAD_LOST. The result does not depend on the number of
 * threads, to the bit. Allocates nothing. Between two calls other threads may be
 * at work on the window: exec_settle before anything else is done with x. */
lnl_status exec_run(lnl_exec *x, lnl_weight **weight, stream_piece **piece);

/* Ends what exec_run began: the run is given up. */
void exec_settle(lnl_exec *x);

/* Logits of the last complete run: [n_tok - output_begin, n_vocab]. */
const float *exec_logits(const lnl_exec *x);

/* Fills table [ROPE_SET_COUNT][n_rot / 2] with the inverse frequencies of
 * rotary embedding. Su et al., "RoFormer", 2021. */
void exec_inverse_freq(float *table, uint32_t n_rot, const rope_params rope[ROPE_SET_COUNT]);

#endif
