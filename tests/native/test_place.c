/* The resolver against a table: every combination of what it may look at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_resolver_matches_the_table)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
