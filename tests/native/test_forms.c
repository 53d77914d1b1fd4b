/* The forms natively: the shared cases, and the quantised fixtures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case_memory.h"

#ifndef LNL_REPO_DIR
#define LNL_REPO_DIR "."
#endif

static uint8_t *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  uint8_t *data = malloc(*bytes);
  assert_int_equal(fread(data, 1, *bytes, file), *bytes);
  fclose(file);
  return data;
}

/* "Q4_K" is stored as q4_K.bin: lower case but for the K. */
static void fixture_path(char *path, size_t cap, const char *name, const char *suffix) {
  char stem[16];
  size_t i = 0;
  for (; name[i]; i++) stem[i] = name[i] == 'K' ? 'K' : (char)tolower(name[i]);
  stem[i] = 0;
  snprintf(path, cap, "%s/../shared/fixtures/quant/%s%s", LNL_REPO_DIR, stem, suffix);
}

/* Types that llama.cpp does not quantise to without an importance matrix. */
static bool needs_matrix(uint32_t type) {
  return type == TYPE_IQ2_XXS || type == TYPE_IQ2_XS || type == TYPE_IQ1_S;
}

/* Dequantisation is llama.cpp's, to the bit. */
static void decode_fixtures(void **state) {
  (void)state;
  static const char *const variants[] = {"", ".im"}; /* without and with an importance matrix */
  uint32_t count;
  const lnl_form *list = form_list(&count);
  for (uint32_t i = 0; i < count; i++)
    for (int variant = 0; variant < 2; variant++) {
      char path[512], suffix[16];
      size_t bin_bytes, f32_bytes;
      snprintf(suffix, sizeof suffix, "%s.bin", variants[variant]);
      fixture_path(path, sizeof path, list[i].name, suffix);
      uint8_t *bin = read_file(path, &bin_bytes);
      if (!bin && variant == 1 && list[i].block_len == 1) continue; /* nothing to weigh */
      if (!bin && variant == 0 && needs_matrix(list[i].type)) continue;
      if (!bin && variant == 0 && i == 0 && !getenv("CI")) {
        print_message("no ../shared/fixtures beside the repository\n");
        skip();
      }
      if (!bin) fail_msg("%s is missing", path);
      snprintf(suffix, sizeof suffix, "%s.f32", variants[variant]);
      fixture_path(path, sizeof path, list[i].name, suffix);
      uint8_t *f32 = read_file(path, &f32_bytes);
      assert_non_null(f32);
      const size_t n = f32_bytes / sizeof(float);
      assert_int_equal(bin_bytes, form_row_bytes(&list[i], n));
      float *values = malloc(f32_bytes);
      form_decode_scalar(&list[i], bin, values, n);
      assert_memory_equal(values, f32, f32_bytes);
      memset(values, 0, f32_bytes);
      list[i].decode(bin, values, n);
      assert_memory_equal(values, f32, f32_bytes);
      free(values);
      free(f32);
      free(bin);
    }
}

int main(void) {
  uint32_t count;
  const kernel_case *cases = form_cases(&count);
  struct CMUnitTest tests[128] = {cmocka_unit_test(decode_fixtures)};
  return run_cases(tests, 1, cases, count);
}
