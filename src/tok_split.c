/* Pre-tokenizers: the split patterns of the BPE families as plain functions,
 * so that no regular expressions are interpreted and time stays linear. Each
 * function takes one word: it looks from `at` to `end` and returns where the
 * word that begins at `at` stops. */
#include "tok_internal.h"
#include "unicode.h"

/* The class at `at`, 0 at the end; *next receives where the next character begins. */
static uint32_t class_at(const uint8_t *text, size_t at, size_t end, size_t *next) {
  if (at >= end) {
    *next = end;
    return 0;
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

/* 's 't 're 've 'm 'll 'd: bytes of the contraction at `at`, or 0. */
static size_t contraction(const uint8_t *text, size_t at, size_t end, bool any_case) {
  if (text[at] != '\'' || end - at < 2) return 0;
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

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t word_gpt2(const uint8_t *text, size_t at, size_t end) {
  size_t short_form = contraction(text, at, end, false);
  if (short_form) return at + short_form;
  size_t next;
  size_t body = at + (text[at] == ' ');
  uint32_t class = class_at(text, body, end, &next);
  if (class & UNI_LETTER) return skip(text, next, end, UNI_LETTER);
  if (class & UNI_NUMBER) return skip(text, next, end, UNI_NUMBER);
  const uint32_t rest = UNI_OTHER | UNI_MARK | UNI_PUNCT;
  if (class & rest) return skip(text, next, end, rest);
  return space_run(text, at, end);
}

/* Contractions in any case|[^\r\n\p{L}\p{N}]?L+|\p{N}{1,group}| ?[^\s L \p{N}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+ with L the classes in `letter`. */
static size_t word_llama3(const uint8_t *text, size_t at, size_t end, uint32_t letter, int group) {
  size_t short_form = contraction(text, at, end, true);
  if (short_form) return at + short_form;

  size_t next;
  size_t after;
  uint32_t class = class_at(text, at, end, &next);
  if (!(class & UNI_NUMBER) && !is_newline(text[at])) {
    if ((class & letter) || (class_at(text, next, end, &after) & letter))
      return skip(text, next, end, letter);
  }
  if (class & UNI_NUMBER) {
    for (int i = 1; i < group && (class_at(text, next, end, &after) & UNI_NUMBER); i++) next = after;
    return next;
  }
  const uint32_t taken = letter | UNI_SPACE | UNI_NUMBER;
  size_t body = at + (text[at] == ' ');
  if (body < end && !(class_at(text, body, end, &next) & taken)) {
    size_t stop = skip(text, next, end, (UNI_OTHER | UNI_MARK | UNI_PUNCT) & ~taken);
    while (stop < end && is_newline(text[stop])) stop++;
    return stop;
  }
  /* White space: up to its last line break if there is one. */
  size_t line_end = 0;
  for (size_t stop = at; class_at(text, stop, end, &next) & UNI_SPACE; stop = next) {
    if (is_newline(text[stop])) line_end = next;
  }
  return line_end ? line_end : space_run(text, at, end);
}

/* [\p{P}$+<=>^~|] */
static bool is_default_punct(uint32_t class, uint8_t first) {
  if (class & UNI_PUNCT) return true;
  return first == '$' || first == '+' || first == '<' || first == '=' || first == '>' || first == '^' ||
         first == '~' || first == '|';
}

/* The section of the first pass of "default": a run of punctuation, or one
 * without any. */
static size_t default_section(const uint8_t *text, size_t at, size_t end) {
  size_t next;
  bool punct = is_default_punct(class_at(text, at, end, &next), text[at]);
  while (next < end) {
    size_t here = next;
    if (is_default_punct(class_at(text, here, end, &next), text[here]) != punct) return here;
  }
  return end;
}

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

/* The last pass of "default": ASCII digits by threes, what lies between them
 * as it is. */
static size_t default_digits(const uint8_t *text, size_t at, size_t end) {
  for (size_t i = at; i + 3 <= end; i++) {
    if (is_digit(text[i]) && is_digit(text[i + 1]) && is_digit(text[i + 2])) return i > at ? i : i + 3;
  }
  return end;
}

void splitter_init(tok_splitter *s, tok_split_kind kind, lnl_span text) {
  *s = (tok_splitter){.kind = kind, .text = text.data, .bytes = text.bytes};
}

static size_t next_default(tok_splitter *s) {
  if (s->at < s->number_end) return default_digits(s->text, s->at, s->number_end);
  if (s->at >= s->section_end) s->section_end = default_section(s->text, s->at, s->bytes);
  size_t stop = word_gpt2(s->text, s->at, s->section_end);
  /* \p{N}+ on its own: a word with digits is an optional space and digits only. */
  size_t next;
  size_t body = s->at + (s->text[s->at] == ' ');
  if (body < stop && (class_at(s->text, body, stop, &next) & UNI_NUMBER)) {
    s->number_end = stop;
    return body > s->at ? body : default_digits(s->text, s->at, stop);
  }
  return stop;
}

static size_t next_gpt2_digits(tok_splitter *s) {
  size_t next;
  if (s->at >= s->section_end) {
    if (class_at(s->text, s->at, s->bytes, &next) & UNI_NUMBER) {
      s->section_end = next;
      return next;
    }
    s->section_end = skip(s->text, next, s->bytes, ~(uint32_t)UNI_NUMBER);
  }
  return word_gpt2(s->text, s->at, s->section_end);
}

static size_t next_stop(tok_splitter *s) {
  switch (s->kind) {
  case SPLIT_DEFAULT:
    return next_default(s);
  case SPLIT_GPT2:
    return word_gpt2(s->text, s->at, s->bytes);
  case SPLIT_GPT2_DIGITS:
    return next_gpt2_digits(s);
  case SPLIT_LLAMA3:
    return word_llama3(s->text, s->at, s->bytes, UNI_LETTER, 3);
  case SPLIT_QWEN2:
    return word_llama3(s->text, s->at, s->bytes, UNI_LETTER, 1);
  case SPLIT_QWEN35:
    return word_llama3(s->text, s->at, s->bytes, UNI_LETTER | UNI_MARK, 1);
  }
  return s->bytes;
}

bool splitter_next(tok_splitter *s, lnl_span *word) {
  if (s->at >= s->bytes) return false;
  size_t stop = next_stop(s);
  *word = (lnl_span){s->text + s->at, stop - s->at};
  s->at = stop;
  return true;
}
