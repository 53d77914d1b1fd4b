// A model behind HTTP. Range requests where the server has them; else one
// forward stream. Every answer is checked (http-file.js), and a cut or stalled
// connection is taken up again; a server that asks to wait is waited for. What
// the user gave as headers goes to the address's own origin only.
import { isNode } from './caps.js';
import { LinealError, abortError } from './errors.js';
import { contentRange, isEncoded, totalOf } from './http-answer.js';
import { BodyStream, bodyBuffers } from './http-body.js';
import { HttpFile } from './http-file.js';
import { Patience } from './http-patience.js';
import { RETRY_DELAYS_MS, pause } from './retry.js';
import { linkedController } from './signals.js';

const TRANSIENT = ['NETWORK', 'NETWORK_TIMEOUT', 'SOURCE_TRUNCATED'];
const PASSING = [...TRANSIENT, 'HTTP_STATUS'];
// Before the first answer nothing says that the address is right: these may be
// an accident of the way all the same; what else Node knows by a code is not.
const ACCIDENTS = ['ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'EAI_AGAIN', 'UND_ERR_SOCKET'];
// Answers that a later try may better, and how long a wish to wait is obeyed.
const BUSY_STATUS = [408, 429, 500, 502, 503, 504];
const REDIRECTS = [301, 302, 303, 307, 308];
const MAX_REDIRECTS = 10;
// What an address says that was good for some time only.
const EXPIRED_STATUS = [401, 403, 404, 410];
const PARALLEL_READS = 2;
const MAX_WAIT_MS = 30_000;
// A forward stream reads over a gap up to this size; beyond it a new request is cheaper.
const MAX_SKIP_BYTES = 1024 * 1024;
// Where connections die, browsers drop what had come and was not handed out yet. A shorter answer comes whole.
const LEAST_SPAN_BYTES = 4 * 1024;
const FULL_SPAN_BYTES = 4 * 1024 * 1024;
const SHORTER = 8;
/** A connection that stalls after less has brought nothing. */
const WORTH_A_STALL_BYTES = 64 * 1024;
const NOTHING = new Uint8Array(0);

/** @typedef {import('./http-body.js').Collected} Collected */
/** @typedef {import('./spares.js').Spares} Spares */
/** @typedef {(bytes: Uint8Array) => Uint8Array} Kept what is given out of bytes that are valid until the next ones */

export class HttpSource {
  stats = { bytesRead: 0, requests: 0 };
  rangeRead = true;
  /** @type {Promise<unknown>} the last read of the stream */ #turn = Promise.resolve();
  /** @type {'network' | undefined} */ from;
  parallelReads = PARALLEL_READS;
  /** Whether a Range request was refused as a whole: it is not sent again. */ #plain = false;
  /** @type {BodyStream | undefined} */ #forward;
  #buffers = bodyBuffers(PARALLEL_READS);
  /** How many reads are under way. */ #reads = 0;
  /** How much is asked for at once: less where answers broke off before anything came of them. */ #span = Infinity;
  #url;
  /** Where it was redirected to, else itself. */ #target;
  #options;
  #file;
  #patience;
  /** @type {WeakMap<Response, () => void>} lets the signal of each answer go */ #unlinks = new WeakMap();

  /**
   * @param {string} url absolute
   * @param {{ headers?: Record<string, string>, credentials?: RequestCredentials, timeoutMs?: number }} [options]
   *   timeoutMs without one byte end a connection; 0, the default: none do
   */
  constructor(url, options = {}) {
    this.#url = url;
    this.#target = url;
    this.#options = options;
    if (/^https?:/i.test(url)) this.from = 'network';
    // Queries often carry secrets, and data: addresses are long.
    this.name = url.startsWith('data:') ? 'data: address' : url.split(/[?#]/)[0];
    const { timeoutMs = 0 } = options;
    this.#file = new HttpFile(url, this.name);
    this.#patience = new Patience(timeoutMs, () => this.#file.tooLate(timeoutMs));
  }

  get size() {
    return this.#file.size;
  }

  /** What the server said that the file is: the cache compares it. */
  get version() {
    return this.#file.version;
  }

  /**
   * One Range request for exactly these bytes.
   * @param {number} offset
   * @param {number} length
   * @param {AbortSignal} [signal]
   * @param {Spares} [spares]
   * @returns {Promise<Uint8Array>}
   */
  async read(offset, length, signal, spares) {
    // Other reads may be under way in the same stream, and take its next bytes as soon as it is theirs.
    if (!this.rangeRead) return this.#readStream(offset, length, signal, (bytes) => bytes.slice());
    const wanted = this.size === undefined ? length : Math.min(length, this.size - offset);
    if (wanted <= 0) return NOTHING;
    this.#reads++;
    try {
      return await this.#readRange(offset, length, wanted, signal, spares);
    } finally {
      this.#reads--;
    }
  }

  /**
   * A connection that ends early costs what it did not bring: the next one goes on from there.
   * @param {number} offset @param {number} length
   * @param {number} wanted of these, what the file has, as far as known
   * @param {AbortSignal} [signal]
   * @param {Spares} [spares]
   */
  async #readRange(offset, length, wanted, signal, spares) {
    /** @type {Collected} */ const got = { bytes: NOTHING, filled: 0 };
    const came = () => got.bytes.subarray(0, got.filled);
    let reached = 0;
    const gained = () => {
      const before = reached;
      reached = got.filled;
      return reached - before;
    };
    const attempt = async () => {
      const start = got.filled;
      const at = offset + start;
      const span = Math.min(wanted - start, this.#span);
      const response = await this.#request(at, at + span - 1, signal);
      if (!response) return came();
      // One stream cannot serve several reads at once.
      if (response.status !== 206 && this.#file.ranged && this.#reads > 1) {
        this.#drop(response);
        throw new LinealError(
          'HTTP_RANGE',
          `${this.name} answered with the whole file (status ${response.status}) where bytes from ${at} were asked for; other ranges it gave`,
          { detail: this.#file.detail({ status: response.status, whole: true }) },
        );
      }
      const stream = this.#bodyOf(response, response.status === 206 ? at : 0);
      if (response.status !== 206) {
        this.rangeRead = false;
        return this.#inTurn(async () => {
          this.close();
          this.#forward = stream;
          if (got.filled > 0) return came();
          const bytes = (await this.#takeFrom(stream, offset, length)).slice();
          return this.#checkStart(offset, bytes, response);
        });
      }
      const promised = contentRange(response)?.bytes ?? span;
      const until = start + Math.min(promised, span);
      try {
        if (this.size === undefined && start === 0) await this.#askSize(signal);
        if (got.bytes.length === 0) got.bytes = spares?.take(wanted) ?? new Uint8Array(wanted);
        await stream.collect(got, until);
      } finally {
        stream.cancel();
        if (got.filled === start) this.#askForLess(span);
      }
      const ended = this.size === undefined && contentRange(response) === undefined;
      if (got.filled < until && !ended) throw this.#file.truncated(at, promised, got.filled - start);
      const bytes = this.#checkStart(offset, came(), response);
      this.#span = this.#span < FULL_SPAN_BYTES ? this.#span * 2 : Infinity;
      // Of more than was asked for at once, the rest.
      return promised < span || got.filled === wanted || ended ? bytes : undefined;
    };
    try {
      for (;;) {
        const bytes = await this.#withRetries(signal, attempt, gained);
        if (bytes) return bytes;
      }
    } catch (error) {
      // Whoever reads on is told; what came can be kept. At the beginning it may be a page.
      if (offset > 0 && got.filled > 0 && error instanceof LinealError && PASSING.includes(error.code)) return came();
      throw error;
    }
  }

  /**
   * Bytes at rising offsets from one long answer, valid until the next such read.
   * @param {number} offset
   * @param {number} length
   * @param {AbortSignal} [signal]
   * @returns {Promise<Uint8Array>}
   */
  readForward(offset, length, signal) {
    return this.#readStream(offset, length, signal, (bytes) => bytes);
  }

  /**
   * @param {number} offset
   * @param {number} length
   * @param {AbortSignal | undefined} signal
   * @param {Kept} kept
   * @returns {Promise<Uint8Array>}
   */
  async #readStream(offset, length, signal, kept) {
    if (this.size !== undefined && offset >= this.size) return NOTHING;
    let served = false; // whether this connection has given bytes to earlier reads
    const attempt = async () => {
      served = false;
      if (this.#span < Infinity && this.rangeRead) return undefined; // by ranges for a while
      const open = this.#forward;
      const stream = await this.#streamAt(offset, signal);
      if (!stream) return NOTHING;
      served = stream === open;
      const before = stream.position;
      try {
        const bytes = await this.#takeFrom(stream, offset, length);
        if (bytes.length > 0 || this.size === undefined) return kept(bytes);
        this.close();
        throw this.#file.truncated(offset, this.size - offset, 0);
      } finally {
        if (!served && stream.position === before) this.#askForLess(FULL_SPAN_BYTES);
      }
    };
    const bytes = await this.#withRetries(
      signal,
      () => this.#inTurn(attempt),
      () => (served ? Infinity : 0),
    );
    return bytes ?? this.read(offset, length, signal);
  }

  /** An answer broke off before anything came of it. @param {number} span that was asked for */
  #askForLess(span) {
    if (this.#file.ranged) this.#span = Math.max(Math.ceil(Math.min(span, this.#span) / SHORTER), LEAST_SPAN_BYTES);
  }

  /**
   * One stream serves one read at a time: those that were under way when the server stopped giving ranges wait.
   * @template T
   * @param {() => Promise<T>} work
   * @returns {Promise<T>}
   */
  #inTurn(work) {
    const mine = this.#turn.then(work);
    this.#turn = mine.catch(() => {});
    return mine;
  }

  /** What stays in memory was read. */
  async finish() {
    this.close();
    this.#buffers.clear();
  }

  close() {
    this.#forward?.cancel();
    this.#forward = undefined;
  }

  /** @param {number} offset @param {AbortSignal} [signal] */
  async #streamAt(offset, signal) {
    const open = this.#forward;
    if (open && open.position <= offset && (!this.rangeRead || offset - open.position <= MAX_SKIP_BYTES))
      return open;
    this.close();
    const response = await this.#request(offset, undefined, signal);
    if (!response) return undefined;
    this.#forward = this.#bodyOf(response, response.status === 206 ? offset : 0);
    if (response.status !== 206) this.rangeRead = false;
    return this.#forward;
  }

  /**
   * @param {BodyStream} stream that goes on
   * @param {number} offset
   * @param {number} length
   */
  async #takeFrom(stream, offset, length) {
    try {
      while (stream.position < offset) {
        if ((await stream.take(offset - stream.position)).length === 0) return NOTHING;
      }
      return await stream.take(length);
    } catch (error) {
      if (this.#forward === stream) this.close();
      throw error;
    }
  }

  /**
   * Runs the attempt again after a cut connection, as long as it may help: at once
   * after one that brought something, else a few times.
   * @template T
   * @param {AbortSignal | undefined} signal
   * @param {() => Promise<T>} attempt
   * @param {() => number} gained bytes that the connection which failed had brought
   */
  async #withRetries(signal, attempt, gained) {
    let failures = 0;
    for (;;) {
      try {
        if (signal?.aborted) throw abortError();
        return await attempt();
      } catch (error) {
        if (signal?.aborted) throw abortError(error);
        const failure = error instanceof LinealError ? error : this.#file.network(error);
        const busy = failure.code === 'HTTP_STATUS' && BUSY_STATUS.includes(Number(failure.detail.status));
        const most = busy ? RETRY_DELAYS_MS.length : this.#retries(failure);
        // Who gives a time limit does not want to wait it out for every few bytes.
        if (gained() >= (failure.code === 'NETWORK_TIMEOUT' ? WORTH_A_STALL_BYTES : 1) && most > 0) {
          failures = 0;
          continue;
        }
        if (failures >= most) throw failure;
        // Browsers do not say why. They refuse what is compressed although a range was asked for: ask for the
        // whole in the end.
        const unexplained = failure.code === 'NETWORK' && failure.detail.system_code === undefined;
        if (unexplained && !this.#file.answered && failures + 1 === most) this.#plain = true;
        const asked = busy ? Number(failure.detail.retry_after_ms ?? 0) : 0;
        await pause(Math.max(RETRY_DELAYS_MS[failures++], Math.min(asked, MAX_WAIT_MS)), signal);
      }
    }
  }

  /** How often it may help to try again. @param {LinealError} failure */
  #retries(failure) {
    const all = RETRY_DELAYS_MS.length;
    if (failure.detail.whole) return all; // of several servers behind one name, another may do better
    if (!TRANSIENT.includes(failure.code)) return 0;
    if (this.#file.answered) return all;
    if (!/^https?:/i.test(this.#url)) return 0;
    if (failure.code === 'NETWORK_TIMEOUT' || failure.detail.cors_suspected) return 1;
    const { system_code: code } = failure.detail;
    return code === undefined || ACCIDENTS.includes(String(code)) ? all : 0;
  }

  /**
   * A checked answer whose body has not been read; undefined: the file ends before `start`.
   * @param {number} start
   * @param {number | undefined} last
   * @param {AbortSignal} [signal]
   */
  async #request(start, last, signal) {
    for (;;) {
      /** @type {Record<string, string>} */
      const range = this.#plain ? {} : { Range: `bytes=${start}-${last ?? ''}` };
      const response = await this.#fetch('GET', range, signal);
      // No byte at all from the start, and not a word on how many there are: ask for the whole.
      if (response.status === 416 && start === 0 && !this.#plain && totalOf(response) === undefined) {
        this.#plain = true;
        this.#drop(response);
        continue;
      }
      if (this.#target !== this.#url && EXPIRED_STATUS.includes(response.status)) {
        this.#target = this.#url;
        this.#drop(response);
        continue;
      }
      // A part of a compressed file cannot be unpacked; a whole one can.
      if (response.status === 206 && isEncoded(response) && start === 0 && !this.#plain) {
        this.#plain = true;
        this.#drop(response);
        continue;
      }
      let wanted = false;
      try {
        wanted = this.#file.check(response, start);
        return wanted ? response : undefined;
      } finally {
        if (!wanted) this.#drop(response);
      }
    }
  }

  /**
   * @param {string} method
   * @param {Record<string, string>} headers beside those of the user
   * @param {AbortSignal} [signal]
   */
  async #fetch(method, headers, signal) {
    const { controller, unlink } = linkedController(signal);
    try {
      const response = await this.#followed(method, headers, controller);
      this.#unlinks.set(response, unlink);
      return response;
    } catch (error) {
      unlink();
      throw this.#file.network(error);
    }
  }

  /**
   * Node lets us follow redirects ourselves, and so keep the user's headers from
   * other origins. Browsers follow them by themselves and leave Authorization
   * out there; once it is known where they lead, requests go there at once,
   * without any header of the user.
   * @param {string} method @param {Record<string, string>} headers @param {AbortController} controller
   */
  async #followed(method, headers, controller) {
    const { credentials = 'same-origin', headers: own } = this.#options;
    const byHand = isNode && /^https?:/i.test(this.#url);
    let url = this.#target;
    for (let hops = 0; hops <= MAX_REDIRECTS; hops++) {
      this.stats.requests++;
      const request = fetch(url, {
        method,
        headers: { ...(sameOrigin(url, this.#url) ? own : {}), ...headers },
        credentials,
        redirect: byHand ? 'manual' : 'follow',
        signal: controller.signal,
      });
      const response = await this.#patience.inTime(request, () => controller.abort());
      this.#file.hear(response);
      const location = response.headers.get('location');
      if (!byHand || location === null || !REDIRECTS.includes(response.status)) {
        if (response.ok) this.#target = response.redirected ? response.url : url;
        return response;
      }
      this.#drop(response);
      url = this.#redirected(location, url);
    }
    throw new LinealError('HTTP_STATUS', `${this.name} redirects more than ${MAX_REDIRECTS} times`, {
      remedy: 'the address leads in a circle: use another one, or sign in if the server wants that',
      detail: this.#file.detail({ redirects: MAX_REDIRECTS }),
    });
  }

  /** @param {string} location @param {string} from */
  #redirected(location, from) {
    let url;
    try {
      url = new URL(location, from);
    } catch {
      url = undefined;
    }
    if (url && /^https?:$/.test(url.protocol)) return url.href;
    throw new LinealError('HTTP_STATUS', `${this.name} redirects to what is no http or https address`, {
      remedy: 'use another address, or download the file first',
      detail: this.#file.detail({}),
    });
  }

  /** Its body is not wanted. @param {Response} response */
  #drop(response) {
    this.#unlinks.get(response)?.();
    response.body?.cancel().catch(() => {});
  }

  /**
   * @param {Response} response
   * @param {number} position of its first byte in the file
   */
  #bodyOf(response, position) {
    return new BodyStream(response, this.stats, position, {
      inTime: (promise, onTimeout) => this.#patience.inTime(promise, onTimeout),
      ended: () => this.#unlinks.get(response)?.(),
    }, this.#buffers);
  }

  /**
   * Other sites may hide Content-Range from scripts, but not Content-Length.
   * @param {AbortSignal} [signal]
   */
  async #askSize(signal) {
    try {
      const response = await this.#fetch('HEAD', {}, signal);
      this.#drop(response);
      const length = response.headers.get('content-length');
      if (response.ok && length !== null && !response.headers.get('content-encoding'))
        this.#file.size = Number(length);
    } catch {
      // The size stays unknown: the core is told so, and checks less beforehand.
    }
  }

  /** @param {number} offset @param {Uint8Array} bytes @param {Response} response */
  #checkStart(offset, bytes, response) {
    try {
      return this.#file.checkStart(offset, bytes, response);
    } catch (error) {
      this.close();
      throw error;
    }
  }
}

/** @param {string} a @param {string} b */
function sameOrigin(a, b) {
  return new URL(a).origin === new URL(b).origin;
}
