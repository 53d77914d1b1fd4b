// What this machine can do, probed once, and which module it can run. The core
// senses nothing itself: these values are injected, and may be overridden.
import { LinealError, badArgument } from './errors.js';

// (module (func (param v128) (result v128)
//   local.get 0  i32x4.extadd_pairwise_i16x8_s))
const SIMD_PROBE = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 6, 1, 0x60, 1, 0x7b, 1, 0x7b, 3, 2, 1, 0, 10, 8, 1, 6, 0, 0x20, 0, 0xfd,
  0x7e, 0x0b,
]);
// (module (func (param v128 v128 v128) (result v128)
//   local.get 0  local.get 1  local.get 2  f32x4.relaxed_madd
//   local.get 1  local.get 2  i32x4.relaxed_dot_i8x16_i7x16_add_s))
const RELAXED_PROBE = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 8, 1, 0x60, 3, 0x7b, 0x7b, 0x7b, 1, 0x7b, 3, 2, 1, 0, 10, 20, 1, 18, 0,
  0x20, 0, 0x20, 1, 0x20, 2, 0xfd, 0x85, 2, 0x20, 1, 0x20, 2, 0xfd, 0x93, 2, 0x0b,
]);

// (module (func (export "f") (param i32 i32 i32) (result i32)
//   local.get 0  i8x16.splat  local.get 1  i8x16.splat  local.get 2  i32x4.splat
//   i32x4.relaxed_dot_i8x16_i7x16_add_s  i32x4.extract_lane 0))
const DOT_PROBE = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 8, 1, 0x60, 3, 0x7f, 0x7f, 0x7f, 1, 0x7f, 3, 2, 1, 0, 7, 5, 1, 1, 0x66,
  0, 0, 10, 22, 1, 20, 0, 0x20, 0, 0xfd, 0x0f, 0x20, 1, 0xfd, 0x0f, 0x20, 2, 0xfd, 0x11, 0xfd, 0x93, 2, 0xfd,
  0x1b, 0, 0x0b,
]);

// (module (table i64 1 1 funcref) (memory i64 1 1) (memory 1 1)): what the module with 64-bit addresses has
const WIDE_PROBE = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 4, 5, 1, 0x70, 5, 1, 1, 5, 7, 2, 5, 1, 1, 1, 1, 1,
]);
/** The module with threads and 64-bit addresses. */
export const WIDE_MODULE = 'relaxed-mt-64';
const GIB = 2 ** 30;

/** Whether this is Node (or a program that offers its file interface). */
export const isNode =
  typeof process === 'object' &&
  process !== null &&
  typeof process.versions?.node === 'string' &&
  !('type' in process && process.type === 'renderer');

/** Whether this is the main thread of a browser page. */
export const isPage = typeof document === 'object' && typeof window === 'object';

/**
 * Whether this thread may wait for others: a page's main thread and a service
 * worker may not. Where memory cannot be shared nobody waits, so it is a guess.
 */
function canWait() {
  if (typeof SharedArrayBuffer === 'undefined') return !isPage;
  try {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 0);
    return true;
  } catch {
    return false;
  }
}

/** Threads that the hardware runs at once. */
async function hardwareThreads() {
  if (!isNode) return globalThis.navigator?.hardwareConcurrency ?? 1;
  const os = await import('node:os');
  return os.availableParallelism?.() ?? os.cpus().length;
}
/** @type {Promise<number> | undefined} */
let coreCount;

/** @type {Promise<boolean> | undefined} */
let relaxed;

/** Whether the engine, as it is, takes relaxed SIMD and computes it rightly. */
export function relaxedSupported() {
  relaxed ??= (async () => WebAssembly.validate(RELAXED_PROBE) && dotWorks(0))();
  return relaxed;
}

/**
 * Node 20 has relaxed SIMD behind a flag that works inside the running process,
 * and a baseline compiler that adds the product twice where the register of the
 * accumulator may be overwritten; its optimising compiler is right. Both flags
 * hold for the whole process, so they are set only for who asks for 'relaxed'.
 */
async function relaxedForced() {
  if (await relaxedSupported()) return true;
  if (!isNode) return false;
  const v8 = await import('node:v8');
  if (!WebAssembly.validate(RELAXED_PROBE)) v8.setFlagsFromString('--experimental-wasm-relaxed-simd');
  v8.setFlagsFromString('--no-liftoff');
  relaxed = (async () => WebAssembly.validate(RELAXED_PROBE) && dotWorks(1))();
  return relaxed;
}

/**
 * Waits for work of V8's other threads. In Node a timer lives meanwhile: Node 20
 * can wait for ever at the end of an empty event loop, for a compiler that waits
 * for it (nodejs/node#54918).
 * @template T
 * @param {Promise<T>} work
 * @returns {Promise<T>}
 */
export async function held(work) {
  const timer = isNode ? setInterval(() => {}, 1000) : undefined;
  try {
    return await work;
  } finally {
    clearInterval(timer);
  }
}

/**
 * Whether the engine computes the dot product as specified, and not only accepts it.
 * @param {number} attempt makes other bytes of it: engines keep the code that they made for the same bytes
 */
async function dotWorks(attempt) {
  const { instance } = await held(WebAssembly.instantiate(new Uint8Array([...DOT_PROBE, 0, 2, 1, attempt])));
  return (
    /** @type {(a: number, b: number, acc: number) => number} */ (instance.exports.f)(-100, 100, 7) === -39993
  );
}

/** Whether the engine takes the module with 64-bit addresses. */
async function wideSupported() {
  if (!WebAssembly.validate(WIDE_PROBE) || !(await relaxedSupported())) return false;
  try {
    const limits = { initial: 1n, maximum: 1n, address: 'i64', shared: true };
    new WebAssembly.Memory(/** @type {any} */ (limits));
    return true;
  } catch {
    return false;
  }
}

/** What the machine has, as far as it tells; 0: it does not. */
export async function physicalBytes() {
  if (isNode) {
    const os = await import('node:os');
    const limit = process.constrainedMemory?.() ?? 0;
    return limit > 0 ? Math.min(limit, os.totalmem()) : os.totalmem();
  }
  // Rounded; 8 stands for more in browsers that say no larger number.
  const gib = /** @type {any} */ (globalThis.navigator)?.deviceMemory ?? 0;
  return gib < 8 ? gib * GIB : 0;
}

/** Whether there can be more than 32-bit addresses reach, and a module for it. */
async function hasMemory64() {
  const bytes = await physicalBytes();
  return (bytes === 0 || bytes > 4 * GIB) && wideSupported();
}

/**
 * Which build to run. 'auto' is never the one with 64-bit addresses: that follows from the plan.
 * @param {import('./options.js').ModuleName | 'auto'} [wish]
 * @returns {Promise<import('./options.js').ModuleName>}
 */
export async function chooseModule(wish = 'auto') {
  if (wish !== 'auto' && wish !== 'base' && wish !== 'relaxed' && wish !== WIDE_MODULE) {
    throw badArgument(`module is 'auto', 'base', 'relaxed' or '${WIDE_MODULE}', not '${String(wish)}'`);
  }
  if (typeof WebAssembly !== 'object' || !WebAssembly.validate(SIMD_PROBE)) {
    throw new LinealError('WASM_UNSUPPORTED', 'this engine has no WebAssembly SIMD');
  }
  if (wish === 'base') return 'base';
  if (wish === WIDE_MODULE) {
    if (await wideSupported()) return wish;
    throw new LinealError('WASM_UNSUPPORTED', 'this engine has no 64-bit memory (or no relaxed SIMD) for WebAssembly', {
      remedy: "use module: 'auto', or Node 24 or later, or a current Chromium or Firefox",
    });
  }
  if (await (wish === 'relaxed' ? relaxedForced() : relaxedSupported())) return 'relaxed';
  if (wish === 'relaxed') {
    throw new LinealError(
      'WASM_UNSUPPORTED',
      'this engine has no relaxed SIMD, and the module asked for needs it',
      {
        remedy: "use module: 'auto' or 'base'",
      },
    );
  }
  return 'base';
}

/**
 * Whether a module with threads would use more than one: the core decides how
 * many (host_choose_threads of src/host.c), and says why.
 * @param {import('./index.d.ts').HostCapabilities} host
 * @param {number} asked 0: the core chooses
 */
export function threadsPossible(host, asked) {
  return asked !== 1 && host.threads > 1 && host.isolated && host.canWait;
}

/**
 * @param {Partial<import('./index.d.ts').HostCapabilities>} [overrides] checked already
 * @param {{ syncRead?: boolean, rangeRead?: boolean }} [source] what the source at hand can do
 * @returns {Promise<import('./index.d.ts').HostCapabilities>}
 */
export async function probeCapabilities(overrides = {}, source = {}) {
  const kind = overrides.kind ?? (isNode ? 'node' : 'browser');
  const isolated =
    typeof SharedArrayBuffer !== 'undefined' &&
    (isNode || /** @type {any} */ (globalThis).crossOriginIsolated === true);
  /** @type {import('./index.d.ts').HostCapabilities} */
  const host = {
    kind,
    canMap: false,
    canGrow: true,
    memory64: (kind === 'browser' || kind === 'node') && (await hasMemory64()),
    syncRead: source.syncRead ?? false,
    rangeRead: source.rangeRead ?? true,
    isolated,
    canWait: canWait(),
    // What is not a browser or Node runs a module with one thread.
    threads: kind === 'browser' || kind === 'node' ? await (coreCount ??= hardwareThreads()) : 1,
    maxMemoryBytes: 0,
  };
  for (const [name, value] of Object.entries(overrides))
    if (value !== undefined) /** @type {any} */ (host)[name] = value;
  return host;
}
