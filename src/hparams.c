#include "hparams.h"

#include <math.h>

#include "arch.h"
#include "fmt.h"

enum { MAX_LAYERS = 1024, MAX_DIM = 1 << 24, MAX_EXPERTS = 4096, MAX_TAPS = 64, KEY_BYTES = 128 };

/* --- keys -------------------------------------------------------------------- */

static void key_name(const key_reader *r, const char *suffix, char key[KEY_BYTES]) {
  fmt_print(key, KEY_BYTES, "%s.%s", r->prefix, suffix);
}

void key_fail(key_reader *r, lnl_status status, const char *suffix, const char *what) {
  if (r->status != LNL_OK) return;
  r->status = error_set(r->error, status, "metadata key '%s.%s' %s", r->prefix, suffix, what);
}

bool key_find(const key_reader *r, const char *suffix, gguf_value *value) {
  char key[KEY_BYTES];
  key_name(r, suffix, key);
  return gguf_find(r->file, key, value);
}

uint32_t key_count_or_none(key_reader *r, const char *suffix, uint32_t max) {
  char key[KEY_BYTES];
  key_name(r, suffix, key);
  gguf_value value;
  uint64_t n = 0;
  if (!gguf_find(r->file, key, &value)) return 0;
  if (value.type == GGUF_ARRAY) {
    key_fail(r, LNL_UNSUPPORTED_FEATURE, suffix,
             "is an array: values that differ by layer are not supported");
    return 1;
  }
  if (!gguf_get_u64(r->file, key, &n)) {
    key_fail(r, LNL_MISSING_KEY, suffix, "is not an unsigned integer");
  } else if (n > max) {
    key_fail(r, LNL_GGUF_LIMIT, suffix, "is out of range");
    n = 1;
  }
  return (uint32_t)n;
}

uint32_t key_count(key_reader *r, const char *suffix, uint32_t max, uint32_t fallback) {
  gguf_value value;
  if (!key_find(r, suffix, &value)) {
    if (fallback == 0) key_fail(r, LNL_MISSING_KEY, suffix, "is missing");
    return fallback;
  }
  uint32_t n = key_count_or_none(r, suffix, max);
  if (n == 0) key_fail(r, LNL_GGUF_LIMIT, suffix, "is out of range");
  return u32_max(n, 1);
}

uint32_t key_count_at(key_reader *r, const char *suffix, uint32_t index, uint32_t max, uint32_t fallback) {
  gguf_value value;
  if (!key_find(r, suffix, &value) || value.type != GGUF_ARRAY) return key_count(r, suffix, max, fallback);
  char key[KEY_BYTES];
  key_name(r, suffix, key);
  uint64_t n = 0;
  if (!gguf_get_u64_at(r->file, key, index, &n)) {
    key_fail(r, LNL_MISSING_KEY, suffix, "is not an array of unsigned integers, one for each layer");
  } else if (n > max) {
    key_fail(r, LNL_GGUF_LIMIT, suffix, "is out of range");
  }
  return (uint32_t)u64_min(n, max);
}

float key_float(key_reader *r, const char *suffix, float fallback) {
  char key[KEY_BYTES];
  key_name(r, suffix, key);
  float v = fallback;
  gguf_value value;
  if (!gguf_find(r->file, key, &value)) return fallback;
  if (!gguf_get_f32(r->file, key, &v)) {
    key_fail(r, LNL_MISSING_KEY, suffix, "is not a number");
  } else if (!isfinite(v)) {
    key_fail(r, LNL_GGUF_LIMIT, suffix, "is not finite");
  }
  return v;
}

bool key_bool(key_reader *r, const char *suffix, bool fallback) {
  char key[KEY_BYTES];
  key_name(r, suffix, key);
  bool v = fallback;
  gguf_get_bool(r->file, key, &v);
  return v;
}

/* --- rotary embedding ---------------------------------------------------------- */

/* The pair that turns `turns` times within n_ctx positions. */
static float yarn_pair(const lnl_hparams *hp, uint32_t n_ctx, float base, float turns) {
  const double two_pi = 6.283185307179586;
  return (float)(hp->n_rot * log(n_ctx / (turns * two_pi)) / (2 * log((double)base)));
}

static void read_yarn(key_reader *r, lnl_hparams *hp, rope_params *rope) {
  uint32_t n_ctx = key_count(r, "rope.scaling.original_context_length", UINT32_MAX / 2, hp->n_ctx_train);
  float fast = key_float(r, "rope.scaling.yarn_beta_fast", 32.0f);
  float slow = key_float(r, "rope.scaling.yarn_beta_slow", 1.0f);
  if (!(fast > 0)) key_fail(r, LNL_GGUF_LIMIT, "rope.scaling.yarn_beta_fast", "must be positive");
  if (!(slow > 0)) key_fail(r, LNL_GGUF_LIMIT, "rope.scaling.yarn_beta_slow", "must be positive");
  if (r->status < 0) return;
  rope->yarn = true;
  rope->ramp_low = fmaxf(0, floorf(yarn_pair(hp, n_ctx, rope->base, fast)));
  rope->ramp_high = fminf((float)hp->n_rot - 1, ceilf(yarn_pair(hp, n_ctx, rope->base, slow)));
  float log_factor = rope->scale < 1 ? logf(1 / rope->scale) : 0;
  float all = key_float(r, "rope.scaling.yarn_log_multiplier", 0.0f);
  rope->magnitude *= (1 + 0.1f * log_factor) / (1 + 0.1f * all * log_factor);
}

static void read_rope(key_reader *r, lnl_model *model) {
  lnl_hparams *hp = &model->hp;
  rope_params *rope = &hp->rope[ROPE_GLOBAL];
  hp->n_rot = key_count(r, "rope.dimension_count", MAX_DIM, hp->d_head);
  if (hp->n_rot > hp->d_head || hp->n_rot % 2) {
    gguf_value value;
    if (key_find(r, "rope.dimension_count", &value)) {
      key_fail(r, LNL_GGUF_LIMIT, "rope.dimension_count", "must be even and at most the head size");
    } else {
      key_fail(r, LNL_GGUF_LIMIT, "attention.key_length", "must be even where all of a head is rotated");
    }
  }
  rope->base = key_float(r, "rope.freq_base", 10000.0f);
  if (!(rope->base >= 1)) key_fail(r, LNL_GGUF_LIMIT, "rope.freq_base", "must be at least 1");
  rope->magnitude = key_float(r, "rope.scaling.attn_factor", 1.0f);
  if (fabsf(rope->magnitude) > 1e3f)
    key_fail(r, LNL_GGUF_LIMIT, "rope.scaling.attn_factor", "is out of range");

  char key[KEY_BYTES];
  key_name(r, "rope.scaling.type", key);
  lnl_span type = {0};
  float factor = key_float(r, "rope.scaling.factor", 0.0f);
  if (factor == 0.0f) factor = key_float(r, "rope.scale_linear", 0.0f);
  bool typed = gguf_get_string(r->file, key, &type);
  bool yarn = typed && span_equals(type, "yarn"), none = typed && span_equals(type, "none");
  if (typed && !none && !yarn && !span_equals(type, "linear") && !span_equals(type, "longrope")) {
    if (r->status == LNL_OK) {
      r->status = error_set(r->error, LNL_UNSUPPORTED_FEATURE,
                            "rope scaling '%.*s' (key '%s') is not supported; supported: none, linear, yarn, "
                            "longrope, and frequency factors (rope_freqs.weight)",
                            (int)u64_min(type.bytes, 64), (const char *)type.data, key);
    }
    return;
  }
  /* A factor of 0 stands for "not set" in converted files. */
  rope->scale = factor > 0.0f && !none ? 1.0f / factor : 1.0f;
  if (!isfinite(rope->scale)) key_fail(r, LNL_GGUF_LIMIT, "rope.scaling.factor", "is out of range");
  if (yarn) read_yarn(r, hp, rope);
  hp->n_ctx_short =
      key_count(r, "rope.scaling.original_context_length", UINT32_MAX / 2, u32_max(hp->n_ctx_train, 1));
  hp->rope[ROPE_WINDOWED] = *rope;
}

/* --- layers -------------------------------------------------------------------- */

/* The one number that all layers share; some may have 0 instead. */
static uint32_t count_of_layers(key_reader *r, const char *suffix, uint32_t n_layer, uint32_t fallback) {
  uint32_t count = 0;
  for (uint32_t layer = 0; layer < n_layer && r->status == LNL_OK; layer++) {
    uint32_t n = key_count_at(r, suffix, layer, MAX_DIM, fallback);
    if (n && count && n != count) {
      key_fail(r, LNL_UNSUPPORTED_FEATURE, suffix,
               "is an array: values that differ by layer are not supported");
    }
    if (n) count = n;
  }
  if (count == 0) key_fail(r, LNL_GGUF_LIMIT, suffix, "is out of range");
  return u32_max(count, 1);
}

static void read_experts(key_reader *r, lnl_model *model) {
  lnl_hparams *hp = &model->hp;
  hp->n_expert = key_count_or_none(r, "expert_count", MAX_EXPERTS);
  if (hp->n_expert == 0) return;
  bool required;
  if (!arch_uses(model->arch, ROLE_EXPERT_UP, &required)) {
    key_fail(r, LNL_UNSUPPORTED_FEATURE, "expert_count",
             "is not 0: mixtures of experts are not supported for this architecture");
    return;
  }
  hp->n_expert_used = key_count(r, "expert_used_count", hp->n_expert, 0);
  hp->d_ff_expert = key_count_or_none(r, "expert_feed_forward_length", MAX_DIM);
  if (hp->d_ff_expert == 0) hp->d_ff_expert = hp->d_ff;
  hp->d_ff_shared = key_count_or_none(r, "expert_shared_feed_forward_length", MAX_DIM);
  hp->expert_scale = key_float(r, "expert_weights_scale", 1.0f);
  if (hp->expert_scale == 0.0f) hp->expert_scale = 1.0f;
  hp->expert_norm = true;
  uint32_t dense = key_count_or_none(r, "leading_dense_block_count", MAX_LAYERS);
  for (uint32_t layer = dense; layer < hp->n_layer; layer++) model->layers[layer].experts = true;
}

static void read_layers(key_reader *r, lnl_model *model) {
  lnl_hparams *hp = &model->hp;
  bool required, has_conv = arch_uses(model->arch, ROLE_CONV_IN, &required);
  for (uint32_t i = 0; i < hp->n_layer && r->status == LNL_OK; i++) {
    lnl_layer *layer = &model->layers[i];
    layer->rope = model->arch->rope != ROPE_NONE;
    layer->conv = key_count_at(r, "attention.head_count_kv", i, MAX_DIM, hp->n_kv_head) == 0;
    if (layer->conv && !has_conv) {
      key_fail(r, LNL_UNSUPPORTED_FEATURE, "attention.head_count_kv", "is 0 for a layer");
    }
    layer->state_index = layer->conv ? hp->n_conv_layer++ : hp->n_attn_layer++;
  }
  if (has_conv) {
    hp->conv_len = key_count(r, "shortconv.l_cache", MAX_TAPS, 0);
    if (hp->conv_len < 2) key_fail(r, LNL_GGUF_LIMIT, "shortconv.l_cache", "is out of range");
  }
}

/* --- public -------------------------------------------------------------------- */

lnl_status hparams_read_layers(uint32_t *n_layer, const lnl_model *model, const gguf *file,
                               lnl_error *error) {
  key_reader r = {.file = file, .prefix = model->arch->name, .error = error};
  *n_layer = key_count(&r, "block_count", MAX_LAYERS, 0);
  return r.status;
}

static void read_attention(key_reader *r, lnl_hparams *hp) {
  hp->d_head = key_count(r, "attention.key_length", MAX_DIM, u32_max(hp->d_model / hp->n_head, 1));
  hp->d_value = key_count(r, "attention.value_length", MAX_DIM, hp->d_head);
  hp->attn_scale = key_float(r, "attention.scale", 0.0f);
  if (hp->attn_scale == 0.0f) hp->attn_scale = 1.0f / sqrtf((float)hp->d_head);
  if (key_float(r, "attention.clamp_kqv", 0.0f) > 0) {
    key_fail(r, LNL_UNSUPPORTED_FEATURE, "attention.clamp_kqv",
             "is not 0: clamped queries, keys and values are not supported");
  }
}

/* A model made for text gives the last token's vector, one that looks both ways
 * the mean, unless the file says otherwise. */
static void read_pooling(key_reader *r, lnl_hparams *hp) {
  enum { UNSPECIFIED = -1 };
  uint32_t type = key_count_or_none(r, "pooling_type", UINT32_MAX);
  hp->pooling = hp->causal ? POOLING_LAST : POOLING_MEAN;
  if (type == POOLING_MEAN || type == POOLING_CLS || type == POOLING_LAST) {
    hp->pooling = (pooling)type;
  } else if (type != POOLING_NONE && type != (uint32_t)UNSPECIFIED) {
    key_fail(r, LNL_UNSUPPORTED_FEATURE, "pooling_type", "is not none, mean, cls or last");
  }
}

lnl_status hparams_read(lnl_model *model, const gguf *file, lnl_error *error) {
  key_reader r = {.file = file, .prefix = model->arch->name, .error = error};
  lnl_hparams *hp = &model->hp;
  const arch_row *arch = model->arch;
  bool required;
  hp->d_model = key_count(&r, "embedding_length", MAX_DIM, 0);
  hp->n_ctx_train = key_count(&r, "context_length", UINT32_MAX / 2, 0);
  hp->n_head = count_of_layers(&r, "attention.head_count", hp->n_layer, 0);
  hp->n_kv_head = count_of_layers(&r, "attention.head_count_kv", hp->n_layer, hp->n_head);
  hp->d_ff = key_count_at(&r, "feed_forward_length", 0, MAX_DIM,
                          arch_uses(arch, ROLE_FFN_UP, &required) ? 0 : hp->d_model);
  for (uint32_t layer = 1; layer < hp->n_layer && r.status == LNL_OK; layer++) {
    if (key_count_at(&r, "feed_forward_length", layer, MAX_DIM, hp->d_ff) != hp->d_ff)
      key_fail(&r, LNL_UNSUPPORTED_FEATURE, "feed_forward_length",
               "is an array: values that differ by layer are not supported");
  }
  if (r.status < 0) return r.status;
  if (hp->n_head % hp->n_kv_head) {
    return error_set(error, LNL_UNSUPPORTED_FEATURE,
                     "%u attention heads cannot share %u key-value heads evenly", hp->n_head, hp->n_kv_head);
  }
  const char *eps_key =
      arch_has(arch, ARCH_LAYER_NORM) ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  hp->eps = key_float(&r, eps_key, -1.0f);
  if (hp->eps == -1.0f) key_fail(&r, LNL_MISSING_KEY, eps_key, "is missing");
  if (!(hp->eps >= 0 && hp->eps <= 1)) key_fail(&r, LNL_GGUF_LIMIT, eps_key, "must be from 0 to 1");
  hp->parallel = arch_has(arch, ARCH_PARALLEL);
  hp->embed_scale = hp->residual_scale = hp->logit_scale = 1.0f;
  read_attention(&r, hp);
  read_layers(&r, model);
  if (arch->rope != ROPE_NONE) read_rope(&r, model);
  read_experts(&r, model);
  hp->causal = key_bool(&r, "attention.causal", !arch_has(arch, ARCH_NO_OUTPUT));
  if (!hp->causal && !arch_has(arch, ARCH_NO_OUTPUT))
    key_fail(&r, LNL_UNSUPPORTED_FEATURE, "attention.causal",
             "is false: only embedding models may look ahead");
  read_pooling(&r, hp);
  if (arch->tune && r.status == LNL_OK) arch->tune(&r, model);
  return r.status;
}
