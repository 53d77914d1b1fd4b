/* One row per architecture: which weights it has, how its hyperparameters are
 * named, how its dataflow goes. Adding an architecture is adding a row; a new
 * dataflow is a new flag or function of block.c. */
#ifndef LNL_ARCH_H
#define LNL_ARCH_H

#include "hparams.h"
#include "model.h"

struct plan_builder;

typedef enum rope_kind { ROPE_NORM, ROPE_NEOX, ROPE_NONE } rope_kind;

/* The activation of the feed-forward network. Gated ones multiply by `up`. */
typedef enum ffn_act { FFN_SILU, FFN_GELU, FFN_SWIGLU_OAI, FFN_RELU_SQR } ffn_act;

typedef enum arch_flag {
  ARCH_LAYER_NORM = 1 << 0,         /* norms subtract the mean and may have a bias */
  ARCH_PARALLEL = 1 << 1,           /* attention and feed-forward are both computed from the same x */
  ARCH_FUSED_GATE = 1 << 2,         /* gate and up are one matrix, gate first */
  ARCH_WHOLE_QK_NORM = 1 << 3,      /* queries and keys are normalised as a whole, not each head */
  ARCH_QK_NORM_AFTER_ROPE = 1 << 4, /* else before */
  ARCH_FFN_SCALE = 1 << 5,          /* scales of the feed-forward matrices count, as llama.cpp has it */
  ARCH_POST_ATTN_IS_FFN = 1 << 6,   /* post_attention_norm is the norm before the feed-forward */
  ARCH_EMBED_NORM = 1 << 7,     /* token_embd_norm is applied to the embedding, else it is the last norm */
  ARCH_NORM_AFTER_ADD = 1 << 8, /* norms come after the residual additions (BERT) */
  ARCH_NO_OUTPUT = 1 << 9,      /* no logits: an embedding model */
} arch_flag;

typedef struct arch_row {
  const char *name;        /* general.architecture, also the prefix of its keys */
  const uint8_t *required; /* roles, up to ROLE_COUNT */
  const uint8_t *optional;
  const uint8_t *ignored; /* what files may hold and llama.cpp does not apply; NULL: none */
  uint32_t flags;         /* of arch_flag */
  rope_kind rope;
  ffn_act act;
  /* Reads what only this architecture has, after everything common; may be NULL. */
  void (*tune)(key_reader *r, lnl_model *model);
} arch_row;

/* NULL when the architecture is unknown. */
const arch_row *arch_find(lnl_span name);
/* All rows, for lists in messages and for tests. */
const arch_row *arch_list(uint32_t *count);

bool arch_has(const arch_row *row, arch_flag flag);
/* Whether the row names that role at all, and whether it must be there. */
bool arch_uses(const arch_row *row, weight_role role, bool *required);
bool arch_ignores(const arch_row *row, weight_role role);

/* Emits the steps of one forward pass. block.c. */
void block_build(struct plan_builder *b);

#endif
