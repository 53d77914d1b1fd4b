#include "arch.h"

#include <string.h>

#include "plan.h"

#define LINEAR(text, ROLE, after)                                                                            \
  {.name = (text),                                                                                           \
   .weight = ROLE_##ROLE,                                                                                    \
   .bias = ROLE_##ROLE##_BIAS,                                                                               \
   .scale = ROLE_##ROLE##_SCALE,                                                                             \
   .bias_first = (after)}

/* In attention the scale of a matrix comes before its bias, in the feed-forward
 * part after it: so llama.cpp has it, which the files are made for. */
static const plan_linear attn_q = LINEAR("q", ATTN_Q, false), attn_k = LINEAR("k", ATTN_K, false),
                         attn_v = LINEAR("v", ATTN_V, false),
                         attn_output = LINEAR("attn_output", ATTN_OUTPUT, false),
                         ffn_gate = LINEAR("ffn_gate", FFN_GATE, true),
                         ffn_up = LINEAR("ffn_up", FFN_UP, true),
                         ffn_down = LINEAR("ffn_down", FFN_DOWN, true);

/* Pre-norm transformer block with gated SiLU feed-forward: Llama 1 to 3.x,
 * Mistral, TinyLlama, SmolLM. x is the residual stream [rows, d_model]. */
static void block_llama(plan_builder *b, uint32_t layer, int32_t x, int32_t rope_table) {
  const lnl_hparams *hp = &b->model->hp;

  int32_t normed = plan_new_value(b, "attn_norm", VALUE_F32, ROWS_TOKENS, hp->d_model);
  plan_emit(
      b, (plan_step){.op = OP_RMS_NORM, .out = normed, .in0 = x, .weight = ROLE_ATTN_NORM, .layer = layer});
  int32_t q = plan_apply(b, &attn_q, layer, normed);
  int32_t k = plan_apply(b, &attn_k, layer, normed);
  int32_t v = plan_apply(b, &attn_v, layer, normed);
  plan_emit(b, (plan_step){.op = OP_ROPE,
                           .out = q,
                           .in0 = rope_table,
                           .n_head = hp->n_head,
                           .layer = layer,
                           .weight = NO_WEIGHT});
  plan_emit(b, (plan_step){.op = OP_ROPE,
                           .out = k,
                           .in0 = rope_table,
                           .n_head = hp->n_kv_head,
                           .layer = layer,
                           .weight = NO_WEIGHT});
  plan_emit(b,
            (plan_step){
                .op = OP_KV_STORE, .out = NO_VALUE, .in0 = k, .in1 = v, .layer = layer, .weight = NO_WEIGHT});
  int32_t attended = plan_new_value(b, "attn", VALUE_F32, ROWS_TOKENS, hp->n_head * hp->d_value);
  plan_emit(b, (plan_step){.op = OP_ATTN, .out = attended, .in0 = q, .layer = layer, .weight = NO_WEIGHT});
  int32_t o = plan_apply(b, &attn_output, layer, attended);
  plan_emit(b, (plan_step){.op = OP_ADD, .out = x, .in0 = o, .layer = layer, .weight = NO_WEIGHT});

  normed = plan_new_value(b, "ffn_norm", VALUE_F32, ROWS_TOKENS, hp->d_model);
  plan_emit(b,
            (plan_step){.op = OP_RMS_NORM, .out = normed, .in0 = x, .weight = ROLE_FFN_NORM, .layer = layer});
  int32_t gate = plan_apply(b, &ffn_gate, layer, normed);
  int32_t up = plan_apply(b, &ffn_up, layer, normed);
  plan_emit(b,
            (plan_step){
                .op = OP_SILU_MUL, .out = gate, .in0 = gate, .in1 = up, .layer = layer, .weight = NO_WEIGHT});
  int32_t down = plan_apply(b, &ffn_down, layer, gate);
  plan_emit(b, (plan_step){.op = OP_ADD, .out = x, .in0 = down, .layer = layer, .weight = NO_WEIGHT});
}

static void build_llama(plan_builder *b) {
  const lnl_hparams *hp = &b->model->hp;

  int32_t rope_table = plan_new_value(b, "rope_table", VALUE_F32, ROWS_TOKENS, hp->n_rot);
  plan_emit(b, (plan_step){.op = OP_ROPE_TABLE, .out = rope_table, .weight = ROLE_ROPE_FREQS});
  int32_t x = plan_new_value(b, "x", VALUE_F32, ROWS_TOKENS, hp->d_model);
  plan_emit(b, (plan_step){.op = OP_EMBED, .out = x, .weight = ROLE_TOKEN_EMBD});
  for (uint32_t layer = 0; layer < hp->n_layer; layer++) block_llama(b, layer, x, rope_table);

  b->plan->output_step = b->plan->step_count;
  int32_t last = plan_new_value(b, "output_rows", VALUE_F32, ROWS_OUTPUT, hp->d_model);
  plan_emit(b, (plan_step){.op = OP_OUTPUT_ROWS, .out = last, .in0 = x, .weight = NO_WEIGHT});
  int32_t normed = plan_new_value(b, "output_norm", VALUE_F32, ROWS_OUTPUT, hp->d_model);
  plan_emit(b, (plan_step){.op = OP_RMS_NORM, .out = normed, .in0 = last, .weight = ROLE_OUTPUT_NORM});
  plan_linear output = {.name = "logits",
                        .weight = b->model->tied_output ? ROLE_TOKEN_EMBD : ROLE_OUTPUT,
                        .bias = NO_ROLE,
                        .scale = NO_ROLE,
                        .rows = ROWS_OUTPUT};
  b->plan->logits = plan_apply(b, &output, 0, normed);
}

static const arch_row rows[] = {
    {
        .name = "llama",
        .required = ROLE_BIT(ROLE_TOKEN_EMBD) | ROLE_BIT(ROLE_OUTPUT_NORM) | ROLE_BIT(ROLE_ATTN_NORM) |
                    ROLE_BIT(ROLE_ATTN_Q) | ROLE_BIT(ROLE_ATTN_K) | ROLE_BIT(ROLE_ATTN_V) |
                    ROLE_BIT(ROLE_ATTN_OUTPUT) | ROLE_BIT(ROLE_FFN_NORM) | ROLE_BIT(ROLE_FFN_GATE) |
                    ROLE_BIT(ROLE_FFN_UP) | ROLE_BIT(ROLE_FFN_DOWN),
        .optional = ROLE_BIT(ROLE_OUTPUT) | ROLE_BIT(ROLE_ROPE_FREQS) | ROLE_BIT(ROLE_ATTN_Q_BIAS) |
                    ROLE_BIT(ROLE_ATTN_K_BIAS) | ROLE_BIT(ROLE_ATTN_V_BIAS) |
                    ROLE_BIT(ROLE_ATTN_OUTPUT_BIAS) | ROLE_BIT(ROLE_FFN_GATE_BIAS) |
                    ROLE_BIT(ROLE_FFN_UP_BIAS) | ROLE_BIT(ROLE_FFN_DOWN_BIAS) | ROLE_BIT(ROLE_ATTN_Q_SCALE) |
                    ROLE_BIT(ROLE_ATTN_K_SCALE) | ROLE_BIT(ROLE_ATTN_V_SCALE) |
                    ROLE_BIT(ROLE_ATTN_OUTPUT_SCALE) | ROLE_BIT(ROLE_FFN_GATE_SCALE) |
                    ROLE_BIT(ROLE_FFN_UP_SCALE) | ROLE_BIT(ROLE_FFN_DOWN_SCALE),
        .rope = ROPE_NORM,
        .build = build_llama,
    },
};

const arch_row *arch_find(lnl_span name) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (span_equals(name, rows[i].name)) return &rows[i];
  }
  return NULL;
}

const arch_row *arch_list(uint32_t *count) {
  *count = (uint32_t)(sizeof rows / sizeof *rows);
  return rows;
}
