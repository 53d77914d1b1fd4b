// Cached models in the Cache API, for threads that have no handles to write
// files with. It holds whole answers only: an extent is one, kept in memory
// until it is flushed, and the journal is one, written anew with each line.
import { held, hold, takeLock } from './store-opfs.js';

const PREFIX = 'lineal-models-';
const KEY = /^[0-9a-f]{32}$/;
// Addresses of nothing: they name what is kept. On the page's own origin, as some engines want it.
const PATH = '/lineal-models/';
/** Extents that are held for the reads that follow. */
const HELD_EXTENTS = 2;

/** @typedef {{ start: number, end: number }} Range */

/** @returns {import('./store.js').Store | undefined} undefined: there is none here */
export function cacheApiStore() {
  const { caches, navigator } = globalThis;
  if (typeof caches?.open !== 'function') return undefined;
  return {
    kind: 'cache-api',
    place: "the browser's storage",
    keys: async () =>
      (await caches.keys())
        .filter((name) => name.startsWith(PREFIX))
        .map((name) => name.slice(PREFIX.length))
        .filter((name) => KEY.test(name)),
    entry: cacheApiEntry,
    space: async () => {
      const { quota = 0, usage = 0 } = await navigator.storage.estimate();
      return { available: Math.max(quota - usage, 0), quota };
    },
  };
}

/** @param {string} name */
const addressOf = (name) => new URL(PATH + name, globalThis.location.origin).href;

/**
 * @param {string} key
 * @returns {import('./store.js').StoreEntry}
 */
function cacheApiEntry(key) {
  const cacheName = PREFIX + key;
  /** @param {string} name */
  const textOf = async (name) => {
    const answer = await caches.match(addressOf(name), { cacheName });
    return answer ? answer.text() : '';
  };
  /** @param {string} name @param {string} text */
  const write = async (name, text) => {
    await (await caches.open(cacheName)).put(addressOf(name), new Response(text));
  };
  return {
    key,
    manifest: () => textOf('manifest'),
    append: async (text) => write('manifest', (await textOf('manifest')) + text),
    content: async (create) => {
      if (!create && !(await caches.has(cacheName))) return undefined;
      return openContent(await caches.open(cacheName));
    },
    pulse: async () => String((await textOf('manifest')).length),
    lastUsed: async () => Number(await textOf('used')),
    touch: () => write('used', String(Date.now())).catch(() => {}),
    lock: () => takeLock(key),
    hold: () => hold(key),
    held: () => held(key),
    remove: async () => {
      await caches.delete(cacheName);
    },
  };
}

/**
 * @param {Cache} cache
 * @returns {Promise<import('./store.js').Content>}
 */
async function openContent(cache) {
  /** @type {Range[]} what lies in the cache */ let stored = [];
  /** @type {(Range & { bytes: Uint8Array })[]} written, not in the cache yet */ let written = [];
  /** @type {Map<string, Promise<Uint8Array | undefined>>} the last that were read */ const held = new Map();

  /** @param {Range} range */
  const nameOf = ({ start, end }) => addressOf(`${start}-${end}`);

  async function look() {
    const names = (await cache.keys()).map(({ url }) => /\/(\d+)-(\d+)$/.exec(url));
    stored = names.flatMap((match) => (match ? [{ start: Number(match[1]), end: Number(match[2]) }] : []));
  }
  await look();

  /** @param {Range} range */
  function load(range) {
    const name = nameOf(range);
    const known = held.get(name);
    const bytes =
      known ??
      cache.match(name).then(async (answer) => (answer ? new Uint8Array(await answer.arrayBuffer()) : undefined));
    held.delete(name);
    held.set(name, bytes); // the last
    for (const old of [...held.keys()].slice(0, -HELD_EXTENTS)) held.delete(old);
    return bytes;
  }

  /** @param {number} offset @returns {Promise<Uint8Array | undefined>} what is there from the offset on */
  async function from(offset) {
    const holds = (/** @type {Range} */ { start, end }) => start <= offset && offset < end;
    const fresh = written.find(holds);
    if (fresh) return fresh.bytes.subarray(offset - fresh.start);
    let range = stored.find(holds);
    if (!range) {
      await look(); // another tab may have put it there
      range = stored.find(holds);
    }
    const bytes = range && (await load(range));
    return bytes && range ? bytes.subarray(offset - range.start) : undefined;
  }

  /** @param {number} offset @param {Uint8Array} target */
  async function read(offset, target) {
    let filled = 0;
    while (filled < target.length) {
      const bytes = await from(offset + filled);
      if (!bytes || bytes.length === 0) break;
      const part = bytes.subarray(0, target.length - filled);
      target.set(part, filled);
      filled += part.length;
    }
    return filled;
  }

  return {
    size: Infinity, // what is missing is noticed when it is read
    read,
    write: (offset, bytes) => {
      written.push({ start: offset, end: offset + bytes.length, bytes: bytes.slice() });
    },
    flush: async ({ start, end }) => {
      const bytes = new Uint8Array(end - start);
      if ((await read(start, bytes)) < bytes.length) throw new Error('what was written is gone');
      // Those of a download that was killed before it believed them, cut otherwise.
      const others = stored.filter((old) => old.start < end && old.end > start && (old.start !== start || old.end !== end));
      await cache.put(nameOf({ start, end }), new Response(bytes));
      for (const old of others) {
        held.delete(nameOf(old));
        await cache.delete(nameOf(old));
      }
      stored = [...stored.filter((old) => old.start >= end || old.end <= start), { start, end }];
      held.delete(nameOf({ start, end }));
      written = written.flatMap((piece) => {
        const rest = [];
        if (piece.start < start) rest.push({ ...piece, end: Math.min(piece.end, start) });
        if (piece.end > end) rest.push({ ...piece, start: Math.max(piece.start, end) });
        return rest.map((part) => ({
          start: part.start,
          end: part.end,
          bytes: piece.bytes.slice(part.start - piece.start, part.end - piece.start),
        }));
      });
    },
    close: () => {
      written = [];
      held.clear();
    },
  };
}
