// Which bytes were read from the sources, and when: for traces.

/** Numbers of a read: part, offset in its file, bytes, start and end on the clock of performance.now(). */
export const FETCH_NUMBERS = 5;
const MAX_READS = 16_384;
// Reads that follow one another are told as one up to this size: a network gives small pieces.
const JOINED_BYTES = 1024 * 1024;

export class FetchLog {
  #numbers = new Float64Array(FETCH_NUMBERS * 64);
  #count = 0;
  #dropped = 0;
  /** Whether reads are kept; while a model is opened they are. */
  on = true;

  /** It ends now. @param {number} part @param {number} offset @param {number} bytes @param {number} start */
  add(part, offset, bytes, start) {
    if (!this.on || bytes === 0) return;
    const last = (this.#count - 1) * FETCH_NUMBERS;
    const end = performance.now();
    let to = this.#numbers;
    if (
      last >= 0 &&
      to[last] === part &&
      to[last + 1] + to[last + 2] === offset &&
      to[last + 2] + bytes <= JOINED_BYTES
    ) {
      to[last + 2] += bytes;
      to[last + 4] = end;
      return;
    }
    if (this.#count === MAX_READS) {
      this.#dropped++;
      return;
    }
    const at = this.#count++ * FETCH_NUMBERS;
    if (at === to.length) {
      to = new Float64Array(at * 2);
      to.set(this.#numbers);
      this.#numbers = to;
    }
    to.set([part, offset, bytes, start, end], at);
  }

  /** What was kept since the last time, times in ms since `origin`; and how many were not. @param {number} origin */
  take(origin) {
    const reads = this.#numbers.slice(0, this.#count * FETCH_NUMBERS);
    for (let at = 0; at < reads.length; at += FETCH_NUMBERS) {
      reads[at + 3] -= origin;
      reads[at + 4] -= origin;
    }
    const dropped = this.#dropped;
    this.#count = 0;
    this.#dropped = 0;
    return { reads, dropped };
  }
}
