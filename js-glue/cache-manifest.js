// What the cache knows of a model: a journal of lines, each with its own CRC,
// that only grows. A line is written after the bytes that it speaks of, so
// whatever ends the process, what the journal says is there; a torn line is
// not read. An extent is any run of bytes with its SHA-256.

/** A run of bytes is hashed and believed once it has grown to this. */
export const EXTENT_BYTES = 4 * 1024 * 1024;
const FORMAT = 1;

/**
 * @typedef {object} ManifestHeader
 * @property {string} id of this copy: another copy of the same model has another
 * @property {string} name address without its query, which may hold secrets
 * @property {number} size in bytes
 * @property {string} [etag]
 * @property {string} [lastModified]
 * @property {string} [statedSha256] what the server says that the whole has
 * @property {number} created milliseconds since 1970
 */

/** @typedef {{ start: number, end: number }} Range */
/** @typedef {Range & { hash: string }} Extent hash: SHA-256 in hex */

/**
 * @typedef {object} Manifest
 * @property {ManifestHeader} header
 * @property {Extent[]} extents in order, never overlapping
 * @property {string | undefined} sha256 of the whole, if it was once computed
 * @property {boolean} torn whether the last line was cut off: a line break goes before the next
 */

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, i) => {
  let c = i;
  for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
  return c;
});

/** CRC-32 of a text's UTF-8, as 8 hex digits. @param {string} text */
function crcOf(text) {
  let crc = 0xffffffff;
  for (const byte of new TextEncoder().encode(text)) crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  return ((crc ^ 0xffffffff) >>> 0).toString(16).padStart(8, '0');
}

/** @param {unknown} value */
function line(value) {
  const json = JSON.stringify(value);
  return `${crcOf(json)} ${json}\n`;
}

/** @param {ManifestHeader} header */
export const headerLine = (header) => line({ lineal: FORMAT, ...header });
/** @param {Extent} extent */
export const extentLine = ({ start, end, hash }) => line({ from: start, to: end, sha256: hash });
/** The bytes are not what they were. @param {Range} range */
export const dropLine = ({ start, end }) => line({ drop: start, to: end });
/** @param {string} sha256 of the whole */
export const wholeLine = (sha256) => line({ whole: sha256 });

/** @param {string} json @returns {any} an object in any case */
function valueOf(json) {
  try {
    return Object(JSON.parse(json));
  } catch {
    return {};
  }
}

/**
 * @param {string} text
 * @returns {Manifest | undefined} undefined: none that can be believed
 */
export function parseManifest(text) {
  /** @type {Manifest | undefined} */ let manifest;
  for (const row of text.split('\n')) {
    const json = row.slice(9);
    if (row[8] !== ' ' || row.slice(0, 8) !== crcOf(json)) continue;
    const value = valueOf(json);
    if (!manifest) {
      const { name, size, created } = value;
      const whole = [size, created].every((n) => Number.isSafeInteger(n) && n >= 0);
      if (value.lineal !== FORMAT || !whole || typeof name !== 'string') return undefined;
      const { lineal: _format, ...header } = value;
      manifest = { header, extents: [], sha256: undefined, torn: !text.endsWith('\n') };
    } else if ('from' in value) {
      const { from: start, to: end, sha256: hash } = value;
      const whole = Number.isSafeInteger(start) && Number.isSafeInteger(end);
      if (whole && 0 <= start && start < end && end <= manifest.header.size)
        addExtent(manifest.extents, { start, end, hash });
    } else if ('drop' in value) {
      manifest.extents = manifest.extents.filter((e) => e.start !== value.drop || e.end !== value.to);
      manifest.sha256 = undefined;
    } else if ('whole' in value) {
      manifest.sha256 = value.whole;
    }
  }
  return manifest;
}

/**
 * The first extent or range that ends after the offset; the length if none does.
 * @param {readonly Range[]} ranges in order
 * @param {number} offset
 */
export function indexAfter(ranges, offset) {
  let low = 0;
  let high = ranges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranges[middle].end > offset) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Unless it overlaps one that is there.
 * @template {Range} T
 * @param {T[]} extents in order
 * @param {T} extent
 */
export function addExtent(extents, extent) {
  const at = indexAfter(extents, extent.start);
  if (at < extents.length && extents[at].start < extent.end) return false;
  extents.splice(at, 0, extent);
  return true;
}

/**
 * What none of the ranges covers.
 * @param {readonly Range[]} ranges in order
 * @param {number} start
 * @param {number} end
 * @returns {Range[]}
 */
export function holes(ranges, start, end) {
  const found = [];
  let at = start;
  for (let i = indexAfter(ranges, start); i < ranges.length && ranges[i].start < end; i++) {
    if (ranges[i].start > at) found.push({ start: at, end: ranges[i].start });
    at = ranges[i].end;
  }
  if (at < end) found.push({ start: at, end });
  return found;
}

/** @param {readonly Range[]} ranges */
export function bytesOf(ranges) {
  return ranges.reduce((sum, { start, end }) => sum + end - start, 0);
}

/**
 * What the user is told of a cached model.
 * @param {string} key
 * @param {Manifest} manifest
 * @param {number} lastUsed
 * @returns {import('./index.d.ts').CachedModel}
 */
export function describeManifest(key, { header, extents, sha256 }, lastUsed) {
  const cachedBytes = bytesOf(extents);
  const { name, size, etag, lastModified, created } = header;
  return {
    key,
    name,
    size,
    cachedBytes,
    complete: cachedBytes === size,
    extents: extents.length,
    etag,
    lastModified,
    sha256,
    created,
    lastUsed: Math.max(lastUsed, created),
  };
}

/**
 * Whether what the server says now is what it said then; what it does not say counts for nothing.
 * @param {ManifestHeader} then
 * @param {{ size?: number, version?: { etag?: string, lastModified?: string }, etag?: string, lastModified?: string }} now
 */
export function sameFile(then, { size, version, etag = version?.etag, lastModified = version?.lastModified }) {
  if (size !== undefined && size !== then.size) return false;
  if (then.etag !== undefined && etag !== undefined) return then.etag === etag;
  if (then.lastModified !== undefined && lastModified !== undefined) return then.lastModified === lastModified;
  return true;
}
