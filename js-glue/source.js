// Where the bytes of a model come from. A source is first described (plain
// data that can cross to a worker), then opened. Opened sources share one
// interface, see Source below; offsets are numbers, exact to 2^53.
import { LinealError, badArgument, callbackError, messageOf } from './errors.js';
import { isNode } from './caps.js';
import { hubOption, hubUrl, isHubAddress } from './hub.js';
import { shown, whole } from './checks.js';
import { fetchOptions } from './options.js';
import { HttpSource } from './source-http.js';
import { isStream, streamSource } from './source-stream.js';

/**
 * Never more than this much of a source is held by JS at a time.
 */
export const MAX_CHUNK_BYTES = 4 * 1024 * 1024;

/**
 * @typedef {object} Source
 * @property {string} name for messages
 * @property {number | undefined} size in bytes; undefined while unknown
 * @property {boolean} rangeRead can be read at any offset
 * @property {{ bytesRead: number, requests: number, cachedBytes?: number }} stats
 * @property {(offset: number, length: number, signal?: AbortSignal, spares?: import('./spares.js').Spares) => Promise<Uint8Array>} read
 *   From 1 to `length` bytes at `offset`; none at the end. Valid until the next read. May be taken from the spares:
 *   whoever asked gives them back there.
 * @property {number} [parallelReads] how many reads may be under way at once; their results then stay valid.
 *   Default: 1
 * @property {((offset: number, length: number, signal?: AbortSignal) => Promise<Uint8Array>)} [readForward]
 *   The same for a run of reads at rising offsets, where that is cheaper.
 * @property {((offset: number, target: Uint8Array) => number)} [readSync]
 *   Fills the target from `offset`; returns the bytes written, 0 at the end.
 * @property {() => void | Promise<void>} close
 * @property {'cache' | 'network'} [from] where the last bytes came from
 * @property {{ etag?: string, lastModified?: string, statedSha256?: string }} [version] of the file, as far as known
 * @property {import('./index.d.ts').Reason[]} [warnings] so far
 * @property {() => Promise<void>} [confirm] its header was read and is sound
 * @property {(signal?: AbortSignal) => Promise<void>} [finish] all weights were read
 */

/**
 * @typedef {{ kind: 'url', url: string, cache?: import('./options.js').CacheSettings } & import('./options.js').FetchSettings
 *   | { kind: 'path', path: string }
 *   | { kind: 'blob', blob: Blob, name: string }
 *   | { kind: 'handle', handle: FileSystemFileHandle, name: string }
 *   | { kind: 'bytes', bytes: Uint8Array, size: number, name: string }
 *   | { kind: 'custom', custom: import('./index.d.ts').CustomSource, name: string, forward: boolean,
 *       close: () => Promise<void> }
 *   | { kind: 'remote', of: 'bytes' | 'custom', id: number, size: number | undefined, name: string,
 *       forward: boolean }} Descriptor
 *   `remote`: read by the thread at the other end of the worker border. `forward`: at rising offsets only.
 */

/**
 * @callback RemoteRead
 * @param {number} id
 * @param {number} offset
 * @param {number} length
 * @returns {Promise<Uint8Array>}
 */

const PART_NAME = /-(\d{5})-of-(\d{5})(\.gguf)?$/;

/** @typedef {import('./options.js').FetchSettings & { cache?: import('./options.js').CacheSettings }} UrlSettings */

/**
 * What the user gave, as descriptors: one, or each part of a split model in order.
 * @param {import('./index.d.ts').Source} source
 * @param {UrlSettings} [fetching]
 * @param {string} [hub] base of hf: addresses
 * @returns {Descriptor[]}
 */
export function describeSource(source, fetching = fetchOptions(), hub = hubOption()) {
  const list = isFileList(source) ? Array.from(source) : source;
  if (Array.isArray(list)) {
    if (list.length === 0) throw badArgument('the source is an empty array');
    return orderParts(list.map((part) => describeOne(part, fetching, hub)));
  }
  const first = describeOne(/** @type {import('./index.d.ts').SingleSource} */ (list), fetching, hub);
  // Any part of a split model leads to its first.
  const name = PART_NAME.exec(partName(first));
  return [name && Number(name[1]) !== 1 ? (renamed(first, 1, Number(name[2])) ?? first) : first];
}

/**
 * What a file input or a drop holds.
 * @param {unknown} source
 * @returns {source is FileList}
 */
function isFileList(source) {
  return typeof FileList !== 'undefined' && source instanceof FileList;
}

/**
 * @param {import('./index.d.ts').SingleSource} source
 * @param {UrlSettings} options
 * @param {string} hub
 * @returns {Descriptor}
 */
function describeOne(source, options, hub) {
  if (typeof source === 'string') {
    if (source === '') throw badArgument('the source is an empty string');
    if (isHubAddress(source)) return describeUrl(hubUrl(source, hub), options);
    // One letter before the colon is a Windows drive, not a scheme.
    if (/^[a-z][a-z0-9+.-]+:/i.test(source)) return describeUrl(parseUrl(source), options);
    if (isNode) return { kind: 'path', path: source };
    return describeUrl(parseUrl(source, pageBase()), options);
  }
  if (source instanceof URL) return describeUrl(source, options);
  if (typeof Blob !== 'undefined' && source instanceof Blob) {
    return {
      kind: 'blob',
      blob: source,
      name: 'name' in source && source.name ? String(source.name) : 'blob',
    };
  }
  if (source instanceof Uint8Array || source instanceof ArrayBuffer) {
    const bytes = bytesOf(source);
    return { kind: 'bytes', bytes, size: bytes.length, name: 'bytes' };
  }
  if (typeof FileSystemFileHandle !== 'undefined' && source instanceof FileSystemFileHandle)
    return { kind: 'handle', handle: source, name: source.name };
  const forward = isStream(source);
  const custom = /** @type {import('./index.d.ts').CustomSource} */ (
    forward ? streamSource(/** @type {ReadableStream<Uint8Array>} */ (source)) : source
  );
  if (custom && typeof custom === 'object' && typeof custom.read === 'function') {
    const { size, name = 'custom source', close } = custom;
    if (size !== undefined) whole('size of the source', size, 0, Number.MAX_SAFE_INTEGER);
    if (typeof name !== 'string') throw badArgument(`name of the source is a text, not ${shown(name)}`);
    if (close !== undefined && typeof close !== 'function')
      throw badArgument(`close of the source is a function, not ${shown(close)}`);
    return { kind: 'custom', custom, name, forward, close: closeOnce(custom, name) };
  }
  throw badArgument(
    'the source is a path, a URL, hf:owner/repo/file, a Blob or File, a FileList, a file handle, a ReadableStream, an ArrayBuffer or Uint8Array, or { size, read }',
  );
}

/** @param {Uint8Array | ArrayBuffer} source */
function bytesOf(source) {
  try {
    // Throws where the buffer was transferred away.
    if (source instanceof ArrayBuffer) return new Uint8Array(source);
    new Uint8Array(source.buffer);
    return source;
  } catch (error) {
    throw badArgument('the bytes of the source are gone: their buffer was transferred elsewhere', {
      source: messageOf(error),
    });
  }
}

/**
 * @param {import('./index.d.ts').CustomSource} custom
 * @param {string} name
 * @returns {() => Promise<void>} calls its close, the first time
 */
function closeOnce(custom, name) {
  /** @type {Promise<void> | undefined} */ let closing;
  return () =>
    (closing ??= (async () => {
      try {
        await custom.close?.();
      } catch (error) {
        throw callbackError(`close of '${name}'`, error);
      }
    })());
}

/**
 * Tells the custom ones that they are not read any more, whether they were opened or not.
 * @param {Descriptor[]} parts
 */
export async function closeParts(parts) {
  const results = await Promise.allSettled(parts.map((part) => (part.kind === 'custom' ? part.close() : undefined)));
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}

/**
 * @param {URL} url
 * @param {UrlSettings} options
 * @returns {Descriptor}
 */
function describeUrl(url, options) {
  if (url.protocol === 'file:' && isNode) {
    return { kind: 'path', path: filePath(url) };
  }
  if (!['http:', 'https:', 'blob:', 'data:'].includes(url.protocol)) {
    throw badArgument(`addresses of the kind ${url.protocol} cannot be read`);
  }
  if (url.username !== '' || url.password !== '') {
    throw new LinealError('BAD_ARGUMENT', 'the address holds a user name or a password', {
      remedy: 'leave them out of the address, and give them as fetch.headers, for example Authorization',
      detail: { source: url.host + url.pathname },
    });
  }
  return { kind: 'url', url: url.href, ...options };
}

/** @param {URL} url */
function filePath(url) {
  const path = decodeURIComponent(url.pathname);
  return process.platform === 'win32' ? path.replace(/^\/(?=[a-z]:)/i, '') : path;
}

/** @param {string} text @param {string} [base] */
function parseUrl(text, base) {
  try {
    return new URL(text, base);
  } catch {
    throw badArgument(`${shown(withoutSecrets(text))} is not an address`);
  }
}

/**
 * An address as messages may hold it: no user, password, query or fragment.
 * @param {string} text
 */
export function withoutSecrets(text) {
  return /^[a-z][a-z0-9+.-]+:/i.test(text) ? text.replace(/[?#].*/s, '').replace(/\/\/.*@/s, '//') : text;
}

function pageBase() {
  const scope = /** @type {any} */ (globalThis);
  return scope.document?.baseURI ?? scope.location?.href;
}

/** @param {Descriptor} d */
function partName(d) {
  if (d.kind === 'url') return new URL(d.url).pathname;
  return d.kind === 'path' ? d.path : d.name;
}

/**
 * Parts named -0000i-of-0000N are put in order; others stay as they are.
 * @param {Descriptor[]} parts
 */
function orderParts(parts) {
  const numbers = parts.map((part) => Number(PART_NAME.exec(partName(part))?.[1] ?? NaN));
  if (numbers.some(Number.isNaN)) return parts;
  return parts
    .map((part, index) => ({ part, number: numbers[index] }))
    .sort((a, b) => a.number - b.number)
    .map((entry) => entry.part);
}

/**
 * The descriptor of another part of the same model; undefined if its name does not tell.
 * @param {Descriptor} d
 * @param {number} number from 1
 * @param {number} count
 * @returns {Descriptor | undefined}
 */
function renamed(d, number, count) {
  const pad = (/** @type {number} */ n) => String(n).padStart(5, '0');
  const change = (/** @type {string} */ text) =>
    text.replace(PART_NAME, (_all, _i, _n, ext = '') => `-${pad(number)}-of-${pad(count)}${ext}`);
  if (!PART_NAME.test(partName(d))) return undefined;
  if (d.kind === 'path') return { ...d, path: change(d.path) };
  if (d.kind === 'url') {
    const url = new URL(d.url);
    url.pathname = change(url.pathname);
    return { ...d, url: url.href };
  }
  return undefined;
}

/**
 * All parts that the names tell of, read or not.
 * @param {Descriptor[]} given
 */
export function partsByName(given) {
  const count = Number(PART_NAME.exec(partName(given[0]))?.[2] ?? 1);
  const others = Array.from({ length: count }, (_, i) => renamed(given[0], i + 1, count));
  return [...given, ...others.filter((part) => part !== undefined)];
}

/**
 * All parts of a model whose first part says that there are `count`.
 * @param {Descriptor[]} given
 * @param {number} count
 * @returns {Descriptor[]}
 */
export function allParts(given, count) {
  if (given.length === count) return given;
  if (given.length > 1) {
    throw new LinealError('SPLIT_MISMATCH', `the model has ${count} parts, and ${given.length} were given`, {
      remedy: 'give every part of one split model, each once',
      detail: { expected: count, given: given.length },
    });
  }
  const parts = [given[0]];
  for (let number = 2; number <= count; number++) {
    const part = renamed(given[0], number, count);
    if (!part) {
      throw new LinealError(
        'SPLIT_MISMATCH',
        `the model has ${count} parts, and only '${partName(given[0])}' was given`,
        {
          remedy: 'give an array of all parts, or keep the names ...-00001-of-0000N.gguf',
          detail: { expected: count, given: 1 },
        },
      );
    }
    parts.push(part);
  }
  return parts;
}

/**
 * @param {Descriptor} d
 * @param {{ remoteRead?: RemoteRead, signal?: AbortSignal, wasmBaseUrl?: string }} [context]
 * @returns {Promise<Source>}
 */
export async function openSource(d, context = {}) {
  switch (d.kind) {
    case 'url': {
      /** @type {Source} */ const source = new HttpSource(d.url, d);
      if (!d.cache || !/^https?:/i.test(d.url)) return source;
      const { cachedSource } = await import('./cache.js');
      const part = Number(PART_NAME.exec(partName(d))?.[1] ?? 1) - 1;
      const { signal, wasmBaseUrl } = context;
      return cachedSource(source, d.cache, { url: d.url, part, signal, wasmBaseUrl });
    }
    case 'path': {
      const { FileSource } = await import('./source-node.js');
      return new FileSource(d.path);
    }
    case 'blob':
      return new BlobSource(d.blob, d.name);
    case 'handle':
      return new BlobSource(await fileOf(d.handle), d.name);
    case 'bytes':
      return new BytesSource(d.bytes, d.size, d.name);
    case 'custom':
      return new CallbackSource(
        d.custom.size,
        d.name,
        (offset, length) => readCustom(d.custom, d.name, offset, length),
        d.forward,
        () => d.close().catch(() => {}), // closeParts tells it
      );
    case 'remote': {
      const { remoteRead } = context;
      if (!remoteRead) throw new LinealError('INTERNAL', 'no way back to the thread that has the source');
      const read = (/** @type {number} */ offset, /** @type {number} */ length) => remoteRead(d.id, offset, length);
      return new CallbackSource(d.size, d.name, read, d.forward);
    }
  }
}

/** @param {FileSystemFileHandle} handle */
async function fileOf(handle) {
  try {
    return await handle.getFile();
  } catch (error) {
    const missing = error instanceof Error && error.name === 'NotFoundError';
    throw new LinealError(
      missing ? 'SOURCE_NOT_FOUND' : 'SOURCE_UNREADABLE',
      `the file '${handle.name}' cannot be read: ${messageOf(error)}`,
      { remedy: 'choose the file again', detail: { source: handle.name }, cause: error },
    );
  }
}

/**
 * What read of a custom source gives; its own errors named as such.
 * @param {import('./index.d.ts').CustomSource} custom
 * @param {string} name
 * @param {number} offset
 * @param {number} length
 */
export async function readCustom(custom, name, offset, length) {
  try {
    return await custom.read(offset, length);
  } catch (error) {
    if (error instanceof LinealError) throw error;
    throw new LinealError('SOURCE_READ', `read of '${name}' at byte ${offset} threw: ${messageOf(error)}`, {
      detail: { source: name, offset },
      cause: error,
    });
  }
}

/**
 * A view of `length` bytes at most, checked to be still there.
 * @param {Uint8Array} bytes
 * @param {number} size that they had at first
 * @param {number} offset
 * @param {number} length
 */
export function viewOf(bytes, size, offset, length) {
  if (bytes.length !== size) {
    throw new LinealError('SOURCE_CHANGED', 'the bytes of the source are gone: their buffer was transferred elsewhere', {
      remedy: 'leave the buffer alone until the model is open',
      detail: { offset },
    });
  }
  return bytes.subarray(offset, offset + length);
}

class BlobSource {
  rangeRead = true;
  stats = { bytesRead: 0, requests: 0 };

  /** @param {Blob} blob @param {string} name */
  constructor(blob, name) {
    this.blob = blob;
    this.name = name;
    this.size = blob.size;
  }

  /** @param {number} offset @param {number} length */
  async read(offset, length) {
    const end = Math.min(offset + Math.min(length, MAX_CHUNK_BYTES), this.size);
    if (end <= offset) return new Uint8Array(0);
    try {
      const bytes = new Uint8Array(await this.blob.slice(offset, end).arrayBuffer());
      this.stats.requests++;
      this.stats.bytesRead += bytes.length;
      return bytes;
    } catch (error) {
      // NotReadableError: the file behind it was changed or removed since it was chosen.
      throw new LinealError('SOURCE_CHANGED', `'${this.name}' can no longer be read: ${messageOf(error)}`, {
        remedy: 'choose the file again',
        detail: { source: this.name, offset },
        cause: error,
      });
    }
  }

  close() {}
}

class BytesSource {
  rangeRead = true;
  stats = { bytesRead: 0, requests: 0 };

  /** @param {Uint8Array} bytes @param {number} size that they had when they were given @param {string} name */
  constructor(bytes, size, name) {
    this.bytes = bytes;
    this.name = name;
    this.size = size;
  }

  /** @param {number} offset @param {number} length */
  async read(offset, length) {
    const chunk = viewOf(this.bytes, this.size, offset, length);
    this.stats.requests++;
    this.stats.bytesRead += chunk.length;
    return chunk;
  }

  close() {}
}

class CallbackSource {
  stats = { bytesRead: 0, requests: 0 };
  #read;
  #close;

  /**
   * @param {number | undefined} size
   * @param {string} name
   * @param {(offset: number, length: number) => Promise<Uint8Array>} read
   * @param {boolean} forward whether it can be read at rising offsets only
   * @param {() => void | Promise<void>} [close]
   */
  constructor(size, name, read, forward, close) {
    this.rangeRead = !forward;
    this.size = size;
    this.name = name;
    this.#read = read;
    this.#close = close;
  }

  /** @param {number} offset @param {number} length */
  async read(offset, length) {
    let wanted = Math.min(length, MAX_CHUNK_BYTES);
    if (this.size !== undefined) wanted = Math.min(wanted, Math.max(this.size - offset, 0));
    if (wanted === 0) return new Uint8Array(0);
    const bytes = await this.#read(offset, wanted);
    if (!(bytes instanceof Uint8Array) || bytes.length > wanted) {
      throw badArgument(
        `read of '${this.name}' must return a Uint8Array of at most the ${wanted} bytes asked for`,
      );
    }
    this.stats.requests++;
    this.stats.bytesRead += bytes.length;
    return bytes;
  }

  async close() {
    await this.#close?.();
  }
}
