// How long a server is waited for: one timer for all waits of a source.

// A timer that comes so much later than it should tells of this thread, not of the server.
const LATE_MS = 200;

/** @typedef {{ since: number, fail: () => void }} Wait for the server, and since when */

export class Patience {
  #timeoutMs;
  #tooLate;
  /** @type {Set<Wait>} */ #waits = new Set();
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #timer;

  /**
   * @param {number} timeoutMs 0: without end
   * @param {() => Error} tooLate what is thrown
   */
  constructor(timeoutMs, tooLate) {
    this.#timeoutMs = timeoutMs;
    this.#tooLate = tooLate;
  }

  /**
   * The promise, or NETWORK_TIMEOUT when it takes too long. One timer serves all: a
   * timer for each piece of a body would cost more memory than the piece's promise.
   * @template T
   * @param {Promise<T>} promise
   * @param {() => void} onTimeout
   * @returns {Promise<T>}
   */
  inTime(promise, onTimeout) {
    if (!this.#timeoutMs) return promise;
    return new Promise((resolve, reject) => {
      /** @type {Wait} */
      const wait = {
        since: performance.now(),
        fail: () => {
          onTimeout();
          reject(this.#tooLate());
        },
      };
      this.#waits.add(wait);
      this.#watch();
      const ended = () => this.#waits.delete(wait);
      promise.then(
        (value) => {
          ended();
          resolve(value);
        },
        (error) => {
          ended();
          reject(error);
        },
      );
    });
  }

  /** Looks again when the first that waits has waited too long. */
  #watch() {
    const timeoutMs = this.#timeoutMs;
    if (this.#timer !== undefined || this.#waits.size === 0) return;
    const due = Math.min(...Array.from(this.#waits, ({ since }) => since)) + timeoutMs;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      const now = performance.now();
      // This thread was busy, and has not looked at what came meanwhile.
      if (now - due > LATE_MS) for (const wait of this.#waits) wait.since = now;
      for (const wait of [...this.#waits]) {
        if (now - wait.since < timeoutMs) continue;
        this.#waits.delete(wait);
        wait.fail();
      }
      this.#watch();
    }, Math.max(due - performance.now(), 0));
    /** @type {any} */ (this.#timer).unref?.(); // the connection keeps the process
  }
}
