// What is tried again, and how long is waited before that.
import { throwIfAborted } from './errors.js';

/** Before each further try; there are so many. */
export const RETRY_DELAYS_MS = [100, 400, 1000];

/**
 * So long, or until one of the signals fires.
 * @param {number} ms
 * @param {(AbortSignal | undefined)[]} signals
 * @returns {Promise<void>}
 */
export function pause(ms, ...signals) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      for (const signal of signals) signal?.removeEventListener('abort', done);
      resolve();
    }
    if (signals.some((signal) => signal?.aborted)) done();
    for (const signal of signals) signal?.addEventListener('abort', done, { once: true });
  });
}

/**
 * Reads again, a few times, where nothing came although the file goes on there: what is being copied to, or on a
 * drive that is away for a moment, gives its bytes a little later.
 * @template T
 * @param {() => T | Promise<T>} read gives bytes or their number
 * @param {boolean} goesOn
 * @param {(AbortSignal | undefined)[]} signals
 * @returns {Promise<T>}
 */
export async function insist(read, goesOn, ...signals) {
  for (let tries = 0; ; tries++) {
    signals.forEach(throwIfAborted);
    const got = await read();
    const nothing = got === 0 || (got instanceof Uint8Array && got.length === 0);
    if (!nothing || !goesOn || tries === RETRY_DELAYS_MS.length) return got;
    await pause(RETRY_DELAYS_MS[tries], ...signals);
  }
}
