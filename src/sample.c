#include "sample.h"

#include <math.h>

#include "kernels/kernels.h"

static uint64_t splitmix64(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

/* Uniform in [0, 1), 53 bits. */
static double next_uniform(lnl_sampler *s) {
  uint64_t a = s->rng[0], b = s->rng[1];
  uint64_t sum = a + b;
  b ^= a;
  s->rng[0] = rotl(a, 24) ^ b ^ (b << 16);
  s->rng[1] = rotl(b, 37);
  return (double)(sum >> 11) * 0x1p-53;
}

lnl_status sample_set(lnl_sampler *s, const sample_params *p, lnl_error *error) {
  /* Written so that NaN fails too. */
  if (!(p->temperature >= 0 && p->temperature <= 100)) {
    return error_set(error, LNL_BAD_ARGUMENT, "temperature must be from 0 to 100");
  }
  if (!(p->top_p > 0 && p->top_p <= 1))
    return error_set(error, LNL_BAD_ARGUMENT, "top_p must be above 0 and at most 1");
  if (!(p->min_p >= 0 && p->min_p <= 1))
    return error_set(error, LNL_BAD_ARGUMENT, "min_p must be from 0 to 1");
  if (!(p->repeat_penalty > 0 && p->repeat_penalty <= 100)) {
    return error_set(error, LNL_BAD_ARGUMENT, "repeat_penalty must be above 0 and at most 100");
  }
  s->params = *p;
  uint64_t state = p->seed;
  s->rng[0] = splitmix64(&state);
  s->rng[1] = splitmix64(&state);
  return LNL_OK;
}

/* More likely first; of equals the lower id, so that the order is total. */
static bool before(const sample_candidate *a, const sample_candidate *b) {
  return a->logit != b->logit ? a->logit > b->logit : a->id < b->id;
}

static void sift_down(sample_candidate *heap, uint32_t at, uint32_t n) {
  sample_candidate moving = heap[at];
  for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(&heap[child + 1], &heap[child])) child++;
    if (!before(&heap[child], &moving)) break;
    heap[at] = heap[child];
  }
  heap[at] = moving;
}

static void penalise(sample_candidate *candidates, uint32_t n_vocab, float penalty, const int32_t *recent,
                     uint32_t recent_count) {
  for (uint32_t i = 0; i < recent_count; i++) {
    bool seen = false; /* each id once, however often it occurs */
    for (uint32_t j = 0; j < i && !seen; j++) seen = recent[j] == recent[i];
    if (seen || (uint32_t)recent[i] >= n_vocab) continue;
    float *logit = &candidates[recent[i]].logit;
    *logit = *logit > 0 ? *logit / penalty : *logit * penalty;
  }
}

/* Moves the candidates that survive top-k, top-p and min-p, most likely first,
 * to the end of the array and returns how many there are. A heap, built in
 * linear time and popped as often as there are survivors: the vocabulary is
 * never sorted. */
static uint32_t select_candidates(const lnl_sampler *s, sample_candidate *heap, uint32_t n) {
  for (uint32_t i = n / 2; i-- > 0;) sift_down(heap, i, n);
  const sample_params *p = &s->params;
  float best = heap[0].logit;
  float lowest = p->min_p > 0 ? best + logf(p->min_p) : -INFINITY;
  uint32_t most = p->top_k > 0 ? u32_min(p->top_k, n) : n;

  double total = 0;
  if (p->top_p < 1) {
    if (most == n) {
      for (uint32_t i = 0; i < n; i++) total += (double)expf(heap[i].logit - best);
    } else { /* top-p counts within the k best */
      sample_candidate *end = heap + n;
      for (uint32_t i = 0; i < most; i++) {
        sample_candidate top = heap[0];
        heap[0] = heap[n - 1 - i];
        sift_down(heap, 0, n - 1 - i);
        *--end = top;
        total += (double)expf(top.logit - best);
      }
      double sum = 0;
      uint32_t kept = 0;
      while (kept < most &&
             (kept == 0 || (sum < (double)p->top_p * total && heap[n - 1 - kept].logit >= lowest))) {
        sum += (double)expf(heap[n - 1 - kept].logit - best);
        kept++;
      }
      return kept;
    }
  }

  double sum = 0;
  uint32_t kept = 0;
  while (kept < most) {
    sample_candidate top = heap[0];
    if (kept > 0 && (top.logit < lowest || (p->top_p < 1 && sum >= (double)p->top_p * total))) break;
    uint32_t left = n - kept - 1;
    heap[0] = heap[left];
    if (left > 0) sift_down(heap, 0, left);
    heap[left] = top;
    sum += (double)expf(top.logit - best);
    kept++;
  }
  return kept;
}

static int32_t draw(lnl_sampler *s, const sample_candidate *last, uint32_t count) {
  float best = last->logit, inverse = 1.0f / s->params.temperature;
  double total = 0;
  for (uint32_t i = 0; i < count; i++) total += (double)expf((last[-(ptrdiff_t)i].logit - best) * inverse);
  double target = next_uniform(s) * total;
  for (uint32_t i = 0; i < count; i++) {
    target -= (double)expf((last[-(ptrdiff_t)i].logit - best) * inverse);
    if (target < 0) return last[-(ptrdiff_t)i].id;
  }
  return last[-(ptrdiff_t)(count - 1)].id;
}

int32_t sample_next(lnl_sampler *s, const float *logits, uint32_t n_vocab, const int32_t *recent,
                    uint32_t recent_count) {
  const sample_params *p = &s->params;
  bool penalty = p->repeat_penalty != 1 && recent_count > 0;
  if (p->temperature == 0 && !penalty) return (int32_t)argmax(logits, n_vocab);

  for (uint32_t i = 0; i < n_vocab; i++) {
    /* NaN would break the order of the heap; such a logit can't be chosen. */
    s->candidates[i] = (sample_candidate){isnan(logits[i]) ? -INFINITY : logits[i], (int32_t)i};
  }
  if (penalty) penalise(s->candidates, n_vocab, p->repeat_penalty, recent, recent_count);
  if (p->temperature == 0) {
    const sample_candidate *top = &s->candidates[0];
    for (uint32_t i = 1; i < n_vocab; i++) {
      if (before(&s->candidates[i], top)) top = &s->candidates[i];
    }
    return top->id;
  }
  uint32_t kept = select_candidates(s, s->candidates, n_vocab);
  return draw(s, &s->candidates[n_vocab - 1], kept);
}
