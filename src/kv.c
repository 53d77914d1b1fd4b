#include "kv.h"

#include <string.h>

#include "kernels/kernels.h"

static uint32_t item_bytes(kv_type type) { return type == KV_F16 ? 2 : 4; }

kv_type kv_resolve_type(const lnl_hparams *hp, kv_type type, uint32_t n_ctx) {
  if (type != KV_AUTO) return type;
  return kv_bytes(hp, KV_F32, n_ctx) <= KV_AUTO_F32_BYTES ? KV_F32 : KV_F16;
}

uint64_t kv_bytes(const lnl_hparams *hp, kv_type type, uint32_t n_ctx) {
  lnl_kv kv;
  lnl_arena measure = {0};
  kv_layout(&kv, &measure, hp, type, n_ctx);
  return measure.used_bytes;
}

void kv_layout(lnl_kv *kv, lnl_arena *arena, const lnl_hparams *hp, kv_type type, uint32_t n_ctx) {
  *kv = (lnl_kv){
      .type = type,
      .n_ctx = n_ctx,
      .k_cols = hp->n_kv_head * hp->d_head,
      .v_cols = hp->n_kv_head * hp->d_value,
  };
  kv->k_stride = align_up((uint64_t)n_ctx * kv->k_cols * item_bytes(type), MEM_ALIGN);
  kv->v_stride = align_up((uint64_t)n_ctx * kv->v_cols * item_bytes(type), MEM_ALIGN);
  kv->k = arena_take(arena, hp->n_layer * kv->k_stride);
  kv->v = arena_take(arena, hp->n_layer * kv->v_stride);
}

uint8_t *kv_k(const lnl_kv *kv, uint32_t layer) { return kv->k + layer * kv->k_stride; }
uint8_t *kv_v(const lnl_kv *kv, uint32_t layer) { return kv->v + layer * kv->v_stride; }

static void store_row(uint8_t *base, kv_type type, uint32_t position, const float *row, uint32_t cols) {
  uint8_t *dst = base + (size_t)position * cols * item_bytes(type);
  if (type == KV_F16) {
    f32_to_f16((uint16_t *)(void *)dst, row, cols);
  } else {
    memcpy(dst, row, (size_t)cols * sizeof(float));
  }
}

void kv_store(const lnl_kv *kv, uint32_t layer, uint32_t position, const float *k, const float *v) {
  LNL_ASSERT(position < kv->n_ctx);
  store_row(kv_k(kv, layer), kv->type, position, k, kv->k_cols);
  store_row(kv_v(kv, layer), kv->type, position, v, kv->v_cols);
}

const char *kv_type_name(kv_type type) {
  static const char *const names[] = {"auto", "f32", "f16"};
  return names[type];
}
