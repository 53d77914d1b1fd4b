/* A small random llama model as GGUF bytes in memory, and the loop that every
 * host writes: feed the header, plan, bind, feed the weights. */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include "../../src/lineal.h"

typedef struct tiny_config {
  uint32_t n_layer, d_model, n_head, n_kv_head, d_head, d_ff, n_vocab, n_ctx;
  bool tied, biases, rope_freqs;
  uint32_t vector_type; /* GGML type of norms and biases: 0 F32, 1 F16 */
  uint32_t matrix_type; /* of all matrices: 0 F32, or a block type, whose codes are then random */
  uint32_t seed;
  const char *arch;        /* NULL: "llama" */
  const char *drop_tensor; /* left out */
  const char *drop_key;    /* left out */
  const char *wrong_shape; /* this tensor gets one row too many */
} tiny_config;

typedef struct tiny_file {
  uint8_t *data; /* malloc */
  size_t bytes;
} tiny_file;

tiny_config tiny_default(void);
tiny_file tiny_write(const tiny_config *config);

/* Feeds the header in pieces of `piece` bytes (0: all at once). */
lnl_status tiny_header(lnl_engine *e, const tiny_file *file, size_t piece);
/* Feeds the present need. */
lnl_status tiny_feed(lnl_engine *e, const tiny_file *file, uint32_t most);
/* Feeds all weights, at most `most` bytes at a time (0: no limit). */
lnl_status tiny_load(lnl_engine *e, const tiny_file *file, uint32_t most);
/* Header, plan, bind and, if load is set, weights. */
lnl_status tiny_open(lnl_engine *e, const tiny_file *file, const lnl_plan_options *options, bool load);
/* Evaluates to the end, feeding what is asked for. */
lnl_status tiny_eval(lnl_engine *e, const tiny_file *file);

/* Lives `life` again and again, its first, second, ... allocation failing, until none does: it says
 * OUT_OF_MEMORY or errs on the safe side, and leaves nothing. How often it said so. */
typedef lnl_status (*tiny_life)(const tiny_file *file, uint64_t budget);
uint32_t tiny_fail_each_allocation(tiny_life life, const tiny_file *file, uint64_t budget);

lnl_host tiny_host(void);

#endif
