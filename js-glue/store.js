// Where cached models lie: a directory in Node, the origin's private file
// system or the Cache API in a browser. A store knows keys, journals and bytes; what they mean
// is the affair of cache.js.
import { isNode } from './caps.js';
import { LinealError, messageOf } from './errors.js';

/**
 * @typedef {object} Content the bytes of a model, open
 * @property {number} size of the file now; Infinity where that cannot be said
 * @property {((offset: number, target: Uint8Array) => number)} [readSync]
 *   Straight into the target, which may be linear memory; returns the bytes read.
 * @property {(offset: number, target: Uint8Array) => Promise<number>} read
 * @property {((offset: number, bytes: Uint8Array) => void)} [write] all of them; none: it can only be read
 * @property {(range: { start: number, end: number }) => Promise<void>} flush what was written there outlives the
 *   machine; it is an extent from now on
 * @property {() => void} close
 */

/**
 * @typedef {object} StoreEntry nothing is made before it is needed
 * @property {string} key
 * @property {() => Promise<string>} manifest its journal; '' where there is none
 * @property {(text: string) => Promise<void>} append to the journal
 * @property {(create: boolean) => Promise<Content | undefined>} content undefined: there is none
 * @property {() => Promise<string>} pulse another text whenever somebody has written
 * @property {() => Promise<number>} lastUsed milliseconds since 1970; 0: not known
 * @property {() => Promise<void>} touch it is used now
 * @property {() => Promise<(() => Promise<void>) | undefined>} lock
 *   The right to write, and how to give it back; undefined: another tab or process has it.
 * @property {() => Promise<() => Promise<void>>} hold it is open, until that is called: not to be evicted
 * @property {() => Promise<boolean>} held whether it is open anywhere
 * @property {() => Promise<void>} remove journal and bytes; throws BUSY where another holds them open, and
 *   CACHE_UNAVAILABLE where something lies there that is not of the cache
 */

/**
 * @typedef {object} Store
 * @property {'directory' | 'opfs' | 'cache-api'} kind
 * @property {string} place for messages
 * @property {() => Promise<string[]>} keys of what is of the cache, or looks like it: begun or damaged copies too
 * @property {(key: string) => StoreEntry} entry
 * @property {() => Promise<{ available: number, quota?: number } | undefined>} space bytes
 */

/** Codes of the system, and the name of the browser's error, for no room. */
const FULL = ['ENOSPC', 'EDQUOT', 'EFBIG', 'QuotaExceededError'];

/**
 * The store of this machine.
 * @param {string} directory in Node; '': the user's cache folder
 * @param {boolean} [create] the folder, where there is none: who only looks leaves nothing behind
 * @returns {Promise<Store>}
 */
export async function openStore(directory, create = true) {
  if (isNode) {
    const { directoryStore, defaultDirectory } = await import('./store-node.js');
    return directoryStore(directory || defaultDirectory(), create);
  }
  const { browserStore } = await import('./store-browser.js');
  return browserStore();
}

/**
 * The name of an address in a store: it tells nothing of the address, whose query may hold secrets.
 * @param {string} url
 */
export async function keyOf(url) {
  const bytes = new TextEncoder().encode(url.split('#')[0]);
  return (await sha256Hex(bytes)).slice(0, 32);
}

/** @param {Uint8Array} bytes not of shared memory */
export async function sha256Hex(bytes) {
  // Off this thread, and many times faster than sha256.js.
  const digest = await crypto.subtle.digest('SHA-256', /** @type {Uint8Array<ArrayBuffer>} */ (bytes));
  return hex(new Uint8Array(digest));
}

/** @param {Uint8Array} bytes */
export function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** @param {string} why @param {unknown} [cause] */
export function unavailable(why, cause) {
  return new LinealError('CACHE_UNAVAILABLE', `models cannot be cached: ${why}`, { cause });
}

/** What lies there is left alone. @param {string} what */
export function foreign(what) {
  return unavailable(`${what} is not of the cache`);
}

/**
 * What a store threw, with numbers where there was no room.
 * @param {unknown} error
 * @param {Store} store
 * @param {{ needed: number, written: number }} [bytes]
 */
export async function storeError(error, store, { needed, written } = { needed: 0, written: 0 }) {
  if (error instanceof LinealError) return error;
  const code = String(/** @type {any} */ (error)?.code ?? '');
  const name = error instanceof Error ? error.name : '';
  if (FULL.includes(code) || FULL.includes(name)) return fullError(store, needed, written, error);
  return new LinealError('CACHE_UNAVAILABLE', `the cache in ${store.place} failed: ${messageOf(error)}`, {
    detail: { place: store.place, system_code: code || name, written_bytes: written },
    cause: error,
  });
}

/**
 * @param {Store} store
 * @param {number} needed bytes that were still to come
 * @param {number} written bytes of this model that are there
 * @param {unknown} [cause]
 */
export async function fullError(store, needed, written, cause) {
  const space = await store.space().catch(() => undefined);
  // Browsers promise more than they give: no word of it then.
  const room = space && space.available < needed ? `, and ${space.available} are free` : '';
  return new LinealError('CACHE_FULL', `there is no room in ${store.place}: ${needed} more bytes were needed${room}`, {
    detail: {
      place: store.place,
      needed_bytes: needed,
      written_bytes: written,
      available_bytes: space?.available,
      quota_bytes: space?.quota,
    },
    cause,
  });
}

/** @param {string} key */
export function busyEntry(key) {
  return new LinealError('BUSY', `the cached model ${key} is in use by another tab or process`, {
    remedy: 'close the model there, or wait until it is downloaded',
    detail: { key },
  });
}
