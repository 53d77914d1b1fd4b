/* The native side of kernel_cases.h: memory from malloc, so that the sanitizer
 * sees each block's end, and cmocka as the runner. Included once a program. */
#ifndef LNL_CASE_MEMORY_H
#define LNL_CASE_MEMORY_H

#include <stdlib.h>

#include "kernel_cases.h"
#include "src/vec.h"

enum { CASE_BLOCKS = 1024 };
static void *case_blocks[CASE_BLOCKS];
static uint32_t case_block_count;

void *case_alloc(size_t bytes, size_t offset, bool guard) {
  (void)guard;
  assert_true(case_block_count < CASE_BLOCKS);
  uint8_t *block = malloc(bytes + offset);
  assert_non_null(block);
  case_blocks[case_block_count++] = block;
  return block + offset;
}
void case_free_all(void) {
  while (case_block_count > 0) free(case_blocks[--case_block_count]);
}

static void run_case(void **state) {
  const kernel_case *one = *state;
#if LNL_VEC == 2 /* every mode of the relaxed build, whatever this processor would choose */
  enum { MODES = 3 };
#else
  enum { MODES = 1 };
#endif
  for (int mode = 0; mode < MODES; mode++) {
#if LNL_VEC == 2
    vec_native_dot_i32_is_fast = mode > 0;
    vec_native_dot_takes_u8 = mode > 1;
#endif
    lnl_error error = {0};
    const lnl_status status = one->run(&error);
    case_free_all();
    if (status != LNL_OK) fail_msg("%s", error.message);
  }
}

/* Appends the cases to tests[0, first) and runs all. */
static int run_cases(struct CMUnitTest *tests, uint32_t first, const kernel_case *cases, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    tests[first + i] = (struct CMUnitTest){cases[i].name, run_case, NULL, NULL, (void *)(uintptr_t)&cases[i]};
  return _cmocka_run_group_tests("kernels", tests, first + count, NULL, NULL);
}

#endif
