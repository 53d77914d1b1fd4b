/* How large the window is, and what a token reads through it. */
#include "stream.h"

#include <string.h>

enum { ROW_UNIT = 16 }; /* what pieces are multiples of, and kernels like */

static bool is_streamed(const lnl_weight *w) { return w->place.domain == DOMAIN_STREAMED; }

/* Whether it is multiplied, not only looked up. */
static bool is_multiplied(const lnl_model *model, const lnl_weight *w) {
  return model_role_use(w->role) != USE_EMBED ||
         (w->role == ROLE_TOKEN_EMBD && model->tied_output && !model->embeds);
}

uint32_t stream_pack_rows(const lnl_weight *w, uint64_t piece_bytes) {
  enum { MOST = 256 };
  const uint64_t groups = STREAM_PACK_BYTES / form_group_bytes(w->form, w->stored->shape[0]);
  const uint64_t rows = u64_min(u64_min(groups * FORM_GROUP, piece_bytes / model_row_bytes(w)), MOST);
  return (uint32_t)u64_max(ROW_UNIT, rows / ROW_UNIT * ROW_UNIT);
}

void stream_layout(lnl_window *w, lnl_arena *arena, const lnl_model *model, uint32_t thread_count, bool ahead,
                   uint64_t wish_bytes, uint32_t expert_count) {
  uint64_t least = 0, most = 0, packed = 0;
  w->expert_bytes = 0;
  for (uint32_t i = 0; i < model->weight_count; i++) {
    const lnl_weight *one = &model->weights[i];
    if (!is_streamed(one)) continue;
    const uint64_t row = model_row_bytes(one), rows = is_multiplied(model, one) ? ROW_UNIT : 1;
    if (model_role_use(one->role) == USE_EXPERTS) {
      w->expert_bytes = u64_max(w->expert_bytes, align_up(row * one->stored->shape[1], MEM_ALIGN));
      if (expert_count) continue; /* it needs no slot */
    }
    least = u64_max(least, row * rows);
    most = u64_max(most, rows == 1 ? row : one->place.stored_bytes);
  }
  w->slot_count = ahead ? 2 : 1;
  const uint64_t wish = wish_bytes ? wish_bytes / w->slot_count : STREAM_SLOT_BYTES;
  w->slot_bytes = align_up(u64_max(least, u64_min(most, wish)), MEM_ALIGN);
  w->piece_bytes = u64_max(w->slot_bytes, expert_count ? w->expert_bytes : 0);
  for (uint32_t i = 0; i < model->weight_count; i++) {
    const lnl_weight *one = &model->weights[i];
    if (!is_streamed(one) || one->place.hold != HOLD_PACKED) continue;
    const uint64_t group = form_group_bytes(one->form, one->stored->shape[0]);
    packed = u64_max(packed, stream_pack_rows(one, w->piece_bytes) / FORM_GROUP * group);
  }
  w->packed_bytes = align_up(packed, MEM_ALIGN);
  w->slots = arena_take(arena, w->slot_bytes * w->slot_count);
  w->packed = arena_take(arena, w->packed_bytes * thread_count);
  w->expert_count = expert_count;
  w->experts = arena_take(arena, expert_count * sizeof *w->experts);
  w->expert_data = arena_take(arena, expert_count * w->expert_bytes);
  if (w->experts) memset(w->experts, 0, expert_count * sizeof *w->experts);
}

void stream_take_expert(lnl_window *w, stream_piece *piece, uint32_t e) {
  uint32_t i = 0, oldest = 0;
  for (; i < w->expert_count; i++) {
    if (w->experts[i].weight == piece->weight && w->experts[i].expert == e) break;
    if (w->experts[i].used < w->experts[oldest].used) oldest = i;
  }
  const bool found = i < w->expert_count;
  if (!found) i = oldest;
  w->experts[i] = (stream_expert){piece->weight, e, ++w->clock};
  w->hits += found;
  w->misses += !found;
  piece->loaded_bytes = found ? piece->bytes : 0;
  piece->data = w->expert_data + i * w->expert_bytes;
  piece->expert = &w->experts[i];
}

uint64_t stream_token_bytes(const lnl_model *model, const lnl_weight *w) {
  if (model->embeds && w->role == ROLE_OUTPUT) return 0; /* there, but not used */
  if (!is_multiplied(model, w)) return model_row_bytes(w);
  uint64_t bytes = w->place.stored_bytes;
  if (model_role_use(w->role) == USE_EMBED) bytes += model_row_bytes(w);
  if (model_role_use(w->role) == USE_EXPERTS) bytes = bytes / model->hp.n_expert * model->hp.n_expert_used;
  return bytes;
}

uint64_t stream_fetched_a_token(const lnl_model *model) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < model->weight_count; i++) {
    if (is_streamed(&model->weights[i])) bytes += stream_token_bytes(model, &model->weights[i]);
  }
  return bytes;
}

bool stream_is_needed(const lnl_model *model, const lnl_plan *plan, uint32_t i) {
  const int32_t weight = plan->steps[i].weight;
  return weight != NO_WEIGHT && is_streamed(&model->weights[weight]);
}
