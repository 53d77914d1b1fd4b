// What the status, the headers and the first bytes of an answer say.
import { hex } from './store.js';

/**
 * @param {Response} response
 * @returns {{ start: number, bytes: number, total: number | undefined } | undefined} undefined when absent or hidden
 */
export function contentRange(response) {
  const match = /^bytes (\d+)-(\d+)\/(\d+|\*)$/i.exec(response.headers.get('content-range') ?? '');
  if (!match) return undefined;
  const start = Number(match[1]);
  return {
    start,
    bytes: Number(match[2]) - start + 1,
    total: match[3] === '*' ? undefined : Number(match[3]),
  };
}

/** Whether its bytes are not those of the file. @param {Response} response */
export function isEncoded(response) {
  return !/^(identity)?$/i.test(response.headers.get('content-encoding') ?? '');
}

/** What helps against such an answer; undefined: what always does. @param {number} status */
export function statusRemedy(status) {
  if (status === 401) return "sign in: give fetch.headers an Authorization, or fetch.credentials: 'include'";
  if (status === 403) {
    return 'check that you may read it (on a hub: accept the terms of the model), and give a token as fetch.headers Authorization';
  }
  if (status === 429) return 'wait and try again; many servers allow more to those who give an Authorization in fetch.headers';
  if (status >= 500 || status === 408) return 'the fault is on the server: try again later, or use another mirror';
  return undefined;
}

/** What 416 says of the size. @param {Response} response */
export function totalOf(response) {
  const match = /\/(\d+)$/.exec(response.headers.get('content-range') ?? '');
  return match ? Number(match[1]) : undefined;
}

/**
 * The SHA-256 of the whole file, in hex, where the server states it: as hubs and
 * stores of artifacts do, or as a digest of the representation.
 * @param {Response} response
 */
export function statedSha256(response) {
  const { headers } = response;
  const plain = /^"?([0-9a-f]{64})"?$/i.exec(headers.get('x-linked-etag') ?? headers.get('x-checksum-sha256') ?? '');
  if (plain) return plain[1].toLowerCase();
  const digest = /\bsha-256=:?([A-Za-z0-9+/]{43}=)/.exec(headers.get('repr-digest') ?? '');
  if (!digest || isEncoded(response)) return undefined;
  return hex(Uint8Array.from(atob(digest[1]), (character) => character.charCodeAt(0)));
}

/** The type of an answer that is a page. @param {Response} response */
export function pageType(response) {
  const type = response.headers.get('content-type') ?? '';
  return /\b(html|xml)\b/i.test(type) ? type : undefined;
}

const GGUF_MAGIC = [0x47, 0x47, 0x55, 0x46];

/** Whether a model begins so. @param {Uint8Array} bytes */
export function isGguf(bytes) {
  return GGUF_MAGIC.every((byte, i) => bytes[i] === byte);
}

/** Seconds or a date, as milliseconds. @param {Response} response */
export function retryAfter(response) {
  const text = response.headers.get('retry-after');
  if (text === null) return undefined;
  const ms = /^\s*\d+\s*$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isFinite(ms) ? Math.max(ms, 0) : undefined;
}
