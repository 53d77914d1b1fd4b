/* One timeline of tokens: prompt, evaluation in chunks, sampling. */
#include <math.h>
#include <string.h>

#include "engine.h"
#include "kernels/kernels.h"

static bool ready(lnl_engine *e) {
  if (e->phase == PHASE_BOUND && e->history) return true;
  error_set(&e->error, LNL_BAD_STATE, "the model is not loaded");
  return false;
}

/* LongRoPE has two sets of factors, by the length of the text. Chen et al., 2024. */
static bool needs_long_factors(const lnl_engine *e, uint32_t n_total) {
  return model_weight(&e->model, ROLE_ROPE_LONG, 0) && n_total > e->model.hp.n_ctx_short;
}

lnl_status lnl_set_sampler(lnl_engine *e, const struct sample_params *params) {
  return sample_set(&e->sampler, params, &e->error);
}

int32_t lnl_prompt(lnl_engine *e, const int32_t *ids, uint32_t count, bool reuse) {
  if (!ready(e)) return LNL_BAD_STATE;
  if (count == 0) return error_set(&e->error, LNL_EMPTY_PROMPT, "the prompt holds no token");
  if (count > e->options.n_ctx) {
    return error_set(&e->error, LNL_PROMPT_TOO_LONG, "the prompt has %u tokens, but the context holds %u",
                     count, e->options.n_ctx);
  }
  for (uint32_t i = 0; i < count; i++) {
    if (ids[i] < 0 || (uint32_t)ids[i] >= e->model.hp.n_vocab) {
      return error_set(&e->error, LNL_BAD_TOKEN, "token id %d at position %u is outside the vocabulary of %u",
                       ids[i], i, e->model.hp.n_vocab);
    }
  }
  uint32_t common = 0;
  if (reuse) {
    uint32_t most = u32_min(e->n_past, count - 1);
    while (common < most && e->history[common] == ids[common]) common++;
  }
  /* A convolution's state is that of the last position alone: it goes on from
   * there, or all is computed again. */
  if (e->model.embeds && e->options.chunk >= e->options.n_ctx) common = 0; /* all rows are pooled */
  if (e->model.hp.n_conv_layer && (common < e->n_past || e->running)) common = 0;
  if (needs_long_factors(e, count) != e->long_text) common = 0;
  /* A step that was suspended is forgotten: its positions were not counted. */
  exec_settle(&e->exec);
  e->running = false;
  if (e->need_piece) e->need_weight = NULL; /* its place in the window is given up */
  memcpy(e->history, ids, count * sizeof *ids);
  e->n_past = common;
  e->n_total = count;
  e->full = false;
  e->logits_rows = 0;
  return (int32_t)common;
}

static void start_chunk(lnl_engine *e) {
  /* A text that grows past the border has its earlier positions computed again:
   * keys turned by one set of factors do not go with queries turned by the other. */
  if (needs_long_factors(e, e->n_total) != e->long_text) {
    e->long_text = !e->long_text;
    e->n_past = 0;
  }
  uint32_t pending = e->n_total - e->n_past;
  uint32_t n_tok = u32_min(pending, e->options.chunk);
  bool last = n_tok == pending;
  const lnl_plan *plan = n_tok == 1 && !e->options.all_logits ? &e->decode : &e->prefill;
  arena_reset(&e->slab);
  e->exec = (lnl_exec){
      .plan = plan,
      .model = &e->model,
      .kv = &e->kv,
      .inverse_freq = e->inverse_freq,
      .slab = e->slab_base,
      .pool = &e->pool,
      .window = e->window.slots ? &e->window : NULL,
      .scratch = e->attn_scratch,
      .scratch_bytes = e->attn_scratch_stride,
      .tokens = e->history + e->n_past,
      .n_tok = n_tok,
      .long_text = e->long_text,
      .position = e->n_past,
      /* Logits: of all positions if so planned, else of the very last one. */
      .output_begin = e->options.all_logits ? 0
                      : last                ? n_tok - 1
                                            : n_tok,
  };
  e->running = true;
  e->logits_rows = 0;
}

/* The vector of a text must have a direction. */
static lnl_status check_vector(lnl_engine *e) {
  const float *v = exec_logits(&e->exec);
  double squares = 0;
  for (uint32_t i = 0; i < e->model.hp.d_model; i++) squares += (double)v[i] * (double)v[i];
  if (squares > 0 && isfinite(squares)) return LNL_OK;
  e->logits_rows = 0;
  return error_set(&e->error, LNL_NOT_NUMBERS, "the vector of the text is %s",
                   squares == 0 ? "zero" : "not a number");
}

lnl_status lnl_eval(lnl_engine *e) {
  if (!ready(e)) return LNL_BAD_STATE;
  if (!e->running) {
    if (e->n_total == e->n_past) {
      if (e->full)
        return error_set(&e->error, LNL_CONTEXT_FULL, "all %u positions are taken", e->options.n_ctx);
      return error_set(&e->error, LNL_BAD_STATE, "no token is pending");
    }
    start_chunk(e);
  }
  lnl_weight *missing;
  stream_piece *piece;
  e->exec.step_limit = e->step_limit;
  lnl_status status = exec_run(&e->exec, &missing, &piece);
  if (status == LNL_MORE) return LNL_MORE;
  if (status == LNL_NEED_BYTES) {
    if (!missing) return engine_ask_for_piece(e, piece);
    return e->load_ahead ? lnl_load_next(e) : engine_ask_for(e, missing);
  }
  if (status < 0) {
    e->phase = PHASE_FAILED;
    return error_set(&e->error, status, "one of the %u threads of the engine stopped", e->pool.thread_count);
  }
  e->running = false;
  e->n_past += e->exec.n_tok;
  e->logits_rows = e->exec.n_tok - e->exec.output_begin;
  if (e->model.embeds && e->logits_rows) LNL_TRY(check_vector(e));
  return e->n_past < e->n_total ? LNL_MORE : LNL_OK;
}

void lnl_set_step_limit(lnl_engine *e, uint32_t steps) { e->step_limit = steps; }

uint32_t lnl_next_step(const lnl_engine *e) { return e->running ? e->exec.step : 0; }

uint32_t lnl_chunk_tokens(const lnl_engine *e) { return e->exec.n_tok; }

const float *lnl_logits(const lnl_engine *e, uint32_t *rows) {
  *rows = e->logits_rows;
  return e->logits_rows ? exec_logits(&e->exec) : NULL;
}

int32_t lnl_sample(lnl_engine *e) {
  if (!ready(e)) return LNL_BAD_STATE;
  if (e->model.embeds)
    return error_set(&e->error, LNL_BAD_STATE, "the model was opened for embeddings, it gives no logits");
  if (!e->logits_rows || e->n_past != e->n_total || e->full) {
    return error_set(&e->error, LNL_BAD_STATE, "no logits are ready to sample from");
  }
  uint32_t n_vocab = e->model.hp.n_vocab;
  const float *logits = exec_logits(&e->exec) + (size_t)(e->logits_rows - 1) * n_vocab;
  uint32_t recent = u32_min(e->sampler.params.repeat_last_n, e->n_total);
  int32_t id = sample_next(&e->sampler, logits, n_vocab, e->history + e->n_total - recent, recent);
  /* NaN never wins, so it is the winner's only when there is nothing else. */
  if (isnan(logits[id])) {
    return error_set(&e->error, LNL_NOT_NUMBERS, "after token %u every logit is NaN%s", e->n_past,
                     kv_is_finite(&e->kv) ? "" : ": a key or a value is beyond the 16 bits of the cache");
  }
  if (e->n_total < e->options.n_ctx) {
    e->history[e->n_total++] = id;
  } else {
    e->full = true;
  }
  return id;
}

double lnl_logprob(const lnl_engine *e, uint32_t row, int32_t id) {
  uint32_t n_vocab = e->model.hp.n_vocab;
  if (e->model.embeds || row >= e->logits_rows || id < 0 || (uint32_t)id >= n_vocab) return -(double)INFINITY;
  const float *logits = exec_logits(&e->exec) + (size_t)row * n_vocab;
  return (double)logits[id] - log_sum_exp(logits, n_vocab);
}
