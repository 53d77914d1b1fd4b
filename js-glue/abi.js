// The only file that touches wasm memory: instantiates a module, and wraps each
// export of wasm/abi.h. Rules kept here: pointers are unsigned
// (#pointer: they pass 2 GiB, and in the module with 64-bit addresses they are
// BigInts), 64-bit quantities are doubles, and a view of the memory is taken
// anew after each call, because each call may grow it.
import { HOLD, HOST_KIND, KV_TYPE, NUMBER, PROFILE, STATUS } from './abi-names.js';
import { held } from './caps.js';
import { LinealError, messageOf } from './errors.js';

/** @typedef {import('./abi-names.js').NumberName} NumberName */

const ABI_VERSION = 9;

// An input above this is given back with its ids (four times as large at most)
// when the call ends.
const KEPT_INPUT_BYTES = 16384;
// Once memory is taken a text comes in such pieces: there is room for one in what the plan
// sets aside for short-lived blocks.
const TEXT_PIECE_BYTES = 49152;
const NO_TEXT = 0xffffffff;
// Names and messages of the core are shorter.
const MOST_STRING_BYTES = 4096;
// The core takes at most so much of a header at a time.
const HEADER_PIECE_BYTES = 2 ** 24;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/**
 * One instance of the module with one engine in it. Dropping it gives the
 * whole linear memory back. After a trap it is dead: every call throws INTERNAL.
 */
export class Core {
  /** @type {any} */ #exports;
  /** @type {WebAssembly.Memory} */ #memory;
  /** @type {number | bigint} as the module gave it, since it is only ever given back; 0: none */ #engine = 0;
  #dead = '';
  #bound = false;

  #module;
  /** Whether threads share the memory: what leaves this file is then a copy. */ #shared;

  /**
   * @param {WebAssembly.Module} module
   * @param {WebAssembly.Instance} instance
   * @param {WebAssembly.Memory} [shared]
   */
  constructor(module, instance, shared) {
    this.#module = module;
    this.#exports = instance.exports;
    this.#memory = shared ?? /** @type {WebAssembly.Memory} */ (instance.exports.memory);
    this.#shared = shared !== undefined;
  }

  /**
   * @param {WebAssembly.Module} module
   * @param {import('./index.d.ts').HostCapabilities} host
   * @param {number} [threadsAsked] 0: the core chooses
   * @param {WebAssembly.Memory} [shared] for a module with threads
   */
  static async create(module, host, threadsAsked = 0, shared) {
    const instance = await held(WebAssembly.instantiate(module, shared ? { env: { memory: shared } } : {}));
    const core = new Core(module, instance, shared);
    const exports = /** @type {any} */ (instance.exports);
    const version = exports.lnl_abi_version?.() >>> 0;
    if (version !== ABI_VERSION) {
      throw new LinealError(
        'WASM_VERSION',
        `the module speaks ABI ${version}, this package speaks ${ABI_VERSION}`,
        {
          detail: { module: version, package: ABI_VERSION },
        },
      );
    }
    exports._initialize?.();
    const flags =
      (host.canMap ? 1 : 0) |
      (host.canGrow ? 2 : 0) |
      (host.memory64 ? 4 : 0) |
      (host.syncRead ? 8 : 0) |
      (host.rangeRead ? 16 : 0) |
      (host.isolated ? 32 : 0) |
      (host.canWait ? 64 : 0);
    core.#engine = core.#raw('open', HOST_KIND[host.kind], flags, host.threads, threadsAsked, host.maxMemoryBytes);
    if (!core.#engine) throw core.#failure(-1, 'no memory for the engine');
    return core;
  }

  /** Whether a trap has ended this instance. */
  get dead() {
    return this.#dead !== '';
  }

  close() {
    if (!this.#engine) return;
    const engine = this.#engine;
    this.#engine = 0;
    if (!this.#dead) {
      try {
        this.#call('close', engine);
      } catch {
        // The instance is dropped anyway.
      }
    }
    this.#exports = {};
    this.#dead = 'it was closed';
  }

  /** Whether the memory can be shared with threads. */
  get shared() {
    return this.#shared;
  }

  // --- header -----------------------------------------------------------------

  /** @param {number} shard @param {number | undefined} fileBytes */
  headerBegin(shard, fileBytes) {
    this.#status('header_begin', shard, fileBytes ?? -1);
  }

  /**
   * Pushes the bytes. True: the header is complete.
   * @param {Uint8Array} bytes
   */
  headerPush(bytes) {
    this.#bytes(this.#headerRoom(bytes.length), bytes.length).set(bytes);
    return this.#status('header_push', bytes.length) === STATUS.OK;
  }

  /**
   * As headerPush, but `fill` writes up to `bytes` bytes in place, synchronously,
   * and returns how many it wrote.
   * @param {number} bytes
   * @param {(target: Uint8Array) => number} fill
   * @returns {{ filled: number, complete: boolean }} filled 0: the source has ended
   */
  headerFill(bytes, fill) {
    const filled = fill(this.#bytes(this.#headerRoom(bytes), bytes));
    if (filled === 0) return { filled, complete: false };
    return { filled, complete: this.#status('header_push', filled) === STATUS.OK };
  }

  /** @param {number} bytes */
  #headerRoom(bytes) {
    const pointer = this.#pointer('header_reserve', this.#engine, bytes);
    if (pointer === 0) throw this.#failure(-1);
    return pointer;
  }

  /**
   * Takes over the headers that another core has read, all complete.
   * @param {Core} other
   * @param {(number | undefined)[]} fileBytes of each part
   */
  copyHeaders(other, fileBytes) {
    fileBytes.forEach((size, part) => {
      this.headerBegin(part, size);
      const start = other.#pointer('header_image', other.#engine, part);
      const bytes = other.#call('header_image_bytes', other.#engine, part);
      for (let at = 0; at < bytes; at += HEADER_PIECE_BYTES)
        this.headerPush(other.#bytes(start + at, Math.min(bytes - at, HEADER_PIECE_BYTES)));
    });
  }

  /** The source ended: throws unless the header is complete. */
  headerFinish() {
    this.#status('header_finish');
  }

  shardCount() {
    return this.#call('shard_count', this.#engine) >>> 0;
  }

  /**
   * @param {Pick<import('./options.js').PlanOptions, 'context' | 'memory' | 'kvType' | 'chunk' | 'allLogits'>
   *   & Partial<Pick<import('./options.js').PlanOptions, 'embeddings' | 'placement' | 'stream' | 'streamWindow' | 'module'>>
   *   & { spread?: boolean }} options
   *   spread: each activation in a place of its own, to check the slab by
   */
  plan({ context, memory, kvType, chunk, allLogits, embeddings, placement, stream, streamWindow, module, spread }) {
    const kv = typeof kvType === 'object' ? KV_TYPE[kvType.k] + 256 * KV_TYPE[kvType.v] : KV_TYPE[kvType];
    const flags =
      (allLogits ? 1 : 0) |
      (embeddings ? 2 : 0) |
      (stream === 'auto' ? 4 : 0) |
      (spread ? 8 : 0) |
      ((module ?? 'auto') === 'auto' ? 0 : 16);
    const place = PROFILE[placement?.profile ?? 'auto'] + 256 * HOLD[placement?.hold ?? 'auto'];
    const make = (/** @type {number} */ bytes) =>
      this.#status('plan', context, memory, kv, chunk, flags, place, bytes, streamWindow ?? 0);
    if (!placement?.tensors) {
      make(0);
      return;
    }
    const tensors = encoder.encode(`${placement.tensors}\0`);
    this.#withInput(tensors, () => make(tensors.length), 0);
  }

  /**
   * There is no more memory than that: for plans from now on.
   * @param {number} bytes
   */
  setCeiling(bytes) {
    this.#call('set_ceiling', this.#engine, bytes);
  }

  // --- texts and numbers --------------------------------------------------------

  /** Takes no memory once the core is bound. @param {number} which of TEXT */
  text(which) {
    const most = this.#bound ? TEXT_PIECE_BYTES : 0;
    const pieces = new TextDecoder(); // a character may be in two of them
    let text = '';
    for (let from = 0, more = true; more; from += most) {
      const pointer = this.#pointer('text', this.#engine, which, from, most);
      if (pointer === 0) throw this.#failure(-1);
      const bytes = this.#call('text_bytes', this.#engine) >>> 0;
      more = most > 0 && bytes === most;
      text += pieces.decode(this.#copy(this.#bytes(pointer, bytes)), { stream: more });
    }
    if (this.#bound) this.#raw('text', this.#engine, NO_TEXT, 0, 0);
    return text;
  }

  /** @param {number} which of TEXT */
  json(which) {
    const text = this.text(which);
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new LinealError('INTERNAL', `the core wrote damaged JSON: ${String(error)}`, { cause: error });
    }
  }

  /** @param {NumberName} name */
  number(name) {
    return /** @type {number} */ (this.#call('number', this.#engine, NUMBER[name]));
  }

  // --- weights ------------------------------------------------------------------

  bind() {
    this.#status('bind');
    this.#bound = true;
  }

  /** True: every weight is in place. False: see need(). */
  loadNext() {
    return this.#status('load_next') !== STATUS.NEED_BYTES;
  }

  /**
   * From now on eval asks for the same bytes as loadNext, so that the two may take turns.
   * @param {boolean} byLayer whether the weights come layer by layer, else in the order of the file
   * @returns {{ part: number, offset: number, bytes: number }[]} where they lie, in that order
   */
  loadAhead(byLayer) {
    this.#status('load_ahead', byLayer ? 1 : 0);
    const extents = [];
    const at = (/** @type {number} */ i, /** @type {number} */ which) =>
      this.#call('load_extent', this.#engine, i, which);
    for (let i = 0; at(i, 0) >= 0; i++) extents.push({ part: at(i, 0), offset: at(i, 1), bytes: at(i, 2) });
    return extents.filter(({ bytes }) => bytes > 0); // what is streamed is not loaded
  }

  /** What the core waits for after NEED_BYTES. */
  need() {
    const engine = this.#engine;
    return {
      shard: this.#call('need_shard', engine) >>> 0,
      offset: /** @type {number} */ (this.#call('need_offset', engine)),
      bytes: this.#call('need_bytes', engine) >>> 0,
    };
  }

  /**
   * Copies the chunk (at most need().bytes) to where the core wants it.
   * @param {Uint8Array} chunk
   */
  feed(chunk) {
    this.#bytes(this.#pointer('need_pointer', this.#engine), chunk.length).set(chunk);
    this.#status('load_fed', chunk.length);
  }

  /**
   * As feed, but `fill` writes in place, synchronously, and returns how many
   * bytes it wrote; 0 means that the source has ended, and nothing is fed.
   * @param {number} bytes
   * @param {(target: Uint8Array) => number} fill
   */
  feedWith(bytes, fill) {
    const filled = fill(this.#bytes(this.#pointer('need_pointer', this.#engine), bytes));
    if (filled > 0) this.#status('load_fed', filled);
    return filled;
  }

  /** Whether the need can wait until the next eval asks for it again. */
  needLater() {
    return this.#status('need_later') === STATUS.OK;
  }

  /** The source ended early: the error that names the tensor and the missing bytes. */
  loadEnded() {
    const status = this.#call('load_ended', this.#engine);
    return this.#failure(status < 0 ? status : -23);
  }

  // --- text ---------------------------------------------------------------------

  tokBind() {
    this.#status('tok_bind');
    this.#bound = true;
  }

  /**
   * @param {string} text
   * @param {{ addSpecial: boolean, parseSpecial: boolean }} options
   */
  tokenize(text, options) {
    const bytes = encoder.encode(text);
    const flags = (options.addSpecial ? 1 : 0) | (options.parseSpecial ? 2 : 0);
    return this.#withInput(bytes, () => {
      const count = this.#count('tokenize', bytes.length, flags);
      const pointer = this.#pointer('tokens', this.#engine);
      // slice: a copy of our own.
      return new Int32Array(this.#memory.buffer, pointer, count).slice();
    });
  }

  /**
   * The bytes of one token, valid until the next call.
   * @param {number} id
   * @param {boolean} showSpecial
   */
  piece(id, showSpecial) {
    const pointer = this.#pointer('piece', this.#engine, id, showSpecial ? 1 : 0);
    const bytes = this.#call('piece_bytes', this.#engine) >>> 0;
    return this.#copy(this.#bytes(pointer, pointer === 0 ? 0 : bytes));
  }

  // --- generation -----------------------------------------------------------------

  /**
   * @param {{ temperature: number, topK: number, topP: number, minP: number, repeatPenalty: number,
   *   repeatLastN: number, seed: number }} s
   */
  sampler(s) {
    this.#status('sampler', s.temperature, s.topK, s.topP, s.minP, s.repeatPenalty, s.repeatLastN, s.seed);
  }

  /**
   * Returns how many ids were still in the KV cache.
   * @param {Int32Array} ids
   * @param {boolean} reuse
   */
  prompt(ids, reuse) {
    const bytes = new Uint8Array(ids.buffer, ids.byteOffset, ids.byteLength);
    return this.#withInput(bytes, () => this.#count('prompt', ids.length, reuse ? 1 : 0));
  }

  /** OK, MORE, NEED_BYTES or CONTEXT_FULL. */
  eval() {
    return this.#status('eval');
  }

  /**
   * From now on eval runs at most so many steps and then gives MORE; 0: whole chunks.
   * @param {number} steps
   */
  stepLimit(steps) {
    this.#call('step_limit', this.#engine, steps);
  }

  /** The step of the plan with which eval goes on; 0: with a new chunk. */
  nextStep() {
    return this.#call('next_step', this.#engine) >>> 0;
  }

  /** How many tokens the chunk has that runs, or ran last. Its plan: see the number chunkDecodes. */
  chunkTokens() {
    return this.#call('chunk_tokens', this.#engine) >>> 0;
  }

  sample() {
    return this.#count('sample');
  }

  /** @param {number} id */
  isEnd(id) {
    return this.#call('is_end', this.#engine, id) !== 0;
  }

  logitsRows() {
    return this.#call('logits_rows', this.#engine) >>> 0;
  }

  /**
   * A copy of one row, [n_vocab].
   * @param {number} row
   * @param {number} vocab
   */
  logits(row, vocab) {
    const pointer = this.#pointer('logits', this.#engine);
    if (pointer === 0) throw new LinealError('BAD_STATE', 'there are no logits yet');
    return new Float32Array(this.#memory.buffer, pointer + row * vocab * 4, vocab).slice();
  }

  /** @param {number} row @param {number} id */
  logprob(row, id) {
    return /** @type {number} */ (this.#call('logprob', this.#engine, row, id));
  }

  // --- threads --------------------------------------------------------------------

  /** How many threads compute, this one among them. */
  threadCount() {
    return this.#call('thread_count', this.#engine) >>> 0;
  }

  /**
   * What thread.js needs to be that thread, from 1; after bind.
   * @param {number} index
   */
  threadStart(index) {
    return {
      module: this.#module,
      memory: this.#memory,
      engine: this.#engine,
      index,
      stack: this.#raw('thread_stack', this.#engine, index),
      tls: this.#raw('thread_tls', this.#engine, index),
    };
  }

  /** A thread died: evaluation fails with THREAD_LOST from now on. */
  threadLost() {
    if (!this.#dead) this.#call('thread_lost', this.#engine);
  }

  /**
   * Lets the other threads return. After a trap too, if that can still be told them: they wait in the
   * memory, which nothing else reaches, in the middle of a step perhaps.
   */
  threadsStop() {
    if (!this.#engine) return;
    try {
      if (this.#dead) this.#exports.lnl_abi_thread_lost(this.#engine);
      this.#exports.lnl_abi_threads_stop(this.#engine);
    } catch (error) {
      this.#dead ||= `threads_stop stopped with ${messageOf(error)}`;
    }
  }

  /** The other threads did not start: goes on with this one. */
  useOneThread() {
    this.#call('use_one_thread', this.#engine);
  }

  /**
   * Test hook: the nth allocation from now fails.
   * @param {number} nth
   */
  failAlloc(nth) {
    this.#call('fail_alloc', nth);
  }

  // --- below: the border itself -----------------------------------------------------

  /**
   * Puts the bytes into the input, and gives a large one back after the work.
   * @template T
   * @param {Uint8Array} bytes
   * @param {() => T} work
   * @param {number} [keep] most bytes that are kept for the next call
   * @returns {T}
   */
  #withInput(bytes, work, keep = KEPT_INPUT_BYTES) {
    // Asking for 0 bytes would free it.
    const pointer = this.#pointer('input', this.#engine, Math.max(bytes.length, 1));
    if (pointer === 0) throw this.#failure(-1);
    this.#bytes(pointer, bytes.length).set(bytes);
    try {
      return work();
    } finally {
      if (bytes.length > keep && !this.#dead) this.#raw('input', this.#engine, 0);
    }
  }

  /**
   * A call whose result is a count, or a negative status.
   * @param {string} name @param {...(number | bigint)} args
   */
  #count(name, ...args) {
    const result = this.#call(name, this.#engine, ...args) | 0;
    if (result < 0) throw this.#failure(result);
    return result;
  }

  /**
   * A call whose result is a status; throws the negative ones.
   * @param {string} name @param {...(number | bigint)} args
   */
  #status(name, ...args) {
    const status = this.#call(name, this.#engine, ...args) | 0;
    if (status < 0) throw this.#failure(status);
    return status;
  }

  /**
   * A call whose result is an address: below 2^53 in any module.
   * @param {string} name @param {...(number | bigint)} args
   */
  #pointer(name, ...args) {
    const pointer = this.#raw(name, ...args);
    return typeof pointer === 'bigint' ? Number(pointer) : pointer >>> 0;
  }

  /**
   * @param {string} name @param {...(number | bigint)} args
   * @returns {number}
   */
  #call(name, ...args) {
    return /** @type {number} */ (this.#raw(name, ...args));
  }

  /**
   * @param {string} name without lnl_abi_
   * @param {...(number | bigint)} args
   * @returns {number | bigint} an address may be either
   */
  #raw(name, ...args) {
    if (this.#dead) {
      throw new LinealError('INTERNAL', `this instance takes no more calls: ${this.#dead}`);
    }
    try {
      return this.#exports[`lnl_abi_${name}`](...args);
    } catch (error) {
      // A trap (failed assertion, stack overflow): nothing in the memory can be trusted any more.
      this.#dead = `${name} stopped with ${messageOf(error)}`;
      throw new LinealError('INTERNAL', `the core stopped in ${name}: ${String(error)}`, { cause: error });
    }
  }

  /**
   * @param {number} status
   * @param {string} [fallback]
   */
  #failure(status, fallback) {
    const code = this.#cString('status_name', status);
    const message = this.#engine ? this.#cString('error', this.#engine) : '';
    return new LinealError(
      code || 'INTERNAL',
      message || fallback || this.#cString('status_text', status),
      {
        remedy: this.#cString('status_remedy', status),
        detail: { status },
      },
    );
  }

  /**
   * A call whose result is a text that ends with a NUL.
   * @param {string} name @param {...(number | bigint)} args
   */
  #cString(name, ...args) {
    const start = this.#pointer(name, ...args);
    if (start === 0) return '';
    // Not up to the end: engines limit the length of a view.
    const { buffer } = this.#memory;
    const all = new Uint8Array(buffer, start, Math.min(buffer.byteLength - start, MOST_STRING_BYTES));
    const end = all.indexOf(0);
    return decoder.decode(this.#copy(all.subarray(0, end < 0 ? 0 : end)));
  }

  /**
   * @param {number} pointer
   * @param {number} bytes
   */
  #bytes(pointer, bytes) {
    return new Uint8Array(this.#memory.buffer, pointer, bytes);
  }

  /**
   * Bytes that a TextDecoder takes: it refuses shared memory.
   * @param {Uint8Array} view
   */
  #copy(view) {
    return this.#shared ? view.slice() : view;
  }
}
