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
  host.threads = host.threads_asked = threads;
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

static void test_one_goes_on_where_the_others_did_not_start(void **state) {
  (void)state;
  lnl_pool pool;
  helper late = {.pool = &pool, .number = 2};
  pool_init(&pool, 3); /* thread 1 never comes */
  pool_use_one(&pool);
  assert_int_equal(pthread_create(&late.thread, NULL, serve, &late), 0);
  counting c = {.pool = &pool, .rounds = 3};
  assert_int_equal(pool_run(&pool, count_rounds, &c), LNL_OK);
  assert_int_equal(c.sum, 3);
  pthread_join(late.thread, NULL); /* it found nothing to do */
}

/* How many threads for which host: the number and the code of the reason. */
static void test_the_number_follows_from_the_host(void **state) {
  (void)state;
  static const struct {
    lnl_host_kind kind;
    bool isolated, can_wait, can_share;
    uint32_t cores, asked, count;
    const char *code;
    bool notable;
  } table[] = {
      {HOST_NODE, true, true, true, 1, 0, 1, "ONE_CORE", false},
      {HOST_NODE, true, true, true, 2, 0, 2, "AUTO", false},
      {HOST_NODE, true, true, true, 4, 0, 4, "AUTO", false},
      {HOST_NODE, true, true, true, 7, 0, 4, "AUTO", false},
      {HOST_NODE, true, true, true, 12, 0, 6, "AUTO", false},
      {HOST_NODE, true, true, true, 200, 0, 8, "AUTO", false},
      {HOST_NODE, true, true, true, 8, 8, 8, "ASKED_FOR", false},
      {HOST_NODE, true, true, true, 2, 64, 2, "CORES", true},
      {HOST_NODE, true, true, true, 64, 64, 16, "LIMIT", true},
      {HOST_NODE, true, true, true, 8, 1, 1, "ASKED_FOR_ONE", false},
      {HOST_NODE, true, true, true, 1, 2, 1, "ONE_CORE", true},
      {HOST_NODE, true, true, false, 2, 0, 1, "NO_SHARED_MEMORY", false},
      {HOST_NODE, true, true, false, 2, 2, 1, "NO_SHARED_MEMORY", true},
      {HOST_BROWSER, true, true, true, 2, 0, 2, "AUTO", false},
      {HOST_BROWSER, false, true, false, 2, 0, 1, "NOT_ISOLATED", true},
      {HOST_BROWSER, true, false, true, 2, 2, 1, "MAIN_THREAD", true},
      {HOST_NATIVE, false, false, true, 0, 0, 1, "ONE_CORE", false},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    lnl_host host = {.kind = table[i].kind,
                     .isolated = table[i].isolated,
                     .can_wait = table[i].can_wait,
                     .threads = table[i].cores,
                     .threads_asked = table[i].asked};
    lnl_threads got = host_choose_threads(&host, table[i].can_share, POOL_MAX_THREADS);
    assert_string_equal(got.code, table[i].code);
    assert_int_equal(got.count, table[i].count);
    assert_int_equal(got.notable, table[i].notable);
  }
}

/* 64-bit addresses only where they are needed, allowed and there. */
static void test_addresses_follow_from_what_is_needed(void **state) {
  (void)state;
  const uint64_t gib = UINT64_C(1) << 30, any = UINT64_MAX;
  const struct {
    lnl_host_kind kind;
    bool memory64, asked;
    uint32_t own;
    uint64_t needed, allowed;
    uint32_t bits;
    const char *code;
    bool lacking;
  } table[] = {
      {HOST_NODE, true, false, 32, 1 * gib, any, 32, "FITS_32", false},
      {HOST_NODE, true, false, 32, 4 * gib, any, 32, "FITS_32", false},
      {HOST_NODE, true, false, 32, 4 * gib + 1, any, 64, "NEEDS_64", false},
      {HOST_BROWSER, true, false, 64, 5 * gib, any, 64, "NEEDS_64", false},
      {HOST_BROWSER, true, false, 32, 5 * gib, 5 * gib, 64, "NEEDS_64", false},
      /* Not all of it is allowed, but more than 32 bits reach: a smaller plan will want that. */
      {HOST_BROWSER, true, false, 32, 5 * gib, 5 * gib - 1, 64, "NEEDS_64", false},
      {HOST_BROWSER, true, false, 32, any, 4 * gib + 1, 64, "NEEDS_64", false},
      {HOST_BROWSER, true, false, 32, any, 4 * gib, 32, "NOT_ALLOWED", false},
      {HOST_BROWSER, false, false, 32, 5 * gib, 5 * gib - 1, 32, "NOT_ALLOWED", false},
      {HOST_BROWSER, false, false, 32, 5 * gib, 1 * gib, 32, "NOT_ALLOWED", false},
      {HOST_BROWSER, false, false, 32, 5 * gib, any, 32, "NO_MEMORY64", true},
      {HOST_WASI, false, false, 32, 5 * gib, any, 32, "NO_MEMORY64", true},
      {HOST_NODE, true, true, 32, 5 * gib, any, 32, "ASKED_FOR", false},
      {HOST_NODE, true, true, 64, 1 * gib, any, 64, "ASKED_FOR", false},
      {HOST_NATIVE, false, false, 64, 5 * gib, any, 64, "NATIVE", false},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const lnl_host host = {.kind = table[i].kind, .memory64 = table[i].memory64};
    const lnl_address got =
        host_choose_address(&host, table[i].own, table[i].asked, table[i].needed, table[i].allowed);
    assert_string_equal(got.code, table[i].code);
    assert_int_equal(got.bits, table[i].bits);
    assert_int_equal(got.lacking, table[i].lacking);
    assert_true(host_reach(&host, 32) == 4 * gib);
    assert_true(host_reach(&host, 64) == (host.kind == HOST_NATIVE ? any : 16 * gib));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_addresses_follow_from_what_is_needed),
      cmocka_unit_test(test_barriers_hold),
      cmocka_unit_test(test_split_covers_everything_once),
      cmocka_unit_test(test_logits_do_not_depend_on_threads),
      cmocka_unit_test(test_a_lost_thread_is_an_error),
      cmocka_unit_test(test_one_goes_on_where_the_others_did_not_start),
      cmocka_unit_test(test_the_number_follows_from_the_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
