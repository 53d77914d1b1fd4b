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
  HOLD_F32,    /* dequantised to f32 while loading */
  HOLD_PACKED, /* rows interleaved by 8 for the kernel, while loading */
} lnl_hold;

typedef enum lnl_decider { BY_RESOLVER, BY_PROFILE, BY_OVERRIDE, BY_TENSOR_OVERRIDE } lnl_decider;

typedef enum lnl_reason {
#define LNL_REASON(CODE, text) REASON_##CODE,
#include "reasons.inc"
#undef LNL_REASON
  REASON_COUNT
} lnl_reason;

enum { PLACE_MAX_REASONS = 6 };

typedef struct lnl_placement {
  lnl_domain domain;
  lnl_scope scope;
  lnl_hold hold;
  lnl_decider decided_by;
  uint64_t stored_bytes;
  uint64_t resident_bytes; /* bytes of linear memory; 0 when mapped */
  const char *kernel;      /* what will read it; static storage */
  uint32_t reason_count;
  lnl_reason reasons[PLACE_MAX_REASONS]; /* in the order in which they were found */
} lnl_placement;

/* What the resolver may look at, and nothing else. */
typedef struct place_query {
  const lnl_host *host;
  bool vector;      /* a norm or bias: one row, read as f32 */
  bool embedding;   /* rows are looked up */
  bool also_output; /* the embedding serves as output matrix too */
  bool stored_f32;
  const char *kernel; /* the kernel of the stored form */
  uint64_t stored_bytes, value_count;
  const char *packed_kernel; /* of the packed form; NULL when there is none */
  uint64_t packed_bytes;
  bool tight;  /* there is no room for a form larger than the stored one */
  bool stream; /* there is no room for it: it may stay in the source (see stream.h) */
} place_query;

void place_resolve(const place_query *query, lnl_placement *out);

const char *place_domain_name(lnl_domain domain);
const char *place_scope_name(lnl_scope scope);
const char *place_hold_name(lnl_hold hold);
const char *place_decider_name(lnl_decider decider);
const char *place_reason_code(lnl_reason reason);
const char *place_reason_text(lnl_reason reason);

#endif
