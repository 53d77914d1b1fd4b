/* The GGUF reader: files made here, the shared malformed ones, every way of
 * dividing a file into pushes, every truncation, every failed allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/gguf.h"
#include "src/mem.h"

/* --- a writer ---------------------------------------------------------------- */

typedef struct bytes {
  uint8_t data[1 << 16];
  size_t count;
} bytes;

static void put(bytes *b, const void *data, size_t count) {
  assert_true(b->count + count <= sizeof b->data);
  memcpy(b->data + b->count, data, count);
  b->count += count;
}
static void put_u32(bytes *b, uint32_t v) {
  put(b, &v, sizeof v);
} /* hosts of these tests are little-endian */
static void put_u64(bytes *b, uint64_t v) { put(b, &v, sizeof v); }
static void put_text(bytes *b, const char *text) {
  put_u64(b, strlen(text));
  put(b, text, strlen(text));
}
static void put_header(bytes *b, uint32_t version, uint64_t tensors, uint64_t pairs) {
  b->count = 0;
  put(b, "GGUF", 4);
  put_u32(b, version);
  put_u64(b, tensors);
  put_u64(b, pairs);
}
static void put_key(bytes *b, const char *key, uint32_t type) {
  put_text(b, key);
  put_u32(b, type);
}
static void put_key_u32(bytes *b, const char *key, uint32_t value) {
  put_key(b, key, GGUF_U32);
  put_u32(b, value);
}
static void put_tensor(bytes *b, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1,
                       uint64_t offset) {
  put_text(b, name);
  put_u32(b, 2);
  put_u64(b, ne0);
  put_u64(b, ne1);
  put_u32(b, type);
  put_u64(b, offset);
}
static void put_zeros(bytes *b, size_t count) {
  while (count-- > 0) put(b, "", 1);
}
static void put_padding(bytes *b, size_t align) {
  while (b->count % align != 0) put(b, "", 1);
}

/* One of every value type, two arrays, three tensors, alignment 64. */
static size_t put_everything(bytes *b) {
  static const uint8_t values[13][8] = {
      [GGUF_U8] = {200},
      [GGUF_I8] = {0x80},
      [GGUF_U16] = {0x34, 0x12},
      [GGUF_I16] = {0xfe, 0xff},
      [GGUF_U32] = {0xff, 0xff, 0xff, 0xff},
      [GGUF_I32] = {0xff, 0xff, 0xff, 0xff},
      [GGUF_F32] = {0, 0, 0xc0, 0x3f}, /* 1.5 */
      [GGUF_BOOL] = {2},
      [GGUF_U64] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
      [GGUF_I64] = {0, 0, 0, 0, 0, 0, 0, 0x80},
      [GGUF_F64] = {0, 0, 0, 0, 0, 0, 0x04, 0xc0}, /* -2.5 */
  };
  static const uint8_t sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  put_header(b, 3, 3, 11 + 1 + 1 + 4);
  for (uint32_t type = 0; type < GGUF_TYPE_COUNT; type++) {
    if (sizes[type] == 0) continue;
    char key[16];
    snprintf(key, sizeof key, "v%u", type);
    put_key(b, key, type);
    put(b, values[type], sizes[type]);
  }
  put_key(b, "text", GGUF_STRING);
  put_text(b, "h\xc3\xa9llo");
  put_key_u32(b, "general.alignment", 64);
  put_key(b, "ids", GGUF_ARRAY);
  put_u32(b, GGUF_I32);
  put_u64(b, 3);
  for (uint32_t i = 0; i < 3; i++) put_u32(b, i);
  put_key(b, "words", GGUF_ARRAY);
  put_u32(b, GGUF_STRING);
  put_u64(b, 3);
  put_text(b, "one");
  put_text(b, "");
  put_text(b, "three");
  put_key(b, "none", GGUF_ARRAY);
  put_u32(b, GGUF_STRING);
  put_u64(b, 0);
  put_key(b, "empty", GGUF_STRING);
  put_text(b, "");
  put_tensor(b, "q", 12, 256, 3, 0); /* Q4_K: 432 bytes, 448 padded */
  put_tensor(b, "f", 0, 5, 1, 448);  /* F32: 20 bytes */
  put_tensor(b, "h", 1, 2, 2, 512);  /* F16: 8 bytes */
  size_t header = b->count;
  put_padding(b, 64);
  put_zeros(b, 576);
  return header;
}

/* --- a host ------------------------------------------------------------------- */

typedef struct outcome {
  lnl_status status;
  char message[LNL_ERROR_MESSAGE_BYTES];
} outcome;

/* Feeds data in pieces: piece(state) says how long the next is. Frees nothing. */
static outcome feed_by(gguf *file, const uint8_t *data, size_t count, uint64_t file_bytes,
                       size_t (*piece)(size_t *state), size_t state) {
  lnl_error error = {0};
  gguf_init(file, file_bytes);
  lnl_status status = LNL_NEED_BYTES;
  size_t at = 0;
  while (status == LNL_NEED_BYTES && at < count) {
    size_t part = piece(&state);
    if (part > count - at) part = count - at;
    uint8_t *room = gguf_reserve(file, part);
    if (!room) {
      status = error_set(&error, LNL_OUT_OF_MEMORY, "no room");
      break;
    }
    memcpy(room, data + at, part);
    at += part;
    status = gguf_push(file, part, &error);
  }
  if (status == LNL_NEED_BYTES) status = gguf_finish(file, &error);
  outcome result = {.status = status};
  if (status < 0) {
    assert_int_equal(error.status, status);
    memcpy(result.message, error.message, sizeof result.message);
  }
  return result;
}

static size_t fixed_piece(size_t *state) { return *state; }
static size_t random_piece(size_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return 1 + (*state >> 33) % 29;
}
/* first a piece of *state bytes, then all the rest */
static size_t split_piece(size_t *state) {
  size_t part = *state ? *state : 65536;
  *state = 0;
  return part;
}

static outcome feed(gguf *file, const bytes *b) {
  return feed_by(file, b->data, b->count, b->count, fixed_piece, 65536);
}

static void expect(const bytes *b, uint64_t file_bytes, lnl_status status, const char *part_of_message) {
  gguf file;
  outcome got = feed_by(&file, b->data, b->count, file_bytes, fixed_piece, 65536);
  if (got.status != status || (part_of_message && !strstr(got.message, part_of_message))) {
    fail_msg("expected %s with '%s', got %s: %s", lnl_status_name(status),
             part_of_message ? part_of_message : "", lnl_status_name(got.status), got.message);
  }
  gguf_free(&file);
}

/* --- reading ------------------------------------------------------------------ */

static void check_everything(const gguf *file, size_t header, size_t count) {
  assert_int_equal(file->version, 3);
  assert_int_equal(file->kv_count, 17);
  assert_int_equal(file->tensor_count, 3);
  assert_int_equal(file->alignment, 64);
  assert_int_equal(file->data_offset, (header + 63) / 64 * 64);
  assert_int_equal(file->data_end, file->data_offset + 512 + 8);
  assert_true(file->data_end <= count);
  assert_int_equal(file->parse.image_bytes, header);
  assert_int_equal(file->parse.image_cap, header);

  uint64_t u = 0;
  int64_t i = 0;
  float f = 0;
  bool flag = false;
  lnl_span text;
  assert_true(gguf_get_u64(file, "v0", &u) && u == 200);
  assert_false(gguf_get_u64(file, "v1", &u)); /* -128 */
  assert_true(gguf_get_i64(file, "v1", &i) && i == -128);
  assert_true(gguf_get_u64(file, "v2", &u) && u == 0x1234);
  assert_true(gguf_get_i64(file, "v3", &i) && i == -2);
  assert_true(gguf_get_u64(file, "v4", &u) && u == UINT32_MAX);
  assert_true(gguf_get_i64(file, "v5", &i) && i == -1);
  assert_true(gguf_get_u64(file, "v7", &u) && u == 1);
  assert_true(gguf_get_u64(file, "v10", &u) && u == UINT64_MAX);
  assert_false(gguf_get_i64(file, "v10", &i));
  assert_true(gguf_get_i64(file, "v11", &i) && i == INT64_MIN);
  assert_false(gguf_get_u64(file, "v6", &u));
  assert_true(gguf_get_f32(file, "v6", &f) && f == 1.5f);
  assert_true(gguf_get_f32(file, "v12", &f) && f == -2.5f);
  assert_false(gguf_get_f32(file, "v4", &f));
  assert_true(gguf_get_bool(file, "v7", &flag) && flag);
  assert_false(gguf_get_bool(file, "v0", &flag));
  assert_true(gguf_get_string(file, "text", &text) && span_equals(text, "h\xc3\xa9llo"));
  assert_true(gguf_get_string(file, "empty", &text) && span_equals(text, ""));
  assert_false(gguf_get_string(file, "ids", &text));
  assert_false(gguf_get_u64(file, "text", &u));
  assert_false(gguf_get_u64(file, "ids", &u));
  gguf_value value;
  assert_false(gguf_find(file, "", &value));
  assert_false(gguf_find(file, "wor", &value));
  assert_false(gguf_find(file, "wordss", &value));
  assert_true(gguf_find(file, "ids", &value));
  assert_int_equal(value.item_type, GGUF_I32);
  assert_int_equal(value.item_count, 3);
  assert_int_equal(value.bytes.bytes, 12);
  assert_int_equal(value.bytes.data[4], 1);
  assert_true(gguf_find(file, "words", &value));
  assert_int_equal(value.item_count, 3);
  uint64_t cursor = 0;
  static const char *const words[] = {"one", "", "three"};
  for (size_t w = 0; w < 3; w++) {
    assert_true(gguf_next_string(&value, &cursor, &text));
    assert_true(span_equals(text, words[w]));
  }
  assert_false(gguf_next_string(&value, &cursor, &text));
  assert_true(gguf_find(file, "none", &value));
  cursor = 0;
  assert_false(gguf_next_string(&value, &cursor, &text));

  /* pairs in file order, each found by its own key */
  for (uint64_t n = 0; n < file->kv_count; n++) {
    lnl_span key;
    char name[32];
    gguf_value direct, found;
    gguf_pair(file, n, &key, &direct);
    assert_true(key.bytes < sizeof name);
    memcpy(name, key.data, key.bytes);
    name[key.bytes] = 0;
    if (n == 0) assert_string_equal(name, "v0");
    if (n == 16) assert_string_equal(name, "empty");
    assert_true(gguf_find(file, name, &found));
    assert_ptr_equal(found.bytes.data, direct.bytes.data);
    assert_int_equal(found.bytes.bytes, direct.bytes.bytes);
    assert_int_equal(found.type, direct.type);
  }

  const gguf_tensor *t = file->tensors;
  assert_true(span_equals(t[0].name, "q") && span_equals(t[1].name, "f") && span_equals(t[2].name, "h"));
  assert_int_equal(t[0].type, 12);
  assert_int_equal(t[0].n_dims, 2);
  assert_int_equal(t[0].shape[0], 256);
  assert_int_equal(t[0].shape[1], 3);
  assert_int_equal(t[0].shape[2], 1);
  assert_int_equal(t[0].bytes, 432);
  assert_int_equal(t[0].offset, file->data_offset);
  assert_int_equal(t[1].bytes, 20);
  assert_int_equal(t[1].offset, file->data_offset + 448);
  assert_int_equal(t[2].bytes, 8);
  assert_int_equal(gguf_resident_bytes(file), header + (2 * 17 + 1) * 4 + 3 * sizeof(gguf_tensor));
}

static void reads_everything_in_any_division(void **state) {
  (void)state;
  static bytes b;
  size_t header = put_everything(&b);
  static const size_t sizes[] = {1, 2, 3, 7, 64, 4096, 65536};
  for (size_t known = 0; known < 2; known++) {
    uint64_t file_bytes = known ? b.count : GGUF_SIZE_UNKNOWN;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] + 50; i++) {
      gguf file;
      outcome got = i < 7 ? feed_by(&file, b.data, b.count, file_bytes, fixed_piece, sizes[i])
                          : feed_by(&file, b.data, b.count, file_bytes, random_piece, i);
      assert_int_equal(got.status, LNL_OK);
      check_everything(&file, header, b.count);
      /* complete: more is ignored, and no more room is given */
      assert_null(gguf_reserve(&file, 1));
      assert_int_equal(gguf_push(&file, 0, NULL), LNL_OK);
      assert_int_equal(gguf_finish(&file, NULL), LNL_OK);
      gguf_free(&file);
      assert_int_equal(mem_get_stats().live_blocks, 0);
    }
  }
}

/* With the size known or not, each proper prefix is refused, and the same way
 * whatever the division. */
static void refuses_every_truncation(void **state) {
  (void)state;
  static bytes b;
  size_t header = put_everything(&b);
  for (size_t count = 0; count < b.count; count++) {
    for (size_t known = 0; known < 2; known++) {
      uint64_t file_bytes = known ? count : GGUF_SIZE_UNKNOWN;
      gguf file;
      outcome whole = feed_by(&file, b.data, count, file_bytes, fixed_piece, 65536);
      gguf_free(&file);
      outcome single = feed_by(&file, b.data, count, file_bytes, fixed_piece, 1);
      gguf_free(&file);
      assert_int_equal(whole.status, single.status);
      assert_string_equal(whole.message, single.message);
      lnl_status expected = count < 4 ? LNL_NOT_GGUF : count < header || known ? LNL_GGUF_TRUNCATED : LNL_OK;
      if (whole.status != expected) {
        fail_msg("%zu bytes of %zu, size %s: %s (%s)", count, b.count, known ? "known" : "unknown",
                 lnl_status_name(whole.status), whole.message);
      }
    }
  }
  /* a file cut inside a tensor: its name and the bytes that it lacks */
  uint64_t data = b.count - 576;
  b.count = data + 100;
  expect(&b, b.count, LNL_GGUF_TRUNCATED, "tensor 'q'");
  expect(&b, b.count, LNL_GGUF_TRUNCATED, "332 bytes of the tensor are missing, 420 bytes of the file");
  b.count = data + 450;
  expect(&b, b.count, LNL_GGUF_TRUNCATED, "tensor 'f'");
  expect(&b, b.count, LNL_GGUF_TRUNCATED, "18 bytes of the tensor");
  b.count = data + 575;
  expect(&b, b.count, LNL_GGUF_TRUNCATED, "padding behind tensor 'h'");
  assert_int_equal(mem_get_stats().live_blocks, 0);
}

static void fails_each_allocation_cleanly(void **state) {
  (void)state;
  static bytes b;
  size_t header = put_everything(&b);
  for (size_t size = 64; size <= 65536; size *= 1024) {
    uint64_t nth = 1;
    for (;; nth++) {
      assert_true(nth < 100);
      gguf file;
      mem_fail_at(nth);
      outcome got = feed_by(&file, b.data, b.count, b.count, fixed_piece, size);
      mem_fail_at(0);
      bool ok = got.status == LNL_OK;
      if (ok)
        check_everything(&file, header, b.count);
      else
        assert_int_equal(got.status, LNL_OUT_OF_MEMORY);
      gguf_free(&file);
      assert_int_equal(mem_get_stats().live_blocks, 0);
      assert_int_equal(mem_get_stats().live_bytes, 0);
      if (ok) break;
    }
    assert_true(nth >= 6); /* image, its cut, keys, their order, tensors, their order */
  }
}

/* --- refusals ------------------------------------------------------------------- */

static void names_what_is_no_gguf(void **state) {
  (void)state;
  static bytes b;
  static const struct {
    const char *data, *message;
  } cases[] = {
      {"<!DOCTYPE html><html>", "HTML"},
      {"<html><body>not found", "HTML"},
      {"\r\n\t  \n<!DOCTYPE html>", "HTML"},
      {"\xef\xbb\xbf <html>", "HTML"},
      {"{\"error\":\"not found\"}", "JSON"},
      {"version https://git-lfs.github.com/spec/v1\n", "Git LFS"},
      {"FUGG....", "'FUGG' (46 55 47 47)"},
      {"\x01\xff\x02\xfe____", "(01 ff 02 fe)"},
      {"     ", "20 20 20 20"},
      {"GGU", "3 bytes"},
      {"", "after 0 bytes"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    b.count = 0;
    put(&b, cases[i].data, strlen(cases[i].data));
    expect(&b, b.count, LNL_NOT_GGUF, cases[i].message);
    gguf file;
    outcome whole = feed(&file, &b);
    gguf_free(&file);
    outcome single = feed_by(&file, b.data, b.count, b.count, fixed_piece, 1);
    gguf_free(&file);
    assert_string_equal(whole.message, single.message);
  }
  b.count = 0; /* blanks without end do not go on being asked for */
  for (size_t i = 0; i < 600; i++) put(&b, " ", 1);
  expect(&b, GGUF_SIZE_UNKNOWN, LNL_NOT_GGUF, "20 20 20 20");
}

static void refuses_versions(void **state) {
  (void)state;
  static bytes b;
  put_header(&b, 1, 0, 0);
  expect(&b, b.count, LNL_GGUF_VERSION, "version 1");
  put_header(&b, 4, 0, 0);
  expect(&b, b.count, LNL_GGUF_VERSION, "version 4");
  put_header(&b, 0, 0, 0);
  expect(&b, b.count, LNL_GGUF_VERSION, "version 0");
  put_header(&b, 0x03000000, 0, 0);
  expect(&b, b.count, LNL_GGUF_VERSION, "big-endian (version 3");
  put_header(&b, 2, 0, 0);
  expect(&b, b.count, LNL_OK, NULL);
}

static void refuses_bad_pairs(void **state) {
  (void)state;
  static bytes b;
  put_header(&b, 3, 0, 1);
  put_key(&b, "list", GGUF_ARRAY);
  put_u32(&b, GGUF_ARRAY);
  put_u64(&b, 1);
  put_zeros(&b, 64);
  expect(&b, b.count, LNL_GGUF_CORRUPT, "key 'list' is an array of arrays");

  put_header(&b, 3, 0, 1);
  put_key(&b, "list", GGUF_ARRAY);
  put_u32(&b, 77);
  put_u64(&b, 1);
  put_zeros(&b, 64);
  expect(&b, b.count, LNL_GGUF_CORRUPT, "item type 77");

  put_header(&b, 3, 0, 1);
  put_key(&b, "k", 13);
  put_zeros(&b, 64);
  expect(&b, b.count, LNL_GGUF_CORRUPT, "key 'k' has the value type 13");

  put_header(&b, 3, 0, 1);
  put_key_u32(&b, "general.alignment", 48);
  expect(&b, b.count, LNL_GGUF_CORRUPT, "48, not a power of 2");

  put_header(&b, 3, 0, 1);
  put_key(&b, "general.alignment", GGUF_I32);
  put_u32(&b, 32);
  expect(&b, b.count, LNL_GGUF_CORRUPT, "must be of type u32 but is of type i32");

  put_header(&b, 3, 0, 3);
  put_key_u32(&b, "a", 1);
  put_key_u32(&b, "b", 1);
  put_key_u32(&b, "a", 2);
  expect(&b, b.count, LNL_GGUF_DUPLICATE, "key 'a' appears twice, as numbers 0 and 2");

  /* lengths that no header can have, with and without a size to hold against */
  static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, (uint64_t)INT64_MAX + 1, 1u << 30, 1u << 20};
  for (size_t i = 0; i < 5; i++) {
    lnl_status bounded = lengths[i] > (1u << 20) ? LNL_GGUF_LIMIT : LNL_GGUF_TRUNCATED;
    for (size_t where = 0; where < 4; where++) {
      put_header(&b, 3, 0, 1);
      if (where == 0) {
        put_u64(&b, lengths[i]);
      } else if (where == 1) {
        put_key(&b, "k", GGUF_STRING);
        put_u64(&b, lengths[i]);
      } else {
        put_key(&b, "k", GGUF_ARRAY);
        put_u32(&b, where == 2 ? GGUF_F64 : GGUF_STRING);
        put_u64(&b, lengths[i] / (lengths[i] > (1u << 20) ? 1 : 8));
      }
      put_zeros(&b, 32); /* the file could hold a pair; what it says of its length is the fault */
      expect(&b, b.count, bounded, where == 0 ? "key 0" : "key 'k'");
      expect(&b, GGUF_SIZE_UNKNOWN, bounded, NULL); /* at once, or when the source ends */
    }
  }

  /* a name out of a hostile file does not break the message */
  put_header(&b, 3, 0, 1);
  put_key(&b, "a\n\xff\x1b[31m", 99);
  put_zeros(&b, 16);
  expect(&b, b.count, LNL_GGUF_CORRUPT, "key 'a???[31m' has the value type 99");

  put_header(&b, 3, 0, UINT64_C(1) << 40);
  put_zeros(&b, 64);
  expect(&b, b.count, LNL_GGUF_LIMIT, "1099511627776 keys");
  put_header(&b, 3, 1000, 0);
  put_zeros(&b, 64);
  expect(&b, b.count, LNL_GGUF_TRUNCATED, "1000 tensors");
}

static void refuses_bad_tensors(void **state) {
  (void)state;
  static bytes b;
  put_header(&b, 3, 1, 0);
  put_tensor(&b, "w", 2, 33, 1, 0);
  put_zeros(&b, 128);
  expect(&b, b.count, LNL_GGUF_CORRUPT,
         "tensor 'w' of type Q4_0 has rows of 33 values, not a multiple of its block of 32");

  static const uint32_t removed[] = {4, 5, 31, 32, 33, 36, 37, 38};
  for (size_t i = 0; i < 8; i++) {
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", removed[i], 256, 1, 0);
    put_zeros(&b, 2048);
    expect(&b, b.count, LNL_UNSUPPORTED_TYPE, "removed from the format: ");
    assert_false(gguf_type_geometry(removed[i], NULL, NULL, NULL));
  }
  put_header(&b, 3, 1, 0);
  put_tensor(&b, "w", 43, 256, 1, 0);
  expect(&b, b.count, LNL_UNSUPPORTED_TYPE, "tensor 'w' has type 43, which is not known");

  put_header(&b, 3, 2, 0);
  put_tensor(&b, "w", 0, 8, 1, 0);
  put_tensor(&b, "w", 0, 8, 1, 32);
  put_zeros(&b, 256);
  expect(&b, b.count, LNL_GGUF_DUPLICATE, "tensor 'w' appears twice");

  static const uint64_t offsets[] = {0, 4, 64, 1u << 20, UINT64_MAX - 31};
  for (size_t i = 0; i < 5; i++) {
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "w", 0, 8, 1, 0);
    put_tensor(&b, "x", 0, 8, 1, offsets[i]);
    put_zeros(&b, 256);
    expect(&b, b.count, LNL_GGUF_CORRUPT, "expected 32");
  }
  put_header(&b, 3, 1, 0);
  put_tensor(&b, "w", 0, UINT64_MAX, 1, 0);
  expect(&b, b.count, LNL_GGUF_CORRUPT, "dimension 0 is -1");
  put_header(&b, 3, 1, 0);
  put_tensor(&b, "w", 0, UINT64_C(1) << 40, UINT64_C(1) << 40, 0);
  expect(&b, b.count, LNL_GGUF_CORRUPT, "too many values");
  put_header(&b, 3, 1, 0);
  put_tensor(&b, "w", 0, UINT64_C(1) << 52, 1, 0);
  expect(&b, GGUF_SIZE_UNKNOWN, LNL_GGUF_LIMIT, "tensor 'w'");
  put_header(&b, 3, 1, 0); /* 2^63 values: one too many, though a uint64 holds them */
  put_tensor(&b, "w", 24, UINT64_C(1) << 32, UINT64_C(1) << 31, 0);
  expect(&b, GGUF_SIZE_UNKNOWN, LNL_GGUF_CORRUPT, "too many values");
  put_header(&b, 3, 2, 0); /* 2^64 - 8 bytes: rounding up to the alignment would wrap to 0 */
  put_tensor(&b, "w", 27, (UINT64_C(1) << 61) - 1, 1, 0);
  put_tensor(&b, "x", 27, 1, 1, 0);
  expect(&b, GGUF_SIZE_UNKNOWN, LNL_GGUF_LIMIT, "tensor 'w'");
  put_header(&b, 3, 3, 0); /* each within the limit, not all together */
  put_tensor(&b, "w", 24, UINT64_C(1) << 52, 1, 0);
  put_tensor(&b, "x", 24, UINT64_C(1) << 52, 1, UINT64_C(1) << 52);
  put_tensor(&b, "y", 24, UINT64_C(1) << 52, 1, UINT64_C(1) << 53);
  expect(&b, GGUF_SIZE_UNKNOWN, LNL_GGUF_LIMIT, "tensor 'y' ends at");
  put_header(&b, 3, 1, 0); /* a tensor of no bytes, and a file without the padding before it */
  put_tensor(&b, "w", 0, 0, 1, 0);
  put_zeros(&b, 1);
  expect(&b, b.count, LNL_GGUF_TRUNCATED, "tensor data begins at offset 96");
  put_padding(&b, 32);
  expect(&b, b.count, LNL_OK, NULL);
  put_header(&b, 3, 1, 0); /* cut inside an entry: named once its name is there */
  put_tensor(&b, "w", 0, 8, 1, 0);
  b.count -= 1;
  expect(&b, GGUF_SIZE_UNKNOWN, LNL_GGUF_TRUNCATED, "at tensor 'w'");
  expect(&b, b.count, LNL_GGUF_TRUNCATED, "tensor 'w': the shape");
  b.count = 24 + 8;
  expect(&b, GGUF_SIZE_UNKNOWN, LNL_GGUF_TRUNCATED, "at tensor 0");
  /* beyond 4 GiB is nothing special, when the size is not known or suffices */
  put_header(&b, 3, 2, 0);
  put_tensor(&b, "w", 0, UINT64_C(1) << 31, 1, 0);
  put_tensor(&b, "x", 0, 8, 1, UINT64_C(1) << 33);
  gguf file;
  assert_int_equal(feed_by(&file, b.data, b.count, GGUF_SIZE_UNKNOWN, fixed_piece, 9).status, LNL_OK);
  assert_true(file.tensors[1].offset == file.data_offset + (UINT64_C(1) << 33));
  assert_true(file.data_end == file.data_offset + (UINT64_C(1) << 33) + 32);
  gguf_free(&file);
  expect(&b, UINT64_C(1) << 34, LNL_OK, NULL);
}

static void a_refused_header_stays_refused(void **state) {
  (void)state;
  gguf file;
  lnl_error error;
  gguf_init(&file, GGUF_SIZE_UNKNOWN);
  memcpy(gguf_reserve(&file, 4), "nope", 4);
  assert_int_equal(gguf_push(&file, 4, &error), LNL_NOT_GGUF);
  assert_null(gguf_reserve(&file, 4));
  assert_int_equal(gguf_push(&file, 0, &error), LNL_BAD_STATE);
  assert_int_equal(gguf_finish(&file, &error), LNL_BAD_STATE);
  gguf_free(&file);
  gguf_free(&file);      /* twice does no harm */
  gguf_init(&file, 100); /* no more is taken than the file has */
  assert_non_null(gguf_reserve(&file, 50));
  assert_int_equal(gguf_resident_bytes(&file), 100);
  gguf_free(&file);
  gguf_init(&file, GGUF_SIZE_UNKNOWN);
  assert_null(gguf_reserve(&file, 0));
  assert_null(gguf_reserve(&file, (16u << 20) + 1));
  gguf_free(&file);
}

/* --- cost -------------------------------------------------------------------------- */

/* Of this process, so that a busy machine fails no test. */
static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A vocabulary of 128k strings, byte by byte: linear, or this takes hours. */
static void a_large_array_byte_by_byte_is_linear(void **state) {
  (void)state;
  enum { COUNT = 128 * 1024 };
  size_t size = 64 + COUNT * 16, at = 0;
  uint8_t *data = malloc(size);
  static bytes b;
  put_header(&b, 3, 0, 1);
  put_key(&b, "tokenizer.ggml.tokens", GGUF_ARRAY);
  put_u32(&b, GGUF_STRING);
  put_u64(&b, COUNT);
  memcpy(data, b.data, b.count);
  at = b.count;
  for (uint32_t i = 0; i < COUNT; i++) {
    uint64_t length = 5;
    memcpy(data + at, &length, 8);
    memcpy(data + at + 8, "token", 5);
    at += 13;
  }
  gguf file;
  double start = seconds();
  assert_int_equal(feed_by(&file, data, at, GGUF_SIZE_UNKNOWN, fixed_piece, 1).status, LNL_OK);
  assert_true(seconds() - start < 10);
  gguf_value value;
  assert_true(gguf_find(&file, "tokenizer.ggml.tokens", &value));
  uint64_t cursor = 0, seen = 0;
  lnl_span text;
  while (gguf_next_string(&value, &cursor, &text)) seen += span_equals(text, "token");
  assert_int_equal(seen, COUNT);
  gguf_free(&file);
  free(data);
}

/* 300,000 keys in an order that is hard on sorting: no quadratic cost. */
static void many_keys_are_no_trap(void **state) {
  (void)state;
  enum { COUNT = 300000 };
  size_t size = 24 + COUNT * 24, at = 24;
  uint8_t *data = calloc(size, 1);
  static bytes b;
  put_header(&b, 3, 0, COUNT);
  memcpy(data, b.data, 24);
  for (uint32_t i = 0; i < COUNT; i++) {
    uint64_t length = 10;
    char key[16];
    uint32_t type = GGUF_U8;
    snprintf(key, sizeof key, "%010u", (uint32_t)(i * 2654435761u));
    memcpy(data + at, &length, 8);
    memcpy(data + at + 8, key, 10);
    memcpy(data + at + 18, &type, 4);
    at += 23;
  }
  gguf file;
  double start = seconds();
  assert_int_equal(feed_by(&file, data, at, at, fixed_piece, 1 << 20).status, LNL_OK);
  gguf_value value;
  assert_true(gguf_find(&file, "0000000000", &value));
  assert_false(gguf_find(&file, "0000000001", &value));
  assert_true(seconds() - start < 10);
  gguf_free(&file);
  free(data);
}

/* --- the shared files ------------------------------------------------------------------ */

static const char *fixtures(void) {
  static char path[1024];
  const char *given = getenv("LINEAL_FIXTURES");
#ifdef LNL_REPO_DIR
  snprintf(path, sizeof path, "%s", given ? given : LNL_REPO_DIR "/../shared/fixtures");
#else
  snprintf(path, sizeof path, "%s", given ? given : "../shared/fixtures");
#endif
  return path;
}

static uint8_t *read_whole(const char *path, size_t *count) {
  FILE *stream = fopen(path, "rb");
  if (!stream) return NULL;
  fseek(stream, 0, SEEK_END);
  *count = (size_t)ftell(stream);
  rewind(stream);
  uint8_t *data = malloc(*count + 1);
  assert_int_equal(fread(data, 1, *count, stream), *count);
  data[*count] = 0;
  fclose(stream);
  return data;
}

static uint8_t *read_fixture(const char *name, size_t *count) {
  char path[1400];
  snprintf(path, sizeof path, "%s/%s", fixtures(), name);
  uint8_t *data = read_whole(path, count);
  if (!data) {
    if (getenv("CI")) fail_msg("%s is missing", path);
    print_message("skipped: no %s\n", path);
    skip();
  }
  return data;
}

/* Our verdict is llama.cpp's in every case, also where that accepts odd things
 * (a tensor without dimensions or values, an empty tensor name, a bool of 2, a
 * key that is no UTF-8): nothing of it can mislead this reader. */
static void agrees_on_the_shared_cases(void **state) {
  (void)state;
  size_t manifest_bytes;
  char *manifest = (char *)read_fixture("gguf-cases/manifest.json", &manifest_bytes);
  size_t seen = 0;
  for (char *at = manifest; (at = strstr(at, "\"llama_cpp\": \"")) != NULL; seen++) {
    /* the name is the string before the brace that opens this entry */
    char *brace = at;
    while (*brace != '{') brace--;
    char *name_end = brace;
    while (*name_end != '"') name_end--;
    char *name = name_end;
    while (name[-1] != '"') name--;
    at += strlen("\"llama_cpp\": \"");
    bool accepted = strncmp(at, "OK\"", 3) == 0;
    char path[1200];
    snprintf(path, sizeof path, "gguf-cases/%.*s.gguf", (int)(name_end - name), name);
    size_t count;
    uint8_t *data = read_fixture(path, &count);
    mem_reset_high_water();
    gguf file;
    double start = seconds();
    outcome whole = feed_by(&file, data, count, count, fixed_piece, 65536);
    double spent = seconds() - start;
    gguf_free(&file);
    if ((whole.status == LNL_OK) != accepted) {
      fail_msg("%s: %s (%s), but llama.cpp %s it", path, lnl_status_name(whole.status), whole.message,
               accepted ? "accepts" : "refuses");
    }
    if (!accepted) assert_true(whole.status < 0 && whole.message[0]);
    if (getenv("LINEAL_VERBOSE"))
      print_message("%-48s %s %s\n", path, lnl_status_name(whole.status), whole.message);
    if (spent > 0.05) fail_msg("%s took %g s", path, spent);
    if (mem_get_stats().high_water_bytes > count + 4096) {
      fail_msg("%s of %zu bytes: %llu allocated", path, count,
               (unsigned long long)mem_get_stats().high_water_bytes);
    }
    /* the same verdict and the same words wherever it is split */
    for (size_t split = 0; split <= count && split < 2500; split++) {
      outcome parts = split == 0 ? feed_by(&file, data, count, count, fixed_piece, 1)
                                 : feed_by(&file, data, count, count, split_piece, split);
      gguf_free(&file);
      assert_int_equal(parts.status, whole.status);
      assert_string_equal(parts.message, whole.message);
    }
    /* and bounded work and a typed end when the size is not known */
    outcome blind = feed_by(&file, data, count, GGUF_SIZE_UNKNOWN, random_piece, 7);
    gguf_free(&file);
    assert_true(blind.status <= 0);
    assert_int_equal(mem_get_stats().live_blocks, 0);
    free(data);
  }
  assert_int_equal(seen, 65);
  free(manifest);
}

static void reads_the_shared_models(void **state) {
  (void)state;
  static const struct {
    const char *name;
    lnl_status status;
  } models[] = {
      {"kjv/kjv-2.6m-Q4_K_M.gguf", LNL_OK},
      {"stories260k/stories260K.gguf", LNL_OK},
      {"stories260k/stories260K-be.gguf", LNL_GGUF_VERSION},
      {"stories260k/stories260K-split-00002-of-00003.gguf", LNL_OK},
      {"stories260k/wide-IQ3_S.gguf", LNL_OK},
      {"stories260k/wide-TQ2_0.gguf", LNL_OK},
      {"arch/gpt-oss-moe.gguf", LNL_OK},
      {"arch/lfm2-dense.gguf", LNL_OK},
  };
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
    size_t count;
    uint8_t *data = read_fixture(models[i].name, &count);
    gguf file;
    outcome got = feed_by(&file, data, count, count, fixed_piece, 65536);
    if (got.status != models[i].status) fail_msg("%s: %s", models[i].name, got.message);
    if (got.status == LNL_OK) {
      lnl_span architecture;
      assert_true(file.tensor_count > 0);
      if (!strstr(models[i].name, "-split-")) {
        assert_true(gguf_get_string(&file, "general.architecture", &architecture));
      }
      assert_true(file.data_end <= count && file.data_end + file.alignment > count);
    }
    gguf_free(&file);
    free(data);
  }
}

static void knows_the_types(void **state) {
  (void)state;
  size_t count;
  char *manifest = (char *)read_fixture("quant/manifest.json", &count);
  size_t seen = 0;
  for (char *at = manifest; (at = strstr(at, "\"id\":")) != NULL; seen++) {
    unsigned id = (unsigned)strtoul(at + 5, NULL, 10);
    unsigned block = (unsigned)strtoul(strstr(at, "\"blck\":") + 7, NULL, 10);
    unsigned size = (unsigned)strtoul(strstr(at, "\"type_size\":") + 12, NULL, 10);
    at++;
    uint32_t block_len, block_bytes;
    const char *name;
    assert_true(gguf_type_geometry(id, &name, &block_len, &block_bytes));
    assert_int_equal(block_len, block);
    assert_int_equal(block_bytes, size);
    assert_true(name[0] != 0);
  }
  assert_true(seen >= 25);
  free(manifest);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_everything_in_any_division),
      cmocka_unit_test(refuses_every_truncation),
      cmocka_unit_test(fails_each_allocation_cleanly),
      cmocka_unit_test(names_what_is_no_gguf),
      cmocka_unit_test(refuses_versions),
      cmocka_unit_test(refuses_bad_pairs),
      cmocka_unit_test(refuses_bad_tensors),
      cmocka_unit_test(a_refused_header_stays_refused),
      cmocka_unit_test(a_large_array_byte_by_byte_is_linear),
      cmocka_unit_test(many_keys_are_no_trap),
      cmocka_unit_test(agrees_on_the_shared_cases),
      cmocka_unit_test(reads_the_shared_models),
      cmocka_unit_test(knows_the_types),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
