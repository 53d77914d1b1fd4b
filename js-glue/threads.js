// The workers of an engine's further threads: started after its memory is
// bound, ended when it is closed. One that dies is reported to the core, which
// then fails with THREAD_LOST instead of waiting for it.
import { isNode } from './caps.js';
import { atMost } from './turn.js';

const START_PATIENCE_MS = 10_000;
const END_PATIENCE_MS = 1000;
/** Of those that were told by a core that had trapped: they may not have heard it. */
const UNHEARD_PATIENCE_MS = 100;

/**
 * @typedef {object} ThreadWorker
 * @property {(message: unknown) => void} post
 * @property {() => void} detach lets the process end although the worker lives
 * @property {() => Promise<unknown>} terminate
 */

/**
 * @param {(message: any) => void} onMessage
 * @param {(reason: string) => void} onGone
 * @returns {Promise<ThreadWorker>}
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
      terminate: () => worker.terminate(), // resolves when it has ended
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

/** One thread, from 1. */
class Thread {
  /** @type {'starting' | 'ready' | 'gone'} gone: it has returned, or is dead */ state = 'starting';
  #worker;
  #onChange;
  /** @type {() => void} */ #settle = () => {};

  /**
   * @param {ReturnType<import('./abi.js').Core['threadStart']>} start
   * @param {(thread: Thread) => void} onGone
   */
  constructor(start, onGone) {
    this.#onChange = onGone;
    this.#worker = startWorker(
      (message) => this.#become(message.ready ? 'ready' : 'gone'),
      () => this.#become('gone'),
    );
    this.#worker.then(({ post }) => post(start)).catch(() => this.#become('gone'));
  }

  /** @param {'ready' | 'gone'} state */
  #become(state) {
    if (this.state === 'gone') return;
    this.state = state;
    this.#settle();
    if (state === 'gone') this.#onChange(this);
  }

  /** Resolves when the state changes next. */
  change() {
    return new Promise((/** @type {(value: void) => void} */ resolve) => {
      this.#settle = resolve;
    });
  }

  async detach() {
    (await this.#worker).detach();
  }

  /** Resolves when it has returned from the core, which has let it go already. @param {number} patienceMs */
  async returned(patienceMs) {
    if (this.state === 'ready') await atMost(this.change(), patienceMs);
  }

  async terminate() {
    await (await this.#worker.catch(() => undefined))?.terminate();
  }
}

export class Threads {
  #core;
  /** @type {Thread[]} */ #threads = [];
  #endWithParent;
  #running = false;

  /**
   * @param {import('./abi.js').Core} core bound
   * @param {boolean} endWithParent the worker that this runs in is terminated after the engine. Then its own are
   *   left to end with it: Chromium forgets both when the one terminates while the other does.
   */
  constructor(core, endWithParent) {
    this.#core = core;
    this.#endWithParent = endWithParent;
  }

  /**
   * Starts all threads. True: they compute. False: one did not start in time,
   * all were ended again, and the engine computes on one thread.
   */
  async start() {
    const count = this.#core.threadCount();
    const lost = () => {
      if (this.#running) this.#core.threadLost();
    };
    for (let i = 1; i < count; i++) this.#threads.push(new Thread(this.#core.threadStart(i), lost));
    const threads = this.#threads;
    await atMost(Promise.all(threads.map((thread) => thread.change())), START_PATIENCE_MS);
    if (threads.every(({ state }) => state === 'ready')) {
      this.#running = true;
      await Promise.all(threads.map((thread) => thread.detach()));
      return true;
    }
    await this.stop();
    if (!this.#core.dead) this.#core.useOneThread();
    return false;
  }

  /** Ends all threads; none computes any more when the promise resolves. May be called again. */
  async stop() {
    this.#running = false;
    this.#core.threadsStop();
    const threads = this.#threads;
    this.#threads = [];
    const patienceMs = this.#core.dead ? UNHEARD_PATIENCE_MS : END_PATIENCE_MS;
    await Promise.all(
      threads.map(async (thread) => {
        await thread.returned(patienceMs);
        if (!this.#endWithParent) await thread.terminate();
      }),
    );
  }
}
