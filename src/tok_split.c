/* Pre-tokenizers: the split patterns of the BPE families as plain functions, so
 * that no regular expressions are interpreted and time stays linear. A family
 * is a list of passes: each cuts the pieces of the one before into matches and
 * what lies between them. */
#include "tok_internal.h"
#include "unicode.h"

#include <string.h>

TOK_SMALL_BEGIN

#ifdef LNL_DEBUG
uint64_t splitter_steps;
#endif

/* The class at `at`, 0 at the end; *next receives where the next character
 * begins. */
static uint32_t class_at(const uint8_t *text, size_t at, size_t end, size_t *next) {
#ifdef LNL_DEBUG
  splitter_steps++;
#endif
  if (at >= end) {
    *next = end;
    return 0;
  }
  if (text[at] < 0x80) {
    *next = at + 1;
    return unicode_ascii[text[at]];
  }
  uint32_t code_point;
  *next = at + utf8_decode(text + at, end - at, &code_point);
  return unicode_class(code_point);
}

/* Skips characters of the classes in mask. */
static size_t skip(const uint8_t *text, size_t at, size_t end, uint32_t mask) {
  size_t next;
  while (class_at(text, at, end, &next) & mask) at = next;
  return at;
}

static bool is_newline(uint8_t c) { return c == '\r' || c == '\n'; }
static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }
static bool is_ascii_letter(uint8_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

/* What [^\s\p{L}\p{N}] matches. */
enum { UNI_REST = UNI_OTHER | UNI_MARK | UNI_PUNCT | UNI_SYMBOL | UNI_CONTROL };

/* 's 't 're 've 'm 'll 'd: bytes of the contraction at `at`, or 0. */
static size_t contraction(const uint8_t *text, size_t at, size_t end, bool any_case) {
  if (end - at < 2 || text[at] != '\'') return 0;
  uint8_t fold = any_case ? 0x20 : 0;
  uint8_t a = text[at + 1] | fold;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (end - at < 3) return 0;
  uint8_t b = text[at + 2] | fold;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return 0;
}

/* \s+(?!\S)|\s+ : all the white space at the end of the text, else all but
 * the last character of it (which joins the next word), at least one. */
static size_t space_run(const uint8_t *text, size_t at, size_t end) {
  size_t last = at;
  size_t next;
  size_t stop = at;
  while (class_at(text, stop, end, &next) & UNI_SPACE) {
    last = stop;
    stop = next;
  }
  if (stop < end && last > at) return last;
  return stop;
}

/* --- sets of characters
 * ------------------------------------------------------------ */

/* Ranges of code points: for each the distance to the end of the one before
 * and its length, seven bits a byte, the lowest first. A 0 ends the list. */
static const uint8_t newlines[] = {10, 1, 2, 1, 0};
static const uint8_t default_signs[] = {36, 1, 6, 1, 16, 3, 31, 1, 29, 1, 1, 1, 0};      /* $+<=>^|~ */
static const uint8_t falcon_signs[] = {36, 1, 6, 1, 16, 3, 31, 1, 1, 1, 27, 1, 1, 1, 0}; /* and ` */
/* U+0800 to U+9FA5, U+AC00 to U+D7FF */
static const uint8_t deepseek_cjk[] = {128, 16, 166, 175, 2, 218, 24, 128, 88, 0};
/* U+3040 to U+30FF, U+4E00 to U+9FA5 */
static const uint8_t deepseek3_cjk[] = {192, 96, 192, 1, 128, 58, 166, 163, 1, 0};
/* Thai, Lao, Burmese, Jamo, Khmer, radicals, kana, Han, Hangul */
static const uint8_t afmoe_cjk[] = {192, 28,  192, 1,   128, 2,   160, 1,  96,  128, 2,   128,
                                    11,  128, 1,   128, 46,  224, 1,   96, 192, 1,   128, 6,
                                    192, 51,  64,  128, 218, 2,   229, 8,  59,  0};
/* ! ( ) , . ? | U+060C U+06D4 U+0964 U+2026 U+3001 U+3002 U+FF0C */
static const uint8_t bloom_stops[] = {33, 1, 6,   2, 2, 1,   1,  1, 16,  1,  60, 1,   143, 11, 1, 199,
                                      1,  1, 143, 5, 1, 193, 45, 1, 218, 31, 2,  137, 158, 3,  1, 0};
/* Letters with case, of the Unicode that DeepSeek's pattern was made from. */
static const uint8_t deepseek_letters[] = {
    65,  26,  6,  26,  58,  1,  10,  23,  1,   31, 1,  195, 1,   1,   4,   4,  208, 1,   1,   27,  192, 1,
    4,   2,   2,  3,   3,   1,  1,   6,   1,   1,  3,  1,   1,   1,   20,  1,  83,  1,   139, 1,   8,   166,
    1,   1,   38, 201, 22,  38, 218, 5,   86,  2,  6,  146, 17,  43,  2,   3,  64,  44,  63,  13,  1,   34,
    101, 150, 2,  2,   6,   2,  38,  2,   6,   2,  8,  1,   1,   1,   1,   1,  1,   1,   31,  2,   53,  1,
    7,   1,   1,  3,   3,   1,  7,   3,   4,   2,  6,  4,   13,  5,   3,   1,  7,   133, 2,   1,   4,   1,
    2,   10,  1,  1,   3,   5,  6,   1,   1,   1,  1,  1,   1,   4,   1,   6,  4,   1,   2,   4,   5,   5,
    4,   1,   52, 2,   251, 20, 124, 2,   103, 6,  4,  3,   2,   204, 242, 1,  46,  18,  28,  134, 1,   78,
    1,   23,  3,  4,   225, 7,  80,  192, 158, 1,  7,  12,  5,   137, 8,   26, 6,   26,  165, 9,   80,  96,
    36,  4,   36, 132, 15,  51, 13,  51,  173, 23, 64, 160, 160, 3,   68,  0};
/* !-/ :-~ U+2018-201F U+3000-3002 U+FF01-FF0F U+FF1A-FF5E */
static const uint8_t deepseek_punct[] = {33, 15, 10, 69, 153, 63, 8, 224, 31, 3, 254, 157, 3, 15, 10, 69, 0};
static const uint8_t han[] = {128, 104, 192, 51,  64, 128, 164, 1,   128, 178, 1,  128, 4, 128,
                              138, 4,   224, 205, 2,  32,  240, 137, 1,   144, 24, 160, 4, 0};
/* As `han`, less U+2B820 to U+2B91F and what follows U+2CEAF. */
static const uint8_t wordpiece_han[] = {128, 104, 192, 51,  64,  128, 164, 1, 128, 178, 1,
                                        128, 4,   128, 138, 4,   224, 205, 2, 32,  160, 34,
                                        128, 2,   144, 43,  208, 82,  160, 4, 0};

static uint32_t range_number(const uint8_t **at) {
  uint32_t value = 0;
  for (uint32_t shift = 0;; shift += 7) {
    uint8_t byte = *(*at)++;
    value |= (uint32_t)(byte & 127) << shift;
    if (byte < 128) return value;
  }
}

static bool in_ranges(const uint8_t *ranges, uint32_t code_point) {
  uint32_t end = 0;
  while (*ranges) {
    uint32_t first = end + range_number(&ranges);
    end = first + range_number(&ranges);
    if (code_point < end) return code_point >= first;
  }
  return false;
}

bool splitter_is_han(uint32_t code_point) { return in_ranges(wordpiece_han, code_point); }

static bool is_han_at(const uint8_t *text, size_t at, size_t end) {
  uint32_t code_point;
  if (at >= end || text[at] < 0x80) return false;
  utf8_decode(text + at, end - at, &code_point);
  return in_ranges(han, code_point);
}

/* --- passes: runs of a set
 * ----------------------------------------------------------- */

enum { LEAD_NONE, LEAD_BLANK, LEAD_SPACE };

/* An optional character in front ( ? or \s?), then up to `most` (0: any number)
 * characters of the classes or ranges; without white space, or `inverted`. */
typedef struct run_row {
  uint8_t lead, most, classes;
  bool inverted;
  const uint8_t *ranges;
} run_row;

/* clang-format off */
enum {
  PASS_NEWLINE = 1, PASS_NUMBER, PASS_NUMBER_3, PASS_NUMBERS, PASS_DEFAULT_PUNCT, PASS_FALCON_PUNCT,
  PASS_LETTERS, PASS_PUNCT, PASS_DEEPSEEK_LETTERS, PASS_DEEPSEEK_PUNCT, PASS_DEEPSEEK_CJK,
  PASS_DEEPSEEK3_CJK, PASS_AFMOE_CJK, PASS_BLOOM, PASS_RUN_COUNT
};
static const run_row run_rows[PASS_RUN_COUNT] = {
    [PASS_NEWLINE] = {LEAD_NONE, 1, 0, false, newlines},
    [PASS_NUMBER] = {LEAD_NONE, 1, UNI_NUMBER, false, NULL},
    [PASS_NUMBER_3] = {LEAD_NONE, 3, UNI_NUMBER, false, NULL},
    [PASS_NUMBERS] = {LEAD_NONE, 0, UNI_NUMBER, false, NULL},
    [PASS_DEFAULT_PUNCT] = {LEAD_NONE, 0, UNI_PUNCT, false, default_signs},
    [PASS_FALCON_PUNCT] = {LEAD_NONE, 0, UNI_PUNCT, false, falcon_signs},
    [PASS_LETTERS] = {LEAD_SPACE, 0, UNI_LETTER, false, NULL},
    [PASS_PUNCT] = {LEAD_SPACE, 0, UNI_PUNCT, false, NULL},
    [PASS_DEEPSEEK_LETTERS] = {LEAD_SPACE, 0, 0, false, deepseek_letters},
    [PASS_DEEPSEEK_PUNCT] = {LEAD_SPACE, 0, 0, false, deepseek_punct},
    [PASS_DEEPSEEK_CJK] = {LEAD_NONE, 0, 0, false, deepseek_cjk},
    [PASS_DEEPSEEK3_CJK] = {LEAD_NONE, 0, 0, false, deepseek3_cjk},
    [PASS_AFMOE_CJK] = {LEAD_NONE, 0, 0, false, afmoe_cjk},
    [PASS_BLOOM] = {LEAD_BLANK, 0, 0, true, bloom_stops},
};
/* clang-format on */

static bool in_row(const run_row *row, const uint8_t *text, size_t at, size_t end, size_t *next) {
  uint32_t class = class_at(text, at, end, next);
  if (class == 0) return false;
  if (class & UNI_SPACE) return row->ranges == newlines && is_newline(text[at]);
  if (class & row->classes) return true;
  if (!row->ranges) return false;
  uint32_t code_point;
  utf8_decode(text + at, end - at, &code_point);
  return in_ranges(row->ranges, code_point) != row->inverted;
}

/* Where the match at `at` ends; `at` when there is none. */
static size_t match_run(const run_row *row, const uint8_t *text, size_t at, size_t end) {
  size_t next;
  size_t stop = at;
  if (row->lead == LEAD_BLANK && text[at] == ' ') stop = at + 1;
  if (row->lead == LEAD_SPACE && (class_at(text, at, end, &next) & UNI_SPACE)) stop = next;
  if (!in_row(row, text, stop, end, &next)) return at;
  uint32_t count = 0;
  do {
    stop = next;
  } while (++count != row->most && in_row(row, text, stop, end, &next));
  return stop;
}

/* --- passes: words
 * ------------------------------------------------------------------- */

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t match_gpt2(const uint8_t *text, size_t at, size_t end) {
  size_t short_form = contraction(text, at, end, false);
  if (short_form) return at + short_form;
  size_t next;
  size_t body = at + (text[at] == ' ');
  uint32_t class = class_at(text, body, end, &next);
  if (class & UNI_LETTER) return skip(text, next, end, UNI_LETTER);
  if (class & UNI_NUMBER) return skip(text, next, end, UNI_NUMBER);
  if (class & UNI_REST) return skip(text, next, end, UNI_REST);
  return space_run(text, at, end);
}

/* What the patterns after Llama 3's have in common, alternatives in this order:
 *   WORD_SHORT   a contraction in any case
 *   WORD_ASCII   [ASCII punctuation][A-Za-z]+
 *   WORD_HAN     Han characters, which are no letters then
 *   [^\r\n no_lead]?letters+ : WORD_CASE up to a change from lower to upper
 * case, WORD_PHRASE across single spaces; WORD_SUFFIX a contraction after it
 *   \p{N}{1,group}
 *    ?others+[\r\n]* : TAIL_SLASH [\r\n/]*, TAIL_ONE [\r\n/]?, TAIL_NONE
 *   \s*[\r\n]+|\s+(?!\S)|\s+ : WORD_CASCADE in powers of two */
enum {
  WORD_SHORT = 1,
  WORD_ASCII = 2,
  WORD_HAN = 4,
  WORD_CASE = 8,
  WORD_PHRASE = 16,
  WORD_SUFFIX = 32,
  WORD_CASCADE = 64,
};
enum { TAIL_LINES, TAIL_SLASH, TAIL_ONE, TAIL_NONE };
typedef struct word_row {
  uint8_t flags, letters, no_lead, group, others, tail;
} word_row;

enum { LETTER_NUMBER = UNI_LETTER | UNI_NUMBER, LETTER_MARK = UNI_LETTER | UNI_MARK };
enum { PUNCT_SYMBOL = UNI_PUNCT | UNI_SYMBOL };
/* clang-format off */
enum {
  PASS_LLAMA3 = PASS_RUN_COUNT, PASS_QWEN2, PASS_QWEN35, PASS_JAIS2, PASS_SEED, PASS_TEKKEN, PASS_GPT4O,
  PASS_GRANITE, PASS_AYA, PASS_KIMI, PASS_DEEPSEEK3, PASS_EXAONE, PASS_WORD_END
};
static const word_row word_rows[] = {
    {WORD_SHORT, UNI_LETTER, LETTER_NUMBER, 3, UNI_REST, TAIL_LINES},
    {WORD_SHORT, UNI_LETTER, LETTER_NUMBER, 1, UNI_REST, TAIL_LINES},
    {WORD_SHORT, LETTER_MARK, LETTER_NUMBER, 1, UNI_REST & ~UNI_MARK, TAIL_LINES},
    {WORD_SHORT | WORD_CASCADE, UNI_LETTER, LETTER_NUMBER, 3, UNI_REST, TAIL_LINES},
    {WORD_SHORT, UNI_LETTER, LETTER_NUMBER, 1, UNI_REST, TAIL_NONE},
    {WORD_CASE, UNI_LETTER, LETTER_NUMBER, 1, UNI_REST, TAIL_SLASH},
    {WORD_CASE | WORD_SUFFIX, UNI_LETTER, LETTER_NUMBER, 3, UNI_REST, TAIL_SLASH},
    {WORD_CASE | WORD_SUFFIX, LETTER_MARK, LETTER_NUMBER, 3, UNI_REST, TAIL_SLASH},
    {WORD_SUFFIX, LETTER_MARK, LETTER_NUMBER, 3, UNI_REST, TAIL_SLASH},
    {WORD_HAN | WORD_SUFFIX, UNI_LETTER, LETTER_NUMBER, 3, UNI_REST, TAIL_LINES},
    {WORD_ASCII, LETTER_MARK, UNI_LETTER | PUNCT_SYMBOL, 0, PUNCT_SYMBOL, TAIL_LINES},
    {WORD_SHORT | WORD_PHRASE, UNI_LETTER, LETTER_NUMBER, 1, UNI_REST, TAIL_ONE},
};
/* clang-format on */

static bool is_letter_at(const word_row *row, const uint8_t *text, size_t at, size_t end, size_t *next) {
  return (class_at(text, at, end, next) & row->letters) &&
         !((row->flags & WORD_HAN) && is_han_at(text, at, end));
}

/* The end of the letters from `at`, of which there is one at least. */
static size_t letters_end(const word_row *row, const uint8_t *text, size_t at, size_t end) {
  size_t next;
  if (row->flags & WORD_CASE) {
    /* What is not a-z, then what is not A-Z, the latter at least once; else
     * capitals alone. Letters beyond ASCII are both. */
    size_t both_end = 0;
    for (; is_letter_at(row, text, at, end, &next) && (text[at] < 'a' || text[at] >= 0x80); at = next) {
      if (text[at] >= 0x80) both_end = next;
    }
    if (!is_letter_at(row, text, at, end, &next)) return both_end ? both_end : at;
    while (is_letter_at(row, text, at, end, &next) && text[at] >= 'a') at = next;
    return at;
  }
  while (is_letter_at(row, text, at, end, &next)) {
    at = next;
    if (!(row->flags & WORD_PHRASE)) continue;
    at = skip(text, at, end, UNI_MARK);
    if (at < end && text[at] == ' ' && is_letter_at(row, text, at + 1, end, &next)) at++;
  }
  return at;
}

static size_t others_tail(const word_row *row, const uint8_t *text, size_t at, size_t end) {
  while (row->tail != TAIL_NONE && at < end &&
         (is_newline(text[at]) || (text[at] == '/' && row->tail != TAIL_LINES))) {
    at++;
    if (row->tail == TAIL_ONE) break;
  }
  return at;
}

/* \s{512}(?!\S)|\s{256}(?!\S)| ... |\s{1,2}(?!\S)|\s for `count` characters
 * before something else (`last`: before the end): how many of them. */
static size_t cascade(size_t count, bool last) {
  size_t most = last ? count : count - 1;
  for (size_t part = 512; part > 2; part /= 2) {
    if (part <= most) return part;
  }
  return most >= 2 ? 2 : 1;
}

static size_t match_spaces(tok_splitter *s, const word_row *row, size_t at, size_t end) {
  const uint8_t *text = s->text;
  size_t next;
  bool cascading = row->flags & WORD_CASCADE;
  if (at >= s->run_end || !cascading) {
    size_t line_end = 0;
    size_t count = 0;
    size_t stop = at;
    for (; class_at(text, stop, end, &next) & UNI_SPACE; stop = next) {
      if (is_newline(text[stop])) line_end = next;
      count++;
    }
    if (line_end) return line_end; /* up to the last line break */
    if (!cascading || count == 0) return space_run(text, at, end);
    s->run_end = stop;
    s->run_count = count;
  }
  size_t take = cascade(s->run_count, s->run_end == end);
  s->run_count -= take;
  while (take-- > 0) class_at(text, at, end, &at);
  return at;
}

static size_t match_word(tok_splitter *s, const word_row *row, size_t at, size_t end) {
  const uint8_t *text = s->text;
  if (row->flags & WORD_SHORT) {
    size_t short_form = contraction(text, at, end, true);
    if (short_form) return at + short_form;
  }
  size_t next;
  size_t after;
  uint32_t class = class_at(text, at, end, &next);
  if ((row->flags & WORD_ASCII) && text[at] < 0x80 && (class & PUNCT_SYMBOL) && next < end &&
      is_ascii_letter(text[next])) {
    while (next < end && is_ascii_letter(text[next])) next++;
    return next;
  }
  if ((row->flags & WORD_HAN) && is_han_at(text, at, end)) {
    while (is_han_at(text, next, end)) class_at(text, next, end, &next);
    return next;
  }
  size_t body =
      is_letter_at(row, text, at, end, &after)                                                        ? at
      : is_newline(text[at]) || (class & row->no_lead) || !is_letter_at(row, text, next, end, &after) ? end
                                                                                                      : next;
  if (body < end) {
    size_t stop = letters_end(row, text, body, end);
    return stop + (row->flags & WORD_SUFFIX ? contraction(text, stop, end, true) : 0);
  }
  if ((class & UNI_NUMBER) && row->group > 0) {
    for (int i = 1; i < row->group && (class_at(text, next, end, &after) & UNI_NUMBER); i++) next = after;
    return next;
  }
  body = at + (text[at] == ' ');
  if (class_at(text, body, end, &next) & row->others)
    return others_tail(row, text, skip(text, next, end, row->others), end);
  return class & UNI_SPACE ? match_spaces(s, row, at, end) : at;
}

/* --- other passes
 * ----------------------------------------------------------------------- */

enum {
  PASS_GPT2 = PASS_WORD_END, /* above */
  PASS_LINES,                /* [^\n]+|\n+ */
  PASS_LAST_SPACE,           /* \s+$ */
  PASS_ASCII_3,              /* [0-9][0-9][0-9] */
  PASS_GROUPS,               /* numbers by threes from the right; the first group takes the
                                text before it */
  PASS_THOUSANDS,            /* cuts before each third ASCII digit from the right */
};

static size_t next_lines(const uint8_t *text, size_t at, size_t end) {
  bool line_break = text[at] == '\n';
  while (at < end && (text[at] == '\n') == line_break) at++;
  return at;
}

static size_t next_last_space(const uint8_t *text, size_t at, size_t end) {
  size_t next;
  size_t begin = at; /* of the white space that ends here */
  for (size_t i = at; i < end; i = next) {
    if (!(class_at(text, i, end, &next) & UNI_SPACE)) begin = next;
  }
  return begin > at ? begin : end;
}

/* s->run_end remembers up to where numbers come in whole groups. */
static size_t next_group(tok_splitter *s, size_t at, size_t end) {
  const uint8_t *text = s->text;
  size_t next;
  size_t take = 3;
  if (at >= s->run_end) {
    at = skip(text, at, end, ~(uint32_t)UNI_NUMBER);
    size_t count = 0;
    s->run_end = at;
    while (class_at(text, s->run_end, end, &next) & UNI_NUMBER) {
      s->run_end = next;
      count++;
    }
    take = count == 0 ? 0 : count % 3 == 0 ? 3 : count % 3;
  }
  while (take-- > 0) class_at(text, at, end, &at);
  return at;
}

static size_t next_thousand(tok_splitter *s, size_t at, size_t end) {
  const uint8_t *text = s->text;
  for (size_t begin = at;;) {
    if (at < s->run_end) {
      at += 3;
      if (at < s->run_end) return at;
    }
    while (at < end && !is_digit(text[at])) at++;
    if (at == end) return end;
    size_t stop = at;
    while (stop < end && is_digit(text[stop])) stop++;
    size_t cut = at + (stop - at) % 3;
    at = stop - at < 3 ? stop : cut;
    s->run_end = stop;
    if (at < stop && at > begin) return at;
  }
}

/* --- the driver
 * ------------------------------------------------------------------------- */

static const uint8_t families[][TOK_MAX_PASSES] = {
    [SPLIT_DEFAULT] = {PASS_DEFAULT_PUNCT, PASS_GPT2, PASS_NUMBERS, PASS_ASCII_3},
    [SPLIT_GPT2] = {PASS_GPT2},
    [SPLIT_GPT2_DIGITS] = {PASS_NUMBER, PASS_GPT2},
    [SPLIT_LLAMA3] = {PASS_LLAMA3},
    [SPLIT_QWEN2] = {PASS_QWEN2},
    [SPLIT_QWEN35] = {PASS_QWEN35},
    [SPLIT_FALCON] = {PASS_FALCON_PUNCT, PASS_GPT2, PASS_ASCII_3},
    [SPLIT_LINES] = {PASS_LINES},
    [SPLIT_GEMMA4] = {PASS_LINES},
    [SPLIT_LINES_QWEN2] = {PASS_LINES, PASS_QWEN2},
    [SPLIT_NUMBERS_LLAMA3] = {PASS_NUMBER_3, PASS_LLAMA3},
    [SPLIT_JAIS2] = {PASS_JAIS2},
    [SPLIT_SEED] = {PASS_SEED},
    [SPLIT_TEKKEN] = {PASS_TEKKEN},
    [SPLIT_GPT4O] = {PASS_GPT4O},
    [SPLIT_GRANITE] = {PASS_GRANITE},
    [SPLIT_AYA] = {PASS_GROUPS, PASS_AYA},
    [SPLIT_KIMI] = {PASS_KIMI},
    [SPLIT_DEEPSEEK_LLM] = {PASS_NEWLINE, PASS_DEEPSEEK_LETTERS, PASS_DEEPSEEK_PUNCT, PASS_LAST_SPACE,
                            PASS_DEEPSEEK_CJK, PASS_NUMBERS},
    [SPLIT_DEEPSEEK_CODER] = {PASS_NEWLINE, PASS_LETTERS, PASS_PUNCT, PASS_DEEPSEEK_CJK, PASS_NUMBER},
    [SPLIT_DEEPSEEK3] = {PASS_NUMBER_3, PASS_DEEPSEEK3_CJK, PASS_DEEPSEEK3},
    [SPLIT_AFMOE] = {PASS_GROUPS, PASS_AFMOE_CJK, PASS_DEEPSEEK3},
    [SPLIT_EXAONE_MOE] = {PASS_EXAONE},
    [SPLIT_SUPERBPE] = {PASS_NUMBERS, PASS_THOUSANDS},
    [SPLIT_BLOOM] = {PASS_BLOOM},
    [SPLIT_VIKING] = {PASS_BLOOM, PASS_NUMBER},
};
_Static_assert(sizeof families / sizeof families[0] == SPLIT_COUNT, "one row for each family");

/* Where the match of a pass at `at` ends; `at` when there is none. */
static size_t match_at(tok_splitter *s, uint32_t pass, size_t at, size_t end) {
  if (pass < PASS_RUN_COUNT) return match_run(&run_rows[pass], s->text, at, end);
  if (pass < PASS_WORD_END) return match_word(s, &word_rows[pass - PASS_RUN_COUNT], at, end);
  switch (pass) {
  case PASS_GPT2:
    return match_gpt2(s->text, at, end);
  case PASS_LINES:
    return next_lines(s->text, at, end);
  case PASS_LAST_SPACE:
    return next_last_space(s->text, at, end);
  case PASS_ASCII_3:
    return end - at >= 3 && is_digit(s->text[at]) && is_digit(s->text[at + 1]) && is_digit(s->text[at + 2])
               ? at + 3
               : at;
  case PASS_GROUPS:
    return next_group(s, at, end);
  default:
    return next_thousand(s, at, end);
  }
}

/* The end of the piece of a pass that begins at `at`: a match, or what lies
 * before the next one. */
static size_t piece_end(tok_splitter *s, uint32_t pass, size_t at, size_t end) {
  size_t stop = match_at(s, pass, at, end);
  if (stop > at) return stop;
  size_t next;
  do {
    class_at(s->text, at, end, &next);
    at = next;
  } while (at < end && match_at(s, pass, at, end) == at);
  return at;
}

void splitter_init(tok_splitter *s, tok_split_kind kind, lnl_span text) {
  *s = (tok_splitter){.passes = families[kind], .text = text.data, .bytes = text.bytes};
}

bool splitter_next(tok_splitter *s, lnl_span *word) {
  if (s->at >= s->bytes) return false;
  size_t end = s->bytes;
  for (uint32_t i = 0; i < TOK_MAX_PASSES && s->passes[i]; i++) {
    if (s->at >= s->ends[i]) s->ends[i] = piece_end(s, s->passes[i], s->at, end);
    end = s->ends[i];
  }
  *word = (lnl_span){s->text + s->at, end - s->at};
  s->at = end;
  return true;
}

TOK_SMALL_END
