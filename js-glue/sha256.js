// SHA-256 of more than fits in memory. WebCrypto hashes a whole buffer only; so
// Node's own hash where there is one, else the module dist/lineal-sha256.wasm,
// and where that cannot be had, JavaScript, several times slower.
import { isNode } from './caps.js';
import { hex } from './store.js';
import { nextTurn } from './turn.js';

const MODULE = 'lineal-sha256.wasm';
const STEP_BYTES = 4 * 1024 * 1024;
const BLOCK = 64;
/** What the module takes at a time. */
const DATA_BYTES = 65536;

/** The first 32 bits of the fraction of a root. @param {number} root */
const fraction = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32) | 0;

/** The first primes. @param {number} count */
function primes(count) {
  /** @type {number[]} */ const found = [];
  for (let n = 2; found.length < count; n++) if (found.every((p) => n % p !== 0)) found.push(n);
  return found;
}

const PRIMES = primes(64);
const K = Int32Array.from(PRIMES, (p) => fraction(Math.cbrt(p)));
const START = Int32Array.from(PRIMES.slice(0, 8), (p) => fraction(Math.sqrt(p)));

/** Whole blocks at a time. @typedef {{ state: Int32Array, data: Uint8Array, run: (blocks: number) => void }} BlockHash */

/**
 * The module's, ready to begin.
 * @param {BufferSource | Promise<Response>} module its bytes, or the answer that has them
 * @returns {Promise<BlockHash>}
 */
export async function wasmBlocks(module) {
  const { instance } = await (module instanceof Promise
    ? module.then(async (response) => WebAssembly.instantiate(await response.arrayBuffer(), {}))
    : WebAssembly.instantiate(module, {}));
  const exports = /** @type {any} */ (instance.exports);
  const at = exports.lnl_sha256_record() >>> 0;
  const { buffer } = exports.memory;
  new Int32Array(buffer, at + 32, 64).set(K);
  return {
    state: new Int32Array(buffer, at, 8),
    data: new Uint8Array(buffer, at + 32 + 256, DATA_BYTES),
    run: exports.lnl_sha256_blocks,
  };
}

export class Sha256 {
  /** @type {Int32Array} */ #state = START.slice();
  #fast;
  #words = new Int32Array(BLOCK);
  #rest = new Uint8Array(BLOCK);
  #held = 0;
  #length = 0;

  /** @param {BlockHash} [fast] of this hash alone */
  constructor(fast) {
    this.#fast = fast;
    if (!fast) return;
    fast.state.set(START);
    this.#state = fast.state;
  }

  /** @param {Uint8Array} bytes */
  update(bytes) {
    this.#length += bytes.length;
    let at = 0;
    if (this.#held > 0) {
      at = Math.min(BLOCK - this.#held, bytes.length);
      this.#rest.set(bytes.subarray(0, at), this.#held);
      this.#held += at;
      if (this.#held < BLOCK) return;
      this.#block(this.#rest, 0);
      this.#held = 0;
    }
    const fast = this.#fast;
    while (fast && at + BLOCK <= bytes.length) {
      const blocks = Math.floor(Math.min(bytes.length - at, DATA_BYTES) / BLOCK);
      fast.data.set(bytes.subarray(at, at + blocks * BLOCK));
      fast.run(blocks);
      at += blocks * BLOCK;
    }
    for (; at + BLOCK <= bytes.length; at += BLOCK) this.#block(bytes, at);
    this.#rest.set(bytes.subarray(at));
    this.#held = bytes.length - at;
  }

  /** In hex; nothing may follow. */
  digest() {
    const bits = this.#length * 8;
    const end = new Uint8Array(this.#held < 56 ? BLOCK - this.#held : 2 * BLOCK - this.#held);
    end[0] = 0x80;
    const view = new DataView(end.buffer);
    view.setUint32(end.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(end.length - 4, bits >>> 0);
    this.update(end);
    const out = new DataView(new ArrayBuffer(32));
    this.#state.forEach((word, i) => out.setInt32(i * 4, word));
    return hex(new Uint8Array(out.buffer));
  }

  /** @param {Uint8Array} bytes @param {number} at */
  #block(bytes, at) {
    const w = this.#words;
    const s = this.#state;
    const k = K;
    for (let i = 0; i < 16; i++, at += 4)
      w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
    }
    // Not by destructuring: that is ten times slower.
    let a = s[0];
    let b = s[1];
    let c = s[2];
    let d = s[3];
    let e = s[4];
    let f = s[5];
    let g = s[6];
    let h = s[7];
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + t1) | 0;
      d = c;
      c = b;
      b = a;
      a = (t1 + t2) | 0;
    }
    s[0] += a;
    s[1] += b;
    s[2] += c;
    s[3] += d;
    s[4] += e;
    s[5] += f;
    s[6] += g;
    s[7] += h;
  }
}

/**
 * @param {number} size
 * @param {(offset: number, length: number) => Promise<Uint8Array>} read
 * @param {string | URL} [wasmBaseUrl] where the module lies
 * @returns {Promise<string>} in hex
 */
export async function wholeSha256(size, read, wasmBaseUrl = new URL('../dist/', import.meta.url)) {
  const native = isNode ? (await import('node:crypto')).createHash('sha256') : undefined;
  const fast = native ? undefined : await wasmBlocks(fetch(new URL(MODULE, wasmBaseUrl))).catch(() => undefined);
  const own = new Sha256(fast);
  for (let offset = 0; offset < size; offset += STEP_BYTES) {
    const bytes = await read(offset, Math.min(STEP_BYTES, size - offset));
    if (native) native.update(bytes);
    else own.update(bytes);
    await nextTurn();
  }
  return native ? native.digest('hex') : own.digest();
}
