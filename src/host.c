/* Names of hosts and instruction sets. */
#include "host.h"

/* LNL_SIMDE: a native build of the wasm kernels, level 1 or 2 */
lnl_isa host_isa(void) {
#if defined(__wasm_relaxed_simd__) || (defined(LNL_SIMDE) && LNL_SIMDE >= 2)
  return ISA_RELAXED;
#elif defined(__wasm_simd128__) || defined(LNL_SIMDE)
  return ISA_SIMD128;
#else
  return ISA_SCALAR;
#endif
}

/* Above this many hardware threads the rest are mostly siblings of the same
 * cores, or slow ones, and equal shares wait for the slowest. */
enum { ALL_UP_TO = 4, AUTO_MOST = 8 };

static uint32_t auto_threads(uint32_t cores) {
  return cores <= ALL_UP_TO ? cores : u32_min(u32_max(cores / 2, ALL_UP_TO), AUTO_MOST);
}

lnl_threads host_choose_threads(const lnl_host *host, bool can_share, uint32_t limit) {
  uint32_t asked = host->threads_asked, cores = u32_max(host->threads, 1);
  bool browser = host->kind == HOST_BROWSER;
  if (asked == 1) return (lnl_threads){1, "ASKED_FOR_ONE", "asked for 1", false};
  if (cores == 1) return (lnl_threads){1, "ONE_CORE", "the host has one core", asked > 1};
  if (browser && !host->isolated)
    return (lnl_threads){1, "NOT_ISOLATED", "the page is not cross-origin isolated", true};
  if (browser && !host->can_wait)
    return (lnl_threads){1, "MAIN_THREAD", "the main thread of a page may not wait for others", true};
  if (!can_share)
    return (lnl_threads){1, "NO_SHARED_MEMORY", "this module has no memory that threads could share",
                         asked > 1};
  if (asked > limit && cores > limit)
    return (lnl_threads){limit, "LIMIT", "more than that are not supported", true};
  if (asked > cores) return (lnl_threads){cores, "CORES", "the host has no more cores", true};
  if (asked) return (lnl_threads){asked, "ASKED_FOR", "as many as were asked for", false};
  return (lnl_threads){u32_min(auto_threads(cores), limit), "AUTO", "chosen for the cores of the host",
                       false};
}

/* Of 64 bits engines allow 16 GiB. */
uint64_t host_reach(const lnl_host *host, uint32_t bits) {
  if (bits == 32) return UINT64_C(1) << 32;
  return host->kind == HOST_NATIVE ? UINT64_MAX : UINT64_C(1) << 34;
}

lnl_address host_choose_address(const lnl_host *host, uint32_t own_bits, bool asked, uint64_t needed_bytes,
                                uint64_t allowed_bytes) {
  if (host->kind == HOST_NATIVE) return (lnl_address){own_bits, "NATIVE", "those of the host", false};
  if (asked) return (lnl_address){own_bits, "ASKED_FOR", "the module was asked for", false};
  const uint64_t reached = host_reach(host, 32);
  if (needed_bytes <= reached) return (lnl_address){32, "FITS_32", "they reach all that is needed", false};
  if (allowed_bytes <= reached || (!host->memory64 && needed_bytes > allowed_bytes))
    return (lnl_address){32, "NOT_ALLOWED",
                         "more than they reach (4 GiB) is needed, and more than may be used", false};
  if (!host->memory64)
    return (lnl_address){32, "NO_MEMORY64",
                         "more than they reach (4 GiB) is needed, but this host has no 64-bit memory", true};
  return (lnl_address){64, "NEEDS_64", "more than 32-bit ones reach (4 GiB) is needed", false};
}

const char *host_kind_name(lnl_host_kind kind) {
  switch (kind) {
  case HOST_BROWSER:
    return "browser";
  case HOST_NODE:
    return "node";
  case HOST_WASI:
    return "wasi";
  case HOST_NATIVE:
    return "native";
  }
  return "unknown";
}

const char *host_module_name(lnl_isa isa) {
  switch (isa) {
  case ISA_SCALAR:
    return "scalar";
  case ISA_SIMD128:
    return "base";
  case ISA_RELAXED:
#ifdef __wasm64__
    return "relaxed-mt-64";
#else
    return "relaxed";
#endif
  }
  return "unknown";
}
