/* The specifications of all forms. Where a build has vectors nothing calls them
 * but tests, so that no module holds them; where it has none they are the
 * kernels. */
#include "form_impl.h"

typedef struct form_spec {
  uint32_t type;
  void (*decode)(const uint8_t *src, float *dst, uint64_t n);
} form_spec;

static const form_spec specs[] = {
#define LNL_FORM(NAME, name, id, block_len, block_bytes, activation) {id, name##_decode_scalar},
#include "list.inc"
#undef LNL_FORM
};

void form_decode_scalar(const lnl_form *form, const uint8_t *src, float *dst, uint64_t n) {
  for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
    if (specs[i].type == form->type) specs[i].decode(src, dst, n);
}

/* One row with one token: all values, one after another. */
static float dot(const lnl_form *form, const lnl_matmul *m, const uint8_t *w, uint32_t token) {
  float sum = 0, value[256];
  for (uint32_t at = 0; at < m->k; at += form->block_len, w += form->block_bytes) {
    form_decode_scalar(form, w, value, form->block_len);
    for (uint32_t i = 0; i < form->block_len; i++) {
      const size_t x = (size_t)token * m->k + at + i;
      const float product =
          value[i] * (form->activation == ACT_F32 ? m->x_f32[x] : (float)m->x_q8.q[x] * m->x_q8.d[x / 32]);
      sum += product;
    }
  }
  return sum;
}

void form_matmul_scalar(const lnl_form *form, const lnl_matmul *m) {
  for (uint32_t token = 0; token < m->n_tok; token++)
    for (uint32_t row = m->row_begin; row < m->row_end; row++)
      *matmul_y(m, row, token) = dot(form, m, matmul_row(m, row), token);
}

#if !LNL_VEC
#define LNL_FORM(NAME, name, id, block_len, block_bytes, activation)                                         \
  void name##_decode(const uint8_t *src, float *dst, uint64_t n) { name##_decode_scalar(src, dst, n); }      \
  void name##_matmul(const lnl_matmul *m) { form_matmul_scalar(form_find(id), m); }
#include "list.inc"
#undef LNL_FORM
#endif
