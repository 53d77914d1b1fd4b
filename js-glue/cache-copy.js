// The copy of one model on disk: what is written, and what of it is believed.
// Bytes are written where they belong in any order; each run of them is read
// back, hashed, flushed, then entered in the journal, and is an extent from
// then on. Who may write, and where bytes come from, is the affair of cache.js.
import {
  EXTENT_BYTES,
  addExtent,
  bytesOf,
  dropLine,
  extentLine,
  headerLine,
  holes,
  indexAfter,
  parseManifest,
  wholeLine,
} from './cache-manifest.js';
import { throwIfAborted } from './errors.js';
import { wholeSha256 } from './sha256.js';
import { Spares } from './spares.js';
import { sha256Hex, unavailable } from './store.js';

/** @typedef {import('./cache-manifest.js').Extent} Extent */
/** @typedef {import('./cache-manifest.js').Range} Range */
/** @typedef {import('./cache-manifest.js').ManifestHeader} ManifestHeader */

/** Short runs are entered when there are more of them. */
const MAX_RUNS = 8;
const MAX_CHECKED = 3;

export class Copy {
  /** @type {ManifestHeader | undefined} */ header;
  /** Whether the journal exists: the header of the model was read and is sound. */ confirmed = false;
  /** @type {string | undefined} SHA-256 of the whole, once computed */ sha256;
  #entry;
  #fail;
  /** @type {Extent[]} */ #extents = [];
  /** @type {import('./store.js').Content | undefined} */ #content;
  /** @type {Range[]} written, not hashed yet */ #runs = [];
  /** @type {Range[]} on their way to be extents */ #pending = [];
  /** @type {Promise<void>} */ #sealed = Promise.resolve();
  #frozen = false;
  /** @type {WeakSet<Extent>} hashed by us */ #fresh = new WeakSet();
  /** What was written is read back into it. */ #spares = new Spares(EXTENT_BYTES, 1);
  /** @type {Map<Extent, Promise<Uint8Array | undefined>>} the last ones that were checked, or are being checked */ #checked =
    new Map();

  /**
   * @param {import('./store.js').StoreEntry} entry
   * @param {(error: unknown) => Promise<void>} fail told that an extent could not be entered
   */
  constructor(entry, fail) {
    this.#entry = entry;
    this.#fail = fail;
  }

  // --- what is there --------------------------------------------------------------

  get believedBytes() {
    return bytesOf(this.#extents);
  }

  get complete() {
    return this.header !== undefined && this.believedBytes === this.header.size;
  }

  /** Straight into memory, where the store can. */
  get readSync() {
    return this.#content?.readSync;
  }

  #unsealed() {
    return [...this.#runs, ...this.#pending].sort((a, b) => a.start - b.start);
  }

  /** What is neither believed nor written. @param {number} start @param {number} end */
  holes(start, end) {
    const unsealed = this.#unsealed();
    return holes(this.#extents, start, end).flatMap((hole) => holes(unsealed, hole.start, hole.end));
  }

  /** Whether it is believed or written. @param {number} offset */
  knows(offset) {
    return this.holes(offset, offset + 1).length === 0;
  }

  /** Where the next known bytes begin; Infinity: nowhere. @param {number} at */
  nextKnown(at) {
    const starts = this.#unsealed().map(({ start }) => start);
    const next = this.#extents[indexAfter(this.#extents, at)];
    if (next) starts.push(next.start);
    return Math.min(Infinity, ...starts.filter((start) => start > at));
  }

  /** Where the known bytes before it end. @param {number} offset */
  knownBefore(offset) {
    const ends = this.#unsealed().map(({ end }) => end);
    const extent = this.#extents[indexAfter(this.#extents, offset) - 1];
    return Math.max(extent?.end ?? 0, ...ends.filter((end) => end <= offset));
  }

  /**
   * Takes over what the store has of the model.
   * @param {boolean} writing whether lines may be appended
   * @returns {Promise<'none' | 'gone' | 'same' | 'new'>} gone: removed since it was read
   */
  async load(writing) {
    const manifest = parseManifest(await this.#entry.manifest());
    if (!manifest) return this.confirmed ? 'gone' : 'none';
    const same = this.header?.id === manifest.header.id;
    if (!same) {
      const content = await this.#entry.content(false);
      if (!content) return 'none'; // a journal without bytes is not believed
      this.#content?.close();
      this.#content = content;
      this.#runs = [];
      this.header = manifest.header;
      this.confirmed = true;
    }
    // Bytes are there before they are believed: a shorter file was damaged.
    const size = this.#content?.size ?? 0;
    const lost = manifest.extents.filter(({ end }) => end > size);
    this.#extents = manifest.extents.filter(({ end }) => end <= size);
    this.sha256 = lost.length > 0 ? undefined : manifest.sha256;
    if (writing && manifest.torn) await this.#entry.append('\n');
    if (writing && lost.length > 0) await this.#entry.append(lost.map(dropLine).join(''));
    return same ? 'same' : 'new';
  }

  // --- reading --------------------------------------------------------------------

  /**
   * 1 to `length` bytes at the offset, if they are there.
   * @param {number} offset
   * @param {number} length
   * @param {boolean} verify
   * @param {Spares} [spares] of which the bytes may be
   * @returns {Promise<{ bytes?: Uint8Array, extent?: Extent } | undefined>} with the extent, if it is of one;
   *   without bytes where that is damaged
   */
  async bytesAt(offset, length, verify, spares) {
    if (!this.#content) return undefined;
    let index = indexAfter(this.#extents, offset);
    const extent = this.#extents[index];
    if (!extent || extent.start > offset) {
      const run = this.#unsealed().find(({ start, end }) => start <= offset && offset < end);
      if (!run) return undefined;
      const bytes = await this.read(offset, Math.min(length, run.end - offset), spares);
      if (!bytes) throw unavailable('what was written cannot be read back');
      return { bytes };
    }
    if (verify && !this.#fresh.has(extent)) {
      const bytes = await this.#checkedBytes(extent, this.#extents[index + 1]);
      return { extent, bytes: bytes?.subarray(offset - extent.start, offset - extent.start + length) };
    }
    let { end } = extent;
    while (!verify && end - offset < length && this.#extents[index + 1]?.start === end)
      end = this.#extents[++index].end;
    return { extent, bytes: await this.read(offset, Math.min(length, end - offset), spares) };
  }

  /** All of these bytes, or undefined. @param {number} offset @param {number} length @param {Spares} [spares] */
  async read(offset, length, spares) {
    const target = spares?.take(length) ?? new Uint8Array(length);
    const count = await this.#content?.read(offset, target).catch(() => 0);
    return count === length ? target : undefined;
  }

  /**
   * The extent, if it is what it was; the next one is hashed while this one is used.
   * @param {Extent} extent @param {Extent | undefined} next
   */
  #checkedBytes(extent, next) {
    const checked = this.#checked;
    for (const one of next && !this.#fresh.has(next) ? [extent, next] : [extent]) {
      const bytes = checked.get(one) ?? this.#check(one);
      checked.delete(one);
      checked.set(one, bytes); // the last
    }
    for (const old of [...checked.keys()].slice(0, -MAX_CHECKED)) checked.delete(old);
    return /** @type {Promise<Uint8Array | undefined>} */ (checked.get(extent));
  }

  /** @param {Extent} extent */
  async #check(extent) {
    const bytes = await this.read(extent.start, extent.end - extent.start);
    return bytes && (await sha256Hex(bytes)) === extent.hash ? bytes : undefined;
  }

  /** Whether it was believed: of several who find it damaged, the first drops it. @param {Extent} extent */
  believes(extent) {
    return this.#extents.includes(extent);
  }

  /** It is not what it was. @param {Extent} extent */
  async forget(extent) {
    this.#extents = this.#extents.filter((other) => other !== extent);
    this.sha256 = undefined;
    await this.#entry.append(dropLine(extent));
  }

  // --- writing --------------------------------------------------------------------

  /** A new copy in place of any other; nothing of it is believed before `confirm`. @param {ManifestHeader} header */
  async start(header) {
    await this.#entry.remove();
    const content = await this.#entry.content(true);
    if (!content?.write) {
      content?.close();
      await this.#entry.remove().catch(() => {});
      throw unavailable('this thread cannot write files (open the model in a worker)');
    }
    this.#content = content;
    this.header = header;
  }

  async confirm() {
    if (!this.header || this.confirmed) return;
    await this.#entry.append(headerLine(this.header));
    await this.#entry.touch();
    this.confirmed = true;
    this.#sealRuns(false);
  }

  /**
   * Keeps what of the bytes is not known yet.
   * @param {number} at
   * @param {Uint8Array} bytes
   */
  async write(at, bytes) {
    const { write } = this.#content ?? {};
    if (this.#frozen || !write) return;
    for (const { start, end } of this.holes(at, at + bytes.length)) {
      write(start, bytes.subarray(start - at, end - at));
      this.#addRun({ start, end });
    }
    if (!this.confirmed) return;
    this.#sealRuns(false);
    if (this.#runs.length > MAX_RUNS) this.#sealRuns(true);
    await this.#sealed;
  }

  /**
   * So many more bytes are to be on their way: together with what is not believed yet
   * they stay within an extent's, which is what the end of the process costs at most.
   * @param {number} bytes
   */
  async makeSure(bytes) {
    if (!this.confirmed || this.#frozen) return;
    if (bytesOf(this.#runs) + bytes > EXTENT_BYTES) this.#sealRuns(true);
    await this.#sealed;
  }

  /** All that was written is believed, short runs too. */
  async seal() {
    if (this.confirmed && !this.#frozen) this.#sealRuns(true);
    await this.#sealed;
    this.#spares.clear();
  }

  /** @param {Range} range */
  #addRun(range) {
    this.#runs.push(range);
    this.#runs.sort((a, b) => a.start - b.start);
    this.#runs = this.#runs.reduce((/** @type {Range[]} */ merged, run) => {
      const last = merged.at(-1);
      if (last?.end === run.start) last.end = run.end;
      else merged.push(run);
      return merged;
    }, []);
  }

  /** @param {boolean} all short ones too */
  #sealRuns(all) {
    const rest = [];
    for (const run of this.#runs) {
      let { start } = run;
      while (run.end - start >= EXTENT_BYTES || (all && start < run.end)) {
        const range = { start, end: Math.min(run.end, start + EXTENT_BYTES) };
        this.#pending.push(range);
        this.#sealed = this.#sealed.then(() => this.#enter(range));
        start = range.end;
      }
      if (start < run.end) rest.push({ start, end: run.end });
    }
    this.#runs = rest;
  }

  /** @param {Range} range */
  async #enter(range) {
    if (this.#frozen) return;
    try {
      const bytes = await this.read(range.start, range.end - range.start, this.#spares);
      if (!bytes) throw unavailable('what was written cannot be read back');
      const [hash] = await Promise.all([sha256Hex(bytes), this.#content?.flush(range)]);
      this.#spares.give(bytes);
      const extent = { ...range, hash };
      await this.#entry.append(extentLine(extent));
      addExtent(this.#extents, extent);
      this.#fresh.add(extent);
      this.#pending = this.#pending.filter((other) => other !== range);
    } catch (error) {
      await this.#fail(error).catch(() => {}); // whoever reads next is told
    }
  }

  /**
   * SHA-256 of the whole; computed, if it is not known.
   * @param {string | undefined} wasmBaseUrl where the module is that hashes
   * @param {AbortSignal} [signal]
   */
  async hash(wasmBaseUrl, signal) {
    if (!this.complete) throw unavailable('the copy is not whole, so its SHA-256 cannot be computed');
    if (this.sha256) return this.sha256;
    const spares = new Spares(0, 1);
    /** @type {Uint8Array | undefined} */ let last;
    const sum = await wholeSha256(this.header?.size ?? 0, async (offset, length) => {
      throwIfAborted(signal);
      spares.give(last);
      last = await this.read(offset, length, spares);
      if (!last) throw unavailable('the copy cannot be read');
      return last;
    }, wasmBaseUrl);
    this.sha256 = sum;
    await this.#entry.append(wholeLine(sum)).catch(() => {}); // it is computed again
    return sum;
  }

  // --- ending ---------------------------------------------------------------------

  /** Nothing more is written; what is believed can be read. */
  freeze() {
    this.#frozen = true;
    this.#runs = [];
    this.#pending = [];
  }

  /** As if there had never been one. */
  async reset() {
    await this.#sealed;
    this.close();
    this.header = undefined;
    this.confirmed = false;
    this.sha256 = undefined;
    this.#extents = [];
    this.#runs = [];
    this.#pending = [];
    this.#checked.clear();
  }

  close() {
    this.#content?.close();
    this.#content = undefined;
  }
}
