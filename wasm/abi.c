/* See abi.h. Each function converts numbers and hands on; nothing is decided
 * here. */
#include "abi.h"

#include <string.h>

#include "../src/mem.h"
#include "../src/pool.h"
#include "../src/sample.h"
#include "../src/tok.h"

/* What belongs to one engine on this side of the boundary. The engine's handle
 * is the address of this record, seen from JS as an opaque number; in debug builds
 * with a generation in the bits that the alignment leaves free, so that a handle of
 * one that is closed is not taken for a later one's. */
typedef struct abi_engine {
  lnl_engine *engine;
  lnl_text text;
  uint8_t *input; /* owned, input_bytes long */
  uint32_t input_bytes;
  int32_t *tokens; /* owned */
  uint8_t *piece;  /* owned, tok_max_piece_bytes long */
  uint32_t piece_bytes;
#ifdef LNL_DEBUG
  struct abi_engine *next;
  uint32_t generation; /* 1..MEM_ALIGN - 1 */
#endif
} abi_engine;

#ifdef LNL_DEBUG
static abi_engine *living;
static uint32_t generations;
static uint64_t before_first; /* the number of the youngest block when none lived */

static uint64_t youngest_block(void) {
  mem_entry entry = {0};
  mem_ledger(&entry, 1);
  return entry.number;
}

static lnl_engine *born(abi_engine *a) {
  a->next = living;
  a->generation = 1 + generations++ % (MEM_ALIGN - 1);
  living = a;
  return (lnl_engine *)((uintptr_t)a + a->generation);
}

/* A handle that names no living engine stops here. */
static abi_engine *self(lnl_engine *e) {
  abi_engine *a = living;
  while (a && (uintptr_t)a + a->generation != (uintptr_t)e) a = a->next;
  LNL_ASSERT(a);
  return a;
}

static void died(const abi_engine *a) {
  abi_engine **at = &living;
  while (*at != a) at = &(*at)->next;
  *at = a->next;
}

/* When the last one has gone, so have all blocks that were taken since the first came. */
static void check_ledger(void) { LNL_ASSERT(living || youngest_block() <= before_first); }
#define ABI_DEBUG(work) work
#else
static lnl_engine *born(abi_engine *a) { return (lnl_engine *)(void *)a; }
static abi_engine *self(lnl_engine *e) { return (abi_engine *)(void *)e; }
#define ABI_DEBUG(work)
#endif
static lnl_engine *core(lnl_engine *e) { return self(e)->engine; }

uint32_t lnl_abi_version(void) { return LNL_ABI_VERSION; }
uint32_t lnl_abi_isa(void) { return host_isa(); }
const char *lnl_abi_status_name(int32_t status) { return lnl_status_name((lnl_status)status); }
const char *lnl_abi_status_text(int32_t status) { return lnl_status_text((lnl_status)status); }
const char *lnl_abi_status_remedy(int32_t status) { return lnl_status_remedy((lnl_status)status); }

/* A count of bytes that came as a double; what is not one becomes unknown. */
static uint64_t as_u64(double n, uint64_t unknown) { return n >= 0 && n < 0x1p63 ? (uint64_t)n : unknown; }

lnl_engine *lnl_abi_open(uint32_t host_kind, uint32_t flags, uint32_t threads, uint32_t threads_asked,
                         double max_memory_bytes) {
  lnl_host host = {
      .kind = host_kind <= HOST_NATIVE ? (lnl_host_kind)host_kind : HOST_BROWSER,
      .can_map = flags & 1,
      .can_grow = flags & 2,
      .memory64 = flags & 4,
      .sync_read = flags & 8,
      .range_read = flags & 16,
      .isolated = flags & 32,
      .can_wait = flags & 64,
      .threads = u32_max(threads, 1),
      .threads_asked = threads_asked,
      .max_memory_bytes = as_u64(max_memory_bytes, 0),
  };
  ABI_DEBUG(if (!living) before_first = youngest_block();)
  abi_engine *a = mem_alloc(sizeof *a);
  if (!a) return NULL;
  memset(a, 0, sizeof *a);
  a->engine = lnl_open(&host);
  if (a->engine) return born(a);
  mem_free(a);
  return NULL;
}

void lnl_abi_close(lnl_engine *e) {
  if (!e) return;
  abi_engine *a = self(e);
  ABI_DEBUG(died(a);)
  lnl_close(a->engine);
  text_free(&a->text);
  mem_free(a->input);
  mem_free(a->tokens);
  mem_free(a->piece);
  mem_free(a);
  ABI_DEBUG(check_ledger();)
}

const char *lnl_abi_error(lnl_engine *e) { return lnl_get_error(core(e))->message; }

int32_t lnl_abi_header_begin(lnl_engine *e, uint32_t shard, double file_bytes) {
  return lnl_header_begin(core(e), shard, as_u64(file_bytes, UINT64_MAX));
}
uint8_t *lnl_abi_header_reserve(lnl_engine *e, uint32_t bytes) { return lnl_header_reserve(core(e), bytes); }
int32_t lnl_abi_header_push(lnl_engine *e, uint32_t bytes) { return lnl_header_push(core(e), bytes); }
int32_t lnl_abi_header_finish(lnl_engine *e) { return lnl_header_finish(core(e)); }
const uint8_t *lnl_abi_header_image(lnl_engine *e, uint32_t shard) {
  return lnl_header_image(core(e), shard).data;
}
double lnl_abi_header_image_bytes(lnl_engine *e, uint32_t shard) {
  return (double)lnl_header_image(core(e), shard).bytes;
}
uint32_t lnl_abi_shard_count(lnl_engine *e) { return lnl_shard_count(core(e)); }

int32_t lnl_abi_plan(lnl_engine *e, uint32_t n_ctx, double budget_bytes, uint32_t kv, uint32_t chunk,
                     uint32_t flags, uint32_t placement, uint32_t tensor_bytes, double window_bytes) {
  const abi_engine *a = self(e);
  if (tensor_bytes > a->input_bytes || (tensor_bytes && a->input[tensor_bytes - 1]))
    return lnl_set_error(core(e), LNL_BAD_ARGUMENT, "the overrides do not end");
  lnl_plan_options options = {
      .n_ctx = n_ctx,
      .budget_bytes = as_u64(budget_bytes, 0),
      .kv = kv & 255,
      .kv_v = kv >> 8,
      .chunk = chunk,
      .profile = placement & 255,
      .hold = placement >> 8,
      .tensors = tensor_bytes ? (const char *)a->input : NULL,
      .all_logits = flags & 1,
      .embed = flags & 2,
      .spread = flags & 8,
      .stream = flags & 4,
      .window_bytes = as_u64(window_bytes, 0),
      .module_asked = flags & 16,
  };
  return lnl_plan_for(core(e), &options);
}

void lnl_abi_set_ceiling(lnl_engine *e, double bytes) { lnl_set_ceiling(core(e), as_u64(bytes, UINT64_MAX)); }

const char *lnl_abi_text(lnl_engine *e, uint32_t which, uint32_t from, uint32_t most) {
  static void (*const writers[])(const lnl_engine *, lnl_text *) = {
      [TEXT_EXPLAIN_JSON] = lnl_explain_json, [TEXT_EXPLAIN] = lnl_explain_text,
      [TEXT_INSPECT_JSON] = lnl_inspect_json, [TEXT_INSPECT] = lnl_inspect_text,
      [TEXT_MEMORY_JSON] = lnl_memory_json,   [TEXT_PLAN_JSON] = lnl_steps_json,
  };
  lnl_text *text = &self(e)->text;
  text_free(text);
  if (which >= sizeof writers / sizeof *writers) return NULL;
  if (most) lnl_abi_input(e, 0); /* what is left for short-lived blocks is for this one */
  text->skip = from;
  text->most = most;
  writers[which](core(e), text);
  if (!text->failed) return text->data;
  text_free(text);
  lnl_set_error(core(e), LNL_OUT_OF_MEMORY, "no memory for a text");
  return NULL;
}

uint32_t lnl_abi_text_bytes(lnl_engine *e) { return (uint32_t)self(e)->text.bytes; }

/* The buffer for pieces is taken with the rest, so that decoding takes none. */
static int32_t bind_piece(lnl_engine *e, lnl_status status) {
  const tok *t = lnl_get_tokenizer(core(e));
  if (status < 0 || !t) return status;
  self(e)->piece = mem_alloc(tok_max_piece_bytes(t));
  return self(e)->piece ? LNL_OK
                        : lnl_set_error(core(e), LNL_OUT_OF_MEMORY, "no memory for the bytes of a token");
}

int32_t lnl_abi_bind(lnl_engine *e) {
  text_free(&self(e)->text); /* its room is wanted for weights */
  return bind_piece(e, lnl_bind(core(e)));
}
int32_t lnl_abi_load_next(lnl_engine *e) { return lnl_load_next(core(e)); }
int32_t lnl_abi_load_ahead(lnl_engine *e, uint32_t by_layer) {
  return lnl_load_ahead(core(e), by_layer != 0);
}
double lnl_abi_load_extent(lnl_engine *e, uint32_t i, uint32_t which) {
  lnl_extent extent;
  if (!lnl_load_extent(core(e), i, &extent)) return -1;
  return which == 0 ? extent.shard : (double)(which == 1 ? extent.offset : extent.bytes);
}
uint32_t lnl_abi_need_shard(lnl_engine *e) { return lnl_get_need(core(e))->shard; }
double lnl_abi_need_offset(lnl_engine *e) { return (double)lnl_get_need(core(e))->offset; }
uint32_t lnl_abi_need_bytes(lnl_engine *e) { return lnl_get_need(core(e))->bytes; }
uint8_t *lnl_abi_need_pointer(lnl_engine *e) { return lnl_get_need(core(e))->pointer; }
int32_t lnl_abi_load_fed(lnl_engine *e, uint32_t bytes) { return lnl_load_fed(core(e), bytes); }
int32_t lnl_abi_need_later(lnl_engine *e) { return lnl_need_later(core(e)); }
int32_t lnl_abi_load_ended(lnl_engine *e) { return lnl_load_ended(core(e)); }

int32_t lnl_abi_tok_bind(lnl_engine *e) { return bind_piece(e, lnl_bind_tokenizer(core(e))); }

uint8_t *lnl_abi_input(lnl_engine *e, uint32_t bytes) {
  abi_engine *a = self(e);
  if (a->input && bytes > 0 && bytes <= a->input_bytes) return a->input;
  mem_free(a->input);
  a->input = NULL;
  a->input_bytes = 0;
  if (bytes == 0) {
    mem_free(a->tokens);
    a->tokens = NULL;
    return NULL;
  }
  a->input = mem_alloc(bytes);
  a->input_bytes = a->input ? bytes : 0;
  if (!a->input) lnl_set_error(core(e), LNL_OUT_OF_MEMORY, "no memory for the input");
  return a->input;
}

int32_t lnl_abi_tokenize(lnl_engine *e, uint32_t bytes, uint32_t flags) {
  abi_engine *a = self(e);
  mem_free(a->tokens);
  a->tokens = NULL;
  if (bytes > a->input_bytes) return lnl_set_error(core(e), LNL_BAD_ARGUMENT, "the input holds fewer bytes");
  size_t count = 0;
  lnl_status status = lnl_tokenize(a->engine, (const char *)a->input, bytes, flags, &a->tokens, &count);
  return status < 0 ? (int32_t)status : (int32_t)count;
}

const int32_t *lnl_abi_tokens(lnl_engine *e) { return self(e)->tokens; }

const uint8_t *lnl_abi_piece(lnl_engine *e, int32_t id, uint32_t show_special) {
  abi_engine *a = self(e);
  const tok *t = lnl_get_tokenizer(a->engine);
  a->piece_bytes = 0;
  if (!t || !a->piece) return NULL;
  a->piece_bytes = (uint32_t)tok_piece(t, id, show_special != 0, a->piece, tok_max_piece_bytes(t));
  return a->piece;
}
uint32_t lnl_abi_piece_bytes(lnl_engine *e) { return self(e)->piece_bytes; }

int32_t lnl_abi_sampler(lnl_engine *e, double temperature, uint32_t top_k, double top_p, double min_p,
                        double repeat_penalty, uint32_t repeat_last_n, double seed) {
  sample_params params = {
      .temperature = (float)temperature,
      .top_k = top_k,
      .top_p = (float)top_p,
      .min_p = (float)min_p,
      .repeat_penalty = (float)repeat_penalty,
      .repeat_last_n = repeat_last_n,
      .seed = as_u64(seed, 0),
  };
  return lnl_set_sampler(core(e), &params);
}

int32_t lnl_abi_prompt(lnl_engine *e, uint32_t count, uint32_t reuse) {
  abi_engine *a = self(e);
  if (count > a->input_bytes / sizeof(int32_t)) {
    return lnl_set_error(a->engine, LNL_BAD_ARGUMENT, "the input holds fewer ids");
  }
  return lnl_prompt(a->engine, (const int32_t *)(const void *)a->input, count, reuse != 0);
}
int32_t lnl_abi_eval(lnl_engine *e) { return lnl_eval(core(e)); }
void lnl_abi_step_limit(lnl_engine *e, uint32_t steps) { lnl_set_step_limit(core(e), steps); }
uint32_t lnl_abi_next_step(lnl_engine *e) { return lnl_next_step(core(e)); }
uint32_t lnl_abi_chunk_tokens(lnl_engine *e) { return lnl_chunk_tokens(core(e)); }
int32_t lnl_abi_sample(lnl_engine *e) { return lnl_sample(core(e)); }

uint32_t lnl_abi_is_end(lnl_engine *e, int32_t id) {
  const tok *t = lnl_get_tokenizer(core(e));
  return t && tok_is_end(t, id);
}

const float *lnl_abi_logits(lnl_engine *e) {
  uint32_t rows;
  return lnl_logits(core(e), &rows);
}
uint32_t lnl_abi_logits_rows(lnl_engine *e) {
  uint32_t rows;
  lnl_logits(core(e), &rows);
  return rows;
}
double lnl_abi_logprob(lnl_engine *e, uint32_t row, int32_t id) { return lnl_logprob(core(e), row, id); }

uint32_t lnl_abi_thread_count(lnl_engine *e) { return lnl_get_pool(core(e))->thread_count; }

uint8_t *lnl_abi_thread_tls(lnl_engine *e, uint32_t thread) {
  uint8_t *block = lnl_get_thread_block(core(e), thread);
  return block ? block + POOL_STACK_BYTES : NULL;
}
/* The stack grows down from where the thread-local variables begin. */
uint8_t *lnl_abi_thread_stack(lnl_engine *e, uint32_t thread) { return lnl_abi_thread_tls(e, thread); }

void lnl_abi_thread_main(lnl_engine *e, uint32_t thread) { pool_thread_main(lnl_get_pool(core(e)), thread); }
void lnl_abi_thread_lost(lnl_engine *e) { pool_report_lost(lnl_get_pool(core(e))); }
void lnl_abi_threads_stop(lnl_engine *e) { pool_stop(lnl_get_pool(core(e))); }
void lnl_abi_use_one_thread(lnl_engine *e) { lnl_use_one_thread(core(e)); }

double lnl_abi_number(lnl_engine *e, uint32_t which) {
  lnl_info info = lnl_get_info(core(e));
  mem_stats stats = mem_get_stats();
  switch (which) {
  case NUM_FITS:
    return lnl_get_budget(core(e))->fits;
  case NUM_N_CTX:
    return info.n_ctx;
  case NUM_N_CTX_TRAIN:
    return info.n_ctx_train;
  case NUM_N_VOCAB:
    return info.n_vocab;
  case NUM_N_PAST:
    return info.n_past;
  case NUM_BOS:
    return info.bos;
  case NUM_EOS:
    return info.eos;
  case NUM_HAS_TOKENIZER:
    return info.has_tokenizer;
  case NUM_ALLOC_CALLS:
    return (double)stats.alloc_calls;
  case NUM_GROW_CALLS:
    return (double)stats.grow_calls;
  case NUM_LIVE_BYTES:
    return (double)stats.live_bytes;
  case NUM_HIGH_WATER_BYTES:
    return (double)stats.high_water_bytes;
  case NUM_HOST_BYTES:
    return (double)stats.host_bytes;
  case NUM_CHUNK:
    return info.chunk;
  case NUM_WEIGHT_BYTES:
    return (double)info.weight_bytes;
  case NUM_LOADED_BYTES:
    return (double)info.loaded_bytes;
  case NUM_ADDS_BOS:
    return info.adds_bos;
  case NUM_LIVE_BLOCKS:
    return (double)stats.live_blocks;
  case NUM_HEADER_BYTES:
    return (double)info.header_bytes;
  case NUM_MAX_PIECE_BYTES: {
    const tok *t = lnl_get_tokenizer(core(e));
    return t ? (double)tok_max_piece_bytes(t) : 0;
  }
  case NUM_N_EMBD:
    return (double)info.n_embd;
  case NUM_STREAMED_BYTES:
    return (double)info.streamed_bytes;
  case NUM_EXPERT_HITS:
    return (double)info.expert_hits;
  case NUM_EXPERT_MISSES:
    return (double)info.expert_misses;
  case NUM_CHUNK_DECODES:
    return info.chunk_decodes;
  default:
    return -1;
  }
}

void lnl_abi_fail_alloc(double nth) { mem_fail_at(as_u64(nth, 0)); }
