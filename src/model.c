#include "model.h"

#include <math.h>
#include <string.h>

#include "arch.h"
#include "describe.h"
#include "fmt.h"
#include "mem.h"

enum { MAX_LAYERS = 1024, MAX_DIM = 1 << 24, KEY_BYTES = 128 };

static const struct weight_row {
  const char *name;
  bool per_layer;
  weight_use use;
  weight_dim dim0, dim1;
} weight_rows[ROLE_COUNT] = {
#define LNL_WEIGHT(ROLE, name, per_layer, use, dim0, dim1)                                                   \
  {name, per_layer, USE_##use, DIM_##dim0, DIM_##dim1},
#include "weights.inc"
#undef LNL_WEIGHT
};

/* --- keys -------------------------------------------------------------------- */

/* Reads the keys of one architecture, remembering the first failure. */
typedef struct key_reader {
  const gguf *file;
  const char *prefix; /* general.architecture */
  lnl_error *error;
  lnl_status status;
} key_reader;

static void key_name(const key_reader *r, const char *suffix, char key[KEY_BYTES]) {
  fmt_print(key, KEY_BYTES, "%s.%s", r->prefix, suffix);
}

static void fail(key_reader *r, lnl_status status, const char *key, const char *what) {
  if (r->status == LNL_OK) r->status = error_set(r->error, status, "metadata key '%s' %s", key, what);
}

/* An integer in 1..max, or the fallback when the key is absent (0: required). */
static uint32_t read_count(key_reader *r, const char *suffix, uint32_t max, uint32_t fallback) {
  char key[KEY_BYTES];
  key_name(r, suffix, key);
  gguf_value value;
  uint64_t n = 0;
  if (!gguf_find(r->file, key, &value)) {
    if (fallback == 0) fail(r, LNL_MISSING_KEY, key, "is missing");
    return fallback;
  }
  if (value.type == GGUF_ARRAY) {
    fail(r, LNL_UNSUPPORTED_FEATURE, key, "is an array: values that differ by layer are not supported");
    return 1;
  }
  if (!gguf_get_u64(r->file, key, &n)) {
    fail(r, LNL_MISSING_KEY, key, "is not an unsigned integer");
  } else if (n == 0 || n > max) {
    fail(r, LNL_GGUF_LIMIT, key, "is out of range");
    n = 1;
  }
  return (uint32_t)u64_max(n, 1);
}

static float read_float(key_reader *r, const char *suffix, float fallback) {
  char key[KEY_BYTES];
  key_name(r, suffix, key);
  float v = fallback;
  gguf_value value;
  if (!gguf_find(r->file, key, &value)) return fallback;
  if (!gguf_get_f32(r->file, key, &v)) {
    fail(r, LNL_MISSING_KEY, key, "is not a number");
  } else if (!isfinite(v)) {
    fail(r, LNL_GGUF_LIMIT, key, "is not finite");
  }
  return v;
}

static void refuse_if_set(key_reader *r, const char *suffix, const char *what) {
  char key[KEY_BYTES];
  key_name(r, suffix, key);
  uint64_t n = 0;
  if (gguf_get_u64(r->file, key, &n) && n > 0) fail(r, LNL_UNSUPPORTED_FEATURE, key, what);
}

static void read_rope(key_reader *r, lnl_hparams *hp) {
  char key[KEY_BYTES];
  key_name(r, "rope.dimension_count", key);
  hp->n_rot = read_count(r, "rope.dimension_count", MAX_DIM, hp->d_head);
  if (hp->n_rot > hp->d_head || hp->n_rot % 2) {
    fail(r, LNL_GGUF_LIMIT, key, "must be even and at most the head size");
  }
  key_name(r, "rope.freq_base", key);
  hp->rope_base = read_float(r, "rope.freq_base", 10000.0f);
  if (!(hp->rope_base > 0)) fail(r, LNL_GGUF_LIMIT, key, "must be positive");

  key_name(r, "rope.scaling.type", key);
  lnl_span type = {0};
  float factor = read_float(r, "rope.scaling.factor", 0.0f);
  if (factor == 0.0f) factor = read_float(r, "rope.scale_linear", 0.0f);
  hp->rope_scale = 1.0f;
  if (gguf_get_string(r->file, key, &type) && !span_equals(type, "none")) {
    if (!span_equals(type, "linear")) {
      if (r->status == LNL_OK) {
        r->status = error_set(r->error, LNL_UNSUPPORTED_FEATURE,
                              "rope scaling '%.*s' (key '%s') is not supported; supported: none, linear, and "
                              "frequency factors (rope_freqs.weight)",
                              (int)u64_min(type.bytes, 64), (const char *)type.data, key);
      }
      return;
    }
  }
  /* A factor of 0 stands for "not set" in converted files. */
  if (factor > 0.0f && !span_equals(type, "none")) hp->rope_scale = 1.0f / factor;
}

static lnl_status read_hparams(lnl_model *model, const gguf *file, lnl_error *error) {
  key_reader r = {.file = file, .prefix = model->arch->name, .error = error};
  lnl_hparams *hp = &model->hp;
  hp->n_layer = read_count(&r, "block_count", MAX_LAYERS, 0);
  hp->d_model = read_count(&r, "embedding_length", MAX_DIM, 0);
  hp->d_ff = read_count(&r, "feed_forward_length", MAX_DIM, 0);
  hp->n_ctx_train = read_count(&r, "context_length", UINT32_MAX / 2, 0);
  hp->n_head = read_count(&r, "attention.head_count", MAX_DIM, 0);
  hp->n_kv_head = read_count(&r, "attention.head_count_kv", MAX_DIM, hp->n_head);
  if (r.status < 0) return r.status;
  if (hp->n_head % hp->n_kv_head) {
    return error_set(error, LNL_UNSUPPORTED_FEATURE,
                     "%u attention heads cannot share %u key-value heads evenly", hp->n_head, hp->n_kv_head);
  }
  hp->d_head = read_count(&r, "attention.key_length", MAX_DIM, u32_max(hp->d_model / hp->n_head, 1));
  hp->d_value = read_count(&r, "attention.value_length", MAX_DIM, hp->d_head);
  char key[KEY_BYTES];
  key_name(&r, "attention.layer_norm_rms_epsilon", key);
  if (!gguf_get_f32(file, key, &hp->rms_eps)) fail(&r, LNL_MISSING_KEY, key, "is missing");
  if (!(hp->rms_eps >= 0 && hp->rms_eps <= 1)) fail(&r, LNL_GGUF_LIMIT, key, "must be from 0 to 1");
  hp->attn_scale = read_float(&r, "attention.scale", 0.0f);
  if (hp->attn_scale == 0.0f) hp->attn_scale = 1.0f / sqrtf((float)hp->d_head);
  read_rope(&r, hp);
  refuse_if_set(&r, "expert_count", "is not 0: mixtures of experts are not supported");
  if (read_float(&r, "attention.clamp_kqv", 0.0f) > 0) {
    key_name(&r, "attention.clamp_kqv", key);
    fail(&r, LNL_UNSUPPORTED_FEATURE, key, "is not 0: clamped queries, keys and values are not supported");
  }
  bool causal = true;
  key_name(&r, "attention.causal", key);
  if (gguf_get_bool(file, key, &causal) && !causal) {
    fail(&r, LNL_UNSUPPORTED_FEATURE, key, "is false: only causal attention is supported");
  }
  return r.status;
}

/* --- tensors ------------------------------------------------------------------ */

static uint64_t dim_size(const lnl_hparams *hp, weight_dim dim) {
  switch (dim) {
  case DIM_ONE:
    return 1;
  case DIM_D_MODEL:
    return hp->d_model;
  case DIM_D_FF:
    return hp->d_ff;
  case DIM_N_VOCAB:
    return hp->n_vocab;
  case DIM_HALF_ROT:
    return hp->n_rot / 2;
  case DIM_N_Q:
    return (uint64_t)hp->n_head * hp->d_head;
  case DIM_N_K:
    return (uint64_t)hp->n_kv_head * hp->d_head;
  case DIM_N_V:
    return (uint64_t)hp->n_kv_head * hp->d_value;
  case DIM_N_O:
    return (uint64_t)hp->n_head * hp->d_value;
  }
  return 0;
}

/* "blk.12.attn_q.weight" gives layer 12 and the rest; a global name layer 0. */
static bool split_name(lnl_span name, bool *per_layer, uint32_t *layer, lnl_span *rest) {
  *layer = 0;
  *rest = name;
  *per_layer = name.bytes > 4 && memcmp(name.data, "blk.", 4) == 0;
  if (!*per_layer) return true;
  size_t at = 4;
  for (; at < name.bytes && name.data[at] >= '0' && name.data[at] <= '9' && at < 10; at++) {
    *layer = *layer * 10 + (uint32_t)(name.data[at] - '0');
  }
  if (at == 4 || at >= name.bytes || name.data[at] != '.') return false;
  *rest = (lnl_span){name.data + at + 1, name.bytes - at - 1};
  return true;
}

static bool find_role(const lnl_model *model, lnl_span name, weight_role *role, uint32_t *layer) {
  bool per_layer;
  lnl_span rest;
  if (!split_name(name, &per_layer, layer, &rest) || *layer >= model->hp.n_layer) return false;
  for (uint32_t i = 0; i < ROLE_COUNT; i++) {
    if (weight_rows[i].per_layer == per_layer && span_equals(rest, weight_rows[i].name)) {
      *role = (weight_role)i;
      return ((model->arch->required | model->arch->optional) & ROLE_BIT(i)) != 0;
    }
  }
  return false;
}

static lnl_status check_weight(const lnl_model *model, const lnl_weight *w, lnl_error *error) {
  const struct weight_row *row = &weight_rows[w->role];
  const gguf_tensor *t = w->stored;
  int name_bytes = (int)t->name.bytes;
  const char *name = (const char *)t->name.data;
  if (!w->form) {
    uint32_t count;
    char list[128] = "";
    const lnl_form *forms = form_list(&count);
    for (uint32_t i = 0; i < count; i++) {
      size_t used = strlen(list);
      fmt_print(list + used, sizeof list - used, "%s%s", i ? ", " : "", forms[i].name);
    }
    return error_set(error, LNL_UNSUPPORTED_TYPE,
                     "tensor '%.*s' is of type %s (%u), which is not supported; supported: %s", name_bytes,
                     name, describe_type(t->type), t->type, list);
  }
  if (row->use == USE_VECTOR && w->form->block_len != 1) {
    return error_set(error, LNL_UNSUPPORTED_TYPE,
                     "tensor '%.*s' is of type %s; norms and biases must be F32, F16 or BF16", name_bytes,
                     name, w->form->name);
  }
  uint64_t want0 = dim_size(&model->hp, row->dim0), want1 = dim_size(&model->hp, row->dim1);
  if (t->shape[0] != want0 || t->shape[1] != want1 || t->shape[2] != 1 || t->shape[3] != 1) {
    return error_set(
        error, LNL_BAD_SHAPE,
        "tensor '%.*s' has shape [%llu, %llu, %llu, %llu], but the metadata asks for [%llu, %llu]",
        name_bytes, name, (unsigned long long)t->shape[0], (unsigned long long)t->shape[1],
        (unsigned long long)t->shape[2], (unsigned long long)t->shape[3], (unsigned long long)want0,
        (unsigned long long)want1);
  }
  return LNL_OK;
}

/* Scales for activations in NVFP4: the types that we run have none to scale. */
static bool is_unused(lnl_span name) {
  static const char suffix[] = ".input_scale";
  size_t bytes = sizeof suffix - 1;
  return name.bytes > bytes && memcmp(name.data + name.bytes - bytes, suffix, bytes) == 0;
}

static lnl_status match_tensors(lnl_model *model, const gguf *shards, uint32_t shard_count,
                                lnl_error *error) {
  uint32_t next = 0;
  for (uint32_t s = 0; s < shard_count; s++) {
    for (uint64_t i = 0; i < shards[s].tensor_count; i++) {
      const gguf_tensor *t = &shards[s].tensors[i];
      weight_role role;
      uint32_t layer;
      if (is_unused(t->name)) continue;
      if (!find_role(model, t->name, &role, &layer)) {
        return error_set(error, LNL_UNEXPECTED_TENSOR,
                         "tensor '%.*s' is not part of the %s architecture as supported", (int)t->name.bytes,
                         (const char *)t->name.data, model->arch->name);
      }
      int32_t *slot = &model->slots[(size_t)layer * ROLE_COUNT + role];
      if (*slot >= 0) {
        return error_set(error, LNL_GGUF_DUPLICATE, "tensor '%.*s' appears in two parts of the model",
                         (int)t->name.bytes, (const char *)t->name.data);
      }
      *slot = (int32_t)next;
      model->weights[next++] =
          (lnl_weight){.stored = t, .form = form_find(t->type), .role = role, .shard = s, .layer = layer};
    }
  }
  model->weight_count = next;
  return LNL_OK;
}

static lnl_status check_complete(const lnl_model *model, lnl_error *error) {
  for (uint32_t layer = 0; layer < model->hp.n_layer; layer++) {
    for (uint32_t role = 0; role < ROLE_COUNT; role++) {
      const struct weight_row *row = &weight_rows[role];
      if ((layer > 0 && !row->per_layer) || !(model->arch->required & ROLE_BIT(role))) continue;
      if (model_weight(model, (weight_role)role, layer)) continue;
      return row->per_layer
                 ? error_set(error, LNL_MISSING_TENSOR, "tensor 'blk.%u.%s' is missing", layer, row->name)
                 : error_set(error, LNL_MISSING_TENSOR, "tensor '%s' is missing", row->name);
    }
  }
  for (uint32_t i = 0; i < model->weight_count; i++) LNL_TRY(check_weight(model, &model->weights[i], error));
  return LNL_OK;
}

static lnl_status find_arch(lnl_model *model, const gguf *file, lnl_error *error) {
  lnl_span name;
  if (!gguf_get_string(file, "general.architecture", &name)) {
    return error_set(error, LNL_MISSING_KEY,
                     "metadata key 'general.architecture' is missing or not a string");
  }
  model->arch = arch_find(name);
  if (model->arch) return LNL_OK;
  char list[256] = "";
  uint32_t count;
  const arch_row *rows = arch_list(&count);
  for (uint32_t i = 0; i < count; i++) {
    size_t used = strlen(list);
    fmt_print(list + used, sizeof list - used, "%s%s", i ? ", " : "", rows[i].name);
  }
  return error_set(error, LNL_UNSUPPORTED_ARCHITECTURE, "architecture '%.*s' is not supported; supported: %s",
                   (int)u64_min(name.bytes, 64), (const char *)name.data, list);
}

/* --- public -------------------------------------------------------------------- */

lnl_weight *model_weight(const lnl_model *model, weight_role role, uint32_t layer) {
  if (!weight_rows[role].per_layer) layer = 0;
  int32_t slot = model->slots[(size_t)layer * ROLE_COUNT + role];
  return slot < 0 ? NULL : &model->weights[slot];
}

bool model_role_is_vector(weight_role role) { return weight_rows[role].use == USE_VECTOR; }

lnl_status model_read(lnl_model *model, const gguf *shards, uint32_t shard_count, uint32_t n_vocab_tok,
                      lnl_error *error) {
  *model = (lnl_model){0};
  LNL_TRY(find_arch(model, &shards[0], error));
  uint64_t tensor_count = 0;
  for (uint32_t s = 0; s < shard_count; s++) tensor_count += shards[s].tensor_count;
  if (tensor_count == 0) return LNL_OK;
  model->has_weights = true;
  LNL_TRY(read_hparams(model, &shards[0], error));
  if (model->hp.n_layer > tensor_count) {
    return error_set(error, LNL_MISSING_TENSOR, "%llu tensors cannot make up a %s model of %u layers",
                     (unsigned long long)tensor_count, model->arch->name, model->hp.n_layer);
  }

  uint64_t weight_bytes = align_up(tensor_count * sizeof(lnl_weight), MEM_ALIGN);
  uint64_t slot_count = (uint64_t)model->hp.n_layer * ROLE_COUNT;
  model->block_bytes = weight_bytes + slot_count * sizeof(int32_t);
  uint8_t *block = mem_alloc((size_t)model->block_bytes);
  if (!block)
    return error_set(error, LNL_OUT_OF_MEMORY, "no memory for the table of %llu tensors",
                     (unsigned long long)tensor_count);
  model->weights = (lnl_weight *)block;
  model->slots = (int32_t *)(block + weight_bytes);
  memset(model->slots, 0xff, slot_count * sizeof(int32_t)); /* -1 */

  LNL_TRY(match_tensors(model, shards, shard_count, error));
  const lnl_weight *embd = model_weight(model, ROLE_TOKEN_EMBD, 0);
  if (!embd) return error_set(error, LNL_MISSING_TENSOR, "tensor 'token_embd.weight' is missing");
  if (embd->stored->shape[1] > INT32_MAX)
    return error_set(error, LNL_BAD_SHAPE, "the vocabulary is too large");
  model->hp.n_vocab = (uint32_t)embd->stored->shape[1];
  if (n_vocab_tok > model->hp.n_vocab) {
    return error_set(error, LNL_BAD_SHAPE,
                     "tensor 'token_embd.weight' has %u rows, but the vocabulary has %u tokens",
                     model->hp.n_vocab, n_vocab_tok);
  }
  model->tied_output = !model_weight(model, ROLE_OUTPUT, 0);
  return check_complete(model, error);
}

void model_free(lnl_model *model) {
  mem_free(model->weights);
  *model = (lnl_model){0};
}
