// Brings the bytes of the sources to the core: headers, then weights, each
// byte fetched once, and never more than MAX_CHUNK_BYTES of them held here.
import { LinealError, abortable, closedError, throwIfAborted } from './errors.js';
import { MAX_CHUNK_BYTES, allParts, openSource } from './source.js';
import { nextTurn } from './turn.js';

export const FIRST_READ_BYTES = 256 * 1024;
const MAX_READ_BYTES = 1024 * 1024;
// Reading a file is synchronous: after so many bytes, others get a turn.
const YIELD_BYTES = 16 * 1024 * 1024;
const PROGRESS_INTERVAL_MS = 30;

/** @typedef {import('./source.js').Descriptor} Descriptor */
/** @typedef {import('./index.d.ts').Progress} Progress */

/**
 * @typedef {object} LoadContext
 * @property {AbortSignal} [signal]
 * @property {(progress: Progress) => void} [onProgress]
 * @property {import('./source.js').RemoteRead} [remoteRead]
 * @property {boolean} [endsWithWorker] the worker that this runs in is terminated after the engine
 */

export class Loader {
  #core;
  #parts;
  /** @type {import('./source.js').Source[]} */ #sources;
  /** @type {({ offset: number, bytes: Uint8Array } | undefined)[]} last chunk read of each part */ #chunks =
    [];
  #context;
  #closed = false;
  #streams = false;
  /** @type {{ part: number, offset: number, bytes: Promise<Uint8Array> } | undefined} being read */ #ahead;
  /** What feed has read so far, and how long that took. */
  reading = { bytes: 0, ms: 0 };

  /**
   * @param {import('./abi.js').Core} core
   * @param {Descriptor[]} parts
   * @param {import('./source.js').Source} first the first part, open
   * @param {LoadContext} context
   */
  constructor(core, parts, first, context) {
    this.#core = core;
    this.#parts = parts;
    this.#sources = [first];
    this.#context = context;
  }

  /** @param {Uint8Array | undefined} first bytes already read @param {boolean} firstPartOnly */
  async readHeaders(first, firstPartOnly) {
    let loaded = 0;
    const report = (/** @type {number} */ bytes) => {
      loaded += bytes;
      this.#context.onProgress?.({ phase: 'header', loaded, total: undefined });
    };
    await this.#readOneHeader(0, report, first);
    const count = this.#core.shardCount();
    if (firstPartOnly) return;
    this.#parts = allParts(this.#parts, count);
    for (let part = 1; part < count; part++) {
      this.#sources.push(await openSource(this.#parts[part], this.#context));
      await this.#readOneHeader(part, report);
    }
    this.#context.onProgress?.({ phase: 'header', loaded, total: loaded });
  }

  /**
   * @param {number} part
   * @param {(bytes: number) => void} report
   * @param {Uint8Array} [first] bytes already read
   */
  async #readOneHeader(part, report, first) {
    const source = this.#sources[part];
    const { signal } = this.#context;
    let begun = false;
    let offset = 0;
    for (let step = FIRST_READ_BYTES; ; step = Math.min(step * 2, MAX_READ_BYTES)) {
      throwIfAborted(signal);
      let complete;
      let count;
      if (source.readSync) {
        if (!begun) this.#core.headerBegin(part, source.size);
        const at = offset;
        const result = this.#core.headerFill(
          Math.min(step, Math.max((source.size ?? Infinity) - offset, 1)),
          (target) => /** @type {NonNullable<typeof source.readSync>} */ (source.readSync)(at, target),
        );
        ({ complete, filled: count } = result);
      } else {
        const bytes = (offset === 0 && first) || (await abortable(source.read(offset, step, signal), signal));
        // Only now: the size of a URL is known from its first answer.
        if (!begun) this.#core.headerBegin(part, source.size);
        count = bytes.length;
        complete = count > 0 && this.#core.headerPush(bytes);
        // Its end may hold the first weights already: each byte is fetched once.
        this.#chunks[part] = undefined;
        if (this.#heldBytes() + count <= MAX_CHUNK_BYTES - MAX_READ_BYTES)
          this.#chunks[part] = { offset, bytes };
      }
      begun = true;
      if (count === 0) {
        this.#core.headerFinish();
        return;
      }
      offset += count;
      report(count);
      if (complete) return;
    }
  }

  /** Every weight into its place; the core is bound already. */
  async loadWeights() {
    const { signal, onProgress } = this.#context;
    const before = this.#core.number('loadedBytes');
    const total = Math.max(this.#core.number('weightBytes'), before);
    let loaded = before;
    let lastReport = -Infinity;
    let untilYield = YIELD_BYTES;
    while (!this.#core.loadNext()) {
      throwIfAborted(signal);
      const fed = await this.feed();
      loaded = Math.min(loaded + fed, total);
      untilYield -= fed;
      const now = performance.now();
      if (onProgress && now - lastReport >= PROGRESS_INTERVAL_MS) {
        lastReport = now;
        onProgress({ phase: 'weights', loaded, total });
      }
      if (untilYield <= 0) {
        untilYield = YIELD_BYTES;
        await nextTurn();
      }
    }
    onProgress?.({ phase: 'weights', loaded: total, total });
    this.#chunks = [];
    this.#streams = true; // what is asked for from now on comes in no order, and in exact pieces
    this.#context = { remoteRead: this.#context.remoteRead }; // the signal was for opening
  }

  /** Gives the core bytes that it waits for; returns how many. */
  async feed() {
    const start = performance.now();
    const fed = await this.#feed();
    this.reading.bytes += fed;
    this.reading.ms += performance.now() - start;
    return fed;
  }

  async #feed() {
    const { shard, offset, bytes } = this.#core.need();
    const source = this.#sources[shard];
    const { readSync } = source;
    if (readSync) {
      const filled = this.#core.feedWith(bytes, (target) => readSync.call(source, offset, target));
      if (filled === 0) throw this.#core.loadEnded();
      return filled;
    }
    let chunk;
    try {
      chunk = await this.#chunkAt(shard, offset, bytes);
    } catch (error) {
      if (!(error instanceof LinealError) || error.code !== 'SOURCE_TRUNCATED') throw error;
      const ended = this.#core.loadEnded();
      throw new LinealError(ended.code, `${ended.message} (${error.message})`, {
        remedy: ended.remedy,
        detail: { ...ended.detail, ...error.detail },
        cause: error,
      });
    }
    if (this.#closed) throw closedError();
    if (!chunk) return 0;
    if (chunk.length === 0) throw this.#core.loadEnded();
    this.#core.feed(chunk);
    return chunk.length;
  }

  /**
   * The bytes; undefined: they are on their way, and the core computes meanwhile.
   * @param {number} part @param {number} offset @param {number} bytes
   */
  async #streamedAt(part, offset, bytes) {
    const ahead = this.#ahead;
    this.#ahead = undefined;
    if (ahead && ahead.part === part && ahead.offset === offset) return ahead.bytes;
    await ahead?.bytes.catch(() => {}); // given up; one read at a time
    const reading = this.#sources[part].read(offset, bytes);
    if (!this.#core.needLater()) return reading;
    reading.catch(() => {}); // thrown when it is asked for
    this.#ahead = { part, offset, bytes: reading };
    return undefined;
  }

  /**
   * 1 to `bytes` bytes at the offset, from the last chunk or from the source.
   * @param {number} part @param {number} offset @param {number} bytes
   */
  async #chunkAt(part, offset, bytes) {
    if (this.#streams) return this.#streamedAt(part, offset, bytes);
    let chunk = this.#chunks[part];
    if (!chunk || offset < chunk.offset || offset >= chunk.offset + chunk.bytes.length) {
      this.#chunks.fill(undefined, 0, part + 1); // let it go before the next one comes
      const source = this.#sources[part];
      const { signal } = this.#context;
      if (source.readForward) return abortable(source.readForward(offset, bytes, signal), signal);
      chunk = {
        offset,
        bytes: await abortable(source.read(offset, MAX_CHUNK_BYTES - this.#heldBytes(), signal), signal),
      };
      this.#chunks[part] = chunk;
    }
    return chunk.bytes.subarray(offset - chunk.offset, offset - chunk.offset + bytes);
  }

  #heldBytes() {
    return this.#chunks.reduce((sum, chunk) => sum + (chunk?.bytes.length ?? 0), 0);
  }

  /** Bytes read and requests made, of all parts. */
  get stats() {
    const stats = { bytes_read: 0, requests: 0 };
    for (const source of this.#sources) {
      stats.bytes_read += source.stats.bytesRead;
      stats.requests += source.stats.requests;
    }
    return stats;
  }

  /** May be called again. */
  async close() {
    this.#closed = true;
    this.#chunks = [];
    const sources = this.#sources;
    this.#sources = [];
    await Promise.all(sources.map((source) => source.close()));
  }
}
