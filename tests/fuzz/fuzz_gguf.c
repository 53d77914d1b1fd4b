/* libFuzzer entry for the GGUF reader. Byte 0 says whether the size of the
 * file is known; bytes 1 to 4 seed the division into pushes; the rest is the
 * file. It is parsed twice, divided and whole: both must agree to the word,
 * everything that was read is walked, and nothing may stay allocated. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "src/gguf.h"
#include "src/mem.h"

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) __builtin_trap();                                                                      \
  } while (0)

static uint64_t checksum;

static void touch(lnl_span span) {
  for (size_t i = 0; i < span.bytes; i++) checksum = checksum * 31 + span.data[i];
}

static lnl_status parse(gguf *file, const uint8_t *data, size_t size, uint64_t file_bytes, uint32_t seed,
                        lnl_error *error) {
  gguf_init(file, file_bytes);
  lnl_status status = LNL_NEED_BYTES;
  for (size_t at = 0; at < size && status == LNL_NEED_BYTES;) {
    size_t part = size - at;
    if (seed != 0) {
      seed = seed * 1664525u + 1013904223u;
      size_t wish = (seed >> 28) < 12 ? 1 + (seed >> 24) % 16 : 1 + (seed >> 16) % 4096;
      if (wish < part) part = wish;
    }
    uint8_t *room = gguf_reserve(file, part);
    CHECK(room);
    memcpy(room, data + at, part);
    at += part;
    status = gguf_push(file, part, error);
  }
  return status == LNL_NEED_BYTES ? gguf_finish(file, error) : status;
}

static void walk(const gguf *file, uint64_t file_bytes) {
  uint64_t array_bytes = 0;
  for (uint64_t i = 0; i < file->kv_count; i++) {
    lnl_span key;
    gguf_value value, found;
    gguf_pair(file, i, &key, &value);
    touch(key);
    touch(value.bytes);
    if (value.type == GGUF_ARRAY && value.item_type == GGUF_STRING) {
      uint64_t cursor = 0, count = 0;
      lnl_span text;
      while (gguf_next_string(&value, &cursor, &text)) touch(text), count++;
      CHECK(count == value.item_count && cursor == value.bytes.bytes);
    }
    array_bytes += value.bytes.bytes;
    char name[256];
    if (key.bytes < sizeof name && !memchr(key.data, 0, key.bytes)) {
      memcpy(name, key.data, key.bytes);
      name[key.bytes] = 0;
      CHECK(gguf_find(file, name, &found) && found.bytes.data == value.bytes.data);
      uint64_t u;
      int64_t s;
      float f;
      bool flag;
      if (gguf_get_u64(file, name, &u) && gguf_get_i64(file, name, &s)) CHECK(u == (uint64_t)s);
      gguf_get_f32(file, name, &f);
      gguf_get_bool(file, name, &flag);
      gguf_get_string(file, name, &key);
    }
  }
  CHECK(array_bytes <= file->data_offset);
  uint64_t end = file->data_offset;
  for (uint64_t i = 0; i < file->tensor_count; i++) {
    const gguf_tensor *t = &file->tensors[i];
    touch(t->name);
    CHECK(t->name.bytes <= GGUF_MAX_NAME_BYTES && t->n_dims <= GGUF_MAX_DIMS);
    CHECK(t->offset == align_up(end - file->data_offset, file->alignment) + file->data_offset);
    CHECK(gguf_type_geometry(t->type, NULL, NULL, NULL));
    end = t->offset + t->bytes;
    CHECK(end >= t->offset);
    if (file_bytes != GGUF_SIZE_UNKNOWN) CHECK(end <= file_bytes);
  }
  CHECK(end == file->data_end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 5) return 0;
  uint32_t seed;
  memcpy(&seed, data + 1, sizeof seed);
  bool known = data[0] & 1;
  data += 5, size -= 5;
  uint64_t file_bytes = known ? size : GGUF_SIZE_UNKNOWN;
  gguf whole, divided;
  lnl_error whole_error = {0}, divided_error = {0};
  lnl_status status = parse(&whole, data, size, file_bytes, 0, &whole_error);
  CHECK(status <= 0);
  CHECK(parse(&divided, data, size, file_bytes, seed | 1, &divided_error) == status);
  CHECK(status == whole_error.status && status == divided_error.status);
  CHECK(strcmp(whole_error.message, divided_error.message) == 0);
  CHECK((status == LNL_OK) == (whole_error.message[0] == 0));
  if (status == LNL_OK) {
    walk(&whole, file_bytes);
    walk(&divided, file_bytes);
    CHECK(gguf_resident_bytes(&whole) == gguf_resident_bytes(&divided));
  }
  gguf_free(&whole);
  gguf_free(&divided);
  CHECK(mem_get_stats().live_blocks == 0 && mem_get_stats().live_bytes == 0);
  return 0;
}
