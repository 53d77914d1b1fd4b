/* The sampler: logits to one token id. Order of the steps: repetition penalty,
 * top-k, top-p, min-p, temperature, draw. Allocates nothing. */
#ifndef LNL_SAMPLE_H
#define LNL_SAMPLE_H

#include "base.h"

typedef struct sample_params {
  float temperature;    /* >= 0; 0 takes the most likely id */
  uint32_t top_k;       /* keep the k most likely; 0 = off */
  float top_p;          /* keep the least set whose probability reaches p; 1 = off. Holtzman et al. 2019 */
  float min_p;          /* drop what is less likely than p times the best; 0 = off. Nguyen et al. 2024 */
  float repeat_penalty; /* > 0; divides (or multiplies, if negative) the logit of recent ids; 1 = off. Keskar
                           et al. 2019 */
  uint32_t repeat_last_n; /* how many recent ids are penalised */
  uint64_t seed;
} sample_params;

typedef struct sample_candidate {
  float logit;
  int32_t id;
} sample_candidate;

typedef struct lnl_sampler {
  sample_params params;
  uint64_t rng[2];              /* xoroshiro128+, Blackman and Vigna 2018 */
  sample_candidate *candidates; /* [n_vocab], in the session's scratch */
} lnl_sampler;

/* Checks ranges and seeds. Status: BAD_ARGUMENT naming the option. */
lnl_status sample_set(lnl_sampler *s, const sample_params *params, lnl_error *error);

/* One id from logits [n_vocab], which stay as they are. recent: the last
 * recent_count ids of the timeline, oldest first. The same seed, logits and
 * history give the same ids on every build of the same instruction set. */
int32_t sample_next(lnl_sampler *s, const float *logits, uint32_t n_vocab, const int32_t *recent,
                    uint32_t recent_count);

#endif
