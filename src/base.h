/* Types, statuses, checked size arithmetic and assertions that every other
 * file may use. Nothing here allocates, prints or reads the environment. */
#ifndef LNL_BASE_H
#define LNL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lnl_status {
#define LNL_STATUS(name, value, text, remedy) LNL_##name = (value),
#include "status.inc"
#undef LNL_STATUS
} lnl_status;

/* "UNSUPPORTED_TYPE" for LNL_UNSUPPORTED_TYPE; static storage, never NULL. */
const char *lnl_status_name(lnl_status status);
/* One sentence on what the status means; static storage, never NULL. */
const char *lnl_status_text(lnl_status status);
/* What the user can do about it; static storage, may be "". */
const char *lnl_status_remedy(lnl_status status);

/* The last failure of an object: status and a message that names the thing
 * at fault (key, tensor, number). Filled by error_set, read by the host. */
enum { LNL_ERROR_MESSAGE_BYTES = 1024 };
typedef struct lnl_error {
  lnl_status status;
  char message[LNL_ERROR_MESSAGE_BYTES]; /* UTF-8, NUL-terminated, truncated if need be */
} lnl_error;

/* Stores status and the formatted message in *error (may be NULL) and returns
 * status, so that a failing function can `return error_set(...)`.
 * Verbs: those of fmt.h. Does not allocate. */
lnl_status error_set(lnl_error *error, lnl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Evaluates expr once; returns from the calling function on a failure (< 0). */
#define LNL_TRY(expr)                                                                                        \
  do {                                                                                                       \
    lnl_status lnl_try_ = (expr);                                                                            \
    if (lnl_try_ < 0) return lnl_try_;                                                                       \
  } while (0)

/* Programmer errors only (a bad file is a status). On in release builds:
 * a failed assertion stops the instance at the place of the fault. */
#define LNL_ASSERT(condition)                                                                                \
  do {                                                                                                       \
    if (!(condition)) __builtin_trap();                                                                      \
  } while (0)

/* a * b and a + b into *out; false on overflow, *out then unspecified. */
static inline bool u64_mul(uint64_t a, uint64_t b, uint64_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}
static inline bool u64_add(uint64_t a, uint64_t b, uint64_t *out) {
  return !__builtin_add_overflow(a, b, out);
}

/* Rounds n up to a multiple of align (a power of two). n must leave room. */
static inline uint64_t align_up(uint64_t n, uint64_t align) { return (n + align - 1) & ~(align - 1); }

static inline uint32_t u32_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t u32_max(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint64_t u64_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t u64_max(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* A borrowed run of bytes; not NUL-terminated. */
typedef struct lnl_span {
  const uint8_t *data;
  size_t bytes;
} lnl_span;

bool span_equals(lnl_span span, const char *c_string);

#endif
