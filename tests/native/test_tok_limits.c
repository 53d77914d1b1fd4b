/* Tokenizers: which vocabularies are refused, failing allocations, the cost of
 * bad texts, and the Unicode tables. */
#include "tok_fixture.h"

/* --- what is refused ---------------------------------------------------------------------- */

/* Checks, and lays out if the check passes; the message must name `named`. */
static void expect_refused(header h, lnl_status wanted, const char *named) {
  loaded l;
  parse(&l, &h);
  tok_kind kind;
  uint32_t n_vocab;
  uint64_t calls = mem_get_stats().alloc_calls;
  lnl_status status = tok_check(&l.file, &kind, &n_vocab, &l.error);
  assert_true(mem_get_stats().alloc_calls == calls); /* it allocates nothing */
  if (status == LNL_OK) status = layout(&l);
  if (status != wanted || !strstr(l.error.message, named)) {
    fail_msg("status %d, message \"%s\", wanted %d naming %s", status, l.error.message, wanted, named);
  }
  assert_int_equal(l.error.status, wanted);
  unload(&l);
}

static header model_header(const char *model) {
  header h = {0};
  key_string(&h, "tokenizer.ggml.model", model);
  return h;
}

static void unsupported(void **state) {
  (void)state;
  static const char *const models[] = {"rwkv", "plamo2", "whitespace", "hybriddna", "", "LLAMA"};
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
    char quoted[32] = "\"";
    strcat(strcat(quoted, models[i]), "\"");
    expect_refused(model_header(models[i]), LNL_UNSUPPORTED_TOKENIZER, quoted);
  }
  expect_refused(bpe_header((bpe_options){.pre = "youtu"}), LNL_UNSUPPORTED_TOKENIZER, "\"youtu\"");
  expect_refused(bpe_header((bpe_options){.pre = "qwen"}), LNL_UNSUPPORTED_TOKENIZER, "command-r");
  expect_refused(bpe_header((bpe_options){.pre = "gpt-2 phi-2"}), LNL_UNSUPPORTED_TOKENIZER, "qwen35");
  expect_refused(bpe_header((bpe_options){.pre = " "}), LNL_UNSUPPORTED_TOKENIZER, "gpt-4o");
  expect_refused(bpe_header((bpe_options){.pre = "llama-bpe2"}), LNL_UNSUPPORTED_TOKENIZER, "starcoder");

  /* none at all is fine */
  static const char *const none[] = {NULL, "none", "no_vocab"};
  for (size_t i = 0; i < 3; i++) {
    header h = {0};
    key_string(&h, "general.architecture", "llama");
    if (none[i]) key_string(&h, "tokenizer.ggml.model", none[i]);
    loaded l;
    parse(&l, &h);
    tok_kind kind = TOK_SPM;
    uint32_t n_vocab = 1;
    assert_int_equal(tok_check(&l.file, &kind, &n_vocab, &l.error), LNL_OK);
    assert_int_equal(kind, TOK_NONE);
    assert_int_equal(n_vocab, 0);
    assert_int_equal(tok_layout(&l.arena, &l.file, &l.t, &l.error), LNL_OK);
    assert_null(l.t);
    unload(&l);
  }
}

static header array_of(const char *name, uint32_t item_type, uint64_t count, const void *items,
                       size_t bytes) {
  header h = {0};
  key_string(&h, "tokenizer.ggml.model", "llama");
  if (strcmp(name, "tokenizer.ggml.tokens") != 0) key_tokens(&h, spm_tokens, 0);
  key_array(&h, name, item_type, count);
  put(&h, items, bytes);
  return h;
}

static void damaged(void **state) {
  (void)state;
  static const uint8_t zeros[4096];
  const char *tokens = "tokenizer.ggml.tokens";
  const char *scores = "tokenizer.ggml.scores";
  const char *types = "tokenizer.ggml.token_type";
  uint32_t n_vocab = sizeof spm_tokens / sizeof spm_tokens[0] - 1;

  header h = {0};
  key_u32(&h, "tokenizer.ggml.model", 1);
  expect_refused(h, LNL_MISSING_KEY, "tokenizer.ggml.model");
  expect_refused(model_header("llama"), LNL_MISSING_KEY, tokens);
  h = model_header("llama");
  key_string(&h, tokens, "a b c");
  expect_refused(h, LNL_BAD_VOCABULARY, tokens);
  expect_refused(array_of(tokens, GGUF_U32, 4, zeros, 16), LNL_BAD_VOCABULARY, tokens);
  expect_refused(array_of(tokens, GGUF_STRING, 0, zeros, 0), LNL_BAD_VOCABULARY, tokens);
  expect_refused(array_of(scores, GGUF_U8, n_vocab, zeros, n_vocab), LNL_BAD_VOCABULARY, scores);
  expect_refused(array_of(scores, GGUF_F32, n_vocab - 1, zeros, (n_vocab - 1) * 4), LNL_BAD_VOCABULARY,
                 scores);
  expect_refused(array_of(scores, GGUF_F32, n_vocab + 1, zeros, (n_vocab + 1) * 4), LNL_BAD_VOCABULARY,
                 scores);
  expect_refused(array_of(types, GGUF_F32, n_vocab, zeros, n_vocab * 4), LNL_BAD_VOCABULARY, types);
  expect_refused(array_of(types, GGUF_I32, 3, zeros, 12), LNL_BAD_VOCABULARY, types);
  float not_a_number[512] = {0};
  uint32_t nan_bits = 0x7FC00000;
  memcpy(&not_a_number[5], &nan_bits, 4);
  expect_refused(array_of(scores, GGUF_F32, n_vocab, not_a_number, n_vocab * 4), LNL_BAD_VOCABULARY,
                 "scores[5]");

  static const char *const ids[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                    "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id"};
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
    h = spm_header();
    key_u32(&h, ids[i], n_vocab);
    expect_refused(h, LNL_BAD_VOCABULARY, ids[i]);
    h = spm_header();
    key_u32(&h, ids[i], UINT32_MAX);
    expect_refused(h, LNL_BAD_VOCABULARY, ids[i]);
    h = spm_header();
    key(&h, ids[i], GGUF_I32);
    put_u32(&h, (uint32_t)-1);
    expect_refused(h, LNL_BAD_VOCABULARY, ids[i]);
    h = spm_header();
    key_string(&h, ids[i], "1");
    expect_refused(h, LNL_BAD_VOCABULARY, ids[i]);
  }
  h = spm_header();
  key_string(&h, "tokenizer.ggml.add_bos_token", "yes");
  expect_refused(h, LNL_BAD_VOCABULARY, "add_bos_token");
  h = model_header("gpt2");
  key_u32(&h, "tokenizer.ggml.pre", 2);
  expect_refused(h, LNL_MISSING_KEY, "tokenizer.ggml.pre");

  static const token twice[] = {{"a", 0, 1}, {"b", 0, 1}, {"a", 0, 1}, {NULL, 0, 0}};
  h = model_header("llama");
  key_tokens(&h, twice, 3);
  expect_refused(h, LNL_BAD_VOCABULARY, "0 and 2 are both \"a\"");
}

static void damaged_merges(void **state) {
  (void)state;
  static const token tokens[] = {{"a", 0, 1}, {"b", 0, 1}, {"ab", 0, 1}, {NULL, 0, 0}};
  header h = model_header("gpt2");
  key_tokens(&h, tokens, 0);
  expect_refused(h, LNL_MISSING_KEY, "tokenizer.ggml.merges");
  h = model_header("gpt2");
  key_tokens(&h, tokens, 0);
  key_string(&h, "tokenizer.ggml.merges", "a b");
  expect_refused(h, LNL_BAD_VOCABULARY, "tokenizer.ggml.merges");
  static const char *const bad[] = {"ab", "", " ", "a", "a ", " b", "a c", "c a", "b a", "ab b", "a b "};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    h = bpe_header((bpe_options){.pre = "gpt-2", .merges = (const char *const[]){"a b", bad[i], NULL}});
    expect_refused(h, LNL_BAD_VOCABULARY, "merges[1]");
  }
}

/* Blocks that a polynomial hash to an odd base cannot tell apart modulo 2^32:
 * a Thue-Morse word of 256 letters and its complement. */
static void colliding_texts_are_refused(void **state) {
  (void)state;
  enum { BLOCK = 256, BLOCKS = 11, COUNT = 1 << BLOCKS };
  char *text = malloc(BLOCK * BLOCKS + 1);
  header h = model_header("llama");
  key_array(&h, "tokenizer.ggml.tokens", GGUF_STRING, COUNT);
  uint32_t first_hash = 0;
  for (int i = 0; i < COUNT; i++) {
    for (int j = 0; j < BLOCK * BLOCKS; j++) {
      text[j] = (char)('a' + ((__builtin_popcount((unsigned)j % BLOCK) + (i >> (j / BLOCK))) & 1));
    }
    text[BLOCK * BLOCKS] = 0;
    put_string(&h, text);
    uint32_t power;
    uint32_t hash = tok_hash((const uint8_t *)text, BLOCK * BLOCKS, &power);
    if (i == 0) first_hash = hash;
    assert_true(hash == first_hash); /* else the attack is not one */
  }
  free(text);
  expect_refused(h, LNL_BAD_VOCABULARY, "collide");
}

/* --- memory and cost ------------------------------------------------------------------------ */

static void each_allocation_fails(void **state) {
  (void)state;
  for (int which = 0; which < 6; which++) {
    header h = which == 0   ? spm_header()
               : which == 3 ? wpm_header()
               : which == 4 ? ugm_header(true)
               : which == 5 ? gemma_header()
                            : bpe_header((bpe_options){.pre = which == 1 ? "llama-bpe" : "gpt-2"});
    if (which < 3) key_u32(&h, "tokenizer.ggml.bos_token_id", 1);
    loaded l;
    parse(&l, &h);
    uint64_t live = mem_get_stats().live_blocks;
    bool clean = false;
    for (uint64_t nth = 1; !clean; nth++) {
      assert_true(nth < 50);
      memset(&l.arena, 0, sizeof l.arena);
      mem_fail_at(nth);
      lnl_status status = layout(&l);
      if (status == LNL_OK) {
        const char text[] = "abc <to <|im_start|> \xFF xyz</s><tool>  aaaaaaaa <user> ";
        int32_t *ids = (int32_t *)&l;
        size_t count = 1;
        status = tok_encode(l.t, text, sizeof text - 1, 3, &ids, &count, &l.error);
        if (status < 0) {
          assert_null(ids);
          assert_int_equal(count, 0);
        }
        mem_free(ids);
      }
      mem_fail_at(0);
      assert_true(status == LNL_OK || status == LNL_OUT_OF_MEMORY);
      if (status < 0) assert_int_equal(l.error.status, LNL_OUT_OF_MEMORY);
      arena_free(&l.arena);
      assert_int_equal(mem_get_stats().live_blocks, live); /* nothing leaks */
      clean = status == LNL_OK;
      if (clean) assert_true(nth > 3); /* the hook did fire before */
    }
    unload(&l);
  }
}

static void no_text_is_quadratic(void **state) {
  (void)state;
  static const char *const parts[] = {
      "a",    "aa ", " ", "\n", "ab", "abc",          "<to", "<tool",
      "\xFF", "x",   "=", "'s", "<|", "\xE2\x96\x81", "1",   "\xF0\x9F\x98\x80"};
  for (int which = 0; which < 6; which++) {
    header h = which == 0   ? spm_header()
               : which == 3 ? wpm_header()
               : which == 4 ? ugm_header(true)
               : which == 5 ? gemma_header()
                            : bpe_header((bpe_options){.pre = which == 1 ? "llama-bpe" : "starcoder"});
    loaded l;
    load(&l, &h);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
      size_t bytes = strlen(parts[i]);
      uint64_t small = cost(l.t, parts[i], 10000, TOK_PARSE_SPECIAL);
      uint64_t large = cost(l.t, parts[i], 40000, TOK_PARSE_SPECIAL);
      /* at most: a push and a pop for each pair, twice over, a walk through the
       * special tokens that begin there, and a few looks at each character;
       * invalid bytes become three */
      if (large > 40000 * 3 * bytes * 14 || large > 5 * small + 64) {
        fail_msg("vocabulary %d, \"%s\": %llu steps, then %llu", which, parts[i], (unsigned long long)small,
                 (unsigned long long)large);
      }
    }
    unload(&l);
  }
}

static void no_split_is_quadratic(void **state) {
  (void)state;
  static const char *const parts[] = {
      "a",   "A",    " ",     "\n",     "1",  "'",           "\xC3\x89",     "\xC3\x89Z",
      ".",   "!/\n", " \t",   "a ",     "1a", "a1 2",        "\xE4\xBD\xA0", "\xCC\x81",
      "  a", "\x01", " \x01", "12345.", "/",  "\xE3\x80\x80"};
  enum { COUNT = 20000 };
  for (int kind = 0; kind < SPLIT_COUNT; kind++) {
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
      size_t bytes = strlen(parts[i]);
      char *text = malloc(COUNT * bytes + 1);
      for (size_t j = 0; j < COUNT; j++) memcpy(text + j * bytes, parts[i], bytes + 1);
      tok_splitter splitter;
      splitter_init(&splitter, (tok_split_kind)kind, (lnl_span){(const uint8_t *)text, COUNT * bytes});
      splitter_steps = 0;
      for (lnl_span word; splitter_next(&splitter, &word);) assert_true(word.bytes > 0);
      if (splitter_steps > 32 * COUNT * bytes)
        fail_msg("family %d, \"%s\": %llu steps", kind, parts[i], (unsigned long long)splitter_steps);
      free(text);
    }
  }
}

/* --- Unicode ---------------------------------------------------------------------------------- */

static void unicode_tables(void **state) {
  (void)state;
  static const struct {
    uint32_t code_point, class;
  } cases[] = {{'a', UNI_LETTER},     {'Z', UNI_LETTER},     {'0', UNI_NUMBER},      {' ', UNI_SPACE},
               {'\n', UNI_SPACE},     {0x0B, UNI_SPACE},     {0x1C, UNI_CONTROL},    {'!', UNI_PUNCT},
               {'$', UNI_SYMBOL},     {'_', UNI_PUNCT},      {0x85, UNI_SPACE},      {0xA0, UNI_SPACE},
               {0xAA, UNI_LETTER},    {0xB2, UNI_NUMBER},    {0xBD, UNI_NUMBER},     {0x300, UNI_MARK},
               {0x660, UNI_NUMBER},   {0x200B, UNI_CONTROL}, {0x2028, UNI_SPACE},    {0x2160, UNI_NUMBER},
               {0x3000, UNI_SPACE},   {0x3001, UNI_PUNCT},   {0x4E00, UNI_LETTER},   {0xD800, UNI_CONTROL},
               {0xFEFF, UNI_CONTROL}, {0xFFFD, UNI_SYMBOL},  {0x1F600, UNI_SYMBOL},  {0x20000, UNI_LETTER},
               {0x10FFFF, UNI_OTHER}, {0x110000, UNI_OTHER}, {UINT32_MAX, UNI_OTHER}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    if (unicode_class(cases[i].code_point) != cases[i].class)
      fail_msg("U+%04X", (unsigned)cases[i].code_point);
  }
  static const struct {
    uint32_t code_point, lower, base;
  } maps[] = {{'a', 'a', 'a'},
              {'Z', 'z', 'Z'},
              {'[', '[', '['},
              {0xC9, 0xE9, 'E'},
              {0xE9, 0xE9, 'e'},
              {0x100, 0x101, 'A'},
              {0x101, 0x101, 'a'},
              {0x130, 'i', 'I'},
              {0x178, 0xFF, 'Y'},
              {0x17F, 0x17F, 0x17F},
              {0x1E9E, 0xDF, 0x1E9E},
              {0x3A9, 0x3C9, 0x3A9},
              {0x410, 0x430, 0x410},
              {0x419, 0x439, 0x418},
              {0x304C, 0x304C, 0x304B},
              {0xAC00, 0xAC00, 0x1100},
              {0xD7A3, 0xD7A3, 0x1112},
              {0x212B, 0xE5, 'A'},
              {0x2126, 0x3C9, 0x3A9},
              {0xF900, 0xF900, 0x8C48},
              {0x10400, 0x10428, 0x10400},
              {0x1E921, 0x1E943, 0x1E921},
              {0x2FA1D, 0x2FA1D, 0x2A600},
              {0x10FFFF, 0x10FFFF, 0x10FFFF},
              {UINT32_MAX, UINT32_MAX, UINT32_MAX}};
  for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
    if (unicode_lower(maps[i].code_point) != maps[i].lower ||
        unicode_base(maps[i].code_point) != maps[i].base)
      fail_msg("U+%04X: lower U+%04X, base U+%04X", (unsigned)maps[i].code_point,
               (unsigned)unicode_lower(maps[i].code_point), (unsigned)unicode_base(maps[i].code_point));
  }
}

static void utf8_both_ways(void **state) {
  (void)state;
  for (uint32_t code_point = 0; code_point <= 0x10FFFF; code_point++) {
    uint8_t text[4];
    uint32_t back;
    size_t length = utf8_encode(code_point, text);
    assert_true(utf8_decode(text, length, &back) == length && back == code_point &&
                utf8_length(text[0]) == length);
    if (length > 1) { /* cut short: not a character */
      assert_true(utf8_decode(text, length - 1, &back) == 1 && back == 0xFFFD);
    }
  }
  static const char *const bad[] = {"\x80",
                                    "\xBF",
                                    "\xC3(",
                                    "\xE2\x82(",
                                    "\xF0\x9F\x98(",
                                    "\xF8\x88\x80\x80\x80",
                                    "\xFE",
                                    "\xFF",
                                    "\xF4\x90\x80\x80",
                                    "\xF7\xBF\xBF\xBF"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    uint32_t code_point;
    assert_int_equal(utf8_decode((const uint8_t *)bad[i], strlen(bad[i]), &code_point), 1);
    assert_int_equal(code_point, 0xFFFD);
  }
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint8_t text[4];
    uint32_t code_point;
    size_t length = bpe_byte_char((uint8_t)byte, text);
    assert_int_equal(utf8_decode(text, length, &code_point), length);
    assert_int_equal(bpe_char_byte(code_point), byte);
  }
  static const uint32_t outside[] = {0, ' ', 0x7F, 0xAD, 0x144, 0x2581, 0x10FFFF};
  for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
    assert_int_equal(bpe_char_byte(outside[i]), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unsupported),           cmocka_unit_test(damaged),
      cmocka_unit_test(damaged_merges),        cmocka_unit_test(colliding_texts_are_refused),
      cmocka_unit_test(each_allocation_fails), cmocka_unit_test(no_text_is_quadratic),
      cmocka_unit_test(no_split_is_quadratic), cmocka_unit_test(unicode_tables),
      cmocka_unit_test(utf8_both_ways),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
