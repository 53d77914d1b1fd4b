/* The pool with real threads: barriers hold, logits do not depend on how many
 * threads there are, and a thread that dies is an error instead of a hang. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/pool.h"
#include "tiny_model.h"

typedef struct helper {
  lnl_pool *pool;
  uint32_t number;
  pthread_t thread;
} helper;

static void *serve(void *arg) {
  helper *h = arg;
  pool_thread_main(h->pool, h->number);
  return NULL;
}

static void start(helper *helpers, lnl_pool *pool) {
  for (uint32_t i = 1; i < pool->thread_count; i++) {
    helpers[i] = (helper){.pool = pool, .number = i};
    assert_int_equal(pthread_create(&helpers[i].thread, NULL, serve, &helpers[i]), 0);
  }
}

static void stop(helper *helpers, lnl_pool *pool) {
  pool_stop(pool);
  for (uint32_t i = 1; i < pool->thread_count; i++) pthread_join(helpers[i].thread, NULL);
}

/* Between two barriers each thread counts once: nobody may see another sum. */
typedef struct counting {
  lnl_pool *pool;
  uint32_t sum, rounds, faults;
} counting;

static void count_rounds(void *context, uint32_t thread) {
  (void)thread;
  counting *c = context;
  for (uint32_t round = 1; round <= c->rounds; round++) {
    __atomic_add_fetch(&c->sum, 1, __ATOMIC_RELAXED);
    pool_barrier(c->pool);
    if (__atomic_load_n(&c->sum, __ATOMIC_RELAXED) != round * c->pool->thread_count) {
      __atomic_add_fetch(&c->faults, 1, __ATOMIC_RELAXED);
    }
    pool_barrier(c->pool);
  }
}

static void test_barriers_hold(void **state) {
  (void)state;
  for (uint32_t threads = 1; threads <= 4; threads++) {
    lnl_pool pool;
    helper helpers[POOL_MAX_THREADS];
    pool_init(&pool, threads);
    start(helpers, &pool);
    for (uint32_t job = 0; job < 20; job++) {
      counting c = {.pool = &pool, .rounds = 50};
      assert_int_equal(pool_run(&pool, count_rounds, &c), LNL_OK);
      assert_int_equal(c.faults, 0);
      assert_int_equal(c.sum, c.rounds * threads);
    }
    stop(helpers, &pool);
  }
}

static void test_split_covers_everything_once(void **state) {
  (void)state;
  for (uint32_t n = 0; n < 100; n++) {
    for (uint32_t unit = 1; unit <= 16; unit *= 2) {
      for (uint32_t threads = 1; threads <= 5; threads++) {
        uint32_t at = 0;
        for (uint32_t i = 0; i < threads; i++) {
          pool_range r = pool_split(n, unit, i, threads);
          assert_int_equal(r.begin, at);
          assert_true(r.end >= r.begin && (r.end % unit == 0 || r.end == n));
          at = r.end;
        }
        assert_int_equal(at, n);
      }
    }
  }
}

static const int32_t prompt[] = {1, 260, 261, 299, 5, 77, 264, 265, 266, 267, 281, 290, 3};
enum { PROMPT = sizeof prompt / sizeof *prompt, DECODED = 12 };

/* Logits of the prompt's end and of some decode steps, one after another. */
static float *run_model(const tiny_config *c, uint32_t threads, uint32_t chunk) {
  tiny_file file = tiny_write(c);
  lnl_host host = tiny_host();
  host.threads = threads;
  lnl_plan_options options = {.chunk = chunk};
  lnl_engine *e = lnl_open(&host);
  assert_int_equal(tiny_open(e, &file, &options, true), LNL_OK);
  helper helpers[POOL_MAX_THREADS];
  start(helpers, lnl_get_pool(e));
  float *all = malloc((1 + DECODED) * c->n_vocab * sizeof *all);
  assert_int_equal(lnl_prompt(e, prompt, PROMPT, false), 0);
  for (uint32_t i = 0; i <= DECODED; i++) {
    assert_int_equal(tiny_eval(e, &file), LNL_OK);
    uint32_t rows;
    memcpy(all + i * c->n_vocab, lnl_logits(e, &rows), c->n_vocab * sizeof *all);
    assert_true(lnl_sample(e) >= 0);
  }
  stop(helpers, lnl_get_pool(e));
  lnl_close(e);
  free(file.data);
  return all;
}

static void test_logits_do_not_depend_on_threads(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  for (c.n_kv_head = 1; c.n_kv_head <= 6; c.n_kv_head += c.n_kv_head == 1 ? 1 : 4) {
    float *want = run_model(&c, 1, 0);
    for (uint32_t threads = 2; threads <= 5; threads++) {
      for (uint32_t chunk = 1; chunk <= 16; chunk *= 4) {
        float *got = run_model(&c, threads, chunk);
        assert_memory_equal(got, want, (1 + DECODED) * c.n_vocab * sizeof *want);
        free(got);
      }
    }
    free(want);
  }
}

static void *report(void *pool) {
  pool_report_lost(pool);
  return NULL;
}

static void test_a_lost_thread_is_an_error(void **state) {
  (void)state;
  lnl_pool pool;
  pool_init(&pool, 2); /* the other one never comes */
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, report, &pool), 0);
  counting c = {.pool = &pool, .rounds = 3};
  assert_int_equal(pool_run(&pool, count_rounds, &c), LNL_THREAD_LOST);
  pthread_join(thread, NULL);
  assert_int_equal(pool_run(&pool, count_rounds, &c), LNL_THREAD_LOST); /* and stays so */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_barriers_hold),
      cmocka_unit_test(test_split_covers_everything_once),
      cmocka_unit_test(test_logits_do_not_depend_on_threads),
      cmocka_unit_test(test_a_lost_thread_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
