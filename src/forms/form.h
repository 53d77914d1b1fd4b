/* A form is a way in which a weight is held. One file per form, one line in
 * list.inc; the table made from it is what the loader, the resolver, the
 * kernels, the tests and explain iterate over. */
#ifndef LNL_FORM_H
#define LNL_FORM_H

#include "../base.h"

/* GGML type ids of the forms that exist; the id is the file's own. */
typedef enum lnl_type {
#define LNL_FORM(NAME, name, id, block_len, block_bytes, activation) TYPE_##NAME = (id),
#include "list.inc"
#undef LNL_FORM
} lnl_type;

/* What the matmul kernel of a form multiplies with. */
typedef enum lnl_activation {
  ACT_F32, /* float [n_tok, k] */
  ACT_Q8,  /* lnl_q8: int8 blocks of 32 with a float scale */
} lnl_activation;

/* n_tok rows of k activations quantised to int8, in blocks of 32:
 *   x[i] ~ d[i / 32] * q[i],  q in -127..127,  sums[i / 16] = sum of q over 16.
 * k is a multiple of 32. One memory block: q8_bytes(k, n_tok), laid out as
 * [q: n_tok*k][d: n_tok*k/32 floats][sums: n_tok*k/16 int16], each part
 * starting on 16 bytes. */
typedef struct lnl_q8 {
  int8_t *q;
  float *d;
  int16_t *sums;
} lnl_q8;
uint64_t q8_bytes(uint32_t k, uint32_t n_tok);
lnl_q8 q8_view(void *block, uint32_t k, uint32_t n_tok);

/* The operands of one matrix product y = x W^T.
 * W: [n_row, k] in the form's blocks, row_bytes apart. x: [n_tok, k]
 * (x_f32 or x_q8, as the form's activation says). y: float, y[t * y_stride + r].
 * Computes rows row_begin..row_end-1 for all tokens. Each y value depends only
 * on its own row and token: not on n_tok, nor on the range of rows, to the bit.
 * Pointers need no alignment beyond 4 (x, y) and 1 (W); nothing is read beyond
 * the row_end rows, or of a packed matrix beyond its last. bias is added by a step of its own. Does not
 * allocate. */
typedef struct lnl_matmul {
  const uint8_t *w;
  uint64_t row_bytes;            /* stored rows only */
  uint32_t w_n_row, w_row_begin; /* packed rows only: see lnl_packing.matmul */
  uint32_t k, row_begin, row_end;
  uint32_t n_tok;
  const float *x_f32;
  lnl_q8 x_q8;
  float *y;
  uint32_t y_stride;
} lnl_matmul;

/* A form's rows packed for a kernel: groups of FORM_GROUP rows interleaved, so
 * that the lanes of a vector are rows and a group is one sequential stream.
 * Made while the weight loads; one file per packed form, named name_x8.c.
 *
 * A packed matrix is a sequence of tiles of FORM_TILE groups, the last with what
 * is left, and a tile one of panels: so many columns of all its groups, group
 * after group. Rows of up to FORM_PANEL values have one panel. Longer ones are
 * cut, since the activations are read again for each group and must stay in the
 * first-level cache beside the weights that pass through it (a row of 8192: 15 to
 * 24 GB/s), and cut so that a tile still is one sequential stream: jumping from
 * group to group costs as much. */
enum { FORM_GROUP = 8, FORM_TILE = 32, FORM_PANEL = 2048 };
typedef struct lnl_packing {
  const char *kernel;   /* what explain calls its matmul kernel, e.g. "q4_0x8.q8.relaxed" */
  uint32_t block_bytes; /* of one block (block_len values) of FORM_GROUP rows */
  /* Packs row_count (1..FORM_GROUP) stored rows that lie row_bytes apart into
   * one group; rows that are missing become zeros. */
  void (*pack)(const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst, uint32_t k);
  /* The k values of one row (0..FORM_GROUP - 1) of a group, the same bits as
   * the form's decode. */
  void (*decode_row)(const uint8_t *group, uint32_t row, float *dst, uint32_t k);
  /* As lnl_form's; w is a packed matrix of w_n_row rows, of which w_row_begin
   * counts as row 0. It and row_begin are multiples of FORM_GROUP. */
  void (*matmul)(const lnl_matmul *m);
} lnl_packing;

typedef struct lnl_form {
  const char *name;   /* "Q4_K" */
  const char *kernel; /* what explain calls the matmul kernel, e.g. "q4_k.q8.relaxed" */
  uint32_t type;      /* GGML type id */
  uint32_t block_len; /* values a block */
  uint32_t block_bytes;
  lnl_activation activation;
  /* n values (a multiple of block_len), bit-exact as llama.cpp's dequantisation. */
  void (*decode)(const uint8_t *src, float *dst, uint64_t n);
  void (*matmul)(const lnl_matmul *m);
  const lnl_packing *packing; /* NULL when the stored blocks serve best */
} lnl_form;

/* NULL for a type that has no form. */
const lnl_form *form_find(uint32_t type);
/* All forms, in list order; *count receives how many. */
const lnl_form *form_list(uint32_t *count);
/* The specifications, scalar and slow, for tests (where nothing calls them the
 * linker drops them): as lnl_form's decode, the same bits; and as its matmul,
 * all k products of decoded values being added up in order. */
void form_decode_scalar(const lnl_form *form, const uint8_t *src, float *dst, uint64_t n);
void form_matmul_scalar(const lnl_form *form, const lnl_matmul *m);
/* Stored bytes of n values in a row; n must be a multiple of block_len. */
uint64_t form_row_bytes(const lnl_form *form, uint64_t n);
/* The last may be of fewer than FORM_GROUP rows. */
static inline uint32_t form_group_count(uint32_t n_row) { return (n_row + FORM_GROUP - 1) / FORM_GROUP; }
/* Of packed matrices [n_row, k]; the form must have a packing. Bytes of each group
 * of FORM_GROUP rows; those of the matrix are the sum of its groups'. */
uint64_t form_group_bytes(const lnl_form *form, uint64_t k);
/* The columns of each panel but the last, which may be narrower. */
uint32_t form_panel(uint32_t k);
/* Where the columns from `column` on (a multiple of form_panel) of a group begin. */
uint64_t form_panel_at(const lnl_form *form, uint32_t n_row, uint32_t k, uint32_t group, uint32_t column);
/* Packs row_count (1..FORM_GROUP) stored rows that lie row_bytes apart as that group
 * of the matrix at dst. */
void form_pack(const lnl_form *form, const uint8_t *src, uint64_t row_bytes, uint32_t row_count, uint8_t *dst,
               uint32_t n_row, uint32_t k, uint32_t group);
/* The k values of a row, the same bits as the form's decode. */
void form_unpack_row(const lnl_form *form, const uint8_t *src, uint32_t n_row, uint32_t k, uint32_t row,
                     float *dst);

#endif
