/* SentencePiece as GGUF files of model "llama" mean it: spaces become U+2581,
 * then neighbouring pieces merge into the token with the best score until none
 * is left; what is no token is spelt in byte tokens. Control, unknown and byte
 * tokens never come out of plain text. */
#include "tok_internal.h"
#include "unicode.h"

#include <string.h>

TOK_SMALL_BEGIN

int32_t tok_find_piece(const tok *t, uint32_t hash, const uint8_t *text, size_t bytes) {
  int32_t id = tok_map_find(t, &t->map, hash, text, bytes);
  if (id < 0) return -1;
  uint8_t attr = t->attrs[id];
  return attr != TOK_CONTROL && attr != TOK_UNKNOWN && attr != TOK_BYTE ? id : -1;
}

/* Scores as numbers that sort the other way round: the best is the smallest. */
static uint32_t score_priority(const tok *t, int32_t id) {
  float score = tok_score(t, id) + 0.0f; /* -0 and 0 are equal */
  uint32_t bits;
  memcpy(&bits, &score, sizeof bits);
  return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

bool spm_pair(const tok_work *w, const tok_symbol *a, const tok_symbol *b, uint32_t *priority, int32_t *id) {
  const tok *t = w->t;
  size_t bytes = (size_t)a->bytes + b->bytes;
  if (bytes > t->max_token_bytes) return false;
  *id = tok_find_piece(t, a->hash * b->power + b->hash, w->run + a->offset, bytes);
  if (*id < 0) return false;
  *priority = score_priority(t, *id);
  return true;
}

static lnl_status emit_bytes(tok_work *w, const uint8_t *text, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    int32_t id = w->t->byte_ids[text[i]];
    if (id < 0) id = w->t->unk;
    if (id >= 0 && !tok_emit(w, id)) return LNL_OUT_OF_MEMORY;
  }
  return LNL_OK;
}

static lnl_status encode_run(tok_work *w, const uint8_t *run, size_t bytes) {
  const tok *t = w->t;
  w->run = run;
  w->symbol_count = 0;
  for (size_t at = 0; at < bytes;) {
    size_t length = utf8_length(run[at]);
    if (length > bytes - at) length = bytes - at;
    tok_symbol symbol = {.offset = (uint32_t)at, .bytes = (uint32_t)length};
    symbol.hash = tok_hash(run + at, length, &symbol.power);
    symbol.id = tok_find_piece(t, symbol.hash, run + at, length);
    if (!symbol_push(w, symbol)) return LNL_OUT_OF_MEMORY;
    at += length;
  }
  LNL_TRY(merge_symbols(w));
  for (uint32_t i = 0; i != TOK_NO_SYMBOL; i = w->symbols[i].next) {
    const tok_symbol *symbol = &w->symbols[i];
    if (symbol->id < 0)
      LNL_TRY(emit_bytes(w, run + symbol->offset, symbol->bytes));
    else if (!tok_emit(w, symbol->id))
      return LNL_OUT_OF_MEMORY;
  }
  return LNL_OK;
}

lnl_status tok_escape(tok_work *w, lnl_span text, bool space_prefix) {
  size_t spaces = space_prefix;
  for (size_t i = 0; i < text.bytes; i++) spaces += text.data[i] == ' ';
  void *block = w->text;
  if (!tok_reserve(&block, &w->text_cap, text.bytes + 2 * spaces + 1, 1)) return LNL_OUT_OF_MEMORY;
  w->text = block;
  uint8_t *to = w->text;
  if (space_prefix) {
    memcpy(to, "\xE2\x96\x81", 3);
    to += 3;
  }
  for (size_t i = 0; i < text.bytes; i++) {
    if (text.data[i] == ' ') {
      memcpy(to, "\xE2\x96\x81", 3);
      to += 3;
    } else {
      *to++ = text.data[i];
    }
  }
  w->text_bytes = (size_t)(to - w->text);
  return LNL_OK;
}

lnl_status spm_encode(tok_work *w, lnl_span text, bool space_prefix) {
  LNL_TRY(tok_escape(w, text, space_prefix));
  size_t begin = 0;
  while (begin < w->text_bytes) {
    size_t end = begin;
    do {
      end += utf8_length(w->text[end]);
    } while (end < w->text_bytes && tok_may_join(w->t, w->text[end - 1], w->text[end]));
    if (end > w->text_bytes) end = w->text_bytes;
    LNL_TRY(encode_run(w, w->text + begin, end - begin));
    begin = end;
  }
  return LNL_OK;
}

TOK_SMALL_END
