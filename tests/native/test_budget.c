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
    options->kv = KV_F16;
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

static void test_suggestions_are_true(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  c.n_ctx = 700;
  tiny_file file = tiny_write(&c);
  lnl_engine *e = header_only(&file);
  assert_true(fits(e, (lnl_plan_options){0}));
  uint64_t most = lnl_get_budget(e)->planned.total;
  uint32_t sufficient = 0, insufficient = 0;
  for (uint64_t budget = most / 3; budget < most; budget += most / 53) {
    lnl_plan_options options = {.budget_bytes = budget, .kv = KV_F32};
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
      *(list[i].sufficient ? &sufficient : &insufficient) += 1;
    }
  }
  assert_true(sufficient > 20 && insufficient > 20);
  lnl_close(e);
  free(file.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_largest_context_is_exact),
      cmocka_unit_test(test_suggestions_are_true),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
