/* Push parser for GGUF v2 and v3 headers: bytes in, metadata and tensor
 * extents out. No I/O. The raw header bytes are kept in one block (the image)
 * and strings point into it, so nothing is copied and nothing is allocated
 * beyond what the file really holds.
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef LNL_GGUF_H
#define LNL_GGUF_H

#include "base.h"

typedef enum gguf_type {
  GGUF_U8 = 0,
  GGUF_I8,
  GGUF_U16,
  GGUF_I16,
  GGUF_U32,
  GGUF_I32,
  GGUF_F32,
  GGUF_BOOL,
  GGUF_STRING,
  GGUF_ARRAY,
  GGUF_U64,
  GGUF_I64,
  GGUF_F64,
  GGUF_TYPE_COUNT
} gguf_type;

enum { GGUF_MAX_DIMS = 4, GGUF_MAX_NAME_BYTES = 63 };
#define GGUF_SIZE_UNKNOWN UINT64_MAX

/* A metadata value, borrowed from the image. Valid until gguf_free. */
typedef struct gguf_value {
  gguf_type type;
  gguf_type item_type; /* arrays: type of the items */
  uint64_t item_count; /* arrays: number of items */
  lnl_span bytes;      /* strings: the text; else the raw little-endian bytes (unaligned) */
} gguf_value;

typedef struct gguf_tensor {
  lnl_span name;                 /* into the image */
  uint32_t type;                 /* GGML type id as stored: one that exists, with a form or not */
  uint32_t n_dims;               /* 0..4 */
  uint64_t shape[GGUF_MAX_DIMS]; /* innermost first, 1 beyond n_dims */
  uint64_t offset;               /* from the start of the file */
  uint64_t bytes;                /* stored size */
} gguf_tensor;

typedef struct gguf {
  /* results, valid once gguf_push returned LNL_OK */
  uint32_t version;
  uint64_t kv_count;
  uint64_t tensor_count;
  gguf_tensor *tensors; /* owned, [tensor_count], in file order */
  uint64_t alignment;
  uint64_t data_offset; /* where tensor data starts */
  uint64_t data_end;    /* end of the last tensor's bytes (unpadded) */
  uint64_t file_bytes;  /* as told to gguf_init, or GGUF_SIZE_UNKNOWN */
  /* private to gguf.c and its parts (gguf_image.h) */
  struct gguf_parse {
    uint8_t *image; /* owned: header bytes received so far */
    uint64_t image_bytes, image_cap;
    uint64_t cursor;     /* parsed up to here */
    uint64_t entry_at;   /* where the pair or tensor being read begins */
    uint64_t tensors_at; /* where the first tensor entry begins */
    uint64_t items_left; /* of the array being walked */
    uint64_t kv_seen, tensor_seen;
    uint32_t phase;
    uint32_t value_type; /* of the pair being read */
    bool complete;       /* the readers below may be called */
    /* owned: where each pair begins and where the last ends [kv_count + 1],
     * then pair numbers in the order of their keys [kv_count] */
    uint32_t *kv_offsets;
  } parse;
} gguf;

/* file_bytes: the size of the whole file, or GGUF_SIZE_UNKNOWN. Lengths and
 * counts are checked against it before anything is believed. */
void gguf_init(gguf *file, uint64_t file_bytes);
/* Room for `bytes` (1 to 16 MiB) more header bytes, to be written in place by
 * the caller and then announced with gguf_push. NULL when out of memory, or
 * when the image would pass 1 GiB; NULL too once the header is complete or
 * refused. Valid until the next call. */
uint8_t *gguf_reserve(gguf *file, size_t bytes);
/* `bytes` more bytes were written at the pointer of gguf_reserve. LNL_NEED_BYTES:
 * the header continues. LNL_OK: complete; bytes beyond the header are ignored
 * (the image is cut to the header). Negative: refused, message in *error.
 * The result is the same for any division of the file into pushes. */
lnl_status gguf_push(gguf *file, size_t bytes, lnl_error *error);
/* The source ended. LNL_OK if the header is complete, else GGUF_TRUNCATED or
 * NOT_GGUF (nothing, or no magic, was received). */
lnl_status gguf_finish(gguf *file, lnl_error *error);
void gguf_free(gguf *file);

/* Bytes held by the image and the tables, for the memory plan. */
uint64_t gguf_resident_bytes(const gguf *file);

/* --- reading, after LNL_OK ------------------------------------------------ */
/* The i-th pair in file order. */
void gguf_pair(const gguf *file, uint64_t index, lnl_span *key, gguf_value *value);
/* False when there is no such key. Binary search over the sorted keys: a hash
 * could be made to collide by a hostile file. */
bool gguf_find(const gguf *file, const char *key, gguf_value *value);
/* Any integer or bool type that fits; false when absent or of another type. */
bool gguf_get_u64(const gguf *file, const char *key, uint64_t *out);
bool gguf_get_i64(const gguf *file, const char *key, int64_t *out);
/* Item `index` of an array of integers or bools. */
bool gguf_get_u64_at(const gguf *file, const char *key, uint64_t index, uint64_t *out);
bool gguf_get_f32(const gguf *file, const char *key, float *out); /* f32 or f64 */
bool gguf_get_bool(const gguf *file, const char *key, bool *out);
bool gguf_get_string(const gguf *file, const char *key, lnl_span *out);
/* Walks an array of strings: start with *cursor = 0; false at the end. */
bool gguf_next_string(const gguf_value *array, uint64_t *cursor, lnl_span *out);

/* --- types ----------------------------------------------------------------- */
/* Block geometry of a GGML type id; false when it is not one that exists. */
bool gguf_type_geometry(uint32_t type, const char **name, uint32_t *block_len, uint32_t *block_bytes);

#endif
