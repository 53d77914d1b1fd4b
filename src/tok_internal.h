/* What the tokenizer files share. Nothing outside src/tok*.c and the tests of
 * it includes this.
 *   tok_vocab.c    reads and checks the vocabulary in a GGUF header (tok_check)
 *   tok.c          that -> tables (tok_layout), ids -> bytes, encode driver
 *   tok_special.c  finds special tokens in a text
 *   tok_spm.c      a text without special tokens -> ids, SPM
 *   tok_bpe.c      the same for byte-level BPE; merge table
 *   tok_split.c    cuts a text into the words that BPE merges within
 *   tok_merge.c    candidate heap and the merge loop that SPM and BPE share */
#ifndef LNL_TOK_INTERNAL_H
#define LNL_TOK_INTERNAL_H

#include "tok.h"

/* --- tables, in the arena ---------------------------------------------------- */

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

typedef enum tok_split_kind {
  SPLIT_DEFAULT = 0, /* what llama.cpp does when `pre` is "default" or missing */
  SPLIT_GPT2,
  SPLIT_GPT2_DIGITS, /* each digit alone, GPT-2 between them */
  SPLIT_LLAMA3,      /* digits in groups of up to 3 */
  SPLIT_QWEN2,       /* each digit alone */
  SPLIT_QWEN35,      /* as Qwen2, marks count as letters */
} tok_split_kind;

struct tok {
  tok_kind kind;
  uint32_t n_vocab;
  int32_t bos, eos, unk; /* -1: none */
  bool add_bos, add_eos;
  bool space_prefix;  /* SPM: a space before text that begins, or follows a special token */
  bool ignore_merges; /* BPE: a word that is a token is taken whole */
  bool strip_right;   /* Phi-3: most special tokens swallow the white space after them */
  bool has_user_defined;
  tok_split_kind split;
  uint32_t max_token_bytes;
  const uint8_t *texts;   /* borrowed: the items of tokenizer.ggml.tokens in the header */
  const uint8_t *scores;  /* borrowed: float32 [n_vocab], unaligned; NULL = all 0 */
  uint32_t *text_offsets; /* [n_vocab + 1] into texts; an 8-byte length lies between two texts */
  uint8_t *attrs;         /* tok_attr [n_vocab], after corrections; 0 = undefined */
  uint32_t *ends;         /* bitmap [n_vocab]: ends a generation */
  tok_map map;            /* SPM, and BPE with ignore_merges */
  uint32_t *adjacent;     /* SPM: bitmap [65536] of the byte pairs that occur inside tokens */
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

/* Polynomial hash: that of a concatenation follows from those of its parts,
 *   hash(ab) = hash(a) * power(b) + hash(b),  power(ab) = power(a) * power(b),
 * so a merge costs the same for long tokens as for short ones. */
enum { TOK_HASH_BASE = 0x01000193 };
static inline uint32_t tok_hash(const uint8_t *text, size_t bytes, uint32_t *power) {
  uint32_t hash = 0;
  uint32_t p = 1;
  for (size_t i = 0; i < bytes; i++) {
    hash = hash * TOK_HASH_BASE + text[i] + 1;
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

/* BPE merge table: fills t->pairs from the merges, looking texts up in `map`. */
lnl_status bpe_build_pairs(tok *t, const tok_map *map, const gguf_value *merges, lnl_error *error);
/* BPE: the byte that a character of the byte-level alphabet stands for, or -1. */
int32_t bpe_char_byte(uint32_t code_point);
/* The character for a byte, as UTF-8 of 1 or 2 bytes; returns the length. */
size_t bpe_byte_char(uint8_t byte, uint8_t dst[4]);

/* --- the header ---------------------------------------------------------------- */

enum { TOK_FIM_COUNT = 6 }; /* fill-in-the-middle: pre suf mid pad rep sep */

/* The vocabulary as the header gives it, nothing copied. */
typedef struct tok_vocab {
  tok_kind kind;
  uint32_t n_vocab;
  gguf_value tokens, scores, types, merges;
  bool has_scores, has_types;
  tok_split_kind split;
  int32_t bos, eos, unk, eot, eom; /* -1: none */
  int32_t fim[TOK_FIM_COUNT];
  bool ignore_merges, add_bos, add_eos, space_prefix, strip_right;
} tok_vocab;

/* Reads and checks every key; the statuses are those of tok_check. */
lnl_status vocab_read(const gguf *file, tok_vocab *v, lnl_error *error);
/* The type of a token after corrections by its text, and whether it ends a
 * generation. */
tok_attr vocab_classify(const tok_vocab *v, uint32_t id, lnl_span text, bool *ends);

/* --- one encoding --------------------------------------------------------------- */

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
  uint8_t *text; /* SPM: escaped text; BPE: text made valid UTF-8 */
  size_t text_bytes, text_cap;
  uint8_t *word; /* BPE with ignore_merges: a word in the byte-level alphabet */
  size_t word_cap;
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

/* Fills t->special_first and sorts t->specials. */
void specials_prepare(tok *t);
/* Finds the special tokens of a text into w->matches, the last one first. */
lnl_status specials_find(tok_work *w, lnl_span text, bool parse_special);

/* --- splitting ------------------------------------------------------------------- */

/* Walks over the words of a valid UTF-8 text. */
typedef struct tok_splitter {
  tok_split_kind kind;
  const uint8_t *text;
  size_t bytes;
  size_t at;          /* next word begins here */
  size_t section_end; /* patterns do not look beyond: an earlier pass cut here */
  size_t number_end;  /* SPLIT_DEFAULT: the digits up to here are still to be grouped */
} tok_splitter;
void splitter_init(tok_splitter *s, tok_split_kind kind, lnl_span text);
/* The next word into *word; false at the end. Words are never empty, and
 * together they are the text. */
bool splitter_next(tok_splitter *s, lnl_span *word);

#endif
