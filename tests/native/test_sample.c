/* The sampler against the definition of each step, on a small vocabulary. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/sample.h"

enum { N = 50, DRAWS = 40000 };
static sample_candidate room[N];
static float logits[N];

static void setup(lnl_sampler *s, sample_params params) {
  *s = (lnl_sampler){.candidates = room};
  assert_int_equal(sample_set(s, &params, NULL), LNL_OK);
  uint32_t random = 12345;
  for (int i = 0; i < N; i++) {
    random = random * 1664525u + 1013904223u;
    logits[i] = (float)(random >> 8) / 16777216.0f * 8 - 4;
  }
}

typedef struct ranked {
  double logit, p;
  int id;
} ranked;

static int by_logit(const void *a, const void *b) {
  double x = ((const ranked *)a)->logit, y = ((const ranked *)b)->logit;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* The distribution by its definition: sort everything, cut, renormalise. */
static void expected(const sample_params *p, double out[N]) {
  ranked all[N];
  for (int i = 0; i < N; i++) all[i] = (ranked){.logit = (double)logits[i], .id = i};
  qsort(all, N, sizeof *all, by_logit);
  int kept = p->top_k && p->top_k < N ? (int)p->top_k : N;
  double sum = 0;
  for (int i = 0; i < kept; i++) sum += all[i].p = exp(all[i].logit);
  if (p->top_p < 1) {
    double reached = 0;
    int n = 0;
    while (n < kept && reached < (double)p->top_p * sum) reached += all[n++].p;
    kept = n;
  }
  while (kept > 1 && all[kept - 1].logit < all[0].logit + log((double)p->min_p)) kept--;
  memset(out, 0, N * sizeof *out);
  sum = 0;
  for (int i = 0; i < kept; i++)
    sum += all[i].p = exp((all[i].logit - all[0].logit) / (double)p->temperature);
  for (int i = 0; i < kept; i++) out[all[i].id] = all[i].p / sum;
}

static void test_draws_follow_the_distribution(void **state) {
  (void)state;
  static const sample_params cases[] = {
      {.temperature = 1, .top_p = 1, .repeat_penalty = 1},
      {.temperature = 0.5f, .top_p = 1, .repeat_penalty = 1},
      {.temperature = 2, .top_k = 7, .top_p = 1, .repeat_penalty = 1},
      {.temperature = 1, .top_p = 0.8f, .repeat_penalty = 1},
      {.temperature = 1, .top_k = 12, .top_p = 0.7f, .repeat_penalty = 1},
      {.temperature = 1.5f, .top_p = 1, .min_p = 0.1f, .repeat_penalty = 1},
      {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1},
      {.temperature = 1, .top_k = 1, .top_p = 1, .repeat_penalty = 1},
      {.temperature = 1, .top_p = 1e-6f, .repeat_penalty = 1},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    lnl_sampler s;
    setup(&s, cases[c]);
    double want[N];
    expected(&cases[c], want);
    int seen[N] = {0};
    for (int i = 0; i < DRAWS; i++) seen[sample_next(&s, logits, N, NULL, 0)]++;
    for (int i = 0; i < N; i++) {
      /* five standard deviations of a binomial share */
      double deviation = sqrt(want[i] * (1 - want[i]) / DRAWS);
      assert_true(fabs((double)seen[i] / DRAWS - want[i]) <= 5 * deviation);
      if (want[i] == 0) assert_int_equal(seen[i], 0);
    }
  }
}

static void test_same_seed_same_ids(void **state) {
  (void)state;
  lnl_sampler a, b, c;
  sample_params params = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 42};
  setup(&a, params);
  setup(&b, params);
  params.seed = 43;
  setup(&c, params);
  int differ = 0;
  for (int i = 0; i < 200; i++) {
    int32_t id = sample_next(&a, logits, N, NULL, 0);
    assert_int_equal(id, sample_next(&b, logits, N, NULL, 0));
    differ += id != sample_next(&c, logits, N, NULL, 0);
  }
  assert_true(differ > 100);
}

static void test_greedy_and_penalty(void **state) {
  (void)state;
  lnl_sampler s;
  setup(&s, (sample_params){.top_p = 1, .repeat_penalty = 1});
  memset(logits, 0, sizeof logits);
  logits[7] = logits[9] = 2.0f; /* of equals the lower id */
  assert_int_equal(sample_next(&s, logits, N, NULL, 0), 7);
  logits[9] = 1.9f;
  const int32_t recent[] = {7, 7, 3};
  s.params.repeat_penalty = 1.1f; /* once, though 7 occurs twice: 2 / 1.1 < 1.9 */
  assert_int_equal(sample_next(&s, logits, N, recent, 3), 9);
  s.params.repeat_penalty = 1.04f;
  assert_int_equal(sample_next(&s, logits, N, recent, 3), 7);
  /* a negative logit moves down, too */
  for (int i = 0; i < N; i++) logits[i] = -1;
  const int32_t all_but_one[] = {0, 1, 2, 3};
  assert_int_equal(sample_next(&s, logits, 5, all_but_one, 4), 4);
}

static void test_broken_logits_do_not_break_the_sampler(void **state) {
  (void)state;
  lnl_sampler s;
  setup(&s,
        (sample_params){.temperature = 1, .top_k = 5, .top_p = 0.9f, .min_p = 0.1f, .repeat_penalty = 1.2f});
  for (int i = 0; i < N; i++) logits[i] = NAN;
  assert_in_range(sample_next(&s, logits, N, NULL, 0), 0, N - 1);
  for (int i = 0; i < N; i++) logits[i] = i % 2 ? INFINITY : -INFINITY;
  assert_in_range(sample_next(&s, logits, N, NULL, 0), 0, N - 1);
  for (int i = 0; i < N; i++) logits[i] = -INFINITY;
  assert_in_range(sample_next(&s, logits, N, NULL, 0), 0, N - 1);
  assert_in_range(sample_next(&s, logits, 1, NULL, 0), 0, 0);
}

static void test_ranges_are_checked(void **state) {
  (void)state;
  static const sample_params bad[] = {
      {.temperature = -0.1f, .top_p = 1, .repeat_penalty = 1},
      {.temperature = NAN, .top_p = 1, .repeat_penalty = 1},
      {.temperature = 1, .top_p = 0, .repeat_penalty = 1},
      {.temperature = 1, .top_p = 1.1f, .repeat_penalty = 1},
      {.temperature = 1, .top_p = 1, .min_p = -1, .repeat_penalty = 1},
      {.temperature = 1, .top_p = 1, .min_p = 1.5f, .repeat_penalty = 1},
      {.temperature = 1, .top_p = 1, .repeat_penalty = 0},
      {.temperature = 1, .top_p = NAN, .repeat_penalty = 1},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    lnl_sampler s = {0};
    lnl_error error;
    assert_int_equal(sample_set(&s, &bad[i], &error), LNL_BAD_ARGUMENT);
    assert_true(strlen(error.message) > 10);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_draws_follow_the_distribution),
      cmocka_unit_test(test_same_seed_same_ids),
      cmocka_unit_test(test_greedy_and_penalty),
      cmocka_unit_test(test_broken_logits_do_not_break_the_sampler),
      cmocka_unit_test(test_ranges_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
