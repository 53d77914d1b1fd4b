/* From what is asked for to a plan: what was left to us is decided, and where it does not
 * fit given up, one thing after the other. The memory table is in budget.c, where a single
 * tensor lives in place.c. */
#include "engine.h"

/* --- each tensor ---------------------------------------------------------------- */

/* What is asked for of a tensor by its name: the first rule that matches. */
static place_wish wish_by_name(const lnl_engine *e, const gguf_tensor *t) {
  const char *text = e->options.tensors;
  place_rule rule;
  while (place_next_rule(&text, &rule)) {
    if (place_rule_matches(&rule, (const char *)t->name.data, t->name.bytes)) return rule.wish;
  }
  return WISH_NONE;
}

/* A rule that no tensor follows is a misspelt one. */
static lnl_status check_rules(lnl_engine *e) {
  const char *text = e->options.tensors;
  place_rule rule;
  while (place_next_rule(&text, &rule)) {
    int bytes = (int)u32_min(rule.glob_bytes, 80);
    if (rule.wish == WISH_NONE) {
      return error_set(&e->error, LNL_BAD_ARGUMENT,
                       "the override of '%.*s' names no form: stored, x8, f32 or f16", bytes, rule.glob);
    }
    bool used = false;
    for (uint32_t i = 0; i < e->model.weight_count && !used; i++) {
      const gguf_tensor *t = e->model.weights[i].stored;
      used = place_rule_matches(&rule, (const char *)t->name.data, t->name.bytes);
    }
    if (!used)
      return error_set(&e->error, LNL_BAD_ARGUMENT, "no tensor's name is like '%.*s'", bytes, rule.glob);
  }
  return LNL_OK;
}

lnl_status resolve_place(lnl_engine *e, uint32_t i, bool streamed) {
  const lnl_form *f32 = form_find(TYPE_F32), *f16 = form_find(TYPE_F16);
  lnl_weight *w = &e->model.weights[i];
  const gguf_tensor *t = w->stored;
  place_query query = {
      .host = &e->host,
      .profile = e->profile,
      .tensor_wish = wish_by_name(e, t),
      .uniform_wish = (place_wish)e->options.hold,
      .vector = model_role_is_vector(w->role),
      .embedding = model_role_use(w->role) == USE_EMBED,
      .also_output = w->role == ROLE_TOKEN_EMBD && e->model.tied_output && !e->model.embeds,
      .stored_f32 = w->form == f32,
      .stored_f16 = w->form == f16,
      .integer = w->form->activation == ACT_Q8,
      .kernel = w->form->kernel,
      .kernel_f32 = f32->kernel,
      .kernel_f16 = f16->kernel,
      .stored_bytes = t->bytes,
      .value_count = model_value_count(w),
      .tight = e->tight,
      .stream = streamed,
  };
  if (w->form->packing && model_can_pack(&e->model, w)) {
    query.packed_kernel = w->form->packing->kernel;
    /* experts are matrices of their own */
    query.packed_bytes =
        t->shape[2] * form_group_count((uint32_t)t->shape[1]) * form_group_bytes(w->form, t->shape[0]);
  }
  place_resolve(&query, &w->place);
  w->held = w->place.hold == HOLD_F32 ? f32 : w->place.hold == HOLD_F16 ? f16 : w->form;
  if (!w->place.refused) return LNL_OK;
  return error_set(&e->error, LNL_UNSUPPORTED_TYPE,
                   "tensor '%.*s' is %s, which no integer kernel reads, and the profile '%s' is strict",
                   (int)t->name.bytes, (const char *)t->name.data, w->form->name, e->profile->name);
}

static lnl_status place_weights(lnl_engine *e, bool tight) {
  e->tight = tight;
  e->streams = false;
  e->expert_places = 0;
  for (uint32_t i = 0; i < e->model.weight_count; i++) LNL_TRY(resolve_place(e, i, false));
  return LNL_OK;
}

/* --- options --------------------------------------------------------------------- */

static lnl_status check_options(lnl_engine *e, const lnl_plan_options *o) {
  const lnl_hparams *hp = &e->model.hp;
  if (o->n_ctx > hp->n_ctx_train && o->n_ctx != LNL_LARGEST_CONTEXT) {
    return error_set(&e->error, LNL_CONTEXT_TOO_LONG,
                     "a context of %u tokens was asked for; the model was trained for %u", o->n_ctx,
                     hp->n_ctx_train);
  }
  if (o->kv >= KV_TYPE_COUNT || o->kv_v >= KV_TYPE_COUNT) {
    return error_set(&e->error, LNL_BAD_ARGUMENT, "unknown cache type %u", u32_max(o->kv, o->kv_v));
  }
  if (o->kv_v && !o->kv)
    return error_set(&e->error, LNL_BAD_ARGUMENT, "a type for values, and none for keys");
  if (o->profile >= PROFILE_COUNT || o->hold >= WISH_COUNT)
    return error_set(&e->error, LNL_BAD_ARGUMENT, "unknown profile %u or form %u", o->profile, o->hold);
  return LNL_OK;
}

static void set_kv(lnl_engine *e, kv_type type, kv_choice why) {
  e->options.kv = e->options.kv_v = type;
  e->kv_choice = why;
}

/* What is best where there is room. */
static void choose_kv(lnl_engine *e) {
  if (!e->kv_was_auto) return;
  const bool small = kv_is_small(&e->model.hp, e->options.n_ctx);
  if (small && e->profile->kv_f32) {
    set_kv(e, KV_F32, KV_SMALL);
  } else {
    set_kv(e, KV_F16, small ? KV_OF_PROFILE : KV_LARGE);
  }
}

static void resolve_options(lnl_engine *e, const lnl_plan_options *options) {
  const lnl_hparams *hp = &e->model.hp;
  lnl_plan_options *o = &e->options;
  *o = *options;
  e->profile = place_find_profile((place_profile_id)o->profile, e->host.kind);
  o->embed = e->model.embeds = options->embed || arch_has(e->model.arch, ARCH_NO_OUTPUT);
  if (o->embed) o->all_logits = false;
  e->kv_was_auto = o->kv == KV_AUTO;
  e->kv_choice = KV_AS_ASKED;
  if (!o->kv_v) o->kv_v = o->kv;
  const bool whole = o->embed && !(hp->causal && hp->pooling == POOLING_LAST);
  if (o->chunk == 0) o->chunk = o->all_logits ? LNL_ALL_LOGITS_CHUNK : e->profile->chunk;
  /* all of a text is pooled, or looked at, at once */
  e->chunk_wish = whole ? UINT32_MAX : o->chunk;
  e->largest_wanted = o->n_ctx == LNL_LARGEST_CONTEXT;
  if (o->n_ctx == 0 || e->largest_wanted)
    o->n_ctx = u32_min(hp->n_ctx_train, whole ? LNL_EMBED_CONTEXT : LNL_DEFAULT_CONTEXT);
}

/* --- making it fit --------------------------------------------------------------- */

static lnl_status build_plan(lnl_engine *e, lnl_plan *plan, uint32_t token_rows, uint32_t output_rows) {
  plan_free(plan);
  LNL_TRY(plan_build(plan, &e->model, token_rows, output_rows, &e->error));
  if (e->options.spread) plan_spread(plan);
  return LNL_OK;
}

static lnl_status set_context(lnl_engine *e, uint32_t n_ctx) {
  const uint32_t chunk = u32_min(e->chunk_wish, n_ctx);
  e->options.n_ctx = n_ctx;
  e->options.chunk = chunk;
  if (e->prefill.token_rows == chunk) return LNL_OK;
  return build_plan(e, &e->prefill, chunk, e->options.all_logits ? chunk : 1);
}

/* With all weights in memory. What may be given up, one after the other, until it fits: forms
 * that are larger than the stored ones, then, if it was left to us, bits of the cache. */
static lnl_status fit_resident(lnl_engine *e) {
  choose_kv(e);
  LNL_TRY(place_weights(e, false));
  LNL_TRY(budget_make(e));
  if (e->budget.fits) return LNL_OK;
  LNL_TRY(place_weights(e, true));
  LNL_TRY(budget_make(e));
  static const kv_type smaller[] = {KV_F16, KV_Q8_0};
  for (uint32_t i = 0; i < 2 && e->kv_was_auto && !e->budget.fits; i++) {
    if (smaller[i] == KV_Q8_0 && !e->profile->kv_q8) break;
    uint64_t bytes = kv_bytes(&e->model.hp, kv_both(smaller[i]), e->options.n_ctx);
    if (bytes >= e->budget.planned.kv) continue;
    set_kv(e, smaller[i], KV_TO_FIT);
    LNL_TRY(budget_make(e));
  }
  return LNL_OK;
}

/* Streamed weights are in the fastest forms again, and give the same bits. */
static lnl_status stream_what_must(lnl_engine *e) {
  LNL_TRY(place_weights(e, true));
  LNL_TRY(budget_make(e));
  LNL_TRY(place_weights(e, false));
  LNL_TRY(budget_stream(e));
  if (!e->streams) LNL_TRY(place_weights(e, true));
  LNL_TRY(budget_make(e)); /* once more, with what is known of streaming */
  if (e->streams) e->budget.max_ctx = budget_largest_context(e);
  return LNL_OK;
}

/* What is left when nothing else makes it fit. Then the cache is again that of the
 * resident model, for the same bits, unless that is too much. */
static lnl_status fit_by_streaming(lnl_engine *e) {
  const kv_type least = (kv_type)e->options.kv;
  choose_kv(e);
  LNL_TRY(stream_what_must(e));
  if (e->budget.fits || !e->kv_was_auto || least == (kv_type)e->options.kv) return LNL_OK;
  set_kv(e, least, KV_TO_FIT);
  return stream_what_must(e);
}

/* Plans for a context: in what 32-bit addresses reach if that can be, else in what wider ones
 * do, where they may be had and with nothing given up before it must; then by streaming. */
static lnl_status fit(lnl_engine *e, uint32_t n_ctx, bool stream) {
  LNL_TRY(set_context(e, n_ctx));
  budget_reach_own(e);
  LNL_TRY(fit_resident(e));
  if (budget_choose_address(e)) LNL_TRY(fit_resident(e));
  e->budget.max_ctx = budget_largest_context(e);
  return stream && !e->budget.fits ? fit_by_streaming(e) : LNL_OK;
}

/* With the largest context that fits; after the usual one was tried. Less than that one is
 * not worth what streaming would not need. */
static lnl_status fit_largest(lnl_engine *e) {
  const lnl_budget *b = &e->budget;
  const uint32_t usual = e->options.n_ctx;
  if (b->max_ctx < usual && (!b->max_ctx || (e->options.stream && budget_can_stream(e)))) {
    LNL_TRY(fit(e, usual, true));
    if (b->fits || !b->max_ctx) return LNL_OK;
  }
  return fit(e, b->max_ctx, true);
}

lnl_status resolve_plan(lnl_engine *e, const lnl_plan_options *options) {
  LNL_TRY(tok_check(&e->shards[0], &e->tok_kind, &e->n_vocab_tok, &e->error));
  LNL_TRY(model_read(&e->model, e->shards, e->shard_count, e->n_vocab_tok, &e->error));
  if (!e->model.has_weights) {
    return error_set(&e->error, LNL_NO_WEIGHTS, "the file holds a vocabulary of %u tokens and no tensor",
                     e->n_vocab_tok);
  }
  LNL_TRY(check_options(e, options));
  resolve_options(e, options);
  LNL_TRY(check_rules(e));
  e->least = (lnl_memory){0};
  LNL_TRY(place_weights(e, true));
  LNL_TRY(budget_note_tight(e));
  LNL_TRY(place_weights(e, false));
  LNL_TRY(build_plan(e, &e->decode, 1, 1));
  LNL_TRY(fit(e, e->options.n_ctx, !e->largest_wanted));
  if (e->largest_wanted) LNL_TRY(fit_largest(e));
  budget_suggest(e);
  return LNL_OK;
}
