/* The kernels natively: the shared cases under the sanitizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "case_memory.h"

int main(void) {
  uint32_t count;
  const kernel_case *cases = kernel_cases(&count);
  struct CMUnitTest tests[64];
  return run_cases(tests, 0, cases, count);
}
