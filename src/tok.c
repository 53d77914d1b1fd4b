/* Tokenizers: builds the tables, turns ids into bytes, and drives encoding:
 * special tokens first, then what lies between them by its kind. */
#include "tok_internal.h"
#include "unicode.h"

#include <string.h>

TOK_SMALL_BEGIN

/* --- the tables
 * --------------------------------------------------------------------- */

static bool is_special(tok_attr attr, lnl_span text) {
  return text.bytes > 0 && (attr == TOK_CONTROL || attr == TOK_USER_DEFINED || attr == TOK_UNKNOWN);
}

static uint32_t count_specials(const tok_vocab *v) {
  uint32_t count = 0;
  uint64_t cursor = 0;
  lnl_span text;
  bool ends;
  for (uint32_t id = 0; gguf_next_string(&v->tokens, &cursor, &text); id++) {
    count += is_special(vocab_classify(v, id, text, &ends), text);
  }
  return count;
}

int32_t tok_map_find(const tok *t, const tok_map *map, uint32_t hash, const uint8_t *text, size_t bytes) {
  uint32_t at = tok_home(hash, map->cap);
  while (map->slots[at].id >= 0) {
    if (map->slots[at].hash == hash) {
      lnl_span found = tok_text(t, map->slots[at].id);
      if (found.bytes == bytes && memcmp(found.data, text, bytes) == 0) return map->slots[at].id;
    }
    if (++at == map->cap) at = 0;
  }
  return -1;
}

static lnl_status fill_map(const tok *t, tok_map *map, lnl_error *error) {
  for (uint32_t i = 0; i < map->cap; i++) map->slots[i].id = -1;
  uint64_t probes_left = tok_probe_limit(t->n_vocab);
  for (uint32_t id = 0; id < t->n_vocab; id++) {
    lnl_span text = tok_text(t, (int32_t)id);
    if (text.bytes == 0) continue; /* stands for nothing */
    uint32_t power;
    uint32_t hash = tok_hash(text.data, text.bytes, &power);
    uint32_t at = tok_home(hash, map->cap);
    while (map->slots[at].id >= 0) {
      if (map->slots[at].hash == hash) {
        lnl_span other = tok_text(t, map->slots[at].id);
        if (other.bytes == text.bytes && memcmp(other.data, text.data, text.bytes) == 0) {
          return error_set(error, LNL_BAD_VOCABULARY, "tokenizer.ggml.tokens: %d and %u are both \"%.*s\"",
                           (int)map->slots[at].id, id, (int)u64_min(text.bytes, 64), (const char *)text.data);
        }
      }
      if (++at == map->cap) at = 0;
      if (--probes_left == 0) {
        return error_set(error, LNL_BAD_VOCABULARY, "tokenizer.ggml.tokens: the texts collide at token %u",
                         id);
      }
    }
    map->slots[at] = (tok_slot){hash, (int32_t)id};
  }
  return LNL_OK;
}

static void set_end(tok *t, uint32_t id, bool ends) {
  if (ends)
    t->ends[id / 32] |= 1u << (id % 32);
  else
    t->ends[id / 32] &= ~(1u << (id % 32));
}

/* Texts, types, ends and the list of specials. */
static void fill_tokens(tok *t, const tok_vocab *v) {
  memset(t->ends, 0, (t->n_vocab / 32 + 1) * sizeof *t->ends);
  uint64_t cursor = 0;
  uint32_t specials = 0;
  int32_t end_id = -1;
  bool has_return = false;
  bool has_call = false;
  bool has_flush = false;
  int32_t s_id = -1;
  bool has_tool_response = false;
  lnl_span text;
  for (uint32_t id = 0; gguf_next_string(&v->tokens, &cursor, &text); id++) {
    bool ends;
    tok_attr attr = vocab_classify(v, id, text, &ends);
    t->text_offsets[id] = (uint32_t)(text.data - t->texts);
    t->text_offsets[id + 1] = (uint32_t)(text.data - t->texts + text.bytes + 8);
    t->max_token_bytes = u32_max(t->max_token_bytes, (uint32_t)text.bytes);
    t->attrs[id] = (uint8_t)attr;
    set_end(t, id, ends);
    if (v->strip_left && span_equals(text, v->strip_left)) t->strip_left = (int32_t)id;
    if (is_special(attr, text)) t->specials[specials++] = (tok_special){(int32_t)id, 0};
    t->has_user_defined |= attr == TOK_USER_DEFINED;
    if (attr != TOK_CONTROL) continue;
    if (span_equals(text, "<|end|>")) end_id = (int32_t)id;
    has_return |= span_equals(text, "<|return|>");
    has_call |= span_equals(text, "<|call|>") || span_equals(text, "<|calls|>");
    has_flush |= span_equals(text, "<|flush|>");
    has_tool_response |= span_equals(text, "<|tool_response>");
    if (span_equals(text, "</s>")) s_id = (int32_t)id;
  }
  t->special_count = specials;
  /* In such vocabularies (gpt-oss) <|end|> ends a message, not the turn. */
  if (end_id >= 0 && has_call && (has_return || has_flush)) set_end(t, (uint32_t)end_id, false);
  /* In Gemma 4's </s> is a piece of HTML. */
  if (s_id >= 0 && has_tool_response) {
    set_end(t, (uint32_t)s_id, false);
    t->attrs[s_id] = TOK_NORMAL;
    uint32_t at = 0;
    while (t->specials[at].id != s_id) at++;
    t->specials[at] = t->specials[--t->special_count];
  }
}

/* Unigram: the score of a character that is no token. */
static void fill_unknown_score(tok *t) {
  float least = 3.402823466e38f;
  for (uint32_t id = 0; id < t->n_vocab; id++) {
    float score = tok_score(t, (int32_t)id);
    if (t->attrs[id] == TOK_NORMAL && score < least) least = score;
  }
  t->unk_score = least - 10.0f;
}

static void fill_byte_ids(tok *t, const tok_map *map) {
  static const char hex[] = "0123456789ABCDEF";
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint8_t text[6] = {'<', '0', 'x', (uint8_t)hex[byte >> 4], (uint8_t)hex[byte & 15], '>'};
    size_t bytes = t->raw ? 6 : bpe_byte_char((uint8_t)byte, text);
    uint32_t power;
    t->byte_ids[byte] = tok_map_find(t, map, tok_hash(text, bytes, &power), text, bytes);
    if (t->byte_ids[byte] >= 0 || t->kind != TOK_SPM) continue;
    uint8_t raw = (uint8_t)byte;
    t->byte_ids[byte] = tok_map_find(t, map, tok_hash(&raw, 1, &power), &raw, 1);
  }
}

static void fill_adjacent(tok *t) {
  memset(t->adjacent, 0, 65536 / 8);
  for (uint32_t id = 0; id < t->n_vocab; id++) {
    lnl_span text = tok_text(t, (int32_t)id);
    for (size_t i = 0; i + 1 < text.bytes; i++) {
      uint32_t pair = (uint32_t)text.data[i] << 8 | text.data[i + 1];
      t->adjacent[pair / 32] |= 1u << (pair % 32);
    }
  }
}

/* Fills what tok_layout took; `map` is t->map or a temporary one. */
static lnl_status fill(tok *t, const tok_vocab *v, tok_map *map, lnl_error *error) {
  fill_tokens(t, v);
  LNL_TRY(fill_map(t, map, error));
  specials_prepare(t);
  fill_byte_ids(t, map);
  if (t->kind == TOK_BPE) return bpe_build_pairs(t, map, &v->merges, error);
  fill_adjacent(t);
  if (t->kind == TOK_UGM) fill_unknown_score(t);
  if (t->kind != TOK_SPM && t->max_token_bytes > TOK_MAX_SEARCH_BYTES)
    return error_set(error, LNL_BAD_VOCABULARY, "a token of %u bytes; at most %d are supported",
                     t->max_token_bytes, TOK_MAX_SEARCH_BYTES);
  return LNL_OK;
}

lnl_status tok_layout(lnl_arena *arena, const gguf *file, tok **out, lnl_error *error) {
  *out = NULL;
  tok_vocab v;
  LNL_TRY(vocab_read(file, &v, error));
  if (v.kind == TOK_NONE) return LNL_OK;
  bool bound = arena->base != NULL;
  bool keep_map = v.raw || v.ignore_merges;
  uint64_t map_cap = tok_table_cap(v.n_vocab);
  uint64_t pair_cap = v.kind == TOK_BPE ? tok_table_cap(v.merges.item_count) : 0;
  uint32_t special_count = count_specials(&v);

  tok *t = arena_take(arena, sizeof *t);
  uint32_t *text_offsets = arena_take(arena, ((uint64_t)v.n_vocab + 1) * sizeof *text_offsets);
  uint8_t *attrs = arena_take(arena, v.n_vocab);
  uint32_t *ends = arena_take(arena, ((uint64_t)v.n_vocab / 32 + 1) * sizeof *ends);
  tok_special *specials = arena_take(arena, (uint64_t)special_count * sizeof *specials);
  tok_map map = {NULL, (uint32_t)map_cap};
  if (keep_map) map.slots = arena_take(arena, map_cap * sizeof *map.slots);
  uint32_t *adjacent = v.kind != TOK_BPE ? arena_take(arena, 65536 / 8) : NULL;
  tok_pair_slot *pairs = v.kind == TOK_BPE ? arena_take(arena, pair_cap * sizeof *pairs) : NULL;
  if (!bound) return LNL_OK;
  if (arena->high_bytes > arena->cap_bytes) {
    return error_set(error, LNL_OUT_OF_MEMORY, "the tokenizer needs %llu bytes, its block has %llu",
                     (unsigned long long)arena->high_bytes, (unsigned long long)arena->cap_bytes);
  }

  memset(t, 0, sizeof *t);
  t->kind = v.kind;
  t->n_vocab = v.n_vocab;
  t->bos = v.bos;
  t->eos = v.eos;
  t->unk = v.unk;
  t->first = v.add_bos ? v.bos : -1;
  t->last = v.add_eos ? v.sep : -1;
  t->strip_left = -1;
  t->space_prefix = v.space_prefix;
  t->merge_spaces = v.merge_spaces;
  t->lower = v.lower;
  t->strip_accents = v.strip_accents;
  t->raw = v.raw;
  t->charsmap = v.charsmap;
  t->replacements = v.replacements;
  t->ignore_merges = v.ignore_merges;
  t->strip_right = v.strip_right;
  t->split = v.split;
  t->texts = v.tokens.bytes.data;
  t->scores = v.has_scores ? v.scores.bytes.data : NULL;
  t->text_offsets = text_offsets;
  t->attrs = attrs;
  t->ends = ends;
  t->adjacent = adjacent;
  t->pairs = pairs;
  t->pair_cap = (uint32_t)pair_cap;
  t->specials = specials;
  if (!keep_map) {
    map.slots = mem_alloc((size_t)(map_cap * sizeof *map.slots));
    if (!map.slots) {
      return error_set(error, LNL_OUT_OF_MEMORY, "no memory to load the vocabulary (%llu slots)",
                       (unsigned long long)map_cap);
    }
  }
  lnl_status status = fill(t, &v, &map, error);
  if (keep_map)
    t->map = map;
  else
    mem_free(map.slots);
  if (status < 0) return status;
  *out = t;
  return LNL_OK;
}

/* --- encoding
 * ----------------------------------------------------------------------- */

static lnl_status encode_text(tok_work *w, lnl_span text, bool after_special) {
  if (text.bytes == 0) return LNL_OK;
  switch (w->t->kind) {
  case TOK_SPM:
    return spm_encode(w, text, w->t->space_prefix && after_special);
  case TOK_WPM:
    return wpm_encode(w, text);
  case TOK_UGM:
    return ugm_encode(w, text);
  default:
    return bpe_encode(w, text);
  }
}

lnl_status tok_encode_work(tok_work *w, const tok *t, const char *text, size_t bytes, uint32_t flags) {
  if (bytes > 1u << 30) return LNL_OUT_OF_MEMORY; /* offsets are 32 bits */
  w->t = t;
  lnl_span all = {(const uint8_t *)text, bytes};
  if ((flags & TOK_ADD_SPECIAL) && t->first >= 0 && !tok_emit(w, t->first)) return LNL_OUT_OF_MEMORY;
  LNL_TRY(specials_find(w, all, flags & TOK_PARSE_SPECIAL));
  size_t at = 0;
  bool after_special = true;
  for (size_t i = w->match_count; i > 0; i--) {
    tok_candidate match = w->matches[i - 1];
    LNL_TRY(encode_text(w, (lnl_span){all.data + at, (size_t)match.key - at}, after_special));
    if (!tok_emit(w, match.id)) return LNL_OUT_OF_MEMORY;
    after_special = true;
    at = match.bytes;
  }
  LNL_TRY(encode_text(w, (lnl_span){all.data + at, bytes - at}, after_special));
  if ((flags & TOK_ADD_SPECIAL) && t->last >= 0 && !tok_emit(w, t->last)) return LNL_OUT_OF_MEMORY;
  return LNL_OK;
}

void tok_work_free(tok_work *w) {
  mem_free(w->heap);
  mem_free(w->symbols);
  mem_free(w->text);
  mem_free(w->word);
  mem_free(w->lattice);
  mem_free(w->matches);
  mem_free(w->ids);
  memset(w, 0, sizeof *w);
}

lnl_status tok_encode(const tok *t, const char *text, size_t bytes, uint32_t flags, int32_t **ids,
                      size_t *count, lnl_error *error) {
  *ids = NULL;
  *count = 0;
  tok_work w;
  memset(&w, 0, sizeof w);
  lnl_status status = tok_encode_work(&w, t, text, bytes, flags);
  if (status == LNL_OK && !w.ids && !(w.ids = mem_alloc(0))) status = LNL_OUT_OF_MEMORY;
  if (status == LNL_OK) {
    *ids = w.ids;
    *count = w.id_count;
    w.ids = NULL;
  }
  tok_work_free(&w);
  if (status < 0) return error_set(error, status, "no memory to tokenize a text of %zu bytes", bytes);
  return LNL_OK;
}

/* --- ids to bytes
 * ------------------------------------------------------------------- */

/* Copies `bytes` bytes if they fit; returns how many there are. */
static size_t give(const uint8_t *data, size_t bytes, uint8_t *dst, size_t cap) {
  if (bytes <= cap && bytes > 0) memcpy(dst, data, bytes);
  return bytes;
}

static int hex_digit(uint8_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/* The next part of a normal token's text as running text: *bytes bytes in
 * part[], returns how far it reaches in the token. */
static size_t decode_part(const tok *t, lnl_span text, size_t at, uint8_t part[4], size_t *bytes) {
  if (t->raw) {
    if (text.bytes - at >= 3 && memcmp(text.data + at, "\xE2\x96\x81", 3) == 0) {
      part[0] = ' ';
      *bytes = 1;
      return at + 3;
    }
    part[0] = text.data[at];
    *bytes = 1;
    return at + 1;
  }
  uint32_t code_point;
  size_t length = utf8_decode(text.data + at, text.bytes - at, &code_point);
  int32_t byte = bpe_char_byte(code_point);
  if (byte >= 0) {
    part[0] = (uint8_t)byte;
    *bytes = 1;
  } else { /* outside the byte-level alphabet: as it stands */
    memcpy(part, text.data + at, length);
    *bytes = length;
  }
  return at + length;
}

size_t tok_piece(const tok *t, int32_t id, bool show_special, uint8_t *dst, size_t cap) {
  if (id < 0 || (uint32_t)id >= t->n_vocab) return 0;
  lnl_span text = tok_text(t, id);
  switch (t->attrs[id]) {
  case TOK_CONTROL:
  case TOK_UNKNOWN:
    return show_special ? give(text.data, text.bytes, dst, cap) : 0;
  case TOK_USER_DEFINED:
    return give(text.data, text.bytes, dst, cap);
  case TOK_BYTE:
    if (text.bytes == 6 && hex_digit(text.data[3]) >= 0 && hex_digit(text.data[4]) >= 0) {
      uint8_t byte = (uint8_t)(hex_digit(text.data[3]) << 4 | hex_digit(text.data[4]));
      return give(&byte, 1, dst, cap);
    }
    return 0;
  case TOK_NORMAL:
    break;
  default:
    return 0;
  }
  for (int writing = 0; writing < 2; writing++) { /* the length first: all or nothing is written */
    size_t total = 0;
    for (size_t at = 0; at < text.bytes;) {
      uint8_t part[4];
      size_t bytes;
      at = decode_part(t, text, at, part, &bytes);
      if (writing) memcpy(dst + total, part, bytes);
      total += bytes;
    }
    if (writing || total > cap || total == 0) return total;
  }
  return 0;
}

size_t tok_max_piece_bytes(const tok *t) { return t->max_token_bytes; }

uint32_t tok_vocab_count(const tok *t) { return t->n_vocab; }
tok_kind tok_get_kind(const tok *t) { return t->kind; }
int32_t tok_bos(const tok *t) { return t->bos; }
int32_t tok_eos(const tok *t) { return t->eos; }
bool tok_adds_bos(const tok *t) { return t->first >= 0; }

bool tok_is_end(const tok *t, int32_t id) {
  if (id < 0 || (uint32_t)id >= t->n_vocab) return false;
  return t->ends[(uint32_t)id / 32] >> ((uint32_t)id % 32) & 1;
}

TOK_SMALL_END
