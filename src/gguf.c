/* A state machine over the header. Each step needs one primitive (a fixed
 * field, or a length and the text behind it); when its bytes have not all
 * arrived the machine waits, and a later push takes it up at the same place.
 * Nothing before the cursor is looked at again until the header is complete,
 * so a header that arrives byte by byte costs the same as one in a piece.
 *
 * Only the image is held while the header arrives. The tables are made when
 * it is complete (gguf_tables.c), from counts that are then known to be true. */
#include "gguf.h"
#include "fmt.h"
#include "gguf_image.h"
#include "mem.h"

#include <string.h>

static const uint64_t GGUF_HEADER_LIMIT = UINT64_C(1) << 30;
static const uint64_t GGUF_RESERVE_LIMIT = UINT64_C(16) << 20;
/* Sizes and offsets stay exact in a double, in which they reach JS. */
static const uint64_t GGUF_DATA_LIMIT = UINT64_C(1) << 53;

enum {
  GGUF_DEFAULT_ALIGNMENT = 32,
  GGUF_MIN_PAIR_BYTES = 8 + 1 + 4 + 1,       /* length, key, type, value */
  GGUF_MIN_TENSOR_BYTES = 8 + 0 + 4 + 4 + 8, /* length, name, dims, type, offset */
  GGUF_BLANK_BYTES = 512,                    /* blanks before the first letter of what is no GGUF */
};

enum {
  PHASE_MAGIC = 0,
  PHASE_VERSION,
  PHASE_COUNTS,
  PHASE_KEY,
  PHASE_VALUE,
  PHASE_STRINGS,
  PHASE_TENSOR,
  PHASE_TENSOR_NAMED,
  PHASE_COMPLETE,
  PHASE_FAILED
};

/* --- what can be wrong -------------------------------------------------------- */

static const char *value_type_name(uint32_t type) {
  static const char *const names[GGUF_TYPE_COUNT] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                     "bool", "string", "array", "u64", "i64", "f64"};
  return type < GGUF_TYPE_COUNT ? names[type] : "unknown";
}

typedef char subject_text[128];

__attribute__((format(printf, 2, 3))) static const char *subject_format(char *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fmt_write(text, sizeof(subject_text), format, args);
  va_end(args);
  return text;
}

/* Names the thing at the cursor, for messages. Looks at the phase and never at
 * how much happens to have arrived: messages do not depend on the pushes. */
static const char *subject(const gguf *file, char *text) {
  const struct gguf_parse *p = &file->parse;
  switch (p->phase) {
  case PHASE_KEY:
    return subject_format(text, "key %llu", (unsigned long long)p->kv_seen);
  case PHASE_VALUE:
  case PHASE_STRINGS:
    return subject_format(text, "key '%.*s'", SPAN_ARGS(read_string(p->image + p->entry_at)));
  case PHASE_TENSOR:
    return subject_format(text, "tensor %llu", (unsigned long long)p->tensor_seen);
  case PHASE_TENSOR_NAMED:
    return subject_format(text, "tensor '%.*s'", SPAN_ARGS(read_string(p->image + p->cursor)));
  default:
    return "the header";
  }
}

/* Whether the next `bytes` bytes have arrived: LNL_OK, NEED_BYTES, or a
 * refusal when they never can. The only gate in front of every read; its
 * verdict on a length does not wait for the bytes. */
static lnl_status need(const gguf *file, uint64_t bytes, const char *what, lnl_error *error) {
  const struct gguf_parse *p = &file->parse;
  subject_text text;
  if (bytes > GGUF_HEADER_LIMIT - p->cursor) {
    return error_set(error, LNL_GGUF_LIMIT,
                     "%s: %s of %llu bytes at offset %llu passes the limit of %llu for a header",
                     subject(file, text), what, (unsigned long long)bytes, (unsigned long long)p->cursor,
                     (unsigned long long)GGUF_HEADER_LIMIT);
  }
  uint64_t left = file->file_bytes > p->cursor ? file->file_bytes - p->cursor : 0;
  if (file->file_bytes != GGUF_SIZE_UNKNOWN && bytes > left) {
    return error_set(error, LNL_GGUF_TRUNCATED,
                     "%s: %s needs %llu bytes at offset %llu, but the file has only %llu bytes",
                     subject(file, text), what, (unsigned long long)bytes, (unsigned long long)p->cursor,
                     (unsigned long long)file->file_bytes);
  }
  return bytes <= p->image_bytes - p->cursor ? LNL_OK : LNL_NEED_BYTES;
}

#define NEED(bytes, what)                                                                                    \
  do {                                                                                                       \
    lnl_status need_ = need(file, (bytes), (what), error);                                                   \
    if (need_ != LNL_OK) return need_;                                                                       \
  } while (0)

/* The same for a length that was read from the file, plus `around` bytes:
 * saturates, as the length may be anything. */
static uint64_t with_length(uint64_t length, uint64_t around) {
  return length > UINT64_MAX - around ? UINT64_MAX : length + around;
}

/* --- steps ---------------------------------------------------------------------- */

static lnl_status not_gguf(const gguf *file, lnl_error *error) {
  const struct gguf_parse *p = &file->parse;
  uint64_t at = p->image_bytes >= 3 && memcmp(p->image, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  uint64_t end = u64_min(p->image_bytes, GGUF_BLANK_BYTES);
  while (at < end && (p->image[at] == ' ' || (p->image[at] >= '\t' && p->image[at] <= '\r'))) at++;
  if (at == end && end < GGUF_BLANK_BYTES && end != file->file_bytes) return LNL_NEED_BYTES;
  char first = at < end ? (char)p->image[at] : ' ';
  const char *guess = "";
  if (first == '<')
    guess = ": the server seems to have sent an HTML page in its place";
  else if (first == '{' || first == '[')
    guess = ": it looks like JSON, perhaps an error message of the server";
  else if (memcmp(p->image, "vers", 4) == 0)
    guess = ": it looks like a Git LFS pointer, not the file it points to";
  return error_set(error, LNL_NOT_GGUF,
                   "the data begins with '%.4s' (%02x %02x %02x %02x), not with 'GGUF'%s",
                   (const char *)p->image, p->image[0], p->image[1], p->image[2], p->image[3], guess);
}

static lnl_status step_magic(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  if (p->image_bytes < 4) return LNL_NEED_BYTES; /* too short a file: gguf_finish says so */
  if (memcmp(p->image, "GGUF", 4) != 0) return not_gguf(file, error);
  p->cursor = 4;
  p->phase = PHASE_VERSION;
  return LNL_OK;
}

static lnl_status step_version(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  NEED(4, "the version");
  uint32_t version = read_u32(p->image + p->cursor);
  if (version != 0 && (version & 0xffff) == 0) {
    return error_set(error, LNL_GGUF_VERSION,
                     "the file is big-endian (version %u with its bytes swapped); "
                     "only little-endian files are supported",
                     __builtin_bswap32(version));
  }
  if (version != 2 && version != 3) {
    return error_set(error, LNL_GGUF_VERSION, "the file has GGUF version %u; versions 2 and 3 are supported",
                     version);
  }
  file->version = version;
  p->cursor += 4;
  p->phase = PHASE_COUNTS;
  return LNL_OK;
}

static lnl_status step_counts(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  NEED(16, "the numbers of tensors and keys");
  uint64_t tensor_count = read_u64(p->image + p->cursor), kv_count = read_u64(p->image + p->cursor + 8);
  p->cursor += 16;
  uint64_t tensor_bytes, kv_bytes, bytes;
  if (!u64_mul(tensor_count, GGUF_MIN_TENSOR_BYTES, &tensor_bytes) ||
      !u64_mul(kv_count, GGUF_MIN_PAIR_BYTES, &kv_bytes) || !u64_add(tensor_bytes, kv_bytes, &bytes) ||
      bytes > GGUF_HEADER_LIMIT - p->cursor) {
    return error_set(error, LNL_GGUF_LIMIT,
                     "the header claims %llu tensors and %llu keys: more than %llu bytes can hold",
                     (unsigned long long)tensor_count, (unsigned long long)kv_count,
                     (unsigned long long)GGUF_HEADER_LIMIT);
  }
  if (file->file_bytes != GGUF_SIZE_UNKNOWN && bytes > file->file_bytes - p->cursor) {
    return error_set(
        error, LNL_GGUF_TRUNCATED,
        "the header claims %llu tensors and %llu keys, which need at least %llu bytes, but the file has "
        "only %llu bytes",
        (unsigned long long)tensor_count, (unsigned long long)kv_count, (unsigned long long)bytes,
        (unsigned long long)file->file_bytes);
  }
  file->tensor_count = tensor_count;
  file->kv_count = kv_count;
  p->phase = PHASE_KEY;
  return LNL_OK;
}

static lnl_status step_key(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  if (p->kv_seen == file->kv_count) {
    p->tensors_at = p->cursor;
    p->phase = PHASE_TENSOR;
    return LNL_OK;
  }
  NEED(8, "the length of the key");
  uint64_t length = read_u64(p->image + p->cursor);
  if (length == 0) {
    return error_set(error, LNL_GGUF_CORRUPT, "key %llu of %llu is empty", (unsigned long long)p->kv_seen,
                     (unsigned long long)file->kv_count);
  }
  NEED(with_length(length, 8 + 4), "the key");
  lnl_span key = read_string(p->image + p->cursor);
  uint32_t type = read_u32(p->image + p->cursor + 8 + length);
  if (type >= GGUF_TYPE_COUNT) {
    return error_set(error, LNL_GGUF_CORRUPT, "key '%.*s' has the value type %u; types are 0 to %d",
                     SPAN_ARGS(key), type, GGUF_TYPE_COUNT - 1);
  }
  if (type != GGUF_U32 && span_equals(key, "general.alignment")) {
    return error_set(error, LNL_GGUF_CORRUPT, "key 'general.alignment' must be of type u32 but is of type %s",
                     value_type_name(type));
  }
  p->entry_at = p->cursor;
  p->cursor += 8 + length + 4;
  p->value_type = type;
  p->phase = PHASE_VALUE;
  return LNL_OK;
}

static lnl_status end_pair(gguf *file) {
  file->parse.kv_seen++;
  file->parse.phase = PHASE_KEY;
  return LNL_OK;
}

static lnl_status step_value(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  subject_text text;
  if (p->value_type == GGUF_STRING) {
    NEED(8, "the length of the string");
    uint64_t bytes = with_length(read_u64(p->image + p->cursor), 8);
    NEED(bytes, "the string");
    p->cursor += bytes;
    return end_pair(file);
  }
  if (p->value_type != GGUF_ARRAY) {
    NEED(gguf_scalar_bytes(p->value_type), "the value");
    if (span_equals(read_string(p->image + p->entry_at), "general.alignment")) {
      uint32_t alignment = read_u32(p->image + p->cursor);
      if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        return error_set(error, LNL_GGUF_CORRUPT, "key 'general.alignment' is %u, not a power of 2",
                         alignment);
      }
      file->alignment = alignment;
    }
    p->cursor += gguf_scalar_bytes(p->value_type);
    return end_pair(file);
  }
  NEED(12, "the item type and count of the array");
  uint32_t item_type = read_u32(p->image + p->cursor);
  uint64_t count = read_u64(p->image + p->cursor + 4), bytes;
  if (item_type >= GGUF_TYPE_COUNT || item_type == GGUF_ARRAY) {
    return error_set(error, LNL_GGUF_CORRUPT, "%s is an array of %s (item type %u)", subject(file, text),
                     item_type == GGUF_ARRAY ? "arrays" : "an unknown type", item_type);
  }
  if (!u64_mul(count, item_type == GGUF_STRING ? 8 : gguf_scalar_bytes(item_type), &bytes))
    bytes = UINT64_MAX;
  if (item_type != GGUF_STRING) {
    NEED(with_length(bytes, 12), "the array");
    p->cursor += 12 + bytes;
    return end_pair(file);
  }
  /* the least that the strings can take: their lengths */
  lnl_status room = need(file, with_length(bytes, 12), "the array", error);
  if (room < 0) return room;
  p->cursor += 12;
  p->items_left = count;
  p->phase = PHASE_STRINGS;
  return LNL_OK;
}

static lnl_status step_strings(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  for (; p->items_left > 0; p->items_left--) {
    NEED(8, "the length of a string in the array");
    uint64_t bytes = with_length(read_u64(p->image + p->cursor), 8);
    NEED(bytes, "a string in the array");
    p->cursor += bytes;
  }
  return end_pair(file);
}

uint64_t gguf_read_tensor(const uint8_t *image, uint64_t at, gguf_tensor *tensor) {
  tensor->name = read_string(image + at);
  at += 8 + tensor->name.bytes;
  tensor->n_dims = read_u32(image + at);
  at += 4;
  for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) tensor->shape[i] = 1;
  for (uint32_t i = 0; i < tensor->n_dims; i++, at += 8) tensor->shape[i] = read_u64(image + at);
  tensor->type = read_u32(image + at);
  tensor->offset = read_u64(image + at + 4);
  return at + 12;
}

lnl_status gguf_measure_tensor(gguf_tensor *t, lnl_error *error) {
  const char *type_name;
  uint32_t block_len, block_bytes;
  if (!gguf_type_geometry(t->type, &type_name, &block_len, &block_bytes)) {
    const char *removed = gguf_removed_type(t->type);
    return error_set(error, LNL_UNSUPPORTED_TYPE, "tensor '%.*s' has type %u, which %s%s", SPAN_ARGS(t->name),
                     t->type, removed ? "was removed from the format: " : "is not known",
                     removed ? removed : "");
  }
  uint64_t count = 1;
  for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
    if (t->shape[i] > INT64_MAX) {
      return error_set(error, LNL_GGUF_CORRUPT, "tensor '%.*s': dimension %u is %lld", SPAN_ARGS(t->name), i,
                       (long long)t->shape[i]);
    }
    if (!u64_mul(count, t->shape[i], &count) || count > INT64_MAX) {
      return error_set(error, LNL_GGUF_CORRUPT,
                       "tensor '%.*s' of shape [%llu, %llu, %llu, %llu] has too many values",
                       SPAN_ARGS(t->name), (unsigned long long)t->shape[0], (unsigned long long)t->shape[1],
                       (unsigned long long)t->shape[2], (unsigned long long)t->shape[3]);
    }
  }
  if (t->shape[0] % block_len != 0) {
    return error_set(error, LNL_GGUF_CORRUPT,
                     "tensor '%.*s' of type %s has rows of %llu values, not a multiple of its block of %u",
                     SPAN_ARGS(t->name), type_name, (unsigned long long)t->shape[0], block_len);
  }
  if (!u64_mul(count / block_len, block_bytes, &t->bytes) || t->bytes > GGUF_DATA_LIMIT) {
    return error_set(
        error, LNL_GGUF_LIMIT, "tensor '%.*s' of type %s and %llu values passes the limit of %llu bytes",
        SPAN_ARGS(t->name), type_name, (unsigned long long)count, (unsigned long long)GGUF_DATA_LIMIT);
  }
  return LNL_OK;
}

static lnl_status step_tensor(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  if (p->tensor_seen == file->tensor_count) {
    LNL_TRY(gguf_make_tables(file, error));
    p->phase = PHASE_COMPLETE;
    return LNL_OK;
  }
  NEED(8, "the length of the name");
  uint64_t length = read_u64(p->image + p->cursor);
  if (length > GGUF_MAX_NAME_BYTES) {
    return error_set(error, LNL_GGUF_LIMIT,
                     "tensor %llu of %llu has a name of %llu bytes; at most %d are allowed",
                     (unsigned long long)p->tensor_seen, (unsigned long long)file->tensor_count,
                     (unsigned long long)length, GGUF_MAX_NAME_BYTES);
  }
  NEED(8 + length + 4, "the name");
  p->phase = PHASE_TENSOR_NAMED;
  uint32_t n_dims = read_u32(p->image + p->cursor + 8 + length);
  if (n_dims > GGUF_MAX_DIMS) {
    return error_set(error, LNL_GGUF_LIMIT, "tensor '%.*s' has %u dimensions; at most %d are allowed",
                     SPAN_ARGS(read_string(p->image + p->cursor)), n_dims, GGUF_MAX_DIMS);
  }
  uint64_t bytes = 8 + length + 4 + 8 * (uint64_t)n_dims + 4 + 8;
  NEED(bytes, "the shape, type and offset");
  gguf_tensor t;
  gguf_read_tensor(p->image, p->cursor, &t);
  LNL_TRY(gguf_measure_tensor(&t, error));
  /* until the header is complete, data_end counts from the start of the data, padded */
  if (t.offset != file->data_end) {
    return error_set(
        error, LNL_GGUF_CORRUPT,
        "tensor '%.*s' has offset %llu, expected %llu: each tensor begins at the aligned end of the one "
        "before",
        SPAN_ARGS(t.name), (unsigned long long)t.offset, (unsigned long long)file->data_end);
  }
  file->data_end += align_up(t.bytes, file->alignment);
  if (file->data_end > GGUF_DATA_LIMIT) {
    return error_set(error, LNL_GGUF_LIMIT, "tensor '%.*s' ends at %llu, past the limit of %llu bytes",
                     SPAN_ARGS(t.name), (unsigned long long)file->data_end,
                     (unsigned long long)GGUF_DATA_LIMIT);
  }
  p->cursor += bytes;
  p->tensor_seen++;
  p->phase = PHASE_TENSOR;
  return LNL_OK;
}

/* --- feeding ---------------------------------------------------------------------- */

void gguf_init(gguf *file, uint64_t file_bytes) {
  *file = (gguf){.file_bytes = file_bytes, .alignment = GGUF_DEFAULT_ALIGNMENT};
}

uint8_t *gguf_reserve(gguf *file, size_t bytes) {
  struct gguf_parse *p = &file->parse;
  if (p->phase >= PHASE_COMPLETE || bytes == 0 || bytes > GGUF_RESERVE_LIMIT) return NULL;
  uint64_t needed = p->image_bytes + bytes;
  /* a header within the limit may share its last chunk with what follows it */
  if (needed > GGUF_HEADER_LIMIT + GGUF_RESERVE_LIMIT) return NULL;
  if (needed > p->image_cap) {
    uint64_t cap = u64_max(p->image_cap + p->image_cap / 2, 4096);
    cap = u64_min(cap, file->file_bytes);
    cap = u64_max(cap, needed);
    uint8_t *image = mem_resize(p->image, (size_t)cap);
    if (!image) return NULL;
    p->image = image;
    p->image_cap = cap;
  }
  return p->image + p->image_bytes;
}

static lnl_status step(gguf *file, lnl_error *error) {
  switch (file->parse.phase) {
  case PHASE_MAGIC:
    return step_magic(file, error);
  case PHASE_VERSION:
    return step_version(file, error);
  case PHASE_COUNTS:
    return step_counts(file, error);
  case PHASE_KEY:
    return step_key(file, error);
  case PHASE_VALUE:
    return step_value(file, error);
  case PHASE_STRINGS:
    return step_strings(file, error);
  case PHASE_TENSOR:
  case PHASE_TENSOR_NAMED:
    return step_tensor(file, error);
  default:
    return LNL_INTERNAL;
  }
}

static lnl_status refused_before(lnl_error *error) {
  return error_set(error, LNL_BAD_STATE, "this header was refused already");
}

lnl_status gguf_push(gguf *file, size_t bytes, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  if (p->phase == PHASE_FAILED) return refused_before(error);
  if (p->phase == PHASE_COMPLETE) return LNL_OK;
  LNL_ASSERT(bytes <= p->image_cap - p->image_bytes);
  p->image_bytes += bytes;
  lnl_status status = LNL_OK;
  while (status == LNL_OK && p->phase != PHASE_COMPLETE) status = step(file, error);
  if (status < 0) p->phase = PHASE_FAILED;
  return status;
}

lnl_status gguf_finish(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  if (p->phase == PHASE_FAILED) return refused_before(error);
  if (p->phase == PHASE_COMPLETE) return LNL_OK;
  lnl_status status;
  subject_text text;
  if (p->phase == PHASE_MAGIC) {
    status = error_set(error, LNL_NOT_GGUF, "the data ends after %llu bytes without 'GGUF'",
                       (unsigned long long)p->image_bytes);
  } else {
    status = error_set(error, LNL_GGUF_TRUNCATED, "the data ends after %llu bytes, inside the header: at %s",
                       (unsigned long long)p->image_bytes, subject(file, text));
  }
  p->phase = PHASE_FAILED;
  return status;
}

void gguf_free(gguf *file) {
  mem_free(file->tensors);
  mem_free(file->parse.kv_offsets);
  mem_free(file->parse.image);
  *file = (gguf){.parse.phase = PHASE_FAILED};
}

uint64_t gguf_resident_bytes(const gguf *file) {
  const struct gguf_parse *p = &file->parse;
  uint64_t bytes = p->image_cap;
  if (p->kv_offsets) bytes += (2 * file->kv_count + 1) * sizeof *p->kv_offsets;
  if (file->tensors) bytes += file->tensor_count * sizeof *file->tensors;
  return bytes;
}
