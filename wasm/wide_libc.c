/* What the core needs of a C library on 64-bit addresses, for which there is
 * none to link: the functions on strings, a sort, and the product of 128-bit integers
 * that checked multiplication comes down to. Compiled with -fno-builtin, so
 * that no loop becomes a call of itself. Mathematics has no addresses: it is
 * linked on 32-bit ones and merged in (cmake/WasmModule.cmake). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SIZE_MAX == ~(size_t)0 && sizeof(size_t) == 8 && UINTPTR_MAX == SIZE_MAX,
               "limits of the headers");

void *memchr(const void *s, int c, size_t n) {
  for (const uint8_t *at = s; n > 0; n--, at++) {
    if (*at == (uint8_t)c) return (void *)(uintptr_t)at;
  }
  return NULL;
}

int memcmp(const void *left, const void *right, size_t n) {
  const uint8_t *a = left, *b = right;
  for (; n > 0; n--, a++, b++) {
    if (*a != *b) return *a - *b;
  }
  return 0;
}

size_t strlen(const char *s) {
  const char *end = s;
  while (*end) end++;
  return (size_t)(end - s);
}

int strncmp(const char *left, const char *right, size_t n) {
  for (; n > 0; n--, left++, right++) {
    if (*left != *right || !*left) return (uint8_t)*left - (uint8_t)*right;
  }
  return 0;
}

char *strchr(const char *s, int c) {
  for (;; s++) {
    if (*s == (char)c) return (char *)(uintptr_t)s;
    if (!*s) return NULL;
  }
}

static void swap(uint8_t *a, uint8_t *b, size_t bytes) {
  for (; bytes > 0; bytes--, a++, b++) {
    const uint8_t kept = *a;
    *a = *b;
    *b = kept;
  }
}

/* A heap's root sinks to where it belongs among the first n items. */
static void sink(uint8_t *items, size_t at, size_t n, size_t bytes,
                 int (*order)(const void *, const void *)) {
  for (size_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && order(items + child * bytes, items + (child + 1) * bytes) < 0) child++;
    if (order(items + at * bytes, items + child * bytes) >= 0) return;
    swap(items + at * bytes, items + child * bytes, bytes);
  }
}

void qsort(void *base, size_t n, size_t bytes, int (*order)(const void *, const void *)) {
  uint8_t *items = base;
  for (size_t i = n / 2; i > 0; i--) sink(items, i - 1, n, bytes, order);
  for (size_t left = n; left > 1; left--) {
    swap(items, items + (left - 1) * bytes, bytes);
    sink(items, 0, left - 1, bytes, order);
  }
}

typedef unsigned __int128 wide;
wide __multi3(wide a, wide b);
wide __multi3(wide a, wide b) {
  const uint64_t a_low = (uint64_t)a, b_low = (uint64_t)b;
  const uint64_t a0 = a_low & UINT32_MAX, a1 = a_low >> 32, b0 = b_low & UINT32_MAX, b1 = b_low >> 32;
  const uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32);
  const uint64_t other = a0 * b1 + (middle & UINT32_MAX);
  const uint64_t high = a1 * b1 + (middle >> 32) + (other >> 32);
  const uint64_t cross = (uint64_t)(a >> 64) * b_low + a_low * (uint64_t)(b >> 64);
  return (wide)(high + cross) << 64 | (other << 32 | (low & UINT32_MAX));
}
