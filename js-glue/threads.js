// The workers of an engine's further threads: started after its memory is
// bound, ended when it is closed. One that dies is reported to the core, which
// then fails with THREAD_LOST instead of waiting for it.
//
// An engine in our own worker has them started by the thread that started that
// worker: Chromium, when a worker ends while one that it started ends too, may
// forget both, and their memory with them (NOTES.md).
import { closedError } from './errors.js';
import { Transfer } from './rpc.js';
import { startWorker } from './start-worker.js';
import { atMost } from './turn.js';

const START_PATIENCE_MS = 10_000;
const END_PATIENCE_MS = 1000;
/** Of those that were told by a core that had trapped: they may not have heard it. */
const UNHEARD_PATIENCE_MS = 100;

/**
 * @typedef {object} ThreadWorker
 * @property {() => unknown} detach lets the process end although the worker lives
 * @property {() => Promise<unknown>} terminate
 */

/**
 * Starts thread.js and gives it its end of the channel to the engine.
 * @callback StartThread
 * @param {MessagePort} port handed over
 * @param {(reason: string) => void} onGone hears of an error, and of its end
 * @returns {Promise<ThreadWorker>}
 */

/** @type {StartThread} in this thread */
async function startHere(port, onGone) {
  const worker = await startWorker('thread', onGone);
  worker.target.postMessage(port, [port]);
  return worker;
}

/** The threads of an engine in another worker, at the side that started that. */
export class ThreadHost {
  /** @type {Map<number, Promise<ThreadWorker>>} */ #workers = new Map();
  #closed = false;

  /** What the other side calls. @type {Record<string, import('./rpc.js').Handler>} */
  handlers;

  /** @param {(method: string, args: unknown) => void} notify the other side, whose methods are those of threadsThere */
  constructor(notify) {
    this.handlers = {
      threadStart: async ({ id, port }) => {
        if (this.#closed) throw closedError();
        const worker = startHere(port, (reason) => notify('threadGone', { id, reason }));
        this.#workers.set(id, worker);
        await worker;
      },
      threadDetach: async ({ id }) => (await this.#workers.get(id))?.detach(),
      threadEnd: async ({ id }) => {
        const worker = this.#workers.get(id);
        this.#workers.delete(id);
        await (await worker)?.terminate();
      },
    };
  }

  /** Ends all; none can be started after this. */
  async close() {
    this.#closed = true;
    const workers = [...this.#workers.values()];
    this.#workers.clear();
    await Promise.all(workers.map(async (worker) => (await worker.catch(() => undefined))?.terminate()));
  }
}

/**
 * The engine's side of a ThreadHost.
 * @param {() => import('./rpc.js').Rpc} rpc
 * @returns {{ startThread: StartThread, handlers: Record<string, import('./rpc.js').Handler> }}
 */
export function threadsThere(rpc) {
  let nextId = 1;
  /** @type {Map<number, (reason: string) => void>} */ const listeners = new Map();
  return {
    startThread: async (port, onGone) => {
      const id = nextId++;
      listeners.set(id, onGone);
      await rpc().call('threadStart', new Transfer({ id, port }, [port]));
      return {
        detach: () => rpc().call('threadDetach', { id }),
        terminate: () => {
          listeners.delete(id);
          return rpc().call('threadEnd', { id });
        },
      };
    },
    handlers: { threadGone: ({ id, reason }) => listeners.get(id)?.(reason) },
  };
}

/** One thread, from 1. */
class Thread {
  /** @type {'starting' | 'ready' | 'gone'} gone: it has returned, or is dead */ state = 'starting';
  #port;
  #worker;
  #onChange;
  /** @type {() => void} */ #settle = () => {};

  /**
   * @param {ReturnType<import('./abi.js').Core['threadStart']>} start
   * @param {StartThread} startThread
   * @param {(thread: Thread) => void} onGone
   */
  constructor(start, startThread, onGone) {
    this.#onChange = onGone;
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    port1.onmessage = ({ data }) => this.#become(data.ready ? 'ready' : 'gone');
    port1.postMessage(start);
    this.#worker = startThread(port2, () => this.#become('gone'));
    this.#worker.catch(() => this.#become('gone'));
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
    /** @type {any} */ (this.#port).unref?.();
    await (await this.#worker).detach();
  }

  /** Resolves when it has returned from the core, which has let it go already. @param {number} patienceMs */
  async returned(patienceMs) {
    if (this.state === 'ready') await atMost(this.change(), patienceMs);
  }

  async terminate() {
    this.#port.close();
    await (await this.#worker.catch(() => undefined))?.terminate();
  }
}

export class Threads {
  #core;
  /** @type {Thread[]} */ #threads = [];
  #startThread;
  #running = false;

  /**
   * @param {import('./abi.js').Core} core bound
   * @param {StartThread} [startThread] what starts them, if not this thread
   */
  constructor(core, startThread = startHere) {
    this.#core = core;
    this.#startThread = startThread;
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
    for (let i = 1; i < count; i++) this.#threads.push(new Thread(this.#core.threadStart(i), this.#startThread, lost));
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
        await thread.terminate();
      }),
    );
  }
}
