/* Reading a header that is complete, and the table of tensor types. */
#include "gguf.h"
#include "gguf_image.h"

#include <string.h>

/* --- types ------------------------------------------------------------------ */

typedef struct type_row {
  const char *name;
  uint16_t block_len, block_bytes; /* 0: removed from the format */
} type_row;

static const type_row type_rows[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [4] = {"Q4_2", 0, 0},        [5] = {"Q4_3", 0, 0},
    [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},      [8] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},
    [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},   [14] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},   [20] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},        [26] = {"I32", 1, 4},
    [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},        [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2},       [31] = {"Q4_0_4_4", 0, 0},   [32] = {"Q4_0_4_8", 0, 0},
    [33] = {"Q4_0_8_8", 0, 0},   [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},
    [36] = {"IQ4_NL_4_4", 0, 0}, [37] = {"IQ4_NL_4_8", 0, 0}, [38] = {"IQ4_NL_8_8", 0, 0},
    [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},    [41] = {"Q1_0", 128, 18},
    [42] = {"Q2_0", 64, 18},
};
enum { TYPE_ROW_COUNT = sizeof type_rows / sizeof type_rows[0] };

bool gguf_type_geometry(uint32_t type, const char **name, uint32_t *block_len, uint32_t *block_bytes) {
  if (type >= TYPE_ROW_COUNT || type_rows[type].block_len == 0) return false;
  if (name) *name = type_rows[type].name;
  if (block_len) *block_len = type_rows[type].block_len;
  if (block_bytes) *block_bytes = type_rows[type].block_bytes;
  return true;
}

const char *gguf_removed_type(uint32_t type) {
  return type < TYPE_ROW_COUNT && type_rows[type].block_len == 0 ? type_rows[type].name : NULL;
}

uint32_t gguf_scalar_bytes(uint32_t type) {
  static const uint8_t bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return bytes[type];
}

/* --- reading ------------------------------------------------------------------------ */

void gguf_pair(const gguf *file, uint64_t index, lnl_span *key, gguf_value *value) {
  const struct gguf_parse *p = &file->parse;
  LNL_ASSERT(p->complete && index < file->kv_count);
  uint64_t at = p->kv_offsets[index], end = p->kv_offsets[index + 1];
  *key = read_string(p->image + at);
  at += 8 + key->bytes;
  *value = (gguf_value){.type = (gguf_type)read_u32(p->image + at)};
  at += 4;
  if (value->type == GGUF_STRING) {
    at += 8;
  } else if (value->type == GGUF_ARRAY) {
    value->item_type = (gguf_type)read_u32(p->image + at);
    value->item_count = read_u64(p->image + at + 4);
    at += 12;
  }
  value->bytes = (lnl_span){p->image + at, (size_t)(end - at)};
}

bool gguf_find(const gguf *file, const char *key, gguf_value *value) {
  const struct gguf_parse *p = &file->parse;
  LNL_ASSERT(p->complete);
  lnl_span wanted = {(const uint8_t *)key, strlen(key)};
  const uint32_t *order = file->kv_count > 0 ? p->kv_offsets + file->kv_count + 1 : NULL;
  uint64_t low = 0, high = file->kv_count;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    int side = compare_spans(key_at(file, order[middle]), wanted);
    if (side == 0) {
      lnl_span found;
      gguf_pair(file, order[middle], &found, value);
      return true;
    }
    if (side < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return false;
}

/* A little-endian integer or bool as sign and magnitude. */
static bool read_integer(gguf_type type, const uint8_t *at, bool *negative, uint64_t *magnitude) {
  uint32_t bytes = gguf_scalar_bytes(type);
  bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
  bool is_unsigned = type == GGUF_U8 || type == GGUF_U16 || type == GGUF_U32 || type == GGUF_U64;
  if (bytes == 0 || (!is_signed && !is_unsigned && type != GGUF_BOOL)) return false;
  uint64_t raw = 0;
  for (uint32_t i = bytes; i-- > 0;) raw = raw << 8 | at[i];
  if (type == GGUF_BOOL) raw = raw != 0;
  *negative = is_signed && raw >> (8 * bytes - 1);
  *magnitude = *negative ? (0 - raw) & UINT64_MAX >> (64 - 8 * bytes) : raw;
  return true;
}

static bool get_integer(const gguf *file, const char *key, bool *negative, uint64_t *magnitude) {
  gguf_value value;
  return gguf_find(file, key, &value) && read_integer(value.type, value.bytes.data, negative, magnitude);
}

bool gguf_get_u64_at(const gguf *file, const char *key, uint64_t index, uint64_t *out) {
  gguf_value value;
  bool negative;
  uint64_t magnitude;
  if (!gguf_find(file, key, &value) || value.type != GGUF_ARRAY || index >= value.item_count) return false;
  const uint8_t *at = value.bytes.data + index * gguf_scalar_bytes(value.item_type);
  if (!read_integer(value.item_type, at, &negative, &magnitude) || negative) return false;
  *out = magnitude;
  return true;
}

bool gguf_get_u64(const gguf *file, const char *key, uint64_t *out) {
  bool negative;
  uint64_t magnitude;
  if (!get_integer(file, key, &negative, &magnitude) || negative) return false;
  *out = magnitude;
  return true;
}

bool gguf_get_i64(const gguf *file, const char *key, int64_t *out) {
  bool negative;
  uint64_t magnitude;
  if (!get_integer(file, key, &negative, &magnitude)) return false;
  if (!negative && magnitude > INT64_MAX) return false;
  *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
  return true;
}

bool gguf_get_f32(const gguf *file, const char *key, float *out) {
  gguf_value value;
  if (!gguf_find(file, key, &value)) return false;
  if (value.type == GGUF_F32) {
    uint32_t bits = read_u32(value.bytes.data);
    memcpy(out, &bits, sizeof bits);
    return true;
  }
  if (value.type != GGUF_F64) return false;
  uint64_t bits = read_u64(value.bytes.data);
  double wide;
  memcpy(&wide, &bits, sizeof bits);
  *out = (float)wide;
  return true;
}

bool gguf_get_bool(const gguf *file, const char *key, bool *out) {
  gguf_value value;
  if (!gguf_find(file, key, &value) || value.type != GGUF_BOOL) return false;
  *out = value.bytes.data[0] != 0;
  return true;
}

bool gguf_get_string(const gguf *file, const char *key, lnl_span *out) {
  gguf_value value;
  if (!gguf_find(file, key, &value) || value.type != GGUF_STRING) return false;
  *out = value.bytes;
  return true;
}

bool gguf_next_string(const gguf_value *array, uint64_t *cursor, lnl_span *out) {
  if (array->type != GGUF_ARRAY || array->item_type != GGUF_STRING) return false;
  if (*cursor >= array->bytes.bytes || array->bytes.bytes - *cursor < 8) return false;
  *out = read_string(array->bytes.data + *cursor);
  *cursor += 8 + out->bytes;
  return true;
}
