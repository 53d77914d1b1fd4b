/* The resolver: where a tensor lives and in what form, decided by one pure
 * function that keeps every reason. explain prints this record, the loader
 * obeys it, the tests compare it. */
#ifndef LNL_PLACE_H
#define LNL_PLACE_H

#include "host.h"

typedef enum lnl_domain {
  DOMAIN_HEAP,     /* in linear memory */
  DOMAIN_MAPPED,   /* in a file mapping; only on hosts that can */
  DOMAIN_STREAMED, /* stays in the source, passes through a window */
} lnl_domain;

typedef enum lnl_scope { SCOPE_MODEL, SCOPE_SESSION, SCOPE_STEP, SCOPE_SCRATCH } lnl_scope;

typedef enum lnl_hold {
  HOLD_STORED, /* the file's own blocks */
  HOLD_PACKED, /* rows interleaved by 8 for the kernel, while loading */
  HOLD_F32,    /* dequantised while loading */
  HOLD_F16,
  HOLD_COUNT
} lnl_hold;

/* A form that somebody asks for: an lnl_hold plus 1. */
typedef enum place_wish { WISH_NONE, WISH_STORED, WISH_PACKED, WISH_F32, WISH_F16, WISH_COUNT } place_wish;

/* Who had the last word on the form: later ones go before earlier ones. */
typedef enum lnl_decider { BY_RESOLVER, BY_PROFILE, BY_OVERRIDE, BY_TENSOR_OVERRIDE } lnl_decider;

typedef enum lnl_reason {
#define LNL_REASON(CODE, text) REASON_##CODE,
#include "reasons.inc"
#undef LNL_REASON
  REASON_COUNT
} lnl_reason;

enum { PLACE_MAX_REASONS = 12 };

typedef struct lnl_placement {
  lnl_domain domain;
  lnl_scope scope;
  lnl_hold hold;
  lnl_decider decided_by;
  bool refused; /* the profile is strict, and no integer kernel reads it */
  uint64_t stored_bytes;
  uint64_t resident_bytes; /* bytes of linear memory; 0 when mapped */
  const char *kernel;      /* what will read it; static storage */
  uint32_t reason_count;
  lnl_reason reasons[PLACE_MAX_REASONS]; /* in the order in which they were found */
} lnl_placement;

/* What suits a kind of place to run on, where nobody asks for something else. */
typedef enum place_profile_id {
  PROFILE_OF_HOST, /* the one of the host's kind */
  PROFILE_BROWSER,
  PROFILE_PHONE,
  PROFILE_NODE,
  PROFILE_NATIVE,
  PROFILE_COUNT
} place_profile_id;
typedef struct place_profile {
  const char *name;
  uint32_t chunk;         /* tokens of a prompt that are evaluated together */
  bool kv_f32;            /* a small key-value cache is held in f32 */
  bool kv_q8;             /* where nothing larger fits, it is held in q8_0 */
  bool save;              /* no form is larger than the stored one */
  bool strict;            /* a large matrix that no integer kernel reads is refused */
  uint64_t ceiling_bytes; /* of all memory, where no budget is given; 0: none */
} place_profile;
/* id must be below PROFILE_COUNT. Static storage. */
const place_profile *place_find_profile(place_profile_id id, lnl_host_kind kind);

/* Matrices with fewer values than that are read too little for strictness: routers, mostly. */
enum { PLACE_SMALL_VALUES = 1 << 20 };

/* What the resolver may look at, and nothing else. */
typedef struct place_query {
  const lnl_host *host;
  const place_profile *profile; /* NULL: none */
  place_wish tensor_wish;       /* for this tensor, by its name */
  place_wish uniform_wish;      /* for all */
  bool vector;                  /* a norm or bias: one row, read as f32 */
  bool embedding;               /* rows are looked up */
  bool also_output;             /* the embedding serves as output matrix too */
  bool stored_f32, stored_f16;
  bool integer;       /* the stored form's kernels multiply integers */
  const char *kernel; /* the kernel of the stored form */
  const char *kernel_f32, *kernel_f16;
  uint64_t stored_bytes, value_count;
  const char *packed_kernel; /* of the packed form; NULL when there is none */
  uint64_t packed_bytes;
  bool tight;  /* there is no room for a form larger than the stored one */
  bool stream; /* there is no room for it: it may stay in the source (see stream.h) */
} place_query;

void place_resolve(const place_query *query, lnl_placement *out);

/* Overrides by name, one a line: GLOB=HOLD. In a glob * stands for any
 * characters, ? for one. */
typedef struct place_rule {
  const char *glob; /* of the text, not terminated */
  uint32_t glob_bytes;
  place_wish wish; /* WISH_NONE: the line names no hold */
} place_rule;
/* Takes the next line off *text; false at its end. */
bool place_next_rule(const char **text, place_rule *out);
bool place_rule_matches(const place_rule *rule, const char *name, size_t bytes);

const char *place_domain_name(lnl_domain domain);
const char *place_scope_name(lnl_scope scope);
const char *place_hold_name(lnl_hold hold);
const char *place_decider_name(lnl_decider decider);
const char *place_reason_code(lnl_reason reason);
const char *place_reason_text(lnl_reason reason);

#endif
