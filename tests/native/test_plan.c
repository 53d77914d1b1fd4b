/* The plan: its slab is sound, near the lower bound, and does not grow with
 * the number of layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../src/engine.h"
#include "tiny_model.h"

static lnl_engine *planned(const tiny_config *c, uint32_t chunk) {
  tiny_file file = tiny_write(c);
  lnl_host host = tiny_host();
  lnl_plan_options options = {.chunk = chunk};
  lnl_engine *e = lnl_open(&host);
  assert_int_equal(tiny_header(e, &file, 0), LNL_OK);
  assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
  free(file.data);
  return e;
}

static void test_slab_does_not_grow_with_layers(void **state) {
  (void)state;
  tiny_config two = tiny_default(), sixteen = tiny_default();
  sixteen.n_layer = 16;
  lnl_engine *a = planned(&two, 0), *b = planned(&sixteen, 0);
  assert_int_equal(a->prefill.slab_bytes, b->prefill.slab_bytes);
  assert_int_equal(a->decode.slab_bytes, b->decode.slab_bytes);
  assert_true(b->prefill.step_count > 7 * a->prefill.step_count);
  lnl_close(a);
  lnl_close(b);
}

static void test_slab_is_near_the_lower_bound(void **state) {
  (void)state;
  for (uint32_t shape = 0; shape < 6; shape++) {
    tiny_config c = tiny_default();
    c.d_ff = 40 + 90 * shape;
    c.n_kv_head = shape % 2 ? 6 : 1;
    c.tied = shape % 3 == 0;
    for (uint32_t chunk = 1; chunk <= 64; chunk *= 4) {
      lnl_engine *e = planned(&c, chunk);
      assert_true(plan_verify(&e->prefill) && plan_verify(&e->decode));
      uint64_t bound = plan_lower_bound(&e->prefill);
      assert_true(e->prefill.slab_bytes >= bound);
      if (e->prefill.slab_bytes * 100 > bound * 105) {
        fail_msg("shape %u, chunk %u: slab %llu, bound %llu", shape, chunk,
                 (unsigned long long)e->prefill.slab_bytes, (unsigned long long)bound);
      }
      lnl_close(e);
    }
  }
}

/* The verifier must find a fault, or its silence means nothing: move each
 * value onto each other one that is alive with it. */
static void test_verifier_sees_every_overlap(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  lnl_engine *e = planned(&c, 8);
  lnl_plan *plan = &e->prefill;
  uint32_t tried = 0;
  for (uint32_t i = 0; i < plan->value_count; i++) {
    uint64_t right = plan->values[i].offset;
    for (uint32_t j = 0; j < plan->value_count; j++) {
      const plan_value *a = &plan->values[i], *b = &plan->values[j];
      if (i == j || a->first > b->last || b->first > a->last) continue;
      plan->values[i].offset = b->offset;
      assert_false(plan_verify(plan));
      tried++;
    }
    plan->values[i].offset = plan->slab_bytes;
    assert_false(plan_verify(plan));
    plan->values[i].offset = right + 4;
    assert_false(plan_verify(plan));
    plan->values[i].offset = right;
    assert_true(plan_verify(plan));
  }
  assert_true(tried > 50);
  lnl_close(e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_slab_does_not_grow_with_layers),
      cmocka_unit_test(test_slab_is_near_the_lower_bound),
      cmocka_unit_test(test_verifier_sees_every_overlap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
