// Cached models in a directory: KEY/content, KEY/manifest, KEY/used, KEY.lock
// while somebody writes, and KEY.ID.open while somebody has it open.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { busyEntry, foreign, unavailable } from './store.js';

const KEY = /^[0-9a-f]{32}$/;
const FILES = ['content', 'manifest', 'used'];
/** A lock that nobody has touched for so long was left behind. */
const STALE_MS = 60_000;
const HEARTBEAT_MS = 5_000;
/** Clocks are set now and then; two processes with one id start further apart. */
const SAME_START_MS = 2_000;

/** The user's own cache folder, as the system has it. */
export function defaultDirectory() {
  const { env, platform } = process;
  const home = os.homedir();
  const base =
    platform === 'win32'
      ? env.LOCALAPPDATA || path.join(home, 'AppData', 'Local')
      : platform === 'darwin'
        ? path.join(home, 'Library', 'Caches')
        : env.XDG_CACHE_HOME || path.join(home, '.cache');
  return path.join(base, 'lineal');
}

/** @param {unknown} error */
const codeOf = (error) => /** @type {NodeJS.ErrnoException} */ (error).code ?? '';

/**
 * @template T
 * @param {() => T} work
 * @param {string[]} codes
 * @returns {T | undefined} undefined where there is no such file
 */
function unlessMissing(work, codes = ['ENOENT']) {
  try {
    return work();
  } catch (error) {
    if (codes.includes(codeOf(error))) return undefined;
    throw error;
  }
}

/**
 * Whether nothing lies there but what is ours, and what systems leave in a folder (.DS_Store, .nfs...).
 * @param {string} folder
 */
function isOurs(folder) {
  try {
    const all = fs.readdirSync(folder, { withFileTypes: true });
    return all.every((entry) => entry.isFile() && (FILES.includes(entry.name) || entry.name.startsWith('.')));
  } catch {
    return false;
  }
}

/**
 * @param {string} directory
 * @param {boolean} [create] where there is none: otherwise it has nothing in it
 * @returns {import('./store.js').Store}
 */
export function directoryStore(directory, create = true) {
  const root = path.resolve(directory);
  try {
    if (create || fs.existsSync(root)) fs.mkdirSync(root, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw unavailable(`the folder '${root}' cannot be made (${codeOf(error)})`, error);
  }
  return {
    kind: 'directory',
    place: `'${root}'`,
    keys: async () =>
      (unlessMissing(() => fs.readdirSync(root)) ?? []).filter((name) => KEY.test(name) && isOurs(path.join(root, name))),
    entry: (key) => directoryEntry(root, key),
    space: async () => {
      const { bavail, bsize } = fs.statfsSync(root);
      return { available: bavail * bsize };
    },
  };
}

/**
 * @param {string} root
 * @param {string} key
 * @returns {import('./store.js').StoreEntry}
 */
function directoryEntry(root, key) {
  const folder = path.join(root, key);
  const manifest = path.join(folder, 'manifest');
  const content = path.join(folder, 'content');
  const used = path.join(folder, 'used');
  return {
    key,
    manifest: async () =>
      // A pipe would be waited for.
      unlessMissing(() => (fs.statSync(manifest).isFile() ? fs.readFileSync(manifest, 'utf8') : ''), [
        'ENOENT',
        'ENOTDIR',
      ]) ?? '',
    append: async (text) => fs.appendFileSync(manifest, text),
    content: async (create) => {
      if (create) fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
      return openContent(content, create);
    },
    pulse: async () =>
      [content, manifest]
        .map((file) => unlessMissing(() => fs.statSync(file)))
        .map((stat) => `${stat?.size} ${stat?.mtimeMs}`)
        .join(),
    lastUsed: async () => unlessMissing(() => fs.statSync(used).mtimeMs) ?? 0,
    touch: async () => {
      try {
        fs.writeFileSync(used, '');
      } catch {
        // A folder that can only be read keeps no order of use.
      }
    },
    lock: () => takeLock(path.join(root, `${key}.lock`)),
    hold: async () => {
      readers(root, key); // those left behind go
      const file = path.join(root, `${key}.${crypto.randomUUID()}.open`);
      return (await takeLock(file)) ?? (async () => {});
    },
    held: async () => readers(root, key) > 0,
    remove: async () => {
      if (unlessMissing(() => fs.lstatSync(folder)) && !isOurs(folder)) throw foreign(`'${folder}'`);
      try {
        // The bytes first: a journal without them is not believed.
        for (const name of FILES) fs.rmSync(path.join(folder, name), { force: true });
        fs.rmSync(folder, { recursive: true, force: true });
      } catch (error) {
        if (['EBUSY', 'EPERM', 'EACCES'].includes(codeOf(error)) && process.platform === 'win32') throw busyEntry(key);
        throw error;
      }
    },
  };
}

/**
 * @param {string} file
 * @param {boolean} create
 * @returns {import('./store.js').Content | undefined}
 */
function openContent(file, create) {
  const { O_RDWR, O_RDONLY, O_CREAT } = fs.constants;
  let writable = true;
  let fd = unlessMissing(() => {
    try {
      return fs.openSync(file, create ? O_RDWR | O_CREAT : O_RDWR, 0o600);
    } catch (error) {
      if (create || !['EACCES', 'EROFS', 'EPERM'].includes(codeOf(error))) throw error;
      writable = false;
      return fs.openSync(file, O_RDONLY);
    }
  });
  if (fd === undefined) return undefined;
  const open = fd;
  const readSync = (/** @type {number} */ offset, /** @type {Uint8Array} */ target) => {
    let filled = 0;
    while (filled < target.length) {
      const count = fs.readSync(open, target, filled, target.length - filled, offset + filled);
      if (count === 0) break;
      filled += count;
    }
    return filled;
  };
  return {
    get size() {
      return fs.fstatSync(open).size;
    },
    readSync,
    read: async (offset, target) => readSync(offset, target),
    ...(writable
      ? {
          write: (/** @type {number} */ offset, /** @type {Uint8Array} */ bytes) => {
            for (let done = 0; done < bytes.length;)
              done += fs.writeSync(open, bytes, done, bytes.length - done, offset + done);
          },
        }
      : {}),
    flush: () =>
      new Promise((resolve, reject) => {
        fs.fdatasync(open, (error) => (error ? reject(error) : resolve()));
      }),
    close: () => {
      if (fd !== undefined) fs.closeSync(fd);
      fd = undefined;
    },
  };
}

// --- locks ----------------------------------------------------------------------

const STARTED = Math.round(Date.now() - process.uptime() * 1000);

/**
 * Milliseconds from the start of this machine to that of the process; NaN: the system does not say (Linux does).
 * @param {number | string} pid
 */
function startAfterBoot(pid) {
  try {
    const afterName = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\)\s*/s, '').split(' ');
    return Number(afterName[19]) * 10;
  } catch {
    return NaN;
  }
}

/**
 * @param {string} file
 * @returns {Promise<(() => Promise<void>) | undefined>}
 */
async function takeLock(file) {
  const own = JSON.stringify({
    pid: process.pid,
    host: os.hostname(),
    started: STARTED,
    id: crypto.randomUUID(),
  });
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      fs.writeFileSync(file, own, { flag: 'wx' });
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error;
      if (!removeStale(file)) return undefined;
      continue;
    }
    const beat = setInterval(() => {
      const now = new Date();
      fs.utimes(file, now, now, () => {});
    }, HEARTBEAT_MS);
    beat.unref();
    return async () => {
      clearInterval(beat);
      // Not that of another, who took it for left behind.
      if (unlessMissing(() => fs.readFileSync(file, 'utf8')) === own) fs.rmSync(file, { force: true });
    };
  }
  return undefined;
}

/** How many have it open, in any process. @param {string} root @param {string} key */
function readers(root, key) {
  const names = fs.readdirSync(root).filter((name) => name.startsWith(`${key}.`) && name.endsWith('.open'));
  return names.filter((name) => !removeStale(path.join(root, name))).length;
}

/**
 * True: the lock is gone. Should two do this at once, both may come to write:
 * the same bytes to the same places, so nothing worse than a second download.
 * @param {string} file
 */
function removeStale(file) {
  const text = unlessMissing(() => fs.readFileSync(file, 'utf8'));
  const stat = unlessMissing(() => fs.statSync(file));
  if (text === undefined || stat === undefined) return true;
  if (!isStale(text, Date.now() - stat.mtimeMs)) return false;
  const aside = `${file}.${process.pid}`;
  try {
    fs.renameSync(file, aside);
    const moved = fs.readFileSync(aside, 'utf8');
    if (moved === text) fs.rmSync(aside, { force: true });
    else fs.renameSync(aside, file); // another was quicker, and this is its own
    return moved === text;
  } catch {
    return true; // another was quicker
  }
}

/**
 * @param {string} text of the lock
 * @param {number} age milliseconds since the last heartbeat
 */
function isStale(text, age) {
  /** @type {{ pid: number, host: string, started: number }} */ let owner;
  try {
    owner = Object(JSON.parse(text));
  } catch {
    return age > HEARTBEAT_MS; // killed while it was written
  }
  if (age > STALE_MS) return true;
  if (owner.host !== os.hostname()) return false;
  if (owner.pid === process.pid) return Math.abs(owner.started - STARTED) > SAME_START_MS;
  try {
    process.kill(owner.pid, 0);
  } catch (error) {
    if (codeOf(error) === 'ESRCH') return true;
  }
  // It lives, or another has its id by now.
  const later = startAfterBoot(owner.pid) - startAfterBoot('self');
  return Math.abs(later - (owner.started - STARTED)) > SAME_START_MS;
}
