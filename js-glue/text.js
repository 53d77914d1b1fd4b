// Token bytes to text, as a stream: a character spread over several tokens
// comes out whole, and text that may still become a stop string is held back.

/** @param {boolean} [fatal] */
const newDecoder = (fatal = false) => new TextDecoder('utf-8', { fatal, ignoreBOM: true });

export class TextStream {
  #decoder = newDecoder();
  #stops;
  #held = '';
  /** Whether a stop string was met: nothing comes out any more. */
  stopped = false;

  /** @param {readonly string[]} [stops] none of them empty */
  constructor(stops = []) {
    this.#stops = stops;
  }

  /**
   * The text that these bytes set free.
   * @param {Uint8Array} bytes
   */
  push(bytes) {
    return this.#release(this.#decoder.decode(bytes, { stream: true }), false);
  }

  /** What is left at the end; an unfinished character gives one U+FFFD. */
  finish() {
    return this.#release(this.#decoder.decode(), true);
  }

  /** @param {string} text @param {boolean} last */
  #release(text, last) {
    if (this.stopped) return '';
    const all = this.#held + text;
    const cut = firstStop(all, this.#stops);
    if (cut >= 0) {
      this.stopped = true;
      this.#held = '';
      return all.slice(0, cut);
    }
    const keep = last ? 0 : heldLength(all, this.#stops);
    this.#held = all.slice(all.length - keep);
    return all.slice(0, all.length - keep);
  }
}

/**
 * Where the text is cut: at the start of the stop string that is complete
 * first. (Not at the first to start: that would depend on how the text was
 * divided into tokens.) -1: none.
 * @param {string} text
 * @param {readonly string[]} stops
 */
function firstStop(text, stops) {
  let start = -1;
  let firstEnd = Infinity;
  for (const stop of stops) {
    const at = text.indexOf(stop);
    if (at < 0) continue;
    const end = at + stop.length;
    if (end < firstEnd || (end === firstEnd && at < start)) {
      start = at;
      firstEnd = end;
    }
  }
  return start;
}

/**
 * Length of the longest end of the text with which a stop string begins.
 * @param {string} text
 * @param {readonly string[]} stops
 */
function heldLength(text, stops) {
  let longest = 0;
  for (const stop of stops) {
    for (let length = Math.min(stop.length - 1, text.length); length > longest; length--) {
      if (text.endsWith(stop.slice(0, length))) {
        longest = length;
        break;
      }
    }
  }
  return longest;
}

/**
 * @param {Uint8Array} bytes
 */
export function decodeText(bytes) {
  return newDecoder().decode(bytes);
}
