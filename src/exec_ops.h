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

#define LNL_OP(OP, name, share) void op_##name(const lnl_exec *x, const operands *o);
#include "ops.inc"
#undef LNL_OP

#endif
