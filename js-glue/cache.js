// A source that keeps what it reads: bytes from the network go to disk as they
// pass, and what is believed is read from there, straight into linear memory
// where the whole model is. One at a time fetches: the others read what it has
// finished, and go on without it where it finishes nothing. When the store
// fails, the model goes on without it.
import { makeRoom } from './cache-admin.js';
import { Copy } from './cache-copy.js';
import { bytesOf, sameFile } from './cache-manifest.js';
import { WriteRight } from './cache-right.js';
import { Watch } from './cache-watch.js';
import { isNode } from './caps.js';
import { LinealError, throwIfAborted } from './errors.js';
import { isGguf } from './http-answer.js';
import { pause } from './retry.js';
import { Spares } from './spares.js';
import { fullError, keyOf, openStore, storeError, unavailable } from './store.js';

/** @typedef {import('./source.js').Source} Source */
/** @typedef {import('./options.js').CacheSettings} CacheSettings */

const MAX_READ_BYTES = 4 * 1024 * 1024;
const PROBE_BYTES = 256 * 1024;
const STREAM_AHEAD_BYTES = 2 * 1024 * 1024;
// Padding between tensors is fetched with them, so that the copy gets whole.
const MAX_GAP_BYTES = 1024 * 1024;
// At the end so much is fetched that no step needs; a file with more stays incomplete.
const MAX_REST_BYTES = 16 * 1024 * 1024;
const POLL_MS = 100;
/** Who has the right to write and writes nothing for so long is not waited for. */
const PATIENCE_MS = 6000;
/** Where the cache is demanded. */
const MORE_PATIENCE = 10;
const NOTHING = new Uint8Array(0);

/**
 * The source with a cache, or without and with a warning where there is none.
 * @param {Source} inner
 * @param {CacheSettings} settings
 * @param {{ url: string, part: number, signal?: AbortSignal, wasmBaseUrl?: string }} what part: from 0
 * @returns {Promise<Source>}
 */
export async function cachedSource(inner, settings, what) {
  let store;
  try {
    store = await openStore(settings.directory);
  } catch (error) {
    const failure = error instanceof LinealError ? error : unavailable(String(error), error);
    if (settings.required) throw failure;
    inner.warnings = [{ code: failure.code, text: failure.message }];
    return inner;
  }
  return CachedSource.open(inner, store, settings, what);
}

export class CachedSource {
  name;
  /** @type {import('./index.d.ts').Reason[]} */ warnings = [];
  /** @type {'cache' | 'network'} where the last bytes came from */ from = 'network';
  /** @type {((offset: number, target: Uint8Array) => number) | undefined} only of a whole copy */ readSync;
  /** What stays in memory was read. */ #finished = false;
  #inner;
  #store;
  #settings;
  #entry;
  #copy;
  /** @type {string | undefined} SHA-256 that the user gave */ #expected;
  /** @type {string | undefined} where the module is that hashes */ #wasmBaseUrl;
  #right;
  #watch;
  /** Whether bytes came past the lock: those of another file may not follow. */ #passed = false;
  /** Whether the model's header was read and is sound. */ #sound = false;
  /** Whether others have made room for this model. */ #roomMade = false;
  /** @type {(() => Promise<void>) | undefined} others do not evict it */ #release;
  /** @type {Promise<void> | undefined} */ #looking;
  /** @type {Promise<void>} what came before is kept */ #kept = Promise.resolve();
  /** @type {{ start: number, end: number, bytes: number, done: Promise<void> }[]} asked of the network */ #coming = [];
  /** Nothing more is kept. */ #off = false;
  /** Whether bytes of the copy were given out: those of another file may not follow. */ #handedOut = false;
  /** @type {LinealError | undefined} what ended a cache that was demanded */ #failure;
  #cachedBytes = 0;
  /** For forward reads. */ #spares = new Spares(0, 1);
  /** @type {Uint8Array | undefined} what the last of them gave */ #forward;

  /**
   * @param {Source} inner
   * @param {import('./store.js').Store} store
   * @param {CacheSettings} settings
   * @param {{ url: string, part?: number, signal?: AbortSignal, wasmBaseUrl?: string, patienceMs?: number }} what
   */
  static async open(inner, store, settings, { url, part = 0, signal, wasmBaseUrl, patienceMs = PATIENCE_MS }) {
    const source = new CachedSource(inner, store, settings, store.entry(await keyOf(url)), part, patienceMs);
    source.#wasmBaseUrl = wasmBaseUrl;
    try {
      await source.#begin(signal);
      return source;
    } catch (error) {
      await source.close().catch(() => {});
      throw error;
    }
  }

  /**
   * @param {Source} inner
   * @param {import('./store.js').Store} store
   * @param {CacheSettings} settings
   * @param {import('./store.js').StoreEntry} entry
   * @param {number} part
   * @param {number} patienceMs
   */
  constructor(inner, store, settings, entry, part, patienceMs) {
    this.name = inner.name;
    this.#inner = inner;
    this.#store = store;
    this.#settings = settings;
    this.#entry = entry;
    this.#copy = new Copy(entry, (error) => this.#giveUp(error));
    this.#right = new WriteRight(entry, {
      taken: async () => {
        this.#watch.reset();
        await this.#look(); // another may have written
      },
      failed: async (error) => {
        if (error instanceof LinealError && error.code === 'SOURCE_CHANGED') throw error;
        await this.#giveUp(error);
      },
      idle: async () => {
        if (this.#coming.length === 0 && this.#copy.confirmed) await this.#letGo();
      },
    });
    this.#expected = settings.sha256[part];
    this.#watch = new Watch(entry, settings.required ? patienceMs * MORE_PATIENCE : patienceMs);
  }

  get size() {
    return this.#copy.header?.size ?? this.#inner.size;
  }

  get rangeRead() {
    return this.#copy.complete || this.#inner.rangeRead;
  }

  /** Reads of the copy do not disturb each other either. */
  get parallelReads() {
    return this.#inner.parallelReads ?? 1;
  }

  get stats() {
    const { bytesRead, requests } = this.#inner.stats;
    return { bytesRead: bytesRead + this.#cachedBytes, requests, cachedBytes: this.#cachedBytes };
  }

  // --- opening ------------------------------------------------------------------

  /** @param {AbortSignal} [signal] */
  async #begin(signal) {
    const copy = this.#copy;
    try {
      this.#release = await this.#entry.hold().catch(() => undefined); // of a folder that can only be read
      await this.#reload();
    } catch (error) {
      await this.#giveUp(error);
      return;
    }
    if (!copy.header) return;
    await this.#entry.touch();
    if (this.#expected && copy.sha256 && copy.sha256 !== this.#expected) await this.#drop();
    else if (!copy.complete || this.#settings.revalidate) await this.#probe(signal);
    if (!copy.complete) return;
    if (this.#expected && this.#expected !== (await copy.hash(this.#wasmBaseUrl, signal))) {
      await this.#drop(); // it is not what was asked for: fetch that
      return;
    }
    this.#readDirectly();
  }

  /** A whole copy is read straight into memory, where the store can. */
  #readDirectly() {
    const { readSync, complete } = this.#copy;
    if (!complete || !readSync || this.#off || this.#settings.verify) return;
    this.readSync = (offset, target) => {
      let count = 0;
      try {
        count = readSync(offset, target);
      } catch {
        // The disk, or another has cut the file. What is damaged is fetched again, by the other way of reading.
      }
      if (count === 0 && offset < (this.size ?? 0)) this.readSync = undefined;
      this.from = 'cache';
      this.#cachedBytes += count;
      return count;
    };
  }

  /**
   * Asks the server whether the copy is still that of its file. Of a copy with
   * holes the first bytes that lack are asked for: they are needed anyway.
   * @param {AbortSignal} [signal]
   */
  async #probe(signal) {
    const [hole = { start: 0, end: 1 }] = this.#copy.holes(0, this.size ?? 0);
    // Another downloads: it has asked.
    if (!(await this.#right.take())) return;
    try {
      await this.#fetchAt(hole.start, Math.min(hole.end - hole.start, PROBE_BYTES), false, signal);
    } catch (error) {
      if (!(error instanceof LinealError) || error === this.#failure) throw error;
      if (error.code === 'ABORTED' || error.code === 'SOURCE_CHANGED') throw error;
      // Offline, perhaps: what is there can be read, and what is not will tell.
      if (this.#copy.complete) {
        this.warnings.push({
          code: 'CACHE_NOT_REVALIDATED',
          text: `the server could not be asked whether ${this.name} has changed: ${error.message}`,
        });
      }
    }
  }

  /** Takes over what the store has. */
  async #reload() {
    const known = this.#copy.header;
    const state = await this.#copy.load(this.#right.ours);
    // Removed under our hands: what is open can be read, and nothing more is written.
    if (state === 'gone') await this.#stop();
    const { header } = this.#copy;
    if (state === 'new' && known && header && this.#handedOut && !sameFile(known, header)) throw this.#changed();
    if (state === 'new' && header && this.#passed && !sameFile(header, this.#inner)) throw this.#changed();
  }

  /** Takes over what others have done meanwhile; of several who ask at once, for all. */
  #look() {
    this.#looking ??= (async () => {
      try {
        await this.#reload();
      } catch (error) {
        if (error instanceof LinealError && error.code === 'SOURCE_CHANGED') throw error;
        await this.#giveUp(error);
      }
    })().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  // --- reading ------------------------------------------------------------------

  /** @param {number} offset @param {number} length @param {AbortSignal} [signal] @param {Spares} [spares] */
  read(offset, length, signal, spares) {
    return this.#get(offset, length, false, signal, spares);
  }

  /** @param {number} offset @param {number} length @param {AbortSignal} [signal] */
  async readForward(offset, length, signal) {
    this.#spares.give(this.#forward); // valid until now
    this.#forward = undefined;
    return (this.#forward = await this.#get(offset, length, true, signal, this.#spares));
  }

  /**
   * @param {number} offset @param {number} length @param {boolean} forward @param {AbortSignal} [signal]
   * @param {Spares} [spares]
   * @returns {Promise<Uint8Array>}
   */
  async #get(offset, length, forward, signal, spares) {
    const wanted = Math.min(length, MAX_READ_BYTES);
    for (;;) {
      throwIfAborted(signal);
      if (this.#failure) throw this.#failure;
      if (this.size !== undefined && offset >= this.size) return NOTHING;
      const kept = await this.#fromCopy(offset, wanted, spares);
      if (kept) {
        // What was streamed once, of a model larger than memory, is all there from the second time on.
        if (this.#finished && !this.readSync) this.#readDirectly();
        return kept;
      }
      if (this.#off) return this.#uncached(offset, wanted, forward, signal, spares);
      const coming = this.#coming.find(({ start, end }) => start <= offset && offset < end);
      if (coming) {
        await coming.done;
        continue;
      }
      // Whoever has just got the lock looks again: another may have fetched it.
      const had = this.#right.ours;
      if (await this.#right.take()) {
        const bytes = had && (await this.#fetch(offset, wanted, forward, signal, spares));
        if (bytes) return bytes;
      } else if (!this.#off) {
        if (await this.#watch.rests()) return this.#pastLock(offset, wanted, forward, signal, spares);
        await pause(POLL_MS, signal);
        await this.#look();
      }
    }
  }

  /**
   * From disk; undefined: it is not there.
   * @param {number} offset @param {number} length @param {Spares} [spares]
   */
  async #fromCopy(offset, length, spares) {
    let found;
    try {
      found = await this.#copy.bytesAt(offset, length, this.#settings.verify, spares);
    } catch (error) {
      await this.#giveUp(error);
    }
    if (!found?.extent) return found?.bytes;
    const { extent, bytes } = found;
    if (bytes) {
      this.from = 'cache';
      this.#handedOut = true;
      this.#cachedBytes += bytes.length;
      return bytes;
    }
    if (!this.#copy.believes(extent)) return undefined;
    const { start, end } = extent;
    this.warnings.push({
      code: 'CACHE_REPAIRED',
      text: `${end - start} bytes from ${start} of the cached copy of ${this.name} were damaged and are fetched again`,
    });
    try {
      await this.#copy.forget(extent);
    } catch (error) {
      await this.#giveUp(error);
    }
    return undefined;
  }

  /**
   * @param {number} offset @param {number} length @param {boolean} forward @param {AbortSignal} [signal]
   * @param {Spares} [spares]
   */
  async #uncached(offset, length, forward, signal, spares) {
    const { readForward } = this.#inner;
    const bytes = await (forward && readForward
      ? readForward.call(this.#inner, offset, length, signal)
      : this.#inner.read(offset, length, signal, spares));
    this.from = 'network';
    const { header } = this.#copy;
    if (this.#handedOut && header && !sameFile(header, this.#inner)) throw this.#changed();
    return bytes;
  }

  /**
   * From the network, and not kept: another has the right to write, and does not.
   * @param {number} offset @param {number} length @param {boolean} forward @param {AbortSignal} [signal] @param {Spares} [spares]
   */
  async #pastLock(offset, length, forward, signal, spares) {
    const text = `another tab or process is to download ${this.name}, and has written nothing for ${this.#watch.seconds} seconds`;
    if (this.#settings.required) {
      this.#failure ??= unavailable(text);
      throw this.#failure;
    }
    if (!this.warnings.some(({ code }) => code === 'CACHE_BUSY'))
      this.warnings.push({ code: 'CACHE_BUSY', text: `${text}; the model is read from the network, and not kept` });
    this.#passed = true;
    const upTo = Math.min(length, this.#copy.nextKnown(offset) - offset);
    const bytes = await this.#uncached(offset, upTo, forward, signal, spares);
    const { header } = this.#copy;
    if (header && !sameFile(header, this.#inner)) await this.#stop();
    return bytes;
  }

  // --- fetching -----------------------------------------------------------------

  /**
   * From the network; undefined: only the gap before it came so far.
   * @param {number} offset @param {number} length @param {boolean} forward @param {AbortSignal} [signal]
   * @param {Spares} [spares]
   */
  async #fetch(offset, length, forward, signal, spares) {
    // It came, or was asked for, while we waited for the lock.
    const asked = this.#coming.some(({ start, end }) => start <= offset && offset < end);
    if (asked || this.#copy.knows(offset)) return undefined;
    const ends = this.#coming.map(({ end }) => end).filter((end) => end <= offset);
    const before = Math.max(this.#copy.knownBefore(offset), ...ends);
    const skip = this.#copy.header && offset - before <= MAX_GAP_BYTES ? offset - before : 0;
    const bytes = await this.#fetchAt(offset - skip, skip + length, forward, signal, spares);
    if (bytes.length === 0) return NOTHING;
    return bytes.length > skip ? bytes.subarray(skip, skip + length) : undefined;
  }

  /**
   * Bytes from the network, which are kept: more than asked for where a hole is
   * to be closed, since a stream would go on over what is there already.
   * @param {number} at @param {number} length @param {boolean} forward @param {AbortSignal} [signal]
   * @param {Spares} [spares]
   */
  async #fetchAt(at, length, forward, signal, spares) {
    this.#right.keep();
    const starts = this.#coming.map(({ start }) => start).filter((start) => start > at);
    const limit = Math.min(this.#copy.nextKnown(at), ...starts);
    const { readForward } = this.#inner;
    const streamed = forward && readForward && limit === Infinity;
    const wanted = streamed ? length : Math.min(forward ? MAX_READ_BYTES : length, limit - at);
    // A stream runs ahead by what the system buffers, whatever is asked of it.
    const ahead = streamed ? STREAM_AHEAD_BYTES : wanted;
    const work = (async () => {
      await this.#copy.makeSure(this.#coming.reduce((sum, { bytes }) => sum + bytes, ahead));
      const bytes = streamed
        ? await readForward.call(this.#inner, at, wanted, signal)
        : await this.#inner.read(at, wanted, signal, spares);
      this.from = 'network';
      await this.#keep(at, bytes);
      return bytes;
    })();
    const coming = { start: at, end: at + wanted, bytes: ahead, done: work.then(() => {}, () => {}) };
    this.#coming.push(coming);
    try {
      return await work;
    } finally {
      this.#coming.splice(this.#coming.indexOf(coming), 1);
      if (this.#coming.length === 0) this.#right.letGoWhenIdle();
    }
  }

  /** One after the other: the first of a new file makes the copy of which the others are. @param {number} at @param {Uint8Array} bytes */
  #keep(at, bytes) {
    const work = this.#kept.then(() => this.#keepNext(at, bytes));
    this.#kept = work.catch(() => {});
    return work;
  }

  /** @param {number} at @param {Uint8Array} bytes */
  async #keepNext(at, bytes) {
    if (this.#off) return;
    const { header } = this.#copy;
    try {
      if (header && !sameFile(header, this.#inner)) {
        const told = this.#handedOut;
        await this.#drop();
        if (told) throw this.#changed();
        if (!this.#off) await this.#start();
      } else if (!header) {
        // A page in place of a model is not worth a file; what is believed, the core decides.
        if (at === 0 && !isGguf(bytes)) {
          await this.#stop();
          return;
        }
        await this.#start();
      }
      if (this.#copy.header) await this.#makeRoom(this.#copy.header.size);
      if (this.#sound && !this.#off) await this.#copy.confirm();
      await this.#copy.write(at, bytes);
    } catch (error) {
      if (error instanceof LinealError && error.code === 'SOURCE_CHANGED') throw error;
      await this.#giveUp(error);
    }
  }

  /** A new copy, if there is room for it. */
  async #start() {
    const { size, version = {} } = this.#inner;
    if (size === undefined) throw unavailable(`the server does not say how long ${this.name} is`);
    this.#roomMade = false;
    await this.#makeRoom(size);
    const space = await this.#store.space().catch(() => undefined);
    if (space && space.available < size) throw await fullError(this.#store, size, 0);
    await this.#copy.start({ id: crypto.randomUUID(), name: this.name, size, ...version, created: Date.now() });
  }

  /** Of all that is cached, no more is left than may be. @param {number} size of this model */
  async #makeRoom(size) {
    const { maxBytes } = this.#settings;
    if (this.#roomMade) return;
    this.#roomMade = true;
    if (maxBytes === 0 || (await makeRoom(this.#store, this.#entry.key, size, maxBytes))) return;
    const others = size > maxBytes ? '' : ', and others are in use';
    throw new LinealError('CACHE_FULL', `${this.name} has ${size} bytes, and the cache may hold ${maxBytes}${others}`, {
      remedy: 'raise cache.maxBytes, or open the model with cache: false',
      detail: { place: this.#store.place, needed_bytes: size, max_bytes: maxBytes },
    });
  }

  /** The header was read and is sound: from now on what comes is believed. */
  async confirm() {
    this.#sound = true;
    if (this.#off) return;
    try {
      await this.#copy.confirm();
    } catch (error) {
      await this.#giveUp(error);
    }
  }

  // --- ending -------------------------------------------------------------------

  /** Believes what is written, and lets others write. */
  async #letGo() {
    this.#right.keep();
    await this.#copy.seal();
    await this.#right.letGo();
  }

  /**
   * All weights are in memory: makes the copy whole, and compares it with what
   * the user expects.
   * @param {AbortSignal} [signal]
   */
  async finish(signal) {
    const copy = this.#copy;
    this.#finished = true;
    if (this.#failure) throw this.#failure;
    if (copy.header && !this.#off && !copy.complete) {
      try {
        await this.#fetchRest(signal);
      } catch (error) {
        // The model is there, and so is what was kept of it.
        if (this.#expected || (error instanceof LinealError && error.code === 'ABORTED')) throw error;
      }
    }
    if (this.#right.ours) await this.#letGo();
    await this.#inner.finish?.();
    this.#spares.clear();
    this.#forward = undefined;
    if (this.#failure) throw this.#failure;
    const expected = this.#expected ?? this.#stated;
    if (!expected) return;
    const actual = await copy.hash(this.#wasmBaseUrl, signal);
    if (actual === expected) return;
    const who = this.#expected ? 'was expected' : 'is what the server says that it has';
    await this.#drop();
    throw new LinealError('SOURCE_CHECKSUM', `${this.name} has the SHA-256 ${actual}, and ${expected} ${who}`, {
      detail: { source: this.name, expected, actual },
    });
  }

  /** What the server states, where it can be compared and was not yet, and costs little or was asked for. */
  get #stated() {
    const { header, complete, sha256 } = this.#copy;
    return complete && !sha256 && !this.#off && (isNode || this.#settings.verify) ? header?.statedSha256 : undefined;
  }

  /** @param {AbortSignal} [signal] */
  async #fetchRest(signal) {
    const rest = this.#copy.holes(0, this.size ?? 0);
    if (!this.#expected && (bytesOf(rest) > MAX_REST_BYTES || !(await this.#right.take()))) return;
    for (const { start, end } of rest) {
      for (let at = start; at < end;) {
        const bytes = await this.#get(at, end - at, false, signal);
        if (bytes.length === 0) return;
        at += bytes.length;
      }
    }
  }

  /** The copy is worth nothing. */
  async #drop() {
    this.readSync = undefined;
    await this.#copy.reset();
    try {
      if (await this.#right.takeAsItIs()) await this.#entry.remove();
      else await this.#stop();
    } catch (error) {
      await this.#giveUp(error);
    }
  }

  /** Goes on uncached. */
  async #stop() {
    this.#off = true;
    this.#copy.freeze();
    await this.#right.letGo().catch(() => {});
  }

  /** The store failed. @param {unknown} error */
  async #giveUp(error) {
    const written = this.#copy.believedBytes;
    const failure = await storeError(error, this.#store, { needed: (this.size ?? 0) - written, written });
    const again = this.#off;
    await this.#stop();
    if (this.#settings.required) {
      this.#failure ??= failure;
      throw this.#failure;
    }
    if (!again) this.warnings.push({ code: failure.code, text: `${failure.message}; the model runs uncached` });
  }

  #changed() {
    return new LinealError('SOURCE_CHANGED', `${this.name} has changed since a part of it was cached; that part is dropped`, {
      remedy: 'open it again',
      detail: { source: this.name },
    });
  }

  async close() {
    const { header, confirmed } = this.#copy;
    if (header && !confirmed && this.#right.ours) {
      this.#copy.freeze();
      this.#copy.close();
      await this.#entry.remove().catch(() => {});
    }
    await this.#letGo().catch(() => {});
    await this.#release?.().catch(() => {});
    this.#release = undefined;
    this.#off = true;
    this.#copy.close();
    await this.#inner.close();
  }
}
