/* What a session keeps of earlier positions. For each layer with attention K (rows of d_head values a
 * position and kv head) and V (of d_value), laid out as attn_kv in kernels/kernels.h says; one block of the
 * session scope; K and V have a type each. Values are quantised as they are written: a position's bytes
 * depend on its own row only. For each layer with a short convolution its last inputs, f32 [conv_len - 1,
 * d_model]. Layers are counted by lnl_layer.state_index. */
#ifndef LNL_KV_H
#define LNL_KV_H

#include "kernels/kernels.h"
#include "mem.h"
#include "model.h"

typedef enum kv_type { KV_AUTO = 0, KV_F32 = 1, KV_F16 = 2, KV_Q8_0 = 3, KV_Q4_0 = 4, KV_TYPE_COUNT } kv_type;

typedef struct kv_types {
  kv_type k, v;
} kv_types;

/* KV_AUTO holds f32 while that costs no more than this many bytes, else f16:
 * a small cache gains nothing from rounding. */
#define KV_AUTO_F32_BYTES (UINT64_C(32) << 20)

typedef struct lnl_kv {
  kv_types types; /* not KV_AUTO */
  uint32_t n_ctx;
  uint32_t n_kv_head, d_head, d_value;
  uint64_t k_stride, v_stride; /* bytes of one layer's K and V, 64-byte aligned */
  uint64_t conv_stride;        /* bytes of one layer's last inputs */
  uint8_t *k, *v;              /* of layer 0; the others follow */
  uint8_t *conv;
  /* 1 once a half that is not finite was written, by whichever thread: attention then looks for
   * it, which takes it about a seventh of its time. */
  uint32_t has_infinite;
} lnl_kv;

/* Both of one type. */
kv_types kv_both(kv_type type);
/* Whether f32 for both costs no more than KV_AUTO_F32_BYTES. */
bool kv_is_small(const lnl_hparams *hp, uint32_t n_ctx);
/* What attention calls a resolved type. */
attn_kv kv_attn(kv_type type);
/* Bytes of the whole cache: what kv_layout takes. */
uint64_t kv_bytes(const lnl_hparams *hp, kv_types types, uint32_t n_ctx);
/* Measure/bind. Neither type may be KV_AUTO. */
void kv_layout(lnl_kv *kv, lnl_arena *arena, const lnl_hparams *hp, kv_types types, uint32_t n_ctx);
/* Where the K and V of a layer begin. */
uint8_t *kv_k(const lnl_kv *kv, uint32_t layer);
uint8_t *kv_v(const lnl_kv *kv, uint32_t layer);
float *kv_conv(const lnl_kv *kv, uint32_t layer);
/* Writes one position's K and V rows ([n_kv_head, d]) of a layer. */
void kv_store(lnl_kv *kv, uint32_t layer, uint32_t position, const float *k, const float *v);
/* Whether no half that was written is infinite or NaN. */
bool kv_is_finite(const lnl_kv *kv);
const char *kv_type_name(kv_type type);
enum { KV_NAME_BYTES = 12 };
/* "f16", or "q8_0/q4_0" where K and V differ. */
void kv_types_name(kv_types types, char out[KV_NAME_BYTES]);

#endif
