#include "kv.h"

#include "fmt.h"

attn_kv kv_attn(kv_type type) {
  LNL_ASSERT(type > KV_AUTO && type < KV_TYPE_COUNT);
  static const attn_kv kinds[KV_TYPE_COUNT] = {
      [KV_F32] = ATTN_F32, [KV_F16] = ATTN_F16, [KV_Q8_0] = ATTN_Q8_0, [KV_Q4_0] = ATTN_Q4_0};
  return kinds[type];
}

kv_types kv_both(kv_type type) { return (kv_types){type, type}; }

bool kv_is_small(const lnl_hparams *hp, uint32_t n_ctx) {
  return kv_bytes(hp, kv_both(KV_F32), n_ctx) <= KV_AUTO_F32_BYTES;
}

uint64_t kv_bytes(const lnl_hparams *hp, kv_types types, uint32_t n_ctx) {
  lnl_kv kv;
  lnl_arena measure = {0};
  kv_layout(&kv, &measure, hp, types, n_ctx);
  return measure.used_bytes;
}

void kv_layout(lnl_kv *kv, lnl_arena *arena, const lnl_hparams *hp, kv_types types, uint32_t n_ctx) {
  *kv = (lnl_kv){
      .types = types,
      .n_ctx = n_ctx,
      .n_kv_head = hp->n_kv_head,
      .d_head = hp->d_head,
      .d_value = hp->d_value,
  };
  kv->k_stride = align_up(attn_kv_bytes(kv_attn(types.k), n_ctx, hp->n_kv_head, hp->d_head), MEM_ALIGN);
  kv->v_stride = align_up(attn_kv_bytes(kv_attn(types.v), n_ctx, hp->n_kv_head, hp->d_value), MEM_ALIGN);
  kv->conv_stride =
      align_up((uint64_t)(u32_max(hp->conv_len, 1) - 1) * hp->d_model * sizeof(float), MEM_ALIGN);
  kv->k = arena_take(arena, hp->n_attn_layer * kv->k_stride);
  kv->v = arena_take(arena, hp->n_attn_layer * kv->v_stride);
  kv->conv = arena_take(arena, hp->n_conv_layer * kv->conv_stride);
}

uint8_t *kv_k(const lnl_kv *kv, uint32_t layer) { return kv->k + layer * kv->k_stride; }
uint8_t *kv_v(const lnl_kv *kv, uint32_t layer) { return kv->v + layer * kv->v_stride; }

float *kv_conv(const lnl_kv *kv, uint32_t layer) {
  return (float *)(void *)(kv->conv + layer * kv->conv_stride);
}

void kv_store(lnl_kv *kv, uint32_t layer, uint32_t position, const float *k, const float *v) {
  LNL_ASSERT(position < kv->n_ctx);
  const bool k_finite = attn_kv_store(kv_k(kv, layer), kv_attn(kv->types.k), ATTN_K, kv->n_ctx, kv->n_kv_head,
                                      kv->d_head, position, k);
  const bool v_finite = attn_kv_store(kv_v(kv, layer), kv_attn(kv->types.v), ATTN_V, kv->n_ctx, kv->n_kv_head,
                                      kv->d_value, position, v);
  if (!k_finite || !v_finite) __atomic_store_n(&kv->has_infinite, 1, __ATOMIC_RELAXED);
}

bool kv_is_finite(const lnl_kv *kv) { return !__atomic_load_n(&kv->has_infinite, __ATOMIC_RELAXED); }

const char *kv_type_name(kv_type type) {
  static const char *const names[KV_TYPE_COUNT] = {"auto", "f32", "f16", "q8_0", "q4_0"};
  return names[type];
}

void kv_types_name(kv_types types, char out[KV_NAME_BYTES]) {
  size_t used = fmt_print(out, KV_NAME_BYTES, "%s", kv_type_name(types.k));
  if (types.k != types.v) fmt_print(out + used, KV_NAME_BYTES - used, "/%s", kv_type_name(types.v));
}
