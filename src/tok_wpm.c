/* WordPiece (model "bert"): the text is made lower case and loses its accents,
 * as the file asks; each word, with U+2581 in front, is then spelt in the
 * longest tokens from the left. A word that cannot be is the unknown token. */
#include "tok_internal.h"
#include "unicode.h"

TOK_SMALL_BEGIN

static const uint8_t word_start[3] = {0xE2, 0x96, 0x81};

/* The longest token that text[0, bytes) begins with: its length, 0 for none. */
static size_t longest_piece(tok_work *w, const uint8_t *text, size_t bytes, int32_t *id) {
  const tok *t = w->t;
  if (bytes > t->max_token_bytes) bytes = t->max_token_bytes;
  size_t best = 0;
  uint32_t hash = 0;
  for (size_t i = 0; i < bytes; i++) {
    if (i > 0 && !tok_may_join(t, text[i - 1], text[i])) break;
    w->steps++;
    hash = tok_hash_next(hash, text[i]);
    int32_t found = tok_find_piece(t, hash, text, i + 1);
    if (found < 0) continue;
    best = i + 1;
    *id = found;
  }
  return best;
}

/* Spells the word in w->text, if there is one, and begins the next. */
static lnl_status end_word(tok_work *w) {
  size_t bytes = w->text_bytes;
  if (bytes == sizeof word_start) return LNL_OK;
  w->text_bytes = sizeof word_start;
  size_t before = w->id_count;
  for (size_t at = 0; at < bytes;) {
    int32_t id;
    size_t length = longest_piece(w, w->text + at, bytes - at, &id);
    if (length == 0) {
      w->id_count = before;
      break;
    }
    if (!tok_emit(w, id)) return LNL_OUT_OF_MEMORY;
    at += length;
  }
  if (w->id_count == before && w->t->unk >= 0 && !tok_emit(w, w->t->unk)) return LNL_OUT_OF_MEMORY;
  return LNL_OK;
}

lnl_status wpm_encode(tok_work *w, lnl_span text) {
  const tok *t = w->t;
  w->text_bytes = 0;
  if (!tok_append(w, word_start, sizeof word_start)) return LNL_OUT_OF_MEMORY;
  for (size_t at = 0; at < text.bytes;) {
    uint32_t code_point;
    at += utf8_decode(text.data + at, text.bytes - at, &code_point);
    if (t->strip_accents && code_point >= 0x80) code_point = unicode_base(code_point);
    uint32_t class = unicode_class(code_point);
    if (class == UNI_SPACE) LNL_TRY(end_word(w));
    if (class == UNI_SPACE || class == UNI_CONTROL || code_point == 0xFFFD) continue;
    if (class == UNI_MARK && t->strip_accents) continue;
    bool alone =
        class == UNI_PUNCT || (class == UNI_SYMBOL && code_point < 0x7F) || splitter_is_han(code_point);
    if (alone) LNL_TRY(end_word(w));
    uint8_t character[4];
    size_t bytes = utf8_encode(t->lower ? unicode_lower(code_point) : code_point, character);
    if (!tok_append(w, character, bytes)) return LNL_OUT_OF_MEMORY;
    if (alone) LNL_TRY(end_word(w));
  }
  return end_word(w);
}

TOK_SMALL_END
