/* One row per architecture: which keys and weights it has and how its
 * dataflow goes. Adding an architecture is adding a row; a new dataflow is a
 * new block function. */
#ifndef LNL_ARCH_H
#define LNL_ARCH_H

#include "model.h"

struct plan_builder;

typedef enum rope_kind { ROPE_NORM, ROPE_NEOX } rope_kind;

typedef struct arch_row {
  const char *name;  /* general.architecture, also the prefix of its keys */
  uint64_t required; /* bits of weight_role */
  uint64_t optional;
  rope_kind rope;
  /* Emits the steps of one forward pass. */
  void (*build)(struct plan_builder *b);
} arch_row;

#define ROLE_BIT(role) (UINT64_C(1) << (role))

/* NULL when the architecture is unknown. */
const arch_row *arch_find(lnl_span name);
/* All rows, for lists in messages and for tests. */
const arch_row *arch_list(uint32_t *count);

#endif
