// What to say of a source that holds no model: in words that fit its kind, since
// what its user can do about it depends on that.
import { LinealError } from './errors.js';

/**
 * @typedef {object} Words
 * @property {(name: string, size: number | undefined) => string} empty it gave no byte at all
 * @property {string} fill what to do then
 * @property {string} [other] what to do where it gives another kind of file; undefined: as the core says
 */

/** @type {Words} */
const FILE = {
  empty: (name) => `the file '${name}' is empty`,
  fill: 'copy or download the file again: what wrote it ended before its first byte',
  other: 'choose a GGUF file: this is a file of another kind, or a damaged one',
};

/** @type {Record<'url' | 'made' | 'path' | 'blob' | 'handle' | 'bytes' | 'stream' | 'custom', Words>} made: an address of the page's own bytes */
const WORDS = {
  url: {
    empty: (name) => `${name} is empty: what lies there has 0 bytes`,
    fill: 'check the address, or use another mirror: the file was not uploaded whole',
  },
  made: {
    empty: (name) => `${name} is empty: it stands for 0 bytes`,
    fill: 'make the address anew, of the bytes of a whole GGUF file',
    other: 'make the address of the bytes of a GGUF file',
  },
  path: FILE,
  handle: FILE,
  blob: {
    ...FILE,
    empty: (name, size) => (name === 'blob' ? 'the Blob is empty' : FILE.empty(name, size)),
    fill: 'choose the file again once it is written, or make the Blob of the bytes of a GGUF file',
  },
  bytes: {
    empty: () => 'the bytes given are none: their length is 0',
    fill: 'give the bytes of a whole GGUF file, and see that they were read before they are given',
    other: 'give the bytes of a GGUF file, from its first on',
  },
  stream: {
    empty: () => 'the stream ended before its first byte',
    fill: 'give a stream of a GGUF file, from its first byte on, that nobody has read',
    other: 'give a stream of a GGUF file, from its first byte on',
  },
  custom: {
    empty: (name, size) =>
      `the source '${name}' is empty: ${size === 0 ? 'its size is 0' : 'its read gave no byte at offset 0'}`,
    fill: 'check size and read of the source: read(0, length) gives the first bytes of a GGUF file',
    other: 'check read of the source: read(0, length) gives the first bytes of a GGUF file',
  },
};

/** @param {import('./source.js').Descriptor} part */
function wordsFor(part) {
  const kind = part.kind === 'remote' ? part.of : part.kind;
  if (part.kind === 'url' && /^(blob|data):/i.test(part.url)) return WORDS.made;
  return WORDS['forward' in part && part.forward ? 'stream' : kind];
}

/**
 * Its first read gave nothing, and will go on so.
 * @param {import('./source.js').Descriptor} part
 * @param {import('./source.js').Source} source
 */
export function emptySource(part, { name, size }) {
  const words = wordsFor(part);
  const detail = { source: name, bytes: 0 };
  if (!size) return new LinealError('NOT_GGUF', words.empty(name, size), { remedy: words.fill, detail });
  return new LinealError('GGUF_TRUNCATED', `'${name}' should have ${size} bytes, and gave none of them`, {
    remedy: words.fill,
    detail: { ...detail, size },
  });
}

/**
 * An error of the core about the header, with the remedy that fits the source.
 * @param {unknown} error
 * @param {import('./source.js').Descriptor} part
 * @param {string} name
 */
export function inItsWords(error, part, name) {
  const remedy = wordsFor(part).other;
  if (!(error instanceof LinealError) || error.code !== 'NOT_GGUF' || !('status' in error.detail) || !remedy) return error;
  return new LinealError(error.code, error.message, { remedy, detail: { ...error.detail, source: name }, cause: error });
}
