// Calls across a worker border, in both directions. Errors cross whole, and an
// AbortSignal given to a call fires at the other end too.
import { LinealError } from './errors.js';

/**
 * What a Worker, a MessagePort, a worker's own scope and Node's worker_threads
 * have in common.
 * @typedef {object} Port
 * @property {(message: unknown, transfer: any[]) => void} postMessage
 * @property {(listener: (message: any) => void) => void} listen
 */

/**
 * @param {any} target with addEventListener, or with Node's on
 * @returns {Port}
 */
export function portOf(target) {
  return {
    postMessage: (message, transfer) => target.postMessage(message, transfer),
    listen: (listener) => {
      if (typeof target.on === 'function') target.on('message', listener);
      else target.addEventListener('message', (/** @type {MessageEvent} */ event) => listener(event.data));
    },
  };
}

/** Arguments or a result of which some is handed over instead of copied: buffers, ports. */
export class Transfer {
  /** @param {unknown} value @param {(ArrayBufferLike | MessagePort)[]} parts */
  constructor(value, parts) {
    this.value = value;
    this.parts = parts;
  }
}

/** @param {unknown} value @returns {Transfer} */
const transferOf = (value) => (value instanceof Transfer ? value : new Transfer(value, []));

/**
 * @callback Handler
 * @param {any} args
 * @param {AbortSignal} signal
 * @returns {any}
 */

export class Rpc {
  #port;
  #handlers;
  #nextId = 1;
  /** @type {Map<number, { resolve: (value: any) => void, reject: (error: LinealError) => void }>} */
  #pending = new Map();
  /** @type {Map<number, AbortController>} */ #running = new Map();
  /** @type {LinealError | undefined} */ #failure;

  /**
   * @param {Port} port
   * @param {Record<string, Handler>} handlers
   */
  constructor(port, handlers) {
    this.#port = port;
    this.#handlers = handlers;
    port.listen((message) => this.#receive(message));
  }

  /**
   * @param {string} method
   * @param {unknown} [args] a Transfer, or all of it is copied
   * @param {AbortSignal} [signal]
   * @returns {Promise<any>}
   */
  call(method, args, signal) {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      const abort = () => this.#port.postMessage({ abort: id }, []);
      const settle = () => {
        this.#pending.delete(id);
        signal?.removeEventListener('abort', abort);
      };
      this.#pending.set(id, {
        resolve: (value) => {
          settle();
          resolve(value);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      });
      try {
        const { value, parts } = transferOf(args);
        this.#port.postMessage({ call: id, method, args: value }, parts);
      } catch (error) {
        // an argument that cannot be cloned
        settle();
        reject(LinealError.from(error));
        return;
      }
      if (signal?.aborted) abort();
      else signal?.addEventListener('abort', abort, { once: true });
    });
  }

  /**
   * A call that is not answered.
   * @param {string} method
   * @param {unknown} [args]
   */
  notify(method, args) {
    if (!this.#failure) this.#port.postMessage({ call: 0, method, args }, []);
  }

  /**
   * The other end is gone: every call, pending and future, fails with this.
   * @param {LinealError} error
   */
  fail(error) {
    this.#failure ??= error;
    for (const { reject } of [...this.#pending.values()]) reject(this.#failure);
  }

  /** @param {any} message */
  async #receive(message) {
    if ('abort' in message) {
      this.#running.get(message.abort)?.abort();
    } else if ('answer' in message) {
      const waiting = this.#pending.get(message.answer);
      if ('error' in message) waiting?.reject(LinealError.fromJSON(message.error));
      else waiting?.resolve(message.value);
    } else {
      await this.#serve(message);
    }
  }

  /** @param {{ call: number, method: string, args: any }} message */
  async #serve({ call, method, args }) {
    const controller = new AbortController();
    if (call !== 0) this.#running.set(call, controller);
    let reply;
    /** @type {Transfer['parts']} */ let parts = [];
    try {
      const handler = this.#handlers[method];
      if (!handler) throw new LinealError('INTERNAL', `there is no method '${method}'`);
      const result = transferOf(await handler(args, controller.signal));
      ({ parts } = result);
      reply = { answer: call, value: result.value };
    } catch (error) {
      reply = { answer: call, error: LinealError.from(error).toJSON() };
    } finally {
      this.#running.delete(call);
    }
    if (call !== 0) this.#port.postMessage(reply, parts);
  }
}
