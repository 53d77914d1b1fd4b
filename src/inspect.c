/* What is in the file: metadata and tensors, as JSON and as text. Needs a
 * complete header, nothing more, so it works for models that we cannot run. */
#include <string.h>

#include "describe.h"
#include "engine.h"

#define ULL(x) ((unsigned long long)(x))

/* Arrays are cut after this many items; item_count tells how many there are. */
enum { SHOWN_ITEMS = 8, SHOWN_TEXT_BYTES = 120 };

static uint32_t item_width(gguf_type type) {
  static const uint8_t widths[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return widths[type];
}

static void add_real(lnl_text *text, double v, bool json) {
  /* JSON has neither infinities nor NaN. */
  if (json && !(v - v == 0)) {
    text_addf(text, v != v ? "\"nan\"" : v > 0 ? "\"inf\"" : "\"-inf\"");
  } else {
    text_addf(text, "%g", v);
  }
}

static void add_number(lnl_text *text, gguf_type type, const uint8_t *bytes, bool json) {
  union {
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    float f32;
    uint64_t u64;
    int64_t i64;
    double f64;
  } v = {0};
  memcpy(&v, bytes, item_width(type));
  switch (type) {
  case GGUF_U8:
    text_addf(text, "%u", (unsigned)bytes[0]);
    break;
  case GGUF_I8:
    text_addf(text, "%d", v.i8);
    break;
  case GGUF_U16:
    text_addf(text, "%u", (unsigned)v.u16);
    break;
  case GGUF_I16:
    text_addf(text, "%d", v.i16);
    break;
  case GGUF_U32:
    text_addf(text, "%u", v.u32);
    break;
  case GGUF_I32:
    text_addf(text, "%d", v.i32);
    break;
  case GGUF_F32:
    add_real(text, (double)v.f32, json);
    break;
  case GGUF_BOOL:
    text_addf(text, bytes[0] ? "true" : "false");
    break;
  case GGUF_U64:
    text_addf(text, "%llu", ULL(v.u64));
    break;
  case GGUF_I64:
    text_addf(text, "%lld", (long long)v.i64);
    break;
  case GGUF_F64:
    add_real(text, v.f64, json);
    break;
  default:
    text_addf(text, "null");
    break;
  }
}

static void add_string(lnl_text *text, lnl_span s, bool json) {
  if (json) {
    text_json_string(text, s);
    return;
  }
  lnl_span shown = {s.data, s.bytes < SHOWN_TEXT_BYTES ? s.bytes : SHOWN_TEXT_BYTES};
  text_json_string(text, shown);
  if (shown.bytes < s.bytes) text_addf(text, "... (%llu bytes)", ULL(s.bytes));
}

static void add_items(lnl_text *text, const gguf_value *value, bool json) {
  uint64_t shown = u64_min(value->item_count, SHOWN_ITEMS), cursor = 0;
  text_addf(text, "[");
  for (uint64_t i = 0; i < shown; i++) {
    if (i) text_addf(text, json ? "," : ", ");
    lnl_span item;
    if (value->item_type != GGUF_STRING) {
      add_number(text, value->item_type, value->bytes.data + i * item_width(value->item_type), json);
    } else if (gguf_next_string(value, &cursor, &item)) {
      add_string(text, item, json);
    }
  }
  text_addf(text, !json && shown < value->item_count ? ", ...]" : "]");
}

static const char *kind_name(gguf_type type) {
  static const char *const names[GGUF_TYPE_COUNT] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                     "bool", "string", "array", "u64", "i64", "f64"};
  return names[type];
}

static void json_pair(lnl_text *text, const gguf *file, uint64_t index) {
  lnl_span key;
  gguf_value value;
  gguf_pair(file, index, &key, &value);
  text_addf(text, "%s{\"key\":", index ? "," : "");
  text_json_string(text, key);
  text_addf(text, ",\"type\":\"%s\",", kind_name(value.type));
  if (value.type == GGUF_ARRAY) {
    text_addf(text, "\"item_type\":\"%s\",\"item_count\":%llu,\"first_items\":", kind_name(value.item_type),
              ULL(value.item_count));
    add_items(text, &value, true);
  } else {
    text_addf(text, "\"value\":");
    if (value.type == GGUF_STRING) {
      add_string(text, value.bytes, true);
    } else {
      add_number(text, value.type, value.bytes.data, true);
    }
  }
  text_addf(text, "}");
}

const char *describe_type(uint32_t type) {
  const char *name = "?";
  uint32_t block_len, block_bytes;
  gguf_type_geometry(type, &name, &block_len, &block_bytes);
  return name;
}

void describe_shape(lnl_text *text, const gguf_tensor *t) {
  text_addf(text, "[");
  for (uint32_t i = 0; i < t->n_dims; i++) text_addf(text, i ? ",%llu" : "%llu", ULL(t->shape[i]));
  text_addf(text, "]");
}

void lnl_inspect_json(const lnl_engine *e, lnl_text *text) {
  const gguf *file = &e->shards[0];
  text_addf(text, "{\"version\":%u,\"alignment\":%llu,\"data_offset\":%llu,\"shards\":%u,\"metadata\":[",
            file->version, ULL(file->alignment), ULL(file->data_offset), e->shard_count);
  for (uint64_t i = 0; i < file->kv_count; i++) json_pair(text, file, i);
  text_addf(text, "],\"tensors\":[");
  bool first = true;
  for (uint32_t s = 0; s < e->shard_count; s++) {
    for (uint64_t i = 0; i < e->shards[s].tensor_count; i++, first = false) {
      const gguf_tensor *t = &e->shards[s].tensors[i];
      text_addf(text, "%s{\"name\":", first ? "" : ",");
      text_json_string(text, t->name);
      text_addf(text, ",\"type\":\"%s\",\"type_id\":%u,\"shape\":", describe_type(t->type), t->type);
      describe_shape(text, t);
      text_addf(text, ",\"offset\":%llu,\"bytes\":%llu,\"shard\":%u}", ULL(t->offset), ULL(t->bytes), s);
    }
  }
  text_addf(text, "]}");
}

void lnl_inspect_text(const lnl_engine *e, lnl_text *text) {
  const gguf *file = &e->shards[0];
  text_addf(text, "GGUF v%u, %llu keys, data at byte %llu, alignment %llu\n\nmetadata\n", file->version,
            ULL(file->kv_count), ULL(file->data_offset), ULL(file->alignment));
  for (uint64_t i = 0; i < file->kv_count; i++) {
    lnl_span key;
    gguf_value value;
    gguf_pair(file, i, &key, &value);
    text_addf(text, "  %.*s = ", (int)key.bytes, (const char *)key.data);
    if (value.type == GGUF_ARRAY) {
      text_addf(text, "%s[%llu] ", kind_name(value.item_type), ULL(value.item_count));
      add_items(text, &value, false);
    } else if (value.type == GGUF_STRING) {
      add_string(text, value.bytes, false);
    } else {
      add_number(text, value.type, value.bytes.data, false);
    }
    text_addf(text, "\n");
  }
  text_addf(text, "\ntensors\n");
  for (uint32_t s = 0; s < e->shard_count; s++) {
    for (uint64_t i = 0; i < e->shards[s].tensor_count; i++) {
      const gguf_tensor *t = &e->shards[s].tensors[i];
      text_addf(text, "  %.*s  %s ", (int)t->name.bytes, (const char *)t->name.data, describe_type(t->type));
      describe_shape(text, t);
      text_addf(text, "  %llu bytes at %llu\n", ULL(t->bytes), ULL(t->offset));
    }
  }
}
