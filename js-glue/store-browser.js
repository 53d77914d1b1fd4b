// Where a browser keeps models: in files where this thread can write them,
// else in the Cache API. What either of them has already is used.
import { cacheApiStore } from './store-cache-api.js';
import { hasSyncHandles, opfsStore } from './store-opfs.js';

/** @typedef {import('./store.js').Store} Store */
/** @typedef {import('./store.js').StoreEntry} StoreEntry */

/** @returns {Promise<Store>} */
export async function browserStore() {
  const other = cacheApiStore();
  /** @type {Store} */ let files;
  try {
    files = await opfsStore();
  } catch (error) {
    if (!other) throw error;
    return other;
  }
  if (!other) return files;
  return hasSyncHandles() ? both(files, other) : both(other, files);
}

/**
 * @param {Store} first where new models go
 * @param {Store} second
 * @returns {Store}
 */
function both(first, second) {
  return {
    ...first,
    keys: async () => [...new Set([...(await first.keys()), ...(await second.keys().catch(() => []))])],
    entry: (key) => entryOfBoth(first.entry(key), second.entry(key)),
  };
}

/**
 * @param {StoreEntry} first
 * @param {StoreEntry} second
 * @returns {StoreEntry}
 */
function entryOfBoth(first, second) {
  let chosen = first;
  return {
    key: first.key,
    manifest: async () => {
      const text = await chosen.manifest();
      if (text !== '' || chosen === second) return text;
      const other = await second.manifest().catch(() => '');
      if (other !== '') chosen = second;
      return other;
    },
    append: (text) => chosen.append(text),
    content: (create) => chosen.content(create),
    pulse: async () => `${await first.pulse()} ${await second.pulse().catch(() => '')}`,
    lastUsed: () => chosen.lastUsed(),
    touch: () => chosen.touch(),
    lock: () => first.lock(), // both have the same
    hold: () => first.hold(),
    held: () => first.held(),
    remove: async () => {
      chosen = first;
      await first.remove();
      await second.remove();
    },
  };
}
