/* What the parts of the GGUF reader share: fields of the image. The
 * image is little-endian and unaligned; these read it on any host. Bounds are
 * the caller's affair. */
#ifndef LNL_GGUF_IMAGE_H
#define LNL_GGUF_IMAGE_H

#include <string.h>

#include "gguf.h"

/* Bytes of a metadata value of fixed size; 0 for strings and arrays.
 * type must be below GGUF_TYPE_COUNT. */
uint32_t gguf_scalar_bytes(uint32_t type);
/* The name of a type that once had this id, or NULL. */
const char *gguf_removed_type(uint32_t type);
/* A complete tensor entry at `at`; returns where the next one begins. The
 * offset is the file's own, from the start of the tensor data. */
uint64_t gguf_read_tensor(const uint8_t *image, uint64_t at, gguf_tensor *tensor);
/* Stored bytes of the tensor, or a refusal of its type or shape. */
lnl_status gguf_measure_tensor(gguf_tensor *t, lnl_error *error);
/* The cursor is at the end of the header. */
lnl_status gguf_make_tables(gguf *file, lnl_error *error);

/* %.*s of a name: enough of it to be recognised. */
#define SPAN_ARGS(span) (int)u64_min((span).bytes, 80), (const char *)(span).data

static inline uint32_t read_u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
static inline uint64_t read_u64(const uint8_t *at) { return read_u32(at) | (uint64_t)read_u32(at + 4) << 32; }

/* A length and the text behind it. */
static inline lnl_span read_string(const uint8_t *at) { return (lnl_span){at + 8, (size_t)read_u64(at)}; }

static inline lnl_span key_at(const gguf *file, uint32_t index) {
  return read_string(file->parse.image + file->parse.kv_offsets[index]);
}

/* The order of bytes, shorter first: < 0, 0, > 0. */
static inline int compare_spans(lnl_span a, lnl_span b) {
  size_t common = a.bytes < b.bytes ? a.bytes : b.bytes;
  int order = common > 0 ? memcmp(a.data, b.data, common) : 0;
  return order != 0 ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

#endif
