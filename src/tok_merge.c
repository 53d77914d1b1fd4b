/* The merge loop that SPM and BPE share: symbols in a linked chain, candidate
 * pairs in a heap, the best pair first and the leftmost among equals. A pair
 * that is no longer there when its turn comes is recognised by its length. */
#include "tok_internal.h"

#include <string.h>

TOK_SMALL_BEGIN

bool tok_reserve(void **block, size_t *cap, size_t count, size_t item_bytes) {
  if (count <= *cap) return true;
  size_t wanted = *cap * 2 > count ? *cap * 2 : count;
  if (wanted < 64) wanted = 64;
  void *grown = wanted > SIZE_MAX / item_bytes ? NULL : mem_resize(*block, wanted * item_bytes);
  if (!grown) return false;
  *block = grown;
  *cap = wanted;
  return true;
}

bool tok_append(tok_work *w, const void *bytes, size_t count) {
  void *text = w->text;
  if (!tok_reserve(&text, &w->text_cap, w->text_bytes + count, 1)) return false;
  w->text = text;
  memcpy(w->text + w->text_bytes, bytes, count);
  w->text_bytes += count;
  return true;
}

bool tok_emit(tok_work *w, int32_t id) {
  void *ids = w->ids;
  if (!tok_reserve(&ids, &w->id_cap, w->id_count + 1, sizeof *w->ids)) return false;
  w->ids = ids;
  w->ids[w->id_count++] = id;
  return true;
}

/* Restores the order below `at`: the smallest key on top. */
static void sift_down(tok_candidate *items, size_t count, size_t at) {
  tok_candidate moving = items[at];
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && items[child + 1].key < items[child].key) child++;
    if (items[child].key >= moving.key) break;
    items[at] = items[child];
    at = child;
  }
  items[at] = moving;
}

bool heap_push(tok_work *w, tok_candidate candidate) {
  void *heap = w->heap;
  if (!tok_reserve(&heap, &w->heap_cap, w->heap_count + 1, sizeof *w->heap)) return false;
  w->heap = heap;
  size_t at = w->heap_count++;
  while (at > 0 && w->heap[(at - 1) / 2].key > candidate.key) {
    w->heap[at] = w->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  w->heap[at] = candidate;
  w->steps++;
  return true;
}

tok_candidate heap_pop(tok_work *w) {
  tok_candidate top = w->heap[0];
  w->heap[0] = w->heap[--w->heap_count];
  if (w->heap_count > 1) sift_down(w->heap, w->heap_count, 0);
  w->steps++;
  return top;
}

void candidates_sort(tok_candidate *items, size_t count) {
  for (size_t i = count / 2; i > 0; i--) sift_down(items, count, i - 1);
  for (size_t left = count; left > 1; left--) {
    tok_candidate smallest = items[0];
    items[0] = items[left - 1];
    items[left - 1] = smallest;
    sift_down(items, left - 1, 0);
  }
}

bool symbol_push(tok_work *w, tok_symbol symbol) {
  void *symbols = w->symbols;
  if (!tok_reserve(&symbols, &w->symbol_cap, w->symbol_count + 1, sizeof *w->symbols)) return false;
  w->symbols = symbols;
  symbol.prev = TOK_NO_SYMBOL;
  symbol.next = TOK_NO_SYMBOL;
  if (w->symbol_count > 0) {
    symbol.prev = (uint32_t)w->symbol_count - 1;
    w->symbols[symbol.prev].next = (uint32_t)w->symbol_count;
  }
  w->symbols[w->symbol_count++] = symbol;
  return true;
}

/* Puts the pair of `left` and its right neighbour in the heap if it is a token.
 */
static bool consider(tok_work *w, uint32_t left) {
  if (left == TOK_NO_SYMBOL) return true;
  const tok_symbol *a = &w->symbols[left];
  if (a->next == TOK_NO_SYMBOL) return true;
  const tok_symbol *b = &w->symbols[a->next];
  uint32_t priority;
  int32_t id;
  bool is_token =
      w->t->kind == TOK_SPM ? spm_pair(w, a, b, &priority, &id) : bpe_pair(w, a, b, &priority, &id);
  if (!is_token) return true;
  return heap_push(w, (tok_candidate){(uint64_t)priority << 32 | left, a->bytes + b->bytes, id});
}

lnl_status merge_symbols(tok_work *w) {
  w->heap_count = 0;
  for (size_t i = 0; i + 1 < w->symbol_count; i++) {
    if (!consider(w, (uint32_t)i)) return LNL_OUT_OF_MEMORY;
  }
  while (w->heap_count > 0) {
    tok_candidate best = heap_pop(w);
    uint32_t left = (uint32_t)best.key;
    tok_symbol *a = &w->symbols[left];
    if (a->bytes == 0 || a->next == TOK_NO_SYMBOL) continue;
    tok_symbol *b = &w->symbols[a->next];
    if (a->bytes + b->bytes != best.bytes) continue;
    a->bytes = best.bytes;
    a->id = best.id;
    a->hash = a->hash * b->power + b->hash;
    a->power *= b->power;
    a->next = b->next;
    b->bytes = 0;
    if (b->next != TOK_NO_SYMBOL) w->symbols[b->next].prev = left;
    if (!consider(w, a->prev) || !consider(w, left)) return LNL_OUT_OF_MEMORY;
  }
  return LNL_OK;
}

TOK_SMALL_END
