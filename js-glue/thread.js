// A thread of an engine beyond its first: an instance over the same memory,
// which computes until the engine is closed. Runs as a browser's module worker
// and in Node's worker_threads. What it needs comes through a port whose other
// end is at the engine, not through the page that started it (threads.js).

/**
 * @typedef {object} ThreadStart
 * @property {WebAssembly.Module} module
 * @property {WebAssembly.Memory} memory
 * @property {number | bigint} engine this and the next two as the module knows them
 * @property {number | bigint} stack where it begins; it grows down
 * @property {number | bigint} tls where the thread-local variables go
 * @property {number} index of this thread, from 1
 */

/**
 * @param {ThreadStart} start
 * @param {(message: { ready: boolean }) => void} post
 */
function compute({ module, memory, engine, index, stack, tls }, post) {
  /** @type {any} */ let core;
  try {
    core = new WebAssembly.Instance(module, { env: { memory } }).exports;
    core.__stack_pointer.value = stack;
    core.__wasm_init_tls(tls);
    post({ ready: true });
    core.lnl_abi_thread_main(engine, index); // returns when the engine is closed
  } catch {
    // The others learn it through the memory: they may be waiting, and then hear no message.
    core?.lnl_abi_thread_lost(engine);
  }
  post({ ready: false });
}

/** @param {MessagePort} port */
function serve(port) {
  port.onmessage = ({ data }) => {
    compute(data, (message) => port.postMessage(message));
    port.close(); // Node's thread ends with it
  };
}

const scope = /** @type {any} */ (globalThis);
if (typeof scope.WorkerGlobalScope === 'function' && scope instanceof scope.WorkerGlobalScope) {
  // At once, not after an await: the message may be waiting.
  scope.addEventListener('message', (/** @type {MessageEvent} */ event) => serve(event.data));
} else {
  import('node:worker_threads').then(({ parentPort }) => {
    const parent = /** @type {import('node:worker_threads').MessagePort} */ (parentPort);
    parent.once('message', serve);
  });
}
