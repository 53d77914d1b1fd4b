/* A real mapping of a real file: the logits are those of the weights held in
 * the heap, to the bit, also when the system takes the pages away in between;
 * the pages are the file's own, which the system may drop, and count as no heap.
 * The same from a file that is read again for each token. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../src/engine.h"
#include "tiny_model.h"

static const int32_t prompt[] = {1, 260, 261, 299, 5, 77, 264, 265, 266, 267, 281, 290, 3};
enum { PROMPT = sizeof prompt / sizeof *prompt, DECODED = 6 };

typedef enum residency { IN_HEAP, MAPPED, MAPPED_AND_DROPPED, STREAMED } residency;

static bool is_mapped(residency where) { return where == MAPPED || where == MAPPED_AND_DROPPED; }

/* --- a POSIX host ---------------------------------------------------------------------- */

typedef struct mapping {
  int fd;
  uint8_t *data;
  size_t bytes;
} mapping;

static mapping map_file(const char *path) {
  mapping m = {.fd = open(path, O_RDONLY)};
  struct stat st;
  assert_true(m.fd >= 0);
  assert_int_equal(fstat(m.fd, &st), 0);
  m.bytes = (size_t)st.st_size;
  /* whoever writes to it dies */
  m.data = mmap(NULL, m.bytes, PROT_READ, MAP_SHARED, m.fd, 0);
  assert_ptr_not_equal(m.data, MAP_FAILED);
  return m;
}

static void unmap_file(mapping *m) {
  assert_int_equal(munmap(m->data, m->bytes), 0);
  close(m->fd);
}

/* As the system does when memory gets short. */
static void drop_pages(const mapping *m) {
  assert_int_equal(madvise(m->data, m->bytes, MADV_DONTNEED), 0);
  posix_fadvise(m->fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* One figure in kB of the mapping that holds this address; -1 where the system does not tell. */
static long smaps(const uint8_t *address, const char *name) {
  FILE *file = fopen("/proc/self/smaps", "r");
  if (!file) return -1;
  char line[512];
  bool inside = false;
  long found = -1;
  while (found < 0 && fgets(line, sizeof line, file)) {
    unsigned long from, to;
    if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
      inside = (uintptr_t)address >= from && (uintptr_t)address < to;
    else if (inside && !strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
      found = atol(line + strlen(name) + 1);
  }
  fclose(file);
  return found;
}

static void read_at(const mapping *m, void *to, size_t bytes, uint64_t offset) {
  assert_int_equal(pread(m->fd, to, bytes, (off_t)offset), (ssize_t)bytes);
}

static lnl_status read_header(lnl_engine *e, const mapping *m) {
  LNL_TRY(lnl_header_begin(e, 0, m->bytes));
  for (size_t at = 0; at < m->bytes;) {
    size_t bytes = m->bytes - at < 65536 ? m->bytes - at : 65536;
    uint8_t *to = lnl_header_reserve(e, bytes);
    assert_non_null(to);
    read_at(m, to, bytes, at);
    at += bytes;
    lnl_status status = lnl_header_push(e, bytes);
    if (status != LNL_NEED_BYTES) return status;
  }
  return lnl_header_finish(e);
}

static lnl_status feed(lnl_engine *e, const mapping *m) {
  const lnl_need *need = lnl_get_need(e);
  read_at(m, need->pointer, need->bytes, need->offset);
  return lnl_load_fed(e, need->bytes);
}

static lnl_engine *open_model(const mapping *m, residency where, lnl_plan_options options) {
  lnl_host host = tiny_host();
  host.kind = HOST_NATIVE;
  host.can_map = is_mapped(where);
  host.sync_read = true;
  lnl_engine *e = lnl_open(&host);
  if (read_header(e, m) != LNL_OK) fail_msg("%s", lnl_get_error(e)->message);
  if (is_mapped(where)) assert_int_equal(lnl_map_shard(e, 0, m->data, m->bytes), LNL_OK);
  options.hold = WISH_STORED; /* of one form, so that only the domain differs */
  lnl_status status = lnl_plan_for(e, &options);
  if (status == LNL_OK && lnl_get_budget(e)->fits) status = lnl_bind(e);
  if (status != LNL_OK) fail_msg("%s", lnl_get_error(e)->message);
  return e;
}

static void load(lnl_engine *e, const mapping *m) {
  lnl_status status;
  while ((status = lnl_load_next(e)) == LNL_NEED_BYTES) assert_int_equal(feed(e, m), LNL_OK);
  assert_int_equal(status, LNL_OK);
}

static void evaluate(lnl_engine *e, const mapping *m) {
  lnl_status status;
  while ((status = lnl_eval(e)) == LNL_NEED_BYTES || status == LNL_MORE)
    if (status == LNL_NEED_BYTES) assert_int_equal(feed(e, m), LNL_OK);
  assert_int_equal(status, LNL_OK);
}

/* The logits of the prompt's end and of each token after it; malloc. */
static float *logits_of(lnl_engine *e, const mapping *m, residency where, uint32_t *count) {
  const uint32_t n_vocab = lnl_get_info(e).n_vocab;
  float *all = malloc((1 + DECODED) * n_vocab * sizeof *all);
  assert_int_equal(lnl_prompt(e, prompt, PROMPT, false), 0);
  for (uint32_t i = 0; i <= DECODED; i++) {
    evaluate(e, m);
    uint32_t rows;
    const float *logits = lnl_logits(e, &rows);
    memcpy(all + i * n_vocab, logits + (rows - 1) * n_vocab, n_vocab * sizeof *all);
    assert_true(lnl_sample(e) >= 0);
    if (where == MAPPED_AND_DROPPED) drop_pages(m);
  }
  *count = (1 + DECODED) * n_vocab;
  return all;
}

/* --- what it must be -------------------------------------------------------------------------- */

typedef struct heap_use {
  uint64_t weights, live_bytes;
} heap_use;

/* A budget of which a good part of the weights has no room, and the smallest window. */
static lnl_plan_options tight_options(const mapping *m) {
  lnl_engine *e = open_model(m, IN_HEAP, (lnl_plan_options){0});
  const lnl_memory all = lnl_get_budget(e)->planned;
  lnl_close(e);
  return (lnl_plan_options){.stream = true, .window_bytes = 1, .budget_bytes = all.total - all.weights / 3};
}

static float *run(const char *path, residency where, uint32_t *count, heap_use *use) {
  mapping m = map_file(path);
  const uint64_t before = mem_get_stats().live_bytes;
  const lnl_plan_options options = where == STREAMED ? tight_options(&m) : (lnl_plan_options){0};
  lnl_engine *e = open_model(&m, where, options);
  load(e, &m);
  float *all = logits_of(e, &m, where, count);
  const lnl_memory planned = lnl_get_budget(e)->planned, measured = lnl_measure(e);
  assert_int_equal(measured.weights, planned.weights);
  assert_int_equal(measured.total, planned.total);
  *use = (heap_use){planned.weights, mem_get_stats().live_bytes - before};

  uint64_t mapped = 0, streamed = 0;
  for (uint32_t i = 0; i < e->model.weight_count; i++) {
    const lnl_weight *w = &e->model.weights[i];
    if (w->place.domain == DOMAIN_STREAMED) streamed += w->place.stored_bytes;
    if (w->place.domain != DOMAIN_MAPPED) continue;
    mapped += w->place.stored_bytes;
    assert_int_equal(w->place.resident_bytes, 0);
    assert_ptr_equal(w->data, m.data + w->stored->offset);
  }
  assert_int_equal(mapped > 0, is_mapped(where));
  assert_int_equal(streamed > 0, where == STREAMED);
  if (where == STREAMED) {
    assert_true(measured.total <= options.budget_bytes);
    assert_true(lnl_get_info(e).streamed_bytes > streamed); /* read again and again */
  }
  if (is_mapped(where) && smaps(m.data, "Rss") >= 0) {
    /* clean pages of the file, which the system may drop at any time */
    assert_int_equal(smaps(m.data, "Anonymous"), 0);
    assert_int_equal(smaps(m.data, "Private_Dirty"), 0);
    assert_int_equal(smaps(m.data, "Swap"), 0);
    if (where == MAPPED) assert_true(smaps(m.data, "Rss") * 1024 + 65536 > (long)mapped);
    drop_pages(&m);
    assert_int_equal(smaps(m.data, "Rss"), 0);
  }
  lnl_close(e);
  assert_int_equal(mem_get_stats().live_bytes, before);
  unmap_file(&m);
  return all;
}

static void check_file(const char *path) {
  uint32_t count, other;
  heap_use heap, mapped;
  float *want = run(path, IN_HEAP, &count, &heap);
  for (uint32_t i = 0; i < count; i++) assert_true(want[i] - want[i] == 0);
  for (residency where = MAPPED; where <= STREAMED; where++) {
    float *got = run(path, where, &other, &mapped);
    assert_int_equal(other, count);
    assert_memory_equal(got, want, count * sizeof *want);
    free(got);
    if (where == STREAMED) continue;
    /* the heap holds norms and biases, and is smaller by all else */
    assert_true(mapped.weights < heap.weights / 10);
    assert_true(mapped.live_bytes < heap.live_bytes - (heap.weights - mapped.weights) + 4096);
  }
  free(want);
}

static void write_temporary(const tiny_config *c, char path[64]) {
  strcpy(path, P_tmpdir "/lineal-mapped-XXXXXX");
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  tiny_file file = tiny_write(c);
  assert_int_equal(write(fd, file.data, file.bytes), (ssize_t)file.bytes);
  assert_int_equal(fsync(fd), 0); /* a dirty page is not dropped */
  close(fd);
  free(file.data);
}

static void test_mapped_is_the_heap_to_the_bit(void **state) {
  (void)state;
  static const uint32_t types[] = {0 /* F32 */, 2 /* Q4_0 */, 8 /* Q8_0 */, 12 /* Q4_K */, 14 /* Q6_K */};
  for (uint32_t i = 0; i < sizeof types / sizeof *types; i++) {
    tiny_config c = tiny_default();
    c.matrix_type = types[i];
    c.d_model = c.d_ff = 256;
    c.n_head = c.n_kv_head = 8;
    c.d_head = 32;
    c.vector_type = i % 2;
    char path[64];
    write_temporary(&c, path);
    check_file(path);
    unlink(path);
  }
}

static void test_the_bundled_model(void **state) {
  (void)state;
  check_file(LNL_REPO_DIR "/web/models/kjv-2.6m-Q4_K_M.gguf");
}

/* A budget that holds the heap's share only is enough for a mapped model. */
static void test_a_budget_is_of_the_heap(void **state) {
  (void)state;
  mapping m = map_file(LNL_REPO_DIR "/web/models/kjv-2.6m-Q4_K_M.gguf");
  lnl_engine *e = open_model(&m, MAPPED, (lnl_plan_options){0});
  const uint64_t needed = lnl_get_budget(e)->planned.total;
  lnl_close(e);
  const lnl_plan_options options = {.budget_bytes = needed};
  e = open_model(&m, MAPPED, options);
  assert_true(lnl_get_budget(e)->fits);
  load(e, &m);
  uint32_t count;
  free(logits_of(e, &m, MAPPED, &count));
  assert_true(lnl_measure(e).total <= needed);
  lnl_close(e);
  e = open_model(&m, IN_HEAP, options);
  assert_false(lnl_get_budget(e)->fits);
  lnl_close(e);
  unmap_file(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mapped_is_the_heap_to_the_bit),
      cmocka_unit_test(test_the_bundled_model),
      cmocka_unit_test(test_a_budget_is_of_the_heap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
