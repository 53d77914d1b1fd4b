/* Weights on their way in: which bytes are wanted next, where they go, and what
 * becomes of them there. Allocates nothing. */
#include <string.h>

#include "engine.h"

/* Streamed ones are packed when they are used: see stream.h. */
static bool is_packed(const lnl_weight *w) {
  return w->place.hold == HOLD_PACKED && w->place.domain != DOMAIN_STREAMED;
}

static uint64_t row_bytes(const lnl_weight *w) { return form_row_bytes(w->form, w->stored->shape[0]); }

/* The stage takes whole groups of rows of any packed weight, and enough of
 * them that the source is read in large pieces. */
lnl_status engine_layout_staging(lnl_engine *e, lnl_arena *arena) {
  enum { WORTHWHILE = 512 << 10 };
  e->stage_bytes = 0;
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    const lnl_weight *w = &e->model.weights[i];
    if (!is_packed(w)) continue;
    uint64_t enough = u64_max(row_bytes(w) * FORM_GROUP, WORTHWHILE);
    e->stage_bytes = u64_max(e->stage_bytes, u64_min(enough, w->place.stored_bytes));
  }
  e->stage = arena_take(arena, e->stage_bytes);
  return LNL_OK;
}

/* Another weight needs the stage: what waits there is fetched again later. */
static void claim_stage(lnl_engine *e, lnl_weight *w) {
  if (e->stage_weight == w) return;
  if (e->stage_weight) e->stage_weight->loaded_bytes -= e->staged_bytes;
  e->stage_weight = w;
  e->staged_bytes = 0;
}

lnl_status engine_ask_for(lnl_engine *e, lnl_weight *w) {
  uint64_t most = u64_min(w->place.stored_bytes - w->loaded_bytes, LNL_MAX_NEED_BYTES);
  /* A weight that is held as f32 but stored narrower lands at the end of its
   * place and is widened forwards from there. */
  uint64_t tail = w->place.hold == HOLD_F32 ? w->place.resident_bytes - w->place.stored_bytes : 0;
  uint8_t *to = w->data + tail + w->loaded_bytes;
  if (is_packed(w)) {
    claim_stage(e, w);
    to = e->stage + e->staged_bytes;
    most = u64_min(w->place.stored_bytes - w->loaded_bytes, e->stage_bytes - e->staged_bytes);
  }
  e->need_weight = w;
  e->need_piece = NULL;
  e->need = (lnl_need){
      .shard = w->shard,
      .offset = w->stored->offset + w->loaded_bytes,
      .bytes = (uint32_t)u64_min(most, LNL_MAX_NEED_BYTES),
      .pointer = to,
  };
  return LNL_NEED_BYTES;
}

lnl_status engine_ask_for_piece(lnl_engine *e, stream_piece *p) {
  const lnl_weight *w = p->weight;
  e->need_weight = p->weight;
  e->need_piece = p;
  e->need = (lnl_need){
      .shard = w->shard,
      .offset = w->stored->offset + p->row_begin * row_bytes(w) + p->loaded_bytes,
      .bytes = (uint32_t)u64_min(p->bytes - p->loaded_bytes, LNL_MAX_NEED_BYTES),
      .pointer = p->data + p->loaded_bytes,
  };
  return LNL_NEED_BYTES;
}

lnl_status lnl_load_next(lnl_engine *e) {
  if (e->phase != PHASE_BOUND) return error_set(&e->error, LNL_BAD_STATE, "memory is not bound");
  for (; e->load_cursor < e->model.weight_count; e->load_cursor++) {
    lnl_weight *w = &e->model.weights[e->load_cursor];
    if (w->place.domain == DOMAIN_STREAMED) continue;
    if (w->loaded_bytes < w->place.stored_bytes) return engine_ask_for(e, w);
  }
  e->need_weight = NULL;
  return LNL_OK;
}

/* Widens in place, one value at a time from the front: value i is read before
 * byte 4i + 3 is written, and no later value lies below that byte. */
static void widen_in_place(lnl_weight *w) {
  uint64_t count = w->place.resident_bytes / sizeof(float);
  const uint8_t *src = w->data + (w->place.resident_bytes - w->place.stored_bytes);
  for (uint64_t i = 0; i < count; i++) {
    float value;
    w->form->decode(src + i * w->form->block_bytes, &value, 1);
    memcpy(w->data + i * sizeof value, &value, sizeof value);
  }
}

/* Packs the whole groups that the stage holds, or all of it at the end, and
 * moves what is left to its front. */
static void pack_staged(lnl_engine *e, lnl_weight *w) {
  uint32_t k = (uint32_t)w->stored->shape[0];
  uint64_t row = row_bytes(w), group = row * FORM_GROUP;
  uint64_t packed_group = form_group_bytes(w->form, k);
  uint64_t first = (w->loaded_bytes - e->staged_bytes) / group;
  bool last = w->loaded_bytes == w->place.stored_bytes;
  uint64_t done = 0;
  for (; e->staged_bytes - done >= (last ? row : group); first++) {
    uint64_t bytes = u64_min(group, e->staged_bytes - done);
    w->form->packing->pack(e->stage + done, row, (uint32_t)(bytes / row), w->data + first * packed_group, k);
    done += bytes;
  }
  e->staged_bytes -= done;
  memmove(e->stage, e->stage + done, e->staged_bytes);
  if (last) e->stage_weight = NULL;
}

lnl_status lnl_load_fed(lnl_engine *e, uint32_t bytes) {
  if (!e->need_weight || bytes > e->need.bytes) {
    return error_set(&e->error, LNL_BAD_STATE, "more bytes were fed than were asked for");
  }
  lnl_weight *w = e->need_weight;
  e->need.offset += bytes;
  e->need.pointer += bytes;
  e->need.bytes -= bytes;
  if (e->need_piece) {
    e->need_piece->loaded_bytes += bytes;
    e->window.fetched_bytes += bytes;
    if (e->need.bytes == 0) e->need_weight = NULL;
    return LNL_OK;
  }
  w->loaded_bytes += bytes;
  bool complete = w->loaded_bytes == w->place.stored_bytes;
  if (is_packed(w)) {
    e->staged_bytes += bytes;
    if (complete || e->need.bytes == 0) pack_staged(e, w);
  }
  if (complete && w->place.hold == HOLD_F32) widen_in_place(w);
  if (e->need.bytes == 0) e->need_weight = NULL;
  return LNL_OK;
}

const lnl_need *lnl_get_need(const lnl_engine *e) { return &e->need; }

lnl_status lnl_need_later(lnl_engine *e) {
  if (!e->need_weight || e->need_piece != &e->window.ahead) return LNL_MORE;
  e->need_weight = NULL;
  e->window.later = true;
  return LNL_OK;
}

lnl_status lnl_load_ended(lnl_engine *e) {
  const lnl_weight *w = e->need_weight;
  if (!w) return error_set(&e->error, LNL_BAD_STATE, "no bytes were asked for");
  const stream_piece *p = e->need_piece;
  const uint64_t missing = p ? p->bytes - p->loaded_bytes : w->place.stored_bytes - w->loaded_bytes;
  e->phase = PHASE_FAILED;
  return error_set(&e->error, LNL_GGUF_TRUNCATED,
                   "the file ends inside tensor '%.*s': %llu of its %llu bytes are missing",
                   (int)w->stored->name.bytes, (const char *)w->stored->name.data,
                   (unsigned long long)missing, (unsigned long long)w->place.stored_bytes);
}
