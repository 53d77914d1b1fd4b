/* lineal: the one public header of the core.
 *
 * An engine is one model being opened or open, with one session (a timeline of
 * tokens and its key-value cache). The order of calls:
 *
 *   lnl_open -> header (begin, reserve/push until LNL_OK; each shard)
 *            -> lnl_plan_for      explain: nothing but the header was read
 *            -> lnl_bind          takes all memory; nothing is allocated later
 *            -> load (next/fed until LNL_OK)
 *            -> lnl_prompt, lnl_eval, lnl_sample, lnl_eval, lnl_sample ...
 *            -> lnl_close
 *
 * The core does no I/O: where bytes of the source are needed a call returns
 * LNL_NEED_BYTES and lnl_get_need tells which; the host writes them where it
 * is told and calls lnl_load_fed. One thread per engine. A failed call leaves
 * its message in lnl_get_error. Statuses from -60 on (the request) leave the
 * engine usable; after other failures it can only be closed. */
#ifndef LNL_LINEAL_H
#define LNL_LINEAL_H

#include "base.h"
#include "fmt.h"
#include "host.h"

typedef struct lnl_engine lnl_engine;

/* NULL when out of memory. *host is copied. */
lnl_engine *lnl_open(const lnl_host *host);
/* Frees everything; NULL is allowed. */
void lnl_close(lnl_engine *e);
const lnl_error *lnl_get_error(const lnl_engine *e);
/* Leaves a failure of the layer above where lnl_get_error finds it; returns
 * status. */
lnl_status lnl_set_error(lnl_engine *e, lnl_status status, const char *message);

/* --- header ------------------------------------------------------------------ */
/* Starts the header of a shard: 0 first, then 1.. up to lnl_shard_count - 1 in
 * order. file_bytes: size of that file, or UINT64_MAX when unknown. */
lnl_status lnl_header_begin(lnl_engine *e, uint32_t shard, uint64_t file_bytes);
/* Where `bytes` (1 to 16 MiB) more header bytes go; NULL on failure. */
uint8_t *lnl_header_reserve(lnl_engine *e, size_t bytes);
/* NEED_BYTES: the header continues. OK: complete. */
lnl_status lnl_header_push(lnl_engine *e, size_t bytes);
/* The source ended: OK if the header is complete. */
lnl_status lnl_header_finish(lnl_engine *e);
/* How many files make up the model (split.count, at least 1); 0 before shard 0
 * is complete. */
uint32_t lnl_shard_count(const lnl_engine *e);
/* The bytes of a header, once all are complete; NULL: they are not, or there is no
 * such shard. Valid until lnl_close. */
lnl_span lnl_header_image(const lnl_engine *e, uint32_t shard);

/* --- plan ---------------------------------------------------------------------- */
typedef struct lnl_plan_options {
  uint32_t n_ctx;        /* tokens; 0: the smaller of the model's own and LNL_DEFAULT_CONTEXT;
                            LNL_LARGEST_CONTEXT: the largest that fits */
  uint64_t budget_bytes; /* limit on all memory; 0: what host and profile say */
  uint32_t kv;           /* of keys, kv_type of kv.h: 0 auto, 1 f32, 2 f16, 3 q8_0, 4 q4_0 */
  uint32_t kv_v;         /* of values; 0: as kv. Two floats or two kinds of blocks */
  uint32_t chunk;        /* most tokens a prefill step; 0: the profile's */
  uint32_t profile;      /* place_profile_id of place.h; 0: of the host's kind */
  uint32_t hold;         /* place_wish of place.h for each tensor; 0: the core decides */
  const char *tensors;   /* lines GLOB=HOLD, the first that matches a tensor's name holds; read during
                            lnl_plan_for only; NULL: none */
  bool all_logits;       /* keep the logits of each position, not only the last */
  bool module_asked;     /* the user asked for this module: no other would do */
  bool embed;            /* one vector for the text instead of logits: see lnl_logits */
  bool spread;           /* every activation has a place of its own: to check the slab by */
  /* What does not fit may stay in the source and pass through a window of memory
   * each time a step needs it: lnl_eval then gives NEED_BYTES during each pass.
   * Only when the model does not fit otherwise, and the host can read at any offset. */
  bool stream;
  uint64_t window_bytes; /* of that window, at most; 0: default. Raised to the least that works */
} lnl_plan_options;
#define LNL_LARGEST_CONTEXT UINT32_MAX
enum { LNL_DEFAULT_CONTEXT = 2048, LNL_ALL_LOGITS_CHUNK = 16, LNL_EMBED_CONTEXT = 512 };

/* Reads the model out of the header, places each tensor, builds the plans and
 * the memory table. LNL_OK also when it does not fit (see lnl_get_budget).
 * BAD_ARGUMENT for an option that cannot be met; UNSUPPORTED_TYPE where a strict
 * profile refuses a tensor.
 * Where 64-bit addresses are chosen in a module of 32 (`address` of the explanation), the plan is
 * for the module that has them: the host makes it again there, and cannot bind it here.
 * May be called again with other options until lnl_bind. */
lnl_status lnl_plan_for(lnl_engine *e, const lnl_plan_options *options);

/* Where the memory goes, in bytes. planned: computed from the header;
 * measured: what the bound scopes really hold. */
typedef struct lnl_memory {
  uint64_t weights, kv, slab, scratch, tables, staging, window, total;
} lnl_memory;

/* What limits memory. */
typedef enum lnl_limit {
  LIMIT_ADDRESS_SPACE,
  LIMIT_HOST,   /* lnl_host.max_memory_bytes */
  LIMIT_PROBED, /* lnl_set_ceiling */
  LIMIT_PROFILE,
  LIMIT_BUDGET,
} lnl_limit;

typedef struct lnl_budget {
  lnl_memory planned;
  uint64_t limit_bytes; /* the smallest of budget, host ceiling and address space; UINT64_MAX: none */
  lnl_limit limit;      /* which of them that is */
  bool fits;
  uint32_t max_ctx; /* largest context that fits; 0: none does */
} lnl_budget;
const lnl_budget *lnl_get_budget(const lnl_engine *e);
/* The host has tried, and has no more memory than that: for plans from now on. */
void lnl_set_ceiling(lnl_engine *e, uint64_t bytes);
lnl_memory lnl_measure(const lnl_engine *e);

/* Texts for people and machines, appended to *text (check text->failed). */
void lnl_explain_json(const lnl_engine *e, lnl_text *text);
void lnl_explain_text(const lnl_engine *e, lnl_text *text);
void lnl_inspect_json(const lnl_engine *e, lnl_text *text);
void lnl_inspect_text(const lnl_engine *e, lnl_text *text);
/* What is planned and what is held, and the regions of memory one by one; after lnl_bind with addresses. */
void lnl_memory_json(const lnl_engine *e, lnl_text *text);
void lnl_steps_json(const lnl_engine *e, lnl_text *text);

/* --- weights --------------------------------------------------------------------- */
/* Takes all memory of the plan. DOES_NOT_FIT, OUT_OF_MEMORY. */
lnl_status lnl_bind(lnl_engine *e);

enum { LNL_MAX_NEED_BYTES = 4 << 20 };
typedef struct lnl_need {
  uint32_t shard;
  uint64_t offset;  /* in the shard's file */
  uint32_t bytes;   /* 1..LNL_MAX_NEED_BYTES; fewer may be fed */
  uint8_t *pointer; /* where to write them */
} lnl_need;
/* NEED_BYTES: the next missing bytes in file order are described by
 * lnl_get_need. OK: all weights are there. */
lnl_status lnl_load_next(lnl_engine *e);
/* For a host that evaluates while weights arrive: an lnl_eval that lacks a weight
 * asks from now on for the same bytes as lnl_load_next, so that the two may take
 * turns at any byte. by_layer: the order is that of the layers, within each that
 * of the file; first what is used before them, last what is used after. After
 * lnl_bind and before the first byte, else BAD_STATE. Allocates nothing. */
lnl_status lnl_load_ahead(lnl_engine *e, bool by_layer);
/* The bytes of a weight in its shard's file. */
typedef struct lnl_extent {
  uint32_t shard;
  uint64_t offset, bytes;
} lnl_extent;
/* Of the i-th weight in the order of loading; of one that is streamed, which is not
 * loaded, bytes is 0. False: there are not so many. */
bool lnl_load_extent(const lnl_engine *e, uint32_t i, lnl_extent *extent);
const lnl_need *lnl_get_need(const lnl_engine *e);
/* For hosts that read asynchronously. OK: the need is for what comes after that
 * which can be computed now; the host begins to read it, and may call lnl_eval
 * meanwhile, which then asks for the same bytes again when it cannot go on without.
 * MORE: they are needed now. */
lnl_status lnl_need_later(lnl_engine *e);
/* The first `bytes` of the need were written. */
lnl_status lnl_load_fed(lnl_engine *e, uint32_t bytes);
/* The source has no more: always GGUF_TRUNCATED, naming the tensor. */
lnl_status lnl_load_ended(lnl_engine *e);

/* On a host with can_map: shard's file is mapped at `data` for the lifetime of
 * the engine. Call before lnl_bind, for each shard. */
lnl_status lnl_map_shard(lnl_engine *e, uint32_t shard, const uint8_t *data, uint64_t bytes);

/* --- text -------------------------------------------------------------------------- */
/* Binds the tokenizer alone, of a vocabulary-only file too. Of a split model the
 * header of the first part is enough. */
lnl_status lnl_bind_tokenizer(lnl_engine *e);
/* NULL until bound, or when the file has no tokenizer. See tok.h. */
const struct tok *lnl_get_tokenizer(const lnl_engine *e);
/* tok_encode with that tokenizer; NO_TOKENIZER when there is none. *ids is
 * the caller's, to be freed with mem_free. */
lnl_status lnl_tokenize(lnl_engine *e, const char *text, size_t bytes, uint32_t flags, int32_t **ids,
                        size_t *count);

/* --- threads ------------------------------------------------------------------------- */
struct lnl_pool;
/* The threads that compute; how many, host_choose_threads (host.h) says. After
 * lnl_bind the host starts one for each number from 1 on, which runs
 * pool_thread_main (pool.h) until pool_stop; it must have returned before
 * lnl_close. */
struct lnl_pool *lnl_get_pool(lnl_engine *e);
/* Memory for the stack of that thread, pool_thread_bytes() of it, 64-byte
 * aligned; NULL before lnl_bind, and for a number that there is not. */
uint8_t *lnl_get_thread_block(lnl_engine *e, uint32_t thread);
/* The host could not start the others: the engine computes on one thread, and
 * explain says so. Not during lnl_eval. */
void lnl_use_one_thread(lnl_engine *e);

/* --- session ------------------------------------------------------------------------- */
struct sample_params;
lnl_status lnl_set_sampler(lnl_engine *e, const struct sample_params *params);

/* The timeline becomes ids[0, count); what it has in common with the present
 * one is reused when `reuse` is set, except that at least the last id is
 * evaluated. Returns the number of ids reused, or a status < 0: EMPTY_PROMPT,
 * PROMPT_TOO_LONG, BAD_TOKEN. A rejected prompt leaves the timeline as it was. */
int32_t lnl_prompt(lnl_engine *e, const int32_t *ids, uint32_t count, bool reuse);
/* Evaluates the next chunk of the timeline. OK: logits of its end are ready.
 * MORE: call again. NEED_BYTES: feed, call again; with several threads the
 * others compute meanwhile. CONTEXT_FULL: no room. */
lnl_status lnl_eval(lnl_engine *e);
/* From now on an lnl_eval runs at most so many steps of the plan and then
 * returns MORE; 0: whole chunks. For a host that times each step: the core has
 * no clock. */
void lnl_set_step_limit(lnl_engine *e, uint32_t steps);
/* The step with which the next lnl_eval goes on; 0 between chunks. */
uint32_t lnl_next_step(const lnl_engine *e);
/* How many tokens the chunk has that runs, or ran last. */
uint32_t lnl_chunk_tokens(const lnl_engine *e);
/* Samples from the last logits and appends the id to the timeline. Returns the
 * id, or BAD_STATE when no logits are ready. */
int32_t lnl_sample(lnl_engine *e);
/* [rows, n_vocab], or one row [n_embd] of length 1 when planned with embed; valid until the next lnl_eval;
 * NULL when none are ready. */
const float *lnl_logits(const lnl_engine *e, uint32_t *rows);
/* log p(id) at that row of the logits; -inf for an id outside the vocabulary. */
double lnl_logprob(const lnl_engine *e, uint32_t row, int32_t id);

typedef struct lnl_info {
  uint32_t n_ctx, n_ctx_train, n_vocab, n_past, chunk;
  uint32_t n_embd;  /* 0: planned for logits */
  int32_t bos, eos; /* -1: none */
  bool has_tokenizer, adds_bos;
  bool chunk_decodes;    /* the chunk that runs, or ran last, follows the plan of decode */
  uint64_t weight_bytes; /* stored bytes to load, all shards; not those that are streamed */
  uint64_t loaded_bytes;
  uint64_t header_bytes;               /* of all headers */
  uint64_t streamed_bytes;             /* that have passed through the window so far */
  uint64_t expert_hits, expert_misses; /* matrices of streamed experts found in the window, and not */
} lnl_info;
lnl_info lnl_get_info(const lnl_engine *e);

#endif
