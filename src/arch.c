#include "arch.h"

#include <math.h>

/* Roles by groups, for the lists of the rows. A list ends with END. */
#define END       ROLE_COUNT
#define EMBED     ROLE_TOKEN_EMBD, ROLE_OUTPUT_NORM
#define QKV       ROLE_ATTN_Q, ROLE_ATTN_K, ROLE_ATTN_V, ROLE_ATTN_OUTPUT
#define GATED     ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_DOWN
#define UNGATED   ROLE_FFN_UP, ROLE_FFN_DOWN
#define NORMS     ROLE_ATTN_NORM, ROLE_FFN_NORM
#define QK_NORM   ROLE_ATTN_Q_NORM, ROLE_ATTN_K_NORM
#define POST      ROLE_ATTN_POST_NORM, ROLE_FFN_POST_NORM
#define EXPERTS   ROLE_ROUTER, ROLE_EXPERT_GATE, ROLE_EXPERT_UP, ROLE_EXPERT_DOWN
#define OUT_NORMS ROLE_ATTN_OUT_NORM, ROLE_ATTN_OUT_NORM_BIAS, ROLE_LAYER_OUT_NORM, ROLE_LAYER_OUT_NORM_BIAS
/* What converters may add to any architecture. */
#define COMMON                                                                                               \
  ROLE_OUTPUT, ROLE_OUTPUT_SCALE, ROLE_ATTN_QKV, ROLE_ATTN_QKV_BIAS, ROLE_ATTN_QKV_SCALE, ROLE_ATTN_Q_BIAS,  \
      ROLE_ATTN_K_BIAS, ROLE_ATTN_V_BIAS, ROLE_ATTN_Q_SCALE, ROLE_ATTN_K_SCALE, ROLE_ATTN_V_SCALE,           \
      ROLE_ATTN_OUTPUT_SCALE, ROLE_FFN_GATE_SCALE, ROLE_FFN_UP_SCALE, ROLE_FFN_DOWN_SCALE
#define FREQS       ROLE_ROPE_FREQS, ROLE_ROPE_LONG, ROLE_ROPE_SHORT
#define FFN_BIAS    ROLE_FFN_GATE_BIAS, ROLE_FFN_UP_BIAS, ROLE_FFN_DOWN_BIAS
#define NORM_BIAS   ROLE_ATTN_NORM_BIAS, ROLE_OUTPUT_NORM_BIAS
#define EXPERT_MORE ROLE_EXPERT_GATE_SCALE, ROLE_EXPERT_UP_SCALE, ROLE_EXPERT_DOWN_SCALE
#define SHARED      ROLE_SHARED_GATE, ROLE_SHARED_UP, ROLE_SHARED_DOWN
#define LIST(...)                                                                                            \
  (const uint8_t[]) { __VA_ARGS__, END }

/* --- what only some have ------------------------------------------------------- */

/* Every layer but the last of each `period` looks back only so far. */
static void read_window(key_reader *r, lnl_model *model, uint32_t period, uint32_t fallback) {
  lnl_hparams *hp = &model->hp;
  hp->window = key_count_or_none(r, "attention.sliding_window", UINT32_MAX / 2);
  if (hp->window == 0) hp->window = fallback;
  if (hp->window == 0) return;
  /* An array here says the same once more. */
  gguf_value value;
  if (key_find(r, "attention.sliding_window_pattern", &value) && value.type != GGUF_ARRAY)
    period = key_count_or_none(r, "attention.sliding_window_pattern", UINT32_MAX / 2);
  for (uint32_t i = 0; i < hp->n_layer; i++)
    model->layers[i].windowed = period == 0 || i % period < period - 1;
}

static void read_window_base(key_reader *r, lnl_model *model) {
  rope_params *rope = &model->hp.rope[ROPE_WINDOWED];
  rope->base = key_float(r, "rope.freq_base_swa", rope->base);
  if (!(rope->base >= 1)) key_fail(r, LNL_GGUF_LIMIT, "rope.freq_base_swa", "must be at least 1");
}

static void read_scales(key_reader *r, lnl_hparams *hp, float embed, float residual) {
  hp->embed_scale = key_float(r, "embedding_scale", embed);
  hp->residual_scale = key_float(r, "residual_scale", residual);
  if (hp->embed_scale == 0) hp->embed_scale = 1;
  if (hp->residual_scale == 0) hp->residual_scale = 1;
}

/* Logits are divided by the key's value. */
static void read_logit_divisor(key_reader *r, lnl_hparams *hp, float fallback) {
  float divisor = key_float(r, "logit_scale", fallback);
  if (!isfinite(1 / divisor)) {
    key_fail(r, LNL_GGUF_LIMIT, "logit_scale", "must not be 0, nor next to it");
    return;
  }
  hp->logit_scale = 1 / divisor;
}

static void tune_mistral3(key_reader *r, lnl_model *model) {
  lnl_hparams *hp = &model->hp;
  hp->temperature = key_float(r, "attention.temperature_scale", 0);
  hp->temperature_length = hp->n_ctx_short;
}

static void tune_granite(key_reader *r, lnl_model *model) {
  read_scales(r, &model->hp, 1, 1);
  read_logit_divisor(r, &model->hp, 0);
  /* This key is a switch here. */
  bool rope = key_bool(r, "rope.scaling.finetuned", true);
  for (uint32_t i = 0; i < model->hp.n_layer; i++) model->layers[i].rope = rope;
}

static void tune_minicpm(key_reader *r, lnl_model *model) {
  lnl_hparams *hp = &model->hp;
  read_scales(r, hp, 12.0f, 1.4f / sqrtf((float)hp->n_layer));
  read_logit_divisor(r, hp, (float)hp->d_model / 256.0f);
}

static void tune_smollm3(key_reader *r, lnl_model *model) {
  (void)r;
  for (uint32_t i = 0; i < model->hp.n_layer; i++) model->layers[i].rope = (i + 1) % 4 != 0;
}

static void tune_gemma(key_reader *r, lnl_model *model) {
  (void)r;
  model->hp.embed_scale = sqrtf((float)model->hp.d_model);
  model->hp.attn_scale = 1.0f / sqrtf((float)model->hp.d_head);
}

static void tune_gemma2(key_reader *r, lnl_model *model) {
  lnl_hparams *hp = &model->hp;
  tune_gemma(r, model);
  read_window(r, model, 2, 4096);
  read_window_base(r, model);
  if (hp->n_layer == 46) hp->attn_scale = 1.0f / sqrtf((float)hp->d_model / (float)hp->n_head); /* 27B */
  hp->attn_softcap = key_float(r, "attn_logit_softcapping", 50.0f);
  hp->logit_softcap = key_float(r, "final_logit_softcapping", 30.0f);
}

static void tune_gemma3(key_reader *r, lnl_model *model) {
  lnl_hparams *hp = &model->hp;
  tune_gemma(r, model);
  hp->rope[ROPE_WINDOWED] = (rope_params){.base = 10000.0f, .scale = 1, .magnitude = 1};
  read_window(r, model, 6, 0);
  read_window_base(r, model);
  if (hp->n_layer == 62) hp->attn_scale = 1.0f / sqrtf((float)hp->d_model / (float)hp->n_head); /* 27B */
  hp->logit_softcap = key_float(r, "final_logit_softcapping", 0);
}

static void tune_gemma_embedding(key_reader *r, lnl_model *model) {
  tune_gemma3(r, model);
  model->hp.logit_softcap = 0;
  model->hp.d_dense = key_count_or_none(r, "dense_2_feat_out", 1 << 24);
}

static void tune_cohere2(key_reader *r, lnl_model *model) {
  read_window(r, model, 4, 0);
  model->hp.logit_scale = key_float(r, "logit_scale", 1);
  for (uint32_t i = 0; i < model->hp.n_layer; i++) model->layers[i].rope = model->layers[i].windowed;
}

static void tune_exaone4(key_reader *r, lnl_model *model) {
  if (model->hp.n_layer != 64) return; /* 32B alone has windows */
  read_window(r, model, 4, 4096);
  for (uint32_t i = 0; i < model->hp.n_layer; i++) model->layers[i].rope = model->layers[i].windowed;
}

/* OLMo 3 is olmo2 with windows, whose layers have the plain rotary embedding. */
static void tune_olmo2(key_reader *r, lnl_model *model) {
  rope_params *windowed = &model->hp.rope[ROPE_WINDOWED];
  *windowed = (rope_params){.base = windowed->base, .scale = 1, .magnitude = 1};
  read_window(r, model, 4, 0);
}

/* Grown contexts come as a factor of the base. */
static void tune_hunyuan(key_reader *r, lnl_model *model) {
  lnl_hparams *hp = &model->hp;
  float alpha = key_float(r, "rope.scaling.alpha", 0), d = (float)hp->d_head;
  if (alpha > 0 && d > 2) hp->rope[ROPE_GLOBAL].base *= powf(alpha, d / (d - 2));
}

static void tune_gpt_oss(key_reader *r, lnl_model *model) {
  read_window(r, model, 2, 0);
  read_window_base(r, model);
  model->hp.gating = GATING_SOFTMAX_OF_CHOSEN;
  model->hp.expert_norm = false;
}

static void tune_olmoe(key_reader *r, lnl_model *model) {
  (void)r;
  model->hp.expert_norm = false;
}

static void tune_lfm2moe(key_reader *r, lnl_model *model) {
  enum { SOFTMAX = 1, SIGMOID = 2 };
  uint32_t gating = key_count(r, "expert_gating_func", UINT32_MAX / 2, 0);
  if (gating == SIGMOID) {
    model->hp.gating = GATING_SIGMOID;
  } else if (gating != SOFTMAX) {
    key_fail(r, LNL_UNSUPPORTED_FEATURE, "expert_gating_func", "is neither softmax nor sigmoid");
  }
}

static void tune_command_r(key_reader *r, lnl_model *model) {
  model->hp.logit_scale = key_float(r, "logit_scale", 1);
}

static void tune_gptneox(key_reader *r, lnl_model *model) {
  model->hp.parallel = key_bool(r, "use_parallel_residual", true);
}

static void tune_qwen2moe(key_reader *r, lnl_model *model) {
  lnl_hparams *hp = &model->hp;
  (void)r;
  hp->expert_norm = false;
  if (hp->d_ff_shared == 0) hp->d_ff_shared = hp->d_ff;
}

/* --- the rows ------------------------------------------------------------------ */

static const arch_row rows[] = {
    {.name = "llama",
     .required = LIST(EMBED, NORMS, QKV, GATED, EXPERTS),
     .optional = LIST(COMMON, FREQS, ROLE_ATTN_OUTPUT_BIAS, FFN_BIAS, EXPERT_MORE),
     .flags = ARCH_FFN_SCALE},
    {.name = "mistral3",
     .required = LIST(EMBED, NORMS, QKV, GATED, EXPERTS),
     .optional = LIST(COMMON, FREQS, ROLE_ATTN_OUTPUT_BIAS, FFN_BIAS, EXPERT_MORE),
     .flags = ARCH_FFN_SCALE,
     .tune = tune_mistral3},
    {.name = "qwen2",
     .required = LIST(EMBED, NORMS, QKV, GATED),
     .optional = LIST(COMMON, ROLE_OUTPUT_BIAS),
     .rope = ROPE_NEOX},
    {.name = "qwen2moe",
     .required = LIST(EMBED, NORMS, QKV, EXPERTS, SHARED, ROLE_SHARED_ROUTER),
     .optional = LIST(COMMON),
     .rope = ROPE_NEOX,
     .tune = tune_qwen2moe},
    {.name = "qwen3",
     .required = LIST(EMBED, NORMS, QKV, GATED, QK_NORM),
     .optional = LIST(COMMON),
     .flags = ARCH_FFN_SCALE,
     .rope = ROPE_NEOX},
    {.name = "qwen3moe",
     .required = LIST(EMBED, NORMS, QKV, QK_NORM, EXPERTS),
     .optional = LIST(COMMON, EXPERT_MORE),
     .rope = ROPE_NEOX},
    {.name = "gemma",
     .required = LIST(EMBED, NORMS, QKV, GATED),
     .optional = LIST(COMMON),
     .rope = ROPE_NEOX,
     .act = FFN_GELU,
     .tune = tune_gemma},
    {.name = "gemma2",
     .required = LIST(EMBED, NORMS, QKV, GATED, POST),
     .optional = LIST(COMMON),
     .rope = ROPE_NEOX,
     .act = FFN_GELU,
     .tune = tune_gemma2},
    {.name = "gemma3",
     .required = LIST(EMBED, NORMS, QKV, GATED, POST, QK_NORM),
     .optional = LIST(COMMON),
     .rope = ROPE_NEOX,
     .act = FFN_GELU,
     .tune = tune_gemma3},
    {.name = "phi2",
     .required = LIST(EMBED, ROLE_ATTN_NORM, QKV, UNGATED, NORM_BIAS, ROLE_OUTPUT, ROLE_OUTPUT_BIAS,
                      ROLE_ATTN_OUTPUT_BIAS, ROLE_FFN_UP_BIAS, ROLE_FFN_DOWN_BIAS),
     .optional = LIST(COMMON),
     .flags = ARCH_LAYER_NORM | ARCH_PARALLEL,
     .rope = ROPE_NEOX,
     .act = FFN_GELU},
    {.name = "phi3",
     .required = LIST(EMBED, NORMS, QKV, UNGATED),
     .optional = LIST(COMMON, ROLE_ROPE_LONG, ROLE_ROPE_SHORT),
     .flags = ARCH_FUSED_GATE,
     .rope = ROPE_NEOX},
    {.name = "smollm3",
     .required = LIST(EMBED, NORMS, QKV, GATED),
     .optional = LIST(COMMON),
     .tune = tune_smollm3},
    {.name = "granite",
     .required = LIST(EMBED, NORMS, QKV, GATED),
     .optional = LIST(COMMON, FREQS, ROLE_ATTN_OUTPUT_BIAS, FFN_BIAS),
     .tune = tune_granite},
    {.name = "granitemoe",
     .required = LIST(EMBED, NORMS, QKV, GATED, EXPERTS),
     .optional = LIST(COMMON, FREQS, ROLE_ATTN_OUTPUT_BIAS, FFN_BIAS, SHARED),
     .tune = tune_granite},
    {.name = "minicpm",
     .required = LIST(EMBED, NORMS, QKV, GATED),
     .optional = LIST(COMMON, FREQS, ROLE_ATTN_OUTPUT_BIAS, FFN_BIAS),
     .tune = tune_minicpm},
    {.name = "olmo2",
     .required = LIST(EMBED, ROLE_OUTPUT, QKV, GATED, QK_NORM, POST),
     .optional = LIST(ROLE_OUTPUT_SCALE, ROLE_ATTN_OUTPUT_SCALE),
     .ignored = LIST(ROLE_ATTN_Q_BIAS, ROLE_ATTN_K_BIAS, ROLE_ATTN_V_BIAS),
     .flags = ARCH_WHOLE_QK_NORM,
     .rope = ROPE_NEOX,
     .tune = tune_olmo2},
    {.name = "exaone4",
     .required = LIST(EMBED, QKV, GATED, QK_NORM, POST),
     .optional = LIST(COMMON, ROLE_ROPE_FREQS),
     .rope = ROPE_NEOX,
     .tune = tune_exaone4},
    {.name = "glm4",
     .required = LIST(EMBED, NORMS, QKV, UNGATED, POST),
     .optional = LIST(COMMON),
     .flags = ARCH_FUSED_GATE,
     .rope = ROPE_NORM},
    {.name = "cohere2",
     .required = LIST(EMBED, ROLE_ATTN_NORM, QKV, GATED),
     .optional = LIST(COMMON),
     .flags = ARCH_LAYER_NORM | ARCH_PARALLEL | ARCH_FFN_SCALE,
     .tune = tune_cohere2},
    {.name = "gpt2",
     .required = LIST(EMBED, NORMS, QKV, UNGATED, NORM_BIAS, ROLE_FFN_NORM_BIAS, ROLE_POSITION_EMBD,
                      ROLE_ATTN_OUTPUT_BIAS, ROLE_FFN_UP_BIAS, ROLE_FFN_DOWN_BIAS),
     .optional = LIST(COMMON),
     .flags = ARCH_LAYER_NORM,
     .rope = ROPE_NONE,
     .act = FFN_GELU},
    {.name = "starcoder2",
     .required = LIST(EMBED, NORMS, QKV, UNGATED, NORM_BIAS, ROLE_FFN_NORM_BIAS),
     .optional = LIST(COMMON, ROLE_ATTN_OUTPUT_BIAS, ROLE_FFN_UP_BIAS, ROLE_FFN_DOWN_BIAS),
     .flags = ARCH_LAYER_NORM,
     .rope = ROPE_NEOX,
     .act = FFN_GELU},
    {.name = "stablelm",
     .required = LIST(EMBED, ROLE_OUTPUT, ROLE_ATTN_NORM, QKV, GATED, NORM_BIAS),
     .optional = LIST(COMMON, ROLE_FFN_NORM, ROLE_FFN_NORM_BIAS, QK_NORM),
     .flags = ARCH_LAYER_NORM,
     .rope = ROPE_NEOX},
    {.name = "hunyuan-dense",
     .required = LIST(EMBED, NORMS, QKV, GATED, QK_NORM),
     .optional = LIST(COMMON, FREQS),
     .flags = ARCH_QK_NORM_AFTER_ROPE,
     .rope = ROPE_NEOX,
     .tune = tune_hunyuan},
    {.name = "ernie4_5",
     .required = LIST(EMBED, NORMS, QKV, GATED),
     .optional = LIST(COMMON),
     .ignored = LIST(ROLE_ATTN_OUTPUT_BIAS),
     .flags = ARCH_FFN_SCALE},
    {.name = "lfm2",
     .required = LIST(ROLE_TOKEN_EMBD, ROLE_TOKEN_EMBD_NORM, NORMS, QKV, GATED, QK_NORM, ROLE_CONV_IN,
                      ROLE_CONV_OUT, ROLE_CONV_KERNEL),
     .optional = LIST(COMMON),
     .rope = ROPE_NEOX},
    {.name = "lfm2moe",
     .required = LIST(ROLE_TOKEN_EMBD, ROLE_TOKEN_EMBD_NORM, NORMS, QKV, GATED, QK_NORM, ROLE_CONV_IN,
                      ROLE_CONV_OUT, ROLE_CONV_KERNEL, EXPERTS, ROLE_EXPERT_CHOICE_BIAS),
     .optional = LIST(COMMON),
     .rope = ROPE_NEOX,
     .tune = tune_lfm2moe},
    {.name = "arcee",
     .required = LIST(EMBED, NORMS, QKV, UNGATED),
     .optional = LIST(COMMON, ROLE_ROPE_FREQS),
     .act = FFN_RELU_SQR},
    {.name = "internlm2", .required = LIST(EMBED, ROLE_OUTPUT, NORMS, QKV, GATED), .optional = LIST(COMMON)},
    {.name = "exaone",
     .required = LIST(EMBED, NORMS, QKV, GATED),
     .optional = LIST(COMMON, ROLE_ROPE_FREQS),
     .rope = ROPE_NEOX},
    {.name = "seed_oss",
     .required = LIST(EMBED, ROLE_ATTN_NORM, ROLE_ATTN_POST_NORM, QKV, GATED),
     .optional = LIST(COMMON),
     .flags = ARCH_POST_ATTN_IS_FFN,
     .rope = ROPE_NEOX},
    {.name = "olmoe",
     .required = LIST(EMBED, ROLE_OUTPUT, NORMS, QKV, QK_NORM, EXPERTS),
     .optional = LIST(ROLE_ATTN_OUTPUT_SCALE),
     .flags = ARCH_WHOLE_QK_NORM,
     .rope = ROPE_NEOX,
     .tune = tune_olmoe},
    {.name = "command-r",
     .required = LIST(EMBED, ROLE_ATTN_NORM, QKV, GATED),
     .optional = LIST(COMMON, QK_NORM),
     .flags = ARCH_LAYER_NORM | ARCH_PARALLEL,
     .tune = tune_command_r},
    {.name = "gptneox",
     .required = LIST(EMBED, ROLE_OUTPUT, NORMS, QKV, UNGATED, NORM_BIAS, ROLE_FFN_NORM_BIAS,
                      ROLE_ATTN_OUTPUT_BIAS, ROLE_FFN_UP_BIAS, ROLE_FFN_DOWN_BIAS),
     .optional = LIST(COMMON),
     .flags = ARCH_LAYER_NORM,
     .rope = ROPE_NEOX,
     .act = FFN_GELU,
     .tune = tune_gptneox},
    {.name = "bert",
     .required = LIST(ROLE_TOKEN_EMBD, ROLE_TOKEN_EMBD_NORM, ROLE_TOKEN_EMBD_NORM_BIAS, ROLE_POSITION_EMBD,
                      QKV, UNGATED, OUT_NORMS),
     .optional = LIST(COMMON, ROLE_TOKEN_TYPES, ROLE_ATTN_OUTPUT_BIAS, ROLE_FFN_UP_BIAS, ROLE_FFN_DOWN_BIAS),
     .flags = ARCH_LAYER_NORM | ARCH_EMBED_NORM | ARCH_NORM_AFTER_ADD | ARCH_NO_OUTPUT,
     .rope = ROPE_NONE,
     .act = FFN_GELU},
    {.name = "nomic-bert",
     .required =
         LIST(ROLE_TOKEN_EMBD, ROLE_TOKEN_EMBD_NORM, ROLE_TOKEN_EMBD_NORM_BIAS, QKV, GATED, OUT_NORMS),
     .optional = LIST(COMMON, ROLE_TOKEN_TYPES, ROLE_ATTN_OUTPUT_BIAS),
     .ignored = LIST(FFN_BIAS),
     .flags = ARCH_LAYER_NORM | ARCH_EMBED_NORM | ARCH_NORM_AFTER_ADD | ARCH_NO_OUTPUT,
     .rope = ROPE_NEOX},
    {.name = "gemma-embedding",
     .required = LIST(EMBED, NORMS, QKV, GATED, POST, QK_NORM),
     .optional = LIST(COMMON, ROLE_DENSE_2, ROLE_DENSE_3),
     .flags = ARCH_NO_OUTPUT,
     .rope = ROPE_NEOX,
     .act = FFN_GELU,
     .tune = tune_gemma_embedding},
    {.name = "gpt-oss",
     .required = LIST(EMBED, ROLE_OUTPUT, ROLE_ATTN_NORM, ROLE_ATTN_POST_NORM, QKV, EXPERTS, ROLE_ATTN_SINKS,
                      ROLE_ATTN_OUTPUT_BIAS, ROLE_ROUTER_BIAS, ROLE_EXPERT_GATE_BIAS, ROLE_EXPERT_UP_BIAS,
                      ROLE_EXPERT_DOWN_BIAS),
     .optional = LIST(COMMON),
     .flags = ARCH_POST_ATTN_IS_FFN,
     .rope = ROPE_NEOX,
     .act = FFN_SWIGLU_OAI,
     .tune = tune_gpt_oss},
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

bool arch_has(const arch_row *row, arch_flag flag) { return (row->flags & flag) != 0; }

static bool lists(const uint8_t *roles, weight_role role) {
  for (; *roles != END; roles++) {
    if (*roles == role) return true;
  }
  return false;
}

bool arch_uses(const arch_row *row, weight_role role, bool *required) {
  *required = lists(row->required, role);
  return *required || lists(row->optional, role);
}

bool arch_ignores(const arch_row *row, weight_role role) { return row->ignored && lists(row->ignored, role); }
