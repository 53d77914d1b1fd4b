// A ReadableStream as a custom source: it can be read once, forwards.
import { LinealError, badArgument } from './errors.js';
import { shown } from './checks.js';

const NOTHING = new Uint8Array(0);

/** What this engine's kind of stream is, if it has one. @param {unknown} source */
export function isStream(source) {
  return typeof ReadableStream !== 'undefined' && source instanceof ReadableStream;
}

/**
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {import('./index.d.ts').CustomSource}
 */
export function streamSource(stream) {
  if (stream.locked)
    throw badArgument('the stream is being read by someone else, or was read already: a stream serves once');
  const name = 'stream';
  /** @type {ReadableStreamDefaultReader<Uint8Array> | undefined} */ let reader;
  /** @type {Uint8Array} the last one that came */ let piece = NOTHING;
  let start = 0; // where it begins
  let ended = false;

  async function next() {
    reader ??= stream.getReader();
    const { value, done } = await reader.read();
    start += piece.length;
    piece = NOTHING;
    ended = done;
    if (done) return;
    if (!(value instanceof Uint8Array))
      throw badArgument(`the stream gives Uint8Arrays, not ${shown(value)}`);
    piece = value;
  }

  return {
    name,
    async read(offset, length) {
      if (offset < start) {
        throw new LinealError('SOURCE_READ', `the stream is at byte ${start} and cannot go back to ${offset}`, {
          remedy: 'give a file, an address or a Blob: a stream is read once, from its beginning to its end',
          detail: { source: name, offset },
        });
      }
      while (!ended && offset >= start + piece.length) await next();
      if (ended) return NOTHING;
      return piece.subarray(offset - start, offset - start + length);
    },
    async close() {
      await (reader ?? stream).cancel().catch(() => {});
    },
  };
}
