/* A formatter for the few verbs that the core needs, over one of two sinks:
 * a fixed buffer that cuts, or a growing text. */
#include "fmt.h"
#include "mem.h"

#include <string.h>

size_t utf8_char_bytes(const char *text, size_t bytes) {
  const uint8_t *s = (const uint8_t *)text;
  if (bytes == 0) return 0;
  if (s[0] < 0x80) return 1;
  size_t count = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4 || count > bytes) return 0;
  for (size_t i = 1; i < count; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
  }
  /* overlong forms, surrogates, and what lies beyond U+10FFFF */
  if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
  if (s[0] == 0xed && s[1] > 0x9f) return 0;
  if (s[0] == 0xf0 && s[1] < 0x90) return 0;
  if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
  return count;
}

/* --- sinks ---------------------------------------------------------------- */

typedef struct sink {
  lnl_text *text; /* or NULL: the buffer below */
  char *dst;
  size_t cap, bytes;
  bool full; /* something was cut; no room is left, so nothing more follows */
} sink;

static void sink_add(sink *out, const char *bytes, size_t count) {
  if (out->text) {
    text_add(out->text, bytes, count);
    return;
  }
  size_t room = out->cap > 0 ? out->cap - 1 - out->bytes : 0;
  if (count > room) {
    out->full = true;
    count = room;
  }
  if (count == 0) return;
  memcpy(out->dst + out->bytes, bytes, count);
  out->bytes += count;
}

static void sink_pad(sink *out, char c, size_t count) {
  char run[16];
  memset(run, c, sizeof run);
  while (count > 0) {
    size_t part = count < sizeof run ? count : sizeof run;
    sink_add(out, run, part);
    count -= part;
  }
}

/* --- numbers ---------------------------------------------------------------- */

enum { FMT_NUMBER_BYTES = 352 }; /* the longest: %.9f of the largest double */

/* Writes value in the given base, most significant digit first. */
static size_t format_u64(char *dst, uint64_t value, unsigned base, bool upper) {
  char reversed[24];
  size_t count = 0;
  do {
    unsigned digit = (unsigned)(value % base);
    reversed[count++] = (char)(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
    value /= base;
  } while (value > 0);
  for (size_t i = 0; i < count; i++) dst[i] = reversed[count - 1 - i];
  return count;
}

/* value * 10^power, |power| up to some 350: one multiplication or division by
 * an exact power of ten at a time, so a few units in the last place at most. */
static double scale_10(double value, int power) {
  static const double table[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  while (power > 22) value *= 1e22, power -= 22;
  while (power < -22) value /= 1e22, power += 22;
  return power >= 0 ? value * table[power] : value / table[-power];
}

/* The decimal digits of value (finite, > 0) rounded to `digits` (1 to 17)
 * places: an integer below 10^digits, and the exponent of its first digit. */
static uint64_t decimal_digits(double value, int digits, int *exponent) {
  int e = 0;
  double v = value;
  while (v >= 1e22) v /= 1e22, e += 22;
  while (v < 1e-22) v *= 1e22, e -= 22;
  while (v >= 10) v /= 10, e++;
  while (v < 1) v *= 10, e--;
  /* v only finds the exponent; the digits come from value, scaled once */
  uint64_t limit = 1;
  for (int i = 0; i < digits; i++) limit *= 10;
  uint64_t n = (uint64_t)(scale_10(value, digits - 1 - e) + 0.5);
  if (n >= limit) {
    e++;
    n = (uint64_t)(scale_10(value, digits - 1 - e) + 0.5);
  } else if (n < limit / 10) {
    e--;
    n = (uint64_t)(scale_10(value, digits - 1 - e) + 0.5);
    if (n >= limit) n = limit - 1;
  }
  *exponent = e;
  return n;
}

static size_t format_special(char *dst, double value) {
  const char *name = value != value ? "nan" : value > 0 ? "inf" : "-inf";
  size_t count = strlen(name);
  memcpy(dst, name, count);
  return count;
}

/* %g: at most `digits` significant digits without trailing zeros. A value that
 * is a float gets the fewest digits that read back as that float (0.1f is 0.1).
 * whole: an integer below 2^53 is printed in full. */
static size_t format_g(char *dst, double value, int digits, bool whole) {
  if (value != value || value - value != 0) return format_special(dst, value);
  size_t at = 0;
  if (value < 0 || (value == 0 && __builtin_signbit(value))) {
    dst[at++] = '-';
    value = -value;
  }
  if (value == 0) {
    dst[at++] = '0';
    return at;
  }
  if (whole && value < 9007199254740992.0 && (double)(uint64_t)value == value) {
    return at + format_u64(dst + at, (uint64_t)value, 10, false);
  }
  int exponent = 0;
  uint64_t n = 0;
  bool is_float = value <= 3.4028234663852886e38 && (double)(float)value == value;
  for (int try = is_float ? 1 : digits; try <= digits; try++) {
    n = decimal_digits(value, try, &exponent);
    if ((float)scale_10((double)n, exponent - try + 1) == (float)value) {
      digits = try;
      break;
    }
  }
  while (n % 10 == 0) n /= 10, digits--;
  char text[24];
  int count = (int)format_u64(text, n, 10, false);
  /* count == digits unless rounding shortened it: place by count */
  if (exponent < -5 || exponent >= 16) {
    dst[at++] = text[0];
    if (count > 1) {
      dst[at++] = '.';
      memcpy(dst + at, text + 1, (size_t)count - 1);
      at += (size_t)count - 1;
    }
    dst[at++] = 'e';
    dst[at++] = exponent < 0 ? '-' : '+';
    return at + format_u64(dst + at, (uint64_t)(exponent < 0 ? -exponent : exponent), 10, false);
  }
  if (exponent < 0) {
    dst[at++] = '0';
    dst[at++] = '.';
    for (int i = -1; i > exponent; i--) dst[at++] = '0';
    memcpy(dst + at, text, (size_t)count);
    return at + (size_t)count;
  }
  for (int i = 0; i < count || i <= exponent; i++) {
    if (i == exponent + 1) dst[at++] = '.';
    dst[at++] = i < count ? text[i] : '0';
  }
  return at;
}

/* %f: `places` digits after the point. Digits beyond the 17th are zeros. */
static size_t format_f(char *dst, double value, int places) {
  if (value != value || value - value != 0) return format_special(dst, value);
  size_t at = 0;
  if (value < 0) {
    dst[at++] = '-';
    value = -value;
  }
  char text[24];
  int count = 0, exponent = 0;
  if (value > 0) {
    uint64_t n = 0;
    (void)decimal_digits(value, 17, &exponent);
    int digits = exponent + 1 + places; /* significant digits down to the last place */
    if (digits > 0) {
      n = decimal_digits(value, digits > 17 ? 17 : digits, &exponent);
    } else if (digits == 0) {
      n = scale_10(value, places) >= 0.5;
      exponent = -places;
    }
    if (n > 0) count = (int)format_u64(text, n, 10, false);
  }
  if (count == 0) exponent = -1;
  if (exponent < 0) dst[at++] = '0';
  for (int place = exponent; place >= -places; place--) {
    int i = exponent - place;
    if (place == -1 || (i == 0 && place < -1)) {
      dst[at++] = '.';
      for (int zero = -1; zero > place; zero--) dst[at++] = '0';
    }
    dst[at++] = i < count ? text[i] : '0';
  }
  /* a value below the last place prints as zeros */
  if (exponent < -places && places > 0) {
    dst[at++] = '.';
    for (int i = 0; i < places; i++) dst[at++] = '0';
  }
  return at;
}

/* --- verbs ------------------------------------------------------------------ */

typedef struct verb {
  bool left, zero, plus;
  int width, precision; /* -1: not given */
  int longs;            /* l: 1, ll: 2, z: 3 */
} verb;

static void add_padded(sink *out, const verb *v, const char *bytes, size_t count, bool number) {
  size_t pad = v->width > 0 && (size_t)v->width > count ? (size_t)v->width - count : 0;
  if (!v->left && v->zero && number) {
    if (count > 0 && (bytes[0] == '-' || bytes[0] == '+')) {
      sink_add(out, bytes, 1);
      bytes++, count--;
    }
    sink_pad(out, '0', pad);
  } else if (!v->left) {
    sink_pad(out, ' ', pad);
  }
  sink_add(out, bytes, count);
  if (v->left) sink_pad(out, ' ', pad);
}

static int parse_number(const char **format, va_list *args) {
  if (**format == '*') {
    (*format)++;
    return va_arg(*args, int);
  }
  int value = 0;
  while (**format >= '0' && **format <= '9' && value < 100000) value = value * 10 + *(*format)++ - '0';
  return value;
}

/* One pass over format. args is passed by address, as a va_list may be an array. */
static void format_all(sink *out, const char *format, va_list *args) {
  while (*format) {
    const char *percent = strchr(format, '%');
    size_t plain = percent ? (size_t)(percent - format) : strlen(format);
    sink_add(out, format, plain);
    format += plain;
    if (!percent) break;
    format++;
    verb v = {.precision = -1};
    for (;; format++) {
      if (*format == '-')
        v.left = true;
      else if (*format == '0')
        v.zero = true;
      else if (*format == '+')
        v.plus = true;
      else
        break;
    }
    v.width = parse_number(&format, args);
    if (v.width < 0) v.left = true, v.width = -v.width;
    if (*format == '.') {
      format++;
      v.precision = parse_number(&format, args);
    }
    while (*format == 'l') v.longs++, format++;
    if (*format == 'z') v.longs = 3, format++;
    char number[FMT_NUMBER_BYTES];
    size_t count = 0;
    char conversion = *format++;
    switch (conversion) {
    case '%':
      sink_add(out, "%", 1);
      break;
    case 'c':
      number[0] = (char)va_arg(*args, int);
      add_padded(out, &v, number, 1, false);
      break;
    case 's': {
      const char *string = va_arg(*args, const char *);
      if (!string) string = "(null)", v.precision = -1;
      if (v.precision >= 0) {
        const char *end = v.precision > 0 ? memchr(string, 0, (size_t)v.precision) : string;
        count = end ? (size_t)(end - string) : (size_t)v.precision;
      } else {
        count = strlen(string);
      }
      add_padded(out, &v, string, count, false);
      break;
    }
    case 'd':
    case 'i': {
      int64_t value = v.longs == 0   ? va_arg(*args, int)
                      : v.longs == 1 ? va_arg(*args, long)
                      : v.longs == 2 ? va_arg(*args, long long)
                                     : (int64_t)(intptr_t)va_arg(*args, size_t);
      if (value < 0)
        number[count++] = '-';
      else if (v.plus)
        number[count++] = '+';
      count += format_u64(number + count, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10, false);
      add_padded(out, &v, number, count, true);
      break;
    }
    case 'u':
    case 'x':
    case 'X': {
      uint64_t value = v.longs == 0   ? va_arg(*args, unsigned)
                       : v.longs == 1 ? va_arg(*args, unsigned long)
                       : v.longs == 2 ? va_arg(*args, unsigned long long)
                                      : va_arg(*args, size_t);
      count = format_u64(number, value, conversion == 'u' ? 10 : 16, conversion == 'X');
      add_padded(out, &v, number, count, true);
      break;
    }
    case 'g':
    case 'f': {
      double value = va_arg(*args, double);
      if (v.plus && value >= 0) number[count++] = '+';
      if (conversion == 'g') {
        int digits = v.precision < 0 ? 9 : v.precision == 0 ? 1 : v.precision > 17 ? 17 : v.precision;
        count += format_g(number + count, value, digits, v.precision < 0);
      } else {
        int places = v.precision < 0 ? 6 : v.precision > 9 ? 9 : v.precision;
        count += format_f(number + count, value, places);
      }
      add_padded(out, &v, number, count, true);
      break;
    }
    default:
      LNL_ASSERT(!"a verb that fmt.h does not list");
    }
  }
}

size_t fmt_write(char *dst, size_t cap, const char *format, va_list args) {
  sink out = {.dst = dst, .cap = cap};
  va_list copy;
  va_copy(copy, args);
  format_all(&out, format, &copy);
  va_end(copy);
  if (cap == 0) return 0;
  if (out.full) {
    /* step back to the start of the last character, and drop it if it was cut */
    size_t start = out.bytes;
    while (start > 0 && out.bytes - start < 3 && ((uint8_t)dst[start - 1] & 0xc0) == 0x80) start--;
    if (start > 0 && (uint8_t)dst[start - 1] >= 0xc0) {
      start--;
      if (utf8_char_bytes(dst + start, out.bytes - start) == 0) out.bytes = start;
    }
  }
  dst[out.bytes] = 0;
  return out.bytes;
}

size_t fmt_print(char *dst, size_t cap, const char *format, ...) {
  va_list args;
  va_start(args, format);
  size_t bytes = fmt_write(dst, cap, format, args);
  va_end(args);
  return bytes;
}

/* --- growing text ------------------------------------------------------------- */

void text_add(lnl_text *text, const char *bytes, size_t count) {
  if (text->failed) return;
  const size_t left_out = count < text->skip ? count : text->skip;
  text->skip -= left_out;
  bytes += left_out;
  count -= left_out;
  if (text->most && count > text->most - text->bytes) count = text->most - text->bytes;
  if (count >= SIZE_MAX - text->bytes) {
    text->failed = true;
    return;
  }
  size_t needed = text->bytes + count + 1;
  if (needed > text->cap) {
    size_t cap = text->most ? text->most + 1 : text->cap < SIZE_MAX / 2 ? text->cap * 2 : SIZE_MAX;
    if (cap < 256) cap = 256;
    if (cap < needed) cap = needed;
    char *data = mem_resize(text->data, cap);
    if (!data) {
      text->failed = true;
      return;
    }
    text->data = data;
    text->cap = cap;
  }
  if (count > 0) memcpy(text->data + text->bytes, bytes, count);
  text->bytes += count;
  text->data[text->bytes] = 0;
}

void text_addf(lnl_text *text, const char *format, ...) {
  sink out = {.text = text};
  va_list args;
  va_start(args, format);
  va_list copy;
  va_copy(copy, args);
  format_all(&out, format, &copy);
  va_end(copy);
  va_end(args);
}

void text_json_string(lnl_text *text, lnl_span span) {
  const char *s = span.data ? (const char *)span.data : "";
  text_add(text, "\"", 1);
  size_t run = 0; /* start of what needs no escape */
  for (size_t i = 0; i < span.bytes;) {
    uint8_t c = (uint8_t)s[i];
    size_t count = utf8_char_bytes(s + i, span.bytes - i);
    if (count > 0 && c >= 0x20 && c != '"' && c != '\\') {
      i += count;
      continue;
    }
    text_add(text, s + run, i - run);
    const char *escape = c == '"'    ? "\\\""
                         : c == '\\' ? "\\\\"
                         : c == '\n' ? "\\n"
                         : c == '\r' ? "\\r"
                         : c == '\t' ? "\\t"
                                     : NULL;
    if (escape)
      text_add(text, escape, 2);
    else if (count == 0)
      text_add(text, "\xef\xbf\xbd", 3);
    else
      text_addf(text, "\\u%04x", (unsigned)c);
    run = ++i;
  }
  text_add(text, s + run, span.bytes - run);
  text_add(text, "\"", 1);
}

void text_clear(lnl_text *text) {
  text->bytes = 0;
  text->failed = false;
  if (text->data) text->data[0] = 0;
}

void text_free(lnl_text *text) {
  mem_free(text->data);
  *text = (lnl_text){0};
}
