/* The vocabulary as a GGUF header gives it: which tokenizers are supported,
 * every key checked for type, length and range, and what kind each token is.
 * Nothing is copied and nothing allocated. */
#include "tok_internal.h"

#include <string.h>

TOK_SMALL_BEGIN

/* --- what is supported
 * ---------------------------------------------------------- */

enum { PRE_IGNORE_MERGES = 1, PRE_BOS = 2, PRE_RAW = 4 };
typedef struct pre_row {
  uint8_t split, flags;
  const char *names; /* each with a space after it */
} pre_row;

/* Most wanted first: a refusal lists as many as fit. */
static const pre_row pre_rows[] = {
    {SPLIT_LLAMA3, PRE_IGNORE_MERGES | PRE_BOS,
     "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 "
     "jina-v5-nano "},
    {SPLIT_QWEN2, 0,
     "qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez kormo f2llmv2 bailingmoe "
     "bailingmoe2 llada-moe grok-2 "
     "solar-open "},
    {SPLIT_QWEN35, 0, "qwen35 "},
    {SPLIT_GPT4O, 0, "gpt-4o llama4 kanana2 talkie minimax-m2 "},
    {SPLIT_TEKKEN, PRE_IGNORE_MERGES | PRE_BOS, "tekken "},
    {SPLIT_GPT2_DIGITS, 0, "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 "},
    {SPLIT_DEEPSEEK3, 0, "deepseek-v3 hunyuan-dense joyai-llm "},
    {SPLIT_DEEPSEEK_LLM, 0, "deepseek-llm "},
    {SPLIT_DEEPSEEK_CODER, 0, "deepseek-coder "},
    {SPLIT_GEMMA4, PRE_BOS | PRE_RAW, "gemma4 granite-embed-multi-311m "},
    {SPLIT_LLAMA3, 0, "dbrx smaug-bpe glm4 chatglm-bpe "},
    {SPLIT_DEFAULT, 0, "default "},
    {SPLIT_FALCON, 0, "falcon "},
    {SPLIT_BLOOM, 0, "bloom poro-chat gpt3-finnish "},
    {SPLIT_VIKING, 0, "viking "},
    {SPLIT_SEED, 0, "seed-coder "},
    {SPLIT_KIMI, 0, "kimi-k2 "},
    {SPLIT_AYA, 0, "tiny_aya cohere2moe "},
    {SPLIT_GPT2, 0,
     "gpt-2 phi-2 modern-bert exaone4 roberta-bpe mpt olmo jais trillion "
     "granite-docling a.x-4.0 mellum "
     "gigachat jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code "},
    {SPLIT_EXAONE_MOE, 0, "exaone-moe "},
    {SPLIT_NUMBERS_LLAMA3, PRE_IGNORE_MERGES, "minicpm5 "},
    {SPLIT_SUPERBPE, 0, "superbpe "},
    {SPLIT_GRANITE, PRE_IGNORE_MERGES, "granite-embed-multi-97m "},
    {SPLIT_JAIS2, 0, "jais-2 "},
    {SPLIT_AFMOE, 0, "afmoe "},
    {SPLIT_LINES_QWEN2, 0, "laguna "},
    {SPLIT_LINES, PRE_RAW, "sarvam-moe "},
};
enum { PRE_ROW_COUNT = sizeof pre_rows / sizeof pre_rows[0] };

/* Texts that end a generation, whatever type the file gives them: such a
 * token is a control token. */
static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81"
    "of\xE2\x96\x81"
    "sentence\xEF\xBD\x9C>",
};

/* Fill-in-the-middle tokens: what a file without the key calls them. They are
 * control tokens, and the last three end a generation. */
typedef struct fim_row {
  const char *key, *old_key;
  bool ends;
  const char *texts[8];
} fim_row;
#define FIM_DEEPSEEK(word)                                                                                   \
  "<\xEF\xBD\x9C"                                                                                            \
  "fim\xE2\x96\x81" word "\xEF\xBD\x9C>"
static const fim_row fim_rows[] = {
    {"tokenizer.ggml.fim_pre_token_id",
     "tokenizer.ggml.prefix_token_id",
     false,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "\xE2\x96\x81<PRE>", "<|code_prefix|>",
      "<|prefix|>", FIM_DEEPSEEK("begin")}},
    {"tokenizer.ggml.fim_suf_token_id",
     "tokenizer.ggml.suffix_token_id",
     false,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "\xE2\x96\x81<SUF>", "<|code_suffix|>",
      "<|suffix|>", FIM_DEEPSEEK("hole")}},
    {"tokenizer.ggml.fim_mid_token_id",
     "tokenizer.ggml.middle_token_id",
     false,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "\xE2\x96\x81<MID>", "<|code_middle|>",
      "<|middle|>", FIM_DEEPSEEK("end")}},
    {"tokenizer.ggml.fim_pad_token_id",
     NULL,
     true,
     {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {"tokenizer.ggml.fim_rep_token_id",
     NULL,
     true,
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {"tokenizer.ggml.fim_sep_token_id", NULL, true, {"<|file_sep|>"}},
};
_Static_assert(sizeof fim_rows / sizeof fim_rows[0] == TOK_FIM_COUNT, "one row for each key");
enum { END_TEXT_COUNT = sizeof end_texts / sizeof end_texts[0] };

/* --- reading the header
 * ------------------------------------------------------------- */

static lnl_status read_kind(const gguf *file, tok_vocab *v, lnl_error *error) {
  gguf_value model;
  if (!gguf_find(file, "tokenizer.ggml.model", &model)) {
    v->kind = TOK_NONE;
    return LNL_OK;
  }
  if (model.type != GGUF_STRING) {
    return error_set(error, LNL_MISSING_KEY, "tokenizer.ggml.model is not a string");
  }
  static const struct {
    const char *name;
    tok_kind kind;
  } models[] = {{"llama", TOK_SPM}, {"gpt2", TOK_BPE},  {"gemma4", TOK_BPE},   {"bert", TOK_WPM},
                {"t5", TOK_UGM},    {"none", TOK_NONE}, {"no_vocab", TOK_NONE}};
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
    if (!span_equals(model.bytes, models[i].name)) continue;
    v->kind = models[i].kind;
    v->raw = i == 2; /* Gemma 4: `pre` is not asked */
    return LNL_OK;
  }
  return error_set(error, LNL_UNSUPPORTED_TOKENIZER,
                   "tokenizer.ggml.model \"%.*s\" is not supported; supported: "
                   "llama (SPM), gpt2 and gemma4 "
                   "(BPE), bert (WordPiece), t5 (Unigram), none",
                   (int)u64_min(model.bytes.bytes, 64), (const char *)model.bytes.data);
}

/* Whether one of the names is this one. */
static bool lists_name(const char *names, lnl_span name) {
  if (name.bytes > 64 || memchr(name.data, ' ', name.bytes) || memchr(name.data, 0, name.bytes)) return false;
  for (; *names; names = strchr(names, ' ') + 1) {
    if (strncmp(names, (const char *)name.data, name.bytes) == 0 && names[name.bytes] == ' ') return true;
  }
  return false;
}

static lnl_status read_pre(const gguf *file, tok_vocab *v, lnl_error *error) {
  gguf_value pre;
  lnl_span name = {(const uint8_t *)"default", 7};
  if (v->raw) {
    name = (lnl_span){(const uint8_t *)"gemma4", 6};
  } else if (gguf_find(file, "tokenizer.ggml.pre", &pre)) {
    if (pre.type != GGUF_STRING)
      return error_set(error, LNL_MISSING_KEY, "tokenizer.ggml.pre is not a string");
    if (pre.bytes.bytes > 0) name = pre.bytes;
  }
  char list[LNL_ERROR_MESSAGE_BYTES];
  size_t used = 0;
  for (size_t i = 0; i < PRE_ROW_COUNT; i++) {
    const pre_row *row = &pre_rows[i];
    if (lists_name(row->names, name)) {
      v->split = (tok_split_kind)row->split;
      v->ignore_merges = row->flags & PRE_IGNORE_MERGES;
      v->add_bos = row->flags & PRE_BOS;
      v->raw = row->flags & PRE_RAW;
      return LNL_OK;
    }
    size_t bytes = strlen(row->names);
    if (used + bytes > sizeof list) continue;
    memcpy(list + used, row->names, bytes);
    used += bytes;
  }
  return error_set(error, LNL_UNSUPPORTED_TOKENIZER,
                   "tokenizer.ggml.pre \"%.*s\" is not supported; supported: %.*s",
                   (int)u64_min(name.bytes, 64), (const char *)name.data, (int)used - 1, list);
}

/* The blob of a SentencePiece normaliser: bytes of the trie, the trie, texts.
 * Only what would not show while it is used is checked here. */
static lnl_status read_charsmap(const gguf *file, tok_vocab *v, lnl_error *error) {
  gguf_value blob;
  if (!gguf_find(file, "tokenizer.ggml.precompiled_charsmap", &blob)) return LNL_OK;
  uint32_t trie_bytes = 0;
  bool good = blob.type == GGUF_ARRAY && (blob.item_type == GGUF_U8 || blob.item_type == GGUF_I8) &&
              blob.item_count > 4;
  if (good) {
    memcpy(&trie_bytes, blob.bytes.data, 4);
    good = trie_bytes < blob.item_count - 4;
  }
  if (good) {
    v->charsmap = (lnl_span){blob.bytes.data + 4, trie_bytes & ~3u};
    v->replacements = (lnl_span){blob.bytes.data + 4 + trie_bytes, (size_t)blob.item_count - 4 - trie_bytes};
    size_t run = 0;
    for (size_t i = 0; i < v->replacements.bytes && good; i++) {
      run = v->replacements.data[i] ? run + 1 : 0;
      good = run <= TOK_MAX_SEARCH_BYTES;
    }
    good = good && run == 0;
  }
  if (!good)
    return error_set(error, LNL_BAD_VOCABULARY, "tokenizer.ggml.precompiled_charsmap is no charsmap");
  return LNL_OK;
}

/* An array of `item_type`; *found false when the key is absent. */
static lnl_status read_array(const gguf *file, const char *key, gguf_type item_type, const char *type_name,
                             gguf_value *out, bool *found, lnl_error *error) {
  *found = gguf_find(file, key, out);
  if (!*found) return LNL_OK;
  bool fits = out->type == GGUF_ARRAY &&
              (out->item_type == item_type || (item_type == GGUF_I32 && out->item_type == GGUF_U32));
  if (!fits) return error_set(error, LNL_BAD_VOCABULARY, "%s is not an array of %s", key, type_name);
  return LNL_OK;
}

/* An array beside the tokens: one item for each of them. */
static lnl_status check_count(const tok_vocab *v, const char *key, const gguf_value *array,
                              lnl_error *error) {
  if (array->item_count == v->n_vocab) return LNL_OK;
  return error_set(error, LNL_BAD_VOCABULARY, "%s holds %llu items for %u tokens", key,
                   (unsigned long long)array->item_count, v->n_vocab);
}

static lnl_status read_arrays(const gguf *file, tok_vocab *v, lnl_error *error) {
  bool found;
  LNL_TRY(read_array(file, "tokenizer.ggml.tokens", GGUF_STRING, "strings", &v->tokens, &found, error));
  if (!found) return error_set(error, LNL_MISSING_KEY, "tokenizer.ggml.tokens is missing");
  uint64_t count = v->tokens.item_count;
  /* Text offsets are 32 bits, as the header itself stays below 1 GiB. */
  if (count == 0 || count > INT32_MAX || v->tokens.bytes.bytes > UINT32_MAX) {
    return error_set(error, LNL_BAD_VOCABULARY, "tokenizer.ggml.tokens holds %llu tokens",
                     (unsigned long long)count);
  }
  v->n_vocab = (uint32_t)count;

  LNL_TRY(read_array(file, "tokenizer.ggml.scores", GGUF_F32, "float32", &v->scores, &v->has_scores, error));
  if (v->has_scores) LNL_TRY(check_count(v, "tokenizer.ggml.scores", &v->scores, error));
  LNL_TRY(read_array(file, "tokenizer.ggml.token_type", GGUF_I32, "int32", &v->types, &v->has_types, error));
  if (v->has_types) LNL_TRY(check_count(v, "tokenizer.ggml.token_type", &v->types, error));

  if (v->kind == TOK_BPE) {
    LNL_TRY(read_array(file, "tokenizer.ggml.merges", GGUF_STRING, "strings", &v->merges, &found, error));
    if (!found) return error_set(error, LNL_MISSING_KEY, "tokenizer.ggml.merges is missing");
    if (v->merges.item_count > INT32_MAX)
      return error_set(error, LNL_BAD_VOCABULARY, "tokenizer.ggml.merges is too long");
  } else if (v->has_scores) {
    for (uint32_t i = 0; i < v->n_vocab; i++) {
      float score;
      memcpy(&score, v->scores.bytes.data + (size_t)i * sizeof score, sizeof score);
      if (score != score)
        return error_set(error, LNL_BAD_VOCABULARY, "tokenizer.ggml.scores[%u] is not a number", i);
    }
  }
  return LNL_OK;
}

/* A token id; stays as it was when the key is absent. */
static lnl_status read_id(const gguf *file, const tok_vocab *v, const char *key, int32_t *id,
                          lnl_error *error) {
  gguf_value value;
  if (!gguf_find(file, key, &value)) return LNL_OK;
  uint64_t number;
  if (!gguf_get_u64(file, key, &number)) {
    int64_t negative;
    if (!gguf_get_i64(file, key, &negative))
      return error_set(error, LNL_BAD_VOCABULARY, "%s is not an integer", key);
    return error_set(error, LNL_BAD_VOCABULARY, "%s is %lld, the vocabulary has %u tokens", key,
                     (long long)negative, v->n_vocab);
  }
  if (number >= v->n_vocab) {
    return error_set(error, LNL_BAD_VOCABULARY, "%s is %llu, the vocabulary has %u tokens", key,
                     (unsigned long long)number, v->n_vocab);
  }
  *id = (int32_t)number;
  return LNL_OK;
}

static lnl_status read_bool(const gguf *file, const char *key, bool *out, lnl_error *error) {
  gguf_value value;
  if (!gguf_find(file, key, &value) || gguf_get_bool(file, key, out)) return LNL_OK;
  return error_set(error, LNL_BAD_VOCABULARY, "%s is not true or false", key);
}

static bool contains_any_case(lnl_span text, const char *lower) {
  size_t bytes = strlen(lower);
  for (size_t at = 0; at + bytes <= text.bytes; at++) {
    size_t same = 0;
    while (same < bytes) {
      uint8_t c = text.data[at + same];
      if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
      if (c != (uint8_t)lower[same]) break;
      same++;
    }
    if (same == bytes) return true;
  }
  return false;
}

lnl_status vocab_read(const gguf *file, tok_vocab *v, lnl_error *error) {
  memset(v, 0, sizeof *v);
  LNL_TRY(read_kind(file, v, error));
  if (v->kind == TOK_NONE) return LNL_OK;
  if (v->kind == TOK_BPE) LNL_TRY(read_pre(file, v, error));
  LNL_TRY(read_arrays(file, v, error));

  static const int16_t defaults[][4] = {
      /* bos, eos, unk, sep */
      [TOK_SPM] = {1, 2, 0, -1},
      [TOK_BPE] = {-1, -1, -1, -1},
      [TOK_WPM] = {101, -1, 100, 102},
      [TOK_UGM] = {-1, 1, 2, -1},
  };
  const int16_t *ids = defaults[v->kind];
  int32_t n_vocab = (int32_t)v->n_vocab;
  v->bos = ids[0] < n_vocab ? ids[0] : -1;
  v->eos = ids[1] < n_vocab ? ids[1] : -1;
  v->unk = ids[2] < n_vocab ? ids[2] : -1;
  v->sep = ids[3] < n_vocab ? ids[3] : -1;
  v->eot = v->eom = -1;
  LNL_TRY(read_id(file, v, "tokenizer.ggml.bos_token_id", &v->bos, error));
  LNL_TRY(read_id(file, v, "tokenizer.ggml.eos_token_id", &v->eos, error));
  LNL_TRY(read_id(file, v, "tokenizer.ggml.unknown_token_id", &v->unk, error));
  LNL_TRY(read_id(file, v, "tokenizer.ggml.seperator_token_id", &v->sep, error)); /* spelt so */
  LNL_TRY(read_id(file, v, "tokenizer.ggml.eot_token_id", &v->eot, error));
  LNL_TRY(read_id(file, v, "tokenizer.ggml.eom_token_id", &v->eom, error));
  for (size_t i = 0; i < TOK_FIM_COUNT; i++) {
    v->fim[i] = -1;
    if (fim_rows[i].old_key) LNL_TRY(read_id(file, v, fim_rows[i].old_key, &v->fim[i], error));
    LNL_TRY(read_id(file, v, fim_rows[i].key, &v->fim[i], error));
  }

  v->add_bos |= v->kind == TOK_SPM;
  v->add_eos = v->kind == TOK_UGM;
  v->space_prefix = v->kind == TOK_SPM;
  v->lower = true;
  LNL_TRY(read_bool(file, "tokenizer.ggml.add_bos_token", &v->add_bos, error));
  LNL_TRY(read_bool(file, "tokenizer.ggml.add_eos_token", &v->add_eos, error));
  LNL_TRY(read_bool(file, "tokenizer.ggml.add_space_prefix", &v->space_prefix, error));
  LNL_TRY(read_bool(file, "tokenizer.ggml.remove_extra_whitespaces", &v->merge_spaces, error));
  LNL_TRY(read_bool(file, "tokenizer.ggml.normalizer.lowercase", &v->lower, error));
  v->strip_accents = v->lower;
  LNL_TRY(read_bool(file, "tokenizer.ggml.normalizer.strip_accents", &v->strip_accents, error));
  v->add_bos |= v->split == SPLIT_GEMMA4; /* its files say false and mean true */
  v->raw |= v->kind != TOK_BPE;
  if (v->kind == TOK_WPM) /* always [CLS] and [SEP] */
    v->add_bos = v->add_eos = true;
  else
    v->sep = v->eos;
  if (v->kind == TOK_UGM) LNL_TRY(read_charsmap(file, v, error));

  /* What no key says: which special tokens swallow white space. */
  lnl_span name = {0};
  lnl_span pre = {0};
  lnl_span arch = {0};
  gguf_get_string(file, "general.name", &name);
  gguf_get_string(file, "tokenizer.ggml.pre", &pre);
  gguf_get_string(file, "general.architecture", &arch);
  if (contains_any_case(pre, "jina-v2-") || contains_any_case(arch, "nomic-bert-moe") ||
      contains_any_case(arch, "jina-bert-v3"))
    v->strip_left = "<mask>";
  else if (contains_any_case(name, "phi-3") || contains_any_case(name, "phi3"))
    v->strip_right = true;
  else if (contains_any_case(name, "modern-bert"))
    v->strip_left = "[MASK]";
  return LNL_OK;
}

lnl_status tok_check(const gguf *file, tok_kind *kind, uint32_t *n_vocab, lnl_error *error) {
  tok_vocab v;
  LNL_TRY(vocab_read(file, &v, error));
  *kind = v.kind;
  *n_vocab = v.n_vocab;
  return LNL_OK;
}

/* --- tokens
 * ------------------------------------------------------------------------ */

static bool equals_any(lnl_span text, const char *const *list, size_t count) {
  for (size_t i = 0; i < count && list[i]; i++) {
    if (span_equals(text, list[i])) return true;
  }
  return false;
}

tok_attr vocab_classify(const tok_vocab *v, uint32_t id, lnl_span text, bool *ends) {
  uint32_t type = TOK_NORMAL;
  if (v->has_types) memcpy(&type, v->types.bytes.data + (size_t)id * sizeof type, sizeof type);
  tok_attr attr = type <= TOK_BYTE ? (tok_attr)type : (tok_attr)0;
  int32_t signed_id = (int32_t)id;
  *ends = signed_id == v->eos || signed_id == v->eot || signed_id == v->eom;
  for (size_t i = 0; i < TOK_FIM_COUNT; i++) *ends |= fim_rows[i].ends && v->fim[i] == signed_id;
  /* All texts below begin with one of these: most tokens are done here. */
  if (text.bytes < 3 || !memchr("<[_\xE2", text.data[0], 4)) return attr;
  if (text.data[0] == 0xE2 && (text.bytes < 4 || text.data[3] != '<')) return attr; /* U+2581 and a letter */
  if (equals_any(text, end_texts, END_TEXT_COUNT)) {
    *ends = true;
    return TOK_CONTROL;
  }
  for (size_t i = 0; i < TOK_FIM_COUNT; i++) {
    if (v->fim[i] >= 0 || !equals_any(text, fim_rows[i].texts, 8)) continue;
    *ends |= fim_rows[i].ends;
    return TOK_CONTROL;
  }
  return attr;
}

TOK_SMALL_END
