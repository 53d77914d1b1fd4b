/* Weights that stay in the source: whatever the window, the budget, the cut of the
 * prompt and the number of threads, the logits are those of the resident model to
 * the bit, and no more is read than the plan says. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/engine.h"
#include "tiny_model.h"

static const int32_t prompt[] = {1, 260, 261, 299, 5, 77, 264, 265, 266, 267, 281, 290, 3};
enum { PROMPT = sizeof prompt / sizeof *prompt, DECODED = 3 };

/* --- an engine with its threads ------------------------------------------------------ */

typedef struct helper {
  lnl_pool *pool;
  uint32_t number;
  pthread_t thread;
} helper;

typedef struct running {
  lnl_engine *e;
  helper helpers[POOL_MAX_THREADS];
} running;

static void *serve(void *arg) {
  helper *h = arg;
  pool_thread_main(h->pool, h->number);
  return NULL;
}

static bool reads_later; /* the host reads asynchronously */

static lnl_host host_of(uint32_t threads) {
  lnl_host host = tiny_host();
  host.sync_read = !reads_later;
  host.threads = host.threads_asked = threads;
  return host;
}

/* The cache is never rounded to make room, so that the logits can be compared. */
static running run(const tiny_file *file, lnl_plan_options options, uint32_t threads) {
  options.kv = KV_F32;
  lnl_host host = host_of(threads);
  running r = {.e = lnl_open(&host)};
  lnl_status status = tiny_open(r.e, file, &options, true);
  if (status != LNL_OK) fail_msg("%s: %s", lnl_status_name(status), lnl_get_error(r.e)->message);
  return r;
}

static void start(running *r) {
  lnl_pool *pool = lnl_get_pool(r->e);
  for (uint32_t i = 1; i < pool->thread_count; i++) {
    r->helpers[i] = (helper){.pool = pool, .number = i};
    assert_int_equal(pthread_create(&r->helpers[i].thread, NULL, serve, &r->helpers[i]), 0);
  }
}

static void end(running *r) {
  lnl_pool *pool = lnl_get_pool(r->e);
  pool_stop(pool);
  for (uint32_t i = 1; i < pool->thread_count; i++) pthread_join(r->helpers[i].thread, NULL);
  lnl_close(r->e);
}

/* --- what it takes ---------------------------------------------------------------------- */

typedef struct needed {
  uint64_t least;    /* with all streamed that can be; 0: cannot be streamed */
  uint64_t resident; /* with nothing streamed, in the smallest forms */
} needed;

static needed measure(const tiny_file *file, lnl_plan_options options, uint32_t threads) {
  lnl_host host = host_of(threads);
  lnl_engine *e = lnl_open(&host);
  assert_int_equal(tiny_header(e, file, 0), LNL_OK);
  options.kv = KV_F32;
  options.budget_bytes = 1;
  options.stream = false;
  assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
  needed n = {.resident = lnl_get_budget(e)->planned.total, .least = e->least.total};
  options.stream = true;
  assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
  assert_false(lnl_get_budget(e)->fits);
  if (n.least) assert_int_equal(lnl_get_budget(e)->planned.total, n.least);
  lnl_close(e);
  return n;
}

static void append_logits(lnl_engine *e, float *all, uint32_t n_vocab, uint32_t i) {
  uint32_t rows;
  const float *logits = lnl_logits(e, &rows);
  assert_true(rows >= 1);
  memcpy(all + (size_t)i * n_vocab, logits + (size_t)(rows - 1) * n_vocab, n_vocab * sizeof *all);
}

/* The logits of the prompt's end and of some tokens after it; malloc. */
static float *all_logits(lnl_engine *e, const tiny_file *file, uint32_t n_vocab) {
  float *all = malloc((1 + DECODED) * n_vocab * sizeof *all);
  assert_int_equal(lnl_prompt(e, prompt, PROMPT, false), 0);
  for (uint32_t i = 0; i <= DECODED; i++) {
    assert_int_equal(tiny_eval(e, file), LNL_OK);
    append_logits(e, all, n_vocab, i);
    assert_true(lnl_sample(e) >= 0);
  }
  return all;
}

static uint32_t count_streamed(const lnl_engine *e) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    const lnl_weight *w = &e->model.weights[i];
    if (w->place.domain != DOMAIN_STREAMED) continue;
    count++;
    assert_int_equal(w->place.resident_bytes, 0);
    assert_null(w->data);
  }
  return count;
}

static float *resident_logits(const tiny_file *file, uint32_t n_vocab) {
  running r = run(file, (lnl_plan_options){0}, 1);
  float *want = all_logits(r.e, file, n_vocab);
  end(&r);
  return want;
}

/* Streams the model in so many bytes, and compares. */
static void check(const tiny_config *c, const tiny_file *file, const float *want, lnl_plan_options options,
                  uint32_t threads) {
  options.stream = true;
  running r = run(file, options, threads);
  assert_true(count_streamed(r.e) > 0);
  start(&r);
  const lnl_memory planned = lnl_get_budget(r.e)->planned, measured = lnl_measure(r.e);
  assert_true(measured.total <= options.budget_bytes);
  assert_int_equal(measured.total, planned.total);
  assert_int_equal(measured.window, planned.window);
  assert_true(planned.window > 0);
  const uint64_t allocations = mem_get_stats().alloc_calls;
  float *got = all_logits(r.e, file, c->n_vocab);
  assert_int_equal(mem_get_stats().alloc_calls, allocations);
  assert_memory_equal(got, want, (1 + DECODED) * c->n_vocab * sizeof *want);
  free(got);
  end(&r);
}

static void check_model(const tiny_config *c) {
  tiny_file file = tiny_write(c);
  float *want = resident_logits(&file, c->n_vocab);
  for (uint32_t threads = 1; threads <= 2; threads++) {
    static const uint64_t windows[] = {1, 20000, 0};
    for (int w = 0; w < 3; w++) {
      lnl_plan_options options = {.window_bytes = windows[w], .chunk = w == 0 ? 0 : w == 1 ? 4 : 1};
      const needed n = measure(&file, options, threads);
      if (n.least == 0) continue; /* the window takes more than the weights */
      options.budget_bytes = n.least;
      check(c, &file, want, options, threads);
      options.budget_bytes = (n.least + n.resident) / 2;
      check(c, &file, want, options, threads);
      options.budget_bytes = n.resident - 1;
      check(c, &file, want, options, threads);
    }
  }
  free(want);
  free(file.data);
}

/* --- tests ------------------------------------------------------------------------------ */

static tiny_config of_type(uint32_t type) {
  tiny_config c = tiny_default();
  c.d_model = c.d_ff = 256;
  c.n_head = 8;
  c.n_kv_head = 1;
  c.d_head = 32;
  c.n_vocab = 300 + type % 8; /* no whole group of 8 at the end, most times */
  c.matrix_type = type;
  c.tied = type % 2;
  return c;
}

static void test_streamed_logits_are_the_resident_ones(void **state) {
  (void)state;
  uint32_t count;
  const lnl_form *forms = form_list(&count);
  for (uint32_t i = 0; i < count; i++) {
    if (forms[i].block_len == 1) continue;
    const tiny_config c = of_type(forms[i].type);
    check_model(&c);
  }
}

static void test_of_floats_too(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  check_model(&c);
  c.tied = true;
  c.rope_freqs = true;
  c.vector_type = 1;
  check_model(&c);
}

/* Every window from the smallest that works to more than the largest weight, and
 * the smallest is what is taken when less is asked for. */
static void test_windows_of_every_size(void **state) {
  (void)state;
  const tiny_config c = of_type(TYPE_Q4_K);
  tiny_file file = tiny_write(&c);
  float *want = resident_logits(&file, c.n_vocab);
  const uint64_t row = 144; /* 256 values of Q4_K */
  uint64_t last = 0;
  for (uint64_t window = 1; window < 320 * row; window += window < 18 * row ? 5 * row : 23 * row) {
    lnl_plan_options options = {.window_bytes = window, .chunk = 5};
    options.budget_bytes = measure(&file, options, 1).least;
    check(&c, &file, want, options, 1);
    options.stream = true;
    running r = run(&file, options, 1);
    assert_in_range(r.e->window.slot_bytes, 16 * row, align_up(u64_max(window, 16 * row), MEM_ALIGN));
    assert_true(r.e->window.slot_bytes >= last);
    last = r.e->window.slot_bytes;
    end(&r);
  }
  free(want);
  free(file.data);
}

/* What stays is what saves most reading a byte: the output matrix in a form that
 * packing widens goes before a layer's, looked up rows before both. */
static void test_what_saves_most_reading_stays(void **state) {
  (void)state;
  const tiny_config c = of_type(TYPE_Q4_0);
  tiny_file file = tiny_write(&c);
  lnl_plan_options options = {.window_bytes = 1};
  const needed n = measure(&file, options, 1);
  options.stream = true;
  uint32_t before = UINT32_MAX;
  for (options.budget_bytes = n.least; options.budget_bytes < n.resident; options.budget_bytes += 3000) {
    running r = run(&file, options, 1);
    const uint32_t streamed = count_streamed(r.e);
    const lnl_model *m = &r.e->model;
    before = u32_min(before, streamed);
    if (streamed == 1) assert_int_equal(model_weight(m, ROLE_TOKEN_EMBD, 0)->place.domain, DOMAIN_STREAMED);
    for (uint32_t i = 0; i < m->weight_count; i++) {
      const lnl_placement *p = &m->weights[i].place;
      if (p->domain != DOMAIN_STREAMED) continue;
      const bool rows = m->weights[i].role == ROLE_TOKEN_EMBD;
      assert_int_equal(p->reasons[p->reason_count - 1],
                       rows ? REASON_STREAMED_ROWS : REASON_STREAMED_NO_ROOM);
    }
    end(&r);
  }
  assert_int_equal(before, 1);
  free(file.data);
}

/* A token reads what the plan says; a prompt's chunk reads each matrix once, and
 * one row of the embedding for each token. */
static void test_bytes_read_are_those_of_the_plan(void **state) {
  (void)state;
  for (uint32_t threads = 1; threads <= 2; threads++) {
    for (int tied = 0; tied < 2; tied++) {
      tiny_config c = of_type(TYPE_Q8_0);
      c.tied = tied;
      tiny_file file = tiny_write(&c);
      lnl_plan_options options = {.window_bytes = 40000};
      options.budget_bytes = measure(&file, options, threads).least;
      options.stream = true;
      running r = run(&file, options, threads);
      start(&r);
      const uint64_t a_token = stream_fetched_a_token(&r.e->model), row = 8 * 34;
      uint64_t matrices = 0;
      for (uint32_t i = 0; i < r.e->model.weight_count; i++) {
        const lnl_weight *w = &r.e->model.weights[i];
        if (!model_role_is_vector(w->role) && (w->role != ROLE_TOKEN_EMBD || tied))
          matrices += w->place.stored_bytes;
      }
      assert_int_equal(a_token, matrices + row);
      assert_int_equal(lnl_get_info(r.e).streamed_bytes, 0);
      assert_int_equal(lnl_prompt(r.e, prompt, PROMPT, false), 0);
      assert_int_equal(tiny_eval(r.e, &file), LNL_OK);
      assert_int_equal(lnl_get_info(r.e).streamed_bytes, matrices + PROMPT * row);
      for (uint64_t i = 1; i <= 4; i++) {
        assert_true(lnl_sample(r.e) >= 0);
        assert_int_equal(tiny_eval(r.e, &file), LNL_OK);
        assert_int_equal(lnl_get_info(r.e).streamed_bytes, matrices + PROMPT * row + i * a_token);
      }
      end(&r);
      free(file.data);
    }
  }
}

/* Reads that bring less than was asked for, and steps of the plan one by one. */
static void test_short_reads_and_single_steps(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  float *want = resident_logits(&file, c.n_vocab);
  for (uint32_t threads = 1; threads <= 3; threads++) {
    for (uint32_t steps = 0; steps <= 2; steps++) {
      lnl_plan_options options = {.window_bytes = 10000};
      options.budget_bytes = measure(&file, options, threads).least;
      options.stream = true;
      running r = run(&file, options, threads);
      start(&r);
      lnl_set_step_limit(r.e, steps);
      assert_int_equal(lnl_prompt(r.e, prompt, PROMPT, false), 0);
      lnl_status status;
      uint32_t needs = 0;
      while ((status = lnl_eval(r.e)) > 0) {
        if (status != LNL_NEED_BYTES) continue;
        needs++;
        assert_int_equal(tiny_feed(r.e, &file, 1 + needs * 7919 % 3000), LNL_OK);
      }
      assert_int_equal(status, LNL_OK);
      assert_true(needs > 100);
      uint32_t rows;
      assert_memory_equal(lnl_logits(r.e, &rows), want, c.n_vocab * sizeof *want);
      end(&r);
    }
  }
  free(want);
  free(file.data);
}

/* A host that begins to read what comes next, and lets the core compute meanwhile:
 * the same needs, the same bytes. */
static void test_reading_while_the_core_computes(void **state) {
  (void)state;
  const tiny_config c = of_type(TYPE_Q5_0);
  tiny_file file = tiny_write(&c);
  float *want = resident_logits(&file, c.n_vocab);
  reads_later = true;
  for (uint32_t threads = 1; threads <= 2; threads++) {
    lnl_plan_options options = {.window_bytes = 20000, .chunk = 9};
    options.budget_bytes = measure(&file, options, threads).least;
    check(&c, &file, want, options, threads); /* it may also wait */
    options.stream = true;
    running r = run(&file, options, threads);
    assert_int_equal(r.e->window.slot_count, 2);
    start(&r);
    assert_int_equal(lnl_need_later(r.e), LNL_MORE); /* nothing is needed */
    assert_int_equal(lnl_prompt(r.e, prompt, PROMPT, false), 0);
    lnl_status status;
    uint32_t later = 0, now = 0;
    lnl_need begun = {0};
    while ((status = lnl_eval(r.e)) > 0) {
      if (status != LNL_NEED_BYTES) continue;
      const lnl_need need = *lnl_get_need(r.e);
      if (begun.bytes > 0) {
        assert_int_equal(need.offset, begun.offset);
        assert_int_equal(need.bytes, begun.bytes);
        assert_ptr_equal(need.pointer, begun.pointer);
        begun.bytes = 0;
        assert_int_equal(lnl_need_later(r.e), LNL_MORE);
        now++;
      } else if (lnl_need_later(r.e) == LNL_OK) {
        begun = need;
        later++;
        assert_int_equal(lnl_load_fed(r.e, 1), LNL_BAD_STATE);
        continue;
      }
      assert_int_equal(tiny_feed(r.e, &file, 0), LNL_OK);
    }
    assert_int_equal(status, LNL_OK);
    assert_int_equal(now, later);
    assert_true(later > 20);
    uint32_t rows;
    assert_memory_equal(lnl_logits(r.e, &rows), want, c.n_vocab * sizeof *want);
    end(&r);
  }
  reads_later = false;
  free(want);
  free(file.data);
}

/* A run that is given up at any byte that it waits for leaves nothing behind. */
static void test_a_run_may_be_given_up_anywhere(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  float *want = resident_logits(&file, c.n_vocab);
  for (uint32_t threads = 1; threads <= 2; threads++) {
    lnl_plan_options options = {.window_bytes = 20000, .chunk = 8};
    options.budget_bytes = measure(&file, options, threads).least;
    options.stream = true;
    running r = run(&file, options, threads);
    start(&r);
    static const int32_t other[] = {1, 9, 8, 7, 6, 5, 4, 3, 2, 1};
    for (uint32_t needs = 0;; needs++) {
      assert_int_equal(lnl_prompt(r.e, other, 10, false), 0);
      lnl_status status = LNL_MORE;
      for (uint32_t fed = 0; (status = lnl_eval(r.e)) > 0;) {
        if (status != LNL_NEED_BYTES) continue;
        if (fed++ == needs) break;
        assert_int_equal(tiny_feed(r.e, &file, 0), LNL_OK);
      }
      const bool whole = status == LNL_OK;
      assert_int_equal(lnl_prompt(r.e, prompt, PROMPT, false), 0);
      /* what was asked for before is not wanted any more */
      if (!whole) assert_int_equal(lnl_load_fed(r.e, 1), LNL_BAD_STATE);
      if (needs % 7 == 0 || whole) {
        float *got = all_logits(r.e, &file, c.n_vocab);
        assert_memory_equal(got, want, (1 + DECODED) * c.n_vocab * sizeof *want);
        free(got);
      }
      if (whole) break;
      assert_true(needs < 1000);
    }
    end(&r);
  }
  free(want);
  free(file.data);
}

/* Closed in the middle of a pass, with a thread at work. */
static void test_closing_in_the_middle(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_plan_options options = {.window_bytes = 20000};
  options.budget_bytes = measure(&file, options, 2).least;
  options.stream = true;
  for (uint32_t needs = 0; needs < 40; needs += 3) {
    running r = run(&file, options, 2);
    start(&r);
    assert_int_equal(lnl_prompt(r.e, prompt, PROMPT, false), 0);
    for (uint32_t fed = 0; fed < needs; fed++) {
      assert_int_equal(lnl_eval(r.e), LNL_NEED_BYTES);
      assert_int_equal(tiny_feed(r.e, &file, 0), LNL_OK);
    }
    assert_int_equal(lnl_eval(r.e), LNL_NEED_BYTES);
    end(&r);
    assert_int_equal(mem_get_stats().live_blocks, 0);
  }
  free(file.data);
}

static void test_a_source_that_got_shorter_names_the_tensor(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  for (uint32_t threads = 1; threads <= 2; threads++) {
    lnl_plan_options options = {.window_bytes = 20000};
    options.budget_bytes = measure(&file, options, threads).least;
    options.stream = true;
    running r = run(&file, options, threads);
    start(&r);
    tiny_file cut = {file.data, file.bytes - 4000};
    assert_int_equal(lnl_prompt(r.e, prompt, PROMPT, false), 0);
    assert_int_equal(tiny_eval(r.e, &cut), LNL_GGUF_TRUNCATED);
    assert_non_null(strstr(lnl_get_error(r.e)->message, "blk.1.ffn_down.weight"));
    assert_int_equal(lnl_prompt(r.e, prompt, PROMPT, false), LNL_BAD_STATE);
    end(&r);
  }
  free(file.data);
}

/* Only where it is allowed, where the source can be read anywhere, and where the
 * model does not fit without. */
static void test_when_nothing_is_streamed(void **state) {
  (void)state;
  const tiny_config c = of_type(TYPE_Q4_0);
  tiny_file file = tiny_write(&c);
  const needed n = measure(&file, (lnl_plan_options){0}, 1);
  assert_true(n.least > 0 && n.least < n.resident);
  for (int i = 0; i < 4; i++) {
    lnl_host host = host_of(1);
    host.range_read = i != 1;
    host.can_map = i == 2;
    lnl_plan_options options = {.stream = i > 0, .budget_bytes = n.least};
    if (i == 3) options.budget_bytes = n.resident;
    lnl_engine *e = lnl_open(&host);
    assert_int_equal(tiny_header(e, &file, 0), LNL_OK);
    assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
    assert_int_equal(count_streamed(e), 0);
    assert_int_equal(lnl_get_budget(e)->planned.window, 0);
    if (i < 2) assert_false(lnl_get_budget(e)->fits);
    if (i == 3) assert_true(lnl_get_budget(e)->fits);
    bool suggested = false;
    for (uint32_t s = 0; s < e->suggestion_count; s++) {
      if (strcmp(e->suggestions[s].code, "STREAM") != 0) continue;
      suggested = true;
      assert_true(e->suggestions[s].sufficient);
    }
    assert_int_equal(suggested, i == 0);
    lnl_close(e);
  }
  free(file.data);
}

static void test_explanations_say_so(void **state) {
  (void)state;
  const tiny_config c = of_type(TYPE_Q4_0);
  tiny_file file = tiny_write(&c);
  lnl_plan_options options = {.stream = true};
  options.budget_bytes = measure(&file, options, 1).least;
  running r = run(&file, options, 1);
  lnl_text text = {0};
  lnl_explain_json(r.e, &text);
  lnl_explain_text(r.e, &text);
  lnl_memory_json(r.e, &text);
  lnl_steps_json(r.e, &text);
  assert_false(text.failed);
  char wanted[96];
  fmt_print(wanted, sizeof wanted, "\"bytes_per_token\":%llu,",
            (unsigned long long)stream_fetched_a_token(&r.e->model));
  assert_non_null(strstr(text.data, wanted));
  static const char *const words[] = {"\"domain\":\"STREAMED\"", "\"code\":\"STREAMED\"", "STREAMED_NO_ROOM",
                                      "STREAMED_ROWS",           "\"name\":\"window\"",   "weights_streamed"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) assert_non_null(strstr(text.data, words[i]));
  text_free(&text);
  end(&r);
  free(file.data);
}

static void test_largest_context_with_streaming(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_host host = tiny_host();
  lnl_engine *e = lnl_open(&host);
  assert_int_equal(tiny_header(e, &file, 0), LNL_OK);
  lnl_plan_options options = {.stream = true, .window_bytes = 1};
  const needed n = measure(&file, options, 1);
  uint32_t streamed = 0;
  for (options.budget_bytes = n.least * 3 / 4; options.budget_bytes < n.resident;
       options.budget_bytes += 2999) {
    options.n_ctx = 0;
    assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
    if (!e->streams) continue;
    streamed += lnl_get_budget(e)->fits;
    const uint32_t most = lnl_get_budget(e)->max_ctx;
    for (uint32_t ctx = u32_max(most, 1); ctx <= u32_min(most + 1, c.n_ctx); ctx++) {
      options.n_ctx = ctx;
      assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
      assert_int_equal(lnl_get_budget(e)->fits, ctx <= most);
    }
  }
  assert_true(streamed > 10);
  lnl_close(e);
  free(file.data);
}

/* Everything that a host does, once; the first failure ends it. */
static lnl_status whole_life(const tiny_file *file, uint64_t budget) {
  lnl_host host = tiny_host();
  lnl_plan_options options = {.budget_bytes = budget, .stream = true};
  lnl_engine *e = lnl_open(&host);
  if (!e) return LNL_OUT_OF_MEMORY;
  lnl_status status = tiny_open(e, file, &options, true);
  if (status == LNL_OK && lnl_prompt(e, prompt, PROMPT, true) < 0) status = lnl_get_error(e)->status;
  if (status == LNL_OK) status = tiny_eval(e, file);
  lnl_close(e);
  return status;
}

static void test_each_allocation_failed_in_turn(void **state) {
  (void)state;
  const tiny_config c = of_type(TYPE_Q6_K);
  tiny_file file = tiny_write(&c);
  const needed n = measure(&file, (lnl_plan_options){0}, 1);
  const uint64_t budget = (n.least + n.resident) / 2;
  assert_int_equal(whole_life(&file, budget), LNL_OK);
  assert_true(tiny_fail_each_allocation(whole_life, &file, budget) > 15);
  free(file.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_streamed_logits_are_the_resident_ones),
      cmocka_unit_test(test_of_floats_too),
      cmocka_unit_test(test_windows_of_every_size),
      cmocka_unit_test(test_what_saves_most_reading_stays),
      cmocka_unit_test(test_bytes_read_are_those_of_the_plan),
      cmocka_unit_test(test_short_reads_and_single_steps),
      cmocka_unit_test(test_reading_while_the_core_computes),
      cmocka_unit_test(test_a_run_may_be_given_up_anywhere),
      cmocka_unit_test(test_closing_in_the_middle),
      cmocka_unit_test(test_a_source_that_got_shorter_names_the_tensor),
      cmocka_unit_test(test_when_nothing_is_streamed),
      cmocka_unit_test(test_explanations_say_so),
      cmocka_unit_test(test_largest_context_with_streaming),
      cmocka_unit_test(test_each_allocation_failed_in_turn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
