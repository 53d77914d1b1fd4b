/* Tokenizers: text to ids and back. SPM (tokenizer.ggml.model "llama"), BPE
 * ("gpt2", "gemma4"), WordPiece ("bert") and Unigram ("t5"); one file each,
 * behind this interface. Reads the GGUF header in place; its tables live in the
 * model scope. */
#ifndef LNL_TOK_H
#define LNL_TOK_H

#include "gguf.h"
#include "mem.h"

typedef enum tok_kind { TOK_NONE = 0, TOK_SPM, TOK_BPE, TOK_WPM, TOK_UGM } tok_kind;

/* The tokenizer.ggml.token_type values (llama.cpp's enumeration). */
typedef enum tok_attr {
  TOK_NORMAL = 1,
  TOK_UNKNOWN,
  TOK_CONTROL,
  TOK_USER_DEFINED,
  TOK_UNUSED,
  TOK_BYTE
} tok_attr;

typedef struct tok tok; /* opaque, lives in the arena that tok_layout used */

/* What the header says, checked before any weight is fetched. Statuses:
 * UNSUPPORTED_TOKENIZER (names model or pre, lists those supported),
 * BAD_VOCABULARY, MISSING_KEY. LNL_OK with kind TOK_NONE when the file has no
 * tokenizer or model "none". Allocates nothing. */
lnl_status tok_check(const gguf *file, tok_kind *kind, uint32_t *n_vocab, lnl_error *error);

/* Measure/bind: run once over a measuring arena and once over a bound one.
 * *out is NULL while measuring. `file` must outlive the tokenizer (strings are
 * borrowed from its image). Must follow a successful tok_check. Temporary
 * tables, if any, come from mem_alloc and are freed before it returns. */
lnl_status tok_layout(lnl_arena *arena, const gguf *file, tok **out, lnl_error *error);

enum {
  TOK_ADD_SPECIAL = 1,   /* add BOS/EOS as the file asks */
  TOK_PARSE_SPECIAL = 2, /* control tokens in the text become their ids;
                            otherwise they are plain text */
};

/* Encodes text[0, bytes) (any bytes; invalid UTF-8 is handled as llama.cpp
 * does) to ids. *ids is a block from mem_alloc that the caller frees, *count
 * its length; both zero on failure. Time is O(n log n) on any input.
 * Statuses: OUT_OF_MEMORY. */
lnl_status tok_encode(const tok *t, const char *text, size_t bytes, uint32_t flags, int32_t **ids,
                      size_t *count, lnl_error *error);

/* The bytes that the id stands for in running text (U+2581 already a space,
 * byte tokens decoded, byte-level BPE decoded), written to dst[0, cap).
 * Returns the length, which may be more than cap (then nothing is written).
 * Control tokens give 0 bytes unless show_special. */
size_t tok_piece(const tok *t, int32_t id, bool show_special, uint8_t *dst, size_t cap);
/* An upper bound of tok_piece over the whole vocabulary, in bytes. */
size_t tok_max_piece_bytes(const tok *t);

uint32_t tok_vocab_count(const tok *t);
tok_kind tok_get_kind(const tok *t);
int32_t tok_bos(const tok *t); /* -1 when there is none; WordPiece: [CLS] */
int32_t tok_eos(const tok *t);
bool tok_adds_bos(const tok *t);
/* Whether the id ends a generation: eos/eot/eom ids and the texts listed in
 * tok_vocab.c, whatever type the file gives them. O(1). */
bool tok_is_end(const tok *t, int32_t id);

#endif
