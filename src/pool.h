/* Threads that run one job together. The caller is thread 0; the others are
 * started by the host (a worker each) and wait inside pool_thread_main. A
 * module without shared memory has the same interface with one thread. */
#ifndef LNL_POOL_H
#define LNL_POOL_H

#include "base.h"

enum { POOL_MAX_THREADS = 16 };

/* One job: run by every thread of the pool, with its number from 0. */
typedef void (*pool_job)(void *context, uint32_t thread);

/* All fields but thread_count are changed atomically. */
typedef struct lnl_pool {
  uint32_t thread_count; /* the caller included; 1: no other thread is used */
  uint32_t job_number;   /* rises with each job: the others wait for it */
  uint32_t arrived;      /* at the present barrier */
  uint32_t generation;   /* rises with each barrier passed */
  uint32_t finished;     /* others that are done with the present job */
  uint32_t lost;         /* a thread died or did not come: the pool is useless */
  uint32_t stopping;
  pool_job job;
  void *context;
} lnl_pool;

/* Whether this build can run more than one thread. */
bool pool_can_share(void);

/* thread_count 1..POOL_MAX_THREADS. */
void pool_init(lnl_pool *pool, uint32_t thread_count);

/* Runs the job on all threads and returns when all are done. Nothing that the
 * others read may change meanwhile. LNL_OK, or LNL_THREAD_LOST when one did not
 * come to a barrier in time: never a hang. Allocates nothing. */
lnl_status pool_run(lnl_pool *pool, pool_job job, void *context);
/* The same in two halves: between them the caller does something else (reads a
 * file), however long that takes, while the others have begun; in pool_finish
 * it joins them. Each pool_start has its pool_finish, THREAD_LOST or not. */
void pool_start(lnl_pool *pool, pool_job job, void *context);
lnl_status pool_finish(lnl_pool *pool);

/* Inside a job: waits until every thread is here. Spins first (0.3 us when
 * nobody else wants the core), then sleeps, so that idle threads cost nothing.
 * False when a thread was lost: the job must return at once. */
bool pool_barrier(lnl_pool *pool);

/* The body of thread 1.. thread_count - 1: serves jobs until pool_stop. */
void pool_thread_main(lnl_pool *pool, uint32_t thread);

/* What each thread but the caller needs of the engine's memory: in wasm its
 * stack of POOL_STACK_BYTES and, above it, its thread-local variables. */
enum { POOL_STACK_BYTES = 128 << 10 };
uint64_t pool_thread_bytes(void);

/* The other threads could not be started, or are gone for good: the caller
 * computes alone from now on. Not during pool_run. */
void pool_use_one(lnl_pool *pool);

/* The host saw a thread die. May be called from any thread. */
void pool_report_lost(lnl_pool *pool);
/* Lets the threads return from pool_thread_main. */
void pool_stop(lnl_pool *pool);

/* The part of 0..n-1 that falls to a thread, in multiples of `unit`. */
typedef struct pool_range {
  uint32_t begin, end;
} pool_range;
pool_range pool_split(uint32_t n, uint32_t unit, uint32_t thread, uint32_t thread_count);

#endif
