#include "model.h"

#include <string.h>

#include "arch.h"
#include "describe.h"
#include "fmt.h"
#include "mem.h"

static const struct weight_row {
  const char *name;
  weight_part part;
  weight_use use;
  weight_dim dim0, dim1;
} weight_rows[ROLE_COUNT] = {
#define LNL_WEIGHT(ROLE, name, part, use, dim0, dim1) {name, PART_##part, USE_##use, DIM_##dim0, DIM_##dim1},
#include "weights.inc"
#undef LNL_WEIGHT
};

/* --- tensors ------------------------------------------------------------------ */

static uint64_t dim_size(const lnl_model *model, weight_dim dim) {
  const lnl_hparams *hp = &model->hp;
  const uint64_t n_q = (uint64_t)hp->n_head * hp->d_head, n_k = (uint64_t)hp->n_kv_head * hp->d_head,
                 n_v = (uint64_t)hp->n_kv_head * hp->d_value;
  const bool whole = arch_has(model->arch, ARCH_WHOLE_QK_NORM);
  switch (dim) {
  case DIM_ONE:
  case DIM_ANY:
    return 1;
  case DIM_ONE_OR_HEADS:
    return hp->n_head;
  case DIM_ONE_OR_KV_HEADS:
    return hp->n_kv_head;
  case DIM_D_MODEL:
    return hp->d_model;
  case DIM_D_MODEL_3:
    return 3 * (uint64_t)hp->d_model;
  case DIM_D_FF:
    return hp->d_ff;
  case DIM_D_FF_UP:
    return arch_has(model->arch, ARCH_FUSED_GATE) ? 2 * (uint64_t)hp->d_ff : hp->d_ff;
  case DIM_D_FF_EXPERT:
    return hp->d_ff_expert;
  case DIM_D_FF_SHARED:
    return hp->d_ff_shared;
  case DIM_D_DENSE:
    return hp->d_dense;
  case DIM_N_VOCAB:
    return hp->n_vocab;
  case DIM_N_CTX_TRAIN:
    return hp->n_ctx_train;
  case DIM_HALF_ROT:
    return hp->n_rot / 2;
  case DIM_N_HEAD:
    return hp->n_head;
  case DIM_N_EXPERT:
    return hp->n_expert;
  case DIM_CONV_LEN:
    return hp->conv_len;
  case DIM_N_Q:
    return n_q;
  case DIM_N_K:
    return n_k;
  case DIM_N_V:
    return n_v;
  case DIM_N_QKV:
    return n_q + n_k + n_v;
  case DIM_N_O:
    return (uint64_t)hp->n_head * hp->d_value;
  case DIM_Q_NORM:
    return whole ? n_q : hp->d_head;
  case DIM_K_NORM:
    return whole ? n_k : hp->d_head;
  }
  return 0;
}

/* Whether the layer has weights of that part. */
static bool layer_has(const lnl_model *model, uint32_t layer, weight_part part) {
  const lnl_layer *l = &model->layers[layer];
  switch (part) {
  case PART_MODEL:
    return layer == 0;
  case PART_LAYER:
    return true;
  case PART_ATTN:
    return !l->conv;
  case PART_CONV:
    return l->conv;
  case PART_DENSE:
    return !l->experts;
  case PART_EXPERT:
    return l->experts;
  }
  return false;
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

/* ROLE_COUNT: no weight has that name, or the layer that it names does not exist. */
static weight_role role_by_name(const lnl_model *model, lnl_span name, uint32_t *layer) {
  bool per_layer;
  lnl_span rest;
  if (!split_name(name, &per_layer, layer, &rest) || *layer >= model->hp.n_layer) return ROLE_COUNT;
  for (uint32_t i = 0; i < ROLE_COUNT; i++) {
    if ((weight_rows[i].part != PART_MODEL) == per_layer && span_equals(rest, weight_rows[i].name))
      return (weight_role)i;
  }
  return ROLE_COUNT;
}

/* Whether the dimension may be what the file says, whatever the metadata asks for. */
static bool is_free(weight_dim dim, uint64_t size) {
  return dim == DIM_ANY || (size == 1 && (dim == DIM_ONE_OR_HEADS || dim == DIM_ONE_OR_KV_HEADS));
}

static lnl_status check_weight(const lnl_model *model, const lnl_weight *w, lnl_error *error) {
  const struct weight_row *row = &weight_rows[w->role];
  const gguf_tensor *t = w->stored;
  int name_bytes = (int)t->name.bytes;
  const char *name = (const char *)t->name.data;
  if (!w->form) {
    uint32_t count;
    char list[400] = "";
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
  if (t->shape[0] == 0 || t->shape[1] == 0 || t->shape[2] == 0)
    return error_set(error, LNL_BAD_SHAPE, "tensor '%.*s' is empty", name_bytes, name);
  uint64_t want0 = dim_size(model, row->dim0),
           want1 = is_free(row->dim1, t->shape[1]) ? t->shape[1] : dim_size(model, row->dim1),
           want2 = row->use == USE_EXPERTS ? model->hp.n_expert : 1;
  if (t->shape[0] != want0 || t->shape[1] != want1 || t->shape[2] != want2 || t->shape[3] != 1) {
    return error_set(
        error, LNL_BAD_SHAPE,
        "tensor '%.*s' has shape [%llu, %llu, %llu, %llu], but the metadata asks for [%llu, %llu, %llu]",
        name_bytes, name, (unsigned long long)t->shape[0], (unsigned long long)t->shape[1],
        (unsigned long long)t->shape[2], (unsigned long long)t->shape[3], (unsigned long long)want0,
        (unsigned long long)want1, (unsigned long long)want2);
  }
  return LNL_OK;
}

static bool ends_with(lnl_span name, const char *suffix) {
  size_t bytes = strlen(suffix);
  return name.bytes > bytes && memcmp(name.data + name.bytes - bytes, suffix, bytes) == 0;
}

/* What files carry beside the model: scales for activations in NVFP4 (the types
 * that we run have none to scale), scales that this architecture does not
 * apply, the head of a classifier. */
static bool is_unused(const lnl_model *model, lnl_span name, weight_role role) {
  return (role != ROLE_COUNT && arch_ignores(model->arch, role)) || ends_with(name, ".input_scale") ||
         ends_with(name, ".scale") || (name.bytes > 4 && memcmp(name.data, "cls.", 4) == 0);
}

static lnl_status match_tensors(lnl_model *model, const gguf *shards, uint32_t shard_count,
                                lnl_error *error) {
  uint32_t next = 0;
  for (uint32_t s = 0; s < shard_count; s++) {
    for (uint64_t i = 0; i < shards[s].tensor_count; i++) {
      const gguf_tensor *t = &shards[s].tensors[i];
      uint32_t layer;
      bool required;
      weight_role role = role_by_name(model, t->name, &layer);
      if (role == ROLE_COUNT || !arch_uses(model->arch, role, &required) ||
          !layer_has(model, layer, weight_rows[role].part)) {
        if (is_unused(model, t->name, role)) continue;
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
      const lnl_form *form = form_find(t->type);
      model->weights[next++] =
          (lnl_weight){.stored = t, .form = form, .held = form, .role = role, .shard = s, .layer = layer};
    }
  }
  model->weight_count = next;
  return LNL_OK;
}

/* A fused matrix stands for the three that it is made of. */
static bool is_fused(const lnl_model *model, weight_role role, uint32_t layer) {
  bool part = role == ROLE_ATTN_Q || role == ROLE_ATTN_K || role == ROLE_ATTN_V;
  return part && model_weight(model, ROLE_ATTN_QKV, layer);
}

static lnl_status missing(weight_role role, uint32_t layer, lnl_error *error) {
  const struct weight_row *row = &weight_rows[role];
  return row->part != PART_MODEL
             ? error_set(error, LNL_MISSING_TENSOR, "tensor 'blk.%u.%s' is missing", layer, row->name)
             : error_set(error, LNL_MISSING_TENSOR, "tensor '%s' is missing", row->name);
}

/* What may be left out as a whole only. */
static lnl_status check_group(const lnl_model *model, const weight_role roles[3], uint32_t layer,
                              lnl_error *error) {
  uint32_t there = 0;
  for (int i = 0; i < 3; i++) there += model_weight(model, roles[i], layer) != NULL;
  for (int i = 0; there && i < 3; i++) {
    if (!model_weight(model, roles[i], layer)) return missing(roles[i], layer, error);
  }
  return LNL_OK;
}

static lnl_status check_complete(const lnl_model *model, lnl_error *error) {
  static const weight_role shared[] = {ROLE_SHARED_UP, ROLE_SHARED_GATE, ROLE_SHARED_DOWN};
  static const weight_role dense[] = {ROLE_DENSE_2, ROLE_DENSE_3, ROLE_DENSE_3};
  for (uint32_t layer = 0; layer < model->hp.n_layer; layer++) {
    for (uint32_t i = 0; i < ROLE_COUNT; i++) {
      const struct weight_row *row = &weight_rows[i];
      weight_role role = (weight_role)i;
      bool required = false;
      if (!layer_has(model, layer, row->part) || !arch_uses(model->arch, role, &required) || !required)
        continue;
      if (model_weight(model, role, layer) || is_fused(model, role, layer)) continue;
      return missing(role, layer, error);
    }
    LNL_TRY(check_group(model, shared, layer, error));
  }
  LNL_TRY(check_group(model, dense, 0, error));
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
  char list[800] = "";
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
  if (weight_rows[role].part == PART_MODEL) layer = 0;
  int32_t slot = model->slots[(size_t)layer * ROLE_COUNT + role];
  return slot < 0 ? NULL : &model->weights[slot];
}

weight_use model_role_use(weight_role role) { return weight_rows[role].use; }

bool model_role_is_vector(weight_role role) { return weight_rows[role].use == USE_VECTOR; }

bool model_role_in_layer(weight_role role) { return weight_rows[role].part != PART_MODEL; }

uint64_t model_row_count(const lnl_weight *w) { return w->stored->shape[1] * w->stored->shape[2]; }

uint64_t model_value_count(const lnl_weight *w) { return w->stored->shape[0] * model_row_count(w); }

bool model_can_pack(const lnl_model *model, const lnl_weight *w) {
  const lnl_hparams *hp = &model->hp;
  if (weight_rows[w->role].use == USE_EXPERTS) return w->stored->shape[1] % FORM_GROUP == 0;
  if (w->role == ROLE_ATTN_QKV)
    return hp->n_head * hp->d_head % FORM_GROUP == 0 && hp->n_kv_head * hp->d_head % FORM_GROUP == 0;
  if (w->role == ROLE_FFN_UP && arch_has(model->arch, ARCH_FUSED_GATE)) return hp->d_ff % FORM_GROUP == 0;
  return true;
}

lnl_status model_read(lnl_model *model, const gguf *shards, uint32_t shard_count, uint32_t n_vocab_tok,
                      lnl_error *error) {
  *model = (lnl_model){0};
  LNL_TRY(find_arch(model, &shards[0], error));
  uint64_t tensor_count = 0;
  for (uint32_t s = 0; s < shard_count; s++) tensor_count += shards[s].tensor_count;
  if (tensor_count == 0) return LNL_OK;
  model->has_weights = true;
  LNL_TRY(hparams_read_layers(&model->hp.n_layer, model, &shards[0], error));
  if (model->hp.n_layer > tensor_count) {
    return error_set(error, LNL_MISSING_TENSOR, "%llu tensors cannot make up a %s model of %u layers",
                     (unsigned long long)tensor_count, model->arch->name, model->hp.n_layer);
  }

  uint64_t weight_bytes = align_up(tensor_count * sizeof(lnl_weight), MEM_ALIGN);
  uint64_t slot_count = (uint64_t)model->hp.n_layer * ROLE_COUNT;
  uint64_t layer_bytes = align_up(model->hp.n_layer * sizeof(lnl_layer), MEM_ALIGN);
  model->block_bytes = weight_bytes + layer_bytes + slot_count * sizeof(int32_t);
  uint8_t *block = mem_alloc((size_t)model->block_bytes);
  if (!block)
    return error_set(error, LNL_OUT_OF_MEMORY, "no memory for the table of %llu tensors",
                     (unsigned long long)tensor_count);
  model->weights = (lnl_weight *)block;
  model->layers = (lnl_layer *)(block + weight_bytes);
  memset(model->layers, 0, layer_bytes);
  model->slots = (int32_t *)(block + weight_bytes + layer_bytes);
  memset(model->slots, 0xff, slot_count * sizeof(int32_t)); /* -1 */
  LNL_TRY(hparams_read(model, &shards[0], error));

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
  model->tied_output = !model_weight(model, ROLE_OUTPUT, 0) && !arch_has(model->arch, ARCH_NO_OUTPUT);
  return check_complete(model, error);
}

void model_free(lnl_model *model) {
  mem_free(model->weights);
  *model = (lnl_model){0};
}
