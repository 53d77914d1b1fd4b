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
  USE_MATRIX,  /* [k, n_row], multiplied by activations */
  USE_EXPERTS, /* [k, n_row, n_expert], one matrix for each expert */
  USE_EMBED,   /* [d_model, n], rows looked up; the token embedding is also multiplied when tied */
  USE_VECTOR,  /* read as f32 */
} weight_use;

/* Where a weight belongs: a layer's only where the layer is of that kind. */
typedef enum weight_part {
  PART_MODEL,  /* once */
  PART_LAYER,  /* in each layer */
  PART_ATTN,   /* in layers with attention */
  PART_CONV,   /* in layers with a short convolution instead */
  PART_DENSE,  /* in layers with one feed-forward network */
  PART_EXPERT, /* in layers with a mixture of experts instead */
} weight_part;

/* Dimensions that a weight's shape is made of, in terms of lnl_hparams. */
typedef enum weight_dim {
  DIM_ONE,
  DIM_ANY,          /* as the file has it */
  DIM_ONE_OR_HEADS, /* one for all heads, or one for each */
  DIM_ONE_OR_KV_HEADS,
  DIM_D_MODEL,
  DIM_D_MODEL_3, /* 3 d_model */
  DIM_D_FF,
  DIM_D_FF_UP, /* d_ff, or twice that where the gate comes first in it */
  DIM_D_FF_EXPERT,
  DIM_D_FF_SHARED,
  DIM_D_DENSE, /* between the two matrices after pooling */
  DIM_N_VOCAB,
  DIM_N_CTX_TRAIN,
  DIM_HALF_ROT,
  DIM_N_HEAD,
  DIM_N_EXPERT,
  DIM_CONV_LEN,
  DIM_N_Q,    /* n_head * d_head */
  DIM_N_K,    /* n_kv_head * d_head */
  DIM_N_V,    /* n_kv_head * d_value */
  DIM_N_QKV,  /* all three */
  DIM_N_O,    /* n_head * d_value */
  DIM_Q_NORM, /* d_head, or N_Q where queries are normalised as a whole */
  DIM_K_NORM,
} weight_dim;

typedef enum weight_role {
#define LNL_WEIGHT(ROLE, name, part, use, dim0, dim1) ROLE_##ROLE,
#include "weights.inc"
#undef LNL_WEIGHT
  ROLE_COUNT
} weight_role;

/* How the outputs of a router become weights of experts. */
typedef enum expert_gating {
  GATING_SOFTMAX,          /* over all, then the chosen ones are taken */
  GATING_SIGMOID,          /* each for itself */
  GATING_SOFTMAX_OF_CHOSEN /* the softmax is of the chosen ones' outputs */
} expert_gating;

/* How the rows of an embedding model become one vector (llama.cpp's numbers). */
typedef enum pooling { POOLING_NONE = 0, POOLING_MEAN = 1, POOLING_CLS = 2, POOLING_LAST = 3 } pooling;

/* Angles of rotary embedding: of all layers, and of those with a window. */
typedef enum rope_set { ROPE_GLOBAL, ROPE_WINDOWED, ROPE_SET_COUNT } rope_set;
typedef struct rope_params {
  float base;
  float scale;     /* multiplies positions: 1 / factor */
  float magnitude; /* multiplies sines and cosines */
  /* YaRN: pairs before ramp_low keep their angles, those after ramp_high are
   * scaled, between them the two are mixed. Peng et al., 2023. */
  bool yarn;
  float ramp_low, ramp_high;
} rope_params;

typedef struct lnl_hparams {
  uint32_t n_layer, n_head, n_kv_head;
  uint32_t d_model, d_head, d_value, d_ff, n_rot;
  uint32_t n_vocab, n_ctx_train;
  uint32_t n_attn_layer, n_conv_layer;
  uint32_t n_expert, n_expert_used, d_ff_expert, d_ff_shared; /* 0: no experts */
  uint32_t conv_len;                                          /* taps of a short convolution */
  uint32_t window;      /* positions that a windowed layer looks back at, its own included */
  uint32_t n_ctx_short; /* up to how many tokens ROPE_SHORT holds, where the file has both */
  float eps;            /* of norms */
  rope_params rope[ROPE_SET_COUNT];
  float attn_scale;   /* multiplies q.k */
  float attn_softcap; /* 0: none */
  /* q *= 1 + temperature log(1 + floor(position / temperature_length)); 0: none */
  float temperature;
  uint32_t temperature_length;
  float embed_scale, residual_scale, logit_scale; /* 1: none */
  float logit_softcap;                            /* 0: none */
  float expert_scale;
  expert_gating gating;
  bool expert_norm; /* the weights of the chosen experts are made to add up to 1 */
  bool parallel;    /* attention and feed-forward read the same x, and both are added to it */
  bool causal;
  pooling pooling;
  uint32_t d_dense; /* 0: no matrices after pooling */
} lnl_hparams;

/* What kind of layer it is. */
typedef struct lnl_layer {
  bool conv;            /* a short convolution instead of attention */
  bool experts;         /* a mixture of experts instead of one feed-forward network */
  bool rope;            /* queries and keys are rotated */
  bool windowed;        /* attention looks back hp.window positions only */
  uint32_t state_index; /* among the layers with attention, or among those with a convolution */
} lnl_layer;

/* One weight that the model uses. */
typedef struct lnl_weight {
  const gguf_tensor *stored; /* into its shard's header */
  const lnl_form *form;      /* how it is stored */
  const lnl_form *held;      /* how a step reads it: form, or F32 or F16 where it is dequantised */
  lnl_placement place;
  weight_role role;
  uint32_t shard, layer;
  uint32_t turn;         /* index of the weight that is loaded as this one's number: see lnl_load_ahead */
  uint8_t *data;         /* where the bytes are to be; NULL until bound */
  uint64_t loaded_bytes; /* stored bytes received so far */
} lnl_weight;

struct arch_row;

typedef struct lnl_model {
  const struct arch_row *arch;
  lnl_hparams hp;
  bool tied_output;    /* no output matrix: the embedding serves */
  bool embeds;         /* the result is one vector for the text, not logits; set by the engine */
  bool has_weights;    /* false: a vocabulary-only file */
  lnl_weight *weights; /* [weight_count], by shard and file offset; owned (one block) */
  uint32_t weight_count;
  lnl_layer *layers;    /* [n_layer] */
  int32_t *slots;       /* [n_layer][ROLE_COUNT] index into weights or -1; global roles in layer 0 */
  uint64_t block_bytes; /* of the one block that holds all three */
} lnl_model;

/* The weight of that role, or NULL. layer is ignored for global roles. */
lnl_weight *model_weight(const lnl_model *model, weight_role role, uint32_t layer);

weight_use model_role_use(weight_role role);

/* Whether weights of that role are read as f32 (USE_VECTOR). */
bool model_role_is_vector(weight_role role);

/* Whether weights of that role belong to a layer. */
bool model_role_in_layer(weight_role role);

/* Rows and values of a weight, all experts together. */
uint64_t model_row_count(const lnl_weight *w);
uint64_t model_value_count(const lnl_weight *w);
/* Stored bytes of one of its rows. */
static inline uint64_t model_row_bytes(const lnl_weight *w) {
  return form_row_bytes(w->form, w->stored->shape[0]);
}

/* Whether its rows may be packed in groups: not where a part that is used alone
 * (an expert, the queries, the gate) ends inside a group. */
bool model_can_pack(const lnl_model *model, const lnl_weight *w);

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
