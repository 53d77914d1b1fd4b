/* Text without printf: a small formatter and a growing text buffer with JSON
 * helpers. The wasm build links neither printf nor strtod, so that it needs
 * no imports. Verbs: %s %.*s %c %d %u %x %ld %lu %lld %llu %llx %zu %zx %g %f %%,
 * with the flags - 0 + and width and precision (a number or *). %g prints
 * integers below 2^53 in full, else up to 9 significant digits, fewer where they
 * read back as the same float, without trailing zeros; %.Ng: N digits; %.Nf: N
 * places (at most 9); ties round away from zero. "nan" and "inf" are no JSON.
 * Only text_* allocate, through mem.h. */
#ifndef LNL_FMT_H
#define LNL_FMT_H

#include <stdarg.h>

#include "base.h"

/* Formats into dst[0, cap), always NUL-terminated when cap > 0, cut between
 * UTF-8 characters if too long. Returns the bytes written without the NUL. */
size_t fmt_write(char *dst, size_t cap, const char *format, va_list args);
size_t fmt_print(char *dst, size_t cap, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Bytes (1 to 4) of the valid UTF-8 character that text[0, bytes) begins with,
 * 0 when it begins with none. */
size_t utf8_char_bytes(const char *text, size_t bytes);

/* A growing UTF-8 text. Zero-initialise; release with text_free. After a
 * failed allocation `failed` stays set and further writes do nothing, so a
 * writer checks once at the end. With `most` it holds a piece of what is written,
 * in a block that is taken once; characters may be cut at its ends. */
typedef struct lnl_text {
  char *data; /* owned; NUL-terminated once anything was written */
  size_t bytes;
  size_t cap;
  size_t skip; /* so many bytes that are yet to be written are left out */
  size_t most; /* of those after them so many are kept; 0: all */
  bool failed;
} lnl_text;

void text_addf(lnl_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_add(lnl_text *text, const char *bytes, size_t count);
/* A quoted JSON string. Invalid UTF-8 becomes U+FFFD, byte by byte. */
void text_json_string(lnl_text *text, lnl_span span);
/* Keeps the memory, forgets the text. */
void text_clear(lnl_text *text);
void text_free(lnl_text *text);

#endif
