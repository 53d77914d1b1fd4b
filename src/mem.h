/* The only allocator, and the arenas on top of it. Everything that the core
 * holds comes from mem_alloc; hot paths take from arenas that were bound
 * beforehand. One thread at a time. */
#ifndef LNL_MEM_H
#define LNL_MEM_H

#include "base.h"

enum { MEM_ALIGN = 64 }; /* of every block and of every arena slot, in bytes */

/* A block of at least `bytes` bytes, 64-byte aligned, contents unspecified.
 * NULL when the host has no more memory or the fault hook fires.
 * bytes 0 gives a valid empty block. */
void *mem_alloc(size_t bytes);
/* Grows or shrinks a block, in place where the heap allows. NULL on failure,
 * the old block then stays as it was. block may be NULL. */
void *mem_resize(void *block, size_t bytes);
void mem_free(void *block); /* NULL is allowed */

typedef struct mem_stats {
  uint64_t alloc_calls; /* calls of mem_alloc and mem_resize since start */
  uint64_t grow_calls;  /* times that the heap asked the host for more */
  uint64_t live_blocks;
  uint64_t live_bytes;       /* as asked for, without block headers */
  uint64_t high_water_bytes; /* of live_bytes; both copies count while mem_resize moves a block */
  uint64_t host_bytes;       /* wasm: size of linear memory; native: live_bytes */
} mem_stats;
mem_stats mem_get_stats(void);
/* Sets the high-water mark back to what is live now. */
void mem_reset_high_water(void);

/* What host_bytes will be after these blocks are allocated one after another
 * (0 entries are skipped): the same arithmetic as mem_alloc, nothing done. */
uint64_t mem_plan_host_bytes(const uint64_t *block_bytes, size_t count);

/* Room that an engine sets aside for short-lived blocks (a prompt, a text), so
 * that these do not make memory grow: it is taken and given back at once.
 * 0 where the heap is not ours. */
uint64_t mem_headroom_bytes(void);

#ifdef LNL_DEBUG
/* Debug builds keep a ledger of the live blocks. */
typedef struct mem_entry {
  const void *block;
  uint64_t bytes;  /* as asked for */
  uint64_t number; /* of the mem_alloc since start, from 1; mem_resize keeps it */
} mem_entry;
/* Writes the first `most` of them, the youngest first; returns how many there are. */
size_t mem_ledger(mem_entry *out, size_t most);
#endif

/* Test hook: the nth allocation from now (1 = the next) fails; 0 switches it
 * off. Counts down once. */
void mem_fail_at(uint64_t nth);

/* An arena hands out 64-byte aligned slots from one block. Sizing and binding
 * are one function run twice: first over an arena without a block (measuring:
 * arena_take returns NULL and adds up), then arena_bind, then again. */
typedef struct lnl_arena {
  uint8_t *base;       /* NULL while measuring */
  uint64_t used_bytes; /* multiple of 64 */
  uint64_t cap_bytes;  /* size of the bound block */
  uint64_t high_bytes; /* most ever used or asked for, overflow included; survives resets */
  bool sealed;
} lnl_arena;

/* The next slot, uninitialised; NULL while measuring, and NULL when a bound
 * arena has no room (the wish is kept in high_bytes). Traps when sealed. */
void *arena_take(lnl_arena *arena, uint64_t bytes);
/* Allocates a block of the measured size and starts over at its beginning. */
lnl_status arena_bind(lnl_arena *arena);
/* Asserts that the second run used exactly what the first measured, and
 * forbids further arena_take until arena_reset. */
void arena_seal(lnl_arena *arena);
/* Step and scratch scopes: forget all slots. Debug builds poison the whole block. */
void arena_reset(lnl_arena *arena);
void arena_free(lnl_arena *arena);

#endif
