/* The plan: its slab is sound, near the lower bound, and does not grow with
 * the number of layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* --- with and without the slab --------------------------------------------------------- */

static const int32_t prompt[] = {1, 260, 261, 299, 5, 77, 264, 265, 266, 267, 281};
enum { PROMPT = sizeof prompt / sizeof *prompt, GENERATED = 6 };

/* Logits of the prompt and of some tokens after it, one after the other; malloc. */
static float *all_of(const tiny_file *file, lnl_plan_options options, size_t *count) {
  lnl_host host = tiny_host();
  lnl_engine *e = lnl_open(&host);
  assert_int_equal(tiny_open(e, file, &options, true), LNL_OK);
  assert_int_equal(lnl_get_budget(e)->planned.slab, lnl_measure(e).slab);
  assert_true(plan_verify(&e->prefill) && plan_verify(&e->decode));
  const size_t n_vocab = lnl_get_info(e).n_vocab;
  float *all = malloc((PROMPT + GENERATED) * n_vocab * sizeof *all);
  *count = 0;
  assert_int_equal(lnl_prompt(e, prompt, PROMPT, false), 0);
  for (uint32_t step = 0; step <= GENERATED; step++) {
    lnl_status status;
    do {
      status = lnl_eval(e);
      uint32_t rows = 0;
      const float *logits = lnl_logits(e, &rows);
      if (!logits) continue;
      memcpy(all + *count, logits, rows * n_vocab * sizeof *all);
      *count += rows * n_vocab;
    } while (status == LNL_MORE);
    assert_int_equal(status, LNL_OK);
    if (step < GENERATED) assert_true(lnl_sample(e) >= 0);
  }
  lnl_close(e);
  return all;
}

/* Where values lie changes nothing, so no value is overwritten while it is alive. */
static void test_a_place_for_each_value_gives_the_same_bits(void **state) {
  (void)state;
  static const uint32_t types[] = {0, 1, 2, 8, 14}; /* F32, F16, Q4_0, Q8_0, Q6_K */
  for (uint32_t i = 0; i < 5; i++) {
    tiny_config c = tiny_default();
    c.matrix_type = types[i];
    c.tied = i % 2;
    c.biases = i < 3;
    c.d_model = c.d_ff = 256;
    c.n_head = 8;
    c.d_head = 32;
    tiny_file file = tiny_write(&c);
    for (uint32_t chunk = 1; chunk <= 16; chunk *= 4) {
      for (int all_logits = 0; all_logits < 2; all_logits++) {
        lnl_plan_options options = {.chunk = chunk, .all_logits = all_logits};
        size_t count, spread_count;
        float *want = all_of(&file, options, &count);
        options.spread = true;
        float *got = all_of(&file, options, &spread_count);
        assert_int_equal(count, spread_count);
        assert_int_equal(count, (all_logits ? PROMPT + GENERATED : 1 + GENERATED) * (size_t)c.n_vocab);
        assert_memory_equal(got, want, count * sizeof *want);
        free(want);
        free(got);
      }
    }
    free(file.data);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_slab_does_not_grow_with_layers),
      cmocka_unit_test(test_slab_is_near_the_lower_bound),
      cmocka_unit_test(test_verifier_sees_every_overlap),
      cmocka_unit_test(test_a_place_for_each_value_gives_the_same_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
