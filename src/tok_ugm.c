/* Unigram (model "t5"): the text is normalised by the file's charsmap, then cut
 * into the tokens whose scores add up to most (Viterbi). */
#include "tok_internal.h"
#include "unicode.h"

TOK_SMALL_BEGIN

/* --- normalisation
 * ------------------------------------------------------------------ */

/* The charsmap is a trie as an XOR-compressed double array. A node is 32 bits:
 * the byte that leads to it (bits 0 to 7), whether a replacement ends here (8),
 * the base of its children (10 to 31, times 256 with bit 9). The blob is not to
 * be trusted: what lies outside it is no node. */
static bool read_node(const tok *t, uint32_t index, uint32_t *node) {
  if (index >= t->charsmap.bytes / 4) return false;
  memcpy(node, t->charsmap.data + (size_t)index * 4, 4);
  return true;
}

static uint32_t node_base(uint32_t node) { return (node >> 10) << ((node & 1u << 9) >> 6); }

/* The longest key of the charsmap that text[0, bytes) begins with: its length,
 * 0 for none, and in *to what replaces it. */
static size_t replaced(tok_work *w, const uint8_t *text, size_t bytes, lnl_span *to) {
  const tok *t = w->t;
  size_t best = 0;
  uint32_t node;
  if (!read_node(t, 0, &node)) return 0;
  uint32_t index = node_base(node);
  if (bytes > TOK_MAX_SEARCH_BYTES) bytes = TOK_MAX_SEARCH_BYTES;
  for (size_t i = 0; i < bytes && text[i] != 0; i++) {
    w->steps++;
    index ^= text[i];
    if (!read_node(t, index, &node) || (node & 0x800000FFu) != text[i]) break;
    index ^= node_base(node);
    uint32_t value;
    if (!(node & 1u << 8)) continue;
    if (!read_node(t, index, &value)) break;
    value &= 0x7FFFFFFF;
    if (value >= t->replacements.bytes) break;
    best = i + 1;
    /* ends in a 0: tok_check looked */
    *to = (lnl_span){t->replacements.data + value, strlen((const char *)t->replacements.data + value)};
  }
  return best;
}

/* The text as the model wants it, in w->text. */
static lnl_status normalise(tok_work *w, lnl_span text) {
  const tok *t = w->t;
  w->text_bytes = 0;
  bool in_word = false;
  bool prefix_due = t->space_prefix;
  for (size_t at = 0; at < text.bytes;) {
    lnl_span part;
    size_t used = replaced(w, text.data + at, text.bytes - at, &part);
    if (used == 0) {
      uint32_t code_point;
      used = utf8_decode(text.data + at, text.bytes - at, &code_point);
      part = (lnl_span){text.data + at, used};
      if (used == 1 && code_point == 0xFFFD) part = (lnl_span){(const uint8_t *)"\xEF\xBF\xBD", 3};
    }
    at += used;
    for (size_t i = 0; i < part.bytes; i++) {
      bool space = part.data[i] == ' ';
      bool word_begins = !space && !in_word;
      in_word = !space;
      if (space ? !t->merge_spaces : word_begins && (prefix_due || t->merge_spaces)) {
        if (!tok_append(w, "\xE2\x96\x81", 3)) return LNL_OUT_OF_MEMORY;
      }
      if (space) continue;
      prefix_due = false;
      if (!tok_append(w, part.data + i, 1)) return LNL_OUT_OF_MEMORY;
    }
  }
  return LNL_OK;
}

/* --- the best way
 * --------------------------------------------------------------------- */

/* The best tokens up to a place: their scores together, the last of them and
 * where that begins. */
typedef struct way {
  double score;
  uint32_t from;
  int32_t id;
} way;

static void challenge(way *ways, size_t from, size_t to, float score, int32_t id) {
  double sum = ways[from].score + (double)score;
  if (sum > ways[to].score) ways[to] = (way){sum, (uint32_t)from, id};
}

/* All tokens that begin at `at`, and the unknown one if none is its character.
 */
static void extend(tok_work *w, way *ways, size_t at, size_t length) {
  const tok *t = w->t;
  const uint8_t *text = w->text + at;
  size_t bytes = w->text_bytes - at;
  if (bytes > t->max_token_bytes) bytes = t->max_token_bytes;
  bool known = false;
  uint32_t hash = 0;
  for (size_t i = 0; i < bytes; i++) {
    if (i > 0 && !tok_may_join(t, text[i - 1], text[i])) break;
    w->steps++;
    hash = tok_hash_next(hash, text[i]);
    int32_t id = tok_find_piece(t, hash, text, i + 1);
    if (id < 0 || t->attrs[id] == 0) continue;
    known |= i + 1 == length;
    challenge(ways, at, at + i + 1, t->attrs[id] == TOK_USER_DEFINED ? 0.0f : tok_score(t, id), id);
  }
  if (!known) challenge(ways, at, at + length, t->unk_score, t->unk);
}

lnl_status ugm_encode(tok_work *w, lnl_span text) {
  LNL_TRY(normalise(w, text));
  size_t bytes = w->text_bytes;
  if (bytes == 0) return LNL_OK;
  if (!tok_reserve(&w->lattice, &w->lattice_cap, bytes + 1, sizeof(way))) return LNL_OUT_OF_MEMORY;
  way *ways = w->lattice;
  for (size_t i = 0; i <= bytes; i++) ways[i] = (way){-1.7976931348623157e308, 0, w->t->unk};
  ways[0].score = 0;
  for (size_t at = 0; at < bytes;) {
    size_t length = utf8_length(w->text[at]);
    if (length > bytes - at) length = bytes - at;
    extend(w, ways, at, length);
    at += length;
  }
  /* From the end to the beginning; of unknown tokens in a row one remains. */
  size_t first = w->id_count;
  int32_t before = -1;
  for (size_t at = bytes; at > 0; at = ways[at].from) {
    int32_t id = ways[at].id;
    bool again = id == w->t->unk && before == id;
    if (id >= 0 && !again && !tok_emit(w, id)) return LNL_OUT_OF_MEMORY;
    before = id;
  }
  for (size_t last = w->id_count; first + 1 < last; first++) {
    int32_t id = w->ids[first];
    w->ids[first] = w->ids[--last];
    w->ids[last] = id;
  }
  return LNL_OK;
}

TOK_SMALL_END
