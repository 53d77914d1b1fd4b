/* The boundary in a debug build: two engines at once, handles of engines that are
 * closed, and what is left when the last one is. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../wasm/abi.c"
#include "tiny_model.h"

static sigjmp_buf trapped;
static void on_trap(int number) {
  (void)number;
  siglongjmp(trapped, 1);
}
/* Whether the work stops at an assertion. */
static bool traps(void (*work)(lnl_engine *), lnl_engine *e) {
  struct sigaction action = {.sa_handler = on_trap}, old[2];
  sigaction(SIGILL, &action, &old[0]);
  sigaction(SIGTRAP, &action, &old[1]);
  const bool stopped = sigsetjmp(trapped, 1) != 0;
  if (!stopped) work(e);
  sigaction(SIGILL, &old[0], NULL);
  sigaction(SIGTRAP, &old[1], NULL);
  return stopped;
}

static lnl_engine *opened(const tiny_file *file) {
  lnl_engine *e = lnl_abi_open(HOST_NODE, 2 | 16, 1, 1, 0);
  assert_non_null(e);
  assert_int_equal(lnl_abi_header_begin(e, 0, (double)file->bytes), LNL_OK);
  memcpy(lnl_abi_header_reserve(e, (uint32_t)file->bytes), file->data, file->bytes);
  assert_int_equal(lnl_abi_header_push(e, (uint32_t)file->bytes), LNL_OK);
  assert_int_equal(lnl_abi_plan(e, 64, 0, 0, 0, 0, 0, 0, 0), LNL_OK);
  assert_int_equal(lnl_abi_bind(e), LNL_OK);
  while (lnl_abi_load_next(e) == LNL_NEED_BYTES) {
    const uint32_t bytes = lnl_abi_need_bytes(e);
    memcpy(lnl_abi_need_pointer(e), file->data + (size_t)lnl_abi_need_offset(e), bytes);
    assert_int_equal(lnl_abi_load_fed(e, bytes), LNL_OK);
  }
  return e;
}

/* Three tokens after a prompt. */
static void generate(lnl_engine *e, int32_t out[3]) {
  static const int32_t prompt[] = {1, 260, 261, 299, 5};
  memcpy(lnl_abi_input(e, sizeof prompt), prompt, sizeof prompt);
  assert_int_equal(lnl_abi_prompt(e, 5, 0), 0);
  for (uint32_t i = 0; i < 3; i++) {
    assert_int_equal(lnl_abi_eval(e), LNL_OK);
    assert_true(lnl_abi_number(e, NUM_CHUNK_DECODES) == (i > 0));
    out[i] = lnl_abi_sample(e);
    assert_true(out[i] >= 0);
    assert_non_null(lnl_abi_piece(e, out[i], 1));
  }
  assert_non_null(lnl_abi_text(e, TEXT_EXPLAIN_JSON, 0, 0));
}

static void close_it(lnl_engine *e) { lnl_abi_close(e); }
static void evaluate_it(lnl_engine *e) { lnl_abi_eval(e); }

static void test_two_engines_and_stale_handles(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_engine *first = opened(&file), *second = opened(&file);
  int32_t alone[3], beside[3];
  generate(first, alone);
  generate(second, beside);
  assert_memory_equal(alone, beside, sizeof alone);
  lnl_abi_close(first);
  generate(second, beside);
  assert_memory_equal(alone, beside, sizeof alone);
  assert_true(traps(close_it, first));
  assert_true(traps(evaluate_it, first));
  assert_true(traps(evaluate_it, NULL));
  lnl_abi_close(NULL);
  /* a later engine, wherever it lies, is another one */
  for (uint32_t i = 0; i < 20; i++) {
    lnl_engine *later = opened(&file);
    assert_ptr_not_equal(later, first);
    assert_true(traps(evaluate_it, first));
    assert_false(traps(close_it, later));
    assert_true(traps(close_it, later));
  }
  lnl_abi_close(second);
  assert_true(traps(evaluate_it, second));
  free(file.data);
}

static void test_the_same_place_another_generation(void **state) {
  (void)state;
  abi_engine *a = mem_alloc(sizeof *a);
  memset(a, 0, sizeof *a);
  lnl_engine *first = born(a);
  assert_ptr_equal(self(first), a);
  died(a);
  lnl_engine *second = born(a);
  assert_ptr_not_equal(second, first);
  assert_true(traps(evaluate_it, first));
  assert_ptr_equal(self(second), a);
  died(a);
  mem_free(a);
}

/* A text in pieces is the text, and none of it is left when it is told so. */
static void test_texts_in_pieces(void **state) {
  (void)state;
  enum { MOST = 1000 };
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  lnl_engine *e = opened(&file);
  const uint64_t blocks = mem_get_stats().live_blocks;
  for (uint32_t which = TEXT_EXPLAIN_JSON; which <= TEXT_PLAN_JSON; which++) {
    const char *text = lnl_abi_text(e, which, 0, 0);
    const uint32_t bytes = lnl_abi_text_bytes(e);
    char *whole = malloc(bytes);
    memcpy(whole, text, bytes);
    assert_non_null(lnl_abi_input(e, 100));
    uint32_t from = 0, got = MOST;
    for (; got == MOST; from += got) {
      const char *piece = lnl_abi_text(e, which, from, MOST);
      assert_non_null(piece);
      got = lnl_abi_text_bytes(e);
      assert_true(got <= MOST && from + got <= bytes);
      /* the memory in use is itself told */
      if (which != TEXT_MEMORY_JSON) assert_memory_equal(piece, whole + from, got);
    }
    if (which != TEXT_MEMORY_JSON) assert_int_equal(from, bytes);
    assert_null(lnl_abi_text(e, UINT32_MAX, 0, 0));
    assert_int_equal(mem_get_stats().live_blocks, blocks);
    free(whole);
  }
  lnl_abi_close(e);
  free(file.data);
}

static void *forgotten;
static void close_and_forget(lnl_engine *e) {
  forgotten = mem_alloc(10);
  lnl_abi_close(e);
}

static void test_a_block_that_is_left_is_seen(void **state) {
  (void)state;
  tiny_config c = tiny_default();
  tiny_file file = tiny_write(&c);
  void *older = mem_alloc(1); /* not the engine's */
  assert_false(traps(close_it, opened(&file)));
  assert_true(traps(close_and_forget, opened(&file)));
  mem_entry left[2];
  assert_int_equal(mem_ledger(left, 2), 2);
  assert_ptr_equal(left[0].block, forgotten);
  assert_int_equal(left[0].bytes, 10);
  mem_free(forgotten);
  mem_free(older);
  free(file.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_engines_and_stale_handles),
      cmocka_unit_test(test_the_same_place_another_generation),
      cmocka_unit_test(test_texts_in_pieces),
      cmocka_unit_test(test_a_block_that_is_left_is_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
