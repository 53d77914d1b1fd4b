// The plain SIMD read loop: what memory can deliver to one WebAssembly thread.
// Built by read-loop.mjs over an imported shared memory; no library.
#include <stddef.h>
#include <stdint.h>
#include <wasm_simd128.h>

__attribute__((export_name("sum"))) double sum(const char *p, size_t n) {
  v128_t s[8];
  for (int k = 0; k < 8; k++) s[k] = wasm_i64x2_splat(0);
  for (size_t i = 0; i < n; i += 128) {
    for (int k = 0; k < 8; k++) s[k] = wasm_i64x2_add(s[k], wasm_v128_load(p + i + 16 * k));
  }
  for (int k = 1; k < 8; k++) s[0] = wasm_i64x2_add(s[0], s[k]);
  return (double)(wasm_i64x2_extract_lane(s[0], 0) + wasm_i64x2_extract_lane(s[0], 1));
}

__attribute__((export_name("fill"))) void fill(uint64_t *p, size_t n) {
  for (size_t i = 0; i < n / 8; i++) p[i] = i * 0x9e3779b97f4a7c15ull;
}
