/* Tokenizers over vocabularies built in memory: what comes out of a text, and
 * what comes back from ids. */
#include "tok_fixture.h"

/* --- SPM ------------------------------------------------------------------------------ */

static void spm_merges_by_score(void **state) {
  (void)state;
  header h = spm_header();
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "", 0, "");
  EXPECT(l.t, "", TOK_ADD_SPECIAL, "<s>|");
  EXPECT(l.t, "a", TOK_ADD_SPECIAL, "<s>|" SP "a|");
  /* bc (-1) before ab (-2), then abc (-3); the space stays alone */
  EXPECT(l.t, "abc", 0, SP "|abc|");
  /* equals: the leftmost first */
  EXPECT(l.t, "baaa", 0, SP "|b|aa|a|");
  EXPECT(l.t, "  a", 0, SP SP "|" SP "a|");
  EXPECT(l.t, "c a", 0, SP "|c|" SP "a|");
  assert_int_equal(tok_bos(l.t), 1);
  assert_int_equal(tok_eos(l.t), 2);
  assert_true(tok_adds_bos(l.t));
  unload(&l);
}

static void spm_scores_of_either_sign(void **state) {
  (void)state;
  static const struct {
    float ab, bc;
    const char *wanted;
  } cases[] = {{1, 2, "a|bc|"},          {2, 1, "ab|c|"},           {-1, 1, "a|bc|"},    {1, -1, "ab|c|"},
               {-2, -1, "a|bc|"},        {-1, -2, "ab|c|"},         {-0.0f, 0, "ab|c|"}, {0, -0.0f, "ab|c|"},
               {1e-30f, 1e30f, "a|bc|"}, {-1e30f, -1e-30f, "a|bc|"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    token tokens[] = {{"<unk>", 0, 2},        {"a", 0, 1}, {"b", 0, 1}, {"c", 0, 1}, {"ab", cases[i].ab, 1},
                      {"bc", cases[i].bc, 1}, {NULL, 0, 0}};
    header h = {0};
    key_string(&h, "tokenizer.ggml.model", "llama");
    key_tokens(&h, tokens, 3);
    key_bool(&h, "tokenizer.ggml.add_space_prefix", false);
    loaded l;
    load(&l, &h);
    EXPECT(l.t, "abc", 0, cases[i].wanted);
    unload(&l);
  }
}

static void spm_falls_back_to_bytes(void **state) {
  (void)state;
  header h = spm_header();
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "\xC3\xA9", 0, SP "|\xC3\xA9|");
  EXPECT(l.t, "\xF0\x9F\x98\x80", 0, SP "|<0xF0>|<0x9F>|<0x98>|<0x80>|");
  EXPECT(l.t, "\n", 0, SP "|<0x0A>|");
  /* not UTF-8: byte by byte, also a character cut off at the end */
  EXPECT(l.t, "\xFF", 0, SP "|<0xFF>|");
  EXPECT(l.t, "a\xC3", 0, SP "a|<0xC3>|");
  EXPECT(l.t,
         "\xF0"
         "ab",
         0, SP "|<0xF0>|<0x61>|<0x62>|");
  size_t bytes;
  for (int byte = 0; byte < 256; byte++) {
    char text[2] = {(char)byte, 'b'};
    const char *back = round_trip(l.t, text, 2, &bytes);
    assert_int_equal(bytes, 3); /* and the space in front */
    assert_memory_equal(back + 1, text, 2);
  }
  unload(&l);
}

static void spm_options(void **state) {
  (void)state;
  header h = spm_header();
  key_bool(&h, "tokenizer.ggml.add_space_prefix", false);
  key_bool(&h, "tokenizer.ggml.add_eos_token", true);
  key_bool(&h, "tokenizer.ggml.add_bos_token", false);
  key_u32(&h, "tokenizer.ggml.eos_token_id", 1);
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "a a", TOK_ADD_SPECIAL, "a|" SP "a|<s>|");
  EXPECT(l.t, "a a", 0, "a|" SP "a|");
  assert_false(tok_adds_bos(l.t));
  assert_true(tok_is_end(l.t, 1));
  unload(&l);

  static const token bare[] = {{"<unk>", 0, 2}, {SP, 0, 1}, {"\xC3", 0, 1}, {NULL, 0, 0}};
  memset(&h, 0, sizeof h);
  key_string(&h, "tokenizer.ggml.model", "llama");
  key_tokens(&h, bare, 2); /* no scores: all equal */
  key_bool(&h, "tokenizer.ggml.add_bos_token", false);
  load(&l, &h);
  EXPECT(l.t, "z", TOK_ADD_SPECIAL, SP "|<unk>|"); /* no byte tokens at all */
  EXPECT(l.t, "\xC3\xA9", 0, SP "|\xC3|<unk>|");   /* a byte as itself */
  unload(&l);
}

static void no_text_forges_a_control_token(void **state) {
  (void)state;
  header h = spm_header();
  loaded l;
  load(&l, &h);
  /* "</s" and ">" would merge into the token of score 0 */
  EXPECT(l.t, "</s>", 0, SP "|</s|>|");
  EXPECT(l.t, "</s>", TOK_PARSE_SPECIAL, "</s>|");
  EXPECT(l.t, "<s>", 0, SP "|<|s|>|");
  EXPECT(l.t, "a<unk>a", TOK_PARSE_SPECIAL, SP "a|<unk>|" SP "a|");
  assert_null(strstr(spell(l.t, "a<unk>a", 7, 0), "<unk>"));
  EXPECT(l.t, "<0x41>", 0, SP "|<0x41|>|");
  /* typed normal, known to end a generation: control */
  assert_null(strstr(spell(l.t, "<|im_end|>", 10, 0), "<|im_end|>"));
  EXPECT(l.t, "a<|im_end|>", TOK_PARSE_SPECIAL, SP "a|<|im_end|>|");
  assert_true(tok_is_end(l.t, id_of(l.t, "<|im_end|>")));
  uint8_t piece[16];
  assert_int_equal(tok_piece(l.t, id_of(l.t, "<|im_end|>"), false, piece, sizeof piece), 0);
  assert_int_equal(tok_piece(l.t, id_of(l.t, "<|im_end|>"), true, piece, sizeof piece), 10);
  /* user-defined ones match always, the longest first, space prefix after each */
  EXPECT(l.t, "<user>a<u<user>", 0, "<user>|" SP "a|<u|<user>|");
  unload(&l);
}

static void phi3_specials_swallow_white_space(void **state) {
  (void)state;
  header h = spm_header();
  key_string(&h, "general.name", "Some PHI-3 model");
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "</s> \n\t a", TOK_PARSE_SPECIAL, "</s>|" SP "a|");
  EXPECT(l.t, "<s> a", TOK_PARSE_SPECIAL, "<s>|" SP "|" SP "a|"); /* an exception */
  EXPECT(l.t, "<user>  </s>  ", TOK_PARSE_SPECIAL, "<user>|</s>|");
  unload(&l);
}

/* --- splitting ------------------------------------------------------------------------- */

static void split_families(void **state) {
  (void)state;
  const char *mixed = "I'll say 12345 x's\n\n  (ok)!\r\n\t\tend  ";
  expect_split(SPLIT_GPT2, mixed,
               "I|'ll| say| 12345| x|'s|\n\n |"
               " (|ok|)!|\r\n\t|\t|end|  |");
  expect_split(SPLIT_GPT2_DIGITS, mixed, "I|'ll| say| |1|2|3|4|5| x|'s|\n\n | (|ok|)!|\r\n\t|\t|end|  |");
  expect_split(SPLIT_LLAMA3, mixed, "I|'ll| say| |123|45| x|'s|\n\n| | (|ok|)!\r\n|\t|\tend|  |");
  expect_split(SPLIT_QWEN2, mixed, "I|'ll| say| |1|2|3|4|5| x|'s|\n\n| | (|ok|)!\r\n|\t|\tend|  |");
  expect_split(SPLIT_DEFAULT, mixed, "I|'|ll| say| |123|45| x|'|s|\n\n  |(|ok|)!|\r\n\t|\t|end|  |");

  /* contractions: GPT-2 knows lower case only */
  expect_split(SPLIT_GPT2, "HE'S 'Ve 've", "HE|'|S| '|Ve| '|ve|");
  expect_split(SPLIT_LLAMA3, "HE'S 'Ve x'vE y'r", "HE|'S| '|Ve| x|'vE| y|'r|");
  expect_split(SPLIT_LLAMA3, "x'SLow y'LLama z'rEd", "x|'S|Low| y|'LL|ama| z|'rE|d|");
  expect_split(SPLIT_GPT2, "'", "'|");

  /* numbers are more than 0-9, spaces more than ' ', letters more than a-z */
  expect_split(SPLIT_GPT2_DIGITS,
               "\xC2\xBD"
               "2\xD9\xA3",
               "\xC2\xBD|2|\xD9\xA3|");
  expect_split(SPLIT_LLAMA3,
               "1\xC2\xBD"
               "23",
               "1\xC2\xBD"
               "2|3|");
  expect_split(SPLIT_GPT2,
               "a\xC2\xA0\xE3\x80\x80"
               "b",
               "a|\xC2\xA0|\xE3\x80\x80|b|");
  expect_split(SPLIT_LLAMA3,
               "a\xC2\xA0"
               "b",
               "a|\xC2\xA0"
               "b|");
  expect_split(SPLIT_LLAMA3, "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x81",
               "\xE4\xBD\xA0\xE5\xA5\xBD|\xEF\xBC\x81|");
  /* a combining mark ends a word, except for Qwen3.5 */
  expect_split(SPLIT_QWEN2,
               "e\xCC\x81"
               "a",
               "e|\xCC\x81"
               "a|");
  expect_split(SPLIT_QWEN35,
               "e\xCC\x81"
               "a",
               "e\xCC\x81"
               "a|");
  /* white space before a line break belongs to it */
  expect_split(SPLIT_LLAMA3, " \n \n  x", " \n \n| | x|");
  expect_split(SPLIT_LLAMA3, "\nab\r\nc\td", "\n|ab|\r\n|c|\td|");
  expect_split(SPLIT_LLAMA3, "   ", "   |");
  expect_split(SPLIT_GPT2, " ", " |");
  /* default: punctuation first, then digits by threes wherever ASCII */
  expect_split(SPLIT_DEFAULT, "a+b", "a|+|b|");
  expect_split(SPLIT_DEFAULT,
               "\xC2\xBD"
               "1234",
               "\xC2\xBD|123|4|");
  expect_split(SPLIT_DEFAULT, " ...$5", " |...$|5|");
}

static uint32_t random_state;
static uint32_t random_below(uint32_t n) {
  random_state = random_state * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)(random_state >> 4) * n >> 28);
}

static void words_make_up_the_text(void **state) {
  (void)state;
  static const char *const bits[] = {" ",
                                     "\n",
                                     "\r",
                                     "'",
                                     "s",
                                     "LL",
                                     "7",
                                     "42",
                                     "x",
                                     "\xC3\xA9",
                                     "\xCC\x81",
                                     ".",
                                     "$",
                                     "\xE3\x80\x80",
                                     "\xF0\x9F\x98\x80",
                                     "\xC2\xB2",
                                     "\t",
                                     "\xED\xA0\x80"};
  random_state = 7;
  for (int round = 0; round < 3000; round++) {
    char text[128] = "";
    for (uint32_t i = random_below(24); i > 0; i--)
      strcat(text, bits[random_below(sizeof bits / sizeof bits[0])]);
    for (int kind = 0; kind < SPLIT_COUNT; kind++) {
      tok_splitter splitter;
      splitter_init(&splitter, (tok_split_kind)kind, (lnl_span){(const uint8_t *)text, strlen(text)});
      const uint8_t *at = (const uint8_t *)text;
      for (lnl_span word; splitter_next(&splitter, &word);) {
        assert_ptr_equal(word.data, at);
        assert_true(word.bytes > 0);
        at += word.bytes;
        assert_true(at == (const uint8_t *)text + strlen(text) || (*at & 0xC0) != 0x80);
      }
      assert_ptr_equal(at, text + strlen(text));
    }
  }
}

/* --- BPE ---------------------------------------------------------------------------------- */

static void bpe_merges_by_rank(void **state) {
  (void)state;
  header h = bpe_header((bpe_options){.pre = "gpt-2"});
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "abc", 0, "abc|"); /* bc first, then a bc */
  EXPECT(l.t, "abab", 0, "ab|ab|");
  EXPECT(l.t, "aaaaa", 0, "aaaa|a|");
  EXPECT(l.t, "aaa", 0, "aa|a|");
  EXPECT(l.t, "b a", 0,
         "b|\xC4\xA0"
         "a|");
  EXPECT(l.t, "a\n", 0, "a|\xC4\x8A|");
  EXPECT(l.t, "xyz", 0, "x|y|z|"); /* a token, but no merge leads to it */
  EXPECT(l.t, "abc", TOK_ADD_SPECIAL, "abc|");
  assert_int_equal(tok_bos(l.t), -1);
  assert_int_equal(tok_eos(l.t), -1);
  unload(&l);
}

static void bpe_families(void **state) {
  (void)state;
  static const struct {
    const char *pre;
    const char *xyz, *digits;
  } cases[] = {
      {"llama-bpe", "xyz|", "123|4|"},
      {"llama3", "xyz|", "123|4|"},
      {"llama-v3", "xyz|", "123|4|"},
      {"falcon3", "xyz|", "123|4|"},
      {"pixtral", "xyz|", "123|4|"},
      {"lfm2", "xyz|", "123|4|"},
      {"dbrx", "x|y|z|", "1|2|3|4|"},
      {"smaug-bpe", "x|y|z|", "1|2|3|4|"},
      {"glm4", "x|y|z|", "1|2|3|4|"},
      {"qwen2", "x|y|z|", "1|2|3|4|"},
      {"deepseek-r1-qwen", "x|y|z|", "1|2|3|4|"},
      {"stablelm2", "x|y|z|", "1|2|3|4|"},
      {"hunyuan", "x|y|z|", "1|2|3|4|"},
      {"megrez", "x|y|z|", "1|2|3|4|"},
      {"qwen35", "x|y|z|", "1|2|3|4|"},
      {"gpt-2", "x|y|z|", "1|2|3|4|"},
      {"phi-2", "x|y|z|", "1|2|3|4|"},
      {"modern-bert", "x|y|z|", "1|2|3|4|"},
      {"exaone4", "x|y|z|", "1|2|3|4|"},
      {"roberta-bpe", "x|y|z|", "1|2|3|4|"},
      {"smollm", "x|y|z|", "1|2|3|4|"},
      {"starcoder", "x|y|z|", "1|2|3|4|"},
      {"refact", "x|y|z|", "1|2|3|4|"},
      {"command-r", "x|y|z|", "1|2|3|4|"},
      {"default", "x|y|z|", "1|2|3|4|"},
      {NULL, "x|y|z|", "1|2|3|4|"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    header h = bpe_header((bpe_options){.pre = cases[i].pre});
    key_u32(&h, "tokenizer.ggml.bos_token_id", 7);
    loaded l;
    load(&l, &h);
    EXPECT(l.t, "xyz", 0, cases[i].xyz);
    EXPECT(l.t, "1234", 0, cases[i].digits);
    assert_int_equal(tok_adds_bos(l.t), cases[i].xyz[1] == 'y'); /* the same families as ignore_merges */
    unload(&l);
  }
}

static void bpe_control_tokens(void **state) {
  (void)state;
  /* a control token that merges lead to */
  static const char *const texts[] = {"<|", "|>", "<||>", "<tool>", "<to", NULL};
  static const char *const merges[] = {"< |", "| >", "<| |>", NULL};
  header h = bpe_header((bpe_options){.pre = "gpt-2", .texts = texts, .merges = merges});
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "<||>", 0, "<|||>|"); /* '<|' '|>' */
  EXPECT(l.t, "a<||>a", TOK_PARSE_SPECIAL, "a|<||>|a|");
  EXPECT(l.t, "<tool><to<tool", 0, "<tool>|<to|<to|o|l|");
  unload(&l);

  /* with ignore_merges a whole word must not be one either */
  static const char *const words[] = {"<||>", "<|endoftext|>", NULL};
  h = bpe_header((bpe_options){.pre = "llama-bpe", .texts = words, .merges = (const char *const[]){NULL}});
  load(&l, &h);
  EXPECT(l.t, "<||>", 0, "<|||||>|"); /* '<' '|' '|' '>' */
  EXPECT(l.t, "<||>", TOK_PARSE_SPECIAL, "<||>|");
  unload(&l);
}

static void overlapping_specials(void **state) {
  (void)state;
  static const char *const texts[] = {"<toab", "<toabc>", "<to", "b<toa", "bc><tox<toy", NULL};
  /* typed user-defined by their beginning; the others are made so below */
  header h = bpe_header((bpe_options){.pre = "gpt-2", .texts = texts, .merges = (const char *const[]){NULL}});
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "<toabc>", 0, "<toabc>|");
  EXPECT(l.t, "<toabc", 0, "<toab|c|");
  EXPECT(l.t, "<toa", 0, "<to|a|");
  EXPECT(l.t, "<toabc<to<toab", 0, "<toab|c|<to|<toab|");
  EXPECT(l.t, "<<to", 0, "<|<to|");
  unload(&l);
  /* the longest wins although another begins before it; what is left of that
   * one's place takes a shorter token */
  static const token tokens[] = {{"<unk>", 0, 2}, {SP, 0, 1},       {"<toxx", 0, 4}, {"<tox", 0, 4},
                                 {"<to", 0, 4},   {"xx>>>>", 0, 4}, {"<|a|>", 0, 3}, {"|>bcdef", 0, 4},
                                 {"<|a", 0, 4},   ALL_BYTES,        {NULL, 0, 0}};
  memset(&h, 0, sizeof h);
  key_string(&h, "tokenizer.ggml.model", "llama");
  key_tokens(&h, tokens, 3);
  key_bool(&h, "tokenizer.ggml.add_space_prefix", false);
  load(&l, &h);
  EXPECT(l.t, "<toxx>>>>", 0, "<to|xx>>>>|");
  EXPECT(l.t, "<toxx>>>", 0, "<toxx|<0x3E>|<0x3E>|<0x3E>|");
  EXPECT(l.t, "<|a|>", 0, "<|a|<0x7C>|<0x3E>|");
  EXPECT(l.t, "<|a|>", TOK_PARSE_SPECIAL, "<|a|>|");
  EXPECT(l.t, "<|a|>bcdef", TOK_PARSE_SPECIAL, "<|a||>bcdef|");
  unload(&l);
}

static void bpe_bytes_and_emoji(void **state) {
  (void)state;
  header h = bpe_header((bpe_options){.pre = "qwen2"});
  loaded l;
  load(&l, &h);
  /* U+1F600 is F0 9F 98 80: the first two merge, so it lies over three tokens */
  EXPECT(l.t, "\xF0\x9F\x98\x80", 0, "\xC3\xB0\xC5\x81|\xC4\xBA|\xC4\xA2|");
  size_t bytes;
  const char *text = "a\xF0\x9F\x98\x80\xF0\x9F\x98\x80 \xE4\xBD\xA0\n\x01\x7F\xC2\xAD";
  const char *back = round_trip(l.t, text, strlen(text), &bytes);
  assert_int_equal(bytes, strlen(text));
  assert_memory_equal(back, text, bytes);
  /* what is not UTF-8 becomes U+FFFD, a byte at a time; overlong forms shrink */
  back = round_trip(l.t,
                    "\xFF"
                    "a\xC3",
                    3, &bytes);
  assert_int_equal(bytes, 7);
  assert_memory_equal(back,
                      "\xEF\xBF\xBD"
                      "a\xEF\xBF\xBD",
                      7);
  back = round_trip(l.t, "\xC1\xA1", 2, &bytes);
  assert_int_equal(bytes, 1);
  assert_memory_equal(back, "a", 1);
  back = round_trip(l.t, "\xF4\x90\x80\x80", 4, &bytes);
  assert_int_equal(bytes, 12);
  /* each byte token gives its byte */
  for (int byte = 0; byte < 256; byte++) {
    uint8_t piece[4] = {0};
    assert_int_equal(tok_piece(l.t, byte, false, piece, sizeof piece), 1);
    assert_int_equal(piece[0], byte);
  }
  uint8_t piece[2] = {9, 9};
  assert_int_equal(tok_piece(l.t, id_of(l.t, "abc"), false, piece, sizeof piece), 3); /* does not fit: */
  assert_int_equal(piece[0], 9);                                                      /* nothing written */
  assert_int_equal(tok_piece(l.t, -1, true, piece, 2), 0);
  assert_int_equal(tok_piece(l.t, (int32_t)tok_vocab_count(l.t), true, piece, 2), 0);
  assert_int_equal(tok_max_piece_bytes(l.t), strlen("<|endoftext|>"));
  unload(&l);
}

static void bytes_without_a_token_are_dropped(void **state) {
  (void)state;
  static const token tokens[] = {{"a", 0, 1}, {"b", 0, 1}, {"ab", 0, 1}, {NULL, 0, 0}};
  header h = {0};
  key_string(&h, "tokenizer.ggml.model", "gpt2");
  key_string(&h, "tokenizer.ggml.pre", "gpt-2");
  key_tokens(&h, tokens, 0);
  key_merges(&h, (const char *const[]){"a b", NULL});
  loaded l;
  load(&l, &h);
  EXPECT(l.t, "aXb", 0, "a|b|");
  EXPECT(l.t, "Xab", 0, "ab|");
  unload(&l);
}

/* --- end of generation ------------------------------------------------------------------- */

static void ends_of_generation(void **state) {
  (void)state;
  static const char *const texts[] = {
      "<|eot_id|>",  "<|im_end|>",    "<|end|>",      "<|return|>",      "<end_of_turn>", "<|endoftext|>",
      "</s>",        "<|eom_id|>",    "<EOT>",        "<|end_of_text|>", "<eos>",         "<turn|>",
      "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>",  "<|im_start|>",  "plain",
      NULL};
  header h = bpe_header((bpe_options){.pre = "qwen2", .texts = texts, .merges = (const char *const[]){NULL}});
  key_u32(&h, "tokenizer.ggml.eos_token_id", 3);
  key_u32(&h, "tokenizer.ggml.eot_token_id", 4);
  key_u32(&h, "tokenizer.ggml.eom_token_id", 5);
  loaded l;
  load(&l, &h);
  for (int32_t id = 0; id < (int32_t)tok_vocab_count(l.t); id++) {
    bool ends = (id >= 3 && id <= 5) || (id >= 256 && id < 256 + 15);
    if (tok_is_end(l.t, id) != ends) fail_msg("token %d", (int)id);
  }
  assert_false(tok_is_end(l.t, -1));
  assert_false(tok_is_end(l.t, 1 << 30));
  unload(&l);

  static const char *const oss[] = {"<|return|>", "<|call|>", "<|end|>", NULL};
  h = bpe_header((bpe_options){.pre = "qwen2", .texts = oss, .merges = (const char *const[]){NULL}});
  key_u32(&h, "tokenizer.ggml.fim_pad_token_id", 9);
  key_u32(&h, "tokenizer.ggml.fim_pre_token_id", 10);
  load(&l, &h);
  assert_true(tok_is_end(l.t, 256));
  assert_true(tok_is_end(l.t, 257));
  assert_false(tok_is_end(l.t, 258));
  assert_true(tok_is_end(l.t, 9));
  assert_false(tok_is_end(l.t, 10));
  unload(&l);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(spm_merges_by_score),
      cmocka_unit_test(spm_scores_of_either_sign),
      cmocka_unit_test(spm_falls_back_to_bytes),
      cmocka_unit_test(spm_options),
      cmocka_unit_test(no_text_forges_a_control_token),
      cmocka_unit_test(phi3_specials_swallow_white_space),
      cmocka_unit_test(split_families),
      cmocka_unit_test(words_make_up_the_text),
      cmocka_unit_test(bpe_merges_by_rank),
      cmocka_unit_test(bpe_families),
      cmocka_unit_test(bpe_control_tokens),
      cmocka_unit_test(overlapping_specials),
      cmocka_unit_test(bpe_bytes_and_emoji),
      cmocka_unit_test(bytes_without_a_token_are_dropped),
      cmocka_unit_test(ends_of_generation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
