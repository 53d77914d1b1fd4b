/* Steps whose weight is streamed: which rows come next, and what is done with a
 * piece of them once it is in the window. */
#include "exec_ops.h"

static const plan_value *value_of(const lnl_exec *x, int32_t id) { return &x->plan->values[id]; }

static bool is_lookup(const plan_step *s) { return s->op == OP_EMBED || s->op == OP_EMBED_POSITION; }

/* --- which rows --------------------------------------------------------------------- */

/* How many of the rows that are left come next, where a slot holds `most`, which is a
 * multiple of 16: all pieces are about as large, since while one is computed the next is
 * read, and a small one would leave a thread without work. */
static uint32_t even_piece(uint32_t left, uint32_t most) {
  const uint32_t pieces = (left + most - 1) / most, even = (left + pieces - 1) / pieces;
  return u32_min(left, (even + 15) & ~15u);
}

/* The rows of a step's result from `at` on that come next, no more than a slot holds, or
 * a whole expert; false when there are none. */
static bool describe(const lnl_exec *x, uint32_t step, uint32_t at, stream_piece *p) {
  const plan_step *s = &x->plan->steps[step];
  lnl_weight *w = &x->model->weights[s->weight];
  const uint32_t cols = value_of(x, s->out)->cols;
  const uint32_t most = (uint32_t)u64_min(x->window->slot_bytes / model_row_bytes(w), UINT32_MAX) & ~15u;
  uint32_t row = at, count = 1;
  if (is_lookup(s)) {
    if (at >= x->n_tok) return false;
    row = s->op == OP_EMBED ? (uint32_t)x->tokens[at] : x->position + at;
  } else if (s->op == OP_MATMUL) {
    if (at >= cols) return false;
    row = s->row_begin + at;
    count = even_piece(cols - at, most);
  } else {
    LNL_ASSERT(s->op == OP_EXPERT_MATMUL);
    const uint32_t *first = exec_u32(x, value_of(x, s->in1), 0);
    uint32_t e = at / cols;
    while (e < x->model->hp.n_expert && first[e] == first[e + 1]) at = ++e * cols; /* no token chose it */
    if (e == x->model->hp.n_expert) return false;
    row = at;
    count =
        x->window->expert_count ? cols : even_piece(cols - at % cols, most); /* a place holds a whole one */
  }
  *p = (stream_piece){
      .weight = w,
      .step = step,
      .at = at,
      .end = at + count,
      .row_begin = row,
      .row_count = count,
      .bytes = count * model_row_bytes(w),
  };
  if (s->op == OP_EXPERT_MATMUL && x->window->expert_count) stream_take_expert(x->window, p, at / cols);
  return true;
}

/* What will be wanted after the present piece, as far as is known by now: which
 * experts, only once the step that chooses them has run. */
static bool look_ahead(const lnl_exec *x, const stream_piece *now, stream_piece *next) {
  if (describe(x, now->step, now->end, next)) return true;
  for (uint32_t step = now->step + 1; step < exec_last(x); step++) {
    if (!stream_is_needed(x->model, x->plan, step)) continue;
    const plan_step *s = &x->plan->steps[step];
    if (s->op == OP_EXPERT_MATMUL && value_of(x, s->in1)->first >= now->step) return false;
    return describe(x, step, 0, next);
  }
  return false;
}

static uint8_t *slot(const lnl_window *w, uint32_t i) { return w->slots + i * w->slot_bytes; }

/* --- what is done with them ----------------------------------------------------------- */

/* Rows row.. of the piece, n of them, for m's tokens; packed first where the kernel
 * wants them so. */
static void multiply(const stream_piece *p, lnl_matmul *m, uint32_t row, uint32_t n, uint8_t *packed) {
  const lnl_form *form = p->weight->form;
  const uint64_t stored = model_row_bytes(p->weight);
  m->row_begin = 0;
  m->row_end = n;
  m->w = p->data + row * stored;
  m->row_bytes = stored;
  if (p->weight->place.hold != HOLD_PACKED) {
    form->matmul(m);
    return;
  }
  for (uint32_t i = 0; i < n; i += FORM_GROUP)
    form_pack(form, m->w + i * stored, stored, u32_min(FORM_GROUP, n - i), packed, n, m->k, i / FORM_GROUP);
  m->w = packed;
  m->w_n_row = n;
  form->packing->matmul(m);
}

/* One thread's part of the present piece: whoever is free takes the next rows, since
 * thread 0 comes later. Which thread has which rows does not matter to the bit. */
static void run_piece(void *context, uint32_t thread) {
  const lnl_exec *x = context;
  lnl_window *w = x->window;
  const stream_piece *p = &w->now;
  const plan_step *s = &x->plan->steps[p->step];
  const plan_value *out = value_of(x, s->out);
  uint32_t begin = 0, n_tok;
  if (s->op == OP_EXPERT_MATMUL) {
    const uint32_t *first = exec_u32(x, value_of(x, s->in1), 0) + p->at / out->cols;
    begin = first[0];
    n_tok = first[1] - first[0];
  } else {
    n_tok = exec_row_count(x, out);
  }
  lnl_matmul m = exec_product(x, s, begin, n_tok);
  float *y = m.y + p->at % out->cols;
  uint32_t unit = p->weight->place.hold == HOLD_PACKED ? stream_pack_rows(p->weight, w->piece_bytes) : 64;
  /* small enough that all threads get some, and end at about the same time */
  if (x->pool->thread_count > 1)
    unit = u32_min(unit, u32_max(16, p->row_count / (4 * x->pool->thread_count) & ~15u));
  for (;;) {
    const uint32_t row = __atomic_fetch_add(&w->claimed, unit, __ATOMIC_RELAXED);
    if (row >= p->row_count) return;
    m.y = y + row;
    multiply(p, &m, row, u32_min(unit, p->row_count - row), w->packed + thread * w->packed_bytes);
  }
}

/* The row of one token that is looked up. */
static void decode_piece(const lnl_exec *x, const stream_piece *p) {
  const plan_value *out = value_of(x, x->plan->steps[p->step].out);
  p->weight->form->decode(p->data, exec_f32(x, out, p->at), out->cols);
}

/* --- the window ----------------------------------------------------------------------- */

lnl_status exec_stream_step(lnl_exec *x, stream_piece **piece) {
  lnl_window *w = x->window;
  for (;;) {
    if (!w->running) {
      if (!w->now.weight) {
        if (!describe(x, x->step, w->at, &w->now)) break;
        if (!w->now.data) w->now.data = slot(w, 0);
      }
      if (w->now.step != x->step) break; /* it was read ahead, for a step to come */
      *piece = &w->now;
      if (w->now.loaded_bytes < w->now.bytes) return LNL_NEED_BYTES;
      w->ahead = (stream_piece){0};
      if (is_lookup(&x->plan->steps[x->step])) {
        decode_piece(x, &w->now);
      } else {
        w->claimed = 0;
        w->running = true;
        if (w->slot_count > 1 && !x->step_limit && look_ahead(x, &w->now, &w->ahead) && !w->ahead.data)
          w->ahead.data = slot(w, w->now.data == slot(w, 0));
        pool_start(x->pool, run_piece, x);
      }
    }
    *piece = &w->ahead;
    if (!w->later && w->ahead.loaded_bytes < w->ahead.bytes) return LNL_NEED_BYTES;
    if (w->running) {
      w->running = w->later = false;
      LNL_TRY(pool_finish(x->pool));
    }
    w->at = w->now.end;
    w->now = w->ahead;
    w->ahead = (stream_piece){0};
  }
  *piece = NULL;
  w->at = 0;
  return LNL_OK;
}

/* The place of an expert that did not come is empty. */
static void forget(const stream_piece *p) {
  if (p->expert && p->loaded_bytes < p->bytes) *p->expert = (stream_expert){0};
}

void exec_settle(lnl_exec *x) {
  lnl_window *w = x->window;
  if (!w) return;
  if (w->running) pool_finish(x->pool);
  forget(&w->now);
  forget(&w->ahead);
  w->running = w->later = false;
  w->now = w->ahead = (stream_piece){0};
  w->at = 0;
}
