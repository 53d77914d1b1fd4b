#include "plan.h"

#include <string.h>

#include "mem.h"

int32_t plan_new_value(plan_builder *b, const char *name, value_kind kind, value_rows rows, uint32_t cols) {
  lnl_plan *plan = b->plan;
  int32_t id = (int32_t)plan->value_count++;
  if (b->counting) return id;
  uint32_t row_count = rows == ROWS_TOKENS ? plan->token_rows : plan->output_rows;
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

/* Steps come in with the role of their weight; they leave with its index. */
void plan_emit(plan_builder *b, plan_step step) {
  lnl_plan *plan = b->plan;
  uint32_t index = plan->step_count++;
  if (b->counting) return;
  if (step.weight != NO_WEIGHT) {
    const lnl_weight *w = model_weight(b->model, (weight_role)step.weight, step.layer);
    step.weight = w ? (int32_t)(w - b->model->weights) : NO_WEIGHT;
  }
  bool unary =
      step.op == OP_EMBED || step.op == OP_ROPE_TABLE || step.op == OP_ADD_BIAS || step.op == OP_SCALE;
  if (unary) step.in0 = NO_VALUE;
  if (step.op != OP_KV_STORE && step.op != OP_SILU_MUL) step.in1 = NO_VALUE;
  use_value(plan, step.out, index);
  use_value(plan, step.in0, index);
  use_value(plan, step.in1, index);
  plan->steps[index] = step;
}

/* A step that changes y in place by an optional vector. */
static void emit_vector(plan_builder *b, plan_op op, weight_role role, uint32_t layer, int32_t y) {
  if (role == NO_ROLE || !model_weight(b->model, role, layer)) return;
  plan_emit(b, (plan_step){.op = op, .out = y, .weight = (int32_t)role, .layer = layer});
}

int32_t plan_apply(plan_builder *b, const plan_linear *linear, uint32_t layer, int32_t x) {
  const lnl_weight *w = model_weight(b->model, linear->weight, layer);
  LNL_ASSERT(w);
  if (w->form->activation == ACT_Q8) {
    if (b->quant_in != x) {
      b->quant_out = plan_new_value(b, "int8", VALUE_Q8, linear->rows, (uint32_t)w->stored->shape[0]);
      b->quant_in = x;
      plan_emit(
          b, (plan_step){.op = OP_QUANT, .out = b->quant_out, .in0 = x, .layer = layer, .weight = NO_WEIGHT});
    }
    x = b->quant_out;
  }
  int32_t y = plan_new_value(b, linear->name, VALUE_F32, linear->rows, (uint32_t)w->stored->shape[1]);
  plan_emit(
      b, (plan_step){.op = OP_MATMUL, .out = y, .in0 = x, .weight = (int32_t)linear->weight, .layer = layer});
  if (linear->bias_first) emit_vector(b, OP_ADD_BIAS, linear->bias, layer, y);
  emit_vector(b, OP_SCALE, linear->scale, layer, y);
  if (!linear->bias_first) emit_vector(b, OP_ADD_BIAS, linear->bias, layer, y);
  return y;
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
  if (share != plan_op_share(b->op) || share == SHARE_HEADS) return false;
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
    for (uint32_t j = since; j < i && !step->sync; j++) {
      step->sync = !may_run_together(plan, &plan->steps[j], step);
    }
    if (step->sync) since = i;
  }
}

lnl_status plan_build(lnl_plan *plan, const lnl_model *model, uint32_t token_rows, uint32_t output_rows,
                      lnl_error *error) {
  *plan = (lnl_plan){.token_rows = token_rows, .output_rows = output_rows, .logits = NO_VALUE};
  plan_builder b = {
      .model = model, .plan = plan, .counting = true, .quant_in = NO_VALUE, .quant_out = NO_VALUE};
  model->arch->build(&b);

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
  model->arch->build(&b);
  LNL_ASSERT(plan->step_count == step_count && plan->value_count == value_count);

  /* The host reads the logits after the last step. */
  plan->values[plan->logits].last = step_count;
  lay_out_slab(plan, order);
  mem_free(order);
  LNL_ASSERT(plan_verify(plan));
  mark_syncs(plan);
  return LNL_OK;
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
