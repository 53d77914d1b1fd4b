/* The dataflow of one forward pass, from an architecture's row and from which
 * weights the model has. x is the residual stream, [rows, d_model]. */
#include "arch.h"
#include "plan.h"

#define LINEAR(text, ROLE)                                                                                   \
  {.name = (text), .weight = ROLE_##ROLE, .bias = ROLE_##ROLE##_BIAS, .scale = ROLE_##ROLE##_SCALE}

#define ROUTED(text, ROLE)                                                                                   \
  {.name = (text),                                                                                           \
   .weight = ROLE_##ROLE,                                                                                    \
   .bias = ROLE_##ROLE##_BIAS,                                                                               \
   .scale = ROLE_##ROLE##_SCALE,                                                                             \
   .rows = ROWS_ROUTED}
#define BARE(text, ROLE) {.name = (text), .weight = ROLE_##ROLE, .bias = NO_ROLE, .scale = NO_ROLE}

static bool has(const plan_builder *b, weight_role role, uint32_t layer) {
  return model_weight(b->model, role, layer) != NULL;
}
static const lnl_hparams *hparams(const plan_builder *b) { return &b->model->hp; }
static bool flag(const plan_builder *b, arch_flag which) { return arch_has(b->model->arch, which); }

static int32_t f32_value(plan_builder *b, const char *name, value_rows rows, uint32_t cols) {
  return plan_new_value(b, name, VALUE_F32, rows, cols);
}

/* out <- op(in0), or out changed in place by in0. */
static void emit(plan_builder *b, plan_op op, uint32_t layer, int32_t out, int32_t in0) {
  plan_step step = plan_step_of(op, layer);
  step.out = out;
  step.in0 = in0;
  plan_emit(b, step);
}

static void scale_by(plan_builder *b, uint32_t layer, int32_t x, float factor) {
  if (factor == 1) return;
  plan_step step = plan_step_of(OP_SCALE_BY, layer);
  step.out = x;
  step.factor = factor;
  plan_emit(b, step);
}

/* out <- norm(in), each of n_head parts of a row for itself, with its bias if
 * there is one. out may be in. */
static void norm_to(plan_builder *b, uint32_t layer, int32_t out, int32_t in, uint32_t n_head,
                    weight_role weight, weight_role bias) {
  plan_step step = plan_step_of(flag(b, ARCH_LAYER_NORM) ? OP_LAYER_NORM : OP_RMS_NORM, layer);
  step.out = out;
  step.in0 = in;
  step.n_head = n_head;
  step.weight = (int32_t)weight;
  plan_emit(b, step);
  if (bias == NO_ROLE || !has(b, bias, layer)) return;
  step = plan_step_of(OP_ADD_BIAS, layer);
  step.out = out;
  step.weight = (int32_t)bias;
  plan_emit(b, step);
}

static int32_t norm(plan_builder *b, uint32_t layer, const char *name, value_rows rows, int32_t in,
                    weight_role weight, weight_role bias) {
  int32_t out = f32_value(b, name, rows, hparams(b)->d_model);
  norm_to(b, layer, out, in, 1, weight, bias);
  return out;
}

/* --- attention ----------------------------------------------------------------- */

typedef struct rope_tables {
  int32_t of[ROPE_SET_COUNT];
} rope_tables;

/* Queries, keys and values, by three matrices or by parts of one. */
static void project(plan_builder *b, uint32_t layer, int32_t x, int32_t out[3]) {
  static const plan_linear separate[3] = {LINEAR("q", ATTN_Q), LINEAR("k", ATTN_K), LINEAR("v", ATTN_V)};
  const lnl_hparams *hp = hparams(b);
  if (!has(b, ROLE_ATTN_QKV, layer)) {
    for (int i = 0; i < 3; i++) out[i] = plan_apply(b, &separate[i], layer, x);
    return;
  }
  static const plan_linear fused = LINEAR("qkv", ATTN_QKV);
  const uint32_t counts[3] = {hp->n_head * hp->d_head, hp->n_kv_head * hp->d_head,
                              hp->n_kv_head * hp->d_value};
  uint32_t begin = 0;
  for (int i = 0; i < 3; i++) {
    plan_linear part = fused;
    part.name = separate[i].name;
    part.row_begin = begin;
    part.row_count = counts[i];
    out[i] = plan_apply(b, &part, layer, x);
    begin += counts[i];
  }
}

static void rotate(plan_builder *b, uint32_t layer, const rope_tables *tables, int32_t x, uint32_t n_head) {
  const lnl_layer *l = &b->model->layers[layer];
  if (!l->rope) return;
  plan_step step = plan_step_of(OP_ROPE, layer);
  step.out = x;
  step.in0 = tables->of[l->windowed ? ROPE_WINDOWED : ROPE_GLOBAL];
  step.n_head = n_head;
  plan_emit(b, step);
}

static void norm_heads(plan_builder *b, uint32_t layer, int32_t x, uint32_t n_head, weight_role role) {
  if (!has(b, role, layer)) return;
  norm_to(b, layer, x, x, flag(b, ARCH_WHOLE_QK_NORM) ? 1 : n_head, role, NO_ROLE);
}

static int32_t attention(plan_builder *b, uint32_t layer, int32_t x, const rope_tables *tables) {
  static const plan_linear output = LINEAR("attn_output", ATTN_OUTPUT);
  const lnl_hparams *hp = hparams(b);
  const bool norm_late = flag(b, ARCH_QK_NORM_AFTER_ROPE);
  int32_t qkv[3];
  project(b, layer, x, qkv);
  const uint32_t heads[2] = {hp->n_head, hp->n_kv_head};
  static const weight_role norms[2] = {ROLE_ATTN_Q_NORM, ROLE_ATTN_K_NORM};
  for (int i = 0; i < 2; i++) {
    if (!norm_late) norm_heads(b, layer, qkv[i], heads[i], norms[i]);
    rotate(b, layer, tables, qkv[i], heads[i]);
    if (norm_late) norm_heads(b, layer, qkv[i], heads[i], norms[i]);
  }
  if (hp->temperature != 0) emit(b, OP_TEMPERATURE, layer, qkv[0], NO_VALUE);
  plan_step store = plan_step_of(OP_KV_STORE, layer);
  store.in0 = qkv[1];
  store.in1 = qkv[2];
  plan_emit(b, store);
  plan_step attn = plan_step_of(OP_ATTN, layer);
  attn.out = f32_value(b, "attn", ROWS_TOKENS, hp->n_head * hp->d_value);
  attn.in0 = qkv[0];
  attn.weight = ROLE_ATTN_SINKS;
  plan_emit(b, attn);
  return plan_apply(b, &output, layer, attn.out);
}

/* The gated short convolution of LFM2. */
static int32_t convolution(plan_builder *b, uint32_t layer, int32_t x) {
  static const plan_linear in = BARE("conv_in", CONV_IN), out = BARE("conv_out", CONV_OUT);
  plan_step conv = plan_step_of(OP_SHORT_CONV, layer);
  conv.in0 = plan_apply(b, &in, layer, x);
  conv.out = f32_value(b, "conv", ROWS_TOKENS, hparams(b)->d_model);
  conv.weight = ROLE_CONV_KERNEL;
  plan_emit(b, conv);
  return plan_apply(b, &out, layer, conv.out);
}

/* --- feed-forward -------------------------------------------------------------- */

/* gate <- act(gate) * up, or act(gate) where up is NO_VALUE. */
static void activate(plan_builder *b, uint32_t layer, int32_t gate, int32_t up) {
  static const plan_op ops[] = {[FFN_SILU] = OP_SILU_MUL,
                                [FFN_GELU] = OP_GELU_MUL,
                                [FFN_SWIGLU_OAI] = OP_SWIGLU_OAI,
                                [FFN_RELU_SQR] = OP_RELU_SQR};
  plan_op op = ops[b->model->arch->act];
  if (op == OP_GELU_MUL && up == NO_VALUE) op = OP_GELU;
  plan_step step = plan_step_of(op, layer);
  step.out = step.in0 = gate;
  step.in1 = up;
  plan_emit(b, step);
}

/* Scales that come with a matrix count where llama.cpp applies them, and always
 * for a type whose values need them. */
static plan_linear with_scale(const plan_builder *b, plan_linear linear, uint32_t layer, bool counts) {
  const lnl_weight *w = model_weight(b->model, linear.weight, layer);
  if (!counts && w && w->form->type != TYPE_NVFP4) linear.scale = NO_ROLE;
  /* In attention the scale of a matrix comes before its bias, here after it. */
  linear.bias_first = true;
  return linear;
}

static int32_t dense(plan_builder *b, uint32_t layer, int32_t x) {
  static const plan_linear gate_row = LINEAR("ffn_gate", FFN_GATE), up_row = LINEAR("ffn_up", FFN_UP),
                           down_row = LINEAR("ffn_down", FFN_DOWN);
  const bool scales = flag(b, ARCH_FFN_SCALE);
  plan_linear gate = with_scale(b, gate_row, layer, scales), up = with_scale(b, up_row, layer, scales),
              down = with_scale(b, down_row, layer, scales);
  int32_t hidden, times = NO_VALUE;
  if (flag(b, ARCH_FUSED_GATE)) {
    up.row_count = hparams(b)->d_ff;
    hidden = plan_apply(b, &up, layer, x);
    up.row_begin = up.row_count;
    times = plan_apply(b, &up, layer, x);
  } else if (has(b, ROLE_FFN_GATE, layer)) {
    hidden = plan_apply(b, &gate, layer, x);
    times = plan_apply(b, &up, layer, x);
  } else {
    hidden = plan_apply(b, &up, layer, x);
  }
  activate(b, layer, hidden, times);
  return plan_apply(b, &down, layer, hidden);
}

/* The expert that sees every token: added to y. */
static void shared_expert(plan_builder *b, uint32_t layer, int32_t x, int32_t y) {
  static const plan_linear gate = BARE("shared_gate", SHARED_GATE), up = BARE("shared_up", SHARED_UP),
                           down = BARE("shared_down", SHARED_DOWN),
                           router = BARE("shared_router", SHARED_ROUTER);
  if (!has(b, ROLE_SHARED_UP, layer)) return;
  int32_t hidden = plan_apply(b, &gate, layer, x), times = plan_apply(b, &up, layer, x);
  activate(b, layer, hidden, times);
  int32_t out = plan_apply(b, &down, layer, hidden);
  if (has(b, ROLE_SHARED_ROUTER, layer))
    emit(b, OP_SIGMOID_SCALE, layer, out, plan_apply(b, &router, layer, x));
  emit(b, OP_ADD, layer, y, out);
}

/* Rows of x are copied for each expert chosen, those of one expert side by
 * side, so that an expert's matrices are read once for all its tokens. */
static int32_t experts(plan_builder *b, uint32_t layer, int32_t x) {
  const lnl_hparams *hp = hparams(b);
  static const plan_linear router = {
      .name = "router", .weight = ROLE_ROUTER, .bias = ROLE_ROUTER_BIAS, .scale = NO_ROLE};
  static const plan_linear gate = ROUTED("expert_gate", EXPERT_GATE), up = ROUTED("expert_up", EXPERT_UP),
                           down = ROUTED("expert_down", EXPERT_DOWN);
  plan_step route = plan_step_of(OP_ROUTE, layer);
  route.in0 = plan_apply(b, &router, layer, x);
  route.out = f32_value(b, "routes", ROWS_TOKENS, 2 * hp->n_expert_used);
  route.in1 = f32_value(b, "experts", ROWS_ONE, hp->n_expert + 1);
  route.weight = ROLE_EXPERT_CHOICE_BIAS;
  plan_emit(b, route);
  plan_step gather = plan_step_of(OP_GATHER, layer);
  gather.out = f32_value(b, "routed", ROWS_ROUTED, hp->d_model);
  gather.in0 = x;
  gather.in1 = route.out;
  plan_emit(b, gather);
  int32_t hidden = plan_apply_experts(b, &gate, layer, gather.out, route.in1);
  int32_t times = plan_apply_experts(b, &up, layer, gather.out, route.in1);
  activate(b, layer, hidden, times);
  plan_step sum = plan_step_of(OP_EXPERT_SUM, layer);
  sum.in0 = plan_apply_experts(b, &down, layer, hidden, route.in1);
  sum.in1 = route.out;
  sum.out = f32_value(b, "expert_sum", ROWS_TOKENS, hp->d_model);
  plan_emit(b, sum);
  shared_expert(b, layer, x, sum.out);
  return sum.out;
}

static int32_t feed_forward(plan_builder *b, uint32_t layer, int32_t x) {
  return b->model->layers[layer].experts ? experts(b, layer, x) : dense(b, layer, x);
}

/* --- the whole ----------------------------------------------------------------- */

/* x += what a part of the block gives, after its own norm and scale. */
static void add_to(plan_builder *b, uint32_t layer, int32_t x, int32_t part, weight_role post) {
  if (post != NO_ROLE && has(b, post, layer)) norm_to(b, layer, part, part, 1, post, NO_ROLE);
  scale_by(b, layer, part, hparams(b)->residual_scale);
  emit(b, OP_ADD, layer, x, part);
}

static void block(plan_builder *b, uint32_t layer, int32_t x, const rope_tables *tables) {
  const bool late = flag(b, ARCH_NORM_AFTER_ADD), post_is_ffn = flag(b, ARCH_POST_ATTN_IS_FFN);
  int32_t in = x;
  if (has(b, ROLE_ATTN_NORM, layer))
    in = norm(b, layer, "attn_norm", ROWS_TOKENS, x, ROLE_ATTN_NORM, ROLE_ATTN_NORM_BIAS);
  int32_t mixed = b->model->layers[layer].conv ? convolution(b, layer, in) : attention(b, layer, in, tables);
  const weight_role ffn_norm = post_is_ffn ? ROLE_ATTN_POST_NORM : ROLE_FFN_NORM;
  const bool normed = has(b, ffn_norm, layer);
  /* A layer that has a norm before attention only is meant so, too. */
  if (hparams(b)->parallel || (has(b, ROLE_ATTN_NORM, layer) && !normed)) {
    if (normed) in = norm(b, layer, "ffn_norm", ROWS_TOKENS, x, ffn_norm, ROLE_FFN_NORM_BIAS);
    int32_t out = feed_forward(b, layer, in);
    add_to(b, layer, x, mixed, NO_ROLE);
    add_to(b, layer, x, out, NO_ROLE);
    return;
  }
  add_to(b, layer, x, mixed, post_is_ffn ? NO_ROLE : ROLE_ATTN_POST_NORM);
  if (late) norm_to(b, layer, x, x, 1, ROLE_ATTN_OUT_NORM, ROLE_ATTN_OUT_NORM_BIAS);
  in = normed ? norm(b, layer, "ffn_norm", ROWS_TOKENS, x, ffn_norm, ROLE_FFN_NORM_BIAS) : x;
  add_to(b, layer, x, feed_forward(b, layer, in), ROLE_FFN_POST_NORM);
  if (late) norm_to(b, layer, x, x, 1, ROLE_LAYER_OUT_NORM, ROLE_LAYER_OUT_NORM_BIAS);
}

static rope_tables make_tables(plan_builder *b) {
  rope_tables tables = {{NO_VALUE, NO_VALUE}};
  for (uint32_t layer = 0; layer < hparams(b)->n_layer; layer++) {
    const lnl_layer *l = &b->model->layers[layer];
    const rope_set set = l->windowed ? ROPE_WINDOWED : ROPE_GLOBAL;
    if (!l->rope || l->conv || tables.of[set] != NO_VALUE) continue;
    plan_step step = plan_step_of(OP_ROPE_TABLE, 0);
    step.out = tables.of[set] = f32_value(b, "rope_table", ROWS_TOKENS, hparams(b)->n_rot);
    step.weight = has(b, ROLE_ROPE_FREQS, 0) ? ROLE_ROPE_FREQS : ROLE_ROPE_SHORT;
    step.weight_more = has(b, ROLE_ROPE_FREQS, 0) ? NO_WEIGHT : ROLE_ROPE_LONG;
    step.rope = set;
    plan_emit(b, step);
  }
  return tables;
}

static int32_t embed(plan_builder *b) {
  const uint32_t d_model = hparams(b)->d_model;
  plan_step step = plan_step_of(OP_EMBED, 0);
  int32_t x = step.out = f32_value(b, "x", ROWS_TOKENS, d_model);
  step.weight = ROLE_TOKEN_EMBD;
  plan_emit(b, step);
  scale_by(b, 0, x, hparams(b)->embed_scale);
  if (has(b, ROLE_TOKEN_TYPES, 0)) {
    step = plan_step_of(OP_ADD_BIAS, 0); /* all tokens are of the first type */
    step.out = x;
    step.weight = ROLE_TOKEN_TYPES;
    plan_emit(b, step);
  }
  if (has(b, ROLE_POSITION_EMBD, 0)) {
    step = plan_step_of(OP_EMBED_POSITION, 0);
    step.out = f32_value(b, "position", ROWS_TOKENS, d_model);
    step.weight = ROLE_POSITION_EMBD;
    plan_emit(b, step);
    emit(b, OP_ADD, 0, x, step.out);
  }
  if (flag(b, ARCH_EMBED_NORM)) norm_to(b, 0, x, x, 1, ROLE_TOKEN_EMBD_NORM, ROLE_TOKEN_EMBD_NORM_BIAS);
  return x;
}

static void logits(plan_builder *b, int32_t x) {
  const lnl_hparams *hp = hparams(b);
  int32_t rows = f32_value(b, "output_rows", ROWS_OUTPUT, hp->d_model);
  emit(b, OP_OUTPUT_ROWS, 0, rows, x);
  const bool usual = has(b, ROLE_OUTPUT_NORM, 0);
  int32_t normed = norm(b, 0, "output_norm", ROWS_OUTPUT, rows,
                        usual ? ROLE_OUTPUT_NORM : ROLE_TOKEN_EMBD_NORM, ROLE_OUTPUT_NORM_BIAS);
  plan_linear output = {.name = "logits",
                        .weight = b->model->tied_output ? ROLE_TOKEN_EMBD : ROLE_OUTPUT,
                        .bias = ROLE_OUTPUT_BIAS,
                        .scale = ROLE_OUTPUT_SCALE,
                        .rows = ROWS_OUTPUT};
  b->plan->logits = plan_apply(b, &output, 0, normed);
  scale_by(b, 0, b->plan->logits, hp->logit_scale);
  if (hp->logit_softcap == 0) return;
  plan_step cap = plan_step_of(OP_SOFTCAP, 0);
  cap.out = cap.in0 = b->plan->logits;
  cap.factor = hp->logit_softcap;
  plan_emit(b, cap);
}

/* One vector for the whole text. */
static void embedding(plan_builder *b, int32_t x) {
  static const plan_linear dense[2] = {
      {.name = "dense_2", .weight = ROLE_DENSE_2, .bias = NO_ROLE, .scale = NO_ROLE, .rows = ROWS_ONE},
      {.name = "dense_3", .weight = ROLE_DENSE_3, .bias = NO_ROLE, .scale = NO_ROLE, .rows = ROWS_ONE}};
  if (has(b, ROLE_OUTPUT_NORM, 0)) norm_to(b, 0, x, x, 1, ROLE_OUTPUT_NORM, ROLE_OUTPUT_NORM_BIAS);
  int32_t vector = f32_value(b, "pooled", ROWS_ONE, hparams(b)->d_model);
  emit(b, OP_POOL, 0, vector, x);
  for (int i = 0; i < 2; i++) {
    if (has(b, dense[i].weight, 0)) vector = plan_apply(b, &dense[i], 0, vector);
  }
  emit(b, OP_UNIT_LENGTH, 0, vector, NO_VALUE);
  b->plan->logits = vector;
}

void block_build(plan_builder *b) {
  rope_tables tables = make_tables(b);
  int32_t x = embed(b);
  for (uint32_t layer = 0; layer < hparams(b)->n_layer; layer++) block(b, layer, x, &tables);
  b->plan->output_step = b->plan->step_count;
  if (b->model->embeds) {
    embedding(b, x);
  } else {
    logits(b, x);
  }
}
