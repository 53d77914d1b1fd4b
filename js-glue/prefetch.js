// Reads ahead of the core, in the order in which it wants the weights: those
// that lie side by side are one run, runs are cut into segments, and several
// segments are on their way at once where the source allows it.
import { LinealError, abortable } from './errors.js';
import { insist } from './retry.js';
import { Spares } from './spares.js';

const SEGMENT_BYTES = 2 * 1024 * 1024;
// Bytes between two weights up to here are read over; beyond, they are left out.
const MAX_GAP_BYTES = 64 * 1024;

/** @typedef {{ part: number, offset: number, bytes: number }} Extent of a file */

/**
 * @typedef {object} Segment
 * @property {number} part
 * @property {number} offset
 * @property {number} length
 * @property {Uint8Array} [held] its bytes, if they are here already
 * @property {Promise<Uint8Array>} [arrived]
 * @property {Uint8Array} [taken] all of it, once it arrived, where the next ones may come
 */

/**
 * Neighbours in the order that lie side by side in a file too, as one.
 * @param {readonly Extent[]} extents
 * @returns {Extent[]}
 */
export function runsOf(extents) {
  /** @type {Extent[]} */ const runs = [];
  for (const extent of extents) {
    const last = runs.at(-1);
    const gap = last?.part === extent.part ? extent.offset - (last.offset + last.bytes) : NaN;
    if (last && gap >= 0 && gap <= MAX_GAP_BYTES) last.bytes += gap + extent.bytes;
    else runs.push({ ...extent });
  }
  return runs;
}

/**
 * @param {readonly Extent[]} runs
 * @param {readonly ({ offset: number, bytes: Uint8Array } | undefined)[]} held what is here of each part
 * @returns {Segment[]}
 */
function segmentsOf(runs, held) {
  /** @type {Segment[]} */ const segments = [];
  for (const { part, offset, bytes } of runs) {
    const here = held[part];
    const from = here?.offset ?? Infinity;
    const to = here ? here.offset + here.bytes.length : Infinity;
    for (let at = offset, end = offset + bytes; at < end; ) {
      const inside = at >= from && at < to;
      const next = Math.min(at + SEGMENT_BYTES, end, inside ? to : at < from ? from : Infinity);
      /** @type {Segment} */ const segment = { part, offset: at, length: next - at };
      if (here && inside) segment.held = here.bytes.slice(at - from, next - from);
      segments.push(segment);
      at = next;
    }
  }
  return segments;
}

export class Prefetcher {
  #sources;
  #segments;
  #signal;
  #at = 0;
  #spares = new Spares(SEGMENT_BYTES);

  /**
   * @param {readonly import('./source.js').Source[]} sources of all parts
   * @param {readonly Extent[]} extents in the order in which they will be taken
   * @param {readonly ({ offset: number, bytes: Uint8Array } | undefined)[]} held what was read of each part already
   * @param {AbortSignal} signal
   */
  constructor(sources, extents, held, signal) {
    this.#sources = sources;
    this.#segments = segmentsOf(runsOf(extents), held);
    this.#signal = signal;
  }

  /**
   * 1 to `length` bytes at that place, which is never before the last one in the order; none: the file ends there.
   * Valid until the next ones are asked for.
   * @param {number} part @param {number} offset @param {number} length
   * @returns {Promise<Uint8Array>}
   */
  async take(part, offset, length) {
    const segments = this.#segments;
    let i = this.#at;
    const holds = (/** @type {Segment} */ s) =>
      s.part === part && offset >= s.offset && offset < s.offset + s.length;
    while (i < segments.length && !holds(segments[i])) i++;
    if (i === segments.length)
      throw new LinealError('INTERNAL', `no weight is expected at byte ${offset} of part ${part + 1}`);
    for (; this.#at < i; this.#at++) {
      this.#spares.give(segments[this.#at].taken);
      segments[this.#at] = { part: -1, offset: 0, length: 0 };
    }
    const { rangeRead, parallelReads = 1 } = this.#sources[part];
    const ahead = rangeRead ? parallelReads : 1;
    for (let k = i; k < Math.min(i + ahead, segments.length); k++) {
      const segment = segments[k];
      // Another part may not take several reads at once.
      if (segment.arrived || (k > i && segment.part !== part)) continue;
      segment.arrived = this.#read(segment);
      segment.arrived.catch(() => {}); // it is heard when its turn comes
    }
    const bytes = await /** @type {Promise<Uint8Array>} */ (segments[i].arrived);
    const from = offset - segments[i].offset;
    return bytes.subarray(from, from + length);
  }

  /**
   * All of a segment, less only where the file ends.
   * @param {Segment} segment
   */
  async #read(segment) {
    const { part, offset, length, held } = segment;
    if (held) return held;
    const source = this.#sources[part];
    const spares = this.#spares;
    /** @type {Uint8Array | undefined} */ let all;
    let filled = 0;
    while (filled < length) {
      const at = offset + filled;
      const reading = () => abortable(source.read(at, length - filled, this.#signal, spares), this.#signal);
      const bytes = await insist(reading, at < (source.size ?? 0), this.#signal);
      if (bytes.length === 0) break;
      if (bytes.length === length && spares.lent(bytes)) all = bytes;
      else {
        all ??= spares.take(length);
        all.set(bytes, filled);
        spares.give(bytes);
      }
      filled += bytes.length;
    }
    segment.taken = all;
    return all?.subarray(0, filled) ?? new Uint8Array(0);
  }
}
