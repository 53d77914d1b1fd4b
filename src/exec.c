#include "exec.h"

#include <math.h>
#include <string.h>

#include "exec_ops.h"
#include "kernels/kernels.h"

/* A kernel call covers at most this many rows: engines swap baseline code for
 * optimised code between calls only, so one long call would stay slow. */
enum { ROWS_PER_CALL = 256, ROW_UNIT = 16 };

float *exec_f32(const lnl_exec *x, const plan_value *v, uint32_t row) {
  return (float *)(void *)(x->slab + v->offset) + (size_t)row * v->cols;
}

static lnl_q8 q8_at(const lnl_exec *x, const plan_value *v) {
  return q8_view(x->slab + v->offset, v->cols, plan_value_rows(x->plan, v->rows));
}

/* Rows of a value that this run computes. */
uint32_t exec_row_count(const lnl_exec *x, const plan_value *v) {
  switch (v->rows) {
  case ROWS_TOKENS:
    return x->n_tok;
  case ROWS_OUTPUT:
    return x->n_tok - x->output_begin;
  case ROWS_ROUTED:
    return x->n_tok * x->model->hp.n_expert_used;
  case ROWS_ONE:
    return 1;
  }
  return 0;
}

/* One row of a matrix that is looked up, as floats. */
static void decode_row(const lnl_weight *w, uint32_t row, float *out, uint32_t k) {
  const lnl_form *form = w->held;
  if (w->place.hold == HOLD_PACKED) {
    form_unpack_row(form, w->data, (uint32_t)w->stored->shape[1], k, row, out);
  } else {
    form->decode(w->data + row * form_row_bytes(form, k), out, k);
  }
}

void op_embed(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++)
    decode_row(o->weight, (uint32_t)x->tokens[t], exec_f32(x, o->out, t), o->out->cols);
}

void op_embed_position(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++)
    decode_row(o->weight, x->position + t, exec_f32(x, o->out, t), o->out->cols);
}

/* How much of pair i keeps its angle where YaRN scales the others. */
static double yarn_keep(const rope_params *rope, uint32_t i) {
  double at = ((double)i - (double)rope->ramp_low) / fmax(0.001, (double)(rope->ramp_high - rope->ramp_low));
  return 1 - fmin(1, fmax(0, at));
}

void op_rope_table(const lnl_exec *x, const operands *o) {
  uint32_t half = o->out->cols / 2;
  const rope_params *rope = &x->model->hp.rope[o->step->rope];
  const float *inverse_freq = x->inverse_freq + o->step->rope * half;
  const lnl_weight *w = x->long_text && o->weight_more ? o->weight_more : o->weight;
  const float *factors = w ? (const float *)(const void *)w->data : NULL;
  for (uint32_t t = o->begin; t < o->end; t++) {
    float *cos_row = exec_f32(x, o->out, t), *sin_row = cos_row + half;
    for (uint32_t i = 0; i < half; i++) {
      double angle = (double)(x->position + t) * (double)inverse_freq[i];
      if (factors) angle /= (double)factors[i];
      double keep = rope->yarn ? yarn_keep(rope, i) : 0;
      angle = keep * angle + (1 - keep) * angle * (double)rope->scale;
      double sin, cos;
      rope_sin_cos(angle, &sin, &cos);
      cos_row[i] = (float)cos * rope->magnitude;
      sin_row[i] = (float)sin * rope->magnitude;
    }
  }
}

static void normalise(const lnl_exec *x, const operands *o,
                      void (*norm)(float *, const float *, const float *, uint32_t, float)) {
  const float *w = (const float *)(const void *)o->weight->data;
  const uint32_t parts = o->step->n_head, n = o->out->cols / parts;
  const uint32_t w_stride = o->weight->stored->shape[1] > 1 ? n : 0; /* weights of each head its own */
  for (uint32_t t = o->begin; t < o->end; t++) {
    float *y = exec_f32(x, o->out, t);
    const float *from = exec_f32(x, o->in0, t);
    for (uint32_t i = 0; i < parts; i++) norm(y + i * n, from + i * n, w + i * w_stride, n, x->model->hp.eps);
  }
}
void op_rms_norm(const lnl_exec *x, const operands *o) { normalise(x, o, rms_norm); }
void op_layer_norm(const lnl_exec *x, const operands *o) { normalise(x, o, layer_norm); }

void op_quant(const lnl_exec *x, const operands *o) {
  uint32_t n = o->out->cols;
  lnl_q8 q = q8_at(x, o->out);
  for (uint32_t t = o->begin; t < o->end; t++) {
    quant_q8(q.q + (size_t)t * n, q.d + (size_t)t * (n / 32), q.sums + (size_t)t * (n / 16),
             exec_f32(x, o->in0, t), n);
  }
}

lnl_matmul exec_product(const lnl_exec *x, const plan_step *s, uint32_t begin, uint32_t n_tok) {
  const lnl_weight *w = &x->model->weights[s->weight];
  const plan_value *out = &x->plan->values[s->out], *in0 = &x->plan->values[s->in0];
  const uint32_t k = (uint32_t)w->stored->shape[0];
  lnl_matmul m = {.k = k, .n_tok = n_tok, .y = exec_f32(x, out, begin), .y_stride = out->cols};
  if (w->held->activation == ACT_Q8) {
    lnl_q8 q = q8_at(x, in0);
    size_t at = (size_t)begin * k;
    m.x_q8 = (lnl_q8){q.q + at, q.d + at / 32, q.sums + at / 16};
  } else {
    m.x_f32 = exec_f32(x, in0, begin);
  }
  return m;
}

/* Rows of out for the rows begin.. of in0, n_tok of them, from w's row
 * row_begin on: this thread's share, a bounded number a call. */
static void product(const lnl_exec *x, const operands *o, uint32_t row_begin, uint32_t begin,
                    uint32_t n_tok) {
  const lnl_form *form = o->weight->held;
  bool packed = o->weight->place.hold == HOLD_PACKED;
  void (*matmul)(const lnl_matmul *) = packed ? form->packing->matmul : form->matmul;
  lnl_matmul m = exec_product(x, o->step, begin, n_tok);
  m.row_bytes = form_row_bytes(form, m.k);
  m.w = o->weight->data + row_begin * m.row_bytes; /* y is of the part that is asked for */
  if (packed) {
    m.w_n_row = (uint32_t)o->weight->stored->shape[1];
    m.w_row_begin = row_begin % m.w_n_row;
    m.w = o->weight->data + (row_begin - m.w_row_begin) / FORM_GROUP * form_group_bytes(form, m.k);
  }
  pool_range rows = pool_split(o->out->cols, ROW_UNIT, o->thread, o->thread_count);
  for (uint32_t row = rows.begin; row < rows.end; row = m.row_end) {
    m.row_begin = row;
    m.row_end = u32_min(row + ROWS_PER_CALL, rows.end);
    matmul(&m);
  }
}

void op_matmul(const lnl_exec *x, const operands *o) {
  product(x, o, o->step->row_begin, 0, exec_row_count(x, o->out));
}

void op_expert_matmul(const lnl_exec *x, const operands *o) {
  const uint32_t *first = exec_u32(x, o->in1, 0);
  for (uint32_t e = 0; e < x->model->hp.n_expert; e++) {
    if (first[e] == first[e + 1]) continue;
    product(x, o, e * o->out->cols, first[e], first[e + 1] - first[e]);
  }
}

void op_add_bias(const lnl_exec *x, const operands *o) {
  const float *bias = (const float *)(const void *)o->weight->data + o->step->row_begin;
  for (uint32_t t = o->begin; t < o->end; t++) vec_add(exec_f32(x, o->out, t), bias, o->out->cols);
}

void op_rope(const lnl_exec *x, const operands *o) {
  uint32_t n_rot = o->in0->cols, n_head = o->step->n_head;
  for (uint32_t t = o->begin; t < o->end; t++) {
    const float *table = exec_f32(x, o->in0, t);
    float *row = exec_f32(x, o->out, t);
    if (x->model->arch->rope == ROPE_NORM) {
      rope_norm(row, n_head, o->out->cols / n_head, n_rot, table, table + n_rot / 2);
    } else {
      rope_neox(row, n_head, o->out->cols / n_head, n_rot, table, table + n_rot / 2);
    }
  }
}

void op_kv_store(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++) {
    kv_store(x->kv, x->model->layers[o->step->layer].state_index, x->position + t, exec_f32(x, o->in0, t),
             exec_f32(x, o->in1, t));
  }
}

/* A window that reaches both ways: the token at p sees keys p - half to p + half.
 * For the kernel that is a token at the last of these that looks back so far. */
static void attn_both_ways(lnl_attn a, const operands *o) {
  const uint32_t half = a.window / 2;
  const pool_range mine = pool_split(a.n_tok, 1, o->thread, o->thread_count);
  a.head_end = a.n_head;
  a.causal = true;
  a.n_tok = 1;
  a.q += (size_t)mine.begin * a.q_stride;
  a.out += (size_t)mine.begin * a.out_stride;
  for (uint32_t p = mine.begin; p < mine.end; p++, a.q += a.q_stride, a.out += a.out_stride) {
    a.position = u32_min(p + half, a.n_key - 1);
    a.window = a.position - p + half + 1;
    attn(&a);
  }
}

void op_attn(const lnl_exec *x, const operands *o) {
  const lnl_hparams *hp = &x->model->hp;
  const lnl_layer *layer = &x->model->layers[o->step->layer];
  const lnl_attn a = {
      .out = exec_f32(x, o->out, 0),
      .q = exec_f32(x, o->in0, 0),
      .k = kv_k(x->kv, layer->state_index),
      .v = kv_v(x->kv, layer->state_index),
      .kv = {kv_attn(x->kv->types.k), kv_attn(x->kv->types.v)},
      .causal = hp->causal,
      .finite = kv_is_finite(x->kv),
      .n_ctx = x->kv->n_ctx,
      .n_head = hp->n_head,
      .n_kv_head = hp->n_kv_head,
      .d_head = hp->d_head,
      .d_value = hp->d_value,
      .n_tok = x->n_tok,
      .q_stride = o->in0->cols,
      .out_stride = o->out->cols,
      .position = x->position,
      .n_key = x->position + x->n_tok,
      .window = layer->windowed ? hp->window : 0,
      .softcap = hp->attn_softcap,
      .sinks = o->weight ? (const float *)(const void *)o->weight->data : NULL,
      .scale = hp->attn_scale,
      .scratch = x->scratch + o->thread * x->scratch_bytes,
  };
  if (!a.causal && a.window > 0) {
    attn_both_ways(a, o);
  } else {
    attn_share(&a, o->thread, o->thread_count);
  }
}

void op_add(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++)
    vec_add(exec_f32(x, o->out, t), exec_f32(x, o->in0, t), o->out->cols);
}

void op_output_rows(const lnl_exec *x, const operands *o) {
  memcpy(exec_f32(x, o->out, 0), exec_f32(x, o->in0, x->output_begin),
         (size_t)(x->n_tok - x->output_begin) * o->out->cols * sizeof(float));
}

static void (*const op_table[OP_COUNT])(const lnl_exec *, const operands *) = {
#define LNL_OP(OP, name, share) op_##name,
#include "ops.inc"
#undef LNL_OP
};

static const plan_value *value_at(const lnl_plan *plan, int32_t id) {
  return id == NO_VALUE ? NULL : &plan->values[id];
}

static const lnl_weight *weight_at(const lnl_exec *x, int32_t index) {
  return index == NO_WEIGHT ? NULL : &x->model->weights[index];
}

/* One thread's share of the steps whose weights are there. */
static void run_steps(void *context, uint32_t thread) {
  const lnl_exec *x = context;
  uint32_t thread_count = x->pool->thread_count;
  for (uint32_t i = x->step; i < x->ready_end; i++) {
    const plan_step *s = &x->plan->steps[i];
    if (s->sync && i > x->step && !pool_barrier(x->pool)) return;
    operands o = {
        .step = s,
        .out = value_at(x->plan, s->out),
        .in0 = value_at(x->plan, s->in0),
        .in1 = value_at(x->plan, s->in1),
        .weight = weight_at(x, s->weight),
        .weight_more = weight_at(x, s->weight_more),
        .thread = thread,
        .thread_count = thread_count,
    };
    plan_share share = plan_op_share(s->op);
    if (share == SHARE_NONE && thread > 0) continue;
    if (share == SHARE_TOKENS || share == SHARE_ROUTED) {
      uint32_t rows = share == SHARE_ROUTED ? x->n_tok : exec_row_count(x, o.out ? o.out : o.in0);
      pool_range mine = pool_split(rows, 1, thread, thread_count);
      if (mine.begin == mine.end) continue;
      o.begin = mine.begin;
      o.end = mine.end;
    }
    op_table[s->op](x, &o);
  }
}

/* The weight, if bytes of it are still to come. */
static lnl_weight *incomplete(const lnl_model *model, int32_t index) {
  lnl_weight *w = index == NO_WEIGHT ? NULL : &model->weights[index];
  return w && w->place.domain != DOMAIN_STREAMED && w->loaded_bytes < w->place.stored_bytes ? w : NULL;
}

lnl_status exec_run(lnl_exec *x, lnl_weight **weight, stream_piece **piece) {
  const lnl_plan *plan = x->plan;
  LNL_ASSERT(x->n_tok >= 1 && x->n_tok <= plan->token_rows && x->output_begin <= x->n_tok);
  LNL_ASSERT(x->n_tok - x->output_begin <= plan->output_rows);
  const uint32_t last = exec_last(x);
  /* A step may have to be taken up again in the middle: steps are counted in one call. */
  const uint32_t end = x->step_limit ? u32_min(last, x->step + x->step_limit) : last;
  *weight = NULL;
  *piece = NULL;
  while (x->step < end) {
    if (x->window && stream_is_needed(x->model, plan, x->step)) {
      const lnl_status status = exec_stream_step(x, piece);
      if (status != LNL_OK) return status;
      x->step++;
      continue;
    }
    for (x->ready_end = x->step; x->ready_end < end; x->ready_end++) {
      const plan_step *s = &plan->steps[x->ready_end];
      if (x->window && stream_is_needed(x->model, plan, x->ready_end)) break;
      *weight = incomplete(x->model, s->weight);
      if (!*weight) *weight = incomplete(x->model, s->weight_more);
      if (*weight) break;
    }
    if (x->step < x->ready_end) {
      const lnl_status status = pool_run(x->pool, run_steps, x);
      if (status < 0) return status;
      x->step = x->ready_end;
    }
    if (*weight) return LNL_NEED_BYTES;
  }
  return x->step < last ? LNL_MORE : LNL_OK;
}

const float *exec_logits(const lnl_exec *x) { return exec_f32(x, &x->plan->values[x->plan->logits], 0); }

void exec_inverse_freq(float *table, uint32_t n_rot, const rope_params rope[ROPE_SET_COUNT]) {
  for (uint32_t set = 0; set < ROPE_SET_COUNT; set++)
    for (uint32_t i = 0; i < n_rot / 2; i++) *table++ = (float)pow((double)rope[set].base, -2.0 * i / n_rot);
}
