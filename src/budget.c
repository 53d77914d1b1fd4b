/* The memory table: what every scope will take, whether it fits, and what
 * could be done if it does not. */
#include <stdarg.h>
#include <stdlib.h>

#include "engine.h"

static uint64_t measure(lnl_engine *e, engine_layout layout, lnl_status *status) {
  lnl_arena arena = {0};
  lnl_status result = layout(e, &arena);
  if (result < 0) *status = result;
  return arena.used_bytes;
}

static uint64_t or_any(uint64_t bytes) { return bytes ? bytes : UINT64_MAX; }

/* What somebody said may be used, whatever the addresses; UINT64_MAX: nobody did. */
static uint64_t granted_bytes(const lnl_engine *e) {
  const uint64_t wish = e->options.budget_bytes ? e->options.budget_bytes : e->profile->ceiling_bytes;
  return u64_min(or_any(wish), or_any(e->host.max_memory_bytes));
}

static uint64_t allowed_bytes(const lnl_engine *e) {
  return u64_min(granted_bytes(e), or_any(e->ceiling_bytes));
}

static lnl_address address_for(const lnl_engine *e, uint64_t needed, uint64_t allowed) {
  return host_choose_address(&e->host, e->own_bits, e->options.module_asked, needed, allowed);
}

/* What addresses reach that are chosen where so much is needed. */
static uint64_t reach_for(const lnl_engine *e, uint64_t needed, uint64_t allowed) {
  return host_reach(&e->host, u32_max(e->own_bits, address_for(e, needed, allowed).bits));
}

/* What the host has, whatever is allowed. */
static uint64_t hard_limit(const lnl_engine *e) {
  const uint64_t most = u64_min(or_any(e->host.max_memory_bytes), or_any(e->ceiling_bytes));
  return u64_min(most, reach_for(e, UINT64_MAX, most));
}

/* What is beyond our own addresses is planned again by another module, whose tables may be
 * twice as large. */
static uint64_t in_its_module(const lnl_engine *e, uint64_t total) {
  enum { ROUNDING = 65536 };
  return total > host_reach(&e->host, e->own_bits) ? total + e->budget.planned.tables + ROUNDING : total;
}

static void lower(lnl_budget *b, uint64_t bytes, lnl_limit limit) {
  if (bytes == 0 || bytes > b->limit_bytes) return;
  b->limit_bytes = bytes;
  b->limit = limit;
}

static void set_limit(lnl_engine *e) {
  lnl_budget *b = &e->budget;
  b->limit_bytes = e->reach_bytes;
  b->limit = LIMIT_ADDRESS_SPACE;
  lower(b, e->host.max_memory_bytes, LIMIT_HOST);
  lower(b, e->ceiling_bytes, LIMIT_PROBED);
  const bool given = e->options.budget_bytes != 0;
  lower(b, given ? e->options.budget_bytes : e->profile->ceiling_bytes, given ? LIMIT_BUDGET : LIMIT_PROFILE);
}

void lnl_set_ceiling(lnl_engine *e, uint64_t bytes) {
  e->ceiling_bytes = u64_min(or_any(e->ceiling_bytes), bytes);
}

void budget_reach_own(lnl_engine *e) { e->reach_bytes = host_reach(&e->host, e->own_bits); }

bool budget_choose_address(lnl_engine *e) {
  const uint64_t allowed = allowed_bytes(e), total = e->budget.planned.total;
  e->address = address_for(e, total, allowed);
  /* Unless somebody said how much, more than 4 GiB are not for a larger context. */
  e->reach_bytes = reach_for(e, granted_bytes(e) < UINT64_MAX ? UINT64_MAX : total, allowed);
  set_limit(e);
  return e->address.bits > e->own_bits;
}

/* The total when the scopes take these bytes. */
static uint64_t total_of(const lnl_engine *e, const lnl_memory *m) {
  uint64_t tables = m->tables - engine_early_table_bytes(e);
  uint64_t blocks[] = {tables, m->weights, m->staging, m->window,
                       m->kv,  m->slab,    m->scratch, mem_headroom_bytes()};
  return mem_plan_host_bytes(blocks, sizeof blocks / sizeof *blocks);
}

/* The slab with another chunk: found by planning with it. */
static uint64_t slab_with_chunk(const lnl_engine *e, uint32_t chunk) {
  if (chunk == e->options.chunk) return e->budget.planned.slab;
  lnl_plan plan;
  lnl_status status = plan_build(&plan, &e->model, chunk, e->options.all_logits ? chunk : 1, NULL);
  /* without memory for a plan the answer errs on the safe side */
  uint64_t slab = status == LNL_OK ? u64_max(plan.slab_bytes, e->decode.slab_bytes) : e->budget.planned.slab;
  plan_free(&plan);
  return slab;
}

/* The cache with another context: of the types that were asked for, or the
 * least of those that may be chosen. */
static uint64_t least_kv_bytes(const lnl_engine *e, uint32_t n_ctx) {
  const lnl_hparams *hp = &e->model.hp;
  if (!e->kv_was_auto) return kv_bytes(hp, engine_kv_types(e), n_ctx);
  uint64_t bytes = kv_bytes(hp, kv_both(KV_F16), n_ctx);
  return e->profile->kv_q8 ? u64_min(bytes, kv_bytes(hp, kv_both(KV_Q8_0), n_ctx)) : bytes;
}

/* The least total with another context, and a cache of so many bytes; where weights
 * are streamed, with no more of them resident than must be. */
static uint64_t least_total(const lnl_engine *e, uint32_t n_ctx, uint64_t kv) {
  lnl_memory m = e->budget.planned;
  m.slab = slab_with_chunk(e, u32_min(e->chunk_wish, n_ctx));
  uint64_t history = align_up((uint64_t)e->options.n_ctx * sizeof(int32_t), MEM_ALIGN);
  m.scratch = m.scratch - history + align_up((uint64_t)n_ctx * sizeof(int32_t), MEM_ALIGN);
  m.kv = kv;
  m.weights = e->streams ? e->least.weights : e->tight_weights;
  m.staging = e->streams ? e->least.staging : e->tight_staging;
  m.window = e->streams ? e->least.window : 0;
  return total_of(e, &m);
}

uint32_t budget_largest_context(const lnl_engine *e) {
  uint32_t low = 0, high = e->model.hp.n_ctx_train; /* low fits (or is 0), beyond high is not allowed */
  while (low < high) {
    uint32_t middle = low + (high - low + 1) / 2;
    if (in_its_module(e, least_total(e, middle, least_kv_bytes(e, middle))) <= e->budget.limit_bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

lnl_memory lnl_measure(const lnl_engine *e) {
  return (lnl_memory){
      .weights = e->weights.cap_bytes,
      .staging = e->staging.cap_bytes,
      .window = e->streaming.cap_bytes,
      .kv = e->cache.cap_bytes,
      .slab = e->slab.cap_bytes,
      .scratch = e->scratch.cap_bytes,
      .tables = engine_early_table_bytes(e) + e->tables.cap_bytes,
      .total = mem_get_stats().host_bytes,
  };
}

/* --- suggestions ------------------------------------------------------------------ */

typedef struct suggester {
  const lnl_engine *e;
  budget_suggestion *out;
  uint32_t count;
} suggester;

static void suggest(suggester *s, const char *code, uint64_t new_total, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void suggest(suggester *s, const char *code, uint64_t new_total, const char *format, ...) {
  const lnl_budget *b = &s->e->budget;
  if (new_total >= b->planned.total && new_total > b->limit_bytes) return; /* no help */
  LNL_ASSERT(s->count < BUDGET_MAX_SUGGESTIONS);
  budget_suggestion *out = &s->out[s->count++];
  va_list args;
  va_start(args, format);
  fmt_write(out->text, sizeof out->text, format, args);
  va_end(args);
  out->code = code;
  out->saves_bytes = b->planned.total > new_total ? b->planned.total - new_total : 0;
  out->sufficient = new_total <= b->limit_bytes;
}

static uint64_t total_with_chunk(const lnl_engine *e, uint32_t chunk) {
  lnl_memory m = e->budget.planned;
  m.slab = slab_with_chunk(e, chunk);
  return total_of(e, &m);
}

/* Resident bytes if every matrix were stored with 4.5 bits a value: in 16 where its
 * rows are no whole blocks. */
static uint64_t weights_at_q4_k(const lnl_engine *e) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    const lnl_weight *w = &e->model.weights[i];
    uint64_t values = model_value_count(w);
    uint64_t small = w->stored->shape[0] % 32 ? values * 2 : values / 32 * 18;
    if (model_role_is_vector(w->role)) small = w->place.resident_bytes;
    bytes += align_up(u64_min(w->place.resident_bytes, small), MEM_ALIGN);
  }
  return bytes;
}

static uint32_t make_suggestions(const lnl_engine *e, budget_suggestion out[BUDGET_MAX_SUGGESTIONS]) {
  enum { LEAST_CTX = 256, SMALL_CHUNK = 16 };
  suggester s = {.e = e, .out = out};
  const lnl_memory *m = &e->budget.planned;
  const lnl_hparams *hp = &e->model.hp;
  const kv_types types = engine_kv_types(e);
  char kv[KV_NAME_BYTES];
  kv_types_name(types, kv);

  uint32_t n_ctx = e->budget.max_ctx ? e->budget.max_ctx : LEAST_CTX;
  if (n_ctx < e->options.n_ctx) {
    suggest(&s, "SMALLER_CONTEXT", least_total(e, n_ctx, least_kv_bytes(e, n_ctx)),
            "a context of %u tokens instead of %u", n_ctx, e->options.n_ctx);
  }
  n_ctx = e->options.n_ctx;
  if (!e->kv_was_auto && (types.k == KV_F32 || types.v == KV_F32)) {
    suggest(&s, "KV_F16", least_total(e, n_ctx, kv_bytes(hp, kv_both(KV_F16), n_ctx)),
            "hold the key-value cache in f16 instead of %s", kv);
  }
  if ((types.k <= KV_F16 || types.v <= KV_F16) && !(e->kv_was_auto && e->profile->kv_q8)) {
    suggest(&s, "KV_Q8_0", least_total(e, n_ctx, kv_bytes(hp, kv_both(KV_Q8_0), n_ctx)),
            "hold the key-value cache in 8-bit blocks instead of %s", kv);
  }
  if (e->options.chunk > SMALL_CHUNK && e->chunk_wish != UINT32_MAX) {
    suggest(&s, "SMALLER_CHUNK", total_with_chunk(e, SMALL_CHUNK),
            "a prefill chunk of %d tokens instead of %u (slower prompts)", SMALL_CHUNK, e->options.chunk);
  }
  lnl_memory small = *m;
  small.weights = weights_at_q4_k(e);
  suggest(&s, "SMALLER_TYPE", total_of(e, &small), "the same model quantised to 4 bits (Q4_K or Q4_0)");
  if (!e->streams && e->least.total) {
    suggest(&s, "STREAM", e->least.total,
            "leave weights in the source and read them again for each token (stream; slow)");
  }
  const uint64_t enough = in_its_module(e, m->total);
  if (enough <= hard_limit(e)) {
    budget_suggestion *more = &s.out[s.count++];
    *more = (budget_suggestion){.code = "MORE_MEMORY", .sufficient = true};
    fmt_print(more->text, sizeof more->text,
              "allow %.1f MiB of memory (%llu bytes are needed, %llu are allowed)",
              (double)(enough + 52428) / 0x1p20, (unsigned long long)enough,
              (unsigned long long)e->budget.limit_bytes);
  }
  if (e->address.lacking) {
    s.out[s.count++] = (budget_suggestion){
        .code = "MEMORY64",
        .text = "a host with 64-bit WebAssembly memory (Node 24 or later, a current Chromium or Firefox)",
        .sufficient = m->total <= u64_min(host_reach(&e->host, 64), allowed_bytes(e))};
  }
  return s.count;
}

void budget_suggest(lnl_engine *e) {
  e->suggestion_count = e->budget.fits ? 0 : make_suggestions(e, e->suggestions);
}

lnl_status budget_note_tight(lnl_engine *e) {
  lnl_status status = LNL_OK;
  e->tight_weights = measure(e, engine_layout_weights, &status);
  e->tight_staging = measure(e, engine_layout_staging, &status);
  return status;
}

lnl_status budget_make(lnl_engine *e) {
  lnl_status status = LNL_OK;
  lnl_memory *m = &e->budget.planned;
  m->tables = engine_early_table_bytes(e) + measure(e, engine_layout_tables, &status);
  m->weights = measure(e, engine_layout_weights, &status);
  m->staging = measure(e, engine_layout_staging, &status);
  m->window = measure(e, engine_layout_window, &status);
  m->kv = measure(e, engine_layout_cache, &status);
  m->slab = measure(e, engine_layout_slab, &status);
  m->scratch = measure(e, engine_layout_scratch, &status);
  LNL_TRY(status);
  m->total = total_of(e, m);
  set_limit(e);
  e->budget.fits = m->total <= e->budget.limit_bytes;
  return LNL_OK;
}

/* --- what stays when not all can ------------------------------------------------------ */

/* Bytes of reading that a byte of memory saves, if the weight stays in it. */
typedef struct candidate {
  double worth;
  uint32_t index;
} candidate;

/* The most worth first; of equals the one that the file has first. */
static int by_worth(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->worth != b->worth) return a->worth > b->worth ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

/* It was placed before, so it is not refused now. */
static void place(lnl_engine *e, uint32_t weight, bool streamed) {
  const lnl_status status = resolve_place(e, weight, streamed);
  LNL_ASSERT(status == LNL_OK);
  (void)status;
}

/* All are streamed: takes back what fits. staging: what it takes at most. */
static lnl_status keep_what_fits(lnl_engine *e, uint64_t staging) {
  lnl_model *model = &e->model;
  candidate *list = mem_alloc(model->weight_count * sizeof *list);
  if (!list) return error_set(&e->error, LNL_OUT_OF_MEMORY, "no memory to choose what stays in memory");
  uint32_t count = 0;
  uint64_t matrices = 0; /* of experts: these are kept one by one, as they are used */
  for (uint32_t i = 0; i < model->weight_count; i++) {
    const lnl_weight *w = &model->weights[i];
    if (w->place.domain != DOMAIN_STREAMED) continue;
    if (model_role_use(w->role) == USE_EXPERTS) {
      matrices += model->hp.n_expert;
      continue;
    }
    place(e, i, false);
    list[count++] =
        (candidate){(double)stream_token_bytes(model, w) / (double)u64_max(w->place.resident_bytes, 1), i};
    place(e, i, true);
  }
  qsort(list, count, sizeof *list, by_worth);
  lnl_memory m = e->least;
  m.staging = staging;
  for (uint32_t i = 0; i < count; i++) {
    const lnl_weight *w = &model->weights[list[i].index];
    place(e, list[i].index, false);
    const uint64_t bytes = align_up(w->place.resident_bytes, MEM_ALIGN);
    m.weights += bytes;
    if (total_of(e, &m) <= e->budget.limit_bytes) continue;
    m.weights -= bytes;
    place(e, list[i].index, true);
  }
  mem_free(list);
  if (matrices == 0) return LNL_OK;
  /* With places of their own experts need no slot: the room is counted from there. */
  lnl_status status = LNL_OK;
  const uint64_t one = e->window.expert_bytes + sizeof(stream_expert);
  e->expert_places = 2;
  m.window = measure(e, engine_layout_window, &status);
  uint64_t low = 1, high = matrices; /* low is enough room, or 1: there is none */
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    lnl_memory then = m;
    then.window += align_up((middle - 2) * one, MEM_ALIGN);
    if (total_of(e, &then) <= e->budget.limit_bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  e->expert_places = low >= 2 ? (uint32_t)low : 0;
  return LNL_OK;
}

bool budget_can_stream(const lnl_engine *e) { return e->host.range_read && !e->host.can_map; }

lnl_status budget_stream(lnl_engine *e) {
  const uint64_t total = e->budget.planned.total;
  if (!budget_can_stream(e)) return LNL_OK;
  lnl_status status = LNL_OK;
  const uint64_t staging = measure(e, engine_layout_staging, &status);
  for (uint32_t i = 0; i < e->model.weight_count; i++) place(e, i, true);
  LNL_TRY(budget_make(e));
  if (e->budget.planned.total >= total) return LNL_OK; /* so small that the window takes more */
  e->least = e->budget.planned;
  e->streams = e->options.stream;
  return e->streams && e->least.total <= e->budget.limit_bytes ? keep_what_fits(e, staging) : status;
}
