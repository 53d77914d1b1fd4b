/* The formatter against the C library's, the text buffer, statuses, names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base.h"
#include "src/fmt.h"
#include "src/host.h"
#include "src/mem.h"

__attribute__((format(printf, 3, 4))) static size_t write_to(char *dst, size_t cap, const char *format, ...) {
  va_list args;
  va_start(args, format);
  size_t count = fmt_write(dst, cap, format, args);
  va_end(args);
  return count;
}

/* Ours equals the C library's, for verbs on which the two agree. */
#define SAME(...)                                                                                            \
  do {                                                                                                       \
    char ours[400], theirs[400];                                                                             \
    size_t count = write_to(ours, sizeof ours, __VA_ARGS__);                                                 \
    snprintf(theirs, sizeof theirs, __VA_ARGS__);                                                            \
    assert_string_equal(ours, theirs);                                                                       \
    assert_int_equal(count, strlen(theirs));                                                                 \
  } while (0)

static void integers_and_strings(void **state) {
  (void)state;
  static const long long values[] = {0,       1,         -1,        9,         10,       255,
                                     -100000, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    SAME("%lld|%llu|%llx|%llX", values[i], (unsigned long long)values[i], (unsigned long long)values[i],
         (unsigned long long)values[i]);
    SAME("%d %u %x %i", (int)values[i], (unsigned)values[i], (unsigned)values[i], (int)values[i]);
    SAME("%ld %lu %zu %zx", (long)values[i], (unsigned long)values[i], (size_t)values[i], (size_t)values[i]);
    SAME("[%8d] [%-8d] [%08d] [%+d] [%1d]", (int)values[i], (int)values[i], (int)values[i], (int)values[i],
         (int)values[i]);
    SAME("[%*d] [%-*d] [%*d]", 12, (int)values[i], 12, (int)values[i], -12, (int)values[i]);
  }
  SAME("%02x%02x", 5u, 0xabu);
  SAME("plain %% percent");
  SAME("%s%c%s", "a", 'b', "");
  SAME("[%5s] [%-5s] [%.2s] [%7.3s] [%.0s]", "abc", "abc", "abc", "abcdef", "abc");
  char unterminated[3] = {'x', 'y', 'z'};
  SAME("%.*s", 3, unterminated);
  SAME("%.*s", 10, "ends\0here");
  SAME("%s", "");
}

static void expect_text(const char *expected, const char *got) { assert_string_equal(got, expected); }

static void general_numbers(void **state) {
  (void)state;
  char text[400];
  static const struct {
    double value;
    const char *text;
  } cases[] = {
      {0, "0"},
      {-0.0, "-0"},
      {1, "1"},
      {-1.5, "-1.5"},
      {10, "10"},
      {123456789, "123456789"},
      {1234567890, "1234567890"},
      {9007199254740991.0, "9007199254740991"},
      {-4294967297.0, "-4294967297"},
      {1234567890.5, "1234567890"},
      {123456789012.5, "123456789000"},
      {100000, "100000"},
      {0.1, "0.1"},
      {(double)0.1f, "0.1"}, /* a float reads as the float it is */
      {(double)0.7f, "0.7"},
      {(double)1e-5f, "0.00001"},
      {1.0 / 3, "0.333333333"},
      {(double)(1.0f / 3), "0.33333334"},
      {2.0 / 3, "0.666666667"},
      {(double)16777216.0f, "16777216"},
      {(double)3.4028234663852886e38f, "3.4028235e+38"},
      {(double)1.1754944e-38f, "1.1754944e-38"},
      {(double)1e-45f, "1e-45"},
      {1e100, "1e+100"},
      {1e-100, "1e-100"},
      {1.7976931348623157e308, "1.79769313e+308"},
      {5e-324, "4.94065646e-324"},
      {9.9999999999, "10"},
      {99999.99999999, "100000"},
      {999999999.6, "1000000000"},
      {12.7415, "12.7415"},
      {HUGE_VAL, "inf"},
      {-HUGE_VAL, "-inf"},
      {(double)NAN, "nan"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_to(text, sizeof text, "%g", cases[i].value);
    expect_text(cases[i].text, text);
  }
  SAME("%.3g %.3g %.3g", 0.1234, 5.0, 12.37);
  write_to(text, sizeof text, "[%8g] [%-8g] [%+g]", 1.5, 1.5, 1.5);
  expect_text("[     1.5] [1.5     ] [+1.5]", text);
}

static void numbers_read_back(void **state) {
  (void)state;
  uint64_t seed = 3;
  for (uint32_t i = 0; i < 200000; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    uint32_t bits = (uint32_t)(seed >> 32);
    float value;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    char text[64];
    write_to(text, sizeof text, "%g", (double)value);
    /* every float comes back as itself */
    float back = strtof(text, NULL);
    if (memcmp(&back, &value, 4) != 0) fail_msg("%a prints as %s", (double)value, text);
    double wide;
    memcpy(&wide, &seed, sizeof wide);
    if (!isfinite(wide) || fabs(wide) < 1e-300) continue;
    write_to(text, sizeof text, "%g", wide);
    double read = strtod(text, NULL);
    if (!(fabs(read - wide) <= 6e-9 * fabs(wide))) fail_msg("%a prints as %s", wide, text);
  }
}

static void fixed_numbers(void **state) {
  (void)state;
  static const double values[] = {0,        1,       -1.27,   0.5,     9.996,   99.995001, 1e-3,
                                  0.0049,   0.0051,  0.00001, 123.4,   1e9 / 3, 1234.5678, 65536,
                                  1e15 + 2, 7.0 / 9, 0.06,    0.95001, 999.9996};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    SAME("%.2f|%.1f|%.3f|%.6f|%f", values[i], values[i], values[i], values[i], values[i]);
    SAME("[%10.2f] [%-10.1f] [%08.3f]", values[i], values[i], values[i]);
  }
  SAME("%.0f %.0f %.0f %.0f", 0.2, 0.7, 2.6, 1234567.9);
  SAME("%.2f", 1e22);
  char text[400]; /* digits beyond the 17th are zeros, so only the start agrees */
  assert_int_equal(write_to(text, sizeof text, "%.9f", -1.7976931348623157e308), 1 + 309 + 10);
  assert_memory_equal(text, "-17976931348623", 15);
  write_to(text, sizeof text, "%.2f %.1f", (double)NAN, -HUGE_VAL);
  expect_text("nan -inf", text);
  uint64_t seed = 11;
  for (uint32_t i = 0; i < 100000; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    double value = (double)(int64_t)seed / (double)(1ull << (20 + seed % 40));
    char ours[64], theirs[64];
    write_to(ours, sizeof ours, "%.3f", value);
    snprintf(theirs, sizeof theirs, "%.3f", value);
    /* an exact tie may fall to the other side */
    if (strcmp(ours, theirs) != 0 && fabs(strtod(ours, NULL) - value) > 0.00050001 + 1e-15 * fabs(value)) {
      fail_msg("%a: %s, not %s", value, ours, theirs);
    }
  }
}

static void cuts_between_characters(void **state) {
  (void)state;
  static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1, 2, 3, 4 and 1 bytes */
  static const size_t fits[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
  for (size_t room = 0; room < 13; room++) {
    char dst[16];
    memset(dst, 'X', sizeof dst);
    assert_int_equal(write_to(dst, room + 1, "%s", text), fits[room]);
    assert_memory_equal(dst, text, fits[room]);
    assert_int_equal(dst[fits[room]], 0);
    assert_int_equal(dst[room + 1], 'X'); /* nothing beyond */
    /* nothing follows what was cut, even if it would fit */
    if (room < 11) assert_int_equal(write_to(dst, room + 1, "%s%s", text, "!"), fits[room]);
  }
  char untouched = 'X';
  assert_int_equal(write_to(&untouched, 0, "abc"), 0);
  assert_int_equal(untouched, 'X');
  /* bytes that are no UTF-8 are cut anywhere, but never beyond one character */
  char dst[8];
  assert_int_equal(write_to(dst, 5, "%s", "\x80\x80\x80\x80\x80\x80"), 4);
}

static void utf8_characters(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t count, expected;
  } cases[] = {
      {"", 0, 0},
      {"a", 1, 1},
      {"\xc3\xa9", 2, 2},
      {"\xc3", 1, 0},
      {"\xc3(", 2, 0},
      {"\xe2\x82\xac", 3, 3},
      {"\xe2\x82", 2, 0},
      {"\xf0\x9f\x98\x80", 4, 4},
      {"\xf0\x9f\x98", 3, 0},
      {"\xc0\x80", 2, 0}, /* overlong */
      {"\xc1\xbf", 2, 0},
      {"\xe0\x9f\xbf", 3, 0},
      {"\xe0\xa0\x80", 3, 3},
      {"\xed\xa0\x80", 3, 0}, /* surrogate */
      {"\xed\x9f\xbf", 3, 3},
      {"\xf0\x8f\xbf\xbf", 4, 0},
      {"\xf4\x8f\xbf\xbf", 4, 4},
      {"\xf4\x90\x80\x80", 4, 0}, /* beyond U+10FFFF */
      {"\xf5\x80\x80\x80", 4, 0},
      {"\x80", 1, 0},
      {"\xff", 1, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(utf8_char_bytes(cases[i].bytes, cases[i].count), cases[i].expected);
  }
}

static void text_grows_and_fails_quietly(void **state) {
  (void)state;
  lnl_text text = {0};
  for (int i = 0; i < 1000; i++) text_addf(&text, "%d,", i);
  assert_false(text.failed);
  assert_int_equal(text.bytes, 10 * 2 + 90 * 3 + 900 * 4);
  assert_int_equal(strlen(text.data), text.bytes);
  assert_memory_equal(text.data + text.bytes - 8, "998,999,", 8);
  size_t cap = text.cap;
  text_clear(&text);
  assert_int_equal(text.bytes, 0);
  assert_string_equal(text.data, "");
  text_add(&text, "ab\0c", 4);
  assert_int_equal(text.bytes, 4);
  assert_memory_equal(text.data, "ab\0c", 5);
  assert_int_equal(text.cap, cap);
  text_free(&text);
  assert_null(text.data);

  uint64_t nth = 1;
  for (bool failed = true; failed; nth++) {
    mem_fail_at(nth);
    for (int i = 0; i < 300; i++) text_addf(&text, "%s %d;", "item", i);
    mem_fail_at(0);
    failed = text.failed;
    if (failed) text_add(&text, "more", 4); /* does nothing */
    text_free(&text);
    assert_int_equal(mem_get_stats().live_blocks, 0);
  }
  assert_true(nth > 4);
}

/* Pieces of any size, side by side, are the whole; each takes one block. */
static void text_in_pieces(void **state) {
  (void)state;
  lnl_text whole = {0};
  for (int i = 0; i < 400; i++) text_addf(&whole, "%d \xc3\xa9 %s;", i, i % 3 ? "" : "item");
  for (size_t most = 1; most < whole.bytes + 3; most += most < 40 ? 1 : 97) {
    size_t from = 0;
    for (bool more = true; more; from += most) {
      lnl_text piece = {.skip = from, .most = most};
      const uint64_t calls = mem_get_stats().alloc_calls;
      for (int i = 0; i < 400; i++) text_addf(&piece, "%d \xc3\xa9 %s;", i, i % 3 ? "" : "item");
      assert_int_equal(mem_get_stats().alloc_calls, calls + 1);
      const size_t left = from < whole.bytes ? whole.bytes - from : 0;
      assert_int_equal(piece.bytes, left < most ? left : most);
      assert_memory_equal(piece.data, whole.data + (left ? from : 0), piece.bytes);
      assert_int_equal(piece.data[piece.bytes], 0);
      more = piece.bytes == most;
      text_free(&piece);
    }
    assert_true(from >= whole.bytes);
  }
  text_free(&whole);
}

static void json_strings(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t count;
    const char *json;
  } cases[] = {
      {"", 0, "\"\""},
      {"plain", 5, "\"plain\""},
      {"say \"\\\"", 7, "\"say \\\"\\\\\\\"\""},
      {"\n\r\t\b\x01\x1f\x7f", 7, "\"\\n\\r\\t\\u0008\\u0001\\u001f\x7f\""},
      {"a\0b", 3, "\"a\\u0000b\""},
      {"h\xc3\xa9 \xf0\x9f\x98\x80", 8, "\"h\xc3\xa9 \xf0\x9f\x98\x80\""},
      {"\xff"
       "a\xc3",
       3,
       "\"\xef\xbf\xbd"
       "a\xef\xbf\xbd\""},
      {"\xf0\x9f\x98", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    lnl_text text = {0};
    text_json_string(&text, (lnl_span){(const uint8_t *)cases[i].bytes, cases[i].count});
    assert_string_equal(text.data, cases[i].json);
    text_free(&text);
  }
  lnl_text text = {0};
  text_json_string(&text, (lnl_span){NULL, 0});
  assert_string_equal(text.data, "\"\"");
  text_free(&text);
}

static void errors_stay_readable(void **state) {
  (void)state;
  lnl_error error;
  assert_int_equal(error_set(&error, LNL_MISSING_KEY, "key '%s' at %u", "x\n\xff\x1by", 7u), LNL_MISSING_KEY);
  assert_int_equal(error.status, LNL_MISSING_KEY);
  assert_string_equal(error.message, "key 'x???y' at 7");
  assert_int_equal(error_set(NULL, LNL_BAD_SHAPE, "x"), LNL_BAD_SHAPE);
  char name[2000];
  memset(name, 'n', sizeof name);
  error_set(&error, LNL_BAD_SHAPE, "%.*s", (int)sizeof name, name);
  assert_int_equal(strlen(error.message), LNL_ERROR_MESSAGE_BYTES - 1);
}

static void statuses_are_complete(void **state) {
  (void)state;
  assert_string_equal(lnl_status_name(LNL_OK), "OK");
  assert_string_equal(lnl_status_name(LNL_UNSUPPORTED_TYPE), "UNSUPPORTED_TYPE");
  assert_string_equal(lnl_status_name((lnl_status)-9999), "UNKNOWN");
  assert_true(strlen(lnl_status_text(LNL_GGUF_TRUNCATED)) > 0);
  static const struct {
    const char *name;
    int value;
    const char *text, *remedy;
  } rows[] = {
#define LNL_STATUS(name, value, text, remedy) {#name, value, text, remedy},
#include "src/status.inc"
#undef LNL_STATUS
  };
  size_t count = sizeof rows / sizeof rows[0];
  for (size_t i = 0; i < count; i++) {
    assert_string_equal(lnl_status_name((lnl_status)rows[i].value), rows[i].name);
    assert_string_equal(lnl_status_text((lnl_status)rows[i].value), rows[i].text);
    assert_string_equal(lnl_status_remedy((lnl_status)rows[i].value), rows[i].remedy);
    assert_true(rows[i].value == 0 || rows[i].remedy[0]);
    for (size_t k = 0; k < i; k++) assert_int_not_equal(rows[i].value, rows[k].value);
  }
  /* pinned: the JS package and stored logs rely on them */
  assert_int_equal(LNL_NEED_BYTES, 1);
  assert_int_equal(LNL_OUT_OF_MEMORY, -1);
  assert_int_equal(LNL_NOT_GGUF, -20);
  assert_int_equal(LNL_CONTEXT_TOO_LONG, -60);
}

static void spans_and_names(void **state) {
  (void)state;
  assert_true(span_equals((lnl_span){(const uint8_t *)"abc", 3}, "abc"));
  assert_false(span_equals((lnl_span){(const uint8_t *)"abc", 2}, "abc"));
  assert_false(span_equals((lnl_span){(const uint8_t *)"abd", 3}, "abc"));
  assert_true(span_equals((lnl_span){NULL, 0}, ""));
  assert_string_equal(host_kind_name(HOST_BROWSER), "browser");
  assert_string_equal(host_kind_name(HOST_NATIVE), "native");
  assert_string_equal(host_module_name(ISA_SIMD128), "base");
  assert_string_equal(host_module_name(ISA_RELAXED), "relaxed");
  assert_string_equal(host_module_name(ISA_SCALAR), "scalar");
  assert_true(host_isa() <= ISA_RELAXED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers_and_strings),
      cmocka_unit_test(general_numbers),
      cmocka_unit_test(numbers_read_back),
      cmocka_unit_test(fixed_numbers),
      cmocka_unit_test(cuts_between_characters),
      cmocka_unit_test(utf8_characters),
      cmocka_unit_test(text_grows_and_fails_quietly),
      cmocka_unit_test(text_in_pieces),
      cmocka_unit_test(json_strings),
      cmocka_unit_test(errors_stay_readable),
      cmocka_unit_test(statuses_are_complete),
      cmocka_unit_test(spans_and_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
