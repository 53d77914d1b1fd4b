/* Status names and texts, all from status.inc, and the error record. */
#include "base.h"
#include "fmt.h"

#include <string.h>

typedef struct status_row {
  lnl_status status;
  const char *name, *text, *remedy;
} status_row;

static const status_row status_rows[] = {
#define LNL_STATUS(name, value, text, remedy) {LNL_##name, #name, text, remedy},
#include "status.inc"
#undef LNL_STATUS
};

static const status_row *status_find(lnl_status status) {
  static const status_row unknown = {LNL_INTERNAL, "UNKNOWN", "a status that is not in the table", ""};
  for (size_t i = 0; i < sizeof status_rows / sizeof status_rows[0]; i++) {
    if (status_rows[i].status == status) return &status_rows[i];
  }
  return &unknown;
}

const char *lnl_status_name(lnl_status status) { return status_find(status)->name; }
const char *lnl_status_text(lnl_status status) { return status_find(status)->text; }
const char *lnl_status_remedy(lnl_status status) { return status_find(status)->remedy; }

lnl_status error_set(lnl_error *error, lnl_status status, const char *format, ...) {
  if (!error) return status;
  error->status = status;
  va_list args;
  va_start(args, format);
  size_t bytes = fmt_write(error->message, sizeof error->message, format, args);
  va_end(args);
  /* Names out of a hostile file may hold anything: a message stays one line
   * of valid UTF-8 whatever they hold. */
  for (size_t i = 0; i < bytes;) {
    size_t count = utf8_char_bytes(error->message + i, bytes - i);
    uint8_t c = (uint8_t)error->message[i];
    if (count == 0 || c < 0x20 || c == 0x7f) {
      error->message[i] = '?';
      count = 1;
    }
    i += count;
  }
  return status;
}

bool span_equals(lnl_span span, const char *c_string) {
  size_t bytes = strlen(c_string);
  return span.bytes == bytes && (bytes == 0 || memcmp(span.data, c_string, bytes) == 0);
}
