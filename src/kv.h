/* The key-value cache: for each layer K [n_ctx, n_kv_head, d_head] and
 * V [n_ctx, n_kv_head, d_value], one block of the session scope. */
#ifndef LNL_KV_H
#define LNL_KV_H

#include "mem.h"
#include "model.h"

typedef enum kv_type { KV_AUTO = 0, KV_F32 = 1, KV_F16 = 2 } kv_type;

/* KV_AUTO holds f32 while that costs no more than this many bytes, else f16:
 * a small cache gains nothing from rounding. */
#define KV_AUTO_F32_BYTES (UINT64_C(32) << 20)

typedef struct lnl_kv {
  kv_type type; /* KV_F32 or KV_F16 once resolved */
  uint32_t n_ctx;
  uint32_t k_cols, v_cols;     /* values a position */
  uint64_t k_stride, v_stride; /* bytes of one layer's K and V, 64-byte aligned */
  uint8_t *k, *v;              /* of layer 0; the others follow */
} lnl_kv;

/* The type that KV_AUTO stands for; other types stand for themselves. */
kv_type kv_resolve_type(const lnl_hparams *hp, kv_type type, uint32_t n_ctx);
/* Bytes of the whole cache: what kv_layout takes. */
uint64_t kv_bytes(const lnl_hparams *hp, kv_type type, uint32_t n_ctx);
/* Measure/bind. type must be resolved. */
void kv_layout(lnl_kv *kv, lnl_arena *arena, const lnl_hparams *hp, kv_type type, uint32_t n_ctx);
/* Where the K and V of a layer begin. */
uint8_t *kv_k(const lnl_kv *kv, uint32_t layer);
uint8_t *kv_v(const lnl_kv *kv, uint32_t layer);
/* Writes one position's K and V rows (k_cols and v_cols floats) of a layer. */
void kv_store(const lnl_kv *kv, uint32_t layer, uint32_t position, const float *k, const float *v);
const char *kv_type_name(kv_type type);

#endif
