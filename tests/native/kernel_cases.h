/* What must hold of every form and kernel, written once: run natively under
 * the sanitizers (test_forms.c, test_kernels.c) and inside a real engine
 * (wasm/kernel_test.c). The lists come from list.inc, so that a new form or
 * kernel cannot do without its case. */
#ifndef LNL_KERNEL_CASES_H
#define LNL_KERNEL_CASES_H

#include "src/forms/form.h"
#include "src/kernels/kernels.h"

typedef struct kernel_case {
  const char *name;
  /* LNL_OK, or another status and why in *error. */
  lnl_status (*run)(lnl_error *error);
} kernel_case;

const kernel_case *form_cases(uint32_t *count);
const kernel_case *kernel_cases(uint32_t *count);

/* Memory for a case. Reading or writing beyond the end of a block is caught:
 * natively by AddressSanitizer, in wasm for the block last asked for with
 * `guard` (it ends where memory ends; one such block at a time). The first `offset` bytes of a block are
 * not part of it, so that its start is as unaligned as wanted. Provided by the
 * program that runs the cases; it never fails. */
void *case_alloc(size_t bytes, size_t offset, bool guard);
void case_free_all(void);

/* --- shared by the cases ----------------------------------------------------- */
#define CHECK(condition, ...)                                                                                \
  do {                                                                                                       \
    if (!(condition)) return error_set(error, LNL_INTERNAL, __VA_ARGS__);                                    \
  } while (0)

/* Unit roundoff of float, and the usual bound of n roundings one after another:
 * |product of (1 + e_i) - 1| <= n u / (1 - n u). */
#define CASE_U 0x1p-24
static inline double case_gamma(double n) { return n * CASE_U / (1 - n * CASE_U); }

/* Deterministic pseudo-random numbers. */
uint32_t case_random(void);
float case_uniform(float low, float high);
void case_seed(uint32_t seed);

#endif
