// Cached models in the origin's private file system. Workers have handles that
// read and write synchronously, straight from and into linear memory; elsewhere
// an entry can be looked at and removed only (store-cache-api.js is for those).
import { busyEntry, foreign, unavailable } from './store.js';

const FOLDER = 'lineal-models';
const KEY = /^[0-9a-f]{32}$/;

const RETRIES = 50;
const RETRY_MS = 10;

/** What several tabs may hold open at once; browsers that do not know it open a file once. */
const SHARED = { mode: 'readwrite-unsafe' };

/** @param {unknown} error @param {string} name */
const isNamed = (error, name) => error instanceof Error && error.name === name;

/**
 * @template T
 * @param {Promise<T>} promise
 * @returns {Promise<T | undefined>} undefined where there is no such file or folder
 */
async function unlessMissing(promise) {
  try {
    return await promise;
  } catch (error) {
    if (isNamed(error, 'NotFoundError') || isNamed(error, 'TypeMismatchError')) return undefined;
    throw error;
  }
}

/**
 * A file that was written to since it was got can no longer be read: it is got again.
 * @template T
 * @param {() => Promise<T>} read
 * @returns {Promise<T>}
 */
async function unchanging(read) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await read();
    } catch (error) {
      if (!isNamed(error, 'NotReadableError') || attempt === RETRIES) throw error;
      await new Promise((resolve) => {
        setTimeout(resolve, RETRY_MS);
      });
    }
  }
}

/**
 * Whether nothing lies there but files.
 * @param {FileSystemHandle} handle
 */
async function isOurs(handle) {
  if (handle.kind !== 'directory') return false;
  const folder = /** @type {FileSystemDirectoryHandle} */ (handle);
  for await (const { kind } of folder.values()) if (kind !== 'file') return false;
  return true;
}

/** Whether this thread can write into the cache, and read from it synchronously. */
export function hasSyncHandles() {
  const scope = /** @type {any} */ (globalThis);
  return typeof scope.FileSystemFileHandle?.prototype.createSyncAccessHandle === 'function';
}

/** @returns {Promise<import('./store.js').Store>} */
export async function opfsStore() {
  const storage = globalThis.navigator?.storage;
  if (typeof storage?.getDirectory !== 'function')
    throw unavailable('there is no private file system here (pages need https or localhost)');
  /** @type {FileSystemDirectoryHandle} */ let root;
  try {
    root = await (await storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  } catch (error) {
    throw unavailable('the browser does not let this page store files', error);
  }
  return {
    kind: 'opfs',
    place: "the browser's storage",
    keys: async () => {
      const names = [];
      for await (const [name, handle] of root.entries()) if (KEY.test(name) && (await isOurs(handle))) names.push(name);
      return names;
    },
    entry: (key) => opfsEntry(root, key),
    space: async () => {
      const { quota = 0, usage = 0 } = await storage.estimate();
      return { available: Math.max(quota - usage, 0), quota };
    },
  };
}

/**
 * @param {FileSystemDirectoryHandle} root
 * @param {string} key
 * @returns {import('./store.js').StoreEntry}
 */
function opfsEntry(root, key) {
  /** @param {string} name @param {boolean} create */
  const find = async (name, create) => {
    const folder = await unlessMissing(root.getDirectoryHandle(key, { create }));
    return folder && unlessMissing(folder.getFileHandle(name, { create }));
  };
  return {
    key,
    manifest: async () => {
      const handle = await find('manifest', false);
      return handle ? unchanging(async () => (await handle.getFile()).text()) : '';
    },
    append: async (text) => appendTo(/** @type {FileSystemFileHandle} */ (await find('manifest', true)), text),
    content: async (create) => {
      const handle = await find('content', create);
      return handle && openContent(handle);
    },
    pulse: async () => {
      const files = await Promise.all(['content', 'manifest'].map(async (name) => (await find(name, false))?.getFile()));
      return files.map((file) => `${file?.size} ${file?.lastModified}`).join();
    },
    lastUsed: async () => (await (await find('used', false))?.getFile())?.lastModified ?? 0,
    touch: async () => {
      try {
        const handle = await find('used', true);
        if (handle) await appendTo(handle, '.');
      } catch {
        // Another tab does the same.
      }
    },
    lock: () => takeLock(key),
    hold: () => hold(key),
    held: () => held(key),
    remove: async () => {
      const folder = await unlessMissing(root.getDirectoryHandle(key));
      const file = folder ? undefined : await unlessMissing(root.getFileHandle(key));
      if (file || (folder && !(await isOurs(folder)))) throw foreign(`'${key}' in the browser's storage`);
      if (!folder) return;
      try {
        // The bytes first: a journal without them is not believed.
        await unlessMissing(folder.removeEntry('content'));
        await unlessMissing(root.removeEntry(key, { recursive: true }));
      } catch (error) {
        throw isNamed(error, 'NoModificationAllowedError') ? busyEntry(key) : error;
      }
    },
  };
}

/** @param {FileSystemFileHandle} handle @param {string} text */
async function appendTo(handle, text) {
  const bytes = new TextEncoder().encode(text);
  if (hasSyncHandles()) {
    const file = await /** @type {any} */ (handle).createSyncAccessHandle(SHARED);
    try {
      file.write(bytes, { at: file.getSize() });
      file.flush();
    } finally {
      file.close();
    }
    return;
  }
  const writable = await handle.createWritable({ keepExistingData: true });
  await writable.write({ type: 'write', position: (await handle.getFile()).size, data: bytes });
  await writable.close();
}

/**
 * @param {FileSystemFileHandle} handle
 * @returns {Promise<import('./store.js').Content>}
 */
async function openContent(handle) {
  if (!hasSyncHandles()) return readableOnly(handle);
  /** @type {any} */ let file;
  try {
    file = await /** @type {any} */ (handle).createSyncAccessHandle(SHARED);
  } catch (error) {
    // Another tab has the only handle: the bytes can be read all the same.
    if (isNamed(error, 'NoModificationAllowedError')) return readableOnly(handle);
    throw error;
  }
  const readSync = (/** @type {number} */ offset, /** @type {Uint8Array} */ target) =>
    Number(file.read(target, { at: offset }));
  return {
    get size() {
      return Number(file.getSize());
    },
    readSync,
    read: async (offset, target) => readSync(offset, target),
    write: (offset, bytes) => {
      for (let done = 0; done < bytes.length;) {
        const count = file.write(bytes.subarray(done), { at: offset + done });
        if (!(count > 0)) throw new DOMException('no byte could be written', 'QuotaExceededError');
        done += count;
      }
    },
    flush: async () => file.flush(),
    close: () => file.close(),
  };
}

/**
 * @param {FileSystemFileHandle} handle
 * @returns {Promise<import('./store.js').Content>}
 */
async function readableOnly(handle) {
  return {
    size: Infinity, // another may be writing: what is not there is not read
    read: async (offset, target) => {
      const bytes = await unchanging(async () => {
        const part = (await handle.getFile()).slice(offset, offset + target.length);
        return new Uint8Array(await part.arrayBuffer());
      });
      target.set(bytes);
      return bytes.length;
    },
    flush: async () => {},
    close: () => {},
  };
}

/** @param {string} key */
const writerOf = (key) => `lineal-models:${key}`;
/** @param {string} key */
const readersOf = (key) => `lineal-models-open:${key}`;

/**
 * The right to write; undefined: another has it. The browser lets it go when the tab ends, however that comes.
 * @param {string} key
 */
export function takeLock(key) {
  return request(writerOf(key), { ifAvailable: true });
}

/** Says that it is open, until what it returns is called. @param {string} key */
export async function hold(key) {
  return (await request(readersOf(key), { mode: 'shared' })) ?? (async () => {});
}

/** Whether it is open in any tab. @param {string} key */
export async function held(key) {
  const { held: all = [] } = (await globalThis.navigator?.locks?.query()) ?? {};
  return all.some(({ name }) => name === readersOf(key));
}

/**
 * @param {string} name
 * @param {LockOptions} options
 * @returns {Promise<(() => Promise<void>) | undefined>}
 */
function request(name, options) {
  const locks = globalThis.navigator?.locks;
  if (!locks) return Promise.resolve(async () => {});
  return new Promise((resolve, reject) => {
    locks
      .request(name, options, (lock) => {
        if (!lock) {
          resolve(undefined);
          return undefined;
        }
        return new Promise((release) => {
          resolve(async () => release(undefined));
        });
      })
      .catch(reject);
  });
}
