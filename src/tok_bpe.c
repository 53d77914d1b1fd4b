/* Byte-level BPE (model "gpt2"): the text is cut into words, each word starts
 * as its bytes, and neighbours merge in the order of the merge list. */
#include "tok_internal.h"
#include "unicode.h"

#include <string.h>

/* --- the byte-level alphabet -------------------------------------------------- */
/* Printable Latin-1 stands for itself; the other 68 bytes follow from U+0100. */

static bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

size_t bpe_byte_char(uint8_t byte, uint8_t dst[4]) {
  uint32_t code_point = byte;
  if (!stands_for_itself(byte)) {
    if (byte <= 0x20)
      code_point = 0x100u + byte;
    else if (byte <= 0xA0)
      code_point = 0x100u + 33 + (byte - 0x7Fu);
    else
      code_point = 0x100u + 67; /* 0xAD */
  }
  return utf8_encode(code_point, dst);
}

int32_t bpe_char_byte(uint32_t code_point) {
  if (code_point < 0x100) return stands_for_itself(code_point) ? (int32_t)code_point : -1;
  uint32_t index = code_point - 0x100;
  if (index <= 0x20) return (int32_t)index;
  if (index < 67) return (int32_t)(0x7F + (index - 33));
  return index == 67 ? 0xAD : -1;
}

/* --- the merge table ------------------------------------------------------------ */

static uint32_t pair_hash(int32_t left, int32_t right) {
  return (uint32_t)left * 0x9E3779B1u ^ ((uint32_t)right * 0x85EBCA77u + 0x165667B1u);
}

static lnl_status add_pair(tok *t, tok_pair_slot entry, uint64_t *probes_left) {
  uint32_t at = tok_home(pair_hash(entry.left, entry.right), t->pair_cap);
  while (t->pairs[at].left >= 0) {
    if (t->pairs[at].left == entry.left && t->pairs[at].right == entry.right)
      return LNL_OK; /* the first counts */
    if (++at == t->pair_cap) at = 0;
    if (--*probes_left == 0) return LNL_BAD_VOCABULARY;
  }
  t->pairs[at] = entry;
  return LNL_OK;
}

lnl_status bpe_build_pairs(tok *t, const tok_map *map, const gguf_value *merges, lnl_error *error) {
  for (uint32_t i = 0; i < t->pair_cap; i++) t->pairs[i].left = -1;
  uint64_t probes_left = tok_probe_limit(merges->item_count);
  uint64_t cursor = 0;
  lnl_span text;
  for (uint32_t rank = 0; gguf_next_string(merges, &cursor, &text); rank++) {
    int shown = (int)u64_min(text.bytes, 64);
    /* "left right"; the left part may itself begin with a space. */
    const uint8_t *space = text.bytes > 1 ? memchr(text.data + 1, ' ', text.bytes - 1) : NULL;
    if (!space) {
      return error_set(error, LNL_BAD_VOCABULARY, "tokenizer.ggml.merges[%u] \"%.*s\" is not two parts", rank,
                       shown, (const char *)text.data);
    }
    size_t left_bytes = (size_t)(space - text.data);
    size_t right_bytes = text.bytes - left_bytes - 1;
    uint32_t left_power, right_power;
    uint32_t left_hash = tok_hash(text.data, left_bytes, &left_power);
    uint32_t right_hash = tok_hash(space + 1, right_bytes, &right_power);
    tok_pair_slot entry = {.rank = rank};
    entry.left = tok_map_find(t, map, left_hash, text.data, left_bytes);
    entry.right = tok_map_find(t, map, right_hash, space + 1, right_bytes);
    /* The merged text: the part before the space moves up against the part
     * after it in a scratch copy, unless it is longer than any token. */
    entry.merged = -1;
    uint8_t joined[256];
    uint8_t *copy = joined;
    size_t bytes = left_bytes + right_bytes;
    if (bytes <= t->max_token_bytes && entry.left >= 0 && entry.right >= 0) {
      if (bytes > sizeof joined && !(copy = mem_alloc(bytes))) {
        return error_set(error, LNL_OUT_OF_MEMORY, "no memory for the merge table (%zu bytes)", bytes);
      }
      memcpy(copy, text.data, left_bytes);
      memcpy(copy + left_bytes, space + 1, right_bytes);
      entry.merged = tok_map_find(t, map, left_hash * right_power + right_hash, copy, bytes);
      if (copy != joined) mem_free(copy);
    }
    if (entry.merged < 0) {
      return error_set(error, LNL_BAD_VOCABULARY,
                       "tokenizer.ggml.merges[%u] \"%.*s\" names a text that is no token", rank, shown,
                       (const char *)text.data);
    }
    /* No plain text may become a control token. */
    if (t->attrs[entry.merged] == TOK_CONTROL || t->attrs[entry.merged] == TOK_UNKNOWN) continue;
    if (add_pair(t, entry, &probes_left) < 0) {
      return error_set(error, LNL_BAD_VOCABULARY, "tokenizer.ggml.merges: the pairs collide at merge %u",
                       rank);
    }
  }
  return LNL_OK;
}

bool bpe_pair(const tok_work *w, const tok_symbol *a, const tok_symbol *b, uint32_t *priority, int32_t *id) {
  const tok *t = w->t;
  if (a->id < 0 || b->id < 0) return false;
  uint32_t at = tok_home(pair_hash(a->id, b->id), t->pair_cap);
  while (t->pairs[at].left >= 0) {
    if (t->pairs[at].left == a->id && t->pairs[at].right == b->id) {
      *priority = t->pairs[at].rank;
      *id = t->pairs[at].merged;
      return true;
    }
    if (++at == t->pair_cap) at = 0;
  }
  return false;
}

/* --- encoding ---------------------------------------------------------------------- */

/* The token that the whole word is, or -1. */
static lnl_status find_word(tok_work *w, lnl_span word, int32_t *id) {
  const tok *t = w->t;
  *id = -1;
  if (word.bytes > t->max_token_bytes) return LNL_OK;
  void *block = w->word;
  if (!tok_reserve(&block, &w->word_cap, 2 * word.bytes + 4, 1)) return LNL_OUT_OF_MEMORY;
  w->word = block;
  size_t bytes = 0;
  for (size_t i = 0; i < word.bytes; i++) bytes += bpe_byte_char(word.data[i], w->word + bytes);
  if (bytes > t->max_token_bytes) return LNL_OK;
  uint32_t power;
  int32_t found = tok_map_find(t, &t->map, tok_hash(w->word, bytes, &power), w->word, bytes);
  if (found >= 0 && t->attrs[found] != TOK_CONTROL && t->attrs[found] != TOK_UNKNOWN) *id = found;
  return LNL_OK;
}

static lnl_status encode_word(tok_work *w, lnl_span word) {
  const tok *t = w->t;
  if (t->ignore_merges) {
    int32_t id;
    LNL_TRY(find_word(w, word, &id));
    if (id >= 0) return tok_emit(w, id) ? LNL_OK : LNL_OUT_OF_MEMORY;
  }
  w->symbol_count = 0;
  for (size_t i = 0; i < word.bytes; i++) {
    if (!symbol_push(w, (tok_symbol){.bytes = 1, .id = t->byte_ids[word.data[i]]})) return LNL_OUT_OF_MEMORY;
  }
  LNL_TRY(merge_symbols(w));
  for (uint32_t i = 0; i != TOK_NO_SYMBOL; i = w->symbols[i].next) {
    /* A byte that the vocabulary lacks has no spelling: it is dropped. */
    int32_t id = w->symbols[i].id;
    if (id >= 0 && !tok_emit(w, id)) return LNL_OUT_OF_MEMORY;
  }
  return LNL_OK;
}

/* Whether decoding and encoding again gives the same bytes. */
static bool is_clean(lnl_span text) {
  for (size_t at = 0; at < text.bytes;) {
    if (text.data[at] < 0x80) {
      at++;
      continue;
    }
    uint32_t code_point;
    uint8_t again[4];
    size_t length = utf8_decode(text.data + at, text.bytes - at, &code_point);
    if (utf8_encode(code_point, again) != length || memcmp(again, text.data + at, length) != 0) return false;
    at += length;
  }
  return true;
}

lnl_status bpe_encode(tok_work *w, lnl_span text) {
  if (!is_clean(text)) {
    void *block = w->text;
    if (!tok_reserve(&block, &w->text_cap, 3 * text.bytes + 4, 1)) return LNL_OUT_OF_MEMORY;
    w->text = block;
    w->text_bytes = 0;
    for (size_t at = 0; at < text.bytes;) {
      uint32_t code_point;
      at += utf8_decode(text.data + at, text.bytes - at, &code_point);
      w->text_bytes += utf8_encode(code_point, w->text + w->text_bytes);
    }
    text = (lnl_span){w->text, w->text_bytes};
  }
  tok_splitter splitter;
  splitter_init(&splitter, w->t->split, text);
  for (lnl_span word; splitter_next(&splitter, &word);) LNL_TRY(encode_word(w, word));
  return LNL_OK;
}
