/* What a file's header says about the model: hyperparameters and one record
 * per weight, checked against the architecture's row before a weight byte is
 * fetched. Reads headers, allocates one block. */
#ifndef LNL_MODEL_H
#define LNL_MODEL_H

#include "forms/form.h"
#include "gguf.h"
#include "place.h"

enum { MODEL_MAX_SHARDS = 256 };

typedef enum weight_use {
  USE_MATRIX, /* [k, n_row], multiplied by activations */
  USE_EMBED,  /* [d_model, n_vocab], rows looked up; also multiplied when tied */
  USE_VECTOR, /* one row, read as f32 */
} weight_use;

/* Dimensions that a weight's shape is made of, in terms of lnl_hparams. */
typedef enum weight_dim {
  DIM_ONE,
  DIM_D_MODEL,
  DIM_D_FF,
  DIM_N_VOCAB,
  DIM_HALF_ROT,
  DIM_N_Q, /* n_head * d_head */
  DIM_N_K, /* n_kv_head * d_head */
  DIM_N_V, /* n_kv_head * d_value */
  DIM_N_O, /* n_head * d_value */
} weight_dim;

typedef enum weight_role {
#define LNL_WEIGHT(ROLE, name, per_layer, use, dim0, dim1) ROLE_##ROLE,
#include "weights.inc"
#undef LNL_WEIGHT
  ROLE_COUNT
} weight_role;

typedef struct lnl_hparams {
  uint32_t n_layer, n_head, n_kv_head;
  uint32_t d_model, d_head, d_value, d_ff, n_rot;
  uint32_t n_vocab, n_ctx_train;
  float rms_eps;
  float rope_base;
  float rope_scale; /* multiplies positions: 1 / linear factor */
  float attn_scale; /* multiplies q.k */
} lnl_hparams;

/* One weight that the model uses. */
typedef struct lnl_weight {
  const gguf_tensor *stored; /* into its shard's header */
  const lnl_form *form;      /* how it is stored */
  lnl_placement place;
  weight_role role;
  uint32_t shard, layer;
  uint8_t *data;         /* where the bytes are to be; NULL until bound */
  uint64_t loaded_bytes; /* stored bytes received so far */
} lnl_weight;

struct arch_row;

typedef struct lnl_model {
  const struct arch_row *arch;
  lnl_hparams hp;
  bool tied_output;    /* no output matrix: the embedding serves */
  bool has_weights;    /* false: a vocabulary-only file */
  lnl_weight *weights; /* [weight_count], by shard and file offset; owned (one block) */
  uint32_t weight_count;
  int32_t *slots;       /* [n_layer][ROLE_COUNT] index into weights or -1; global roles in layer 0 */
  uint64_t block_bytes; /* of the one block that holds both */
} lnl_model;

/* The weight of that role, or NULL. layer is ignored for global roles. */
lnl_weight *model_weight(const lnl_model *model, weight_role role, uint32_t layer);

/* Whether weights of that role are norms or biases (USE_VECTOR). */
bool model_role_is_vector(weight_role role);

/* Reads the hyperparameters and matches all tensors of all shards to roles.
 * n_vocab_tok: size of the tokenizer's vocabulary, 0 if there is none.
 * Statuses: UNSUPPORTED_ARCHITECTURE, UNSUPPORTED_FEATURE, UNSUPPORTED_TYPE,
 * MISSING_KEY, MISSING_TENSOR, UNEXPECTED_TENSOR, BAD_SHAPE, OUT_OF_MEMORY.
 * A file without any tensor gives LNL_OK with has_weights false, and hp filled
 * as far as the keys are there. */
lnl_status model_read(lnl_model *model, const gguf *shards, uint32_t shard_count, uint32_t n_vocab_tok,
                      lnl_error *error);
void model_free(lnl_model *model);

#endif
