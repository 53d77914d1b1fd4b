/* A plan: the flat array of steps of one forward pass, and where in the step
 * slab each activation lies. Built from an architecture's row; run by exec.c;
 * printed by explain. Liveness over the steps sizes the slab by what is alive
 * together, so it does not grow with the number of layers. */
#ifndef LNL_PLAN_H
#define LNL_PLAN_H

#include "arch.h"
#include "model.h"

typedef enum plan_op {
#define LNL_OP(OP, name, share) OP_##OP,
#include "ops.inc"
#undef LNL_OP
  OP_COUNT
} plan_op;

typedef enum value_kind { VALUE_F32, VALUE_Q8 } value_kind;
typedef enum value_rows {
  ROWS_TOKENS, /* one row for each token of the chunk */
  ROWS_OUTPUT, /* one row for each position whose logits are wanted */
  ROWS_ROUTED, /* one row for each token and expert chosen for it, those of an expert side by side */
  ROWS_ONE,    /* one row for the whole chunk */
} value_rows;

/* How the work of a step is divided among threads. */
typedef enum plan_share {
  SHARE_TOKENS, /* each thread its own tokens */
  SHARE_ROWS,   /* each thread its own rows of the weight, all tokens */
  SHARE_HEADS,  /* each thread its own pairs of token and kv head; of one token, its own heads */
  SHARE_ROUTED, /* each thread its own tokens, whose routed rows lie anywhere */
  SHARE_NONE,   /* thread 0 alone */
} plan_share;

enum { NO_VALUE = -1, NO_WEIGHT = -1 };

/* An activation: [rows, cols]. */
typedef struct plan_value {
  const char *name; /* static storage */
  value_kind kind;
  value_rows rows;
  uint32_t cols;
  uint32_t first, last; /* steps between which it is alive, both inclusive */
  uint64_t bytes;       /* at the plan's most rows */
  uint64_t offset;      /* in the slab, 64-byte aligned */
} plan_value;

/* Operands by operation (v: value, w: weight):
 *   EMBED           out <- rows of w for the tokens
 *   EMBED_POSITION  out <- rows of w for the tokens' positions
 *   ROPE_TABLE      out <- [cos | sin] of each token's angles; w: frequency factors or none,
 *                   w_more: those for long texts; rope: which angles
 *   RMS_NORM, LAYER_NORM  out <- norm(in0) * w, each of n_head parts of a row for itself
 *   QUANT           out (Q8) <- in0
 *   MATMUL          out <- in0 w^T, rows row_begin.. of w
 *   ADD_BIAS        out += w from row_begin on, each row
 *   SCALE           out *= w, one number
 *   SCALE_BY        out *= factor
 *   TEMPERATURE     out *= what the model has for the token's position
 *   ROPE            out rotated in place by in0 (a table); n_head heads
 *   KV_STORE        in0 -> K of layer; in1 -> V of layer
 *   ATTN            out <- attention of in0 over the layer's K and V; w: sinks or none
 *   SHORT_CONV      out <- c * conv(b * x), in0 = [b | c | x]; w: taps; moves the layer's state on
 *   ADD             out += in0
 *   SILU_MUL ...    out <- act(in0) * in1; GELU, RELU_SQR without in1
 *   SIGMOID_SCALE   out *= sigmoid(in0), one number a row
 *   ROUTE           in0 (a router's outputs) -> out [n_used] weights and [n_used] routed rows of each
 *                   token, in1 [n_expert + 1] first row of each expert; w: a bias for the choice
 *   GATHER          out (routed) <- the token's row of in0, by in1 = out of ROUTE
 *   EXPERT_MATMUL   out (routed) <- in0 (routed) times its expert's matrix of w; in1 as from ROUTE
 *   EXPERT_BIAS, EXPERT_SCALE  out (routed) by its expert's row of w; in1 as from ROUTE
 *   EXPERT_SUM      out <- the weighted sum of the token's rows of in0, by in1 = out of ROUTE
 *   SOFTCAP         out <- factor * tanh(in0 / factor)
 *   OUTPUT_ROWS     out <- the rows of in0 whose logits are wanted
 *   POOL            out <- one vector of all rows of in0
 *   UNIT_LENGTH     out /= its length */
typedef struct plan_step {
  plan_op op;
  bool sync; /* threads must meet before this step: see plan_share */
  int32_t out, in0, in1, weight, weight_more;
  uint32_t layer;
  uint32_t n_head;    /* ROPE and norms */
  uint32_t row_begin; /* MATMUL and ADD_BIAS */
  rope_set rope;      /* ROPE_TABLE */
  float factor;
} plan_step;

typedef struct lnl_plan {
  plan_step *steps; /* owned: one block holds steps and values */
  plan_value *values;
  uint32_t step_count, value_count;
  uint32_t token_rows;  /* most tokens a run */
  uint32_t output_rows; /* most positions whose logits are kept */
  uint32_t routed_rows; /* token_rows times the experts chosen for each */
  uint32_t output_step; /* first step that only serves the logits */
  int32_t logits;       /* the value that holds them */
  uint64_t slab_bytes;
  uint64_t block_bytes;
} lnl_plan;

/* --- building, for the block functions of arch.c --------------------------- */
typedef struct plan_builder {
  const lnl_model *model;
  lnl_plan *plan;
  bool counting;    /* first pass: only counts */
  int32_t quant_in; /* the value whose int8 form is quant_out, or NO_VALUE */
  int32_t quant_out;
} plan_builder;

int32_t plan_new_value(plan_builder *b, const char *name, value_kind kind, value_rows rows, uint32_t cols);
/* A step without operands, weights or parameters. */
plan_step plan_step_of(plan_op op, uint32_t layer);
/* Weights are given by their roles (or NO_WEIGHT); one that the model has not
 * becomes NO_WEIGHT. */
void plan_emit(plan_builder *b, plan_step step);
/* A matrix with what may come with it. bias and scale are applied where the
 * model has them; NO_ROLE where the architecture has none. */
typedef struct plan_linear {
  const char *name; /* of the result */
  weight_role weight, bias, scale;
  bool bias_first;               /* (Wx + b) s instead of (Wx) s + b */
  value_rows rows;               /* of x and the result */
  uint32_t row_begin, row_count; /* of the matrix; row_count 0: all */
} plan_linear;
#define NO_ROLE ROLE_COUNT

/* The product of x and the matrix; with a QUANT step first if the matrix's
 * kernel wants int8 and x has none yet. x must not change between two uses. */
int32_t plan_apply(plan_builder *b, const plan_linear *linear, uint32_t layer, int32_t x);
/* The same for the matrices of all experts: x is routed, experts as from ROUTE. */
int32_t plan_apply_experts(plan_builder *b, const plan_linear *linear, uint32_t layer, int32_t x,
                           int32_t experts);

/* Builds the plan for at most token_rows tokens a run and output_rows rows of
 * logits. Allocates one block; LNL_OUT_OF_MEMORY is the only failure. */
lnl_status plan_build(lnl_plan *plan, const lnl_model *model, uint32_t token_rows, uint32_t output_rows,
                      lnl_error *error);
void plan_free(lnl_plan *plan);

/* True when no two values that are alive at the same step share a byte, and
 * all lie inside the slab. The proof that the layout is sound. */
bool plan_verify(const lnl_plan *plan);
/* Gives every value a place of its own instead. What a plan computes does not
 * depend on where its values lie; this is how that is tested. */
void plan_spread(lnl_plan *plan);
/* Rows that a value has room for. */
uint32_t plan_value_rows(const lnl_plan *plan, value_rows rows);
/* The largest sum of bytes alive at one step: no layout can be smaller. */
uint64_t plan_lower_bound(const lnl_plan *plan);

const char *plan_op_name(plan_op op);
plan_share plan_op_share(plan_op op);

#endif
