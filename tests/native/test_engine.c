/* The engine's whole life on a small random model: header, plan, memory,
 * weights, session; with every allocation failed in turn. */
#include <math.h>
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
enum { PROMPT = sizeof prompt / sizeof *prompt };

static lnl_engine *open_tiny(const tiny_file *file, lnl_plan_options options, bool load) {
  lnl_host host = tiny_host();
  lnl_engine *e = lnl_open(&host);
  lnl_status status = tiny_open(e, file, &options, load);
  if (status != LNL_OK) fail_msg("%s: %s", lnl_status_name(status), lnl_get_error(e)->message);
  return e;
}

/* The logits of the prompt's last position; malloc. */
static float *last_logits(lnl_engine *e, const tiny_file *file, bool reuse) {
  assert_true(lnl_prompt(e, prompt, PROMPT, reuse) >= 0);
  assert_int_equal(tiny_eval(e, file), LNL_OK);
  uint32_t rows, n_vocab = lnl_get_info(e).n_vocab;
  const float *logits = lnl_logits(e, &rows);
  assert_true(rows >= 1);
  float *copy = malloc(n_vocab * sizeof *copy);
  memcpy(copy, logits + (size_t)(rows - 1) * n_vocab, n_vocab * sizeof *copy);
  return copy;
}

static void assert_same_logits(const tiny_file *file, lnl_plan_options options, const float *want,
                               uint32_t n) {
  lnl_engine *e = open_tiny(file, options, true);
  float *got = last_logits(e, file, false);
  assert_memory_equal(got, want, n * sizeof *want);
  free(got);
  lnl_close(e);
}

static void check_cuts(tiny_config c, kv_type kv) {
  tiny_file file = tiny_write(&c);
  lnl_engine *e = open_tiny(&file, (lnl_plan_options){.kv = kv}, true);
  float *want = last_logits(e, &file, false);
  for (uint32_t i = 1; i < c.n_vocab; i++) assert_true(want[i] - want[i] == 0);

  /* prefill chunks of any size, and all positions' logits kept */
  for (uint32_t chunk = 1; chunk <= PROMPT + 1; chunk++) {
    assert_same_logits(&file, (lnl_plan_options){.kv = kv, .chunk = chunk}, want, c.n_vocab);
    assert_same_logits(&file, (lnl_plan_options){.kv = kv, .chunk = chunk, .all_logits = true}, want,
                       c.n_vocab);
  }
  /* a prefix that is reused */
  const int32_t other[] = {1, 260, 261, 299, 9, 9};
  assert_int_equal(lnl_prompt(e, other, 6, true), 4);
  assert_int_equal(tiny_eval(e, &file), LNL_OK);
  assert_int_equal(lnl_prompt(e, prompt, PROMPT, true), 4);
  assert_int_equal(tiny_eval(e, &file), LNL_OK);
  uint32_t rows;
  assert_memory_equal(lnl_logits(e, &rows), want, c.n_vocab * sizeof *want);
  lnl_close(e);

  /* weights that arrive only when a step needs them */
  e = open_tiny(&file, (lnl_plan_options){.kv = kv, .chunk = 4}, false);
  assert_int_equal(lnl_prompt(e, prompt, PROMPT, false), 0);
  assert_int_equal(lnl_eval(e), LNL_NEED_BYTES);
  float *lazy = last_logits(e, &file, false);
  assert_memory_equal(lazy, want, c.n_vocab * sizeof *want);
  assert_int_equal(lnl_load_next(e), LNL_OK); /* every weight was used, so all are there */
  free(lazy);
  lnl_close(e);

  /* evaluation and loading take turns at any byte, in both orders */
  for (uint32_t round = 0; round < 4; round++) {
    uint32_t most = round < 2 ? 7 : 1000;
    e = open_tiny(&file, (lnl_plan_options){.kv = kv, .chunk = PROMPT}, false);
    assert_int_equal(lnl_load_ahead(e, round % 2), LNL_OK);
    assert_int_equal(lnl_prompt(e, prompt, PROMPT, false), 0);
    lnl_status status;
    for (uint32_t turn = 0; (status = turn % 3 ? lnl_load_next(e) : lnl_eval(e)) == LNL_NEED_BYTES; turn++)
      assert_int_equal(tiny_feed(e, &file, most), LNL_OK);
    assert_int_equal(status, LNL_OK);
    assert_int_equal(lnl_load_ahead(e, true), LNL_BAD_STATE);
    float *by_layer = last_logits(e, &file, false);
    assert_memory_equal(by_layer, want, c.n_vocab * sizeof *want);
    free(by_layer);
    lnl_close(e);
  }

  /* a few steps of the plan at a time, as a profiler does */
  e = open_tiny(&file, (lnl_plan_options){.kv = kv, .chunk = 4}, true);
  lnl_set_step_limit(e, 3);
  assert_int_equal(lnl_prompt(e, prompt, PROMPT, false), 0);
  assert_int_equal(lnl_eval(e), LNL_MORE);
  assert_int_equal(lnl_next_step(e), 3);
  float *stepped = last_logits(e, &file, false);
  assert_memory_equal(stepped, want, c.n_vocab * sizeof *want);
  free(stepped);
  lnl_close(e);

  /* header and weights in pieces */
  static const size_t pieces[] = {1, 7, 4096};
  for (int i = 0; i < 3; i++) {
    lnl_host host = tiny_host();
    lnl_plan_options options = {.kv = kv};
    e = lnl_open(&host);
    assert_int_equal(tiny_header(e, &file, pieces[i]), LNL_OK);
    assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
    assert_int_equal(lnl_bind(e), LNL_OK);
    assert_int_equal(tiny_load(e, &file, (uint32_t)pieces[i]), LNL_OK);
    float *got = last_logits(e, &file, false);
    assert_memory_equal(got, want, c.n_vocab * sizeof *want);
    free(got);
    lnl_close(e);
  }
  free(want);
  free(file.data);
  assert_int_equal(mem_get_stats().live_blocks, 0);
}

static void test_logits_do_not_depend_on_how_bytes_or_tokens_are_cut(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  c.rope_freqs = true;
  check_cuts(c, KV_AUTO);
}

/* The file has output_norm and output before the layers. */
static void test_the_order_of_layers(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  c.rope_freqs = true;
  c.tied = false;
  tiny_file file = tiny_write(&c);
  lnl_engine *e = open_tiny(&file, (lnl_plan_options){0}, false);
  lnl_extent in_file[3], extent, before = {0};
  /* embedding, norm, output */
  for (uint32_t i = 0; i < 3; i++) assert_true(lnl_load_extent(e, i, &in_file[i]));
  assert_int_equal(lnl_load_ahead(e, true), LNL_OK);
  uint64_t total = 0;
  uint32_t count = 0, back = 0, last_two = 0;
  for (; lnl_load_extent(e, count, &extent); before = extent, count++) {
    total += extent.bytes;
    back += extent.offset < before.offset;
    if (count == 0) assert_int_equal(extent.offset, in_file[0].offset);
    if (extent.offset == in_file[1].offset || extent.offset == in_file[2].offset) last_two += count;
  }
  assert_int_equal(count, e->model.weight_count);
  assert_int_equal(last_two, (count - 1) + (count - 2));
  assert_int_equal(total, lnl_get_info(e).weight_bytes);
  assert_int_equal(back, 1); /* to output_norm; all else rises */
  assert_int_equal(lnl_load_next(e), LNL_NEED_BYTES);
  assert_int_equal(lnl_load_ahead(e, true), LNL_BAD_STATE);
  lnl_close(e);
  free(file.data);
}

/* Quantised matrices, those packed while they load among them; row counts that
 * are no multiple of a group. */
static void test_the_same_of_every_block_type(void **state) {
  (void)state;
  uint32_t count;
  const lnl_form *forms = form_list(&count);
  for (uint32_t i = 0; i < count; i++) {
    if (forms[i].block_len == 1) continue;
    tiny_config c = tiny_default();
    c.d_model = c.d_ff = 256;
    c.n_head = 8;
    c.n_kv_head = 1;
    c.d_head = 32;
    c.n_vocab = 300 + i;
    c.matrix_type = forms[i].type;
    c.tied = i % 2;
    check_cuts(c, KV_AUTO);
  }
}

/* Whatever the cache holds, a position's bytes depend on nothing but its row. */
static void test_the_same_of_every_cache_type(void **state) {
  (void)state;
  for (kv_type kv = KV_F32; kv < KV_TYPE_COUNT; kv++)
    for (uint32_t d_head = 24; d_head <= 32; d_head += 8) {
      tiny_config c = tiny_default();
      c.d_head = d_head;
      c.n_head = 6;
      c.n_kv_head = 2;
      check_cuts(c, kv);
    }
}

static void test_quantised_caches_stay_near(void **state) {
  (void)state;
  static const double most[KV_TYPE_COUNT] = {[KV_F16] = 1e-3, [KV_Q8_0] = 2e-2, [KV_Q4_0] = 0.3};
  tiny_config c = tiny_default();
  c.d_head = 32;
  tiny_file file = tiny_write(&c);
  float *want = NULL;
  for (kv_type kv = KV_F32; kv < KV_TYPE_COUNT; kv++) {
    lnl_engine *e = open_tiny(&file, (lnl_plan_options){.kv = kv}, true);
    float *got = last_logits(e, &file, false);
    lnl_close(e);
    if (!want) {
      want = got;
      continue;
    }
    double off = 0, size = 0;
    for (uint32_t i = 0; i < c.n_vocab; i++) {
      off += (double)(got[i] - want[i]) * (double)(got[i] - want[i]);
      size += (double)want[i] * (double)want[i];
    }
    free(got);
    const double relative = sqrt(off / size);
    if (!(relative > 0 && relative < most[kv])) fail_msg("%s: %g", kv_type_name(kv), relative);
  }
  free(want);
  free(file.data);
}

/* Attention takes halves to be finite until one is written that is not. */
static void test_what_is_infinite_in_a_cache_shows(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  const float fits[2] = {65519, -65519}, infinite[3] = {65520, -INFINITY, NAN};
  for (kv_type kv = KV_F32; kv <= KV_F16; kv++)
    for (uint32_t i = 0; i < 5; i++) {
      lnl_engine *e = open_tiny(&file, (lnl_plan_options){.kv = kv}, true);
      free(last_logits(e, &file, false));
      float row[64] = {0};
      assert_true(c.n_kv_head * c.d_head <= 64);
      row[c.d_head - 1] = i < 2 ? fits[i] : infinite[i - 2];
      kv_store(&e->kv, 0, 1, (float[64]){0}, row);
      assert_int_equal(kv_is_finite(&e->kv), kv == KV_F32 || i < 2);
      int32_t longer[PROMPT + 1];
      memcpy(longer, prompt, sizeof prompt);
      longer[PROMPT] = prompt[0];
      assert_int_equal(lnl_prompt(e, longer, PROMPT + 1, true), PROMPT);
      assert_int_equal(tiny_eval(e, &file), LNL_OK);
      uint32_t rows;
      const float *logits = lnl_logits(e, &rows);
      assert_int_equal(isnan(logits[1]), i > 2 || (i == 2 && kv == KV_F16));
      lnl_close(e);
    }
  free(file.data);
}

static void test_mapped_weights_give_the_same_logits(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_engine *e = open_tiny(&file, (lnl_plan_options){0}, true);
  float *want = last_logits(e, &file, false);
  uint64_t heap_weights = lnl_get_budget(e)->planned.weights;
  lnl_close(e);

  lnl_host host = tiny_host();
  host.kind = HOST_NATIVE;
  host.can_map = true;
  lnl_plan_options options = {0};
  e = lnl_open(&host);
  assert_int_equal(tiny_header(e, &file, 0), LNL_OK);
  assert_int_equal(lnl_map_shard(e, 0, file.data, file.bytes), LNL_OK);
  assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
  assert_true(lnl_get_budget(e)->planned.weights < heap_weights / 10); /* norms and biases only */
  assert_int_equal(lnl_bind(e), LNL_OK);
  assert_int_equal(tiny_load(e, &file, 0), LNL_OK);
  float *got = last_logits(e, &file, false);
  assert_memory_equal(got, want, c.n_vocab * sizeof *want);
  free(got);
  lnl_close(e);

  /* a mapping that is missing or too short is an error, not a fault */
  for (uint64_t bytes = 0; bytes <= 4096; bytes += 4096) {
    e = lnl_open(&host);
    assert_int_equal(tiny_header(e, &file, 0), LNL_OK);
    if (bytes) assert_int_equal(lnl_map_shard(e, 0, file.data, bytes), LNL_OK);
    assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
    assert_true(lnl_bind(e) < 0);
    lnl_close(e);
  }
  free(want);
  free(file.data);
}

#ifdef LNL_DEBUG
/* Each step begins with a slab in which nothing of the step before can be read. */
static void test_the_slab_is_poisoned(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_engine *e = open_tiny(&file, (lnl_plan_options){.chunk = PROMPT}, true);
  const uint64_t used = e->decode.slab_bytes, all = e->prefill.slab_bytes;
  assert_true(all > 2 * used);
  free(last_logits(e, &file, false));
  for (uint32_t i = 0; i < 3; i++) {
    uint64_t stale = 0;
    for (uint64_t at = used; at < all; at++) stale += e->slab_base[at] != 0xff;
    assert_true(i == 0 ? stale > used : stale == 0);
    memset(e->slab_base, 1, all);
    assert_true(lnl_sample(e) >= 0);
    assert_int_equal(tiny_eval(e, &file), LNL_OK);
  }
  lnl_close(e);
  free(file.data);
}
#endif

static void test_half_vectors_are_widened_in_place(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  c.vector_type = 1;
  tiny_file file = tiny_write(&c);
  lnl_engine *e = open_tiny(&file, (lnl_plan_options){0}, false);
  assert_int_equal(tiny_load(e, &file, 5), LNL_OK); /* pieces that cut values in two */
  uint32_t seen = 0;
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    const lnl_weight *w = &e->model.weights[i];
    if (w->place.hold != HOLD_F32) continue;
    seen++;
    assert_int_equal(w->place.resident_bytes, 2 * w->place.stored_bytes);
    for (uint64_t j = 0; j < w->place.resident_bytes / 4; j++) {
      _Float16 half;
      float value;
      memcpy(&half, file.data + w->stored->offset + 2 * j, 2);
      memcpy(&value, w->data + 4 * j, 4);
      assert_true(value == (float)half);
    }
  }
  assert_int_equal(seen, 1 + 3 * c.n_layer);
  lnl_close(e);
  free(file.data);
}

static void test_plan_is_what_is_bound(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  for (uint32_t kv = KV_AUTO; kv < KV_TYPE_COUNT; kv++) {
    c.tied = kv == KV_F16;
    c.d_head = kv == KV_Q8_0 ? 32 : 10; /* in blocks, or not */
    tiny_file file = tiny_write(&c);
    lnl_engine *e = open_tiny(&file, (lnl_plan_options){.kv = kv, .n_ctx = 50}, true);
    lnl_memory planned = lnl_get_budget(e)->planned, measured = lnl_measure(e);
    assert_int_equal(planned.weights, measured.weights);
    assert_int_equal(planned.kv, measured.kv);
    assert_int_equal(planned.slab, measured.slab);
    assert_int_equal(planned.scratch, measured.scratch);
    assert_int_equal(planned.tables, measured.tables);
    assert_int_equal(planned.total, measured.total);
    /* the cache as the formula says, each layer's part rounded to 64 bytes: blocks
     * take 34 or 18 bytes for 32 values, 56 positions and whole rows of 32 */
    uint64_t bytes = 50 * c.n_kv_head * c.d_head * (kv == KV_F16 ? 2 : 4);
    if (kv >= KV_Q8_0) bytes = 56 * c.n_kv_head * (kv == KV_Q8_0 ? 34 : 18);
    assert_int_equal(planned.kv, 2 * c.n_layer * align_up(bytes, MEM_ALIGN));
    lnl_close(e);
    free(file.data);
  }
}

static void test_decode_allocates_nothing(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_engine *e = open_tiny(&file, (lnl_plan_options){0}, true);
  sample_params params = {.temperature = 1,
                          .top_k = 40,
                          .top_p = 0.9f,
                          .min_p = 0.01f,
                          .repeat_penalty = 1.1f,
                          .repeat_last_n = 16,
                          .seed = 7};
  assert_int_equal(lnl_set_sampler(e, &params), LNL_OK);
  free(last_logits(e, &file, false));
  mem_stats before = mem_get_stats();
  uint64_t slab_high = e->slab.high_bytes;
  lnl_status status = LNL_OK;
  uint32_t steps = 0;
  while (status == LNL_OK) {
    assert_in_range(lnl_sample(e), 0, c.n_vocab - 1);
    status = lnl_eval(e);
    steps++;
  }
  assert_int_equal(status, LNL_CONTEXT_FULL);
  assert_int_equal(steps, c.n_ctx - PROMPT + 1);
  mem_stats after = mem_get_stats();
  assert_int_equal(after.alloc_calls, before.alloc_calls);
  assert_int_equal(after.grow_calls, before.grow_calls);
  assert_int_equal(after.high_water_bytes, before.high_water_bytes);
  assert_int_equal(e->slab.high_bytes, slab_high);
  /* the same engine takes a new prompt */
  free(last_logits(e, &file, true));
  lnl_close(e);
  free(file.data);
}

static void test_requests_that_are_refused_leave_the_engine_usable(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_engine *e = open_tiny(&file, (lnl_plan_options){.n_ctx = 20}, true);
  float *want = last_logits(e, &file, false);
  int32_t ids[32] = {0};
  assert_int_equal(lnl_prompt(e, ids, 0, true), LNL_EMPTY_PROMPT);
  assert_int_equal(lnl_prompt(e, ids, 21, true), LNL_PROMPT_TOO_LONG);
  assert_non_null(strstr(lnl_get_error(e)->message, "21"));
  assert_non_null(strstr(lnl_get_error(e)->message, "20"));
  ids[1] = (int32_t)c.n_vocab;
  assert_int_equal(lnl_prompt(e, ids, 2, true), LNL_BAD_TOKEN);
  ids[1] = -1;
  assert_int_equal(lnl_prompt(e, ids, 2, true), LNL_BAD_TOKEN);
  sample_params bad = {.temperature = -1, .top_p = 1, .repeat_penalty = 1};
  assert_int_equal(lnl_set_sampler(e, &bad), LNL_BAD_ARGUMENT);
  float *got = last_logits(e, &file, true);
  assert_memory_equal(got, want, c.n_vocab * sizeof *want);
  free(got);
  free(want);
  lnl_close(e);

  lnl_host host = tiny_host();
  e = lnl_open(&host);
  assert_int_equal(tiny_header(e, &file, 0), LNL_OK);
  lnl_plan_options options = {.n_ctx = c.n_ctx + 1};
  assert_int_equal(lnl_plan_for(e, &options), LNL_CONTEXT_TOO_LONG);
  options.n_ctx = c.n_ctx;
  options.budget_bytes = 1000;
  assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
  assert_false(lnl_get_budget(e)->fits);
  uint64_t allocations = mem_get_stats().alloc_calls;
  assert_int_equal(lnl_bind(e), LNL_DOES_NOT_FIT);
  assert_int_equal(mem_get_stats().alloc_calls, allocations);
  options.budget_bytes = 0;
  assert_int_equal(lnl_plan_for(e, &options), LNL_OK);
  assert_int_equal(lnl_bind(e), LNL_OK);
  lnl_close(e);
  free(file.data);
}

static lnl_status open_status(const tiny_config *c, char message[LNL_ERROR_MESSAGE_BYTES]) {
  tiny_file file = tiny_write(c);
  lnl_host host = tiny_host();
  lnl_plan_options options = {0};
  lnl_engine *e = lnl_open(&host);
  lnl_status status = tiny_header(e, &file, 0);
  if (status == LNL_OK) status = lnl_plan_for(e, &options);
  memcpy(message, lnl_get_error(e)->message, LNL_ERROR_MESSAGE_BYTES);
  lnl_close(e);
  free(file.data);
  return status;
}

static void test_models_that_are_refused_are_refused_by_name(void **state) {
  (void)state;
  char message[LNL_ERROR_MESSAGE_BYTES];
  tiny_config c = tiny_default();
  c.arch = "mamba9";
  assert_int_equal(open_status(&c, message), LNL_UNSUPPORTED_ARCHITECTURE);
  assert_non_null(strstr(message, "mamba9"));
  assert_non_null(strstr(message, "llama"));

  static const char *const needed[] = {"token_embd.weight", "output_norm.weight", "blk.1.attn_q.weight",
                                       "blk.0.ffn_down.weight", "blk.1.ffn_norm.weight"};
  for (int i = 0; i < 5; i++) {
    c = tiny_default();
    c.drop_tensor = needed[i];
    assert_int_equal(open_status(&c, message), LNL_MISSING_TENSOR);
    assert_non_null(strstr(message, needed[i]));
    c.drop_tensor = NULL;
    c.wrong_shape = needed[i];
    lnl_status status = open_status(&c, message);
    assert_int_equal(status, LNL_BAD_SHAPE);
    /* the embedding gives the vocabulary's size, so there the output matrix disagrees */
    assert_non_null(strstr(message, i == 0 ? "output.weight" : needed[i]));
  }
  static const char *const keys[] = {"general.architecture",       "llama.block_count",
                                     "llama.embedding_length",     "llama.context_length",
                                     "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon",
                                     "llama.feed_forward_length"};
  for (int i = 0; i < 7; i++) {
    c = tiny_default();
    c.drop_key = keys[i];
    assert_int_equal(open_status(&c, message), LNL_MISSING_KEY);
    assert_non_null(strstr(message, keys[i]));
  }
  c = tiny_default();
  c.drop_tensor = "output.weight"; /* optional: the embedding serves */
  assert_int_equal(open_status(&c, message), LNL_OK);
}

static void test_truncated_weights_name_the_tensor(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_engine *e = open_tiny(&file, (lnl_plan_options){0}, false);
  file.bytes -= 4000;
  assert_int_equal(tiny_load(e, &file, 0), LNL_GGUF_TRUNCATED);
  assert_non_null(strstr(lnl_get_error(e)->message, "blk.1.ffn"));
  assert_int_equal(lnl_prompt(e, prompt, PROMPT, false), LNL_BAD_STATE); /* closed for all but close */
  lnl_close(e);
  free(file.data);
}

/* Everything that a host does, once; the first failure ends it. */
static lnl_status whole_life(const tiny_file *file, uint64_t budget) {
  lnl_host host = tiny_host();
  lnl_plan_options options = {.n_ctx = 32, .budget_bytes = budget};
  lnl_engine *e = lnl_open(&host);
  if (!e) return LNL_OUT_OF_MEMORY;
  lnl_status status = tiny_open(e, file, &options, true);
  int32_t *ids = NULL;
  size_t count = 0;
  if (status == LNL_OK) status = lnl_tokenize(e, "a b <s> \xf0\x9f\x98\x80", 12, 3, &ids, &count);
  if (status == LNL_OK)
    status = lnl_prompt(e, ids, (uint32_t)count, true) < 0 ? lnl_get_error(e)->status : LNL_OK;
  mem_free(ids);
  if (status == LNL_OK) status = tiny_eval(e, file);
  if (status == LNL_OK && lnl_sample(e) < 0) status = lnl_get_error(e)->status;
  if (status == LNL_OK) {
    lnl_text text = {0};
    lnl_explain_json(e, &text);
    lnl_explain_text(e, &text);
    lnl_inspect_json(e, &text);
    lnl_steps_json(e, &text);
    if (text.failed) status = LNL_OUT_OF_MEMORY;
    text_free(&text);
  }
  lnl_close(e);
  return status;
}

static void test_each_allocation_failed_in_turn(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  assert_true(tiny_fail_each_allocation(whole_life, &file, 0) > 20);
  free(file.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_logits_do_not_depend_on_how_bytes_or_tokens_are_cut),
      cmocka_unit_test(test_the_order_of_layers),
      cmocka_unit_test(test_the_same_of_every_block_type),
      cmocka_unit_test(test_the_same_of_every_cache_type),
      cmocka_unit_test(test_quantised_caches_stay_near),
      cmocka_unit_test(test_mapped_weights_give_the_same_logits),
      cmocka_unit_test(test_what_is_infinite_in_a_cache_shows),
      cmocka_unit_test(test_half_vectors_are_widened_in_place),
#ifdef LNL_DEBUG
      cmocka_unit_test(test_the_slab_is_poisoned),
#endif
      cmocka_unit_test(test_plan_is_what_is_bound),
      cmocka_unit_test(test_decode_allocates_nothing),
      cmocka_unit_test(test_requests_that_are_refused_leave_the_engine_usable),
      cmocka_unit_test(test_models_that_are_refused_are_refused_by_name),
      cmocka_unit_test(test_truncated_weights_name_the_tensor),
      cmocka_unit_test(test_each_allocation_failed_in_turn),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
