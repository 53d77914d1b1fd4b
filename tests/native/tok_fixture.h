/* What the tokenizer tests share: a GGUF header written in memory, small
 * vocabularies of each kind, and a loaded tokenizer. */
#ifndef TOK_FIXTURE_H
#define TOK_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "src/tok_internal.h"
#include "src/unicode.h"

/* --- a GGUF header in memory ------------------------------------------------------ */

typedef struct header {
  uint8_t *data;
  size_t bytes, cap;
  uint64_t pairs;
} header;

static inline void put(header *h, const void *data, size_t bytes) {
  if (h->bytes + bytes > h->cap) {
    h->cap = 2 * (h->bytes + bytes);
    h->data = realloc(h->data, h->cap);
    assert_non_null(h->data);
  }
  if (bytes) memcpy(h->data + h->bytes, data, bytes);
  h->bytes += bytes;
}
static inline void put_u32(header *h, uint32_t value) { put(h, &value, sizeof value); }
static inline void put_u64(header *h, uint64_t value) { put(h, &value, sizeof value); }
static inline void put_string(header *h, const char *text) {
  put_u64(h, strlen(text));
  put(h, text, strlen(text));
}
static inline void key(header *h, const char *name, uint32_t type) {
  if (!h->data) put(h, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  h->pairs++;
  memcpy(h->data + 16, &h->pairs, sizeof h->pairs);
  put_string(h, name);
  put_u32(h, type);
}
static inline void key_string(header *h, const char *name, const char *value) {
  key(h, name, GGUF_STRING);
  put_string(h, value);
}
static inline void key_u32(header *h, const char *name, uint32_t value) {
  key(h, name, GGUF_U32);
  put_u32(h, value);
}
static inline void key_bool(header *h, const char *name, bool value) {
  key(h, name, GGUF_BOOL);
  uint8_t byte = value;
  put(h, &byte, 1);
}
static inline void key_array(header *h, const char *name, uint32_t item_type, uint64_t count) {
  key(h, name, GGUF_ARRAY);
  put_u32(h, item_type);
  put_u64(h, count);
}

typedef struct token {
  const char *text;
  float score;
  int32_t type;
} token;

/* tokens up to a NULL text; parts: 1 scores, 2 types. */
static inline void key_tokens(header *h, const token *tokens, int parts) {
  uint64_t count = 0;
  while (tokens[count].text) count++;
  key_array(h, "tokenizer.ggml.tokens", GGUF_STRING, count);
  for (uint64_t i = 0; i < count; i++) put_string(h, tokens[i].text);
  if (parts & 1) {
    key_array(h, "tokenizer.ggml.scores", GGUF_F32, count);
    for (uint64_t i = 0; i < count; i++) put(h, &tokens[i].score, 4);
  }
  if (parts & 2) {
    key_array(h, "tokenizer.ggml.token_type", GGUF_I32, count);
    for (uint64_t i = 0; i < count; i++) put(h, &tokens[i].type, 4);
  }
}
static inline void key_merges(header *h, const char *const *merges) {
  uint64_t count = 0;
  while (merges[count]) count++;
  key_array(h, "tokenizer.ggml.merges", GGUF_STRING, count);
  for (uint64_t i = 0; i < count; i++) put_string(h, merges[i]);
}

/* --- a loaded tokenizer ------------------------------------------------------------- */

typedef struct loaded {
  gguf file;
  lnl_arena arena;
  tok *t;
  lnl_error error;
} loaded;

static inline void parse(loaded *l, header *h) {
  memset(l, 0, sizeof *l);
  gguf_init(&l->file, h->bytes);
  uint8_t *room = gguf_reserve(&l->file, h->bytes);
  assert_non_null(room);
  memcpy(room, h->data, h->bytes);
  lnl_status status = gguf_push(&l->file, h->bytes, &l->error);
  if (status != LNL_OK) print_error("%s\n", l->error.message);
  assert_int_equal(status, LNL_OK);
  free(h->data);
  memset(h, 0, sizeof *h);
}

static inline lnl_status layout(loaded *l) {
  LNL_TRY(tok_layout(&l->arena, &l->file, &l->t, &l->error));
  assert_null(l->t);
  lnl_status status = arena_bind(&l->arena);
  if (status < 0) return error_set(&l->error, status, "no memory for the arena");
  LNL_TRY(tok_layout(&l->arena, &l->file, &l->t, &l->error));
  arena_seal(&l->arena); /* asserts that both runs took the same */
  return LNL_OK;
}

static inline void load(loaded *l, header *h) {
  parse(l, h);
  tok_kind kind;
  uint32_t n_vocab;
  lnl_status status = tok_check(&l->file, &kind, &n_vocab, &l->error);
  if (status == LNL_OK) status = layout(l);
  if (status != LNL_OK) print_error("%s\n", l->error.message);
  assert_int_equal(status, LNL_OK);
  assert_int_equal(tok_vocab_count(l->t), n_vocab);
  assert_int_equal(tok_get_kind(l->t), kind);
}

static inline void unload(loaded *l) {
  arena_free(&l->arena);
  gguf_free(&l->file);
}

/* The texts of the ids, each followed by '|'. */
static inline const char *spell(const tok *t, const char *text, size_t bytes, uint32_t flags) {
  static char out[4096];
  size_t used = 0;
  int32_t *ids;
  size_t count;
  assert_int_equal(tok_encode(t, text, bytes, flags, &ids, &count, NULL), LNL_OK);
  assert_non_null(ids);
  for (size_t i = 0; i < count; i++) {
    assert_in_range(ids[i], 0, tok_vocab_count(t) - 1);
    lnl_span piece = tok_text(t, ids[i]);
    assert_true(used + piece.bytes + 2 < sizeof out);
    memcpy(out + used, piece.data, piece.bytes);
    used += piece.bytes;
    out[used++] = '|';
  }
  out[used] = 0;
  mem_free(ids);
  return out;
}
#define EXPECT(t, text, flags, wanted) assert_string_equal(spell(t, text, sizeof(text) - 1, flags), wanted)

static inline int32_t id_of(const tok *t, const char *text) {
  for (uint32_t id = 0; id < t->n_vocab; id++) {
    if (span_equals(tok_text(t, (int32_t)id), text)) return (int32_t)id;
  }
  fail_msg("no token %s", text);
  return -1;
}

/* The bytes that the text's ids stand for. */
static inline const char *round_trip(const tok *t, const char *text, size_t bytes, size_t *out_bytes) {
  static char out[4096];
  int32_t *ids;
  size_t count;
  assert_int_equal(tok_encode(t, text, bytes, 0, &ids, &count, NULL), LNL_OK);
  *out_bytes = 0;
  for (size_t i = 0; i < count; i++) {
    *out_bytes += tok_piece(t, ids[i], false, (uint8_t *)out + *out_bytes, sizeof out - *out_bytes);
  }
  mem_free(ids);
  return out;
}

/* --- vocabularies ---------------------------------------------------------------- */

#define SP "\xE2\x96\x81"
#define BYTE_ROW(hi)                                                                                         \
  {"<0x" hi "0>", 0, 6}, {"<0x" hi "1>", 0, 6}, {"<0x" hi "2>", 0, 6}, {"<0x" hi "3>", 0, 6},                \
      {"<0x" hi "4>", 0, 6}, {"<0x" hi "5>", 0, 6}, {"<0x" hi "6>", 0, 6}, {"<0x" hi "7>", 0, 6},            \
      {"<0x" hi "8>", 0, 6}, {"<0x" hi "9>", 0, 6}, {"<0x" hi "A>", 0, 6}, {"<0x" hi "B>", 0, 6},            \
      {"<0x" hi "C>", 0, 6}, {"<0x" hi "D>", 0, 6}, {"<0x" hi "E>", 0, 6}, {"<0x" hi "F>", 0, 6}
#define ALL_BYTES                                                                                            \
  BYTE_ROW("0"), BYTE_ROW("1"), BYTE_ROW("2"), BYTE_ROW("3"), BYTE_ROW("4"), BYTE_ROW("5"), BYTE_ROW("6"),   \
      BYTE_ROW("7"), BYTE_ROW("8"), BYTE_ROW("9"), BYTE_ROW("A"), BYTE_ROW("B"), BYTE_ROW("C"),              \
      BYTE_ROW("D"), BYTE_ROW("E"), BYTE_ROW("F")

static const token spm_tokens[] = {
    {"<unk>", 0, 2},     {"<s>", 0, 3},     {"</s>", 0, 3},  ALL_BYTES,
    {SP, -10, 1},        {"a", -11, 1},     {"b", -12, 1},   {"c", -13, 1},
    {"ab", -2, 1},       {"bc", -1, 1},     {"abc", -3, 1},  {SP "a", -4, 1},
    {"aa", -5, 1},       {"<", -20, 1},     {"/", -20, 1},   {"s", -20, 1},
    {">", -20, 1},       {"</", -6, 1},     {"</s", -7, 1},  {SP SP, -8, 1},
    {"\xC3\xA9", -9, 1}, {"<user>", -9, 4}, {"<u", -9, 4},   {"<|im_end|>", -9, 1},
    {"0", -20, 1},       {"x", -20, 1},     {"4", -20, 1},   {"1", -20, 1},
    {"<0", -5, 1},       {"<0x", -5, 1},    {"<0x4", -5, 1}, {"<0x41", -5, 1},
    {NULL, 0, 0}};

static inline header spm_header(void) {
  header h = {0};
  key_string(&h, "tokenizer.ggml.model", "llama");
  key_string(&h, "tokenizer.ggml.pre", "nobody reads this");
  key_tokens(&h, spm_tokens, 3);
  return h;
}

/* The 256 bytes in their order, then texts. */
static const char *const bpe_texts[] = {"ab",
                                        "bc",
                                        "abc",
                                        "aa",
                                        "aaaa",
                                        "\xC4\xA0"
                                        "a",
                                        "\xC3\xB0\xC5\x81",
                                        "xyz",
                                        "123",
                                        "<|endoftext|>",
                                        "<|im_start|>",
                                        "<tool>",
                                        "<to",
                                        NULL};
static const char *const bpe_merges[] = {
    "b c", "a b", "a bc", "a a", "aa aa", "\xC4\xA0 a", "\xC3\xB0 \xC5\x81", NULL};

typedef struct bpe_options {
  const char *pre;
  const char *const *merges;
  const char *const *texts;
} bpe_options;

static inline header bpe_header(bpe_options o) {
  if (!o.merges) o.merges = bpe_merges;
  if (!o.texts) o.texts = bpe_texts;
  uint64_t texts = 0;
  while (o.texts[texts]) texts++;
  header h = {0};
  key_string(&h, "tokenizer.ggml.model", "gpt2");
  if (o.pre) key_string(&h, "tokenizer.ggml.pre", o.pre);
  key_array(&h, "tokenizer.ggml.tokens", GGUF_STRING, 256 + texts);
  for (int byte = 0; byte < 256; byte++) {
    uint8_t text[5] = {0};
    bpe_byte_char((uint8_t)byte, text);
    put_string(&h, (const char *)text);
  }
  for (uint64_t i = 0; i < texts; i++) put_string(&h, o.texts[i]);
  key_array(&h, "tokenizer.ggml.token_type", GGUF_U32, 256 + texts);
  for (uint64_t i = 0; i < 256 + texts; i++) {
    const char *text = i < 256 ? "" : o.texts[i - 256];
    bool control = strncmp(text, "<|", 2) == 0 && text[2] != 0;
    put_u32(&h, control ? TOK_CONTROL : strncmp(text, "<to", 3) == 0 ? TOK_USER_DEFINED : TOK_NORMAL);
  }
  key_merges(&h, o.merges);
  return h;
}

/* WordPiece: lower case as bert-base-uncased has it. */
static const token wpm_tokens[] = {{"[PAD]", 0, 3},
                                   {"[UNK]", 0, 3},
                                   {"[CLS]", 0, 3},
                                   {"[SEP]", 0, 3},
                                   {"[MASK]", 0, 3},
                                   {SP "hello", 0, 1},
                                   {SP "un", 0, 1},
                                   {"happy", 0, 1},
                                   {"happ", 0, 1},
                                   {"y", 0, 1},
                                   {SP ",", 0, 1},
                                   {SP "!", 0, 1},
                                   {SP "\xE4\xBD\xA0", 0, 1},
                                   {SP "cafe", 0, 1},
                                   {SP "+", 0, 1},
                                   {SP "Hello", 0, 1},
                                   {SP "caf\xC3\xA9", 0, 1},
                                   {SP "x", 0, 1},
                                   {"x", 0, 1},
                                   {NULL, 0, 0}};
static inline header wpm_header(void) {
  header h = {0};
  key_string(&h, "tokenizer.ggml.model", "bert");
  key_tokens(&h, wpm_tokens, 3);
  key_u32(&h, "tokenizer.ggml.bos_token_id", 2);
  key_u32(&h, "tokenizer.ggml.unknown_token_id", 1);
  key_u32(&h, "tokenizer.ggml.seperator_token_id", 3);
  return h;
}

/* Unigram with a charsmap that makes A to a and AB to " b". */
static const token ugm_tokens[] = {{"<pad>", 0, 3}, {"</s>", 0, 3}, {"<unk>", 0, 2}, {SP, -2, 1},
                                   {"a", -3, 1},    {"b", -3, 1},   {"ab", -4, 1},   {SP "a", -4, 1},
                                   {"abc", -9, 1},  {"c", -4, 1},   {"ba", -7, 1},   {"<0x41>", 0, 6},
                                   {"xx", -1, 4},   {NULL, 0, 0}};
enum { CHARSMAP_NODES = 4096 };
static inline void key_charsmap(header *h, const void *nodes, uint32_t bytes, const char *texts,
                                size_t text_bytes) {
  key_array(h, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, 4 + (uint64_t)bytes + text_bytes);
  put_u32(h, bytes);
  put(h, nodes, bytes);
  put(h, texts, text_bytes);
}
static inline header ugm_header(bool charsmap) {
  header h = {0};
  key_string(&h, "tokenizer.ggml.model", "t5");
  key_tokens(&h, ugm_tokens, 3);
  key_bool(&h, "tokenizer.ggml.add_space_prefix", true);
  if (!charsmap) return h;
  static uint32_t nodes[CHARSMAP_NODES];
  nodes[0] = 256u << 10;
  uint32_t at = 256 ^ 'A';
  nodes[at] = 'A' | 1u << 8 | 512u << 10; /* a replacement ends here; children at base 512 */
  nodes[at ^ 512] = 0x80000000u | 1;      /* "a" */
  uint32_t next = at ^ 512 ^ 'B';
  nodes[next] = 'B' | 1u << 8 | 1u << 9 | 4u << 10; /* base 4 * 256 */
  nodes[next ^ 1024] = 0x80000000u | 3;             /* " b" */
  key_charsmap(&h, nodes, sizeof nodes, "\0a\0 b", 6);
  return h;
}

/* Gemma 4: BPE on characters, bytes in hexadecimal. */
static const token gemma_tokens[] = {{"<pad>", 0, 3},    {"<eos>", 0, 3},     {"<bos>", 0, 3}, ALL_BYTES,
                                     {SP, 0, 1},         {"a", 0, 1},         {"b", 0, 1},     {"ab", 0, 1},
                                     {SP "ab", 0, 1},    {SP SP, 0, 1},       {"\n", 0, 1},    {"\n\n", 0, 1},
                                     {"\xC3\xA9", 0, 1}, {"a\xC3\xA9", 0, 1}, {"<t>", 0, 4},   {NULL, 0, 0}};
static inline header gemma_header(void) {
  header h = {0};
  key_string(&h, "tokenizer.ggml.model", "gemma4");
  key_string(&h, "tokenizer.ggml.pre", "nobody reads this");
  key_tokens(&h, gemma_tokens, 3);
  key_merges(&h, (const char *const[]){"a b", SP " ab", SP " " SP, "a \xC3\xA9", NULL});
  key_u32(&h, "tokenizer.ggml.bos_token_id", 2);
  key_bool(&h, "tokenizer.ggml.add_bos_token", false);
  return h;
}

/* Steps that encoding `count` copies of `part` takes. */
static inline uint64_t cost(const tok *t, const char *part, size_t count, uint32_t flags) {
  size_t bytes = strlen(part) * count;
  char *text = malloc(bytes + 1);
  for (size_t i = 0; i < count; i++) memcpy(text + i * strlen(part), part, strlen(part) + 1);
  tok_work w;
  memset(&w, 0, sizeof w);
  splitter_steps = 0;
  assert_int_equal(tok_encode_work(&w, t, text, bytes, flags), LNL_OK);
  uint64_t steps = w.steps + splitter_steps;
  tok_work_free(&w);
  free(text);
  return steps;
}

/* The words that a text is split into, each followed by a bar. */
static inline void expect_split(tok_split_kind kind, const char *text, const char *wanted) {
  char out[512];
  size_t used = 0;
  tok_splitter splitter;
  splitter_init(&splitter, kind, (lnl_span){(const uint8_t *)text, strlen(text)});
  for (lnl_span word; splitter_next(&splitter, &word);) {
    memcpy(out + used, word.data, word.bytes);
    used += word.bytes;
    out[used++] = '|';
  }
  out[used] = 0;
  assert_string_equal(out, wanted);
}

#endif
