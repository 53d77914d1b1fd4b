// The workers of an engine's further threads: started after its memory is
// bound, ended when it is closed. One that dies is reported to the core, which
// then fails with THREAD_LOST instead of waiting for it.
import { isNode } from './caps.js';

const START_PATIENCE_MS = 10_000;

/**
 * @typedef {object} Worker
 * @property {(message: unknown) => void} post
 * @property {() => unknown} detach lets the process end although the worker lives
 * @property {() => Promise<unknown>} terminate
 */

/**
 * @param {(message: any) => void} onMessage
 * @param {(reason: string) => void} onGone
 * @returns {Promise<Worker>}
 */
async function startWorker(onMessage, onGone) {
  if (isNode && typeof globalThis.Worker === 'undefined') {
    const threads = await import('node:worker_threads');
    // execArgv: options such as --input-type are for the program, not for this file.
    const worker = new threads.Worker(new URL('./thread.js', import.meta.url), { execArgv: [] });
    worker.on('message', onMessage);
    worker.on('error', (error) => onGone(String(error)));
    worker.on('exit', (code) => onGone(`it ended with code ${code}`));
    return {
      post: (message) => worker.postMessage(message),
      detach: () => worker.unref(),
      terminate: () => worker.terminate(),
    };
  }
  const worker = new Worker(new URL('./thread.js', import.meta.url), { type: 'module' });
  worker.addEventListener('message', (event) => onMessage(event.data));
  worker.addEventListener('messageerror', () => onGone('a message could not be read'));
  worker.addEventListener('error', (event) => {
    event.preventDefault();
    onGone(event.message || 'its script could not be loaded');
  });
  return {
    post: (message) => worker.postMessage(message),
    detach: () => {},
    terminate: async () => worker.terminate(),
  };
}

export class Threads {
  #core;
  /** @type {Promise<Worker>[]} */ #workers = [];
  #running = false;
  #stopping = false;

  /** @param {import('./abi.js').Core} core bound */
  constructor(core) {
    this.#core = core;
  }

  /**
   * Starts all threads. True: they compute. False: one did not start in time,
   * all were ended again, and the engine computes on one thread.
   */
  async start() {
    const count = this.#core.threadCount();
    /** @type {Promise<void>[]} */ const ready = [];
    for (let index = 1; index < count; index++) ready.push(this.#startOne(index));
    /** @type {ReturnType<typeof setTimeout> | undefined} */ let timer;
    const patience = new Promise((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error('it took too long')), START_PATIENCE_MS);
    });
    try {
      await Promise.race([Promise.all(ready), patience]);
      this.#running = true;
      for (const worker of await Promise.all(this.#workers)) worker.detach();
      return true;
    } catch {
      await this.stop();
      if (!this.#core.dead) this.#core.useOneThread();
      return false;
    } finally {
      clearTimeout(timer);
    }
  }

  /** @param {number} index */
  #startOne(index) {
    return new Promise((/** @type {(value: void) => void} */ resolve, reject) => {
      const gone = (/** @type {string} */ reason) => {
        reject(new Error(reason)); // no effect once it was ready
        if (this.#running && !this.#stopping) this.#core.threadLost();
      };
      const worker = startWorker((message) => (message.ready ? resolve() : gone(message.failed)), gone);
      this.#workers.push(worker);
      worker.then(({ post }) => post(this.#core.threadStart(index))).catch((error) => gone(String(error)));
    });
  }

  /** Ends all threads; none runs any more when the promise resolves. May be called again. */
  async stop() {
    this.#stopping = true;
    this.#core.threadsStop();
    const workers = this.#workers;
    this.#workers = [];
    await Promise.all(workers.map(async (worker) => (await worker.catch(() => undefined))?.terminate()));
  }
}
