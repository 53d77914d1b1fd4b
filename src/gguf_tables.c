/* What is made once a header is complete: pairs and tensors in tables, their
 * names in order, and whether the file can hold what it says. */
#include "gguf_image.h"
#include "mem.h"

typedef lnl_span (*name_at)(const gguf *file, uint32_t index);

static lnl_span tensor_name_at(const gguf *file, uint32_t index) { return file->tensors[index].name; }

/* Fills order[0, count) with 0.. sorted by name: a merge sort, since its bound
 * of count * log(count) holds whatever the file says. scratch: [count]. */
static void sort_names(const gguf *file, name_at name, uint32_t *order, uint32_t *scratch, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) order[i] = i;
  for (uint64_t run = 1; run < count; run *= 2) {
    for (uint64_t start = 0; start + run < count; start += 2 * run) {
      uint64_t middle = start + run, end = u64_min(start + 2 * run, count);
      if (compare_spans(name(file, order[middle - 1]), name(file, order[middle])) <= 0) continue;
      memcpy(scratch + start, order + start, (size_t)(middle - start) * sizeof *order);
      uint64_t left = start, right = middle, out = start;
      while (left < middle && right < end) {
        bool take_left = compare_spans(name(file, scratch[left]), name(file, order[right])) <= 0;
        order[out++] = take_left ? scratch[left++] : order[right++];
      }
      memcpy(order + out, scratch + left, (size_t)(middle - left) * sizeof *order);
    }
  }
}

/* Sorts and refuses a name that appears twice. order may be NULL: not kept. */
static lnl_status index_names(const gguf *file, name_at name, uint32_t *order, uint64_t count,
                              const char *what, lnl_error *error) {
  if (count < 2) {
    if (order && count == 1) order[0] = 0;
    return LNL_OK;
  }
  uint64_t tables = order ? 1 : 2;
  uint32_t *scratch = mem_alloc((size_t)(tables * count * sizeof *scratch));
  if (!scratch) {
    return error_set(error, LNL_OUT_OF_MEMORY, "no memory to sort the names of %llu %ss",
                     (unsigned long long)count, what);
  }
  if (!order) order = scratch + count;
  sort_names(file, name, order, scratch, (uint32_t)count);
  lnl_status status = LNL_OK;
  for (uint64_t i = 1; i < count && status == LNL_OK; i++) {
    lnl_span here = name(file, order[i]);
    if (compare_spans(name(file, order[i - 1]), here) == 0) {
      status = error_set(error, LNL_GGUF_DUPLICATE, "%s '%.*s' appears twice, as numbers %u and %u", what,
                         SPAN_ARGS(here), order[i - 1], order[i]);
    }
  }
  mem_free(scratch);
  return status;
}

/* Where the value at `at` of a complete pair ends. */
static uint64_t value_end(const uint8_t *image, uint64_t at, uint32_t type) {
  if (type == GGUF_STRING) return at + 8 + read_u64(image + at);
  if (type != GGUF_ARRAY) return at + gguf_scalar_bytes(type);
  uint32_t item_type = read_u32(image + at);
  uint64_t count = read_u64(image + at + 4);
  at += 12;
  if (item_type != GGUF_STRING) return at + count * gguf_scalar_bytes(item_type);
  for (; count > 0; count--) at += 8 + read_u64(image + at);
  return at;
}

static lnl_status index_pairs(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  uint64_t count = file->kv_count, at = 24;
  if (count == 0) return LNL_OK;
  p->kv_offsets = mem_alloc((size_t)((2 * count + 1) * sizeof *p->kv_offsets));
  if (!p->kv_offsets) {
    return error_set(error, LNL_OUT_OF_MEMORY, "no memory for the table of %llu keys",
                     (unsigned long long)count);
  }
  for (uint64_t i = 0; i < count; i++) {
    p->kv_offsets[i] = (uint32_t)at;
    at += 8 + read_u64(p->image + at);
    at = value_end(p->image, at + 4, read_u32(p->image + at));
  }
  p->kv_offsets[count] = (uint32_t)at;
  return index_names(file, key_at, p->kv_offsets + count + 1, count, "key", error);
}

static lnl_status index_tensors(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  uint64_t count = file->tensor_count, at = p->tensors_at;
  if (count == 0) return LNL_OK;
  uint64_t table_bytes = count * sizeof *file->tensors;
  file->tensors = table_bytes <= SIZE_MAX ? mem_alloc((size_t)table_bytes) : NULL;
  if (!file->tensors) {
    return error_set(error, LNL_OUT_OF_MEMORY, "no memory for the table of %llu tensors",
                     (unsigned long long)count);
  }
  for (uint64_t i = 0; i < count; i++) {
    gguf_tensor *t = &file->tensors[i];
    at = gguf_read_tensor(p->image, at, t);
    LNL_TRY(gguf_measure_tensor(t, error));
    t->offset += file->data_offset;
  }
  return index_names(file, tensor_name_at, NULL, count, "tensor", error);
}

/* Every tensor and the padding behind it must lie within a file of known size. */
static lnl_status check_extents(const gguf *file, lnl_error *error) {
  uint64_t have = file->file_bytes;
  if (have == GGUF_SIZE_UNKNOWN || file->tensor_count == 0) return LNL_OK;
  if (file->data_offset > have) {
    return error_set(error, LNL_GGUF_TRUNCATED,
                     "tensor data begins at offset %llu, but the file has only %llu bytes",
                     (unsigned long long)file->data_offset, (unsigned long long)have);
  }
  for (uint64_t i = 0; i < file->tensor_count; i++) {
    const gguf_tensor *t = &file->tensors[i];
    uint64_t end = t->offset + t->bytes, padded = t->offset + align_up(t->bytes, file->alignment);
    if (end > have) {
      return error_set(
          error, LNL_GGUF_TRUNCATED,
          "tensor '%.*s' lies at bytes %llu to %llu, but the file has only %llu bytes: %llu bytes of the "
          "tensor are missing, %llu bytes of the file",
          SPAN_ARGS(t->name), (unsigned long long)t->offset, (unsigned long long)end,
          (unsigned long long)have, (unsigned long long)(end - u64_max(have, t->offset)),
          (unsigned long long)(file->data_end - have));
    }
    if (padded > have) {
      return error_set(
          error, LNL_GGUF_TRUNCATED,
          "the padding behind tensor '%.*s' should end at byte %llu, but the file has only %llu bytes: "
          "%llu are missing",
          SPAN_ARGS(t->name), (unsigned long long)padded, (unsigned long long)have,
          (unsigned long long)(padded - have));
    }
  }
  return LNL_OK;
}

lnl_status gguf_make_tables(gguf *file, lnl_error *error) {
  struct gguf_parse *p = &file->parse;
  file->data_offset = align_up(p->cursor, file->alignment);
  file->data_end = file->data_offset;
  if (p->image_cap != p->cursor) { /* what came behind the header is not ours */
    uint8_t *image = mem_resize(p->image, (size_t)p->cursor);
    if (!image)
      return error_set(error, LNL_OUT_OF_MEMORY, "no memory to cut the header to %llu bytes",
                       (unsigned long long)p->cursor);
    p->image = image;
    p->image_cap = p->cursor;
  }
  p->image_bytes = p->cursor;
  LNL_TRY(index_pairs(file, error));
  LNL_TRY(index_tensors(file, error));
  if (file->tensor_count > 0) {
    const gguf_tensor *last = &file->tensors[file->tensor_count - 1];
    file->data_end = last->offset + last->bytes;
  }
  LNL_TRY(check_extents(file, error));
  p->complete = true;
  return LNL_OK;
}
