/* The boundary between JS and the core: numbers and byte spans only. One
 * instance of the module holds any number of engines; js-glue/abi.js is the
 * only caller. Handles and pointers are uint32 (read them with >>> 0: they
 * pass 2 GiB), in the module with 64-bit addresses BigInts; the handle is the only
 * one of them that is passed in. 64-bit quantities travel as double (exact to 2^53).
 * "status": an lnl_status (0 ok, > 0 continue, < 0 failed: the text is at
 * lnl_abi_error). Every call may grow memory: take a new view afterwards. */
#ifndef LNL_ABI_H
#define LNL_ABI_H

#include "../src/lineal.h"

enum { LNL_ABI_VERSION = 9 }; /* js-glue/abi.js refuses another number */
uint32_t lnl_abi_version(void);
uint32_t lnl_abi_isa(void); /* lnl_isa of this module */
/* NUL-terminated, static. */
const char *lnl_abi_status_name(int32_t status);
const char *lnl_abi_status_text(int32_t status);
const char *lnl_abi_status_remedy(int32_t status);

/* flags: 1 can_map, 2 can_grow, 4 memory64, 8 sync_read, 16 range_read,
 * 32 isolated, 64 can_wait. threads: hardware threads; threads_asked 0: the core
 * chooses. max_memory_bytes 0 = unknown. Returns 0 when out of memory. */
lnl_engine *lnl_abi_open(uint32_t host_kind, uint32_t flags, uint32_t threads, uint32_t threads_asked,
                         double max_memory_bytes);
void lnl_abi_close(lnl_engine *e);
/* The message of the last failure of e, NUL-terminated. */
const char *lnl_abi_error(lnl_engine *e);

/* --- header (shard 0 first, then shards 1.. of a split model) -------------- */
int32_t lnl_abi_header_begin(lnl_engine *e, uint32_t shard, double file_bytes); /* < 0: size unknown */
/* Where the next `bytes` header bytes go; NULL: failed, see lnl_abi_error. */
uint8_t *lnl_abi_header_reserve(lnl_engine *e, uint32_t bytes);
/* status: NEED_BYTES the header continues; OK complete. */
int32_t lnl_abi_header_push(lnl_engine *e, uint32_t bytes);
int32_t lnl_abi_header_finish(lnl_engine *e); /* the source ended */
/* The bytes of a complete header, for an engine in another module; NULL: not complete. */
const uint8_t *lnl_abi_header_image(lnl_engine *e, uint32_t shard);
double lnl_abi_header_image_bytes(lnl_engine *e, uint32_t shard);
uint32_t lnl_abi_shard_count(lnl_engine *e); /* 1 unless split.count says more */

/* --- plan ------------------------------------------------------------------- */
/* n_ctx 0: the smaller of the model's own and 2048; 2^32 - 1: the largest that
 * fits. budget_bytes 0: none. kv: 0 auto, 1 f32, 2 f16, 3 q8_0, 4 q4_0; that of
 * values, where it is another, times 256 on top. chunk 0: default. flags: 1 keep the logits
 * of each prompt position (for logits and perplexity), 2 one vector of the text
 * instead of logits (embeddings; always so for models without an output), 4 stream
 * what does not fit, through a window of at most window_bytes (0: default): evaluation
 * then gives NEED_BYTES all the time, 8 each activation in a place of its own (a check),
 * 16 the user asked for this module by name.
 * placement: the profile (0 the host's own, 1 browser, 2 phone, 3 node, 4 native) plus
 * 256 times the form of all weights (0 the core decides, 1 stored, 2 x8, 3 f32, 4 f16).
 * tensor_bytes: so many bytes of the input are overrides by name, lines GLOB=FORM with a
 * NUL at the end; 0: none. status OK even when it does not fit: lnl_abi_number(e, NUM_FITS) tells. */
int32_t lnl_abi_plan(lnl_engine *e, uint32_t n_ctx, double budget_bytes, uint32_t kv, uint32_t chunk,
                     uint32_t flags, uint32_t placement, uint32_t tensor_bytes, double window_bytes);

/* The host tried, and has no more memory than that: for plans from now on. */
void lnl_abi_set_ceiling(lnl_engine *e, double bytes);

/* Texts made on demand: valid until the next lnl_abi_text of e. most 0: the whole. Else
 * at most so many bytes of it, those from `from` on, for which the input and its ids are
 * freed: pieces of up to 48 KiB take no memory beyond the plan. Fewer than `most`: the text
 * ends there. Another number frees the last text. */
enum {
  TEXT_EXPLAIN_JSON = 0,
  TEXT_EXPLAIN = 1,
  TEXT_INSPECT_JSON = 2,
  TEXT_INSPECT = 3,
  TEXT_MEMORY_JSON = 4,
  TEXT_PLAN_JSON = 5
};
/* NULL: failed, or freed */
const char *lnl_abi_text(lnl_engine *e, uint32_t which, uint32_t from, uint32_t most);
uint32_t lnl_abi_text_bytes(lnl_engine *e);

/* --- weights ----------------------------------------------------------------- */
int32_t lnl_abi_bind(lnl_engine *e); /* takes all memory; DOES_NOT_FIT, OUT_OF_MEMORY */
/* NEED_BYTES: read the need_* values, write up to need_bytes bytes of shard
 * need_shard from file offset need_offset at need_pointer, call
 * lnl_abi_load_fed with how many. OK: every weight is in place. Needs come in
 * rising file offset within a shard, so one forward stream suffices. */
int32_t lnl_abi_load_next(lnl_engine *e);
uint32_t lnl_abi_need_shard(lnl_engine *e);
/* From now on lnl_abi_eval asks for the same bytes as lnl_abi_load_next, and
 * both for one layer after the other if by_layer: see lnl_load_ahead. */
int32_t lnl_abi_load_ahead(lnl_engine *e, uint32_t by_layer);
/* Where the i-th weight in the order of loading lies. which: 0 shard, 1 offset in its file, 2 bytes;
 * -1: there are not so many weights. */
double lnl_abi_load_extent(lnl_engine *e, uint32_t i, uint32_t which);
double lnl_abi_need_offset(lnl_engine *e);
uint32_t lnl_abi_need_bytes(lnl_engine *e); /* at most 4 MiB */
uint8_t *lnl_abi_need_pointer(lnl_engine *e);
int32_t lnl_abi_load_fed(lnl_engine *e, uint32_t bytes);
/* 0: the need is for what comes after that which can be computed now. Begin to read
 * it and call lnl_abi_eval meanwhile, which asks for it again in time. 2: it is
 * needed now. */
int32_t lnl_abi_need_later(lnl_engine *e);
/* The source ended before the need was met: GGUF_TRUNCATED naming the tensor
 * and the missing bytes. */
int32_t lnl_abi_load_ended(lnl_engine *e);

/* --- text --------------------------------------------------------------------- */
/* Binds the tokenizer alone (a vocabulary-only file); lnl_abi_bind includes it. */
int32_t lnl_abi_tok_bind(lnl_engine *e);
/* A buffer for input of `bytes` bytes, valid until the next call of it. 0 bytes:
 * frees it and the ids of lnl_abi_tokens, and returns NULL, which is no failure. */
uint8_t *lnl_abi_input(lnl_engine *e, uint32_t bytes);
/* Encodes the first `bytes` of the input. flags: 1 add BOS/EOS as the file
 * asks, 2 parse special tokens. Returns the count (ids at lnl_abi_tokens) or a
 * negative status. */
int32_t lnl_abi_tokenize(lnl_engine *e, uint32_t bytes, uint32_t flags);
const int32_t *lnl_abi_tokens(lnl_engine *e);
/* The bytes of one token; length from lnl_abi_piece_bytes. */
const uint8_t *lnl_abi_piece(lnl_engine *e, int32_t id, uint32_t show_special);
uint32_t lnl_abi_piece_bytes(lnl_engine *e);

/* --- generation ---------------------------------------------------------------- */
/* temperature 0 = greedy. top_k 0, top_p 1, min_p 0, repeat_penalty 1 = off. */
int32_t lnl_abi_sampler(lnl_engine *e, double temperature, uint32_t top_k, double top_p, double min_p,
                        double repeat_penalty, uint32_t repeat_last_n, double seed);
/* The timeline becomes the first `count` int32 ids of the input; the longest
 * common prefix with what is there is reused (at least one id is evaluated).
 * Returns how many ids were reused, or a negative status. reuse 0: start cold. */
int32_t lnl_abi_prompt(lnl_engine *e, uint32_t count, uint32_t reuse);
/* Evaluates one chunk of what is pending. status: OK logits ready; MORE call
 * again; NEED_BYTES feed as for lnl_abi_load_next, call again. */
int32_t lnl_abi_eval(lnl_engine *e);
/* From now on an eval runs at most so many steps of TEXT_PLAN_JSON's plan and
 * then gives MORE; 0: whole chunks. For hosts that time each step. */
void lnl_abi_step_limit(lnl_engine *e, uint32_t steps);
/* The step with which the next eval goes on; 0: with a new chunk. */
uint32_t lnl_abi_next_step(lnl_engine *e);
/* How many tokens the chunk has that runs, or ran last. */
uint32_t lnl_abi_chunk_tokens(lnl_engine *e);
/* Samples the next id from the last logits and appends it as pending.
 * Returns the id, or a negative status. When the context is full the id is
 * returned, and the next lnl_abi_eval gives CONTEXT_FULL. */
int32_t lnl_abi_sample(lnl_engine *e);
uint32_t lnl_abi_is_end(lnl_engine *e, int32_t id);
/* Logits of the chunk just evaluated: float [rows, n_vocab]; one row (the last
 * position) unless the plan keeps all. Valid until the next eval. */
const float *lnl_abi_logits(lnl_engine *e);
uint32_t lnl_abi_logits_rows(lnl_engine *e);
/* Natural log of the model's probability of id at that row, unmodified. */
double lnl_abi_logprob(lnl_engine *e, uint32_t row, int32_t id);

/* --- threads (modules of the -mt builds; others always have one) ------------- */
/* How many threads compute, that of the caller (0) among them. After
 * lnl_abi_bind the host gives each other one an instance over the same memory,
 * sets its __stack_pointer to thread_stack, calls __wasm_init_tls(thread_tls)
 * if the module has it, and then thread_main, which returns only after
 * threads_stop. lnl_abi_close and lnl_abi_use_one_thread come after that. */
uint32_t lnl_abi_thread_count(lnl_engine *e);
uint8_t *lnl_abi_thread_stack(lnl_engine *e, uint32_t thread); /* its upper end; NULL: no such thread */
uint8_t *lnl_abi_thread_tls(lnl_engine *e, uint32_t thread);
void lnl_abi_thread_main(lnl_engine *e, uint32_t thread);
/* A thread died: evaluation fails with THREAD_LOST from now on. From any thread. */
void lnl_abi_thread_lost(lnl_engine *e);
void lnl_abi_threads_stop(lnl_engine *e);
/* The others could not be started: go on with one. */
void lnl_abi_use_one_thread(lnl_engine *e);

/* --- numbers --------------------------------------------------------------------- */
enum {
  NUM_FITS = 0,
  NUM_N_CTX,
  NUM_N_CTX_TRAIN,
  NUM_N_VOCAB,
  NUM_N_PAST,
  NUM_BOS,
  NUM_EOS,
  NUM_HAS_TOKENIZER,
  NUM_ALLOC_CALLS,
  NUM_GROW_CALLS,
  NUM_LIVE_BYTES,
  NUM_HIGH_WATER_BYTES,
  NUM_HOST_BYTES,
  NUM_CHUNK,
  NUM_WEIGHT_BYTES /* stored bytes still to load, for progress totals */,
  NUM_LOADED_BYTES,
  NUM_ADDS_BOS,
  NUM_LIVE_BLOCKS,
  NUM_HEADER_BYTES,
  NUM_MAX_PIECE_BYTES /* of text that one token stands for; 0: no tokenizer */,
  NUM_N_EMBD /* length of the vector; 0: the model was opened for logits */,
  NUM_STREAMED_BYTES /* that have passed through the window so far */,
  NUM_EXPERT_HITS /* matrices of streamed experts that were in the window */,
  NUM_EXPERT_MISSES /* and that were not */,
  NUM_CHUNK_DECODES /* the chunk that runs, or ran last, follows the plan of decode */
};
double lnl_abi_number(lnl_engine *e, uint32_t which);

/* Test hooks: fail the nth allocation from now. */
void lnl_abi_fail_alloc(double nth);

#endif
