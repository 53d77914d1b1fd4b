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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_largest_context_is_exact),
      cmocka_unit_test(test_suggestions_are_true),
      cmocka_unit_test(test_the_largest_context_can_be_asked_for),
      cmocka_unit_test(test_the_cache_is_made_smaller_to_fit),
      cmocka_unit_test(test_the_ceiling_of_a_profile),
      cmocka_unit_test(test_what_fits_loads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
