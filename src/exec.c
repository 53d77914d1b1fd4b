#include "exec.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

/* A kernel call covers at most this many rows: engines swap baseline code for
 * optimised code between calls only, so one long call would stay slow. */
enum { ROWS_PER_CALL = 256, ROW_UNIT = 16 };

typedef struct operands {
  const plan_step *step;
  const plan_value *out, *in0, *in1; /* NULL where there is none */
  const lnl_weight *weight;
  uint32_t thread, thread_count;
  uint32_t begin, end; /* this thread's rows of out (or in0), for steps shared by tokens */
} operands;

static float *f32_at(const lnl_exec *x, const plan_value *v, uint32_t row) {
  return (float *)(void *)(x->slab + v->offset) + (size_t)row * v->cols;
}

static lnl_q8 q8_at(const lnl_exec *x, const plan_value *v) {
  uint32_t rows = v->rows == ROWS_TOKENS ? x->plan->token_rows : x->plan->output_rows;
  return q8_view(x->slab + v->offset, v->cols, rows);
}

/* Rows of a value that this run computes. */
static uint32_t row_count(const lnl_exec *x, const plan_value *v) {
  return v->rows == ROWS_TOKENS ? x->n_tok : x->n_tok - x->output_begin;
}

static void op_embed(const lnl_exec *x, const operands *o) {
  const lnl_form *form = o->weight->form;
  uint32_t k = o->out->cols;
  for (uint32_t t = o->begin; t < o->end; t++) {
    uint32_t id = (uint32_t)x->tokens[t];
    if (o->weight->place.hold == HOLD_PACKED) {
      const uint8_t *group = o->weight->data + id / FORM_GROUP * form_group_bytes(form, k);
      form->packing->decode_row(group, id % FORM_GROUP, f32_at(x, o->out, t), k);
    } else {
      form->decode(o->weight->data + id * form_row_bytes(form, k), f32_at(x, o->out, t), k);
    }
  }
}

static void op_rope_table(const lnl_exec *x, const operands *o) {
  uint32_t half = o->out->cols / 2;
  const float *factors = o->weight ? (const float *)(const void *)o->weight->data : NULL;
  for (uint32_t t = o->begin; t < o->end; t++) {
    float *cos_row = f32_at(x, o->out, t), *sin_row = cos_row + half;
    double position = (double)(x->position + t) * (double)x->model->hp.rope_scale;
    for (uint32_t i = 0; i < half; i++) {
      double angle = position * (double)x->inverse_freq[i];
      if (factors) angle /= (double)factors[i];
      cos_row[i] = (float)cos(angle);
      sin_row[i] = (float)sin(angle);
    }
  }
}

static void op_rms_norm(const lnl_exec *x, const operands *o) {
  const float *w = (const float *)(const void *)o->weight->data;
  for (uint32_t t = o->begin; t < o->end; t++) {
    rms_norm(f32_at(x, o->out, t), f32_at(x, o->in0, t), w, o->out->cols, x->model->hp.rms_eps);
  }
}

static void op_quant(const lnl_exec *x, const operands *o) {
  uint32_t n = o->out->cols;
  lnl_q8 q = q8_at(x, o->out);
  for (uint32_t t = o->begin; t < o->end; t++) {
    quant_q8(q.q + (size_t)t * n, q.d + (size_t)t * (n / 32), q.sums + (size_t)t * (n / 16),
             f32_at(x, o->in0, t), n);
  }
}

static void op_matmul(const lnl_exec *x, const operands *o) {
  const lnl_form *form = o->weight->form;
  uint32_t k = (uint32_t)o->weight->stored->shape[0];
  bool packed = o->weight->place.hold == HOLD_PACKED;
  void (*matmul)(const lnl_matmul *) = packed ? form->packing->matmul : form->matmul;
  lnl_matmul m = {
      .w = o->weight->data,
      .row_bytes = packed ? form_group_bytes(form, k) : form_row_bytes(form, k),
      .k = k,
      .n_tok = row_count(x, o->out),
      .y = f32_at(x, o->out, 0),
      .y_stride = o->out->cols,
  };
  if (form->activation == ACT_Q8) {
    m.x_q8 = q8_at(x, o->in0);
  } else {
    m.x_f32 = f32_at(x, o->in0, 0);
  }
  pool_range rows = pool_split(o->out->cols, ROW_UNIT, o->thread, o->thread_count);
  for (uint32_t row = rows.begin; row < rows.end; row = m.row_end) {
    m.row_begin = row;
    m.row_end = u32_min(row + ROWS_PER_CALL, rows.end);
    matmul(&m);
  }
}

static void op_add_bias(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++) {
    vec_add(f32_at(x, o->out, t), (const float *)(const void *)o->weight->data, o->out->cols);
  }
}

static void op_scale(const lnl_exec *x, const operands *o) {
  float scale = *(const float *)(const void *)o->weight->data;
  for (uint32_t t = o->begin; t < o->end; t++) {
    float *y = f32_at(x, o->out, t);
    for (uint32_t i = 0; i < o->out->cols; i++) y[i] *= scale;
  }
}

static void op_rope(const lnl_exec *x, const operands *o) {
  uint32_t n_rot = o->in0->cols, n_head = o->step->n_head;
  for (uint32_t t = o->begin; t < o->end; t++) {
    const float *table = f32_at(x, o->in0, t);
    float *row = f32_at(x, o->out, t);
    if (x->model->arch->rope == ROPE_NORM) {
      rope_norm(row, n_head, o->out->cols / n_head, n_rot, table, table + n_rot / 2);
    } else {
      rope_neox(row, n_head, o->out->cols / n_head, n_rot, table, table + n_rot / 2);
    }
  }
}

static void op_kv_store(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++) {
    kv_store(x->kv, o->step->layer, x->position + t, f32_at(x, o->in0, t), f32_at(x, o->in1, t));
  }
}

static void op_attn(const lnl_exec *x, const operands *o) {
  const lnl_hparams *hp = &x->model->hp;
  lnl_attn a = {
      .k = kv_k(x->kv, o->step->layer),
      .v = kv_v(x->kv, o->step->layer),
      .kv = kv_attn(x->kv->type),
      .n_ctx = x->kv->n_ctx,
      .n_head = hp->n_head,
      .n_kv_head = hp->n_kv_head,
      .d_head = hp->d_head,
      .d_value = hp->d_value,
      .scale = hp->attn_scale,
      .scratch = x->scratch + o->thread * x->scratch_bytes,
  };
  /* The kv heads of all tokens are dealt out in turn, since later tokens have
   * more keys to look at. Of one token the heads of a thread lie side by side. */
  uint32_t group = hp->n_head / hp->n_kv_head;
  uint32_t heads = x->n_tok == 1 || o->thread_count == 1 ? hp->n_kv_head : 1;
  for (uint32_t t = 0; t < x->n_tok; t++) {
    a.q = f32_at(x, o->in0, t);
    a.out = f32_at(x, o->out, t);
    a.n_key = x->position + t + 1;
    if (heads > 1) {
      pool_range mine = pool_split(heads, 1, o->thread, o->thread_count);
      a.head_begin = mine.begin * group;
      a.head_end = mine.end * group;
      if (a.head_begin < a.head_end) attn(&a);
      continue;
    }
    for (uint32_t head = 0; head < hp->n_kv_head; head++) {
      if ((t * hp->n_kv_head + head) % o->thread_count != o->thread) continue;
      a.head_begin = head * group;
      a.head_end = a.head_begin + group;
      attn(&a);
    }
  }
}

static void op_add(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++)
    vec_add(f32_at(x, o->out, t), f32_at(x, o->in0, t), o->out->cols);
}

static void op_silu_mul(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++) {
    silu_mul(f32_at(x, o->out, t), f32_at(x, o->in0, t), f32_at(x, o->in1, t), o->out->cols);
  }
}

static void op_output_rows(const lnl_exec *x, const operands *o) {
  memcpy(f32_at(x, o->out, 0), f32_at(x, o->in0, x->output_begin),
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
        .weight = s->weight == NO_WEIGHT ? NULL : &x->model->weights[s->weight],
        .thread = thread,
        .thread_count = thread_count,
    };
    plan_share share = plan_op_share(s->op);
    if (share == SHARE_NONE && thread > 0) continue;
    if (share == SHARE_TOKENS) {
      pool_range mine = pool_split(row_count(x, o.out ? o.out : o.in0), 1, thread, thread_count);
      if (mine.begin == mine.end) continue;
      o.begin = mine.begin;
      o.end = mine.end;
    }
    op_table[s->op](x, &o);
  }
}

lnl_status exec_run(lnl_exec *x, lnl_weight **weight) {
  const lnl_plan *plan = x->plan;
  LNL_ASSERT(x->n_tok >= 1 && x->n_tok <= plan->token_rows && x->output_begin <= x->n_tok);
  LNL_ASSERT(x->n_tok - x->output_begin <= plan->output_rows);
  uint32_t last = x->output_begin < x->n_tok ? plan->step_count : plan->output_step;
  uint32_t end = x->step_limit ? u32_min(last, x->step + x->step_limit) : last;
  lnl_weight *missing = NULL;
  for (x->ready_end = x->step; x->ready_end < end; x->ready_end++) {
    int32_t index = plan->steps[x->ready_end].weight;
    lnl_weight *w = index == NO_WEIGHT ? NULL : &x->model->weights[index];
    if (w && w->loaded_bytes < w->place.stored_bytes) {
      missing = w;
      break;
    }
  }
  if (x->step < x->ready_end) {
    lnl_status status = pool_run(x->pool, run_steps, x);
    if (status < 0) return status;
    x->step = x->ready_end;
  }
  if (missing) {
    *weight = missing;
    return LNL_NEED_BYTES;
  }
  return x->step < last ? LNL_MORE : LNL_OK;
}

const float *exec_logits(const lnl_exec *x) { return f32_at(x, &x->plan->values[x->plan->logits], 0); }

void exec_inverse_freq(float *table, uint32_t n_rot, float base) {
  for (uint32_t i = 0; i < n_rot / 2; i++) table[i] = (float)pow((double)base, -2.0 * i / n_rot);
}
