#include "place.h"

#include <string.h>

static void because(lnl_placement *out, lnl_reason reason) {
  LNL_ASSERT(out->reason_count < PLACE_MAX_REASONS);
  out->reasons[out->reason_count++] = reason;
}

/* Rows are looked up, and nothing else is done with it. */
static bool only_looked_up(const place_query *query) { return query->embedding && !query->also_output; }

/* Holds it as is wished, if it can be; else keeps the reason. */
static bool grant(const place_query *query, place_wish wish, lnl_decider who, lnl_placement *out) {
  if (wish == WISH_NONE) return false;
  lnl_hold hold = (lnl_hold)(wish - 1);
  if ((hold == HOLD_F32 && query->stored_f32) || (hold == HOLD_F16 && query->stored_f16)) hold = HOLD_STORED;
  if (query->vector && hold != (query->stored_f32 ? HOLD_STORED : HOLD_F32)) {
    because(out, REASON_VECTOR_ONLY_F32);
    return false;
  }
  if (hold == HOLD_PACKED && !query->packed_kernel) {
    because(out, REASON_NO_PACKED_FORM);
    return false;
  }
  out->hold = hold;
  out->decided_by = who;
  because(out, REASON_AS_ASKED);
  return true;
}

/* Where nobody asks for a form. A host that maps files gains more from the
 * file's own bytes than from a packed copy. */
static void choose_form(const place_query *query, lnl_placement *out) {
  if (query->vector && !query->stored_f32) {
    out->hold = HOLD_F32;
    because(out, REASON_VECTOR_NEEDS_F32);
    return;
  }
  const bool larger = query->packed_bytes > query->stored_bytes;
  if (query->packed_kernel && only_looked_up(query)) {
    because(out, REASON_ROWS_KEPT_TO_LOOK_UP);
  } else if (query->packed_kernel && !query->host->can_map) {
    if (!larger || !(query->tight || (query->profile && query->profile->save))) {
      out->hold = HOLD_PACKED;
      because(out, REASON_PACKED_FOR_KERNEL);
      return;
    }
    const bool saves = query->profile && query->profile->save;
    if (saves) out->decided_by = BY_PROFILE;
    because(out, saves ? REASON_PROFILE_SAVES : REASON_PACKING_TOO_LARGE);
  }
  out->hold = HOLD_STORED;
  because(out, query->stored_f32 ? REASON_STORED_F32 : REASON_KERNEL_READS_STORED);
}

static void check_strict(const place_query *query, lnl_placement *out) {
  if (!query->profile || !query->profile->strict || query->vector || only_looked_up(query)) return;
  if (out->decided_by >= BY_OVERRIDE || query->value_count < PLACE_SMALL_VALUES || query->integer) return;
  out->refused = true;
  out->decided_by = BY_PROFILE;
  because(out, REASON_NO_INTEGER_KERNEL);
}

/* A mapping needs all three: a form that is the file's own bytes, a kernel that
 * reads them in place, and a host that can map. */
static void choose_domain(const place_query *query, lnl_placement *out) {
  const bool as_stored = out->hold == HOLD_STORED, can_map = query->host->can_map;
  if (!can_map) because(out, REASON_HOST_CANNOT_MAP);
  if (!as_stored) because(out, REASON_COPY_NOT_MAPPABLE);
  if (can_map && as_stored && query->vector) because(out, REASON_VECTOR_ALIGNED_COPY);
  if (can_map && as_stored && !query->vector) {
    out->domain = DOMAIN_MAPPED;
    because(out, REASON_MAPPED_AS_STORED);
    return;
  }
  if (query->stream && !query->vector && out->hold <= HOLD_PACKED) {
    out->domain = DOMAIN_STREAMED;
    because(out, only_looked_up(query) ? REASON_STREAMED_ROWS : REASON_STREAMED_NO_ROOM);
    return;
  }
  const uint64_t bytes[HOLD_COUNT] = {
      [HOLD_STORED] = query->stored_bytes,
      [HOLD_PACKED] = query->packed_bytes,
      [HOLD_F32] = query->value_count * 4,
      [HOLD_F16] = query->value_count * 2,
  };
  out->domain = DOMAIN_HEAP;
  because(out, only_looked_up(query) ? REASON_ROWS_ON_DEMAND : REASON_READ_EVERY_STEP);
  out->resident_bytes = bytes[out->hold];
}

void place_resolve(const place_query *query, lnl_placement *out) {
  *out =
      (lnl_placement){.scope = SCOPE_MODEL, .decided_by = BY_RESOLVER, .stored_bytes = query->stored_bytes};
  if (!grant(query, query->tensor_wish, BY_TENSOR_OVERRIDE, out) &&
      !grant(query, query->uniform_wish, BY_OVERRIDE, out)) {
    choose_form(query, out);
  }
  const char *const kernels[HOLD_COUNT] = {
      [HOLD_STORED] = query->kernel,
      [HOLD_PACKED] = query->packed_kernel,
      [HOLD_F32] = query->kernel_f32,
      [HOLD_F16] = query->kernel_f16,
  };
  out->kernel = query->vector ? "f32" : kernels[out->hold];
  if (query->also_output) because(out, REASON_TIED_OUTPUT);
  check_strict(query, out);
  choose_domain(query, out);
}

/* --- profiles --------------------------------------------------------------------- */

const place_profile *place_find_profile(place_profile_id id, lnl_host_kind kind) {
  static const place_profile profiles[PROFILE_COUNT] = {
      [PROFILE_BROWSER] = {"browser", 128, true, true, false, false, 0},
      [PROFILE_PHONE] = {"phone", 32, false, true, true, true, UINT64_C(1) << 30},
      [PROFILE_NODE] = {"node", 128, true, false, false, false, 0},
      [PROFILE_NATIVE] = {"native", 128, true, false, false, false, 0},
  };
  LNL_ASSERT(id < PROFILE_COUNT);
  if (id == PROFILE_OF_HOST)
    id = kind == HOST_BROWSER ? PROFILE_BROWSER : kind == HOST_NODE ? PROFILE_NODE : PROFILE_NATIVE;
  return &profiles[id];
}

/* --- overrides by name -------------------------------------------------------------- */

bool place_next_rule(const char **text, place_rule *out) {
  const char *line = *text;
  if (!line || !*line) return false;
  const char *end = strchr(line, '\n');
  if (!end) end = line + strlen(line);
  *text = *end ? end + 1 : end;
  const char *equals = end;
  while (equals > line && *equals != '=') equals--;
  const size_t bytes = (size_t)(end - equals);
  *out = (place_rule){line, (uint32_t)(equals - line), WISH_NONE};
  for (lnl_hold hold = HOLD_STORED; hold < HOLD_COUNT; hold++) {
    const char *name = place_hold_name(hold);
    if (*equals == '=' && strlen(name) + 1 == bytes && !memcmp(name, equals + 1, bytes - 1))
      out->wish = (place_wish)(hold + 1);
  }
  return true;
}

/* Goes back to the last star only, so that the work is at most the product of
 * the two lengths. */
bool place_rule_matches(const place_rule *rule, const char *name, size_t bytes) {
  size_t p = 0, n = 0, star = SIZE_MAX, resume = 0;
  while (n < bytes) {
    if (p < rule->glob_bytes && rule->glob[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < rule->glob_bytes && (rule->glob[p] == '?' || rule->glob[p] == name[n])) {
      p++;
      n++;
    } else if (star != SIZE_MAX) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < rule->glob_bytes && rule->glob[p] == '*') p++;
  return p == rule->glob_bytes;
}

/* --- names ---------------------------------------------------------------------------- */

const char *place_domain_name(lnl_domain domain) {
  static const char *const names[] = {"HEAP", "MAPPED", "STREAMED"};
  return names[domain];
}

const char *place_scope_name(lnl_scope scope) {
  static const char *const names[] = {"model", "session", "step", "scratch"};
  return names[scope];
}

const char *place_hold_name(lnl_hold hold) {
  static const char *const names[] = {"stored", "x8", "f32", "f16"};
  return names[hold];
}

const char *place_decider_name(lnl_decider decider) {
  static const char *const names[] = {"resolver", "profile", "uniform", "tensor"};
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
