/* WordPiece, Unigram and BPE on characters over vocabularies built in memory,
 * hostile charsmaps, and what the split families cut. */
#include "tok_fixture.h"

/* --- WordPiece --------------------------------------------------------------------- */

static void wordpiece(void **state) {
  (void)state;
  header h = wpm_header();
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "", TOK_ADD_SPECIAL, "[CLS]|[SEP]|");
  EXPECT(l.t, "hello", TOK_ADD_SPECIAL, "[CLS]|" SP "hello|[SEP]|");
  EXPECT(l.t, "HELLO \t\n unhappy", 0, SP "hello|" SP "un|happy|"); /* the longest piece first */
  EXPECT(l.t, "unhappyy", 0, SP "un|happy|y|");
  EXPECT(l.t, "unhap", 0, "[UNK]|"); /* a word as a whole, or not at all */
  EXPECT(l.t, "hello,hello!", 0, SP "hello|" SP ",|" SP "hello|" SP "!|");
  EXPECT(l.t, "xx\xE4\xBD\xA0xx", 0, SP "x|x|" SP "\xE4\xBD\xA0|" SP "x|x|");
  EXPECT(l.t, "CAF\xC3\x89 cafe\xCC\x81", 0, SP "cafe|" SP "cafe|");
  EXPECT(l.t, "x\xC2\xADx x\x01x \xEF\xBF\xBD \xFF", 0, SP "x|x|" SP "x|x|"); /* controls and U+FFFD vanish */
  EXPECT(l.t, "x+x", 0, SP "x|" SP "+|" SP "x|");
  EXPECT(l.t, "x\xE2\x82\xACx", 0, "[UNK]|"); /* a symbol beyond ASCII is part of the word */
  EXPECT(l.t, "[MASK]x", TOK_PARSE_SPECIAL, "[MASK]|" SP "x|");
  EXPECT(l.t, "[MASK]", 0, "[UNK]|[UNK]|[UNK]|"); /* [ mask ] */
  assert_int_equal(tok_bos(l.t), 2);
  assert_true(tok_adds_bos(l.t));
  uint8_t piece[8];
  assert_int_equal(tok_piece(l.t, id_of(l.t, SP "un"), false, piece, sizeof piece), 3);
  assert_memory_equal(piece, " un", 3);
  unload(&l);

  h = wpm_header();
  key_bool(&h, "tokenizer.ggml.normalizer.lowercase", false);
  load(&l, &h);
  EXPECT(l.t, "Hello CAF\xC3\x89 caf\xC3\xA9", 0, SP "Hello|[UNK]|" SP "caf\xC3\xA9|");
  unload(&l);
  h = wpm_header();
  key_bool(&h, "tokenizer.ggml.normalizer.strip_accents", false);
  load(&l, &h);
  EXPECT(l.t, "CAF\xC3\x89 Hello", 0, SP "caf\xC3\xA9|" SP "hello|");
  unload(&l);
  h = wpm_header();
  key_string(&h, "general.name", "a modern-bert");
  load(&l, &h);
  EXPECT(l.t, "x \n [MASK] x", TOK_PARSE_SPECIAL, SP "x|[MASK]|" SP "x|");
  unload(&l);
}

/* --- Unigram ------------------------------------------------------------------------- */

static void unigram(void **state) {
  (void)state;
  header h = ugm_header(false);
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "", TOK_ADD_SPECIAL, "</s>|");
  EXPECT(l.t, "a", TOK_ADD_SPECIAL, SP "a|</s>|");
  EXPECT(l.t, "ab", 0, SP "|ab|");    /* -6, not -7 */
  EXPECT(l.t, "abc", 0, SP "|ab|c|"); /* -10, not -11 */
  EXPECT(l.t, "bab", 0, SP "|b|ab|"); /* -9, not -12 */
  EXPECT(l.t, "a  a", 0, SP "a|" SP "|" SP "a|");
  EXPECT(l.t, "  ", 0, SP "|" SP "|");
  EXPECT(l.t,
         "zz\xC3\xA9"
         "ab",
         0, SP "|<unk>|ab|"); /* unknown ones in a row are one */
  EXPECT(l.t, "\xFF", 0, SP "|<unk>|");
  EXPECT(l.t, "axxa", 0, SP "a|xx|" SP "a|");
  EXPECT(l.t, "</s>", 0, SP "|<unk>|"); /* control tokens are no text */
  EXPECT(l.t, "a</s>a", TOK_PARSE_SPECIAL, SP "a|</s>|" SP "a|");
  uint8_t piece[8];
  assert_int_equal(tok_piece(l.t, id_of(l.t, "<0x41>"), false, piece, sizeof piece), 1);
  assert_int_equal(piece[0], 0x41);
  unload(&l);

  h = ugm_header(false);
  key_bool(&h, "tokenizer.ggml.remove_extra_whitespaces", true);
  load(&l, &h);
  EXPECT(l.t, "  a   a ", 0, SP "a|" SP "a|");
  EXPECT(l.t, "  ", TOK_ADD_SPECIAL, "</s>|");
  unload(&l);

  h = ugm_header(true);
  load(&l, &h);
  EXPECT(l.t, "A", 0, SP "a|");
  EXPECT(l.t, "AA", 0, SP "a|a|");
  EXPECT(l.t, "AAB", 0, SP "a|" SP "|b|");  /* "AB" is " b" */
  EXPECT(l.t, "ABA", 0, SP "|" SP "|b|a|"); /* -10, not -11 */
  EXPECT(l.t, "AC", 0, SP "a|<unk>|");
  unload(&l);
}

/* Encodes texts of all bytes; what comes out does not matter. */
static void survive(header h) {
  loaded l;
  load(&l, &h);
  char text[1024];
  for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7 + i / 256);
  spell(l.t, text, 300, 0);
  memset(text, 'a', sizeof text);
  int32_t *ids;
  size_t count;
  assert_int_equal(tok_encode(l.t, text, sizeof text, 0, &ids, &count, NULL), LNL_OK);
  mem_free(ids);
  unload(&l);
}

static uint32_t random_state = 5;
static uint32_t random_number(void) { return (random_state = random_state * 1664525u + 1013904223u) >> 4; }

static void hostile_charsmaps(void **state) {
  (void)state;
  for (int round = 0; round < 300; round++) {
    uint32_t nodes[64];
    uint32_t count = random_number() % 64;
    for (uint32_t i = 0; i < count; i++) {
      nodes[i] = random_number() << 4 ^ random_number();
      if (random_number() % 2)
        nodes[i] = (nodes[i] & 0x1300) | (random_number() & 63) << 10 | i; /* nearly valid */
    }
    header h = ugm_header(false);
    key_charsmap(&h, nodes, count * 4 + (round % 4 == 0), "x\0\0abc", 7);
    survive(h);
  }
  /* a trie that leads back to itself: each place costs so much and no more */
  static uint32_t loop[256];
  loop['a'] = 'a' | (uint32_t)'a' << 10;
  header h = ugm_header(false);
  key_charsmap(&h, loop, sizeof loop, "", 1);
  loaded l;
  load(&l, &h);
  uint64_t small = cost(l.t, "a", 4000, 0);
  uint64_t large = cost(l.t, "a", 16000, 0);
  assert_true(large < 5 * small && large < 16000ull * 2 * (TOK_MAX_SEARCH_BYTES + 4));
  unload(&l);
}

static void expect_refused(header h, const char *named) {
  loaded l;
  parse(&l, &h);
  tok_kind kind;
  uint32_t n_vocab;
  lnl_status status = tok_check(&l.file, &kind, &n_vocab, &l.error);
  if (status == LNL_OK) status = layout(&l);
  if (status != LNL_BAD_VOCABULARY || !strstr(l.error.message, named))
    fail_msg("status %d, message \"%s\", wanted one naming %s", status, l.error.message, named);
  unload(&l);
}

static void refused(void **state) {
  (void)state;
  static char longest[TOK_MAX_SEARCH_BYTES + 3];
  memset(longest, 'a', sizeof longest - 1);
  static const uint32_t nodes[4];
  const char *key_name = "precompiled_charsmap";
  header h = ugm_header(false);
  key_charsmap(&h, nodes, sizeof nodes, "", 0); /* no texts */
  expect_refused(h, key_name);
  h = ugm_header(false);
  key_charsmap(&h, nodes, sizeof nodes, "abc", 3); /* no end */
  expect_refused(h, key_name);
  h = ugm_header(false);
  key_charsmap(&h, nodes, sizeof nodes, longest, sizeof longest);
  expect_refused(h, key_name);
  for (uint32_t i = 0; i < 3; i++) { /* claims more than there is; too short; of numbers */
    h = ugm_header(false);
    key_array(&h, "tokenizer.ggml.precompiled_charsmap", i == 2 ? GGUF_U32 : GGUF_U8, i == 1 ? 3 : 8);
    for (uint32_t word = 0; word < 8; word++) put_u32(&h, i == 0 ? 5 + UINT32_MAX / 2 : 0);
    h.bytes -= i == 1 ? 29 : i == 0 ? 24 : 0;
    expect_refused(h, key_name);
  }
  token tokens[] = {{"a", 0, 1}, {"b", 0, 1}, {longest, 0, 1}, {NULL, 0, 0}};
  static const char *const models[] = {"bert", "t5"};
  for (size_t i = 0; i < 2; i++) {
    memset(&h, 0, sizeof h);
    key_string(&h, "tokenizer.ggml.model", models[i]);
    key_tokens(&h, tokens, 3);
    expect_refused(h, "1026 bytes");
  }
  /* the ids that a kind has by default may lie beyond a small vocabulary */
  tokens[2].text = "c";
  memset(&h, 0, sizeof h);
  key_string(&h, "tokenizer.ggml.model", "bert");
  key_tokens(&h, tokens, 0);
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "what", TOK_ADD_SPECIAL, "");
  unload(&l);
}

/* --- BPE on characters --------------------------------------------------------------- */

static void gemma4(void **state) {
  (void)state;
  header h = gemma_header();
  loaded l;
  load(&l, &h);
  assert_true(tok_adds_bos(l.t)); /* whatever the file says */
  EXPECT(l.t, "ab ab", TOK_ADD_SPECIAL, "<bos>|ab|" SP "ab|");
  EXPECT(l.t, "  ab", 0, SP "|" SP "ab|"); /* merges by rank: "_ab" before "__" */
  EXPECT(l.t, "   ", 0, SP SP "|" SP "|");
  EXPECT(l.t, "a\xC3\xA9\xE4\xBD\xA0", 0, "a\xC3\xA9|<0xE4>|<0xBD>|<0xA0>|");
  EXPECT(l.t, "a\n\nb\n\n\nb\n", 0, "a|\n\n|b|\n|\n|\n|b|\n|"); /* no merge leads to two: only as a whole */
  EXPECT(l.t, "\xFF", 0, "<0xEF>|<0xBF>|<0xBD>|");
  EXPECT(l.t, "a<t>b<eos>", TOK_PARSE_SPECIAL, "a|<t>|b|<eos>|");
  assert_true(tok_is_end(l.t, id_of(l.t, "<eos>")));
  size_t bytes;
  const char *text = " ab\xE4\xBD\xA0\n\n b";
  const char *back = round_trip(l.t, text, strlen(text), &bytes);
  assert_int_equal(bytes, strlen(text));
  assert_memory_equal(back, text, bytes);
  unload(&l);
}

static void tool_response_makes_s_plain(void **state) {
  (void)state;
  static const char *const texts[] = {"</s>", "<|tool_response>", "</", "s>", NULL};
  static const char *const merges[] = {"< /", "s >", "</ s>", NULL};
  header h = bpe_header((bpe_options){.pre = "superbpe", .texts = texts, .merges = merges});
  loaded l;
  load(&l, &h);
  assert_false(tok_is_end(l.t, id_of(l.t, "</s>")));
  assert_true(tok_is_end(l.t, id_of(l.t, "<|tool_response>")));
  EXPECT(l.t, "x</s><|tool_response>", TOK_PARSE_SPECIAL, "x|</s>|<|tool_response>|");
  unload(&l);
}

/* --- split families -------------------------------------------------------------------- */

/* As the patterns say; tests/node/tokenizer-families.test.mjs has the rest. */
static void split_families(void **state) {
  (void)state;
  expect_split(SPLIT_TEKKEN, "HelloWorld HTTPServer don't", "Hello|World| HTTPServer| don|'t|");
  expect_split(SPLIT_GPT4O, "HelloWorld don't DON'T 1234 a/\n/b",
               "Hello|World| don't| DON'T| |123|4| a|/\n/|b|");
  expect_split(SPLIT_GPT4O,
               "AB\xC3\x89"
               "CD",
               "AB\xC3\x89|CD|");
  expect_split(SPLIT_DEEPSEEK3, "a1234.foo 'S!!\n\x01\x02", "a|123|4|.foo| '|S|!!\n|\x01\x02|");
  expect_split(SPLIT_DEEPSEEK3, "x\xE4\xBD\xA0\xE3\x81\xAEy", "x|\xE4\xBD\xA0\xE3\x81\xAE|y|");
  expect_split(SPLIT_DEEPSEEK_CODER, "if x==12:\n  y", "if| x|==|1|2|:|\n| | y|");
  expect_split(SPLIT_DEEPSEEK_LLM, "caf\xC3\xA9 12! \n", "caf|\xC3\xA9| |12|!| |\n|");
  expect_split(SPLIT_FALCON, "a `b` 12345", "a| |`|b|`| |123|45|");
  expect_split(SPLIT_BLOOM, "a, b. (c) 12", "a|,| b|. (|c|)| 12|");
  expect_split(SPLIT_VIKING, "a 12", "a| |1|2|");
  expect_split(SPLIT_SEED, "a!\n\n1 2", "a|!|\n\n|1| |2|");
  expect_split(SPLIT_LINES, "a b\n\nc", "a b|\n\n|c|");
  expect_split(SPLIT_LINES_QWEN2, "a!\n b", "a|!|\n| b|");
  expect_split(SPLIT_NUMBERS_LLAMA3, "a  1234", "a|  |123|4|");
  expect_split(SPLIT_JAIS2, "a          b\n  c", "a|        | | b|\n| | c|");
  expect_split(SPLIT_KIMI, "\xE4\xBD\xA0\xE5\xA5\xBDok'll", "\xE4\xBD\xA0\xE5\xA5\xBD|ok'll|");
  expect_split(SPLIT_AYA, "ab1234567 x", "ab|1|234|567| x|");
  expect_split(SPLIT_AFMOE, "1234567", "1|234|567|");
  expect_split(SPLIT_EXAONE_MOE, "one two  three!/ 12", "one two| | three|!/| |1|2|");
  expect_split(SPLIT_SUPERBPE, "to be 1234567 or", "to be |1|234|567| or|");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wordpiece),
      cmocka_unit_test(unigram),
      cmocka_unit_test(hostile_charsmaps),
      cmocka_unit_test(refused),
      cmocka_unit_test(gemma4),
      cmocka_unit_test(tool_response_makes_s_plain),
      cmocka_unit_test(split_families),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
