/* BPE (models "gpt2" and "gemma4"): the text is cut into words, each word
 * starts as its bytes (raw vocabularies: its characters), and neighbours merge
 * in the order of the merge list. */
#include "tok_internal.h"
#include "unicode.h"

#include <string.h>

TOK_SMALL_BEGIN

/* --- the byte-level alphabet
 * -------------------------------------------------- */
/* Printable Latin-1 stands for itself; the other 68 bytes follow from U+0100.
 */

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

/* --- the merge table
 * ------------------------------------------------------------ */

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

/* Whether the token is the two texts one after the other. */
static bool is_joined(const tok *t, int32_t id, lnl_span left, lnl_span right) {
  lnl_span text = tok_text(t, id);
  return text.bytes == left.bytes + right.bytes && memcmp(text.data, left.data, left.bytes) == 0 &&
         memcmp(text.data + left.bytes, right.data, right.bytes) == 0;
}

/* The token that is the two texts one after the other, or -1. Merges mostly
 * come in the order of the tokens that they make: *last is tried first. */
static int32_t find_joined(const tok *t, const tok_map *map, uint32_t hash, lnl_span left, lnl_span right,
                           int32_t *last) {
  for (int32_t id = *last; id <= *last + 1 && (uint32_t)id < t->n_vocab; id++) {
    if (is_joined(t, id, left, right)) return *last = id;
  }
  uint32_t at = tok_home(hash, map->cap);
  for (; map->slots[at].id >= 0; at = at + 1 == map->cap ? 0 : at + 1) {
    if (map->slots[at].hash == hash && is_joined(t, map->slots[at].id, left, right))
      return *last = map->slots[at].id;
  }
  return -1;
}

lnl_status bpe_build_pairs(tok *t, const tok_map *map, const gguf_value *merges, lnl_error *error) {
  for (uint32_t i = 0; i < t->pair_cap; i++) t->pairs[i].left = -1;
  uint64_t probes_left = tok_probe_limit(merges->item_count);
  uint64_t cursor = 0;
  lnl_span text;
  int32_t last = 0;
  for (uint32_t rank = 0; gguf_next_string(merges, &cursor, &text); rank++) {
    int shown = (int)u64_min(text.bytes, 64);
    /* "left right"; the left part may itself begin with a space. */
    const uint8_t *space = text.bytes > 1 ? memchr(text.data + 1, ' ', text.bytes - 1) : NULL;
    if (!space) {
      return error_set(error, LNL_BAD_VOCABULARY, "tokenizer.ggml.merges[%u] \"%.*s\" is not two parts", rank,
                       shown, (const char *)text.data);
    }
    lnl_span left = {text.data, (size_t)(space - text.data)};
    lnl_span right = {space + 1, text.bytes - left.bytes - 1};
    uint32_t left_power, right_power;
    uint32_t left_hash = tok_hash(left.data, left.bytes, &left_power);
    uint32_t right_hash = tok_hash(right.data, right.bytes, &right_power);
    tok_pair_slot entry = {.rank = rank, .merged = -1};
    entry.left = tok_map_find(t, map, left_hash, left.data, left.bytes);
    entry.right = tok_map_find(t, map, right_hash, right.data, right.bytes);
    if (entry.left >= 0 && entry.right >= 0)
      entry.merged = find_joined(t, map, left_hash * right_power + right_hash, left, right, &last);
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

/* --- encoding
 * ---------------------------------------------------------------------- */

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

/* Symbols of a word of a raw vocabulary. Gemma 4: line breaks that are a token
 * together are one symbol. */
static lnl_status push_characters(tok_work *w, lnl_span word) {
  bool whole = w->t->split == SPLIT_GEMMA4 && word.data[0] == '\n';
  for (size_t at = 0; at < word.bytes;) {
    size_t length = whole ? word.bytes : utf8_length(word.data[at]);
    uint32_t power;
    int32_t id = -1;
    if (length <= w->t->max_token_bytes)
      id = tok_find_piece(w->t, tok_hash(word.data + at, length, &power), word.data + at, length);
    if (whole && id < 0) { /* it is not */
      whole = false;
      continue;
    }
    tok_symbol symbol = {.offset = (uint32_t)at, .bytes = (uint32_t)length, .id = id};
    if (!symbol_push(w, symbol)) return LNL_OUT_OF_MEMORY;
    at += length;
  }
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
  if (t->raw) LNL_TRY(push_characters(w, word));
  for (size_t i = 0; i < word.bytes && !t->raw; i++) {
    if (!symbol_push(w, (tok_symbol){.bytes = 1, .id = t->byte_ids[word.data[i]]})) return LNL_OUT_OF_MEMORY;
  }
  LNL_TRY(merge_symbols(w));
  for (uint32_t i = 0; i != TOK_NO_SYMBOL; i = w->symbols[i].next) {
    /* A byte that the vocabulary lacks has no spelling: it is dropped. */
    const tok_symbol *symbol = &w->symbols[i];
    if (symbol->id >= 0 && !tok_emit(w, symbol->id)) return LNL_OUT_OF_MEMORY;
    for (uint32_t at = 0; t->raw && symbol->id < 0 && at < symbol->bytes; at++) {
      int32_t id = t->byte_ids[word.data[symbol->offset + at]];
      if (id >= 0 && !tok_emit(w, id)) return LNL_OUT_OF_MEMORY;
    }
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
  const tok *t = w->t;
  if (t->raw) {
    LNL_TRY(tok_escape(w, text, false));
    text = (lnl_span){w->text, w->text_bytes};
  }
  if (!is_clean(text)) {
    void *block = w->word; /* find_word, which wants it too, is not for raw
                              vocabularies */
    size_t *cap = &w->word_cap;
    if (!t->raw) {
      block = w->text;
      cap = &w->text_cap;
    }
    if (!tok_reserve(&block, cap, 3 * text.bytes + 4, 1)) return LNL_OUT_OF_MEMORY;
    uint8_t *clean = block;
    if (t->raw)
      w->word = clean;
    else
      w->text = clean;
    size_t bytes = 0;
    for (size_t at = 0; at < text.bytes;) {
      uint32_t code_point;
      at += utf8_decode(text.data + at, text.bytes - at, &code_point);
      bytes += utf8_encode(code_point, clean + bytes);
    }
    text = (lnl_span){clean, bytes};
  }
  tok_splitter splitter;
  splitter_init(&splitter, t->split, text);
  for (lnl_span word; splitter_next(&splitter, &word);) LNL_TRY(encode_word(w, word));
  return LNL_OK;
}

TOK_SMALL_END
