/* Found before wasi-libc's, whose limits are those of 32-bit addresses: its types
 * follow the compiler, these macros do not. */
#ifndef LNL_WIDE_STDINT_H
#define LNL_WIDE_STDINT_H

#include_next <stdint.h>

#undef SIZE_MAX
#undef UINTPTR_MAX
#undef INTPTR_MAX
#undef INTPTR_MIN
#undef PTRDIFF_MAX
#undef PTRDIFF_MIN
#define SIZE_MAX    __SIZE_MAX__
#define UINTPTR_MAX __UINTPTR_MAX__
#define INTPTR_MAX  __INTPTR_MAX__
#define INTPTR_MIN  (-INTPTR_MAX - 1)
#define PTRDIFF_MAX __PTRDIFF_MAX__
#define PTRDIFF_MIN (-PTRDIFF_MAX - 1)

#endif
