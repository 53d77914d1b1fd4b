/* Hyperparameters from a header's keys. Reads headers, allocates nothing. */
#ifndef LNL_HPARAMS_H
#define LNL_HPARAMS_H

#include "model.h"

/* Reads the keys of one architecture, remembering the first failure. Names of
 * keys are given without the architecture's prefix. */
typedef struct key_reader {
  const gguf *file;
  const char *prefix; /* general.architecture */
  lnl_error *error;
  lnl_status status;
} key_reader;

bool key_find(const key_reader *r, const char *suffix, gguf_value *value);
void key_fail(key_reader *r, lnl_status status, const char *suffix, const char *what);
/* An integer in 1..max, or the fallback when the key is absent (0: required). */
uint32_t key_count(key_reader *r, const char *suffix, uint32_t max, uint32_t fallback);
/* The same, where absent and 0 mean that there is none. */
uint32_t key_count_or_none(key_reader *r, const char *suffix, uint32_t max);
/* Element `index` of an array of integers, or the key's one integer. Absent: fallback. */
uint32_t key_count_at(key_reader *r, const char *suffix, uint32_t index, uint32_t max, uint32_t fallback);
float key_float(key_reader *r, const char *suffix, float fallback);
bool key_bool(key_reader *r, const char *suffix, bool fallback);

/* The number of layers, without which there is no room for the rest. */
lnl_status hparams_read_layers(uint32_t *n_layer, const lnl_model *model, const gguf *file, lnl_error *error);
/* Fills model->hp but for n_vocab, and model->layers. Statuses: see model_read. */
lnl_status hparams_read(lnl_model *model, const gguf *file, lnl_error *error);

#endif
