/* Operations on activations: feed-forward activations, routing among experts,
 * short convolutions, scales and caps. */
#include "exec_ops.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

static const float *floats_of(const lnl_weight *w) { return (const float *)(const void *)w->data; }

/* --- each row for itself ------------------------------------------------------- */

static void gated(const lnl_exec *x, const operands *o,
                  void (*act)(float *, const float *, const float *, uint32_t)) {
  for (uint32_t t = o->begin; t < o->end; t++) {
    const float *up = o->in1 ? exec_f32(x, o->in1, t) : NULL;
    act(exec_f32(x, o->out, t), exec_f32(x, o->in0, t), up, o->out->cols);
  }
}
void op_silu_mul(const lnl_exec *x, const operands *o) { gated(x, o, silu_mul); }
void op_gelu_mul(const lnl_exec *x, const operands *o) { gated(x, o, gelu_mul); }
void op_gelu(const lnl_exec *x, const operands *o) { gated(x, o, gelu_mul); }
void op_swiglu_oai(const lnl_exec *x, const operands *o) { gated(x, o, swiglu_oai); }

void op_relu_sqr(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++) {
    float *y = exec_f32(x, o->out, t);
    for (uint32_t i = 0; i < o->out->cols; i++) y[i] = y[i] > 0 ? y[i] * y[i] : 0;
  }
}

static void scale_row(float *y, uint32_t n, float factor) {
  for (uint32_t i = 0; i < n; i++) y[i] *= factor;
}

void op_scale(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++)
    scale_row(exec_f32(x, o->out, t), o->out->cols, floats_of(o->weight)[0]);
}

void op_scale_by(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++)
    scale_row(exec_f32(x, o->out, t), o->out->cols, o->step->factor);
}

/* Queries grow with the distance from the beginning: Llama 4, Mistral 3. */
void op_temperature(const lnl_exec *x, const operands *o) {
  const lnl_hparams *hp = &x->model->hp;
  for (uint32_t t = o->begin; t < o->end; t++) {
    const uint32_t times = (x->position + t) / u32_max(hp->temperature_length, 1);
    scale_row(exec_f32(x, o->out, t), o->out->cols, 1 + hp->temperature * logf((float)(times + 1)));
  }
}

void op_sigmoid_scale(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++)
    scale_row(exec_f32(x, o->out, t), o->out->cols, 1 / (1 + expf(-*exec_f32(x, o->in0, t))));
}

void op_softcap(const lnl_exec *x, const operands *o) {
  for (uint32_t t = o->begin; t < o->end; t++)
    softcap(exec_f32(x, o->out, t), exec_f32(x, o->in0, t), o->out->cols, o->step->factor);
}

/* --- experts --------------------------------------------------------------------- */

/* softmax over n values, in place. */
static void softmax(float *v, uint32_t n) {
  float largest = v[0], total = 0;
  for (uint32_t i = 1; i < n; i++) largest = fmaxf(largest, v[i]);
  for (uint32_t i = 0; i < n; i++) total += v[i] = expf(v[i] - largest);
  scale_row(v, n, 1 / total);
}

/* The chosen experts of one token, best first (the first of equals), with their
 * weights. probs [n_expert] are the router's outputs and are used up. */
static void choose(const lnl_hparams *hp, float *probs, const float *bias, float *weights,
                   uint32_t *experts) {
  const uint32_t n = hp->n_expert, used = hp->n_expert_used;
  if (hp->gating == GATING_SOFTMAX) softmax(probs, n);
  if (hp->gating == GATING_SIGMOID) {
    for (uint32_t e = 0; e < n; e++) probs[e] = 1 / (1 + expf(-probs[e]));
  }
  for (uint32_t i = 0; i < used; i++) {
    uint32_t best = n;
    float best_score = 0;
    for (uint32_t e = 0; e < n; e++) {
      bool taken = false;
      for (uint32_t j = 0; j < i; j++) taken = taken || experts[j] == e;
      const float score = probs[e] + (bias ? bias[e] : 0);
      if (taken || (best < n && !(score > best_score))) continue;
      best = e;
      best_score = score;
    }
    experts[i] = best;
    weights[i] = probs[best];
  }
  if (hp->gating == GATING_SOFTMAX_OF_CHOSEN) softmax(weights, used);
  if (hp->expert_norm) {
    float sum = 0;
    for (uint32_t i = 0; i < used; i++) sum += weights[i];
    scale_row(weights, used,
              1 / fmaxf(sum, 6.103515625e-5f)); /* the least normal half, as llama.cpp has it */
  }
  scale_row(weights, used, hp->expert_scale);
}

/* Rows of out: weights [n_used], then routed rows [n_used]. */
void op_route(const lnl_exec *x, const operands *o) {
  const lnl_hparams *hp = &x->model->hp;
  const uint32_t used = hp->n_expert_used, n = hp->n_expert;
  const float *bias = o->weight ? floats_of(o->weight) : NULL;
  uint32_t *first = exec_u32(x, o->in1, 0);
  memset(first, 0, (n + 1) * sizeof *first);
  for (uint32_t t = 0; t < x->n_tok; t++) {
    float *weights = exec_f32(x, o->out, t);
    uint32_t *experts = exec_u32(x, o->out, t) + used;
    choose(hp, exec_f32(x, o->in0, t), bias, weights, experts);
    for (uint32_t i = 0; i < used; i++) first[experts[i]]++;
  }
  /* Counts become first rows; while they are dealt out they move on to the next
   * expert's, and are moved back. */
  uint32_t row = 0;
  for (uint32_t e = 0; e <= n; e++) {
    const uint32_t count = first[e];
    first[e] = row;
    row += count;
  }
  for (uint32_t t = 0; t < x->n_tok; t++) {
    uint32_t *routed = exec_u32(x, o->out, t) + used;
    for (uint32_t i = 0; i < used; i++) routed[i] = first[routed[i]]++;
  }
  for (uint32_t e = n; e > 0; e--) first[e] = first[e - 1];
  first[0] = 0;
}

void op_gather(const lnl_exec *x, const operands *o) {
  const uint32_t used = x->model->hp.n_expert_used;
  for (uint32_t t = o->begin; t < o->end; t++) {
    const uint32_t *routed = exec_u32(x, o->in1, t) + used;
    for (uint32_t i = 0; i < used; i++)
      memcpy(exec_f32(x, o->out, routed[i]), exec_f32(x, o->in0, t), o->out->cols * sizeof(float));
  }
}

void op_expert_sum(const lnl_exec *x, const operands *o) {
  const uint32_t used = x->model->hp.n_expert_used;
  for (uint32_t t = o->begin; t < o->end; t++) {
    const float *weights = exec_f32(x, o->in1, t);
    const uint32_t *routed = exec_u32(x, o->in1, t) + used;
    float *y = exec_f32(x, o->out, t);
    memset(y, 0, o->out->cols * sizeof *y);
    for (uint32_t i = 0; i < used; i++) {
      const float *from = exec_f32(x, o->in0, routed[i]);
      for (uint32_t c = 0; c < o->out->cols; c++) y[c] += from[c] * weights[i];
    }
  }
}

/* Calls of f with each of this thread's routed rows and the number of its expert. */
static void each_routed(const lnl_exec *x, const operands *o,
                        void (*f)(float *y, uint32_t n, const float *w, uint32_t expert)) {
  const uint32_t *first = exec_u32(x, o->in1, 0);
  uint32_t e = 0;
  for (uint32_t row = o->begin; row < o->end; row++) {
    while (first[e + 1] <= row) e++;
    f(exec_f32(x, o->out, row), o->out->cols, floats_of(o->weight), e);
  }
}

static void add_bias_of(float *y, uint32_t n, const float *bias, uint32_t expert) {
  vec_add(y, bias + (size_t)expert * n, n);
}
void op_expert_bias(const lnl_exec *x, const operands *o) { each_routed(x, o, add_bias_of); }

static void scale_by_of(float *y, uint32_t n, const float *scales, uint32_t expert) {
  scale_row(y, n, scales[expert]);
}
void op_expert_scale(const lnl_exec *x, const operands *o) { each_routed(x, o, scale_by_of); }

/* --- short convolution ------------------------------------------------------------- */

/* state [conv_len - 1, d_model]: b * x of the last positions, the oldest first. */
void op_short_conv(const lnl_exec *x, const operands *o) {
  const uint32_t d = o->out->cols, taps = x->model->hp.conv_len;
  const float *kernel = floats_of(o->weight); /* [d, taps] */
  float *state = kv_conv(x->kv, x->model->layers[o->step->layer].state_index);
  if (x->position == 0) memset(state, 0, (size_t)(taps - 1) * d * sizeof *state);
  for (uint32_t t = 0; t < x->n_tok; t++) {
    float *bcx = exec_f32(x, o->in0, t), *y = exec_f32(x, o->out, t);
    float *now = bcx + 2 * (size_t)d; /* x becomes b * x */
    for (uint32_t i = 0; i < d; i++) {
      now[i] *= bcx[i];
      float sum = 0;
      for (uint32_t j = 0; j + 1 < taps; j++) sum += state[(size_t)j * d + i] * kernel[(size_t)i * taps + j];
      sum += now[i] * kernel[(size_t)i * taps + taps - 1];
      y[i] = bcx[d + i] * sum;
    }
    memmove(state, state + d, (size_t)(taps - 2) * d * sizeof *state);
    memcpy(state + (size_t)(taps - 2) * d, now, d * sizeof *state);
  }
}

/* --- pooling ----------------------------------------------------------------------- */

void op_pool(const lnl_exec *x, const operands *o) {
  float *y = exec_f32(x, o->out, 0);
  const uint32_t n = o->out->cols;
  const pooling how = x->model->hp.pooling;
  memcpy(y, exec_f32(x, o->in0, how == POOLING_LAST ? x->n_tok - 1 : 0), n * sizeof *y);
  if (how == POOLING_MEAN) {
    for (uint32_t t = 1; t < x->n_tok; t++) vec_add(y, exec_f32(x, o->in0, t), n);
    scale_row(y, n, 1 / (float)x->n_tok);
  }
}

void op_unit_length(const lnl_exec *x, const operands *o) {
  float *y = exec_f32(x, o->out, 0);
  double squares = 0;
  for (uint32_t i = 0; i < o->out->cols; i++) squares += (double)y[i] * (double)y[i];
  if (squares > 0) scale_row(y, o->out->cols, (float)(1 / sqrt(squares)));
}
