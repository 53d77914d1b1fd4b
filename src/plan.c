#include "plan.h"

#include <string.h>

#include "mem.h"

int32_t plan_new_value(plan_builder *b, const char *name, value_kind kind, value_rows rows, uint32_t cols) {
  lnl_plan *plan = b->plan;
  int32_t id = (int32_t)plan->value_count++;
  if (b->counting) return id;
  uint32_t row_count = plan_value_rows(plan, rows);
  uint64_t bytes = kind == VALUE_F32 ? (uint64_t)row_count * cols * sizeof(float) : q8_bytes(cols, row_count);
  plan->values[id] = (plan_value){
      .name = name,
      .kind = kind,
      .rows = rows,
      .cols = cols,
      .first = UINT32_MAX,
      .bytes = align_up(bytes, MEM_ALIGN),
  };
  return id;
}

static void use_value(lnl_plan *plan, int32_t value, uint32_t step) {
  if (value == NO_VALUE) return;
  plan_value *v = &plan->values[value];
  v->first = u32_min(v->first, step);
  v->last = u32_max(v->last, step);
}

plan_step plan_step_of(plan_op op, uint32_t layer) {
  return (plan_step){.op = op,
                     .out = NO_VALUE,
                     .in0 = NO_VALUE,
                     .in1 = NO_VALUE,
                     .weight = NO_WEIGHT,
                     .weight_more = NO_WEIGHT,
                     .layer = layer,
                     .n_head = 1};
}

static int32_t weight_index(const lnl_model *model, int32_t role, uint32_t layer) {
  const lnl_weight *w = role == NO_WEIGHT ? NULL : model_weight(model, (weight_role)role, layer);
  return w ? (int32_t)(w - model->weights) : NO_WEIGHT;
}

/* Steps come in with the roles of their weights; they leave with their indices. */
void plan_emit(plan_builder *b, plan_step step) {
  lnl_plan *plan = b->plan;
  uint32_t index = plan->step_count++;
  /* What changes in place has no int8 form any more. */
  if (step.out == b->quant_in) b->quant_in = NO_VALUE;
  if (b->counting) return;
  step.weight = weight_index(b->model, step.weight, step.layer);
  step.weight_more = weight_index(b->model, step.weight_more, step.layer);
  use_value(plan, step.out, index);
  use_value(plan, step.in0, index);
  use_value(plan, step.in1, index);
  plan->steps[index] = step;
}

/* A step that changes y in place by an optional vector. */
static void emit_vector(plan_builder *b, plan_op op, weight_role role, uint32_t layer, int32_t y,
                        int32_t experts, uint32_t row_begin) {
  if (role == NO_ROLE || !model_weight(b->model, role, layer)) return;
  plan_step step = plan_step_of(op, layer);
  step.out = y;
  step.in1 = experts;
  step.weight = (int32_t)role;
  step.row_begin = row_begin;
  plan_emit(b, step);
}

/* The form of x that the kernel of w multiplies with. */
static int32_t as_operand(plan_builder *b, const lnl_weight *w, uint32_t layer, value_rows rows, int32_t x) {
  if (w->held->activation != ACT_Q8) return x;
  if (b->quant_in == x) return b->quant_out;
  b->quant_out = plan_new_value(b, "int8", VALUE_Q8, rows, (uint32_t)w->stored->shape[0]);
  plan_step step = plan_step_of(OP_QUANT, layer);
  step.out = b->quant_out;
  step.in0 = x;
  plan_emit(b, step);
  b->quant_in = x;
  return b->quant_out;
}

static int32_t apply(plan_builder *b, const plan_linear *linear, uint32_t layer, int32_t x, int32_t experts) {
  const lnl_weight *w = model_weight(b->model, linear->weight, layer);
  LNL_ASSERT(w);
  const bool routed = experts != NO_VALUE;
  plan_step step = plan_step_of(routed ? OP_EXPERT_MATMUL : OP_MATMUL, layer);
  step.in0 = as_operand(b, w, layer, linear->rows, x);
  step.in1 = experts;
  step.weight = (int32_t)linear->weight;
  step.row_begin = linear->row_begin;
  int32_t y = plan_new_value(b, linear->name, VALUE_F32, linear->rows,
                             linear->row_count ? linear->row_count : (uint32_t)w->stored->shape[1]);
  step.out = y;
  plan_emit(b, step);
  const plan_op bias = routed ? OP_EXPERT_BIAS : OP_ADD_BIAS;
  if (linear->bias_first) emit_vector(b, bias, linear->bias, layer, y, experts, linear->row_begin);
  emit_vector(b, routed ? OP_EXPERT_SCALE : OP_SCALE, linear->scale, layer, y, experts, 0);
  if (!linear->bias_first) emit_vector(b, bias, linear->bias, layer, y, experts, linear->row_begin);
  return y;
}

int32_t plan_apply(plan_builder *b, const plan_linear *linear, uint32_t layer, int32_t x) {
  return apply(b, linear, layer, x, NO_VALUE);
}

int32_t plan_apply_experts(plan_builder *b, const plan_linear *linear, uint32_t layer, int32_t x,
                           int32_t experts) {
  return apply(b, linear, layer, x, experts);
}

uint32_t plan_value_rows(const lnl_plan *plan, value_rows rows) {
  switch (rows) {
  case ROWS_TOKENS:
    return plan->token_rows;
  case ROWS_OUTPUT:
    return plan->output_rows;
  case ROWS_ROUTED:
    return plan->routed_rows;
  case ROWS_ONE:
    return 1;
  }
  return 0;
}

static bool bytes_overlap(const plan_value *a, const plan_value *b) {
  return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool alive_together(const plan_value *a, const plan_value *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* In which order values are given their places. */
typedef bool (*goes_before)(const plan_value *a, const plan_value *b);

static bool larger(const plan_value *a, const plan_value *b) { return a->bytes > b->bytes; }

static bool lives_longer(const plan_value *a, const plan_value *b) {
  uint32_t life_a = a->last - a->first, life_b = b->last - b->first;
  return life_a != life_b ? life_a > life_b : a->bytes > b->bytes;
}

static bool starts_earlier(const plan_value *a, const plan_value *b) {
  return a->first != b->first ? a->first < b->first : a->bytes > b->bytes;
}

/* Gives each value, in that order, the lowest offset where it overlaps nothing
 * that is alive with it and already placed. Returns the size of the slab. */
static uint64_t place_values(lnl_plan *plan, uint32_t *order, goes_before before) {
  uint32_t n = plan->value_count;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t at = i;
    for (; at > 0 && before(&plan->values[i], &plan->values[order[at - 1]]); at--) order[at] = order[at - 1];
    order[at] = i;
  }
  uint64_t slab_bytes = 0;
  for (uint32_t i = 0; i < n; i++) {
    plan_value *value = &plan->values[order[i]];
    value->offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t j = 0; j < i; j++) {
        const plan_value *other = &plan->values[order[j]];
        if (alive_together(value, other) && bytes_overlap(value, other)) {
          value->offset = other->offset + other->bytes;
          moved = true;
        }
      }
    }
    slab_bytes = u64_max(slab_bytes, value->offset + value->bytes);
  }
  return slab_bytes;
}

/* Greedy placement is near the optimum, but which order is best depends on the
 * shape, so the best of three is kept. Greedy by size: Pisarchyk and Lee,
 * "Efficient Memory Management for Deep Neural Net Inference", 2020. All
 * layers have the same values, so the result does not depend on their number. */
static void lay_out_slab(lnl_plan *plan, uint32_t *order) {
  static const goes_before orders[] = {larger, lives_longer, starts_earlier};
  enum { ORDERS = sizeof orders / sizeof *orders };
  uint32_t best = 0;
  plan->slab_bytes = UINT64_MAX;
  for (uint32_t i = 0; i < ORDERS; i++) {
    uint64_t bytes = place_values(plan, order, orders[i]);
    if (bytes >= plan->slab_bytes) continue;
    plan->slab_bytes = bytes;
    best = i;
  }
  if (best + 1 < ORDERS) place_values(plan, order, orders[best]);
}

/* Whether a thread may run step b while another is still at step a. Both are
 * shared in the same way: by tokens, a thread follows only its own rows, so the
 * same value is no danger, another that lies over it is; by rows, a step may
 * not read what another writes, nor write over what another reads. */
static bool may_run_together(const lnl_plan *plan, const plan_step *a, const plan_step *b) {
  plan_share share = plan_op_share(a->op);
  if (share != plan_op_share(b->op) || share == SHARE_HEADS || share == SHARE_ROUTED) return false;
  if (share == SHARE_NONE) return true; /* thread 0 alone, in order */
  if (share == SHARE_ROWS && b->in0 == a->out) return false;
  const int32_t before[] = {a->out, a->in0, a->in1};
  for (int i = 0; i < 3; i++) {
    if (before[i] == NO_VALUE || b->out == NO_VALUE) continue;
    if (share == SHARE_TOKENS && before[i] == b->out) continue;
    if (bytes_overlap(&plan->values[before[i]], &plan->values[b->out])) return false;
  }
  return true;
}

/* Marks the steps before which threads must meet. */
static void mark_syncs(lnl_plan *plan) {
  uint32_t since = 0; /* first step after the last meeting */
  for (uint32_t i = 1; i < plan->step_count; i++) {
    plan_step *step = &plan->steps[i];
    step->sync = false;
    for (uint32_t j = since; j < i && !step->sync; j++) {
      step->sync = !may_run_together(plan, &plan->steps[j], step);
    }
    if (step->sync) since = i;
  }
}

lnl_status plan_build(lnl_plan *plan, const lnl_model *model, uint32_t token_rows, uint32_t output_rows,
                      lnl_error *error) {
  *plan = (lnl_plan){.token_rows = token_rows,
                     .output_rows = output_rows,
                     .routed_rows = token_rows * model->hp.n_expert_used,
                     .logits = NO_VALUE};
  plan_builder b = {
      .model = model, .plan = plan, .counting = true, .quant_in = NO_VALUE, .quant_out = NO_VALUE};
  block_build(&b);

  uint64_t step_bytes = align_up((uint64_t)plan->step_count * sizeof(plan_step), MEM_ALIGN);
  uint64_t value_bytes = align_up((uint64_t)plan->value_count * sizeof(plan_value), MEM_ALIGN);
  plan->block_bytes = step_bytes + value_bytes;
  uint32_t *order = mem_alloc((size_t)plan->value_count * sizeof *order);
  uint8_t *block = order ? mem_alloc((size_t)plan->block_bytes) : NULL;
  if (!block) {
    mem_free(order);
    *plan = (lnl_plan){.logits = NO_VALUE};
    return error_set(error, LNL_OUT_OF_MEMORY, "no memory for the plan");
  }
  plan->steps = (plan_step *)block;
  plan->values = (plan_value *)(block + step_bytes);

  uint32_t step_count = plan->step_count, value_count = plan->value_count;
  plan->step_count = plan->value_count = 0;
  b = (plan_builder){.model = model, .plan = plan, .quant_in = NO_VALUE, .quant_out = NO_VALUE};
  block_build(&b);
  LNL_ASSERT(plan->step_count == step_count && plan->value_count == value_count);

  /* The host reads the logits after the last step. */
  plan->values[plan->logits].last = step_count;
  lay_out_slab(plan, order);
  mem_free(order);
  LNL_ASSERT(plan_verify(plan));
  mark_syncs(plan);
  return LNL_OK;
}

void plan_spread(lnl_plan *plan) {
  plan->slab_bytes = 0;
  for (uint32_t i = 0; i < plan->value_count; i++) {
    plan->values[i].offset = plan->slab_bytes;
    plan->slab_bytes += plan->values[i].bytes;
  }
  mark_syncs(plan);
}

void plan_free(lnl_plan *plan) {
  mem_free(plan->steps);
  *plan = (lnl_plan){.logits = NO_VALUE};
}

bool plan_verify(const lnl_plan *plan) {
  for (uint32_t i = 0; i < plan->value_count; i++) {
    const plan_value *a = &plan->values[i];
    if (a->first > a->last || a->offset % MEM_ALIGN || a->offset + a->bytes > plan->slab_bytes) return false;
    for (uint32_t j = i + 1; j < plan->value_count; j++) {
      const plan_value *b = &plan->values[j];
      if (alive_together(a, b) && bytes_overlap(a, b)) return false;
    }
  }
  return true;
}

uint64_t plan_lower_bound(const lnl_plan *plan) {
  uint64_t most = 0;
  for (uint32_t step = 0; step <= plan->step_count; step++) {
    uint64_t alive = 0;
    for (uint32_t i = 0; i < plan->value_count; i++) {
      const plan_value *v = &plan->values[i];
      if (v->first <= step && step <= v->last) alive += v->bytes;
    }
    most = u64_max(most, alive);
  }
  return most;
}

const char *plan_op_name(plan_op op) {
  static const char *const names[] = {
#define LNL_OP(OP, name, share) #name,
#include "ops.inc"
#undef LNL_OP
  };
  return names[op];
}

plan_share plan_op_share(plan_op op) {
  static const plan_share shares[] = {
#define LNL_OP(OP, name, share) SHARE_##share,
#include "ops.inc"
#undef LNL_OP
  };
  return shares[op];
}
