/* What the functions of the operations share; private to exec.c and exec_ops.c. */
#ifndef LNL_EXEC_OPS_H
#define LNL_EXEC_OPS_H

#include "exec.h"

typedef struct operands {
  const plan_step *step;
  const plan_value *out, *in0, *in1; /* NULL where there is none */
  const lnl_weight *weight, *weight_more;
  uint32_t thread, thread_count;
  uint32_t begin, end; /* this thread's rows of out (or in0), or its tokens: see plan_share */
} operands;

/* A row of an activation in the slab. */
float *exec_f32(const lnl_exec *x, const plan_value *v, uint32_t row);
/* The same where numbers are stored instead. */
static inline uint32_t *exec_u32(const lnl_exec *x, const plan_value *v, uint32_t row) {
  return (uint32_t *)(void *)exec_f32(x, v, row);
}

/* The steps that the run has: all, or those before the logits. */
static inline uint32_t exec_last(const lnl_exec *x) {
  return x->output_begin < x->n_tok ? x->plan->step_count : x->plan->output_step;
}

/* The tokens of a product with s's weight: [n_tok] rows from `begin` of in0 and out;
 * w, row_bytes, the range of rows and where in a row of out they go are the caller's. */
lnl_matmul exec_product(const lnl_exec *x, const plan_step *s, uint32_t begin, uint32_t n_tok);
/* How many rows of a MATMUL's result there are. */
uint32_t exec_row_count(const lnl_exec *x, const plan_value *v);

/* Present step of the run, whose weight is streamed: OK it is done, NEED_BYTES with
 * *piece, THREAD_LOST. exec_stream.c. */
lnl_status exec_stream_step(lnl_exec *x, stream_piece **piece);

#define LNL_OP(OP, name, share) void op_##name(const lnl_exec *x, const operands *o);
#include "ops.inc"
#undef LNL_OP

#endif
