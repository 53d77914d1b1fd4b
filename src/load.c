/* Weights on their way in: which bytes are wanted next, where they go, and what
 * becomes of them there. Allocates nothing. */
#include <string.h>

#include "engine.h"
#include "kernels/kernels.h"

static bool is_vector(const lnl_weight *w) { return model_role_is_vector(w->role); }

/* Whether its rows pass through the stage: what is packed or dequantised. Norms
 * and biases are widened in their place instead, and what is streamed is packed
 * when it is used: see stream.h. */
static bool is_staged(const lnl_weight *w) {
  return w->place.hold != HOLD_STORED && w->place.domain != DOMAIN_STREAMED && !is_vector(w);
}

/* The stage takes whole groups of rows of any such weight, and enough of them
 * that the source is read in large pieces. */
lnl_status engine_layout_staging(lnl_engine *e, lnl_arena *arena) {
  enum { WORTHWHILE = 512 << 10 };
  e->stage_bytes = 0;
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    const lnl_weight *w = &e->model.weights[i];
    if (!is_staged(w)) continue;
    uint64_t enough = u64_max(model_row_bytes(w) * FORM_GROUP, WORTHWHILE);
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
  /* A vector that is held as f32 but stored narrower lands at the end of its
   * place and is widened forwards from there. */
  uint64_t tail = w->place.hold == HOLD_F32 ? w->place.resident_bytes - w->place.stored_bytes : 0;
  uint8_t *to = w->data + (is_vector(w) ? tail : 0) + w->loaded_bytes;
  if (is_staged(w)) {
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

/* The i-th weight in the order of loading. */
static lnl_weight *in_order(const lnl_engine *e, uint32_t i) {
  return &e->model.weights[e->by_layer ? e->model.weights[i].turn : i];
}

static bool is_of_layer(const lnl_engine *e, int32_t weight) {
  return weight != NO_WEIGHT && model_role_in_layer(e->model.weights[weight].role);
}

/* When a weight is wanted: 0 before the layers, 1.. in one, then after them. */
static uint32_t load_group(const lnl_engine *e, uint32_t i) {
  if (is_of_layer(e, (int32_t)i)) return 1 + e->model.weights[i].layer;
  const plan_step *step = e->prefill.steps, *end = step + e->prefill.step_count;
  for (; step < end && !is_of_layer(e, step->weight); step++) {
    if (step->weight == (int32_t)i || step->weight_more == (int32_t)i) return 0;
  }
  return 1 + e->model.hp.n_layer;
}

lnl_status lnl_load_ahead(lnl_engine *e, bool by_layer) {
  if (e->phase != PHASE_BOUND || e->load_cursor > 0 || e->need_weight)
    return error_set(&e->error, LNL_BAD_STATE, "memory is not bound, or loading has begun");
  e->load_ahead = true;
  if (!by_layer) return LNL_OK;
  uint32_t count = e->model.weight_count, next = 0;
  for (uint32_t group = 0; group < e->model.hp.n_layer + 2; group++)
    for (uint32_t i = 0; i < count; i++)
      if (load_group(e, i) == group) e->model.weights[next++].turn = i;
  e->by_layer = true;
  return LNL_OK;
}

bool lnl_load_extent(const lnl_engine *e, uint32_t i, lnl_extent *extent) {
  if (i >= e->model.weight_count) return false;
  const lnl_weight *w = in_order(e, i);
  const bool streamed = w->place.domain == DOMAIN_STREAMED;
  *extent = (lnl_extent){w->shard, w->stored->offset, streamed ? 0 : w->place.stored_bytes};
  return true;
}

lnl_status engine_ask_for_piece(lnl_engine *e, stream_piece *p) {
  const lnl_weight *w = p->weight;
  e->need_weight = p->weight;
  e->need_piece = p;
  e->need = (lnl_need){
      .shard = w->shard,
      .offset = w->stored->offset + p->row_begin * model_row_bytes(w) + p->loaded_bytes,
      .bytes = (uint32_t)u64_min(p->bytes - p->loaded_bytes, LNL_MAX_NEED_BYTES),
      .pointer = p->data + p->loaded_bytes,
  };
  return LNL_NEED_BYTES;
}

lnl_status lnl_load_next(lnl_engine *e) {
  if (e->phase != PHASE_BOUND) return error_set(&e->error, LNL_BAD_STATE, "memory is not bound");
  for (; e->load_cursor < e->model.weight_count; e->load_cursor++) {
    lnl_weight *w = in_order(e, e->load_cursor);
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

/* One row of k values as f32 or f16. */
static void dequantise_row(const lnl_weight *w, const uint8_t *src, uint8_t *dst, uint32_t k) {
  enum { PIECE = 256 }; /* whole blocks of any form */
  float values[PIECE];
  for (uint32_t i = 0, n; i < k; i += n) {
    n = u32_min(k - i, PIECE);
    w->form->decode(src + form_row_bytes(w->form, i), values, n);
    if (w->place.hold == HOLD_F32) {
      memcpy(dst + (size_t)i * sizeof(float), values, n * sizeof(float));
    } else {
      f32_to_f16((uint16_t *)(void *)dst + i, values, n);
    }
  }
}

/* `count` stored rows, at most a group, as they are held. */
static void hold_rows(const lnl_weight *w, const uint8_t *src, uint64_t group, uint32_t count) {
  const uint32_t k = (uint32_t)w->stored->shape[0];
  if (w->place.hold == HOLD_PACKED) {
    const uint32_t n_row = (uint32_t)w->stored->shape[1], groups = form_group_count(n_row);
    const uint64_t matrix = group / groups; /* of several experts' */
    form_pack(w->form, src, model_row_bytes(w), count,
              w->data + matrix * groups * form_group_bytes(w->form, k), n_row, k, (uint32_t)(group % groups));
    return;
  }
  const uint64_t held = form_row_bytes(w->held, k);
  for (uint32_t i = 0; i < count; i++)
    dequantise_row(w, src + i * model_row_bytes(w), w->data + (group * FORM_GROUP + i) * held, k);
}

/* Moves the whole groups that the stage holds, or all of it at the end, to
 * their place, and what is left to its front. */
static void empty_stage(lnl_engine *e, lnl_weight *w) {
  uint64_t row = model_row_bytes(w), group = row * FORM_GROUP;
  uint64_t first = (w->loaded_bytes - e->staged_bytes) / group;
  bool last = w->loaded_bytes == w->place.stored_bytes;
  uint64_t done = 0;
  for (; e->staged_bytes - done >= (last ? row : group); first++) {
    uint64_t bytes = u64_min(group, e->staged_bytes - done);
    hold_rows(w, e->stage + done, first, (uint32_t)(bytes / row));
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
  if (is_staged(w)) {
    e->staged_bytes += bytes;
    if (complete || e->need.bytes == 0) empty_stage(e, w);
  }
  if (complete && w->place.hold == HOLD_F32 && is_vector(w)) widen_in_place(w);
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
