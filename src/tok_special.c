/* Special tokens in a text. Where several overlap, the longest wins wherever
 * it stands, then the leftmost: a heap holds for each place the longest token
 * that still fits there. */
#include "tok_internal.h"

#include <string.h>

TOK_SMALL_BEGIN

/* --- preparation
 * ------------------------------------------------------------------ */

static bool text_less(const tok *t, const tok_special *a, const tok_special *b) {
  lnl_span x = tok_text(t, a->id);
  lnl_span y = tok_text(t, b->id);
  int order = memcmp(x.data, y.data, x.bytes < y.bytes ? x.bytes : y.bytes);
  if (order != 0) return order < 0;
  return x.bytes != y.bytes ? x.bytes < y.bytes : a->id < b->id;
}

static bool longer(const tok *t, const tok_special *a, const tok_special *b) {
  size_t x = tok_text(t, a->id).bytes;
  size_t y = tok_text(t, b->id).bytes;
  return x != y ? x > y : a->id < b->id;
}

typedef bool less_function(const tok *t, const tok_special *a, const tok_special *b);

static void sink(const tok *t, size_t count, size_t at, less_function *less) {
  tok_special *items = t->specials;
  tok_special moving = items[at];
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && less(t, &items[child], &items[child + 1])) child++;
    if (!less(t, &moving, &items[child])) break;
    items[at] = items[child];
    at = child;
  }
  items[at] = moving;
}

/* Heap sort: in place, O(n log n) on any vocabulary. */
static void sort_specials(tok *t, less_function *less) {
  for (size_t i = t->special_count / 2; i > 0; i--) sink(t, t->special_count, i - 1, less);
  for (size_t left = t->special_count; left > 1; left--) {
    tok_special largest = t->specials[0];
    t->specials[0] = t->specials[left - 1];
    t->specials[left - 1] = largest;
    sink(t, left - 1, 0, less);
  }
}

void specials_prepare(tok *t) {
  sort_specials(t, longer);
  for (uint32_t i = 0; i < t->special_count; i++) t->specials[i].order = i;
  sort_specials(t, text_less);
  uint32_t at = 0;
  for (uint32_t byte = 0; byte < 256; byte++) {
    t->special_first[byte] = at;
    while (at < t->special_count && tok_text(t, t->specials[at].id).data[0] == byte) at++;
  }
  t->special_first[256] = at;
}

/* --- search
 * ------------------------------------------------------------------------- */

/* The first of specials[low, high), which agree in the first `depth` bytes,
 * whose byte at `depth` is at least `byte`. */
static uint32_t lower_bound(const tok *t, uint32_t low, uint32_t high, size_t depth, uint32_t byte) {
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (tok_text(t, t->specials[middle].id).data[depth] < byte)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool is_wanted(const tok *t, int32_t id, bool parse_special) {
  return parse_special || t->attrs[id] == TOK_USER_DEFINED;
}

/* The longest special that text[0, limit) begins with; NULL when there is none.
 */
static const tok_special *longest_match(tok_work *w, const uint8_t *text, size_t limit, bool parse_special) {
  const tok *t = w->t;
  if (limit == 0) return NULL;
  const tok_special *best = NULL;
  uint32_t low = t->special_first[text[0]];
  uint32_t high = t->special_first[text[0] + 1];
  for (size_t depth = 1; low < high; depth++) {
    w->steps++;
    if (high - low == 1) { /* one left: compare the rest at once */
      lnl_span only = tok_text(t, t->specials[low].id);
      bool fits = only.bytes <= limit && memcmp(only.data + depth, text + depth, only.bytes - depth) == 0;
      if (fits && is_wanted(t, t->specials[low].id, parse_special)) best = &t->specials[low];
      break;
    }
    if (tok_text(t, t->specials[low].id).bytes == depth) {
      if (is_wanted(t, t->specials[low].id, parse_special)) best = &t->specials[low];
      low++;
    }
    if (depth >= limit) break;
    low = lower_bound(t, low, high, depth, text[depth]);
    high = lower_bound(t, low, high, depth, text[depth] + 1u);
  }
  return best;
}

static bool push_match(tok_work *w, lnl_span text, size_t at, size_t limit, bool parse_special) {
  const tok_special *found = longest_match(w, text.data + at, limit, parse_special);
  if (!found) return true;
  uint32_t bytes = (uint32_t)tok_text(w->t, found->id).bytes;
  return heap_push(w, (tok_candidate){(uint64_t)found->order << 32 | at, bytes, found->id});
}

static bool is_taken(const uint8_t *taken, size_t at) { return taken[at / 8] >> (at % 8) & 1; }
static void take(uint8_t *taken, size_t at) { taken[at / 8] |= (uint8_t)(1u << (at % 8)); }

/* Phi-3 files mean all special tokens but these to swallow white space. */
static bool strips_right(const tok *t, int32_t id) {
  if (!t->strip_right) return false;
  lnl_span text = tok_text(t, id);
  return !span_equals(text, "<unk>") && !span_equals(text, "<s>") && !span_equals(text, "<|endoftext|>");
}

static bool is_c_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static lnl_status settle_matches(tok_work *w, lnl_span text, bool parse_special, uint8_t *taken) {
  while (w->heap_count > 0) {
    tok_candidate best = heap_pop(w);
    size_t begin = (uint32_t)best.key;
    if (is_taken(taken, begin)) continue;
    size_t end = begin + best.bytes;
    size_t free_end = begin;
    while (free_end < end && !is_taken(taken, free_end)) free_end++;
    if (free_end < end) { /* a longer token stands in the way: try what fits before it */
      if (!push_match(w, text, begin, free_end - begin, parse_special)) return LNL_OUT_OF_MEMORY;
      continue;
    }
    if (strips_right(w->t, best.id)) {
      while (end < text.bytes && !is_taken(taken, end) && is_c_space(text.data[end])) end++;
    }
    while (best.id == w->t->strip_left && begin > 0 && !is_taken(taken, begin - 1) &&
           is_c_space(text.data[begin - 1]))
      begin--;
    for (size_t i = begin; i < end; i++) take(taken, i);
    void *matches = w->matches;
    if (!tok_reserve(&matches, &w->match_cap, w->match_count + 1, sizeof *w->matches))
      return LNL_OUT_OF_MEMORY;
    w->matches = matches;
    w->matches[w->match_count++] = (tok_candidate){begin, (uint32_t)end, best.id};
  }
  candidates_sort(w->matches, w->match_count);
  return LNL_OK;
}

lnl_status specials_find(tok_work *w, lnl_span text, bool parse_special) {
  const tok *t = w->t;
  w->match_count = 0;
  if (t->special_count == 0 || (!parse_special && !t->has_user_defined)) return LNL_OK;
  w->heap_count = 0;
  for (size_t at = 0; at < text.bytes; at++) {
    uint8_t first = text.data[at];
    if (t->special_first[first] == t->special_first[first + 1]) continue;
    if (!push_match(w, text, at, text.bytes - at, parse_special)) return LNL_OUT_OF_MEMORY;
  }
  if (w->heap_count == 0) return LNL_OK;
  size_t bytes = text.bytes / 8 + 1;
  uint8_t *taken = mem_alloc(bytes);
  if (!taken) return LNL_OUT_OF_MEMORY;
  memset(taken, 0, bytes);
  lnl_status status = settle_matches(w, text, parse_special, taken);
  mem_free(taken);
  return status;
}

TOK_SMALL_END
