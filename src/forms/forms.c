/* The table of forms, and the layout of quantised activations. */
#include "form_impl.h"
#include "packings.h"

#if LNL_VEC == 2 && !defined(__wasm__)
bool vec_native_dot_i32_is_fast = true, vec_native_dot_takes_u8 = false;
#endif

#define KERNEL_SUFFIX_ACT_F32 ".f32."
#define KERNEL_SUFFIX_ACT_Q8  ".q8."

static const lnl_form forms[] = {
#define LNL_FORM(NAME, name, id, block_len, block_bytes, activation)                                         \
  {#NAME,                                                                                                    \
   #name KERNEL_SUFFIX_##activation VEC_ISA_NAME,                                                            \
   id,                                                                                                       \
   block_len,                                                                                                \
   block_bytes,                                                                                              \
   activation,                                                                                               \
   name##_decode,                                                                                            \
   name##_matmul,                                                                                            \
   PACKING_OF(name)},
#include "list.inc"
#undef LNL_FORM
};
enum { FORM_COUNT = sizeof forms / sizeof forms[0] };

const lnl_form *form_find(uint32_t type) {
  for (uint32_t i = 0; i < FORM_COUNT; i++)
    if (forms[i].type == type) return &forms[i];
  return NULL;
}

const lnl_form *form_list(uint32_t *count) {
  *count = FORM_COUNT;
  return forms;
}

uint64_t form_row_bytes(const lnl_form *form, uint64_t n) { return n / form->block_len * form->block_bytes; }

uint64_t form_group_bytes(const lnl_form *form, uint64_t k) {
  return k / form->block_len * form->packing->block_bytes;
}

/* Panels of equal width, but for whole blocks of any form. */
uint32_t form_panel(uint32_t k) {
  enum { UNIT = 256 };
  const uint32_t panels = (k + FORM_PANEL - 1) / FORM_PANEL;
  return panels > 1 ? (uint32_t)align_up((k + panels - 1) / panels, UNIT) : k;
}

uint64_t form_panel_at(const lnl_form *form, uint32_t n_row, uint32_t k, uint32_t group, uint32_t column) {
  const uint32_t in_tile = group % FORM_TILE, first = group - in_tile;
  const uint32_t left = form_group_count(n_row) - first;
  return first * form_group_bytes(form, k) + u32_min(left, FORM_TILE) * form_group_bytes(form, column) +
         in_tile * form_group_bytes(form, u32_min(form_panel(k), k - column));
}

void form_pack(const lnl_form *form, const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst,
               uint32_t n_row, uint32_t k, uint32_t group) {
  for (uint32_t column = 0, panel = form_panel(k); column < k; column += panel)
    form->packing->pack(src + form_row_bytes(form, column), row_bytes, row_count,
                        dst + form_panel_at(form, n_row, k, group, column), u32_min(panel, k - column));
}

void form_unpack_row(const lnl_form *form, const uint8_t *src, uint32_t n_row, uint32_t k, uint32_t row,
                     float *dst) {
  for (uint32_t column = 0, panel = form_panel(k); column < k; column += panel)
    form->packing->decode_row(src + form_panel_at(form, n_row, k, row / FORM_GROUP, column), row % FORM_GROUP,
                              dst + column, u32_min(panel, k - column));
}

/* Bytes of the three parts of a q8 block, each rounded up to 16. */
static uint64_t q8_q_bytes(uint64_t n) { return align_up(n, 16); }
static uint64_t q8_d_bytes(uint64_t n) { return align_up(n / 32 * sizeof(float), 16); }
static uint64_t q8_sums_bytes(uint64_t n) { return align_up(n / 16 * sizeof(int16_t), 16); }

uint64_t q8_bytes(uint32_t k, uint32_t n_tok) {
  const uint64_t n = (uint64_t)k * n_tok;
  return q8_q_bytes(n) + q8_d_bytes(n) + q8_sums_bytes(n);
}

lnl_q8 q8_view(void *block, uint32_t k, uint32_t n_tok) {
  const uint64_t n = (uint64_t)k * n_tok;
  uint8_t *q = block;
  uint8_t *d = q + q8_q_bytes(n);
  uint8_t *sums = d + q8_d_bytes(n);
  return (lnl_q8){(int8_t *)q, (float *)(void *)d, (int16_t *)(void *)sums};
}
