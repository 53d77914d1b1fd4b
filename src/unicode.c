/* Unicode properties from packed tables (unicode.inc), and UTF-8. */
#include "unicode.h"

/* A table is a string of entries that can be read only from the start of a
 * block; the index says where each begins, in code points and in bytes. */
typedef struct unicode_table {
  const uint8_t *bytes;
  const uint32_t *starts;  /* [count] */
  const uint16_t *offsets; /* [count + 1] */
  uint32_t count;
} unicode_table;

#include "unicode.inc"

/* The block that would hold the code point (0 when it lies before them all). */
static uint32_t find_block(const unicode_table *table, uint32_t code_point) {
  uint32_t low = 0;
  uint32_t high = table->count;
  while (high - low > 1) { /* starts[low] <= code_point < starts[high] */
    uint32_t middle = (low + high) / 2;
    if (table->starts[middle] <= code_point)
      low = middle;
    else
      high = middle;
  }
  return low;
}

uint32_t unicode_class(uint32_t code_point) {
  if (code_point < 128) return unicode_ascii[code_point];
  if (code_point > 0x10FFFF) return UNI_OTHER;
  uint32_t block = find_block(&class_table, code_point);
  const uint8_t *entry = class_bytes + class_offsets[block];
  uint32_t end = class_starts[block];
  for (;;) {
    uint32_t class = *entry >> 5;
    uint32_t count = (*entry++ & 31) + 1u;
    if (count > 29) {
      uint32_t extra = count - 29;
      count = 0;
      for (uint32_t i = 0; i < extra; i++) count |= (uint32_t)*entry++ << (8 * i);
    }
    end += count;
    if (code_point < end) return 1u << class;
  }
}

static uint32_t read_varint(const uint8_t **bytes) {
  uint32_t value = 0;
  for (uint32_t shift = 0;; shift += 7) {
    uint8_t byte = *(*bytes)++;
    value |= (uint32_t)(byte & 127) << shift;
    if (byte < 128) return value;
  }
}

/* What the code point maps to; an entry's value is the target or (`relative`)
 * the difference to it. */
static uint32_t map_code_point(const unicode_table *table, uint32_t code_point, bool relative) {
  uint32_t block = find_block(table, code_point);
  const uint8_t *entry = table->bytes + table->offsets[block];
  const uint8_t *block_end = table->bytes + table->offsets[block + 1];
  uint32_t at = table->starts[block];
  uint32_t value = 0;
  while (entry < block_end) {
    uint32_t head = read_varint(&entry);
    uint32_t step = head & 3;
    uint32_t count = step ? read_varint(&entry) + 2 : 1;
    uint32_t change = read_varint(&entry);
    value += change & 1 ? ~(change >> 1) : change >> 1;
    at += head >> 2;
    if (code_point < at) break;
    uint32_t distance = code_point - at;
    if (step == 0) step = 1;
    uint32_t last = step * (count - 1);
    if (distance <= last) return distance % step ? code_point : relative ? code_point + value : value;
    at += last + 1;
  }
  return code_point;
}

uint32_t unicode_lower(uint32_t code_point) { return map_code_point(&lower_table, code_point, true); }
uint32_t unicode_base(uint32_t code_point) { return map_code_point(&nfd_table, code_point, false); }

static bool continues(const uint8_t *text, size_t bytes, size_t length) {
  if (bytes < length) return false;
  for (size_t i = 1; i < length; i++) {
    if ((text[i] & 0xC0) != 0x80) return false;
  }
  return true;
}

size_t utf8_decode(const uint8_t *text, size_t bytes, uint32_t *code_point) {
  uint32_t first = text[0];
  if (first < 0x80) {
    *code_point = first;
    return 1;
  }
  size_t length = utf8_length(text[0]);
  *code_point = 0xFFFD;
  if (length == 1 || first > 0xF7 || !continues(text, bytes, length)) return 1;
  uint32_t value = first & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) value = value << 6 | (text[i] & 0x3F);
  if (value > 0x10FFFF) return 1;
  *code_point = value;
  return length;
}

size_t utf8_encode(uint32_t code_point, uint8_t dst[4]) {
  if (code_point < 0x80) {
    dst[0] = (uint8_t)code_point;
    return 1;
  }
  size_t length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i > 0; i--) {
    dst[i] = (uint8_t)(0x80 | (code_point & 0x3F));
    code_point >>= 6;
  }
  dst[0] = (uint8_t)(0xF00u >> length | code_point);
  return length;
}
