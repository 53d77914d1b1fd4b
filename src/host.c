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

const char *host_isa_name(lnl_isa isa) {
  switch (isa) {
  case ISA_SCALAR:
    return "scalar";
  case ISA_SIMD128:
    return "simd128";
  case ISA_RELAXED:
    return "relaxed";
  }
  return "unknown";
}
