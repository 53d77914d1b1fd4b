/* The life of an engine: headers, plan, memory, weights. What is planned is decided in
 * resolve.c; the session is in session.c, the memory table in budget.c, the texts in explain.c. */
#include "engine.h"

#include <string.h>

#include "kernels/kernels.h"

/* A failure of the file or the machine ends the engine; a request that cannot
 * be met does not (see status.inc). */
static lnl_status leave(lnl_engine *e, lnl_status status) {
  bool of_the_file = status <= LNL_NOT_GGUF && status > LNL_CONTEXT_TOO_LONG;
  if (of_the_file || status == LNL_OUT_OF_MEMORY || status == LNL_INTERNAL) e->phase = PHASE_FAILED;
  return status;
}

static lnl_status bad_state(lnl_engine *e, const char *what) {
  return error_set(&e->error, LNL_BAD_STATE, "%s", what);
}

lnl_engine *lnl_open(const lnl_host *host) {
  lnl_engine *e = mem_alloc(sizeof *e);
  if (!e) return NULL;
  memset(e, 0, sizeof *e);
  e->host = *host;
  e->own_bits = 8 * sizeof(void *);
  e->threads = host_choose_threads(host, pool_can_share(), POOL_MAX_THREADS);
  pool_init(&e->pool, e->threads.count);
  e->prefill.logits = e->decode.logits = NO_VALUE;
  return e;
}

static void free_shards(lnl_engine *e) {
  for (uint32_t i = 0; i < e->shard_count; i++) gguf_free(&e->shards[i]);
  mem_free(e->shards);
  mem_free(e->mapped);
  e->shards = NULL;
  e->mapped = NULL;
  e->shard_count = 0;
}

static void free_plan(lnl_engine *e) {
  plan_free(&e->prefill);
  plan_free(&e->decode);
  model_free(&e->model);
}

void lnl_close(lnl_engine *e) {
  if (!e) return;
  arena_free(&e->tables);
  arena_free(&e->weights);
  arena_free(&e->staging);
  arena_free(&e->streaming);
  arena_free(&e->cache);
  arena_free(&e->slab);
  arena_free(&e->scratch);
  free_plan(e);
  free_shards(e);
  mem_free(e);
}

const lnl_error *lnl_get_error(const lnl_engine *e) { return &e->error; }

lnl_status lnl_set_error(lnl_engine *e, lnl_status status, const char *message) {
  return error_set(&e->error, status, "%s", message);
}

/* --- header -------------------------------------------------------------------- */

lnl_status lnl_header_begin(lnl_engine *e, uint32_t shard, uint64_t file_bytes) {
  if (e->phase != PHASE_HEADER) return bad_state(e, "a header was begun after all headers were read");
  if (shard == 0 && !e->shards) {
    e->shards = mem_alloc(sizeof *e->shards);
    if (!e->shards) return leave(e, error_set(&e->error, LNL_OUT_OF_MEMORY, "no memory for the header"));
    e->shard_count = 1;
  } else if (shard != e->shard_at + 1 || shard >= e->shard_count) {
    return bad_state(e, "headers must be begun in order, each once");
  }
  e->shard_at = shard;
  gguf_init(&e->shards[shard], file_bytes);
  return LNL_OK;
}

uint8_t *lnl_header_reserve(lnl_engine *e, size_t bytes) {
  if (e->phase != PHASE_HEADER || !e->shards) {
    bad_state(e, "no header is being read");
    return NULL;
  }
  uint8_t *at = gguf_reserve(&e->shards[e->shard_at], bytes);
  if (!at)
    leave(e, error_set(&e->error, LNL_OUT_OF_MEMORY, "no memory for %zu more bytes of the header", bytes));
  return at;
}

/* Shard 0 says how many files there are: make room for their headers. */
static lnl_status expect_shards(lnl_engine *e) {
  uint64_t count = 1, number = 0;
  gguf_get_u64(&e->shards[0], "split.count", &count);
  gguf_get_u64(&e->shards[0], "split.no", &number);
  if (count <= 1) return LNL_OK;
  if (count > MODEL_MAX_SHARDS) {
    return error_set(&e->error, LNL_GGUF_LIMIT,
                     "the model is split into %llu files; at most %d are supported",
                     (unsigned long long)count, MODEL_MAX_SHARDS);
  }
  if (number != 0) {
    return error_set(&e->error, LNL_SPLIT_MISMATCH,
                     "this is part %llu of %llu of a split model; part 1 must come first",
                     (unsigned long long)number + 1, (unsigned long long)count);
  }
  gguf *all = mem_resize(e->shards, (size_t)count * sizeof *all);
  if (!all)
    return error_set(&e->error, LNL_OUT_OF_MEMORY, "no memory for the headers of %u files", (uint32_t)count);
  e->shards = all;
  for (uint32_t i = 1; i < count; i++) gguf_init(&all[i], GGUF_SIZE_UNKNOWN);
  e->shard_count = (uint32_t)count;
  return LNL_OK;
}

static lnl_status check_shard(lnl_engine *e) {
  uint64_t count = 0, number = 0;
  const gguf *file = &e->shards[e->shard_at];
  gguf_get_u64(file, "split.count", &count);
  gguf_get_u64(file, "split.no", &number);
  if (count != e->shard_count || number != e->shard_at) {
    return error_set(&e->error, LNL_SPLIT_MISMATCH,
                     "expected part %u of %u of the split model, found part %llu of %llu", e->shard_at + 1,
                     e->shard_count, (unsigned long long)number + 1, (unsigned long long)count);
  }
  return LNL_OK;
}

static lnl_status header_complete(lnl_engine *e) {
  LNL_TRY(e->shard_at == 0 ? expect_shards(e) : check_shard(e));
  if (e->shard_at + 1 < e->shard_count) return LNL_OK;
  e->phase = PHASE_READ;
  return LNL_OK;
}

lnl_status lnl_header_push(lnl_engine *e, size_t bytes) {
  if (e->phase != PHASE_HEADER || !e->shards) return bad_state(e, "no header is being read");
  lnl_status status = gguf_push(&e->shards[e->shard_at], bytes, &e->error);
  if (status == LNL_OK) status = header_complete(e);
  return leave(e, status);
}

lnl_status lnl_header_finish(lnl_engine *e) {
  if (!e->shards) return bad_state(e, "no header is being read");
  return leave(e, gguf_finish(&e->shards[e->shard_at], &e->error));
}

uint32_t lnl_shard_count(const lnl_engine *e) {
  bool counted = e->phase != PHASE_HEADER || e->shard_count > 1;
  return counted ? e->shard_count : 0;
}

lnl_span lnl_header_image(const lnl_engine *e, uint32_t shard) {
  if (e->phase == PHASE_HEADER || e->phase == PHASE_FAILED || shard >= e->shard_count) return (lnl_span){0};
  const gguf *file = &e->shards[shard];
  return (lnl_span){file->parse.image, (size_t)file->parse.image_bytes};
}

/* --- plan ---------------------------------------------------------------------- */

lnl_status lnl_plan_for(lnl_engine *e, const lnl_plan_options *options) {
  if (e->phase != PHASE_READ && e->phase != PHASE_PLANNED)
    return bad_state(e, "the header is not complete, or memory is bound");
  free_plan(e);
  e->phase = PHASE_READ;
  lnl_status status = resolve_plan(e, options);
  e->options.tensors = NULL; /* the caller's */
  if (status == LNL_OK) e->phase = PHASE_PLANNED;
  return leave(e, status);
}

const lnl_budget *lnl_get_budget(const lnl_engine *e) { return &e->budget; }

kv_types engine_kv_types(const lnl_engine *e) {
  return (kv_types){(kv_type)e->options.kv, (kv_type)e->options.kv_v};
}

/* --- memory -------------------------------------------------------------------- */

lnl_status engine_layout_tables(lnl_engine *e, lnl_arena *arena) {
  if (e->tok_kind != TOK_NONE) LNL_TRY(tok_layout(arena, &e->shards[0], &e->tok, &e->error));
  const lnl_hparams *hp = &e->model.hp;
  e->inverse_freq = arena_take(arena, (uint64_t)ROPE_SET_COUNT * (hp->n_rot / 2) * sizeof(float));
  if (e->inverse_freq) exec_inverse_freq(e->inverse_freq, hp->n_rot, hp->rope);
  return LNL_OK;
}

lnl_status engine_layout_weights(lnl_engine *e, lnl_arena *arena) {
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    lnl_weight *w = &e->model.weights[i];
    if (w->place.domain == DOMAIN_HEAP) w->data = arena_take(arena, w->place.resident_bytes);
  }
  return LNL_OK;
}

lnl_status engine_layout_window(lnl_engine *e, lnl_arena *arena) {
  const uint32_t threads = e->pool.thread_count;
  stream_layout(&e->window, arena, &e->model, threads, threads > 1 || !e->host.sync_read,
                e->options.window_bytes, e->expert_places);
  return LNL_OK;
}

lnl_status engine_layout_cache(lnl_engine *e, lnl_arena *arena) {
  kv_layout(&e->kv, arena, &e->model.hp, engine_kv_types(e), e->options.n_ctx);
  return LNL_OK;
}

lnl_status engine_layout_slab(lnl_engine *e, lnl_arena *arena) {
  e->slab_base = arena_take(arena, u64_max(e->prefill.slab_bytes, e->decode.slab_bytes));
  return LNL_OK;
}

lnl_status engine_layout_scratch(lnl_engine *e, lnl_arena *arena) {
  const lnl_hparams *hp = &e->model.hp;
  e->attn_scratch_stride = align_up(attn_scratch_bytes(hp->d_head, hp->d_value), MEM_ALIGN);
  e->attn_scratch = arena_take(arena, e->attn_scratch_stride * e->pool.thread_count);
  e->thread_blocks = arena_take(arena, pool_thread_bytes() * (e->pool.thread_count - 1));
  e->sampler.candidates = arena_take(arena, (uint64_t)hp->n_vocab * sizeof *e->sampler.candidates);
  e->history = arena_take(arena, (uint64_t)e->options.n_ctx * sizeof *e->history);
  return LNL_OK;
}

uint64_t engine_early_table_bytes(const lnl_engine *e) {
  uint64_t bytes = sizeof *e + e->model.block_bytes + e->prefill.block_bytes + e->decode.block_bytes;
  for (uint32_t i = 0; i < e->shard_count; i++) bytes += gguf_resident_bytes(&e->shards[i]);
  return bytes;
}

static lnl_status bind_scope(lnl_engine *e, lnl_arena *arena, engine_layout layout, const char *name) {
  *arena = (lnl_arena){0};
  LNL_TRY(layout(e, arena));
  uint64_t bytes = arena->used_bytes;
  if (bytes == 0) return LNL_OK; /* nothing of this kind */
  if (arena_bind(arena) < 0) {
    return error_set(&e->error, LNL_OUT_OF_MEMORY, "the host refused %llu bytes for the %s",
                     (unsigned long long)bytes, name);
  }
  LNL_TRY(layout(e, arena));
  arena_seal(arena);
  return LNL_OK;
}

/* Points mapped weights into their mappings: nothing is loaded for them. */
static lnl_status use_mappings(lnl_engine *e) {
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    lnl_weight *w = &e->model.weights[i];
    if (w->place.domain != DOMAIN_MAPPED) continue;
    const mapped_shard *m = e->mapped ? &e->mapped[w->shard] : NULL;
    if (!m || !m->data)
      return error_set(&e->error, LNL_BAD_STATE, "part %u of the model was not mapped", w->shard + 1);
    if (w->stored->offset > m->bytes || w->stored->bytes > m->bytes - w->stored->offset) {
      return error_set(&e->error, LNL_GGUF_TRUNCATED, "tensor '%.*s' ends beyond the mapped file",
                       (int)w->stored->name.bytes, (const char *)w->stored->name.data);
    }
    /* The kernels read weights only; the cast drops const for the HEAP case. */
    w->data = (uint8_t *)(uintptr_t)(m->data + w->stored->offset);
    w->loaded_bytes = w->stored->bytes;
  }
  return LNL_OK;
}

static lnl_status take_headroom(lnl_engine *e) {
  if (mem_headroom_bytes() == 0) return LNL_OK;
  void *room = mem_alloc((size_t)mem_headroom_bytes());
  if (!room) return error_set(&e->error, LNL_OUT_OF_MEMORY, "the host refused room for prompts");
  mem_free(room);
  return LNL_OK;
}

static lnl_status bind_all(lnl_engine *e) {
  LNL_TRY(bind_scope(e, &e->tables, engine_layout_tables, "tables"));
  LNL_TRY(bind_scope(e, &e->weights, engine_layout_weights, "weights"));
  LNL_TRY(bind_scope(e, &e->staging, engine_layout_staging, "loader"));
  LNL_TRY(bind_scope(e, &e->streaming, engine_layout_window, "window"));
  LNL_TRY(bind_scope(e, &e->cache, engine_layout_cache, "key-value cache"));
  LNL_TRY(bind_scope(e, &e->slab, engine_layout_slab, "activations"));
  LNL_TRY(bind_scope(e, &e->scratch, engine_layout_scratch, "scratch"));
  LNL_TRY(take_headroom(e));
  LNL_TRY(use_mappings(e));
  sample_params greedy = {.top_p = 1, .repeat_penalty = 1};
  return sample_set(&e->sampler, &greedy, &e->error);
}

lnl_status lnl_bind(lnl_engine *e) {
  if (e->phase != PHASE_PLANNED) return bad_state(e, "bind comes once, after the plan");
  if (!e->budget.fits) {
    return leave(
        e, error_set(&e->error, LNL_DOES_NOT_FIT, "the model needs %llu bytes, but at most %llu may be used",
                     (unsigned long long)e->budget.planned.total, (unsigned long long)e->budget.limit_bytes));
  }
  lnl_status status = bind_all(e);
  if (status == LNL_OK) e->phase = PHASE_BOUND;
  return leave(e, status);
}

lnl_status lnl_map_shard(lnl_engine *e, uint32_t shard, const uint8_t *data, uint64_t bytes) {
  if (!e->host.can_map || e->phase == PHASE_BOUND || shard >= lnl_shard_count(e)) {
    return bad_state(e, "this host cannot map, or the shard does not exist");
  }
  if (!e->mapped) {
    e->mapped = mem_alloc(e->shard_count * sizeof *e->mapped);
    if (!e->mapped)
      return leave(e, error_set(&e->error, LNL_OUT_OF_MEMORY, "no memory for the table of mappings"));
    memset(e->mapped, 0, e->shard_count * sizeof *e->mapped);
  }
  e->mapped[shard] = (mapped_shard){data, bytes};
  return LNL_OK;
}

lnl_status lnl_bind_tokenizer(lnl_engine *e) {
  /* Of a split model the first part has it, and the others need not be read. */
  if (e->phase > PHASE_READ || lnl_shard_count(e) == 0)
    return bad_state(e, "the first header is not complete, or a plan was made");
  LNL_TRY(leave(e, tok_check(&e->shards[0], &e->tok_kind, &e->n_vocab_tok, &e->error)));
  if (e->tok_kind == TOK_NONE) return error_set(&e->error, LNL_NO_TOKENIZER, "the file has no tokenizer");
  lnl_status status = bind_scope(e, &e->tables, engine_layout_tables, "tokenizer");
  if (status == LNL_OK) e->phase = PHASE_BOUND;
  return leave(e, status);
}

const struct tok *lnl_get_tokenizer(const lnl_engine *e) { return e->tok; }

lnl_status lnl_tokenize(lnl_engine *e, const char *text, size_t bytes, uint32_t flags, int32_t **ids,
                        size_t *count) {
  *ids = NULL;
  *count = 0;
  if (!e->tok) return error_set(&e->error, LNL_NO_TOKENIZER, "the file has no tokenizer");
  return tok_encode(e->tok, text, bytes, flags, ids, count, &e->error);
}

struct lnl_pool *lnl_get_pool(lnl_engine *e) { return &e->pool; }

uint8_t *lnl_get_thread_block(lnl_engine *e, uint32_t thread) {
  if (e->phase != PHASE_BOUND || thread == 0 || thread >= e->pool.thread_count) return NULL;
  return e->thread_blocks + pool_thread_bytes() * (thread - 1);
}

void lnl_use_one_thread(lnl_engine *e) {
  pool_use_one(&e->pool);
  e->threads = (lnl_threads){1, "NOT_STARTED", "the other threads did not start", true};
}

lnl_info lnl_get_info(const lnl_engine *e) {
  lnl_info info = {
      .n_ctx = e->options.n_ctx,
      .n_ctx_train = e->model.hp.n_ctx_train,
      .n_vocab = e->model.hp.n_vocab ? e->model.hp.n_vocab : e->n_vocab_tok,
      .n_past = e->n_past,
      .n_embd = e->model.embeds ? e->model.hp.d_model : 0,
      .chunk = e->options.chunk,
      .bos = e->tok ? tok_bos(e->tok) : -1,
      .eos = e->tok ? tok_eos(e->tok) : -1,
      .has_tokenizer = e->tok_kind != TOK_NONE,
      .adds_bos = e->tok && tok_adds_bos(e->tok),
      .chunk_decodes = e->exec.plan == &e->decode,
  };
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    info.weight_bytes +=
        e->model.weights[i].place.domain == DOMAIN_HEAP ? e->model.weights[i].place.stored_bytes : 0;
    info.loaded_bytes +=
        e->model.weights[i].place.domain == DOMAIN_HEAP ? e->model.weights[i].loaded_bytes : 0;
  }
  info.streamed_bytes = e->window.fetched_bytes;
  info.expert_hits = e->window.hits;
  info.expert_misses = e->window.misses;
  for (uint32_t i = 0; i < e->shard_count; i++) info.header_bytes += e->shards[i].data_offset;
  return info;
}
