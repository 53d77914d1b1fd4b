/* What the place we run on can do. Filled by the host (JS, WASI, native) and
 * injected; the core never senses anything, so any host resolves anywhere. */
#ifndef LNL_HOST_H
#define LNL_HOST_H

#include "base.h"

typedef enum lnl_host_kind { HOST_BROWSER = 0, HOST_NODE = 1, HOST_WASI = 2, HOST_NATIVE = 3 } lnl_host_kind;
typedef enum lnl_isa { ISA_SCALAR = 0, ISA_SIMD128 = 1, ISA_RELAXED = 2 } lnl_isa;

typedef struct lnl_host {
  lnl_host_kind kind;
  bool can_map;              /* a file can be mapped into the address space */
  bool can_grow;             /* memory can grow after start */
  bool memory64;             /* more than 4 GiB of linear memory */
  bool sync_read;            /* the source can be read synchronously (file, OPFS handle) */
  bool range_read;           /* the source can be read at any offset */
  bool isolated;             /* shared memory is allowed (cross-origin isolated page) */
  bool can_wait;             /* browsers: the engine's thread may wait for others (no page's main one) */
  uint32_t threads;          /* hardware threads that there are, at least 1 */
  uint32_t threads_asked;    /* how many the user wants; 0: let the core choose */
  uint64_t max_memory_bytes; /* ceiling of the heap: probed or budgeted; 0 = unknown, the address space is the
                                limit */
} lnl_host;

/* How many threads compute, and why so many. */
typedef struct lnl_threads {
  uint32_t count;
  const char *code, *text; /* static storage */
  bool notable;            /* fewer than were asked for, or than would be possible: worth a warning */
} lnl_threads;
/* can_share: this module can share memory. limit: most threads it has room for. */
lnl_threads host_choose_threads(const lnl_host *host, bool can_share, uint32_t limit);

/* How wide the addresses of a plan are to be, and why. */
typedef struct lnl_address {
  uint32_t bits;           /* 32 or 64 */
  const char *code, *text; /* static storage */
  bool lacking;            /* with 64 it would do, but the host has none */
} lnl_address;
/* own_bits: of this module. asked: the user wants this module and no other.
 * needed_bytes: of memory, with all weights in it. allowed_bytes: the most that may be
 * used whatever the addresses; UINT64_MAX: no limit. Where more is needed than that, as
 * much as that is wanted. */
lnl_address host_choose_address(const lnl_host *host, uint32_t own_bits, bool asked, uint64_t needed_bytes,
                                uint64_t allowed_bytes);

/* How much memory addresses of 32 or 64 bits reach there. */
uint64_t host_reach(const lnl_host *host, uint32_t bits);

/* The instruction set that this module was compiled for. */
lnl_isa host_isa(void);
/* "browser", ...: static storage. */
const char *host_kind_name(lnl_host_kind kind);
/* "base", ...: what a module of that instruction set is called; "scalar" only native. Static storage. */
const char *host_module_name(lnl_isa isa);

#endif
