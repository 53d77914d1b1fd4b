/* What the engine decided, as JSON for machines and as text for people. Only
 * prints records that others made: nothing is decided here. */
#include "describe.h"
#include "engine.h"

#include <string.h>

#define ULL(x) ((unsigned long long)(x))

/* --- JSON ------------------------------------------------------------------------ */

static void json_c_string(lnl_text *text, const char *s) {
  text_json_string(text, (lnl_span){(const uint8_t *)s, strlen(s)});
}

static void json_key_string(lnl_text *text, const char *key, const char *value) {
  text_addf(text, "\"%s\":", key);
  json_c_string(text, value);
}

static const char *tokenizer_name(tok_kind kind) {
  static const char *const names[] = {"none", "spm", "bpe", "wordpiece", "unigram"};
  return names[kind];
}

static void json_model(const lnl_engine *e, lnl_text *text) {
  const lnl_hparams *hp = &e->model.hp;
  lnl_span name = {(const uint8_t *)"", 0};
  gguf_get_string(&e->shards[0], "general.name", &name);
  text_addf(text, "\"model\":{\"name\":");
  text_json_string(text, name);
  text_addf(
      text,
      ",\"architecture\":\"%s\",\"n_layer\":%u,\"d_model\":%u,\"d_ff\":%u,\"n_head\":%u,\"n_kv_head\":%u,",
      e->model.arch->name, hp->n_layer, hp->d_model, hp->d_ff, hp->n_head, hp->n_kv_head);
  text_addf(text,
            "\"d_head\":%u,\"n_vocab\":%u,\"n_ctx_train\":%u,\"tied_output\":%s,\"tokenizer\":\"%s\","
            "\"shards\":%u}",
            hp->d_head, hp->n_vocab, hp->n_ctx_train, e->model.tied_output ? "true" : "false",
            tokenizer_name(e->tok_kind), e->shard_count);
}

static void json_host(const lnl_engine *e, lnl_text *text) {
  const lnl_host *h = &e->host;
#define FLAG(name) text_addf(text, "\"" #name "\":%s,", h->name ? "true" : "false")
  text_addf(text, "\"host\":{\"kind\":\"%s\",", host_kind_name(h->kind));
  FLAG(can_map);
  FLAG(can_grow);
  FLAG(memory64);
  FLAG(sync_read);
  FLAG(range_read);
  FLAG(isolated);
  FLAG(can_wait);
#undef FLAG
  text_addf(text, "\"threads\":%u,\"max_memory_bytes\":%llu}", h->threads, ULL(h->max_memory_bytes));
}

static void json_tensor(const lnl_weight *w, lnl_text *text) {
  const lnl_placement *p = &w->place;
  text_addf(text, "{\"name\":");
  text_json_string(text, w->stored->name);
  text_addf(text, ",\"type\":\"%s\",\"shape\":", describe_type(w->stored->type));
  describe_shape(text, w->stored);
  text_addf(text, ",\"domain\":\"%s\",\"scope\":\"%s\",\"form\":\"%s\",", place_domain_name(p->domain),
            place_scope_name(p->scope), place_hold_name(p->hold));
  text_addf(
      text,
      "\"stored_bytes\":%llu,\"resident_bytes\":%llu,\"kernel\":\"%s\",\"decided_by\":\"%s\",\"reasons\":[",
      ULL(p->stored_bytes), ULL(p->resident_bytes), p->kernel, place_decider_name(p->decided_by));
  for (uint32_t i = 0; i < p->reason_count; i++) {
    text_addf(text, "%s{\"code\":\"%s\",\"text\":", i ? "," : "", place_reason_code(p->reasons[i]));
    json_c_string(text, place_reason_text(p->reasons[i]));
    text_addf(text, "}");
  }
  text_addf(text, "]}");
}

typedef struct weight_sums {
  uint64_t bytes; /* stored */
  uint32_t count;
} weight_sums;

static weight_sums sum_weights(const lnl_engine *e, lnl_domain domain) {
  weight_sums sums = {0};
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    const lnl_placement *p = &e->model.weights[i].place;
    if (p->domain != domain) continue;
    sums.bytes += p->stored_bytes;
    sums.count++;
  }
  return sums;
}

/* The memory table, line by line; JSON and text print the same lines. */
typedef struct memory_line {
  const char *name;
  uint64_t bytes;
  char note[112];
} memory_line;
enum { MEMORY_LINES = 12 };

static uint64_t header_bytes(const lnl_engine *e) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < e->shard_count; i++) bytes += gguf_resident_bytes(&e->shards[i]);
  return bytes;
}

static uint32_t memory_lines(const lnl_engine *e, memory_line out[MEMORY_LINES]) {
  const lnl_memory *m = &e->budget.planned;
  const lnl_hparams *hp = &e->model.hp;
  uint64_t headers = header_bytes(e);
  const weight_sums mapped = sum_weights(e, DOMAIN_MAPPED), streamed = sum_weights(e, DOMAIN_STREAMED);
  char kv[KV_NAME_BYTES];
  kv_types_name(engine_kv_types(e), kv);
  uint64_t scopes = m->weights + m->kv + m->slab + m->scratch + m->tables + m->staging + m->window;
  out[0] = (memory_line){.name = "weights", .bytes = m->weights};
  fmt_print(out[0].note, sizeof out[0].note, "%u tensors in linear memory",
            e->model.weight_count - mapped.count - streamed.count);
  out[1] = (memory_line){.name = "weights_mapped", .bytes = mapped.bytes};
  fmt_print(out[1].note, sizeof out[1].note, "%u tensors stay in the mapped file: not counted in the total",
            mapped.count);
  out[2] = (memory_line){.name = "kv", .bytes = m->kv};
  fmt_print(out[2].note, sizeof out[2].note, "key-value cache, %s%s, %u layers x %u tokens", kv,
            e->kv_was_auto ? " (auto)" : "", hp->n_layer, e->options.n_ctx);
  out[3] = (memory_line){.name = "slab", .bytes = m->slab};
  fmt_print(out[3].note, sizeof out[3].note,
            "activations: %llu bytes for decode, %llu for prefill of %u tokens", ULL(e->decode.slab_bytes),
            ULL(e->prefill.slab_bytes), e->options.chunk);
  out[4] = (memory_line){.name = "scratch",
                         .bytes = m->scratch,
                         .note = "attention tiles, stacks of threads, sampler, token history"};
  out[5] = (memory_line){
      .name = "header", .bytes = headers, .note = "the file's metadata, kept for the tokenizer"};
  out[6] =
      (memory_line){.name = "tables", .bytes = m->tables - headers, .note = "tokenizer, tensor table, plans"};
  out[7] = (memory_line){.name = "module",
                         .bytes = m->total > scopes ? m->total - scopes : 0,
                         .note = "code's own data, stack, rounding to pages"};
  out[8] = (memory_line){
      .name = "staging", .bytes = m->staging, .note = "rows on their way into a packed form while loading"};
  out[9] = (memory_line){.name = "weights_streamed", .bytes = streamed.bytes};
  fmt_print(out[9].note, sizeof out[9].note, "%u tensors stay in the source: not counted in the total",
            streamed.count);
  out[10] = (memory_line){.name = "window", .bytes = m->window};
  fmt_print(out[10].note, sizeof out[10].note, "through which those pass: %llu bytes are read for each token",
            ULL(stream_fetched_a_token(&e->model)));
  out[11] = (memory_line){.name = "total",
                          .bytes = m->total,
                          .note = "also the peak while loading: weights are read straight into place"};
  return MEMORY_LINES;
}

static void json_suggestions(const lnl_engine *e, lnl_text *text) {
  const budget_suggestion *list = e->suggestions;
  uint32_t count = e->suggestion_count;
  text_addf(text, "\"suggestions\":[");
  for (uint32_t i = 0; i < count; i++) {
    text_addf(text, "%s{\"code\":\"%s\",\"text\":", i ? "," : "", list[i].code);
    json_c_string(text, list[i].text);
    text_addf(text, ",\"saves_bytes\":%llu,\"sufficient\":%s}", ULL(list[i].saves_bytes),
              list[i].sufficient ? "true" : "false");
  }
  text_addf(text, "]");
}

/* Things that the user may not expect; each a code and a sentence. */
typedef struct warning {
  const char *code;
  char text[160];
} warning;
enum { MAX_WARNINGS = 4 };

static uint32_t warnings(const lnl_engine *e, warning out[MAX_WARNINGS]) {
  uint32_t count = 0;
  if (e->threads.notable) {
    warning *w = &out[count++];
    uint32_t asked = e->host.threads_asked, n = e->threads.count;
    w->code = n == 1 ? "ONE_THREAD" : "THREADS_CLAMPED";
    if (asked) {
      fmt_print(w->text, sizeof w->text, "%u threads were asked for: running on %u, because %s", asked, n,
                e->threads.text);
    } else {
      fmt_print(w->text, sizeof w->text, "running on %u thread, because %s", n, e->threads.text);
    }
  }
  if (host_isa() == ISA_SIMD128) {
    out[count++] =
        (warning){"NO_RELAXED_SIMD",
                  "this engine runs the base module (simd128 without relaxed SIMD), which is slower"};
  }
  if (e->streams) {
    warning *w = &out[count++];
    w->code = "STREAMED";
    fmt_print(w->text, sizeof w->text,
              "%u weights do not fit: %.1f MiB are read from the source for each token, which is slow",
              sum_weights(e, DOMAIN_STREAMED).count, (double)stream_fetched_a_token(&e->model) / 0x1p20);
  }
  if (e->tok_kind == TOK_NONE) {
    out[count++] = (warning){"NO_TOKENIZER", "the file has no tokenizer: only token ids can be given"};
  }
  return count;
}

/* One stretch of memory, or all that lies in mapped files. */
typedef struct region {
  const char *name;
  lnl_scope scope;
  uint64_t bytes, high_water_bytes;
  const void *at; /* NULL: not taken yet, or in several places */
} region;

static region arena_region(const char *name, lnl_scope scope, uint64_t planned, const lnl_arena *arena) {
  if (!arena->base) return (region){name, scope, planned, 0, NULL};
  return (region){name, scope, arena->cap_bytes, arena->high_bytes, arena->base};
}

/* In the order in which they are taken. */
static void json_regions(const lnl_engine *e, lnl_text *text) {
  const lnl_memory *m = &e->budget.planned;
  const uint64_t headers = header_bytes(e), early = engine_early_table_bytes(e);
  const uint64_t mapped = sum_weights(e, DOMAIN_MAPPED).bytes;
  const uint64_t plans = e->model.block_bytes + e->prefill.block_bytes + e->decode.block_bytes;
  const region list[] = {
      {"header", SCOPE_MODEL, headers, headers, NULL},
      {"plan", SCOPE_MODEL, plans, plans, NULL},
      arena_region("tables", SCOPE_MODEL, m->tables - early, &e->tables),
      arena_region("weights", SCOPE_MODEL, m->weights, &e->weights),
      arena_region("staging", SCOPE_SCRATCH, m->staging, &e->staging),
      arena_region("window", SCOPE_STEP, m->window, &e->streaming),
      arena_region("kv", SCOPE_SESSION, m->kv, &e->cache),
      arena_region("slab", SCOPE_STEP, m->slab, &e->slab),
      arena_region("scratch", SCOPE_SCRATCH, m->scratch, &e->scratch),
      {"mapped", SCOPE_MODEL, mapped, mapped, NULL},
  };
  enum { COUNT = sizeof list / sizeof *list };
  text_addf(text, "\"regions\":[");
  for (uint32_t i = 0; i < COUNT; i++) {
    const region *r = &list[i];
    text_addf(text, "%s{\"name\":\"%s\",\"scope\":\"%s\",\"domain\":\"%s\",\"bytes\":%llu,", i ? "," : "",
              r->name, place_scope_name(r->scope),
              place_domain_name(i + 1 == COUNT ? DOMAIN_MAPPED : DOMAIN_HEAP), ULL(r->bytes));
    text_addf(text, "\"high_water_bytes\":%llu,\"address\":", ULL(r->high_water_bytes));
    if (r->at) {
      text_addf(text, "%llu}", ULL((uintptr_t)r->at));
    } else {
      text_addf(text, "null}");
    }
  }
  text_addf(text, "]");
}

/* Why the cache has its types, and the context its length. */
static const char *const kv_choices[][2] = {
    [KV_AS_ASKED] = {"AS_ASKED", "as was asked for"},
    [KV_SMALL] = {"SMALL_CACHE", "a cache of at most 32 MiB in f32 gains nothing from rounding"},
    [KV_LARGE] = {"LARGE_CACHE", "in f32 it would take more than 32 MiB"},
    [KV_OF_PROFILE] = {"PROFILE", "the profile holds no cache in f32"},
    [KV_TO_FIT] = {"TO_FIT", "with a larger type it does not fit"},
};

static const char *const limits[][2] = {
    [LIMIT_ADDRESS_SPACE] = {"ADDRESS_SPACE", "what addresses reach"},
    [LIMIT_HOST] = {"HOST", "the ceiling of this host"},
    [LIMIT_PROBED] = {"PROBED", "found by trying: this host gave no more"},
    [LIMIT_PROFILE] = {"PROFILE", "the ceiling of the profile"},
    [LIMIT_BUDGET] = {"BUDGET", "the budget that was given"},
};

void lnl_explain_json(const lnl_engine *e, lnl_text *text) {
  memory_line lines[MEMORY_LINES];
  warning list[MAX_WARNINGS];
  char kv[KV_NAME_BYTES];
  kv_types_name(engine_kv_types(e), kv);
  text_addf(text, "{\"fits\":%s,\"context\":%u,\"max_context\":%u,\"kv_type\":\"%s\",\"chunk\":%u,",
            e->budget.fits ? "true" : "false", e->options.n_ctx, e->budget.max_ctx, kv, e->options.chunk);
  text_addf(text, "\"kv_reason\":{\"code\":\"%s\",\"text\":\"%s\"},\"profile\":\"%s\",",
            kv_choices[e->kv_choice][0], kv_choices[e->kv_choice][1], e->profile->name);
  json_host(e, text);
  text_addf(text, ",\"module\":\"%s\",\"threads\":%u,\"threads_asked\":%u,", host_module_name(host_isa()),
            e->threads.count, e->host.threads_asked);
  text_addf(text, "\"threads_reason\":{\"code\":\"%s\",\"text\":\"%s\"},", e->threads.code, e->threads.text);
  text_addf(text, "\"address\":{\"bits\":%u,\"chosen_bits\":%u,\"code\":\"%s\",\"text\":\"%s\"},",
            8 * (uint32_t)sizeof(void *), e->address.bits, e->address.code, e->address.text);
  json_model(e, text);
  text_addf(text, ",\"total_bytes\":%llu,\"limit_bytes\":", ULL(e->budget.planned.total));
  if (e->budget.limit_bytes == UINT64_MAX) {
    text_addf(text, "null");
  } else {
    text_addf(text, "%llu", ULL(e->budget.limit_bytes));
  }
  if (e->streams) {
    const weight_sums sums = sum_weights(e, DOMAIN_STREAMED);
    text_addf(text, ",\"streaming\":{\"tensors\":%u,\"stored_bytes\":%llu,\"bytes_per_token\":%llu,",
              sums.count, ULL(sums.bytes), ULL(stream_fetched_a_token(&e->model)));
    text_addf(text, "\"window_bytes\":%llu,\"slot_bytes\":%llu,\"slots\":%u,", ULL(e->budget.planned.window),
              ULL(e->window.slot_bytes), e->window.slot_count);
    text_addf(text, "\"expert_places\":%u,\"expert_bytes\":%llu}", e->expert_places,
              ULL(e->window.expert_bytes));
  }
  const char *const *limit = limits[e->budget.limit];
  text_addf(text, ",\"limit_reason\":{\"code\":\"%s\",\"text\":\"%s\"},\"memory\":[", limit[0], limit[1]);
  uint32_t count = memory_lines(e, lines);
  for (uint32_t i = 0; i < count; i++) {
    text_addf(text, "%s{\"name\":\"%s\",\"bytes\":%llu,", i ? "," : "", lines[i].name, ULL(lines[i].bytes));
    json_key_string(text, "text", lines[i].note);
    text_addf(text, "}");
  }
  text_addf(text, "],");
  json_regions(e, text);
  text_addf(text, ",\"tensors\":[");
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    if (i) text_addf(text, ",");
    json_tensor(&e->model.weights[i], text);
  }
  text_addf(text, "],");
  json_suggestions(e, text);
  text_addf(text, ",\"warnings\":[");
  count = warnings(e, list);
  for (uint32_t i = 0; i < count; i++) {
    text_addf(text, "%s{\"code\":\"%s\",", i ? "," : "", list[i].code);
    json_key_string(text, "text", list[i].text);
    text_addf(text, "}");
  }
  text_addf(text, "]}");
}

/* The loader's staging is scratch that lives as long as the engine. */
static void json_memory(lnl_text *text, const char *name, const lnl_memory *m) {
  text_addf(text, "\"%s\":{\"weights\":%llu,\"kv\":%llu,\"slab\":%llu,\"scratch\":%llu,", name,
            ULL(m->weights), ULL(m->kv), ULL(m->slab), ULL(m->scratch + m->staging));
  text_addf(text, "\"window\":%llu,\"tables\":%llu,\"total\":%llu}", ULL(m->window), ULL(m->tables),
            ULL(m->total));
}

void lnl_memory_json(const lnl_engine *e, lnl_text *text) {
  lnl_memory measured = lnl_measure(e);
  text_addf(text, "{");
  json_memory(text, "planned", &e->budget.planned);
  text_addf(text, ",");
  json_memory(text, "measured", &measured);
  text_addf(text, ",");
  json_regions(e, text);
  text_addf(text, "}");
}

static void json_plan(const lnl_engine *e, lnl_text *text, const char *name, const lnl_plan *plan) {
  text_addf(text, "\"%s\":{\"slab_bytes\":%llu,\"lower_bound_bytes\":%llu,\"token_rows\":%u,", name,
            ULL(plan->slab_bytes), ULL(plan_lower_bound(plan)), plan->token_rows);
  text_addf(text, "\"output_step\":%u,\"steps\":[", plan->output_step);
  for (uint32_t i = 0; i < plan->step_count; i++) {
    const plan_step *s = &plan->steps[i];
    text_addf(text, "%s{\"op\":\"%s\",\"layer\":%u", i ? "," : "", plan_op_name(s->op), s->layer);
    if (s->out != NO_VALUE) text_addf(text, ",\"out\":%d", s->out);
    if (s->in0 != NO_VALUE) text_addf(text, ",\"in0\":%d", s->in0);
    if (s->in1 != NO_VALUE) text_addf(text, ",\"in1\":%d", s->in1);
    if (s->weight != NO_WEIGHT) {
      const lnl_weight *w = &e->model.weights[s->weight];
      text_addf(text, ",\"weight\":");
      text_json_string(text, w->stored->name);
      text_addf(
          text,
          ",\"type\":\"%s\",\"form\":\"%s\",\"kernel\":\"%s\",\"weight_bytes\":%llu,\"weight_values\":%llu",
          w->form->name, place_hold_name(w->place.hold), w->place.kernel,
          ULL(w->place.resident_bytes ? w->place.resident_bytes : w->place.stored_bytes),
          ULL(model_value_count(w)));
      text_addf(text, ",\"weight_rows\":%llu", ULL(model_row_count(w)));
    }
    if (s->op == OP_ATTN && e->model.layers[s->layer].windowed) text_addf(text, ",\"windowed\":true");
    if (s->sync) text_addf(text, ",\"sync\":true");
    text_addf(text, "}");
  }
  text_addf(text, "],\"values\":[");
  for (uint32_t i = 0; i < plan->value_count; i++) {
    const plan_value *v = &plan->values[i];
    static const char *const rows[] = {"tokens", "output", "routed", "one"};
    text_addf(text,
              "%s{\"name\":\"%s\",\"kind\":\"%s\",\"rows\":\"%s\",\"cols\":%u,\"first\":%u,\"last\":%u,"
              "\"bytes\":%llu,\"offset\":%llu}",
              i ? "," : "", v->name, v->kind == VALUE_F32 ? "f32" : "q8", rows[v->rows], v->cols, v->first,
              v->last, ULL(v->bytes), ULL(v->offset));
  }
  text_addf(text, "]}");
}

void lnl_steps_json(const lnl_engine *e, lnl_text *text) {
  const lnl_hparams *hp = &e->model.hp;
  uint64_t key_bytes = 0; /* K and V of one position of one layer; 0 before the plan */
  if (e->options.n_ctx) {
    lnl_kv kv;
    lnl_arena measure = {0};
    kv_layout(&kv, &measure, hp, engine_kv_types(e), e->options.n_ctx);
    key_bytes = (kv.k_stride + kv.v_stride) / e->options.n_ctx;
  }
  text_addf(text, "{\"all_logits\":%s,\"key_bytes\":%llu,\"window\":%u,\"experts\":%u,\"experts_used\":%u,",
            e->options.all_logits ? "true" : "false", ULL(key_bytes), hp->window, hp->n_expert,
            hp->n_expert_used);
  json_plan(e, text, "decode", &e->decode);
  text_addf(text, ",");
  json_plan(e, text, "prefill", &e->prefill);
  text_addf(text, "}");
}

/* --- text for people ---------------------------------------------------------------- */

/* "1.5 MiB", padded on the left to `width` characters. */
static void add_size(lnl_text *text, uint64_t bytes, size_t width) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  uint32_t unit = 0;
  uint64_t tenths = bytes * 10;
  if (bytes < UINT64_MAX / 16) {
    while (tenths >= 10240 && unit < 4) {
      tenths = (tenths + 512) / 1024;
      unit++;
    }
  }
  char number[32];
  if (unit == 0) {
    fmt_print(number, sizeof number, "%llu %s", ULL(bytes), units[0]);
  } else {
    fmt_print(number, sizeof number, "%llu.%llu %s", ULL(tenths / 10), ULL(tenths % 10), units[unit]);
  }
  for (size_t pad = strlen(number); pad < width; pad++) text_addf(text, " ");
  text_addf(text, "%s", number);
}

static void add_padded(lnl_text *text, const char *s, size_t width) {
  text_addf(text, "%s", s);
  for (size_t n = strlen(s); n < width; n++) text_addf(text, " ");
}

/* One row for all layers that hold a weight of this role in the same way. */
static void text_weight_group(const lnl_engine *e, uint32_t first, lnl_text *text) {
  const lnl_weight *w = &e->model.weights[first];
  uint64_t stored = 0, resident = 0;
  uint32_t count = 0;
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    const lnl_weight *o = &e->model.weights[i];
    if (o->role != w->role || o->form != w->form || o->place.hold != w->place.hold ||
        o->place.decided_by != w->place.decided_by || o->place.domain != w->place.domain)
      continue;
    if (i < first) return; /* already printed */
    stored += o->place.stored_bytes;
    resident += o->place.resident_bytes;
    count++;
  }
  char name[96];
  const char *at = (const char *)w->stored->name.data;
  size_t bytes = w->stored->name.bytes;
  if (bytes > 4 && memcmp(at, "blk.", 4) == 0) {
    size_t dot = 4;
    while (dot < bytes && at[dot] != '.') dot++;
    fmt_print(name, sizeof name, "blk.*%.*s x%u", (int)(bytes - dot), at + dot, count);
  } else {
    fmt_print(name, sizeof name, "%.*s", (int)bytes, at);
  }
  text_addf(text, "  ");
  add_padded(text, name, 32);
  text_addf(text, " ");
  add_padded(text, w->form->name, 6);
  add_padded(text, place_domain_name(w->place.domain), 9);
  add_padded(text, place_hold_name(w->place.hold), 8);
  add_size(text, stored, 10);
  text_addf(text, " -> ");
  add_size(text, resident, 10);
  text_addf(text, "   %s\n      ", w->place.kernel);
  if (w->place.decided_by != BY_RESOLVER)
    text_addf(text, "decided by %s: ", place_decider_name(w->place.decided_by));
  for (uint32_t i = 0; i < w->place.reason_count; i++) {
    text_addf(text, i ? ", %s" : "%s", place_reason_code(w->place.reasons[i]));
  }
  text_addf(text, "\n");
}

/* What the codes above mean, each that occurs once. */
static void text_reasons(const lnl_engine *e, lnl_text *text) {
  bool used[REASON_COUNT] = {false};
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    const lnl_placement *p = &e->model.weights[i].place;
    for (uint32_t r = 0; r < p->reason_count; r++) used[p->reasons[r]] = true;
  }
  text_addf(text, "\nreasons\n");
  for (uint32_t i = 0; i < REASON_COUNT; i++) {
    if (!used[i]) continue;
    text_addf(text, "  ");
    add_padded(text, place_reason_code((lnl_reason)i), 22);
    text_addf(text, "%s\n", place_reason_text((lnl_reason)i));
  }
}

void lnl_explain_text(const lnl_engine *e, lnl_text *text) {
  const lnl_hparams *hp = &e->model.hp;
  const lnl_budget *b = &e->budget;
  lnl_span name = {(const uint8_t *)"(unnamed)", 9};
  gguf_get_string(&e->shards[0], "general.name", &name);
  text_addf(text, "%.*s: %s, %u layers, d_model %u, %u/%u heads, vocabulary %u, tokenizer %s\n",
            (int)u64_min(name.bytes, 80), (const char *)name.data, e->model.arch->name, hp->n_layer,
            hp->d_model, hp->n_head, hp->n_kv_head, hp->n_vocab, tokenizer_name(e->tok_kind));
  text_addf(text, "host %s, profile %s, module %s, %u thread%s (%s), context %u of %u%s\n",
            host_kind_name(e->host.kind), e->profile->name, host_module_name(host_isa()), e->threads.count,
            e->threads.count == 1 ? "" : "s", e->threads.text, e->options.n_ctx, hp->n_ctx_train,
            e->largest_wanted && e->options.n_ctx == b->max_ctx ? " (the largest that fits)" : "");
  text_addf(text, "addresses of %u bits: %s\n", e->address.bits, e->address.text);
  char kv[KV_NAME_BYTES];
  kv_types_name(engine_kv_types(e), kv);
  text_addf(text, "key-value cache in %s: %s\n", kv, kv_choices[e->kv_choice][1]);
  if (b->fits) {
    text_addf(text, "FITS; the largest context that fits is %u%s\n\nmemory\n", b->max_ctx,
              e->streams ? ", with more weights streamed" : "");
  } else if (b->max_ctx > 0) {
    text_addf(text, "DOES NOT FIT; it would up to a context of %u\n\nmemory\n", b->max_ctx);
  } else {
    text_addf(text, "DOES NOT FIT with any context\n\nmemory\n");
  }

  memory_line lines[MEMORY_LINES];
  uint32_t count = memory_lines(e, lines);
  for (uint32_t i = 0; i < count; i++) {
    if (lines[i].bytes == 0) continue;
    text_addf(text, "  ");
    add_padded(text, lines[i].name, 16);
    add_size(text, lines[i].bytes, 10);
    text_addf(text, "   %s\n", lines[i].note);
  }
  if (b->limit_bytes != UINT64_MAX) {
    text_addf(text, "  ");
    add_padded(text, "limit", 16);
    add_size(text, b->limit_bytes, 10);
    text_addf(text, "   %s\n", limits[b->limit][1]);
  }

  text_addf(text, "\nweights (all in scope model)\n");
  for (uint32_t i = 0; i < e->model.weight_count; i++) text_weight_group(e, i, text);
  text_reasons(e, text);

  const budget_suggestion *suggestions = e->suggestions;
  count = e->suggestion_count;
  if (count) text_addf(text, "\nto make it fit\n");
  for (uint32_t i = 0; i < count; i++) {
    text_addf(text, "  %s: %s", suggestions[i].code, suggestions[i].text);
    if (suggestions[i].saves_bytes) {
      text_addf(text, ", saves ");
      add_size(text, suggestions[i].saves_bytes, 0);
    }
    text_addf(text, suggestions[i].sufficient ? " (enough)\n" : " (not enough alone)\n");
  }
  warning list[MAX_WARNINGS];
  count = warnings(e, list);
  for (uint32_t i = 0; i < count; i++) text_addf(text, "\nwarning: %s: %s\n", list[i].code, list[i].text);
}
