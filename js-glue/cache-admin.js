// What is in the cache, for people and programs: looked at, checked, removed.
import { bytesOf, describeManifest, dropLine, parseManifest } from './cache-manifest.js';
import { LinealError, badArgument } from './errors.js';
import { checkOptions } from './checks.js';
import { cacheDirectory } from './options.js';
import { busyEntry, keyOf, openStore, sha256Hex, storeError } from './store.js';
import { describeSource } from './source.js';

/** @typedef {import('./index.d.ts').CachedModel} CachedModel */
/** @typedef {import('./index.d.ts').CachePlace} CachePlace */
/** @typedef {import('./store.js').Store} Store */

/**
 * What the store itself throws has a code, too.
 * @template T
 * @param {CachePlace | undefined} options
 * @param {(store: Store) => Promise<T>} work
 */
async function inStore(options = {}, work) {
  checkOptions(options, ['directory']);
  const store = await openStore(cacheDirectory(options.directory), false);
  try {
    return await work(store);
  } catch (error) {
    throw await storeError(error, store);
  }
}

/** @param {string | URL} model its key, or its address */
async function keyFrom(model) {
  if (typeof model === 'string' && /^[0-9a-f]{32}$/.test(model)) return model;
  const [part] = describeSource(model);
  if (part.kind === 'url') return keyOf(part.url);
  throw badArgument('a cached model is named by its key or its address', { key: String(model) });
}

/**
 * @param {Store} store
 * @param {string} key
 * @returns {Promise<CachedModel | undefined>}
 */
async function infoOf(store, key) {
  const entry = store.entry(key);
  const manifest = parseManifest(await entry.manifest());
  return manifest && describeManifest(key, manifest, await entry.lastUsed());
}

/** The last used first; what cannot be read is passed over. @param {Store} store */
async function listOf(store) {
  const all = await Promise.all((await store.keys()).map((key) => infoOf(store, key).catch(() => undefined)));
  return all.filter((info) => info !== undefined).sort((a, b) => b.lastUsed - a.lastUsed);
}

/**
 * @template T
 * @param {Store} store
 * @param {string} key
 * @param {(entry: import('./store.js').StoreEntry) => Promise<T>} work
 */
async function locked(store, key, work) {
  const entry = store.entry(key);
  const unlock = await entry.lock();
  if (!unlock) throw busyEntry(key);
  try {
    return await work(entry);
  } finally {
    await unlock();
  }
}

/** @param {string} key @param {Store} store */
const notKept = (key, store) =>
  new LinealError('SOURCE_NOT_FOUND', `there is no model ${key} in ${store.place}`, {
    remedy: 'see modelCache.list() or lineal cache list',
    detail: { key },
  });

/** @param {Store} store @param {string} key */
async function isBusy(store, key) {
  const unlock = await store.entry(key).lock();
  await unlock?.();
  return !unlock;
}

/**
 * Removes what was used least recently, as far as needed; what is open anywhere, or comes just now, stays.
 * @param {Store} store
 * @param {string} key of the model that is to come
 * @param {number} size
 * @param {number} maxBytes for all
 * @returns {Promise<boolean>} whether there is room for it now
 */
export async function makeRoom(store, key, size, maxBytes) {
  if (size > maxBytes) return false;
  const others = (await listOf(store)).filter((info) => info.key !== key);
  let total = others.reduce((sum, { cachedBytes }) => sum + cachedBytes, size);
  // Those that come now will be whole.
  for (const info of others) if (!info.complete && (await isBusy(store, info.key))) total += info.size - info.cachedBytes;
  for (const info of others.reverse()) {
    if (total <= maxBytes) break;
    try {
      await locked(store, info.key, async (entry) => {
        if (await entry.held()) throw busyEntry(info.key);
        await entry.remove();
      });
      total -= info.cachedBytes;
    } catch (error) {
      if (!(error instanceof LinealError) || error.code !== 'BUSY') throw error;
    }
  }
  return total <= maxBytes;
}

/**
 * What of it is not what it was, is not believed any more.
 * @param {import('./store.js').StoreEntry} entry
 * @param {import('./cache-manifest.js').Manifest} manifest
 */
async function checked(entry, manifest) {
  const content = await entry.content(false);
  const bad = [];
  try {
    for (const extent of manifest.extents) {
      const bytes = new Uint8Array(extent.end - extent.start);
      const count = (await content?.read(extent.start, bytes).catch(() => 0)) ?? 0;
      if (count < bytes.length || (await sha256Hex(bytes)) !== extent.hash) bad.push(extent);
    }
  } finally {
    content?.close();
  }
  const lines = bad.map(dropLine).join('');
  if (lines) await entry.append(`${manifest.torn ? '\n' : ''}${lines}`);
  return bad;
}

/** @type {typeof import('./index.d.ts').modelCache} */
export const modelCache = {
  list: (options) => inStore(options, listOf),

  info: (model, options) => inStore(options, async (store) => infoOf(store, await keyFrom(model))),

  delete: (model, options) =>
    inStore(options, async (store) => {
      const key = await keyFrom(model);
      if (!(await store.keys()).includes(key)) return false;
      await locked(store, key, (entry) => entry.remove());
      return true;
    }),

  verify: (model, options) =>
    inStore(options, async (store) => {
      const key = await keyFrom(model);
      if (!(await store.keys()).includes(key)) throw notKept(key, store);
      return locked(store, key, async (entry) => {
        const manifest = parseManifest(await entry.manifest());
        if (!manifest) throw notKept(key, store);
        const bad = await checked(entry, manifest);
        return {
          key,
          checkedBytes: bytesOf(manifest.extents),
          damaged: bad.map(({ start, end }) => ({ offset: start, bytes: end - start })),
        };
      });
    }),

  clear: (options) =>
    inStore(options, async (store) => {
      /** @type {unknown} */ let failure;
      let removed = 0;
      for (const key of await store.keys()) {
        try {
          await locked(store, key, (entry) => entry.remove());
          removed++;
        } catch (error) {
          failure ??= error;
        }
      }
      if (failure) throw failure;
      return removed;
    }),
};
