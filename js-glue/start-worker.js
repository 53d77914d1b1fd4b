// Starts the two kinds of worker: a browser's module workers, or Node's
// worker_threads. Their scripts are written out, since that is how bundlers
// find them.
import { isNode } from './caps.js';

/**
 * @typedef {object} StartedWorker
 * @property {any} target posts messages, and hears those of the worker
 * @property {() => void} detach lets the process end although the worker lives
 * @property {() => Promise<unknown>} terminate in Node resolves when it has ended
 */

/**
 * @param {'worker' | 'thread'} kind its script: worker.js holds an engine, thread.js computes for one
 * @param {(reason: string) => void} onGone hears its errors and its end
 * @returns {Promise<StartedWorker>}
 */
export async function startWorker(kind, onGone) {
  if (isNode && typeof globalThis.Worker === 'undefined') {
    const threads = await import('node:worker_threads');
    const url = kind === 'worker' ? new URL('./worker.js', import.meta.url) : new URL('./thread.js', import.meta.url);
    // execArgv: options such as --input-type are for the program, not for this file.
    const worker = new threads.Worker(url, { execArgv: [] });
    worker.on('error', (error) => onGone(String(error)));
    worker.on('exit', (code) => onGone(`it ended with code ${code}`));
    return { target: worker, detach: () => worker.unref(), terminate: () => worker.terminate() };
  }
  const worker =
    kind === 'worker'
      ? new Worker(new URL('./worker.js', import.meta.url), { type: 'module' })
      : new Worker(new URL('./thread.js', import.meta.url), { type: 'module' });
  worker.addEventListener('error', (event) => {
    event.preventDefault();
    onGone(event.message || 'its script could not be loaded');
  });
  worker.addEventListener('messageerror', () => onGone('a message could not be read'));
  return { target: worker, detach: () => {}, terminate: async () => worker.terminate() };
}
