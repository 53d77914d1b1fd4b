/* What the tokenizer files share. Nothing outside src/tok*.c and the tests of
 * it includes this.
 *   tok_vocab.c    reads and checks the vocabulary in a GGUF header (tok_check)
 *   tok.c          that -> tables (tok_layout), ids -> bytes, encode driver
 *   tok_special.c  finds special tokens in a text
 *   tok_spm.c      a text without special tokens -> ids, SPM
 *   tok_bpe.c      the same for BPE; merge table
 *   tok_wpm.c      the same for WordPiece
 *   tok_ugm.c      the same for Unigram
 *   tok_split.c    cuts a text into the words that BPE merges within
 *   tok_merge.c    candidate heap and the merge loop that SPM and BPE share */
#ifndef LNL_TOK_INTERNAL_H
#define LNL_TOK_INTERNAL_H

#include "tok.h"

#include <string.h>

/* Size before speed, between these two: a quarter less code, and a megabyte of
 * text still takes a tenth of a second. */
#ifdef __clang__
#define TOK_SMALL_BEGIN _Pragma("clang attribute push(__attribute__((minsize)), apply_to = function)")
#define TOK_SMALL_END   _Pragma("clang attribute pop")
#else
#define TOK_SMALL_BEGIN
#define TOK_SMALL_END
#endif

/* --- tables, in the arena ----------------------------------------------------
 */

/* text -> id: open addressing, cap slots, id -1 = empty. */
typedef struct tok_slot {
  uint32_t hash;
  int32_t id;
} tok_slot;
typedef struct tok_map {
  tok_slot *slots;
  uint32_t cap;
} tok_map;

/* (left, right) -> rank and merged id: open addressing, left -1 = empty. */
typedef struct tok_pair_slot {
  int32_t left, right;
  uint32_t rank;
  int32_t merged;
} tok_pair_slot;

/* A control, unknown or user-defined token that may occur in a text. */
typedef struct tok_special {
  int32_t id;
  uint32_t order; /* longest first, then by id: who wins where two overlap */
} tok_special;

/* Split families: what a `pre` name means (tok_vocab.c), made of passes
 * (tok_split.c). */
typedef enum tok_split_kind {
  SPLIT_DEFAULT = 0, /* what llama.cpp does when `pre` is "default" or missing */
  SPLIT_GPT2,
  SPLIT_GPT2_DIGITS, /* each digit alone, GPT-2 between them */
  SPLIT_LLAMA3,      /* digits in groups of up to 3 */
  SPLIT_QWEN2,       /* each digit alone */
  SPLIT_QWEN35,      /* as Qwen2, marks count as letters */
  SPLIT_FALCON,
  SPLIT_LINES,          /* lines and runs of line breaks */
  SPLIT_GEMMA4,         /* so, and line breaks that are a token are taken whole */
  SPLIT_LINES_QWEN2,    /* Qwen2 within those */
  SPLIT_NUMBERS_LLAMA3, /* Llama 3 between numbers */
  SPLIT_JAIS2,          /* Llama 3, white space in powers of two */
  SPLIT_SEED,           /* Qwen2, line breaks never with punctuation */
  SPLIT_TEKKEN,         /* words end where capitals begin */
  SPLIT_GPT4O,          /* so, and contractions stay with the word */
  SPLIT_GRANITE,        /* so, and marks count as letters */
  SPLIT_AYA,
  SPLIT_KIMI,
  SPLIT_DEEPSEEK_LLM,
  SPLIT_DEEPSEEK_CODER,
  SPLIT_DEEPSEEK3,
  SPLIT_AFMOE,
  SPLIT_EXAONE_MOE, /* words joined by single spaces */
  SPLIT_SUPERBPE,   /* nothing but digits by thousands */
  SPLIT_BLOOM,
  SPLIT_VIKING, /* so, and each digit alone */
  SPLIT_COUNT
} tok_split_kind;
enum { TOK_MAX_PASSES = 6 };

struct tok {
  tok_kind kind;
  uint32_t n_vocab;
  int32_t bos, eos, unk;     /* -1: none */
  int32_t first, last;       /* what TOK_ADD_SPECIAL puts around a text; -1: nothing */
  int32_t strip_left;        /* a special token that swallows the white space before
                                it; -1: none */
  bool space_prefix;         /* SPM, Unigram: a space before text that begins, or
                                follows a special token */
  bool merge_spaces;         /* Unigram: runs of spaces are one */
  bool lower, strip_accents; /* WordPiece */
  bool ignore_merges;        /* BPE: a word that is a token is taken whole */
  bool raw;                  /* tokens are UTF-8 with U+2581 for a space; else the byte-level
                                alphabet */
  bool strip_right;          /* Phi-3: most special tokens swallow the white space after
                                them */
  bool has_user_defined;
  tok_split_kind split;
  uint32_t max_token_bytes;
  const uint8_t *texts;   /* borrowed: the items of tokenizer.ggml.tokens in the header */
  const uint8_t *scores;  /* borrowed: float32 [n_vocab], unaligned; NULL = all 0 */
  uint32_t *text_offsets; /* [n_vocab + 1] into texts; an 8-byte length lies
                             between two texts */
  uint8_t *attrs;         /* tok_attr [n_vocab], after corrections; 0 = undefined */
  uint32_t *ends;         /* bitmap [n_vocab]: ends a generation */
  tok_map map;            /* all but BPE that needs the merges only */
  uint32_t *adjacent;     /* all but BPE: bitmap [65536] of the byte pairs that
                             occur inside tokens */
  lnl_span charsmap;      /* Unigram: the trie of what normalisation replaces, borrowed */
  lnl_span replacements;  /* its texts, each with a 0 at the end */
  float unk_score;        /* Unigram */
  tok_pair_slot *pairs;   /* BPE: [pair_cap] */
  uint32_t pair_cap;
  tok_special *specials; /* [special_count], sorted by text */
  uint32_t special_count;
  uint32_t special_first[257]; /* specials that start with byte b: [b] .. [b + 1] */
  int32_t byte_ids[256];       /* the token of a byte, or -1 */
};

static inline lnl_span tok_text(const tok *t, int32_t id) {
  uint32_t begin = t->text_offsets[id];
  return (lnl_span){t->texts + begin, t->text_offsets[id + 1] - begin - 8};
}

static inline float tok_score(const tok *t, int32_t id) {
  float score = 0;
  if (t->scores) memcpy(&score, t->scores + (size_t)id * sizeof score, sizeof score);
  return score;
}

/* Polynomial hash: that of a concatenation follows from those of its parts,
 *   hash(ab) = hash(a) * power(b) + hash(b),  power(ab) = power(a) * power(b),
 * so a merge costs the same for long tokens as for short ones. */
enum { TOK_HASH_BASE = 0x01000193 };
static inline uint32_t tok_hash_next(uint32_t hash, uint8_t byte) { return hash * TOK_HASH_BASE + byte + 1; }
static inline uint32_t tok_hash(const uint8_t *text, size_t bytes, uint32_t *power) {
  uint32_t hash = 0;
  uint32_t p = 1;
  for (size_t i = 0; i < bytes; i++) {
    hash = tok_hash_next(hash, text[i]);
    p *= TOK_HASH_BASE;
  }
  *power = p;
  return hash;
}

/* Where the search for a hash begins in a table of cap slots. */
static inline uint32_t tok_home(uint32_t hash, uint32_t cap) {
  hash ^= hash >> 16;
  hash *= 0x7feb352du;
  hash ^= hash >> 15;
  hash *= 0x846ca68bu;
  hash ^= hash >> 16;
  return (uint32_t)((uint64_t)hash * cap >> 32);
}

/* Slots of a table for `count` entries: a third stays free. */
static inline uint64_t tok_table_cap(uint64_t count) { return count + count / 2 + 16; }

/* A table whose entries needed more probes than this in all was built to
 * collide; loading it stops instead of taking quadratic time. */
static inline uint64_t tok_probe_limit(uint64_t count) { return 64 * count + 4096; }

/* The token with this text, whatever its type, or -1. */
int32_t tok_map_find(const tok *t, const tok_map *map, uint32_t hash, const uint8_t *text, size_t bytes);

/* BPE merge table: fills t->pairs from the merges, looking texts up in `map`.
 */
lnl_status bpe_build_pairs(tok *t, const tok_map *map, const gguf_value *merges, lnl_error *error);
/* BPE: the byte that a character of the byte-level alphabet stands for, or -1.
 */
int32_t bpe_char_byte(uint32_t code_point);
/* The character for a byte, as UTF-8 of 1 or 2 bytes; returns the length. */
size_t bpe_byte_char(uint8_t byte, uint8_t dst[4]);

/* --- the header
 * ---------------------------------------------------------------- */

enum { TOK_FIM_COUNT = 6 }; /* fill-in-the-middle: pre suf mid pad rep sep */

/* WordPiece and Unigram look at each place for tokens of any length: a longer
 * one than this is refused. So are longer replacements in a charsmap. */
enum { TOK_MAX_SEARCH_BYTES = 1024 };

/* The vocabulary as the header gives it, nothing copied. */
typedef struct tok_vocab {
  tok_kind kind;
  uint32_t n_vocab;
  gguf_value tokens, scores, types, merges;
  bool has_scores, has_types;
  tok_split_kind split;
  int32_t bos, eos, unk, eot, eom, sep; /* -1: none */
  int32_t fim[TOK_FIM_COUNT];
  bool ignore_merges, add_bos, add_eos, space_prefix, strip_right, raw, merge_spaces, lower, strip_accents;
  const char *strip_left; /* the text of such a token, or NULL */
  lnl_span charsmap, replacements;
} tok_vocab;

/* Reads and checks every key; the statuses are those of tok_check. */
lnl_status vocab_read(const gguf *file, tok_vocab *v, lnl_error *error);
/* The type of a token after corrections by its text, and whether it ends a
 * generation. */
tok_attr vocab_classify(const tok_vocab *v, uint32_t id, lnl_span text, bool *ends);

/* --- one encoding
 * --------------------------------------------------------------- */

/* A heap entry; the smallest key comes first. */
typedef struct tok_candidate {
  uint64_t key;
  uint32_t bytes;
  int32_t id;
} tok_candidate;

/* A part of the text during merging, linked to its neighbours. */
typedef struct tok_symbol {
  uint32_t prev, next;  /* TOK_NO_SYMBOL at the ends */
  uint32_t offset;      /* of the text, into the run */
  uint32_t bytes;       /* 0: merged into its left neighbour */
  uint32_t hash, power; /* SPM only */
  int32_t id;           /* -1: not a token */
} tok_symbol;
#define TOK_NO_SYMBOL UINT32_MAX

/* Working memory of one tok_encode, all from mem_alloc. */
typedef struct tok_work {
  const tok *t;
  const uint8_t *run; /* SPM: the text that symbol offsets refer to */
  tok_candidate *heap;
  size_t heap_count, heap_cap;
  tok_symbol *symbols;
  size_t symbol_count, symbol_cap;
  uint8_t *text; /* SPM, raw BPE: escaped text; BPE: made valid UTF-8;
                    WordPiece: a word; Unigram: normalised */
  size_t text_bytes, text_cap;
  uint8_t *word; /* BPE with ignore_merges: a word in the byte-level alphabet;
                    raw: valid UTF-8 */
  size_t word_cap;
  void *lattice; /* Unigram: the best way to each place */
  size_t lattice_cap;
  tok_candidate *matches; /* special tokens found: key = begin, bytes = end */
  size_t match_count, match_cap;
  int32_t *ids; /* the result */
  size_t id_count, id_cap;
  uint64_t steps; /* heap operations and pattern steps so far: the cost, for tests */
} tok_work;

/* tok_encode with the working memory left in *w (zeroed by the caller, freed
 * with tok_work_free). */
lnl_status tok_encode_work(tok_work *w, const tok *t, const char *text, size_t bytes, uint32_t flags);
void tok_work_free(tok_work *w);

/* Makes room for `count` items of `item_bytes` in *block (capacity *cap, in
 * items). False when out of memory. */
bool tok_reserve(void **block, size_t *cap, size_t count, size_t item_bytes);
bool tok_emit(tok_work *w, int32_t id);

bool heap_push(tok_work *w, tok_candidate candidate);
tok_candidate heap_pop(tok_work *w);
/* Sorts by key, largest first. */
void candidates_sort(tok_candidate *items, size_t count);

/* Adds a symbol at the end of the chain; symbol.prev and .next are set here. */
bool symbol_push(tok_work *w, tok_symbol symbol);
/* Merges neighbours, the best pair first, until no pair is a token. */
lnl_status merge_symbols(tok_work *w);
/* Whether a and its right neighbour b make a token: its id and how soon it is
 * wanted (smaller first). */
bool spm_pair(const tok_work *w, const tok_symbol *a, const tok_symbol *b, uint32_t *priority, int32_t *id);
bool bpe_pair(const tok_work *w, const tok_symbol *a, const tok_symbol *b, uint32_t *priority, int32_t *id);

lnl_status spm_encode(tok_work *w, lnl_span text, bool space_prefix);
lnl_status bpe_encode(tok_work *w, lnl_span text);
lnl_status wpm_encode(tok_work *w, lnl_span text);
lnl_status ugm_encode(tok_work *w, lnl_span text);

/* The token with this text that plain text may become, or -1. */
int32_t tok_find_piece(const tok *t, uint32_t hash, const uint8_t *text, size_t bytes);
/* Whether some token holds these two bytes side by side. */
static inline bool tok_may_join(const tok *t, uint8_t left, uint8_t right) {
  uint32_t pair = (uint32_t)left << 8 | right;
  return t->adjacent[pair / 32] >> (pair % 32) & 1;
}
/* The text with U+2581 for each space, in w->text. */
lnl_status tok_escape(tok_work *w, lnl_span text, bool space_prefix);
/* Appends to w->text; false when out of memory. */
bool tok_append(tok_work *w, const void *bytes, size_t count);

/* Fills t->special_first and sorts t->specials. */
void specials_prepare(tok *t);
/* Finds the special tokens of a text into w->matches, the last one first. */
lnl_status specials_find(tok_work *w, lnl_span text, bool parse_special);

/* --- splitting
 * ------------------------------------------------------------------- */

/* Walks over the words of a valid UTF-8 text. */
typedef struct tok_splitter {
  const uint8_t *passes; /* [TOK_MAX_PASSES], 0 = no further one */
  const uint8_t *text;
  size_t bytes;
  size_t at;                   /* next word begins here */
  size_t ends[TOK_MAX_PASSES]; /* of each pass: where its current piece ends */
  size_t run_end, run_count;   /* a run of digits or spaces that was counted already */
} tok_splitter;
void splitter_init(tok_splitter *s, tok_split_kind kind, lnl_span text);
/* The next word into *word; false at the end. Words are never empty, and
 * together they are the text. */
bool splitter_next(tok_splitter *s, lnl_span *word);
/* Whether WordPiece takes the character for a word of its own. */
bool splitter_is_han(uint32_t code_point);
#ifdef LNL_DEBUG
extern uint64_t splitter_steps; /* characters looked at so far: the cost, for tests */
#endif

#endif
