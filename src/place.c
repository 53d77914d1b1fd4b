#include "place.h"

static void because(lnl_placement *out, lnl_reason reason) {
  LNL_ASSERT(out->reason_count < PLACE_MAX_REASONS);
  out->reasons[out->reason_count++] = reason;
}

void place_resolve(const place_query *query, lnl_placement *out) {
  *out = (lnl_placement){
      .scope = SCOPE_MODEL,
      .decided_by = BY_RESOLVER,
      .stored_bytes = query->stored_bytes,
      .kernel = query->vector ? "f32" : query->kernel,
  };

  /* Form. A host that maps files gains more from the file's own bytes than from
   * a packed copy. */
  bool looked_up = query->embedding && !query->also_output;
  if (query->vector && !query->stored_f32) {
    out->hold = HOLD_F32;
    because(out, REASON_VECTOR_NEEDS_F32);
  } else if (query->packed_kernel && !query->host->can_map && !looked_up &&
             (!query->tight || query->packed_bytes <= query->stored_bytes)) {
    out->hold = HOLD_PACKED;
    out->kernel = query->packed_kernel;
    because(out, REASON_PACKED_FOR_KERNEL);
  } else {
    out->hold = HOLD_STORED;
    if (query->packed_kernel && looked_up) because(out, REASON_ROWS_KEPT_TO_LOOK_UP);
    if (query->packed_kernel && !looked_up && !query->host->can_map) because(out, REASON_PACKING_TOO_LARGE);
    because(out, query->stored_f32 ? REASON_STORED_F32 : REASON_KERNEL_READS_STORED);
  }
  if (query->also_output) because(out, REASON_TIED_OUTPUT);

  /* Domain. A mapping needs all three: a form that is the file's own bytes, a
   * kernel that reads them in place, and a host that can map. */
  bool as_stored = out->hold == HOLD_STORED;
  if (!query->host->can_map) because(out, REASON_HOST_CANNOT_MAP);
  if (!as_stored) because(out, REASON_COPY_NOT_MAPPABLE);
  if (query->host->can_map && as_stored && query->vector) because(out, REASON_VECTOR_ALIGNED_COPY);
  if (query->host->can_map && as_stored && !query->vector) {
    out->domain = DOMAIN_MAPPED;
    because(out, REASON_MAPPED_AS_STORED);
  } else if (query->stream && !query->vector) {
    out->domain = DOMAIN_STREAMED;
    because(out, looked_up ? REASON_STREAMED_ROWS : REASON_STREAMED_NO_ROOM);
  } else {
    out->domain = DOMAIN_HEAP;
    because(out, looked_up ? REASON_ROWS_ON_DEMAND : REASON_READ_EVERY_STEP);
    out->resident_bytes = as_stored                  ? query->stored_bytes
                          : out->hold == HOLD_PACKED ? query->packed_bytes
                                                     : query->value_count * sizeof(float);
  }
}

const char *place_domain_name(lnl_domain domain) {
  static const char *const names[] = {"HEAP", "MAPPED", "STREAMED"};
  return names[domain];
}

const char *place_scope_name(lnl_scope scope) {
  static const char *const names[] = {"model", "session", "step", "scratch"};
  return names[scope];
}

const char *place_hold_name(lnl_hold hold) {
  static const char *const names[] = {"stored", "f32", "x8"};
  return names[hold];
}

const char *place_decider_name(lnl_decider decider) {
  static const char *const names[] = {"resolver", "profile", "override", "tensor_override"};
  return names[decider];
}

static const struct {
  const char *code, *text;
} reason_table[REASON_COUNT] = {
#define LNL_REASON(CODE, text) {#CODE, text},
#include "reasons.inc"
#undef LNL_REASON
};

const char *place_reason_code(lnl_reason reason) { return reason_table[reason].code; }
const char *place_reason_text(lnl_reason reason) { return reason_table[reason].text; }
