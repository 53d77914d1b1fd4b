/* The resolver against a table: every combination of what it may look at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/forms/form.h"
#include "../../src/place.h"

typedef struct expectation {
  bool can_map, vector, embedding, also_output, stored_f32, tight, stream;
  uint64_t packed_bytes; /* 0: the form has no packing */
  lnl_domain domain;
  lnl_hold hold;
  uint64_t resident_bytes; /* of 1000 values stored in 2000 bytes (f32: 4000) */
  const char *reasons;     /* codes in order, separated by spaces */
} expectation;

static const expectation table[] = {
    /* matrices */
    {.hold = HOLD_STORED,
     .resident_bytes = 2000,
     .reasons = "KERNEL_READS_STORED HOST_CANNOT_MAP READ_EVERY_STEP"},
    {.stored_f32 = true, .resident_bytes = 4000, .reasons = "STORED_F32 HOST_CANNOT_MAP READ_EVERY_STEP"},
    {.can_map = true, .domain = DOMAIN_MAPPED, .reasons = "KERNEL_READS_STORED MAPPED_AS_STORED"},
    {.can_map = true, .stored_f32 = true, .domain = DOMAIN_MAPPED, .reasons = "STORED_F32 MAPPED_AS_STORED"},
    /* the embedding, alone and as output matrix */
    {.embedding = true,
     .resident_bytes = 2000,
     .reasons = "KERNEL_READS_STORED HOST_CANNOT_MAP ROWS_ON_DEMAND"},
    {.embedding = true,
     .also_output = true,
     .resident_bytes = 2000,
     .reasons = "KERNEL_READS_STORED TIED_OUTPUT HOST_CANNOT_MAP READ_EVERY_STEP"},
    {.can_map = true,
     .embedding = true,
     .also_output = true,
     .domain = DOMAIN_MAPPED,
     .reasons = "KERNEL_READS_STORED TIED_OUTPUT MAPPED_AS_STORED"},
    /* forms that have a packing */
    {.packed_bytes = 2200,
     .hold = HOLD_PACKED,
     .resident_bytes = 2200,
     .reasons = "PACKED_FOR_KERNEL HOST_CANNOT_MAP COPY_NOT_MAPPABLE READ_EVERY_STEP"},
    {.packed_bytes = 2200,
     .tight = true,
     .resident_bytes = 2000,
     .reasons = "PACKING_TOO_LARGE KERNEL_READS_STORED HOST_CANNOT_MAP READ_EVERY_STEP"},
    {.packed_bytes = 2000,
     .tight = true,
     .hold = HOLD_PACKED,
     .resident_bytes = 2000,
     .reasons = "PACKED_FOR_KERNEL HOST_CANNOT_MAP COPY_NOT_MAPPABLE READ_EVERY_STEP"},
    {.packed_bytes = 2200,
     .can_map = true,
     .domain = DOMAIN_MAPPED,
     .reasons = "KERNEL_READS_STORED MAPPED_AS_STORED"},
    {.packed_bytes = 2000,
     .embedding = true,
     .resident_bytes = 2000,
     .reasons = "ROWS_KEPT_TO_LOOK_UP KERNEL_READS_STORED HOST_CANNOT_MAP ROWS_ON_DEMAND"},
    {.packed_bytes = 2000,
     .embedding = true,
     .also_output = true,
     .hold = HOLD_PACKED,
     .resident_bytes = 2000,
     .reasons = "PACKED_FOR_KERNEL TIED_OUTPUT HOST_CANNOT_MAP COPY_NOT_MAPPABLE READ_EVERY_STEP"},
    /* for which there is no room: in the form that they would have */
    {.stream = true,
     .domain = DOMAIN_STREAMED,
     .reasons = "KERNEL_READS_STORED HOST_CANNOT_MAP STREAMED_NO_ROOM"},
    {.stream = true,
     .packed_bytes = 2200,
     .domain = DOMAIN_STREAMED,
     .hold = HOLD_PACKED,
     .reasons = "PACKED_FOR_KERNEL HOST_CANNOT_MAP COPY_NOT_MAPPABLE STREAMED_NO_ROOM"},
    {.stream = true,
     .packed_bytes = 2000,
     .embedding = true,
     .domain = DOMAIN_STREAMED,
     .reasons = "ROWS_KEPT_TO_LOOK_UP KERNEL_READS_STORED HOST_CANNOT_MAP STREAMED_ROWS"},
    {.stream = true,
     .packed_bytes = 2000,
     .embedding = true,
     .also_output = true,
     .domain = DOMAIN_STREAMED,
     .hold = HOLD_PACKED,
     .reasons = "PACKED_FOR_KERNEL TIED_OUTPUT HOST_CANNOT_MAP COPY_NOT_MAPPABLE STREAMED_NO_ROOM"},
    {.stream = true,
     .can_map = true,
     .domain = DOMAIN_MAPPED,
     .reasons = "KERNEL_READS_STORED MAPPED_AS_STORED"},
    {.stream = true,
     .vector = true,
     .stored_f32 = true,
     .resident_bytes = 4000,
     .reasons = "STORED_F32 HOST_CANNOT_MAP READ_EVERY_STEP"},
    /* norms and biases */
    {.vector = true,
     .hold = HOLD_F32,
     .resident_bytes = 4000,
     .reasons = "VECTOR_NEEDS_F32 HOST_CANNOT_MAP COPY_NOT_MAPPABLE READ_EVERY_STEP"},
    {.vector = true,
     .stored_f32 = true,
     .resident_bytes = 4000,
     .reasons = "STORED_F32 HOST_CANNOT_MAP READ_EVERY_STEP"},
    {.can_map = true,
     .vector = true,
     .hold = HOLD_F32,
     .resident_bytes = 4000,
     .reasons = "VECTOR_NEEDS_F32 COPY_NOT_MAPPABLE READ_EVERY_STEP"},
    {.can_map = true,
     .vector = true,
     .stored_f32 = true,
     .resident_bytes = 4000,
     .reasons = "STORED_F32 VECTOR_ALIGNED_COPY READ_EVERY_STEP"},
};

static void test_resolver_matches_the_table(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const expectation *want = &table[i];
    lnl_host host = {
        .kind = want->can_map ? HOST_NATIVE : HOST_BROWSER, .can_map = want->can_map, .threads = 1};
    place_query query = {
        .host = &host,
        .vector = want->vector,
        .embedding = want->embedding,
        .also_output = want->also_output,
        .stored_f32 = want->stored_f32,
        .kernel = "q4_0.q8.scalar",
        .stored_bytes = want->stored_f32 ? 4000 : 2000,
        .value_count = 1000,
        .packed_kernel = want->packed_bytes ? "q4_0x8.q8.scalar" : NULL,
        .packed_bytes = want->packed_bytes,
        .tight = want->tight,
        .stream = want->stream,
    };
    lnl_placement got;
    place_resolve(&query, &got);
    assert_int_equal(got.domain, want->domain);
    assert_int_equal(got.hold, want->hold);
    assert_int_equal(got.scope, SCOPE_MODEL);
    assert_int_equal(got.decided_by, BY_RESOLVER);
    assert_int_equal(got.stored_bytes, query.stored_bytes);
    assert_int_equal(got.resident_bytes, want->resident_bytes);
    assert_string_equal(got.kernel, want->vector                ? "f32"
                                    : want->hold == HOLD_PACKED ? "q4_0x8.q8.scalar"
                                                                : "q4_0.q8.scalar");
    char codes[256] = "";
    for (uint32_t r = 0; r < got.reason_count; r++) {
      if (r) strcat(codes, " ");
      strcat(codes, place_reason_code(got.reasons[r]));
      assert_true(strlen(place_reason_text(got.reasons[r])) > 10);
    }
    assert_string_equal(codes, want->reasons);
  }
}

/* --- the whole product ------------------------------------------------------------- */

/* What a tensor is to the resolver, by its use and how it is stored. */
typedef enum kind { VEC_F32, VEC_NARROW, MAT_F32, MAT_F16, MAT_PACKABLE, MAT_PLAIN, KINDS } kind;
static const char *const forms_of[] = {"stored", "x8", "f32", "f16"};

/* What becomes of a wish for stored, x8, f32, f16: S, X, F, H held so; V, P
 * passed over, as a vector, or for want of a packed form. */
static const char *const wishes[KINDS] = {
    [VEC_F32] = "SVSV", [VEC_NARROW] = "VVFV",   [MAT_F32] = "SPSH",
    [MAT_F16] = "SPFS", [MAT_PACKABLE] = "SXFH", [MAT_PLAIN] = "SPFH",
};

/* What is chosen where nothing is asked for; the first row that matches. -1: any. */
static const struct choice {
  int kind, looked_up, can_map, larger, save, tight;
  char held;
  const char *by, *reasons;
} choices[] = {
    {VEC_F32, -1, -1, -1, -1, -1, 'S', "resolver", "STORED_F32"},
    {VEC_NARROW, -1, -1, -1, -1, -1, 'F', "resolver", "VECTOR_NEEDS_F32"},
    {MAT_F32, -1, -1, -1, -1, -1, 'S', "resolver", "STORED_F32"},
    {MAT_PACKABLE, 1, -1, -1, -1, -1, 'S', "resolver", "ROWS_KEPT_TO_LOOK_UP KERNEL_READS_STORED"},
    {MAT_PACKABLE, 0, 1, -1, -1, -1, 'S', "resolver", "KERNEL_READS_STORED"},
    {MAT_PACKABLE, 0, 0, 1, 1, -1, 'S', "profile", "PROFILE_SAVES KERNEL_READS_STORED"},
    {MAT_PACKABLE, 0, 0, 1, 0, 1, 'S', "resolver", "PACKING_TOO_LARGE KERNEL_READS_STORED"},
    {MAT_PACKABLE, 0, 0, -1, -1, -1, 'X', "resolver", "PACKED_FOR_KERNEL"},
    {-1, -1, -1, -1, -1, -1, 'S', "resolver", "KERNEL_READS_STORED"},
};

/* Where it lies then: whether in the mapping, and what is said of that; the first
 * row that matches. */
static const struct lies {
  int can_map, as_stored, vector;
  bool mapped;
  const char *reasons;
} lie[] = {
    {0, 1, -1, false, "HOST_CANNOT_MAP"},   {0, 0, -1, false, "HOST_CANNOT_MAP COPY_NOT_MAPPABLE"},
    {1, 0, -1, false, "COPY_NOT_MAPPABLE"}, {1, 1, 1, false, "VECTOR_ALIGNED_COPY"},
    {1, 1, 0, true, "MAPPED_AS_STORED"},
};

/* What is not mapped. Streamed is only what the window can bring into its form. */
static const struct unmapped {
  int stream, vector, dequantised, looked_up;
  const char *domain, *reason;
} not_mapped[] = {
    {1, 0, 0, 1, "STREAMED", "STREAMED_ROWS"},
    {1, 0, 0, 0, "STREAMED", "STREAMED_NO_ROOM"},
    {-1, -1, -1, 1, "HEAP", "ROWS_ON_DEMAND"},
    {-1, -1, -1, 0, "HEAP", "READ_EVERY_STEP"},
};

static const struct {
  const char *name;
  lnl_host_kind kind;
  bool can_map, isolated;
} hosts[] = {{"browser", HOST_BROWSER, false, false},
             {"browser, isolated", HOST_BROWSER, false, true},
             {"node", HOST_NODE, false, true},
             {"wasi", HOST_WASI, false, false},
             {"native", HOST_NATIVE, true, true}};

static bool matches(int wanted, int is) { return wanted < 0 || wanted == is; }

typedef struct expected {
  char held;
  const char *by, *domain;
  bool refused;
  char reasons[320];
} expected;

static void add(expected *e, const char *codes) {
  if (e->reasons[0] && codes[0]) strcat(e->reasons, " ");
  strcat(e->reasons, codes);
}

/* One wish; true if it is met. */
static bool wished(expected *e, kind k, place_wish wish, const char *by) {
  if (wish == WISH_NONE) return false;
  const char outcome = wishes[k][wish - 1];
  if (outcome == 'V' || outcome == 'P') {
    add(e, outcome == 'V' ? "VECTOR_ONLY_F32" : "NO_PACKED_FORM");
    return false;
  }
  add(e, "AS_ASKED");
  e->held = outcome;
  e->by = by;
  return true;
}

static expected expect(const place_query *q, kind k, bool strict, bool save) {
  const bool looked_up = q->embedding && !q->also_output, vector = k <= VEC_NARROW;
  expected e = {0};
  const bool asked = wished(&e, k, q->tensor_wish, "tensor") || wished(&e, k, q->uniform_wish, "uniform");
  for (const struct choice *c = choices; !e.held; c++) {
    if (!matches(c->kind, (int)k) || !matches(c->looked_up, looked_up) ||
        !matches(c->can_map, q->host->can_map) || !matches(c->larger, q->packed_bytes > q->stored_bytes) ||
        !matches(c->save, save) || !matches(c->tight, q->tight))
      continue;
    e.held = c->held;
    e.by = c->by;
    add(&e, c->reasons);
  }
  if (q->also_output) add(&e, "TIED_OUTPUT");
  if (strict && !asked && !vector && !looked_up && !q->integer && q->value_count >= 1048576) {
    e.refused = true;
    e.by = "profile";
    add(&e, "NO_INTEGER_KERNEL");
  }
  for (const struct lies *l = lie; !e.domain; l++) {
    if (!matches(l->can_map, q->host->can_map) || !matches(l->as_stored, e.held == 'S') ||
        !matches(l->vector, vector))
      continue;
    e.domain = l->mapped ? "MAPPED" : "";
    add(&e, l->reasons);
  }
  const bool dequantised = e.held == 'F' || e.held == 'H';
  for (const struct unmapped *u = not_mapped; !e.domain[0]; u++) {
    if (!matches(u->stream, q->stream) || !matches(u->vector, vector) ||
        !matches(u->dequantised, dequantised) || !matches(u->looked_up, looked_up))
      continue;
    e.domain = u->domain;
    add(&e, u->reason);
  }
  return e;
}

static void check(const place_query *q, kind k, bool strict, bool save, const char *type) {
  const expected want = expect(q, k, strict, save);
  lnl_placement got;
  place_resolve(q, &got);
  char codes[320] = "";
  for (uint32_t r = 0; r < got.reason_count; r++) {
    if (r) strcat(codes, " ");
    strcat(codes, place_reason_code(got.reasons[r]));
  }
  const uint64_t bytes = strcmp(want.domain, "HEAP") ? 0
                         : want.held == 'S'          ? q->stored_bytes
                         : want.held == 'X'          ? q->packed_bytes
                                                     : q->value_count * (want.held == 'F' ? 4 : 2);
  const char *form = forms_of[strchr("SXFH", want.held) - "SXFH"];
  const char *kernel = k <= VEC_NARROW    ? "f32"
                       : want.held == 'S' ? q->kernel
                       : want.held == 'X' ? q->packed_kernel
                       : want.held == 'F' ? q->kernel_f32
                                          : q->kernel_f16;
  if (strcmp(place_hold_name(got.hold), form) || strcmp(place_domain_name(got.domain), want.domain) ||
      strcmp(place_decider_name(got.decided_by), want.by) || strcmp(codes, want.reasons) ||
      got.resident_bytes != bytes || got.stored_bytes != q->stored_bytes || got.refused != want.refused ||
      strcmp(got.kernel, kernel) || strcmp(place_scope_name(got.scope), "model")) {
    fail_msg("%s, kind %d, wishes %d %d: %s %s by %s, %llu bytes (%s); expected %s %s by %s, %llu (%s)", type,
             (int)k, (int)q->tensor_wish, (int)q->uniform_wish, place_domain_name(got.domain),
             place_hold_name(got.hold), place_decider_name(got.decided_by),
             (unsigned long long)got.resident_bytes, codes, want.domain, form, want.by,
             (unsigned long long)bytes, want.reasons);
  }
}

/* Every use of a type, wish by name and for all, room for more or not, for it at all or not. */
static void walk(place_query q, const lnl_form *form, bool vector, bool strict, bool save) {
  const bool f32 = !strcmp(form->name, "F32"), f16 = !strcmp(form->name, "F16");
  const kind k = vector          ? (f32 ? VEC_F32 : VEC_NARROW)
                 : f32           ? MAT_F32
                 : f16           ? MAT_F16
                 : form->packing ? MAT_PACKABLE
                                 : MAT_PLAIN;
  q.vector = vector;
  q.stored_f32 = f32;
  q.stored_f16 = f16;
  for (int use = 0; use < (vector ? 1 : 3); use++) { /* a matrix, rows to look up, both */
    q.embedding = use > 0;
    q.also_output = use > 1;
    for (int wish = 0; wish < WISH_COUNT * WISH_COUNT * 4; wish++) {
      q.tensor_wish = (place_wish)(wish % WISH_COUNT);
      q.uniform_wish = (place_wish)(wish / WISH_COUNT % WISH_COUNT);
      q.tight = wish / (WISH_COUNT * WISH_COUNT) % 2;
      q.stream = wish / (WISH_COUNT * WISH_COUNT) / 2;
      check(&q, k, strict, save, form->name);
    }
  }
}

static void test_every_type_use_host_profile_and_wish(void **state) {
  (void)state;
  uint32_t count;
  const lnl_form *forms = form_list(&count);
  for (uint32_t f = 0; f < count; f++) {
    for (size_t h = 0; h < sizeof hosts / sizeof *hosts; h++) {
      for (place_profile_id p = PROFILE_BROWSER; p < PROFILE_COUNT; p++) {
        for (uint64_t rows = 8; rows <= 8192; rows *= 1024) {
          const lnl_host host = {.kind = hosts[h].kind,
                                 .can_map = hosts[h].can_map,
                                 .isolated = hosts[h].isolated,
                                 .threads = 1};
          const place_query q = {
              .host = &host,
              .profile = place_find_profile(p, HOST_NODE),
              .integer = forms[f].activation == ACT_Q8,
              .kernel = forms[f].kernel,
              .kernel_f32 = "f32.test",
              .kernel_f16 = "f16.test",
              .stored_bytes = rows * form_row_bytes(&forms[f], 256),
              .value_count = rows * 256,
              .packed_kernel = forms[f].packing ? forms[f].packing->kernel : NULL,
              .packed_bytes = forms[f].packing ? rows / 8 * form_group_bytes(&forms[f], 256) : 0,
          };
          const bool phone = p == PROFILE_PHONE;
          walk(q, &forms[f], false, phone, phone);
          if (forms[f].block_len == 1) walk(q, &forms[f], true, phone, phone);
        }
      }
    }
  }
}

static void test_profiles(void **state) {
  (void)state;
  static const struct {
    place_profile_id id;
    lnl_host_kind host; /* whose own it is */
    place_profile is;
  } profiles[] = {
      {PROFILE_BROWSER, HOST_BROWSER, {"browser", 128, true, true, false, false, 0}},
      {PROFILE_PHONE, HOST_NODE, {"phone", 32, false, true, true, true, 1073741824}},
      {PROFILE_NODE, HOST_NODE, {"node", 128, true, false, false, false, 0}},
      {PROFILE_NATIVE, HOST_NATIVE, {"native", 128, true, false, false, false, 0}},
      {PROFILE_NATIVE, HOST_WASI, {"native", 128, true, false, false, false, 0}},
  };
  for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
    const place_profile *got = place_find_profile(profiles[i].id, HOST_BROWSER), *want = &profiles[i].is;
    assert_string_equal(got->name, want->name);
    assert_int_equal(got->chunk, want->chunk);
    assert_int_equal(got->kv_f32, want->kv_f32);
    assert_int_equal(got->kv_q8, want->kv_q8);
    assert_int_equal(got->save, want->save);
    assert_int_equal(got->strict, want->strict);
    assert_int_equal(got->ceiling_bytes, want->ceiling_bytes);
    if (profiles[i].id != PROFILE_PHONE)
      assert_ptr_equal(place_find_profile(PROFILE_OF_HOST, profiles[i].host), got);
  }
}

static void test_overrides_by_name(void **state) {
  (void)state;
  static const struct {
    const char *glob, *name;
    bool matches;
  } globs[] = {
      {"blk.*.ffn_down*", "blk.12.ffn_down.weight", true},
      {"blk.*.ffn_down*", "blk.12.ffn_up.weight", false},
      {"blk.?.ffn_up.weight", "blk.1.ffn_up.weight", true},
      {"blk.?.ffn_up.weight", "blk.11.ffn_up.weight", false},
      {"*", "output.weight", true},
      {"*", "", true},
      {"", "", true},
      {"", "a", false},
      {"a*b*c", "abcbc", true},
      {"a*b*c", "abcb", false},
      {"*.weight", "output.bias", false},
      {"***x", "aax", true},
      {"output.weight", "output.weight", true},
      {"output.weight", "output.weight2", false},
      {"a?", "a", false},
  };
  for (size_t i = 0; i < sizeof globs / sizeof *globs; i++) {
    const place_rule rule = {globs[i].glob, (uint32_t)strlen(globs[i].glob), WISH_STORED};
    if (place_rule_matches(&rule, globs[i].name, strlen(globs[i].name)) != globs[i].matches)
      fail_msg("'%s' and '%s'", globs[i].glob, globs[i].name);
  }
  /* stars that match everywhere but at the end cost no more than the product */
  char name[4001];
  memset(name, 'a', sizeof name);
  static const char stars[] = "*a*a*a*a*a*a*a*a*a*a*a*a*b";
  const place_rule slow = {stars, sizeof stars - 1, WISH_STORED};
  assert_false(place_rule_matches(&slow, name, sizeof name));

  const char *text = "a.*=stored\nb=x8\nc=d=f32\n*=f16\nff16\n=f16\ne=f64\nlast=f16";
  static const struct {
    const char *glob;
    place_wish wish;
  } lines[] = {{"a.*", WISH_STORED}, {"b", WISH_PACKED}, {"c=d", WISH_F32}, {"*", WISH_F16},
               {"", WISH_NONE},      {"", WISH_F16},     {"e", WISH_NONE},  {"last", WISH_F16}};
  place_rule rule;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    assert_true(place_next_rule(&text, &rule));
    assert_int_equal(rule.glob_bytes, strlen(lines[i].glob));
    assert_memory_equal(rule.glob, lines[i].glob, rule.glob_bytes);
    assert_int_equal(rule.wish, lines[i].wish);
  }
  assert_false(place_next_rule(&text, &rule));
  text = NULL;
  assert_false(place_next_rule(&text, &rule));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resolver_matches_the_table),
      cmocka_unit_test(test_every_type_use_host_profile_and_wish),
      cmocka_unit_test(test_profiles),
      cmocka_unit_test(test_overrides_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
