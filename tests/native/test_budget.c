/* What explain promises about memory, followed: the largest context fits and
 * the next does not, and a suggestion marked sufficient is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/engine.h"
#include "tiny_model.h"

static lnl_engine *header_only(const tiny_file *file) {
  lnl_host host = tiny_host();
  lnl_engine *e = lnl_open(&host);
  assert_int_equal(tiny_header(e, file, 0), LNL_OK);
  return e;
}

static bool fits(lnl_engine *e, lnl_plan_options options) {
  lnl_status status = lnl_plan_for(e, &options);
  if (status != LNL_OK) fail_msg("%s", lnl_get_error(e)->message);
  return lnl_get_budget(e)->fits;
}

static void test_largest_context_is_exact(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_engine *e = header_only(&file);
  assert_true(fits(e, (lnl_plan_options){0}));
  uint64_t most = lnl_get_budget(e)->planned.total;
  uint32_t partly = 0;
  for (uint64_t budget = most / 3; budget < most + 5000; budget += most / 67) {
    for (uint32_t kv = KV_AUTO; kv <= KV_F16; kv++) {
      for (uint32_t n_ctx = 0; n_ctx <= c.n_ctx; n_ctx += 48) {
        lnl_plan_options options = {.n_ctx = n_ctx, .budget_bytes = budget, .kv = kv};
        fits(e, options);
        uint32_t max_ctx = lnl_get_budget(e)->max_ctx;
        assert_true(max_ctx <= c.n_ctx);
        if (max_ctx > 0) {
          options.n_ctx = max_ctx;
          assert_true(fits(e, options));
        }
        if (max_ctx < c.n_ctx) {
          options.n_ctx = max_ctx + 1;
          assert_false(fits(e, options));
        }
        partly += max_ctx > 0 && max_ctx < c.n_ctx;
      }
    }
  }
  assert_true(partly > 20);
  lnl_close(e);
  free(file.data);
}

/* Follows one suggestion; false when it is one that needs another file. */
static bool follow(const budget_suggestion *s, const lnl_budget *budget, lnl_plan_options *options) {
  if (!strcmp(s->code, "SMALLER_CONTEXT"))
    options->n_ctx = budget->max_ctx ? budget->max_ctx : 256;
  else if (!strcmp(s->code, "KV_F16"))
    options->kv = options->kv_v = KV_F16;
  else if (!strcmp(s->code, "KV_Q8_0"))
    options->kv = options->kv_v = KV_Q8_0;
  else if (!strcmp(s->code, "SMALLER_CHUNK"))
    options->chunk = 16;
  else if (!strcmp(s->code, "STREAM"))
    options->stream = true;
  else if (!strcmp(s->code, "MORE_MEMORY"))
    options->budget_bytes = budget->planned.total;
  else
    return false;
  return true;
}

/* Follows each suggestion for a row of budgets. */
static void follow_all(lnl_engine *e, lnl_plan_options base, uint32_t count_of[2]) {
  assert_true(fits(e, base));
  uint64_t most = lnl_get_budget(e)->planned.total;
  for (uint64_t budget = most / 3; budget < most; budget += most / 53) {
    lnl_plan_options options = base;
    options.budget_bytes = budget;
    if (fits(e, options)) continue;
    assert_true(e->suggestion_count >= 2);
    budget_suggestion list[BUDGET_MAX_SUGGESTIONS];
    memcpy(list, e->suggestions, sizeof list);
    uint32_t count = e->suggestion_count;
    lnl_budget was = *lnl_get_budget(e);
    for (uint32_t i = 0; i < count; i++) {
      lnl_plan_options then = options;
      assert_true(strlen(list[i].text) > 10);
      if (!follow(&list[i], &was, &then)) continue;
      if (fits(e, then) != list[i].sufficient) {
        fail_msg("%s (%s) with %llu bytes: said %d", list[i].code, list[i].text, (unsigned long long)budget,
                 list[i].sufficient);
      }
      count_of[list[i].sufficient] += 1;
    }
  }
}

static void test_suggestions_are_true(void **state) {
  (void)state;
  /* of the whole, of a matrix type that packing widens, and of each profile */
  for (place_profile_id profile = PROFILE_OF_HOST; profile < PROFILE_COUNT; profile++) {
    for (int wide = 0; wide < 2; wide++) {
      tiny_config c = tiny_default();
      c.n_ctx = 700;
      if (wide) {
        c.matrix_type = 14; /* Q6_K */
        c.d_model = c.d_ff = 256;
        c.n_head = 8;
        c.d_head = 32;
      }
      tiny_file file = tiny_write(&c);
      lnl_engine *e = header_only(&file);
      uint32_t count_of[2] = {0, 0};
      static const kv_types types[] = {{KV_AUTO, 0}, {KV_F32, 0}, {KV_F16, KV_F32}, {KV_Q8_0, KV_Q4_0}};
      for (uint32_t i = 0; i < 4; i++) {
        follow_all(e, (lnl_plan_options){.kv = types[i].k, .kv_v = types[i].v, .profile = profile}, count_of);
      }
      assert_true(count_of[true] > 40 && count_of[false] > 40);
      lnl_close(e);
      free(file.data);
    }
  }
}

static tiny_config wide_model(uint32_t type) {
  tiny_config c = tiny_default();
  c.n_ctx = 900;
  c.matrix_type = type;
  c.d_model = c.d_ff = 256;
  c.n_head = 8;
  c.n_kv_head = 8;
  c.d_head = 32;
  return c;
}

/* The largest context is what it says: it fits, one more does not. */
static void test_the_largest_context_can_be_asked_for(void **state) {
  (void)state;
  static const uint32_t model_types[] = {0, 14};
  static const kv_types types[] = {{KV_AUTO, 0}, {KV_F16, 0}, {KV_Q8_0, 0}, {KV_Q8_0, KV_Q4_0}};
  uint32_t partly = 0, tight = 0;
  for (uint32_t m = 0; m < 2; m++) {
    tiny_config c = wide_model(model_types[m]);
    tiny_file file = tiny_write(&c);
    lnl_engine *e = header_only(&file);
    for (uint32_t t = 0; t < 4; t++) {
      for (place_profile_id profile = PROFILE_BROWSER; profile < PROFILE_COUNT; profile++) {
        lnl_plan_options options = {
            .n_ctx = c.n_ctx, .kv = types[t].k, .kv_v = types[t].v, .profile = profile};
        assert_true(fits(e, options));
        uint64_t most = lnl_get_budget(e)->planned.total;
        for (uint64_t budget = most / 2; budget < most + 5000; budget += most / 31) {
          options.n_ctx = LNL_LARGEST_CONTEXT;
          options.budget_bytes = budget;
          bool some = fits(e, options);
          const uint32_t n_ctx = lnl_get_info(e).n_ctx;
          tight += some && e->tight;
          if (!some) {
            options.n_ctx = 1;
            assert_false(fits(e, options));
            continue;
          }
          assert_int_equal(n_ctx, lnl_get_budget(e)->max_ctx);
          assert_true(lnl_get_budget(e)->planned.total <= budget);
          partly += n_ctx < c.n_ctx;
          options.n_ctx = n_ctx;
          assert_true(fits(e, options));
          if (n_ctx == c.n_ctx) continue;
          options.n_ctx = n_ctx + 1;
          assert_false(fits(e, options));
        }
      }
    }
    lnl_close(e);
    free(file.data);
  }
  assert_true(partly > 20 && tight > 5);
}

/* A cache type that was left to us is given up only where it must be, and only
 * as far as the profile allows; the reason says so. */
static void test_the_cache_is_made_smaller_to_fit(void **state) {
  (void)state;
  tiny_config c = wide_model(0);
  tiny_file file = tiny_write(&c);
  lnl_engine *e = header_only(&file);
  uint32_t chosen[KV_TYPE_COUNT] = {0}, refused = 0;
  for (place_profile_id profile = PROFILE_BROWSER; profile <= PROFILE_NODE; profile++) {
    const lnl_plan_options base = {.n_ctx = c.n_ctx, .profile = profile};
    assert_true(fits(e, base));
    assert_int_equal(e->options.kv, profile == PROFILE_PHONE ? KV_F16 : KV_F32);
    assert_int_equal(e->kv_choice, profile == PROFILE_PHONE ? KV_OF_PROFILE : KV_SMALL);
    uint64_t most = lnl_get_budget(e)->planned.total;
    for (uint64_t budget = most / 2; budget < most + most / 8; budget += most / 61) {
      lnl_plan_options options = base;
      options.budget_bytes = budget;
      const bool enough = fits(e, options);
      const kv_type type = (kv_type)e->options.kv;
      const kv_choice why = e->kv_choice;
      options.kv = KV_F32;
      const bool f32 = fits(e, options);
      options.kv = KV_F16;
      const bool f16 = fits(e, options);
      options.kv = KV_Q8_0;
      const bool q8 = fits(e, options);
      assert_int_equal(enough, f16 || (q8 && profile != PROFILE_NODE));
      refused += q8 && !enough;
      if (!enough) continue;
      const kv_type want = f32 && profile != PROFILE_PHONE ? KV_F32 : f16 ? KV_F16 : KV_Q8_0;
      assert_int_equal(type, want);
      assert_int_equal(why == KV_TO_FIT, want == KV_Q8_0 || (want == KV_F16 && profile != PROFILE_PHONE));
      chosen[type]++;
    }
  }
  assert_true(chosen[KV_F32] > 2 && chosen[KV_F16] > 2);
  assert_true(chosen[KV_Q8_0] > 2 && refused > 2);
  lnl_close(e);
  free(file.data);
}

/* A phone's own ceiling holds until a budget is given. */
static void test_the_ceiling_of_a_profile(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_engine *e = header_only(&file);
  assert_true(fits(e, (lnl_plan_options){.profile = PROFILE_PHONE}));
  assert_int_equal(lnl_get_budget(e)->limit_bytes, 1 << 30);
  assert_int_equal(e->options.chunk, 32);
  assert_true(fits(e, (lnl_plan_options){.profile = PROFILE_PHONE, .budget_bytes = UINT64_C(1) << 31}));
  assert_int_equal(lnl_get_budget(e)->limit_bytes, UINT64_C(1) << 31);
  lnl_close(e);
  free(file.data);
}

/* What is said to fit loads, whether it takes all of the ceiling or little. */
static void test_what_fits_loads(void **state) {
  (void)state;
  static const uint32_t per_cent[] = {100, 50, 1};
  tiny_config c = wide_model(14);
  tiny_file file = tiny_write(&c);
  lnl_engine *e = header_only(&file);
  assert_true(fits(e, (lnl_plan_options){0}));
  const uint64_t total = lnl_get_budget(e)->planned.total;
  lnl_close(e);
  for (uint32_t i = 0; i < 3; i++) {
    lnl_host host = tiny_host();
    host.max_memory_bytes = total * 100 / per_cent[i];
    e = lnl_open(&host);
    lnl_plan_options options = {0};
    assert_int_equal(tiny_open(e, &file, &options, true), LNL_OK);
    assert_int_equal(lnl_get_budget(e)->planned.total, total);
    assert_int_equal(lnl_measure(e).total, total);
    lnl_close(e);
  }
  free(file.data);
}

/* --- more than 32-bit addresses reach ---------------------------------------------------- */

static const uint64_t GIB = UINT64_C(1) << 30;

/* In a module whose addresses have so many bits, on a host that has wider ones or not. */
static lnl_engine *of_bits(const tiny_file *file, uint32_t bits, bool memory64) {
  lnl_host host = tiny_host();
  host.memory64 = memory64;
  lnl_engine *e = lnl_open(&host);
  e->own_bits = bits;
  assert_int_equal(tiny_header(e, file, 0), LNL_OK);
  return e;
}

/* Its cache in f32 takes 324 bytes a token, the history of tokens among them: 5.1 GiB in all. */
static tiny_file long_file(void) {
  tiny_config c = tiny_default();
  c.n_ctx = 1 << 24;
  return tiny_write(&c);
}
static const lnl_plan_options longest = {.n_ctx = LNL_LARGEST_CONTEXT, .kv = KV_F32};

/* What an engine of its own plans: the memory of others would count. */
typedef struct outcome {
  lnl_budget budget;
  lnl_address address;
  uint32_t n_ctx;
} outcome;
static outcome planned(const tiny_file *file, uint32_t bits, bool memory64, lnl_plan_options options) {
  lnl_engine *e = of_bits(file, bits, memory64);
  fits(e, options);
  const outcome out = {*lnl_get_budget(e), e->address, lnl_get_info(e).n_ctx};
  lnl_close(e);
  return out;
}

/* The largest context is that of the memory which the host can give, and the address follows from it. */
static void test_the_largest_context_beyond_4_gib(void **state) {
  (void)state;
  tiny_file file = long_file();
  lnl_plan_options options = longest;
  const uint32_t in_4 = planned(&file, 32, false, options).n_ctx;
  static const double budgets[] = {0, 3, 4, 4.25, 5, 6, 20};
  uint32_t beyond = 0;
  for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
    options = longest;
    options.budget_bytes = (uint64_t)(budgets[i] * 0x1p30);
    const uint64_t room = u64_min(budgets[i] > 0 ? options.budget_bytes : 4 * GIB, 16 * GIB);

    /* without 64-bit memory a budget above 4 GiB is none */
    const outcome without = planned(&file, 32, false, options);
    assert_true(without.budget.fits);
    assert_int_equal(without.address.bits, 32);
    assert_string_equal(without.address.code, "FITS_32");
    assert_true(without.budget.limit_bytes == u64_min(room, 4 * GIB));
    if (room >= 4 * GIB) assert_int_equal(without.n_ctx, in_4);

    const outcome largest = planned(&file, 32, true, options);
    const uint64_t total = largest.budget.planned.total;
    assert_true(largest.budget.fits && total <= room);
    assert_int_equal(largest.n_ctx, largest.budget.max_ctx);
    assert_true(largest.budget.limit_bytes == room);
    assert_int_equal(largest.address.bits, total > 4 * GIB ? 64 : 32);
    assert_string_equal(largest.address.code, total > 4 * GIB ? "NEEDS_64" : "FITS_32");
    if (budgets[i] > 0 && largest.n_ctx < 1 << 24) {
      /* one more does not fit, or only if the other module's tables are no larger */
      options.n_ctx = largest.n_ctx + 1;
      const outcome more = planned(&file, 32, true, options);
      const uint64_t slack = room > 4 * GIB ? more.budget.planned.tables + 65536 : 0;
      assert_true(more.budget.planned.total + slack > room);
      assert_int_equal(more.budget.fits, more.budget.planned.total <= room);
    }
    /* an ordinary plan says the same */
    options.n_ctx = 0;
    const outcome usual = planned(&file, 32, true, options);
    assert_int_equal(usual.budget.max_ctx, largest.n_ctx);
    assert_true(usual.budget.limit_bytes == room);
    assert_string_equal(usual.address.code, "FITS_32");

    /* and the other module, which then plans, has at least as much */
    if (room <= 4 * GIB) continue;
    options.n_ctx = LNL_LARGEST_CONTEXT;
    const uint32_t wide = planned(&file, 64, true, options).n_ctx;
    assert_true(wide >= largest.n_ctx && wide <= largest.n_ctx + largest.n_ctx / 1000);
    assert_true(largest.n_ctx > in_4);
    beyond++;
  }
  assert_int_equal(beyond, 4);
  free(file.data);
}

/* The host's own ceiling is a word for more than 4 GiB as a budget is; one that was found is none. */
static void test_what_allows_more_than_4_gib(void **state) {
  (void)state;
  tiny_file file = long_file();
  lnl_engine *e = of_bits(&file, 32, true);
  assert_true(fits(e, longest));
  const uint32_t in_4 = lnl_get_budget(e)->max_ctx;
  lnl_set_ceiling(e, 6 * GIB);
  assert_true(fits(e, longest));
  assert_int_equal(lnl_get_info(e).n_ctx, in_4);
  lnl_plan_options options = longest;
  options.budget_bytes = 6 * GIB;
  lnl_set_ceiling(e, 5 * GIB);
  assert_true(fits(e, options));
  assert_true(lnl_get_info(e).n_ctx > in_4);
  assert_true(lnl_get_budget(e)->limit_bytes == 5 * GIB);
  assert_int_equal(lnl_get_budget(e)->limit, LIMIT_PROBED);
  lnl_set_ceiling(e, 4 * GIB); /* wider addresses were tried in vain */
  assert_true(fits(e, options));
  assert_int_equal(lnl_get_info(e).n_ctx, in_4);
  assert_int_equal(lnl_get_budget(e)->limit, LIMIT_PROBED);
  assert_string_equal(e->address.code, "FITS_32");
  options.n_ctx = 1 << 24;
  assert_false(fits(e, options));
  assert_string_equal(e->address.code, "NOT_ALLOWED");
  lnl_close(e);

  e = of_bits(&file, 32, true);
  e->host.max_memory_bytes = 5 * GIB;
  assert_true(fits(e, longest));
  assert_true(lnl_get_info(e).n_ctx > in_4);
  assert_int_equal(lnl_get_budget(e)->limit, LIMIT_HOST);
  assert_int_equal(e->address.bits, 64);
  /* a module that was asked for is kept */
  options = longest;
  options.module_asked = true;
  assert_true(fits(e, options));
  assert_int_equal(lnl_get_info(e).n_ctx, in_4);
  assert_string_equal(e->address.code, "ASKED_FOR");
  lnl_close(e);
  free(file.data);

  /* A cache that 32-bit addresses reach keeps them, though the budget would allow more. */
  tiny_config c = tiny_default();
  c.n_ctx = 1 << 23;
  file = tiny_write(&c);
  e = of_bits(&file, 32, true);
  options = longest;
  options.budget_bytes = 12 * GIB;
  assert_true(fits(e, options));
  assert_int_equal(lnl_get_info(e).n_ctx, c.n_ctx);
  assert_string_equal(e->address.code, "FITS_32");
  lnl_close(e);
  free(file.data);
}

/* What does not fit gives up what it can before addresses are made wider; with those it has all back. */
static void test_wider_addresses_come_after_what_can_be_given_up(void **state) {
  (void)state;
  tiny_file file = long_file();
  lnl_engine *e = of_bits(&file, 32, true);
  const struct {
    uint32_t n_ctx;
    place_profile_id profile;
    uint64_t budget;
    bool fits;
    uint32_t bits;
    kv_type type;
  } table[] = {
      {1 << 24, PROFILE_NODE, 0, true, 32, KV_F16},
      {1 << 24, PROFILE_NODE, 6 * GIB, true, 32, KV_F16},
      {1 << 24, PROFILE_NODE, 1 * GIB, false, 32, KV_F16},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    assert_int_equal(fits(e, (lnl_plan_options){.n_ctx = table[i].n_ctx,
                                                .profile = table[i].profile,
                                                .budget_bytes = table[i].budget}),
                     table[i].fits);
    assert_int_equal(e->address.bits, table[i].bits);
    assert_int_equal(e->options.kv, table[i].type);
  }
  lnl_close(e);
  free(file.data);

  /* of four layers more is needed in any type but the smallest */
  tiny_config c = tiny_default();
  c.n_ctx = 1 << 24;
  c.n_layer = 4;
  file = tiny_write(&c);
  e = of_bits(&file, 32, true);
  assert_true(fits(e, (lnl_plan_options){.n_ctx = c.n_ctx, .profile = PROFILE_NODE}));
  assert_int_equal(e->address.bits, 64);
  assert_int_equal(e->options.kv, KV_F16);
  assert_int_equal(e->kv_choice, KV_LARGE);
  assert_false(e->tight);
  lnl_close(e);
  free(file.data);
}

/* The bytes that the suggestion MORE_MEMORY names; 0: it is not made. */
static uint64_t more_memory(const lnl_engine *e) {
  for (uint32_t i = 0; i < e->suggestion_count; i++) {
    const budget_suggestion *s = &e->suggestions[i];
    if (!strcmp(s->code, "MORE_MEMORY")) return strtoull(strrchr(s->text, '(') + 1, NULL, 10);
  }
  return 0;
}

/* Suggestions look beyond 4 GiB where the host can. */
static void test_suggestions_beyond_4_gib(void **state) {
  (void)state;
  tiny_file file = long_file();
  lnl_plan_options options = {.n_ctx = 1 << 24, .kv = KV_F32, .budget_bytes = 9 * GIB / 2};
  lnl_engine *e = of_bits(&file, 32, false);
  assert_false(fits(e, options));
  const uint32_t in_4 = lnl_get_budget(e)->max_ctx;
  assert_int_equal(more_memory(e), 0);
  lnl_close(e);

  e = of_bits(&file, 32, true);
  assert_false(fits(e, options));
  assert_string_equal(e->address.code, "NEEDS_64");
  const lnl_budget was = *lnl_get_budget(e);
  assert_true(was.max_ctx > in_4);
  uint32_t followed = 0;
  budget_suggestion list[BUDGET_MAX_SUGGESTIONS];
  memcpy(list, e->suggestions, sizeof list);
  const uint64_t enough = more_memory(e);
  assert_true(enough > was.planned.total);
  const uint32_t count = e->suggestion_count;
  lnl_close(e);
  for (uint32_t i = 0; i < count; i++) {
    lnl_plan_options then = options;
    assert_string_not_equal(list[i].code, "MEMORY64");
    if (!follow(&list[i], &was, &then)) continue;
    if (then.budget_bytes != options.budget_bytes) then.budget_bytes = enough;
    assert_int_equal(planned(&file, 32, true, then).budget.fits, list[i].sufficient);
    assert_int_equal(planned(&file, 64, true, then).budget.fits, list[i].sufficient);
    followed += list[i].sufficient;
  }
  assert_true(followed >= 3);

  /* A budget below 4 GiB: with more of it the other module would do, whose tables may be larger. */
  options.budget_bytes = 3 * GIB;
  e = of_bits(&file, 32, true);
  assert_false(fits(e, options));
  assert_string_equal(e->address.code, "NOT_ALLOWED");
  options.budget_bytes = more_memory(e);
  lnl_close(e);
  const lnl_budget wide = planned(&file, 64, true, options).budget;
  assert_true(wide.fits && options.budget_bytes >= wide.planned.total + wide.planned.tables);
  free(file.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_largest_context_is_exact),
      cmocka_unit_test(test_suggestions_are_true),
      cmocka_unit_test(test_the_largest_context_can_be_asked_for),
      cmocka_unit_test(test_the_cache_is_made_smaller_to_fit),
      cmocka_unit_test(test_the_ceiling_of_a_profile),
      cmocka_unit_test(test_what_fits_loads),
      cmocka_unit_test(test_the_largest_context_beyond_4_gib),
      cmocka_unit_test(test_what_allows_more_than_4_gib),
      cmocka_unit_test(test_wider_addresses_come_after_what_can_be_given_up),
      cmocka_unit_test(test_suggestions_beyond_4_gib),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
