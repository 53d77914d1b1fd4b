#include "pool.h"

/* Three ways to wait for a word of memory to change: wasm with threads, a
 * native build (tests), and one thread, which never waits. */
#if defined(__wasm_atomics__)
#define POOL_SHARED 1
static int32_t wait32(int32_t *word, int32_t seen, int64_t nanoseconds) {
  return __builtin_wasm_memory_atomic_wait32(word, seen, nanoseconds);
}
/* The baseline compiler of Node 20 loses local variables at this instruction.
 * Through a pointer that nobody sees through (wasm-opt inlines as well) it
 * stays in a function that has none to lose. */
static int32_t (*volatile const wait32_alone)(int32_t *, int32_t, int64_t) = wait32;
static bool wait_for_change(uint32_t *word, uint32_t seen, int64_t nanoseconds) {
  return wait32_alone((int32_t *)word, (int32_t)seen, nanoseconds) != 2;
}
static void wake_all(uint32_t *word) { __builtin_wasm_memory_atomic_notify((int32_t *)word, UINT32_MAX); }
#elif !defined(__wasm__)
#define POOL_SHARED 1
#include <threads.h>
static bool wait_for_change(uint32_t *word, uint32_t seen, int64_t nanoseconds) {
  const struct timespec nap = {.tv_nsec = 20000};
  for (int64_t slept = 0; slept < nanoseconds; slept += nap.tv_nsec) {
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen) return true;
    thrd_sleep(&nap, NULL);
  }
  return false;
}
static void wake_all(uint32_t *word) { (void)word; }
#else
#define POOL_SHARED 0
static bool wait_for_change(uint32_t *word, uint32_t seen, int64_t nanoseconds) {
  (void)word, (void)seen, (void)nanoseconds;
  return false;
}
static void wake_all(uint32_t *word) { (void)word; }
#endif

/* Spinning pays while the others are still at work on the same step; fewer
 * rounds are no better than sleeping at once, and endless spinning collapses
 * when another process takes the core. */
enum { SPIN_ROUNDS = 100000 };
/* A thread that has not come after this long will not come: a step takes
 * milliseconds, and a suspended page stops every thread alike. */
static const int64_t one_second = 1000000000;
enum { LOST_AFTER_SECONDS = 30 };

bool pool_can_share(void) { return POOL_SHARED; }

void pool_init(lnl_pool *pool, uint32_t thread_count) {
  LNL_ASSERT(thread_count >= 1 && thread_count <= POOL_MAX_THREADS);
  *pool = (lnl_pool){.thread_count = POOL_SHARED ? thread_count : 1};
}

uint64_t pool_thread_bytes(void) {
#if defined(__wasm_atomics__)
  return POOL_STACK_BYTES + align_up(__builtin_wasm_tls_size(), 64);
#else
  return 0; /* the system gives its threads their stacks */
#endif
}

void pool_use_one(lnl_pool *pool) {
  pool_stop(pool); /* those that come late find nothing to do */
  pool->thread_count = 1;
  __atomic_store_n(&pool->lost, 0, __ATOMIC_RELEASE);
}

static uint32_t load(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* Waits until *word is no longer `seen`. `seconds` 0: for ever. */
static bool await_change(uint32_t *word, uint32_t seen, uint32_t seconds, const uint32_t *give_up) {
  for (uint32_t i = 0; i < SPIN_ROUNDS; i++) {
    if (load(word) != seen) return true;
  }
  for (uint32_t waited = 0; load(word) == seen;) {
    if (load(give_up)) return false;
    if (!wait_for_change(word, seen, one_second) && seconds && ++waited >= seconds) return false;
  }
  return true;
}

bool pool_barrier(lnl_pool *pool) {
  if (pool->thread_count == 1) return true;
  uint32_t generation = load(&pool->generation);
  if (__atomic_add_fetch(&pool->arrived, 1, __ATOMIC_ACQ_REL) == pool->thread_count) {
    __atomic_store_n(&pool->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->generation, generation + 1, __ATOMIC_RELEASE);
    wake_all(&pool->generation);
  } else if (!await_change(&pool->generation, generation, LOST_AFTER_SECONDS, &pool->lost)) {
    pool_report_lost(pool);
  }
  return !load(&pool->lost);
}

void pool_start(lnl_pool *pool, pool_job job, void *context) {
  pool->job = job;
  pool->context = context;
  if (pool->thread_count == 1 || load(&pool->lost)) return;
  __atomic_add_fetch(&pool->job_number, 1, __ATOMIC_RELEASE);
  wake_all(&pool->job_number);
}

/* The others do not wait for the caller, who may be reading from a slow source:
 * they say that they are done, and wait for the next job, for ever. */
lnl_status pool_finish(lnl_pool *pool) {
  if (load(&pool->lost)) return LNL_THREAD_LOST;
  pool->job(pool->context, 0);
  for (uint32_t seen; (seen = load(&pool->finished)) + 1 < pool->thread_count;) {
    if (await_change(&pool->finished, seen, LOST_AFTER_SECONDS, &pool->lost)) continue;
    pool_report_lost(pool);
    return LNL_THREAD_LOST;
  }
  __atomic_store_n(&pool->finished, 0, __ATOMIC_RELAXED);
  return load(&pool->lost) ? LNL_THREAD_LOST : LNL_OK;
}

lnl_status pool_run(lnl_pool *pool, pool_job job, void *context) {
  pool_start(pool, job, context);
  return pool_finish(pool);
}

void pool_thread_main(lnl_pool *pool, uint32_t thread) {
  for (uint32_t done = 0; await_change(&pool->job_number, done, 0, &pool->stopping);) {
    if (load(&pool->stopping)) return;
    done++;
    pool->job(pool->context, thread);
    __atomic_add_fetch(&pool->finished, 1, __ATOMIC_RELEASE);
    wake_all(&pool->finished);
    if (load(&pool->lost)) return;
  }
}

void pool_report_lost(lnl_pool *pool) {
  __atomic_store_n(&pool->lost, 1, __ATOMIC_RELEASE);
  wake_all(&pool->generation);
  wake_all(&pool->finished);
}

void pool_stop(lnl_pool *pool) {
  __atomic_store_n(&pool->stopping, 1, __ATOMIC_RELEASE);
  __atomic_add_fetch(&pool->job_number, 1, __ATOMIC_RELEASE);
  wake_all(&pool->job_number);
}

pool_range pool_split(uint32_t n, uint32_t unit, uint32_t thread, uint32_t thread_count) {
  uint64_t units = ((uint64_t)n + unit - 1) / unit;
  uint64_t begin = units * thread / thread_count * unit, end = units * (thread + 1) / thread_count * unit;
  return (pool_range){(uint32_t)u64_min(begin, n), (uint32_t)u64_min(end, n)};
}
