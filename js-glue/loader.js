// Brings the bytes of the sources to the core: headers, then weights, each
// byte fetched once, and never more than MAX_CHUNK_BYTES of them held here.
import { LinealError, abortable, closedError, throwIfAborted } from './errors.js';
import { FetchLog } from './fetch-log.js';
import { Prefetcher } from './prefetch.js';
import { ProgressMeter } from './progress.js';
import { insist } from './retry.js';
import { linkedController } from './signals.js';
import { MAX_CHUNK_BYTES, allParts, openSource } from './source.js';
import { emptySource, inItsWords } from './source-words.js';
import { Spares } from './spares.js';
import { nextTurn } from './turn.js';

export const FIRST_READ_BYTES = 256 * 1024;
const MAX_READ_BYTES = 1024 * 1024;
// Reading a file is synchronous: after so many bytes, others get a turn.
const YIELD_BYTES = 16 * 1024 * 1024;

/** @typedef {import('./source.js').Descriptor} Descriptor */
/** @typedef {import('./index.d.ts').Progress} Progress */

/**
 * @typedef {object} LoadContext
 * @property {AbortSignal} [signal]
 * @property {(progress: Progress) => void} [onProgress]
 * @property {import('./source.js').RemoteRead} [remoteRead]
 * @property {string} [wasmBaseUrl] where the modules lie
 * @property {import('./threads.js').StartThread} [startThread] where not the thread that this runs in starts them
 */

export class Loader {
  #core;
  #parts;
  /** @type {import('./source.js').Source[]} */ #sources;
  /** @type {({ offset: number, bytes: Uint8Array } | undefined)[]} last chunk read of each part */ #chunks =
    [];
  #context;
  #link;
  #closed = false;
  /** @type {'cache' | 'network' | undefined} where the last bytes came from */ #from;
  /** @type {Prefetcher | undefined} */ #ahead;
  /** @type {LinealError | undefined} why the weights do not come any more */ #failure;
  /** @type {{ resolve: () => void, reject: (error: LinealError) => void }[]} who waits for bytes */ #waiting = [];
  #streams = false;
  /**
   * @type {{ part: number, offset: number, bytes: Promise<Uint8Array>, failed: boolean } | undefined}
   *   read while the core computes
   */
  #next;
  /** For what is streamed: one is read while another is used. */ #spares = new Spares(0);
  /** What feed has read so far, and how long that took. */
  reading = { bytes: 0, ms: 0 };
  fetches = new FetchLog();

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
    this.#link = linkedController(context.signal);
  }

  /** Ends what is read, when the loader is closed or told to. */
  get #signal() {
    return this.#link.controller.signal;
  }

  /** @param {Uint8Array | undefined} first bytes already read @param {boolean} firstPartOnly */
  async readHeaders(first, firstPartOnly) {
    const meter = new ProgressMeter(this.#context.onProgress, 'header', undefined, 0, () => this.#from);
    const report = (/** @type {number} */ bytes) => meter.add(bytes);
    await this.#readHeader(0, report, first);
    const count = this.#core.shardCount();
    if (firstPartOnly) return;
    this.#parts = allParts(this.#parts, count);
    for (let part = 1; part < count; part++) {
      this.#sources.push(await openSource(this.#parts[part], this.#context));
      await this.#readHeader(part, report);
    }
    meter.end();
  }

  /**
   * As #readOneHeader; what is wrong is said in words that fit the source.
   * @param {number} part @param {(bytes: number) => void} report @param {Uint8Array} [first]
   */
  async #readHeader(part, report, first) {
    const { name } = this.#sources[part];
    try {
      await this.#readOneHeader(part, report, first);
    } catch (error) {
      throw inItsWords(error, this.#parts[part], name);
    }
  }

  /**
   * @param {number} part
   * @param {(bytes: number) => void} report
   * @param {Uint8Array} [first] bytes already read
   */
  async #readOneHeader(part, report, first) {
    const source = this.#sources[part];
    const signal = this.#signal;
    let begun = false;
    let offset = 0;
    for (let step = FIRST_READ_BYTES; ; step = Math.min(step * 2, MAX_READ_BYTES)) {
      throwIfAborted(signal);
      const start = performance.now();
      const at = offset;
      let complete = false;
      let given = at === 0 ? first : undefined;
      const read = async () => {
        if (source.readSync) {
          if (!begun) this.#core.headerBegin(part, source.size);
          begun = true;
          const result = this.#core.headerFill(
            Math.min(step, Math.max((source.size ?? Infinity) - at, 1)),
            (target) => /** @type {NonNullable<typeof source.readSync>} */ (source.readSync)(at, target),
          );
          ({ complete } = result);
          return result.filled;
        }
        const bytes = given ?? (await abortable(source.read(at, step, signal), signal));
        given = undefined;
        // Only now: the size of a URL is known from its first answer.
        if (!begun) this.#core.headerBegin(part, source.size);
        begun = true;
        complete = bytes.length > 0 && this.#core.headerPush(bytes);
        // Its end may hold the first weights already: each byte is fetched once.
        this.#chunks[part] = undefined;
        if (this.#heldBytes() + bytes.length <= MAX_CHUNK_BYTES - MAX_READ_BYTES)
          this.#chunks[part] = { offset: at, bytes };
        return bytes.length;
      };
      const count = await insist(read, at < (source.size ?? 0), signal);
      if (count === 0) {
        if (at === 0) throw emptySource(this.#parts[part], source);
        this.#core.headerFinish();
        return;
      }
      this.fetches.add(part, offset, count, start);
      offset += count;
      this.#from = source.from;
      report(count);
      if (complete) {
        await source.confirm?.();
        return;
      }
    }
  }

  /** Gives another core the headers, too. @param {import('./abi.js').Core} core */
  copyHeadersTo(core) {
    core.copyHeaders(
      this.#core,
      this.#sources.map(({ size }) => size),
    );
  }

  /** From now on that core. @param {import('./abi.js').Core} core */
  moveTo(core) {
    this.#core = core;
  }

  /**
   * Weights are asked for in the order in which they are used, where the source
   * can be read in any, and nothing between them: the model will be evaluated while
   * they arrive, or not all of them are loaded.
   */
  loadAhead() {
    const anyOrder = this.#sources.every(({ rangeRead }) => rangeRead);
    const extents = this.#core.loadAhead(anyOrder);
    if (anyOrder && !this.#sources.every(({ readSync }) => readSync))
      this.#ahead = new Prefetcher(this.#sources, extents, this.#chunks, this.#signal);
    if (this.#ahead) this.#chunks = []; // it has what it needs of them
  }

  /** Every weight into its place; the core is bound already. */
  async loadWeights() {
    try {
      await this.#loadWeights();
    } catch (error) {
      throw this.#fail(error);
    } finally {
      this.#link.unlink(); // the signal was for opening
    }
  }

  async #loadWeights() {
    const signal = this.#signal;
    const before = this.#core.number('loadedBytes');
    const total = Math.max(this.#core.number('weightBytes'), before);
    const meter = new ProgressMeter(this.#context.onProgress, 'weights', total, before, () => this.#from);
    let untilYield = YIELD_BYTES;
    while (!this.#core.loadNext()) {
      throwIfAborted(signal);
      const fed = await this.feed();
      meter.add(fed);
      for (const { resolve } of this.#waiting.splice(0)) resolve();
      untilYield -= fed;
      if (untilYield <= 0) {
        untilYield = YIELD_BYTES;
        await nextTurn();
        if (this.#closed) throw closedError();
      }
    }
    for (const { resolve } of this.#waiting.splice(0)) resolve();
    for (const source of this.#sources) await source.finish?.(signal);
    meter.end();
    this.#chunks = [];
    this.#ahead = undefined;
    this.#context = { remoteRead: this.#context.remoteRead };
    this.fetches.on = false;
    this.#streams = true; // what is asked for from now on comes in no order, and in exact pieces
  }

  /** Whether all that stays in memory is there: what is asked for now is streamed. */
  get streams() {
    return this.#streams;
  }

  /**
   * Resolves when more of the weights are there than now; rejects when no more will come.
   * @returns {Promise<void>}
   */
  more() {
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
    });
  }

  /** Why not all weights are there, and never will be. */
  get failure() {
    return this.#failure;
  }

  /** The first failure is the one that counts. @param {unknown} error */
  #fail(error) {
    if (!this.#failure) {
      const { signal } = this.#context;
      const reasons = [this.#signal.reason, signal?.aborted ? signal.reason : undefined];
      const told = this.#closed ? closedError() : reasons.find((reason) => reason instanceof LinealError);
      this.#failure = told ?? LinealError.from(error);
      this.#link.controller.abort(this.#failure); // what else is on its way
    }
    for (const { reject } of this.#waiting.splice(0)) reject(this.#failure);
    return this.#failure;
  }

  /** Ends the loading, with this error. @param {LinealError} error */
  abort(error) {
    this.#link.controller.abort(error);
  }

  /**
   * Gives the core bytes that it waits for; returns how many.
   * @param {AbortSignal} [signal] of who evaluates: the core is left alone from then on
   */
  async feed(signal) {
    const start = performance.now();
    const { shard, offset } = this.#core.need();
    const fed = await this.#feed(signal);
    this.fetches.add(shard, offset, fed, start);
    this.reading.bytes += fed;
    this.reading.ms += performance.now() - start;
    return fed;
  }

  /** @param {AbortSignal} [signal] */
  async #feed(signal) {
    const { shard, offset, bytes } = this.#core.need();
    const source = this.#sources[shard];
    // What is read ahead was insisted on; what is streamed is in a file that was whole.
    const goesOn = !this.#ahead && (this.#streams || offset < (source.size ?? 0));
    let fed;
    try {
      fed = await insist(() => this.#feedFrom(shard, offset, bytes, signal), goesOn, signal, this.#signal);
    } catch (error) {
      throw this.#closed ? closedError() : error;
    }
    if (fed === undefined) return 0;
    if (fed === 0) throw this.#streams ? this.#gaveNothing(source, offset) : this.#fail(this.#core.loadEnded());
    this.#from = source.from;
    return fed;
  }

  /**
   * How many came; undefined: they are on their way, and the core computes meanwhile.
   * @param {number} shard @param {number} offset @param {number} bytes @param {AbortSignal} [signal]
   */
  async #feedFrom(shard, offset, bytes, signal) {
    const source = this.#sources[shard];
    const { readSync } = source;
    if (readSync) return this.#core.feedWith(bytes, (target) => readSync.call(source, offset, target));
    /** @type {Uint8Array | undefined} */ let chunk;
    try {
      const coming = this.#ahead?.take(shard, offset, bytes) ?? this.#chunkAt(shard, offset, bytes, signal);
      chunk = await abortable(abortable(coming, signal), this.#signal);
    } catch (error) {
      if (!(error instanceof LinealError) || error.code !== 'SOURCE_TRUNCATED' || this.#closed || this.#streams) throw error;
      const ended = this.#core.loadEnded();
      throw this.#fail(
        new LinealError(ended.code, `${ended.message} (${error.message})`, {
          remedy: ended.remedy,
          detail: { ...ended.detail, ...error.detail },
          cause: error,
        }),
      );
    }
    if (this.#closed) throw closedError();
    if (chunk && chunk.length > 0) this.#core.feed(chunk);
    this.#spares.give(chunk);
    return chunk?.length;
  }

  /**
   * While a token was computed: what stays in memory is untouched, so the next one may find the source whole again.
   * @param {import('./source.js').Source} source @param {number} offset
   */
  #gaveNothing({ name, size }, offset) {
    const all = size === undefined ? '' : ` of its ${size}`;
    return new LinealError('SOURCE_TRUNCATED', `'${name}' gave no byte from ${offset}${all} on, though it did before`, {
      remedy: 'see that the whole file is there, and try again: the model stays open',
      detail: { source: name, offset },
    });
  }

  /**
   * The bytes; undefined: they are on their way, and the core computes meanwhile.
   * @param {number} part @param {number} offset @param {number} bytes @param {AbortSignal} [signal]
   */
  async #streamedAt(part, offset, bytes, signal) {
    const next = this.#next;
    this.#next = undefined;
    // What had failed before it was asked for is read again: the source may be there again.
    if (next && next.part === part && next.offset === offset && !next.failed) return next.bytes;
    this.#spares.give(await next?.bytes.catch(() => undefined)); // given up; one read at a time
    throwIfAborted(signal);
    throwIfAborted(this.#signal);
    const reading = this.#sources[part].read(offset, bytes, this.#signal, this.#spares);
    if (!this.#core.needLater()) return reading;
    const later = { part, offset, bytes: reading, failed: false };
    reading.catch(() => { later.failed = true; }); // thrown when it is asked for
    this.#next = later;
    return undefined;
  }

  /**
   * 1 to `bytes` bytes at the offset, from the last chunk or from the source.
   * @param {number} part @param {number} offset @param {number} bytes @param {AbortSignal} [generation]
   */
  async #chunkAt(part, offset, bytes, generation) {
    if (this.#streams) return this.#streamedAt(part, offset, bytes, generation);
    let chunk = this.#chunks[part];
    if (!chunk || offset < chunk.offset || offset >= chunk.offset + chunk.bytes.length) {
      this.#chunks.fill(undefined, 0, part + 1); // let it go before the next one comes
      const source = this.#sources[part];
      const signal = this.#signal;
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
    const stats = { bytes_read: 0, requests: 0, cached_bytes: 0 };
    for (const source of this.#sources) {
      stats.bytes_read += source.stats.bytesRead;
      stats.requests += source.stats.requests;
      stats.cached_bytes += source.stats.cachedBytes ?? 0;
    }
    return stats;
  }

  /** What the sources have to say. */
  get warnings() {
    return this.#sources.flatMap((source) => source.warnings ?? []);
  }

  /** May be called again. */
  async close() {
    this.#closed = true;
    this.#chunks = [];
    this.#ahead = undefined;
    this.#link.controller.abort(closedError());
    this.#link.unlink();
    const sources = this.#sources;
    this.#sources = [];
    await Promise.all(sources.map((source) => source.close()));
  }
}
