/* The only allocator. Two heaps behind mem.h:
 *
 * block heap   freestanding wasm: blocks in linear memory, from the end of the
 *              module's static data upwards, one after another without gaps:
 *
 *              base            block             block                 top       end
 *              | header | data | header | data   | header (free)       |  unused |
 *
 *              First fit by address; a hole is cut to size from its front;
 *              neighbouring holes join; a hole that touches the top becomes
 *              unused space. Only when nothing fits does memory grow, by just
 *              the pages that are missing. So what an allocation will do to
 *              the size of memory is plain arithmetic, and mem_plan_host_bytes
 *              does it beforehand.
 *
 * system heap  elsewhere: every block is one of the C library's, so that
 *              AddressSanitizer and LeakSanitizer see each of them.
 *
 * A 64-byte header precedes every block in both. Addresses are uintptr_t and
 * sizes uint64_t throughout: blocks beyond 2 GiB are ordinary, and pointer
 * differences would be signed. */
#include "mem.h"

#include <string.h>

#if (defined(__wasm__) && !defined(__EMSCRIPTEN__) && !defined(LNL_LIBC_HEAP)) || defined(MEM_TEST_PAGES)
#define MEM_BLOCK_HEAP 1
#else
#define MEM_BLOCK_HEAP 0
#include <stdlib.h>
#endif

enum { MEM_HEADER_BYTES = MEM_ALIGN };

static mem_stats stats;
static uint64_t fail_countdown; /* 0: off */

/* A test hook must not be able to fire twice, nor a count to go below zero. */
static bool fault_fires(void) { return fail_countdown > 0 && --fail_countdown == 0; }

#ifdef LNL_DEBUG
/* --- ledger: a list through the headers of the live blocks ------------------ */

typedef struct ledger_link {
  struct ledger_link *older, *younger;
  uint64_t number;
} ledger_link;

static ledger_link *youngest;
static uint64_t last_number;

static void ledger_join(ledger_link *link) {
  if (link->older) link->older->younger = link;
  if (link->younger) link->younger->older = link;
  if (!link->younger) youngest = link;
}
static void ledger_enter(ledger_link *link) {
  *link = (ledger_link){.older = youngest, .number = ++last_number};
  ledger_join(link);
}
static void ledger_strike(const ledger_link *link) {
  if (link->older) link->older->younger = link->younger;
  if (link->younger) link->younger->older = link->older;
  if (youngest == link) youngest = link->older;
}
#define LEDGER_LINK      ledger_link link;
#define LEDGER_ENTER(b)  ledger_enter(&(b)->link)
#define LEDGER_STRIKE(b) ledger_strike(&(b)->link)
/* b takes the place of the block that lay elsewhere. */
#define LEDGER_MOVE(b, from) ((b)->link = (from)->link, ledger_join(&(b)->link))
#else
#define LEDGER_LINK
#define LEDGER_ENTER(b)
#define LEDGER_STRIKE(b)
#define LEDGER_MOVE(b, from)
#endif

static void count_live(uint64_t more_bytes) {
  stats.live_bytes += more_bytes;
  stats.high_water_bytes = u64_max(stats.high_water_bytes, stats.live_bytes);
}

#if MEM_BLOCK_HEAP

/* --- linear memory --------------------------------------------------------- */

enum { PAGE_BYTES = 65536 };

#ifdef MEM_TEST_PAGES
/* The test supplies a fake linear memory: base address, size in pages, growth. */
static uintptr_t memory_heap_base(void);
static uint64_t memory_pages(void);
static bool memory_grow(uint64_t pages);
static uint64_t memory_limit(void); /* first address that can never exist */
#else
extern uint8_t __heap_base; /* set by the linker */
static uintptr_t memory_heap_base(void) { return (uintptr_t)&__heap_base; }
static uint64_t memory_pages(void) { return __builtin_wasm_memory_size(0); }
static bool memory_grow(uint64_t pages) { return __builtin_wasm_memory_grow(0, (size_t)pages) != (size_t)-1; }
static uint64_t memory_limit(void) { return sizeof(void *) == 4 ? UINT64_C(1) << 32 : UINT64_C(1) << 46; }
#endif

/* --- block heap --------------------------------------------------------------- */

enum { BLOCK_FREE = 0x66726565, BLOCK_USED = 0x75736564 };

typedef struct block {
  uint64_t bytes;       /* with this header; a multiple of 64, at least 64 */
  uint64_t prev_bytes;  /* of the block just below; 0 for the first */
  uint64_t asked_bytes; /* what the caller asked for */
  uint64_t plan_bytes;  /* holes: what is left of it in mem_plan_host_bytes */
  uint32_t mark;        /* BLOCK_FREE or BLOCK_USED: a bad free stops here */
  LEDGER_LINK
} block;
_Static_assert(sizeof(block) <= MEM_HEADER_BYTES, "the header has room for it");

static uint64_t heap_base, heap_top; /* addresses; 0 before the first use */
static uint64_t last_bytes;          /* of the block that ends at heap_top; 0: none */

static block *block_at(uint64_t address) { return (block *)(uintptr_t)address; }
static uint64_t block_address(const block *b) { return (uint64_t)(uintptr_t)b; }
static void *block_data(block *b) { return (void *)((uintptr_t)b + MEM_HEADER_BYTES); }

static block *block_of(void *data) {
  LNL_ASSERT((uintptr_t)data % MEM_ALIGN == 0);
  block *b = block_at((uint64_t)(uintptr_t)data - MEM_HEADER_BYTES);
  LNL_ASSERT(b->mark == BLOCK_USED);
  return b;
}

static void heap_init(void) {
  if (heap_base) return;
  heap_base = heap_top = align_up(memory_heap_base(), MEM_ALIGN);
}

/* Header, data and rounding of a block; false when no memory can hold it. */
static bool block_size(uint64_t asked, uint64_t *bytes) {
  if (asked > memory_limit() - MEM_HEADER_BYTES - MEM_ALIGN) return false;
  *bytes = MEM_HEADER_BYTES + align_up(asked, MEM_ALIGN);
  return true;
}

/* Pages that memory must gain so that it ends at or beyond `top`. */
static uint64_t pages_missing(uint64_t top, uint64_t pages) {
  uint64_t needed = (top + PAGE_BYTES - 1) / PAGE_BYTES;
  return needed > pages ? needed - pages : 0;
}

/* Makes [.., top) exist. The checks are unsigned and before any growth. */
static bool heap_extend(uint64_t top) {
  if (top > memory_limit()) return false;
  uint64_t pages = pages_missing(top, memory_pages());
  if (pages == 0) return true;
  if (!memory_grow(pages)) return false;
  stats.grow_calls++;
  return true;
}

/* Tells the block above b (or the top) how long b is. */
static void block_link_above(const block *b) {
  uint64_t above = block_address(b) + b->bytes;
  if (above == heap_top)
    last_bytes = b->bytes;
  else
    block_at(above)->prev_bytes = b->bytes;
}

/* Cuts b to `bytes`; what remains becomes a hole (joined with one above it)
 * or unused space at the top. */
static void block_cut(block *b, uint64_t bytes) {
  uint64_t rest = b->bytes - bytes;
  if (rest == 0) return;
  uint64_t end = block_address(b) + b->bytes;
  b->bytes = bytes;
  if (end == heap_top) {
    heap_top -= rest;
    last_bytes = bytes;
    return;
  }
  block *hole = block_at(block_address(b) + bytes);
  *hole = (block){.bytes = rest, .prev_bytes = bytes, .mark = BLOCK_FREE};
  block *above = block_at(end);
  if (above->mark == BLOCK_FREE) { /* never at the top: such a hole is dissolved */
    hole->bytes += above->bytes;
    above->mark = 0;
  }
  block_link_above(hole);
}

static block *heap_take(uint64_t bytes) {
  heap_init();
  for (uint64_t at = heap_base; at < heap_top; at += block_at(at)->bytes) {
    block *b = block_at(at);
    if (b->mark != BLOCK_FREE || b->bytes < bytes) continue;
    b->mark = BLOCK_USED;
    block_cut(b, bytes);
    return b;
  }
  if (!heap_extend(heap_top + bytes)) return NULL;
  block *b = block_at(heap_top);
  *b = (block){.bytes = bytes, .prev_bytes = last_bytes, .mark = BLOCK_USED};
  heap_top += bytes;
  last_bytes = bytes;
  return b;
}

static void heap_release(block *b) {
  b->mark = BLOCK_FREE;
  if (b->prev_bytes > 0) {
    block *below = block_at(block_address(b) - b->prev_bytes);
    if (below->mark == BLOCK_FREE) {
      below->bytes += b->bytes;
      b->mark = 0;
      b = below;
    }
  }
  uint64_t end = block_address(b) + b->bytes;
  if (end == heap_top) {
    heap_top = block_address(b);
    last_bytes = b->prev_bytes;
    b->mark = 0;
    return;
  }
  block *above = block_at(end);
  if (above->mark == BLOCK_FREE) {
    b->bytes += above->bytes;
    above->mark = 0;
  }
  block_link_above(b);
}

/* Makes b `bytes` long where it lies; false when something is in the way. */
static bool heap_resize_in_place(block *b, uint64_t bytes) {
  uint64_t end = block_address(b) + b->bytes;
  if (bytes > b->bytes) {
    if (end == heap_top) {
      if (!heap_extend(block_address(b) + bytes)) return false;
      heap_top = block_address(b) + bytes;
      b->bytes = last_bytes = bytes;
      return true;
    }
    block *above = block_at(end);
    if (above->mark != BLOCK_FREE || b->bytes + above->bytes < bytes) return false;
    b->bytes += above->bytes;
    above->mark = 0;
    block_link_above(b);
  }
  block_cut(b, bytes);
  return true;
}

void *mem_alloc(size_t bytes) {
  stats.alloc_calls++;
  uint64_t total;
  if (fault_fires() || !block_size(bytes, &total)) return NULL;
  block *b = heap_take(total);
  if (!b) return NULL;
  b->asked_bytes = bytes;
  LEDGER_ENTER(b);
  stats.live_blocks++;
  count_live(bytes);
  return block_data(b);
}

void *mem_resize(void *data, size_t bytes) {
  if (!data) return mem_alloc(bytes);
  stats.alloc_calls++;
  uint64_t total;
  if (fault_fires() || !block_size(bytes, &total)) return NULL;
  block *b = block_of(data);
  uint64_t asked = b->asked_bytes;
  if (heap_resize_in_place(b, total)) {
    b->asked_bytes = bytes;
    stats.live_bytes -= asked;
    count_live(bytes);
    return data;
  }
  block *moved = heap_take(total);
  if (!moved) return NULL;
  moved->asked_bytes = bytes;
  LEDGER_MOVE(moved, b);
  count_live(bytes); /* both are held while the bytes move */
  memcpy(block_data(moved), data, (size_t)u64_min(asked, bytes));
  heap_release(b);
  stats.live_bytes -= asked;
  return block_data(moved);
}

void mem_free(void *data) {
  if (!data) return;
  block *b = block_of(data);
  LEDGER_STRIKE(b);
  stats.live_blocks--;
  stats.live_bytes -= b->asked_bytes;
  heap_release(b);
}

static uint64_t host_bytes(void) { return memory_pages() * PAGE_BYTES; }

uint64_t mem_headroom_bytes(void) { return PAGE_BYTES; }

uint64_t mem_plan_host_bytes(const uint64_t *block_bytes, size_t count) {
  heap_init();
  uint64_t top = heap_top;
  for (uint64_t at = heap_base; at < heap_top; at += block_at(at)->bytes) {
    block *b = block_at(at);
    if (b->mark == BLOCK_FREE) b->plan_bytes = b->bytes;
  }
  for (size_t i = 0; i < count; i++) {
    if (block_bytes[i] == 0) continue;
    uint64_t bytes;
    if (!block_size(block_bytes[i], &bytes)) { /* more than can exist: still a number to report */
      if (!u64_add(top, block_bytes[i], &top)) top = UINT64_MAX / 2;
      continue;
    }
    bool placed = false;
    for (uint64_t at = heap_base; at < heap_top && !placed; at += block_at(at)->bytes) {
      block *b = block_at(at);
      if (b->mark != BLOCK_FREE || b->plan_bytes < bytes) continue;
      b->plan_bytes -= bytes;
      placed = true;
    }
    if (!placed && !u64_add(top, bytes, &top)) top = UINT64_MAX / 2;
  }
  uint64_t pages = memory_pages();
  return (pages + pages_missing(u64_min(top, UINT64_MAX / 2), pages)) * PAGE_BYTES;
}

#else /* system heap */

typedef struct block {
  uint64_t asked_bytes;
  LEDGER_LINK
} block;

static block *block_of(void *data) { return (block *)((uintptr_t)data - MEM_HEADER_BYTES); }

/* posix_memalign, not aligned_alloc: the size need not be a multiple of the
 * alignment, so a sanitizer catches the first byte past the block. */
int posix_memalign(void **out, size_t align, size_t bytes);

static void *system_take(size_t bytes) {
  void *start = NULL;
  if (bytes > SIZE_MAX / 2 - MEM_HEADER_BYTES) return NULL;
  if (posix_memalign(&start, MEM_ALIGN, MEM_HEADER_BYTES + bytes) != 0) return NULL;
  ((block *)start)->asked_bytes = bytes;
  return (void *)((uintptr_t)start + MEM_HEADER_BYTES);
}

void *mem_alloc(size_t bytes) {
  stats.alloc_calls++;
  if (fault_fires()) return NULL;
  void *data = system_take(bytes);
  if (!data) return NULL;
  LEDGER_ENTER(block_of(data));
  stats.live_blocks++;
  stats.grow_calls++;
  count_live(bytes);
  return data;
}

void *mem_resize(void *data, size_t bytes) {
  if (!data) return mem_alloc(bytes);
  stats.alloc_calls++;
  if (fault_fires()) return NULL;
  /* always moves: a sanitizer then sees a stale pointer, and the new end */
  void *moved = system_take(bytes);
  if (!moved) return NULL;
  uint64_t asked = block_of(data)->asked_bytes;
  LEDGER_MOVE(block_of(moved), block_of(data));
  stats.grow_calls++;
  count_live(bytes);
  memcpy(moved, data, (size_t)u64_min(asked, bytes));
  free(block_of(data));
  stats.live_bytes -= asked;
  return moved;
}

void mem_free(void *data) {
  if (!data) return;
  LEDGER_STRIKE(block_of(data));
  stats.live_blocks--;
  stats.live_bytes -= block_of(data)->asked_bytes;
  free(block_of(data));
}

static uint64_t host_bytes(void) { return stats.live_bytes; }

uint64_t mem_headroom_bytes(void) { return 0; }

uint64_t mem_plan_host_bytes(const uint64_t *block_bytes, size_t count) {
  uint64_t total = stats.live_bytes;
  for (size_t i = 0; i < count; i++) {
    if (!u64_add(total, block_bytes[i], &total)) return UINT64_MAX;
  }
  return total;
}

#endif

/* --- both ------------------------------------------------------------------------ */

mem_stats mem_get_stats(void) {
  mem_stats copy = stats;
  copy.host_bytes = host_bytes();
  return copy;
}

void mem_reset_high_water(void) { stats.high_water_bytes = stats.live_bytes; }
void mem_fail_at(uint64_t nth) { fail_countdown = nth; }

#ifdef LNL_DEBUG
size_t mem_ledger(mem_entry *out, size_t most) {
  size_t count = 0;
  for (const ledger_link *link = youngest; link; link = link->older, count++) {
    if (count >= most) continue;
    block *b = (block *)((uintptr_t)link - offsetof(block, link));
    out[count] = (mem_entry){(uint8_t *)b + MEM_HEADER_BYTES, b->asked_bytes, link->number};
  }
  return count;
}
#endif

/* --- arenas ------------------------------------------------------------------------ */

void *arena_take(lnl_arena *arena, uint64_t bytes) {
  LNL_ASSERT(!arena->sealed);
  /* a wish beyond 2^62 stays a wish that no bind can grant, and cannot wrap */
  uint64_t slot = align_up(u64_min(bytes, UINT64_C(1) << 62), MEM_ALIGN);
  uint64_t end = u64_min(arena->used_bytes + slot, UINT64_C(1) << 62);
  arena->high_bytes = u64_max(arena->high_bytes, end);
  if (!arena->base) {
    arena->used_bytes = end;
    return NULL;
  }
  if (end > arena->cap_bytes) return NULL;
  void *taken = (void *)((uintptr_t)arena->base + (uintptr_t)arena->used_bytes);
  arena->used_bytes = end;
  return taken;
}

lnl_status arena_bind(lnl_arena *arena) {
  LNL_ASSERT(!arena->base);
  if (arena->used_bytes > SIZE_MAX) return LNL_OUT_OF_MEMORY;
  arena->base = mem_alloc((size_t)arena->used_bytes);
  if (!arena->base) return LNL_OUT_OF_MEMORY;
  arena->cap_bytes = arena->used_bytes;
  arena->used_bytes = 0;
  return LNL_OK;
}

void arena_seal(lnl_arena *arena) {
  LNL_ASSERT(arena->base && arena->used_bytes == arena->cap_bytes);
  arena->sealed = true;
}

void arena_reset(lnl_arena *arena) {
#ifdef LNL_DEBUG
  /* all ones: a NaN as f32 and as f16, so that a stale read shows. All of it: who
   * reset it before may have kept its slots. */
  if (arena->base) memset(arena->base, 0xff, (size_t)arena->cap_bytes);
#endif
  arena->used_bytes = 0;
  arena->sealed = false;
}

void arena_free(lnl_arena *arena) {
  mem_free(arena->base);
  *arena = (lnl_arena){.high_bytes = arena->high_bytes};
}
