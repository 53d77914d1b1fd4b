// Runs the read loop on some threads, in a page and in Node; the same file is
// the worker. Each thread reads its own part, all between two barriers.
const isNode = typeof process === 'object' && Boolean(process.versions?.node);
const threadsApi = isNode ? await import('node:worker_threads') : undefined;
const BASE = 1 << 20; // above the module's own data

/**
 * `bytes` in all are allotted and filled; each call of the function returned
 * reads them `passes` times and gives GB/s of each pass. `end()` ends the workers.
 */
export async function startReadLoop(module, bytes, threads) {
  const share = Math.ceil(bytes / threads / 128) * 128;
  const pages = Math.ceil((BASE + share * threads) / 65536);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const barrier = new Int32Array(new SharedArrayBuffer(4));
  const workers = Array.from({ length: threads }, () => {
    const url = new URL(import.meta.url);
    return isNode ? new threadsApi.Worker(url) : new Worker(url, { type: 'module' });
  });
  const ask = (message) => Promise.all(workers.map((worker, i) => new Promise((resolve, reject) => {
    const done = (event) => resolve(isNode ? event : event.data);
    if (isNode) {
      worker.once('message', done);
      worker.once('error', reject);
    } else {
      worker.onmessage = done;
      worker.onerror = (event) => reject(new Error(event.message));
    }
    worker.postMessage({ ...message, i });
  })));
  if (!isNode) await ask({ begin: true }); // answered once its script runs; before that messages could be lost
  await ask({ module, memory, barrier, share, threads });
  return {
    async run(passes = 9) {
      Atomics.store(barrier, 0, 0);
      const [milliseconds] = await ask({ passes });
      return milliseconds.map((ms) => (share * threads) / ms / 1e6);
    },
    async end() {
      await Promise.all(workers.map((worker) => worker.terminate()));
    },
  };
}

let state;
async function work(message) {
  if (message.begin) return true;
  if (message.module) {
    const { module, memory, barrier, share, threads, i } = message;
    const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
    const at = BASE + i * share;
    exports.fill(at, share);
    for (let k = 0; k < 50; k++) exports.sum(at, 1 << 16); // the optimising compiler takes over
    state = { sum: () => exports.sum(at, share), barrier, threads };
    return true;
  }
  const { sum, barrier, threads } = state;
  let met = 0;
  const meet = () => {
    met += threads;
    Atomics.add(barrier, 0, 1);
    while (Atomics.load(barrier, 0) < met);
  };
  const milliseconds = [];
  sum();
  for (let pass = 0; pass < message.passes; pass++) {
    meet();
    const start = performance.now();
    sum();
    meet();
    milliseconds.push(performance.now() - start);
  }
  return milliseconds;
}

if (isNode && !threadsApi.isMainThread) {
  threadsApi.parentPort.on('message', async (message) => threadsApi.parentPort.postMessage(await work(message)));
} else if (!isNode && typeof document === 'undefined') {
  globalThis.onmessage = async (event) => postMessage(await work(event.data));
}
