/* The allocator. mem.c is compiled in a second time here, over a fake linear
 * memory and under other names, so that the heap of the wasm build is tested
 * natively beside the native one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/mem.h" /* the native heap, from the core library */

#define mem_alloc            heap_alloc
#define mem_resize           heap_resize
#define mem_free             heap_free
#define mem_get_stats        heap_get_stats
#define mem_reset_high_water heap_reset_high_water
#define mem_plan_host_bytes  heap_plan_host_bytes
#define mem_headroom_bytes   heap_headroom_bytes
#define mem_fail_at          heap_fail_at
#define mem_ledger           heap_ledger
#define arena_take           heap_arena_take
#define arena_bind           heap_arena_bind
#define arena_seal           heap_arena_seal
#define arena_reset          heap_arena_reset
#define arena_free           heap_arena_free
#define MEM_TEST_PAGES       1
#include "src/mem.c"

/* --- a fake linear memory: 4 GiB of address space, granted page by page --------- */

static uintptr_t fake_base;
static uint64_t fake_pages, fake_ceiling_pages, fake_asks;

static uintptr_t memory_heap_base(void) { return fake_base + 40; } /* static data end anywhere */
/* "addresses" are real ones here, so memory 0 .. end is base .. base + 4 GiB */
static uint64_t memory_pages(void) { return fake_base / PAGE_BYTES + fake_pages; }
static uint64_t memory_limit(void) { return fake_base + (UINT64_C(1) << 32); }
static bool memory_grow(uint64_t pages) {
  fake_asks++;
  if (fake_pages + pages > fake_ceiling_pages) return false;
  fake_pages += pages;
  assert_int_equal(mprotect((void *)fake_base, fake_pages * PAGE_BYTES, PROT_READ | PROT_WRITE), 0);
  return true;
}
static uint64_t used_host_bytes(void) { return heap_get_stats().host_bytes - fake_base; }

static int start_heap(void **state) {
  (void)state;
  uint64_t span = (UINT64_C(1) << 32) + 2 * PAGE_BYTES;
  uint8_t *space = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return -1;
  fake_base = align_up((uintptr_t)space, PAGE_BYTES);
  fake_pages = 0;
  fake_ceiling_pages = 65536;
  memory_grow(2);
  stats = (mem_stats){0};
  heap_base = heap_top = last_bytes = fail_countdown = 0;
#ifdef LNL_DEBUG
  youngest = NULL;
  last_number = 0;
#endif
  *state = space;
  return 0;
}
static int stop_heap(void **state) {
  munmap(*state, (UINT64_C(1) << 32) + 2 * PAGE_BYTES);
  return 0;
}

/* The blocks tile [base, top) without gaps, no two holes touch, none is last. */
static void check_heap(void) {
  uint64_t at = heap_base, prev = 0, live_blocks = 0, live_bytes = 0;
  bool prev_free = false;
  while (at < heap_top) {
    block *b = block_at(at);
    assert_true(b->mark == BLOCK_FREE || b->mark == BLOCK_USED);
    assert_true(b->bytes >= 64 && b->bytes % 64 == 0 && at % 64 == 0);
    assert_int_equal(b->prev_bytes, prev);
    assert_false(prev_free && b->mark == BLOCK_FREE);
    prev_free = b->mark == BLOCK_FREE;
    if (!prev_free) {
      assert_true(b->asked_bytes + 64 <= b->bytes);
      live_blocks++;
      live_bytes += b->asked_bytes;
    }
    prev = b->bytes;
    at += b->bytes;
  }
  assert_true(at == heap_top);
  assert_false(prev_free);
  assert_int_equal(last_bytes, prev);
  assert_true(heap_top <= (uint64_t)memory_pages() * PAGE_BYTES);
  assert_int_equal(heap_get_stats().live_blocks, live_blocks);
  assert_int_equal(heap_get_stats().live_bytes, live_bytes);
  assert_true(heap_get_stats().high_water_bytes >= live_bytes);
#ifdef LNL_DEBUG
  static mem_entry entries[1024];
  assert_int_equal(heap_ledger(entries, 1024), live_blocks);
  for (uint64_t i = 0; i < live_blocks; i++) {
    const block *b = block_at((uint64_t)(uintptr_t)entries[i].block - 64);
    assert_true(b->mark == BLOCK_USED && b->asked_bytes == entries[i].bytes);
    live_bytes -= entries[i].bytes;
    if (i > 0) assert_true(entries[i].number < entries[i - 1].number); /* so each once */
  }
  assert_int_equal(live_bytes, 0);
#endif
}

static uint32_t random_u32(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*seed >> 33);
}

/* --- block heap -------------------------------------------------------------------- */

static void random_operations_keep_contents(void **state) {
  (void)state;
  enum { SLOTS = 40, ROUNDS = 30000 };
  struct {
    uint8_t *data;
    size_t bytes;
    uint8_t fill;
  } slots[SLOTS] = {{0}};
  uint64_t seed = 1;
  fake_ceiling_pages = 90; /* some allocations fail, and must leave all as it was */
  uint64_t failures = 0, in_place = 0, moved = 0;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    size_t i = random_u32(&seed) % SLOTS;
    uint32_t kind = random_u32(&seed) % 4;
    size_t bytes = random_u32(&seed) % 8 == 0 ? random_u32(&seed) % 1500000 : random_u32(&seed) % 3000;
    for (size_t k = 0; k < slots[i].bytes; k += 1 + slots[i].bytes / 97)
      assert_int_equal(slots[i].data[k], slots[i].fill);
    if (slots[i].bytes > 0) assert_int_equal(slots[i].data[slots[i].bytes - 1], slots[i].fill);
    if (slots[i].data && kind == 0) {
      heap_free(slots[i].data);
      slots[i].data = NULL;
      slots[i].bytes = 0;
    } else {
      size_t kept = slots[i].bytes < bytes ? slots[i].bytes : bytes;
      uint8_t *old = slots[i].data, *data = heap_resize(old, bytes);
      if (!data) {
        failures++;
      } else {
        if (old) *(data == old ? &in_place : &moved) += 1;
        assert_int_equal((uintptr_t)data % 64, 0);
        for (size_t k = 0; k < kept; k += 1 + kept / 97) assert_int_equal(data[k], slots[i].fill);
        slots[i].data = data;
        slots[i].bytes = bytes;
        slots[i].fill = (uint8_t)random_u32(&seed);
        memset(data, slots[i].fill, bytes);
      }
    }
    if (round % 16 == 0) check_heap();
  }
  assert_true(failures > 10 && in_place > 1000 && moved > 1000);
  for (size_t i = 0; i < SLOTS; i++) heap_free(slots[i].data);
  check_heap();
  assert_true(heap_top == heap_base); /* all joined and given back to the top */
  assert_int_equal(heap_get_stats().live_bytes, 0);
}

static void the_plan_is_exact(void **state) {
  (void)state;
  uint64_t seed = 7;
  void *held[400];
  size_t held_count = 0;
  for (uint32_t round = 0; round < 200; round++) {
    /* some holes */
    for (uint32_t i = 0; i < 6 && held_count > 0; i++) {
      size_t victim = random_u32(&seed) % held_count;
      heap_free(held[victim]);
      held[victim] = held[--held_count];
    }
    uint64_t sizes[12];
    size_t count = 1 + random_u32(&seed) % 12;
    if (held_count + count > 400) count = 400 - held_count;
    for (size_t i = 0; i < count; i++) {
      sizes[i] = random_u32(&seed) % 5 == 0 ? 0 : random_u32(&seed) % (random_u32(&seed) % 3 ? 4000 : 300000);
    }
    uint64_t before = heap_get_stats().host_bytes;
    uint64_t calls = heap_get_stats().alloc_calls;
    uint64_t planned = heap_plan_host_bytes(sizes, count);
    assert_true(heap_get_stats().host_bytes == before && heap_get_stats().alloc_calls == calls);
    check_heap();
    for (size_t i = 0; i < count; i++) {
      if (sizes[i] == 0) continue;
      held[held_count] = heap_alloc((size_t)sizes[i]);
      assert_non_null(held[held_count]);
      held_count++;
    }
    assert_true(planned == heap_get_stats().host_bytes);
  }
  while (held_count > 0) heap_free(held[--held_count]);
  assert_true(heap_top == heap_base);
}

static void grows_and_shrinks_in_place(void **state) {
  (void)state;
  uint8_t *a = heap_alloc(1000), *b = heap_alloc(1000);
  /* the last block grows where it is, pages at a time */
  uint8_t *c = heap_resize(b, 5u << 20);
  assert_ptr_equal(b, c);
  assert_int_equal(used_host_bytes(), align_up((uintptr_t)b - fake_base + (5u << 20), PAGE_BYTES));
  /* shrinking gives room that the next block takes, without growth */
  uint64_t grows = heap_get_stats().grow_calls;
  assert_ptr_equal(heap_resize(b, 100), b);
  uint8_t *d = heap_alloc(4u << 20);
  assert_ptr_equal(d, b + 128 + 64);
  assert_int_equal(heap_get_stats().grow_calls, grows);
  /* a hole above is taken in */
  heap_free(b);
  assert_ptr_equal(heap_resize(a, 1100), a);
  /* too large for it: moved, and the old place is reused */
  uint8_t *moved = heap_resize(a, 5000);
  assert_ptr_not_equal(moved, a);
  assert_ptr_equal(heap_alloc(500), a);
  check_heap();
  /* nothing of this was counted as held twice for long */
  assert_int_equal(heap_get_stats().live_bytes, 500 + 5000 + (4u << 20));
}

static void blocks_pass_2_gib_and_stop_at_4(void **state) {
  (void)state;
  size_t large = (size_t)2200 << 20;
  uint8_t *a = heap_alloc(large);
  assert_non_null(a);
  a[0] = 1;
  a[large - 1] = 2;
  uint8_t *b = heap_alloc((size_t)1 << 30); /* lies above 2 GiB */
  assert_non_null(b);
  assert_true((uintptr_t)b - fake_base > (UINT64_C(1) << 31));
  memset(b, 3, 4096);
  assert_int_equal(a[large - 1], 2);
  /* what would pass 4 GiB is refused without asking */
  uint64_t grows = heap_get_stats().grow_calls, asks = fake_asks;
  assert_null(heap_alloc((size_t)1 << 30));
  assert_null(heap_alloc(SIZE_MAX));
  assert_null(heap_alloc(SIZE_MAX - 63));
  assert_null(heap_alloc(SIZE_MAX - 127));
  assert_null(heap_resize(b, (size_t)2 << 30));
  assert_null(heap_resize(b, SIZE_MAX - 64));
  assert_int_equal(heap_get_stats().grow_calls, grows);
  assert_int_equal(fake_asks, asks);
  assert_int_equal(b[4095], 3);
  /* to the very end of the address space, and the last byte works */
  uint64_t left = memory_limit() - heap_top - 64;
  uint8_t *rest = heap_alloc((size_t)left);
  assert_non_null(rest);
  rest[left - 1] = 9;
  assert_int_equal(used_host_bytes(), UINT64_C(1) << 32);
  assert_null(heap_alloc(0));
  heap_free(a);
  uint64_t sizes[] = {large / 2, large / 4};
  assert_true(heap_plan_host_bytes(sizes, 2) == heap_get_stats().host_bytes);
  assert_ptr_equal(heap_alloc(large / 2), a);
  check_heap();
  uint64_t absurd[] = {UINT64_MAX, UINT64_MAX, 5};
  assert_true(heap_plan_host_bytes(absurd, 3) > (UINT64_C(1) << 32));
}

static void a_host_that_refuses_is_survived(void **state) {
  (void)state;
  fake_ceiling_pages = 4;
  uint8_t *a = heap_alloc(100000);
  assert_non_null(a);
  memset(a, 5, 100000);
  assert_null(heap_alloc(1u << 20));
  assert_null(heap_resize(a, 1u << 20));
  assert_int_equal(a[99999], 5);
  assert_int_equal(heap_get_stats().live_blocks, 1);
  fake_ceiling_pages = 100;
  a = heap_resize(a, 1u << 20);
  assert_non_null(a);
  assert_int_equal(a[99999], 5);
  check_heap();
}

/* --- traps --------------------------------------------------------------------------- */

static sigjmp_buf trap_return;
static void on_trap(int signal_number) { siglongjmp(trap_return, signal_number); }

/* Whether body stops at an assertion. */
static bool traps(void (*body)(void *), void *argument) {
  struct sigaction action = {.sa_handler = on_trap}, old_ill, old_trap;
  sigaction(SIGILL, &action, &old_ill);
  sigaction(SIGTRAP, &action, &old_trap);
  bool trapped = sigsetjmp(trap_return, 1) != 0;
  if (!trapped) body(argument);
  sigaction(SIGILL, &old_ill, NULL);
  sigaction(SIGTRAP, &old_trap, NULL);
  return trapped;
}
static void free_it(void *data) { heap_free(data); }
static void take_64(void *arena) { heap_arena_take(arena, 64); }
static void seal_it(void *arena) { heap_arena_seal(arena); }
static void bind_it(void *arena) { (void)heap_arena_bind(arena); }

static void a_wrong_free_traps(void **state) {
  (void)state;
  uint8_t *a = heap_alloc(100), *b = heap_alloc(100);
  heap_free(a);
  assert_true(traps(free_it, a));      /* twice */
  assert_true(traps(free_it, b + 8));  /* not a block */
  assert_true(traps(free_it, b + 64)); /* inside a block */
  heap_free(b);
}

/* --- both heaps --------------------------------------------------------------------- */

static void counts_what_it_does(void **state) {
  (void)state;
  void *a = heap_alloc(10), *b = heap_alloc(0);
  assert_non_null(b);
  assert_int_equal(heap_get_stats().alloc_calls, 2);
  assert_int_equal(heap_get_stats().live_blocks, 2);
  assert_int_equal(heap_get_stats().live_bytes, 10);
  a = heap_resize(a, 100);
  assert_int_equal(heap_get_stats().alloc_calls, 3);
  assert_int_equal(heap_get_stats().live_bytes, 100);
  heap_free(a);
  heap_free(b);
  heap_free(NULL);
  assert_int_equal(heap_get_stats().live_blocks, 0);
  assert_true(heap_get_stats().high_water_bytes >= 100);
  heap_reset_high_water();
  assert_int_equal(heap_get_stats().high_water_bytes, 0);

  heap_fail_at(2);
  a = heap_alloc(10);
  assert_non_null(a);
  assert_null(heap_resize(a, 20));
  a = heap_resize(a, 30); /* once only */
  assert_non_null(a);
  heap_fail_at(1);
  heap_fail_at(0);
  b = heap_alloc(1);
  assert_non_null(b);
  heap_free(a);
  heap_free(b);
}

#undef mem_alloc
#undef mem_resize
#undef mem_free
#undef mem_get_stats
#undef mem_reset_high_water
#undef mem_plan_host_bytes
#undef mem_headroom_bytes
#undef mem_fail_at
#undef mem_ledger

#ifdef LNL_DEBUG
static void the_ledger_names_what_is_live(void **state) {
  (void)state;
  mem_entry first, entries[3];
  assert_int_equal(mem_ledger(entries, 3), 0);
  void *a = mem_alloc(10), *b = mem_alloc(20), *c = mem_alloc(0);
  mem_free(b);
  assert_int_equal(mem_ledger(entries, 3), 2);
  assert_ptr_equal(entries[0].block, c);
  assert_ptr_equal(entries[1].block, a);
  assert_int_equal(entries[1].bytes, 10);
  assert_int_equal(entries[0].number, entries[1].number + 2);
  void *moved = mem_resize(a, 5000); /* keeps its number, and its place */
  assert_int_equal(mem_ledger(&first, 1), 2);
  assert_ptr_equal(first.block, c);
  mem_free(c);
  assert_int_equal(mem_ledger(&first, 1), 1);
  assert_ptr_equal(first.block, moved);
  assert_int_equal(first.bytes, 5000);
  assert_int_equal(first.number, entries[1].number);
  mem_free(moved);
  assert_int_equal(mem_ledger(NULL, 0), 0);
}
#endif

static void the_native_heap_does_the_same(void **state) {
  (void)state;
  mem_stats start = mem_get_stats();
  assert_int_equal(start.live_blocks, 0);
  uint8_t *a = mem_alloc(10);
  assert_int_equal((uintptr_t)a % 64, 0);
  memcpy(a, "123456789", 10);
  uint64_t sizes[] = {30, 0, 12};
  assert_int_equal(mem_plan_host_bytes(sizes, 3), 52);
  a = mem_resize(a, 1000);
  assert_int_equal((uintptr_t)a % 64, 0);
  assert_string_equal((char *)a, "123456789");
  a = mem_resize(a, 4);
  assert_memory_equal(a, "1234", 4);
  assert_int_equal(mem_get_stats().live_bytes, 4);
  assert_int_equal(mem_get_stats().host_bytes, 4);
  assert_int_equal(mem_get_stats().alloc_calls - start.alloc_calls, 3);
  assert_int_equal(mem_get_stats().high_water_bytes, 1010); /* both while it moved */
  mem_fail_at(1);
  assert_null(mem_resize(a, 100));
  assert_memory_equal(a, "1234", 4);
  mem_fail_at(1);
  assert_null(mem_alloc(1));
  assert_null(mem_alloc(SIZE_MAX));
  assert_null(mem_resize(a, SIZE_MAX - 100));
  void *empty = mem_alloc(0);
  assert_non_null(empty);
  mem_free(empty);
  mem_free(a);
  mem_free(NULL);
  assert_int_equal(mem_get_stats().live_blocks, 0);
  mem_reset_high_water();
  assert_int_equal(mem_get_stats().high_water_bytes, 0);
}

/* --- arenas --------------------------------------------------------------------------- */

static void an_arena_is_measured_bound_and_sealed(void **state) {
  (void)state;
  lnl_arena arena = {0};
  uint8_t *slots[3];
  static const uint64_t sizes[] = {1, 64, 1000};
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < 3; i++) {
      slots[i] = heap_arena_take(&arena, sizes[i]);
      assert_true(pass == 0 ? slots[i] == NULL : slots[i] != NULL);
    }
    assert_int_equal(arena.used_bytes, 64 + 64 + 1024);
    if (pass == 0) {
      assert_int_equal(heap_arena_bind(&arena), LNL_OK);
      assert_int_equal(arena.used_bytes, 0);
    }
  }
  assert_ptr_equal(slots[1], slots[0] + 64);
  assert_ptr_equal(slots[2], slots[1] + 64);
  assert_int_equal((uintptr_t)slots[0] % 64, 0);
  heap_arena_seal(&arena);
  assert_true(traps(take_64, &arena));
  assert_true(traps(bind_it, &arena));
  memset(slots[2], 1, 1000);
  heap_arena_reset(&arena);
#ifdef LNL_DEBUG
  assert_int_equal(slots[2][999], 0xff);
  memset(slots[2], 1, 1000); /* by somebody who kept the slot */
  heap_arena_reset(&arena);
  assert_int_equal(slots[2][999], 0xff);
#endif
  /* no room: refused, and the wish remembered */
  assert_non_null(heap_arena_take(&arena, 1152));
  assert_null(heap_arena_take(&arena, 10));
  assert_int_equal(arena.used_bytes, 1152);
  assert_int_equal(arena.high_bytes, 1216);
  heap_arena_reset(&arena);
  assert_int_equal(arena.high_bytes, 1216);
  assert_null(heap_arena_take(&arena, UINT64_MAX));
  assert_non_null(heap_arena_take(&arena, 64));
  assert_true(traps(seal_it, &arena)); /* less than was measured */
  heap_arena_free(&arena);
  assert_null(arena.base);
  assert_int_equal(heap_get_stats().live_blocks, 0);
}

static void an_arena_that_cannot_be_bound_says_so(void **state) {
  (void)state;
  lnl_arena arena = {0};
  heap_arena_take(&arena, UINT64_MAX);
  heap_arena_take(&arena, UINT64_MAX);
  assert_int_equal(heap_arena_bind(&arena), LNL_OUT_OF_MEMORY);
  assert_null(arena.base);
  heap_arena_free(&arena);
  heap_arena_take(&arena, 64);
  heap_fail_at(1);
  assert_int_equal(heap_arena_bind(&arena), LNL_OUT_OF_MEMORY);
  assert_int_equal(heap_arena_bind(&arena), LNL_OK);
  heap_arena_free(&arena);
  /* nothing asked for: still a bound arena */
  lnl_arena empty = {0};
  assert_int_equal(heap_arena_bind(&empty), LNL_OK);
  assert_non_null(empty.base);
  heap_arena_seal(&empty);
  heap_arena_free(&empty);
  assert_int_equal(heap_get_stats().live_blocks, 0);
}

#define HEAP_TEST(name) cmocka_unit_test_setup_teardown(name, start_heap, stop_heap)

int main(void) {
  const struct CMUnitTest tests[] = {
      HEAP_TEST(random_operations_keep_contents),
      HEAP_TEST(the_plan_is_exact),
      HEAP_TEST(grows_and_shrinks_in_place),
      HEAP_TEST(blocks_pass_2_gib_and_stop_at_4),
      HEAP_TEST(a_host_that_refuses_is_survived),
      HEAP_TEST(a_wrong_free_traps),
      HEAP_TEST(counts_what_it_does),
      HEAP_TEST(an_arena_is_measured_bound_and_sealed),
      HEAP_TEST(an_arena_that_cannot_be_bound_says_so),
      cmocka_unit_test(the_native_heap_does_the_same),
#ifdef LNL_DEBUG
      cmocka_unit_test(the_ledger_names_what_is_live),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
