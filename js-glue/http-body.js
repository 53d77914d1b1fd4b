// The body of an answer, read piece by piece into one buffer that is passed to the browser and comes back with each
// piece; where bodies cannot be read so, each piece has a buffer of its own.
import { isNode } from './caps.js';
import { Spares } from './spares.js';

const BUFFER_BYTES = 1024 * 1024;
const NOTHING = new Uint8Array(0);

/** @typedef {{ bytes: Uint8Array, filled: number }} Collected how much of the bytes came */

/** Buffers for the bodies of one source. @param {number} most how many are kept */
export const bodyBuffers = (most) => new Spares(BUFFER_BYTES, most);

export class BodyStream {
  /** @type {ReadableStreamDefaultReader<Uint8Array> | undefined} */ #reader;
  /** @type {ReadableStreamBYOBReader | undefined} reads into our buffer */ #filler;
  /** @type {ArrayBuffer | undefined} ours, while nothing is read into it */ #buffer;
  /** Whether somebody may be looking at the buffer. */ #shown = false;
  /** @type {Uint8Array} */ #rest = NOTHING;
  #stats;
  #watch;
  #spares;

  /**
   * @param {Response} response
   * @param {{ bytesRead: number }} stats
   * @param {number} position of its first byte in the file
   * @param {{ inTime: <T>(promise: Promise<T>, onTimeout: () => void) => Promise<T>, ended: () => void }} watch
   * @param {Spares} spares of bodyBuffers
   */
  constructor({ body }, stats, position, watch, spares) {
    this.#watch = watch;
    this.#spares = spares;
    this.#stats = stats;
    this.position = position;
    if (!body) return;
    try {
      // Node would make a buffer for each piece all the same, and then copy it.
      if (!isNode) this.#filler = body.getReader({ mode: 'byob' });
    } catch {
      // it is no stream of bytes here
    }
    if (!this.#filler) this.#reader = body.getReader();
  }

  /**
   * 1 to `length` bytes, none at the end. Valid until the next ones are asked for.
   * @param {number} length
   * @returns {Promise<Uint8Array>}
   */
  take(length) {
    this.#shown = true;
    return this.#take(length);
  }

  /** @param {number} length @returns {Promise<Uint8Array>} */
  async #take(length) {
    while (this.#rest.length === 0) {
      const part = await this.#next();
      if (!part) {
        this.#watch.ended();
        return NOTHING;
      }
      this.#rest = part;
      this.#stats.bytesRead += part.length;
    }
    const bytes = this.#rest.subarray(0, length);
    this.#rest = this.#rest.subarray(bytes.length);
    this.position += bytes.length;
    return bytes;
  }

  /** The next piece; undefined: that was all. @returns {Promise<Uint8Array | undefined>} */
  async #next() {
    const cancel = () => this.cancel();
    if (!this.#filler) {
      const { value, done } = (await (this.#reader && this.#watch.inTime(this.#reader.read(), cancel))) ?? { done: true };
      return done ? undefined : value;
    }
    /** @type {Uint8Array<ArrayBuffer>} */
    const view = this.#buffer ? new Uint8Array(this.#buffer) : this.#spares.take(BUFFER_BYTES);
    this.#buffer = undefined; // an answer that fails or is given up keeps it
    const { value, done } = await this.#watch.inTime(this.#filler.read(view), cancel);
    this.#buffer = value?.buffer;
    return done ? undefined : value;
  }

  /**
   * Goes on until so many are there, or the body ends.
   * @param {Collected} got
   * @param {number} until
   */
  async collect(got, until) {
    while (got.filled < until) {
      const bytes = await this.#take(until - got.filled);
      if (bytes.length === 0) return;
      got.bytes.set(bytes, got.filled);
      got.filled += bytes.length;
    }
  }

  /** It is not read any more. */
  cancel() {
    this.#watch.ended();
    this.#rest = NOTHING;
    if (this.#buffer && !this.#shown) this.#spares.giveAnew(this.#buffer);
    this.#buffer = undefined;
    (this.#filler ?? this.#reader)?.cancel().catch(() => {});
  }
}
