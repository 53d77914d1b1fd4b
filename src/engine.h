/* The inside of an engine, shared by engine.c, resolve.c, budget.c, load.c, session.c
 * and explain.c; nobody else. */
#ifndef LNL_ENGINE_H
#define LNL_ENGINE_H

#include "exec.h"
#include "kv.h"
#include "lineal.h"
#include "mem.h"
#include "model.h"
#include "plan.h"
#include "sample.h"
#include "stream.h"
#include "tok.h"

typedef enum engine_phase {
  PHASE_HEADER, /* reading headers */
  PHASE_READ,   /* all headers complete */
  PHASE_PLANNED,
  PHASE_BOUND, /* memory taken; weights arriving or there */
  PHASE_FAILED,
} engine_phase;

/* Why the key-value cache has its types. */
typedef enum kv_choice { KV_AS_ASKED, KV_SMALL, KV_LARGE, KV_OF_PROFILE, KV_TO_FIT } kv_choice;

/* What could be done when a model does not fit. */
typedef struct budget_suggestion {
  const char *code;
  char text[160];
  uint64_t saves_bytes;
  bool sufficient; /* found by planning again with it */
} budget_suggestion;
enum { BUDGET_MAX_SUGGESTIONS = 8 };

typedef struct mapped_shard {
  const uint8_t *data;
  uint64_t bytes;
} mapped_shard;

struct lnl_engine {
  lnl_host host;
  uint64_t ceiling_bytes; /* that it gives, found by trying; 0: not known */
  uint32_t own_bits;      /* of the addresses of this module */
  lnl_threads threads;
  lnl_error error;
  engine_phase phase;

  gguf *shards; /* owned, [shard_count] */
  uint32_t shard_count, shard_at;
  mapped_shard *mapped; /* owned, [shard_count], or NULL */

  tok_kind tok_kind;
  uint32_t n_vocab_tok;
  lnl_model model;
  lnl_plan_options options; /* resolved: no zeros, no auto */
  const place_profile *profile;
  bool kv_was_auto, largest_wanted; /* the types of the cache, and the context, were left to us */
  kv_choice kv_choice;
  uint32_t chunk_wish; /* before it was limited by the context; UINT32_MAX: all of it at once */
  bool tight;          /* forms larger than the stored ones did not fit */
  bool streams;        /* nor did those: some weights stay in the source */
  lnl_memory least;    /* with all streamed that can be; total 0: was not tried, or cannot be done */
  lnl_plan prefill, decode;
  lnl_budget budget;
  lnl_address address;
  uint64_t reach_bytes;                                  /* of the addresses that the plan is made for */
  uint64_t tight_weights, tight_staging;                 /* with no form larger than the stored one */
  budget_suggestion suggestions[BUDGET_MAX_SUGGESTIONS]; /* when it does not fit */
  uint32_t suggestion_count;

  /* scopes */
  lnl_arena tables;  /* model: tokenizer, rope frequencies */
  lnl_arena weights; /* model */
  lnl_arena cache;   /* session: KV */
  lnl_arena slab;    /* step */
  lnl_arena scratch; /* scratch of kernels and sampler, token history */

  tok *tok;
  float *inverse_freq;
  lnl_kv kv;
  uint8_t *slab_base;
  lnl_pool pool;
  uint8_t *attn_scratch; /* [threads], attn_scratch_stride apart */
  uint64_t attn_scratch_stride;
  uint8_t *thread_blocks; /* [threads - 1], pool_thread_bytes() each: stacks of the other threads */
  int32_t *history;       /* [n_ctx] */
  lnl_sampler sampler;

  /* loading */
  uint32_t load_cursor; /* weights before it, in the order of loading, are complete */
  bool load_ahead;      /* evaluation asks for the next weight of that order */
  bool by_layer;        /* the order is lnl_weight.turn, not that of the file */
  lnl_arena staging;    /* stored rows on their way into a packed form */
  lnl_arena streaming;  /* the window */
  lnl_window window;
  uint32_t expert_places; /* in the window, for matrices of experts that are streamed */
  uint8_t *stage;
  uint64_t stage_bytes;     /* how much fits */
  lnl_weight *stage_weight; /* whose bytes wait there */
  uint64_t staged_bytes;
  lnl_weight *need_weight;  /* that the need is for; NULL: no need */
  stream_piece *need_piece; /* NULL: the need is for the weight's own place */
  lnl_need need;

  /* session */
  uint32_t n_past;      /* positions in the cache */
  uint32_t n_total;     /* ids in the history, n_past included */
  bool long_text;       /* the positions in the cache were computed with factors for long texts */
  bool full;            /* one id was sampled beyond the context */
  uint32_t step_limit;  /* of one lnl_eval; 0: none */
  bool running;         /* exec is suspended in the middle of a step */
  uint32_t logits_rows; /* 0: none ready */
  lnl_exec exec;
};

/* Lays out one scope of the engine; run to measure, then to bind. */
typedef lnl_status (*engine_layout)(lnl_engine *e, lnl_arena *arena);
lnl_status engine_layout_tables(lnl_engine *e, lnl_arena *arena);
lnl_status engine_layout_weights(lnl_engine *e, lnl_arena *arena);
lnl_status engine_layout_cache(lnl_engine *e, lnl_arena *arena);
lnl_status engine_layout_slab(lnl_engine *e, lnl_arena *arena);
lnl_status engine_layout_scratch(lnl_engine *e, lnl_arena *arena);

lnl_status engine_layout_staging(lnl_engine *e, lnl_arena *arena);
lnl_status engine_layout_window(lnl_engine *e, lnl_arena *arena);

/* The types of the cache that is planned. */
kv_types engine_kv_types(const lnl_engine *e);

/* Bytes of headers, model table and plans, which exist before lnl_bind. */
uint64_t engine_early_table_bytes(const lnl_engine *e);

/* Makes the missing bytes of w the engine's need; returns NEED_BYTES. */
lnl_status engine_ask_for(lnl_engine *e, lnl_weight *w);
/* The same for a piece that is missing in the window. */
lnl_status engine_ask_for_piece(lnl_engine *e, stream_piece *piece);

/* --- resolve.c ----------------------------------------------------------------- */

/* Reads the model, decides what was left to us, and fills plans, placements, budget,
 * address and suggestions. Fails as lnl_plan_for does; allocates the model and the plans. */
lnl_status resolve_plan(lnl_engine *e, const lnl_plan_options *options);
/* Decides where weight i lives, and how; streamed: it may stay in the source. Fails
 * where the profile refuses it, whatever `streamed` is. */
lnl_status resolve_place(lnl_engine *e, uint32_t i, bool streamed);

/* --- budget.c ------------------------------------------------------------------ */

/* Notes what weights and staging take, now that they are placed as if there were little room. */
lnl_status budget_note_tight(lnl_engine *e);
/* Fills e->budget by measuring every scope, all but max_ctx; nothing is bound. */
lnl_status budget_make(lnl_engine *e);
/* Plans from now on may take what the addresses of this module reach. */
void budget_reach_own(lnl_engine *e);
/* Fills e->address for the plan that budget_make measured, before anything is streamed. From
 * now on plans may take what the host can give: with wider addresses where these are chosen,
 * or where a budget is larger than 32-bit ones reach. True: chosen, and wider than our own. */
bool budget_choose_address(lnl_engine *e);
/* The largest context that fits, whatever the present one; 0: none does. Plans
 * with smaller chunks where it must, for which it allocates and frees. */
uint32_t budget_largest_context(const lnl_engine *e);
/* What could be done, if it does not fit; after budget_make. Plans as above. */
void budget_suggest(lnl_engine *e);

/* When the plan does not fit: fills e->least where the source can be streamed and
 * that saves memory. With options.stream, sets e->streams and places weights so
 * that as many stay as fit, those first that save most reading for a byte of
 * memory; none stays when not even that fits. Every weight must have been placed
 * with e->tight false. */
lnl_status budget_stream(lnl_engine *e);
/* Whether the host could. */
bool budget_can_stream(const lnl_engine *e);

#endif
