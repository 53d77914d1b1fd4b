// Buffers that are used again and again. What is read into fresh ones each time is left to the collector, and that of
// browsers lets a tenth of the model pile up before it comes.

export class Spares {
  /** @type {ArrayBuffer[]} */ #free = [];
  /** @type {WeakSet<ArrayBufferLike>} taken, and not given back */ #lent = new WeakSet();
  #least;
  #most;

  /**
   * @param {number} least bytes that a buffer has
   * @param {number} [most] how many are kept
   */
  constructor(least, most = 2) {
    this.#least = least;
    this.#most = most;
  }

  /** So many bytes, of any content. @param {number} length @returns {Uint8Array<ArrayBuffer>} */
  take(length) {
    const known = this.#free.pop();
    const buffer = known && known.byteLength >= length ? known : new ArrayBuffer(Math.max(length, this.#least));
    this.#lent.add(buffer);
    return new Uint8Array(buffer, 0, length);
  }

  /** Whether they are of here, and whoever took them may do with them what he likes. @param {Uint8Array} bytes */
  lent(bytes) {
    return this.#lent.has(bytes.buffer);
  }

  /**
   * Nobody reads or writes these bytes any more; those that are not of here are left alone.
   * @param {Uint8Array | undefined} bytes a part is enough
   */
  give(bytes) {
    if (bytes && this.#lent.delete(bytes.buffer)) this.#keep(/** @type {ArrayBuffer} */ (bytes.buffer));
  }

  /** What became of a buffer that was transferred: the same memory, another object. @param {ArrayBuffer} buffer */
  giveAnew(buffer) {
    if (buffer.byteLength >= this.#least) this.#keep(buffer);
  }

  /** @param {ArrayBuffer} buffer */
  #keep(buffer) {
    if (this.#free.length < this.#most) this.#free.push(buffer);
  }

  /** Nothing more is read for now. */
  clear() {
    this.#free = [];
  }
}
