// A model behind HTTP. Range requests where the server has them; else one
// forward stream. Every answer is checked (status, range, size, version, an
// HTML page in place of a model), and a cut or stalled connection is taken up
// again; a server that asks to wait is waited for. What the user gave as
// headers goes to the address's own origin only.
import { isNode } from './caps.js';
import { LinealError, abortError, messageOf } from './errors.js';
import { RETRY_DELAYS_MS, pause } from './retry.js';
import { linkedController } from './signals.js';
import { hex } from './store.js';

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
// A timer that comes so much later than it should tells of this thread, not of the server.
const LATE_MS = 200;
const MAX_WAIT_MS = 30_000;
// A forward stream reads over a gap up to this size; beyond it a new request is cheaper.
const MAX_SKIP_BYTES = 1024 * 1024;
// Where connections die, browsers drop what had come and was not handed out yet. A shorter answer comes whole.
const LEAST_SPAN_BYTES = 4 * 1024;
const FULL_SPAN_BYTES = 4 * 1024 * 1024;
const SHORTER = 8;
/** A connection that stalls after less has brought nothing. */
const WORTH_A_STALL_BYTES = 64 * 1024;
const GGUF_MAGIC = [0x47, 0x47, 0x55, 0x46];
const NOTHING = new Uint8Array(0);

/** @typedef {{ since: number, fail: () => void }} Wait for the server, and since when */
/** @typedef {{ bytes: Uint8Array, filled: number }} Collected how much of the bytes came */

export class HttpSource {
  stats = { bytesRead: 0, requests: 0 };
  /** @type {number | undefined} */ size;
  rangeRead = true;
  /** @type {Promise<unknown>} the last read of the stream */ #turn = Promise.resolve();
  /** @type {'network' | undefined} */ from;
  parallelReads = PARALLEL_READS;
  /** @type {string | null} ETag, or Last-Modified */ #version = null;
  /** @type {'etag' | 'last-modified' | undefined} */ #versionKind;
  /** @type {string | undefined} SHA-256 of the whole, in hex */ #stated;
  #answered = false;
  /** Whether the first answer called itself a page: some servers name every file so. */ #calledPage = false;
  /** Whether a Range request was refused as a whole: it is not sent again. */ #plain = false;
  /** @type {BodyStream | undefined} */ #forward;
  /** Whether a range was answered with a range. */ #ranged = false;
  /** How many reads are under way. */ #reads = 0;
  /** How much is asked for at once: less where answers broke off before anything came of them. */ #span = Infinity;
  #url;
  /** Where it was redirected to, else itself. */ #target;
  #options;
  /** @type {Set<Wait>} */ #waits = new Set();
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #timer;
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
  }

  /**
   * What the server said that the file is: the cache compares it.
   * @returns {{ etag?: string, lastModified?: string, statedSha256?: string }}
   */
  get version() {
    const stated = this.#stated === undefined ? {} : { statedSha256: this.#stated };
    if (this.#version === null) return stated;
    return { ...stated, ...(this.#versionKind === 'etag' ? { etag: this.#version } : { lastModified: this.#version }) };
  }

  /**
   * One Range request for exactly these bytes.
   * @param {number} offset
   * @param {number} length
   * @param {AbortSignal} [signal]
   * @returns {Promise<Uint8Array>}
   */
  async read(offset, length, signal) {
    if (!this.rangeRead) return this.readForward(offset, length, signal);
    const wanted = this.size === undefined ? length : Math.min(length, this.size - offset);
    if (wanted <= 0) return NOTHING;
    this.#reads++;
    try {
      return await this.#readRange(offset, length, wanted, signal);
    } finally {
      this.#reads--;
    }
  }

  /**
   * A connection that ends early costs what it did not bring: the next one goes on from there.
   * @param {number} offset @param {number} length
   * @param {number} wanted of these, what the file has, as far as known
   * @param {AbortSignal} [signal]
   */
  async #readRange(offset, length, wanted, signal) {
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
      if (response.status !== 206 && this.#ranged && this.#reads > 1) {
        this.#drop(response);
        throw new LinealError(
          'HTTP_RANGE',
          `${this.name} answered with the whole file (status ${response.status}) where bytes from ${at} were asked for; other ranges it gave`,
          { detail: this.#detail({ status: response.status, whole: true }) },
        );
      }
      const stream = this.#bodyOf(response, response.status === 206 ? at : 0);
      if (response.status !== 206) {
        this.rangeRead = false;
        return this.#inTurn(async () => {
          this.close();
          this.#forward = stream;
          if (got.filled > 0) return came();
          return this.#checkStart(offset, await this.#takeFrom(stream, offset, length), response);
        });
      }
      const promised = contentRange(response)?.bytes ?? span;
      const until = start + Math.min(promised, span);
      try {
        if (this.size === undefined && start === 0) await this.#askSize(signal);
        if (got.bytes.length === 0) got.bytes = new Uint8Array(wanted);
        await stream.collect(got, until);
      } finally {
        stream.cancel();
        if (got.filled === start) this.#askForLess(span);
      }
      const ended = this.size === undefined && contentRange(response) === undefined;
      if (got.filled < until && !ended) throw this.#truncated(at, promised, got.filled - start);
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
   * Bytes at rising offsets from one long answer.
   * @param {number} offset
   * @param {number} length
   * @param {AbortSignal} [signal]
   * @returns {Promise<Uint8Array>}
   */
  async readForward(offset, length, signal) {
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
        if (bytes.length > 0 || this.size === undefined) return bytes;
        this.close();
        throw this.#truncated(offset, this.size - offset, 0);
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
    if (this.#ranged) this.#span = Math.max(Math.ceil(Math.min(span, this.#span) / SHORTER), LEAST_SPAN_BYTES);
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
        const failure = error instanceof LinealError ? error : this.#network(error);
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
        if (unexplained && !this.#answered && failures + 1 === most) this.#plain = true;
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
    if (this.#answered) return all;
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
        wanted = this.#checkAnswer(response, start);
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
      throw this.#network(error);
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
      const response = await this.#inTime(request, () => controller.abort());
      this.#stated ??= statedSha256(response); // hubs say it where they redirect
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
      detail: this.#detail({ redirects: MAX_REDIRECTS }),
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
      detail: this.#detail({}),
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
      inTime: (promise, onTimeout) => this.#inTime(promise, onTimeout),
      ended: () => this.#unlinks.get(response)?.(),
    });
  }

  /**
   * The promise, or NETWORK_TIMEOUT when it takes too long. One timer serves all: a
   * timer for each piece of a body would cost more memory than the piece's promise.
   * @template T
   * @param {Promise<T>} promise
   * @param {() => void} onTimeout
   * @returns {Promise<T>}
   */
  #inTime(promise, onTimeout) {
    if (!this.#options.timeoutMs) return promise;
    return new Promise((resolve, reject) => {
      /** @type {Wait} */
      const wait = {
        since: performance.now(),
        fail: () => {
          onTimeout();
          reject(this.#tooLate());
        },
      };
      this.#waits.add(wait);
      this.#watch();
      const ended = () => this.#waits.delete(wait);
      promise.then(
        (value) => {
          ended();
          resolve(value);
        },
        (error) => {
          ended();
          reject(error);
        },
      );
    });
  }

  /** Looks again when the first that waits has waited too long. */
  #watch() {
    const { timeoutMs = 0 } = this.#options;
    if (this.#timer !== undefined || this.#waits.size === 0) return;
    const due = Math.min(...Array.from(this.#waits, ({ since }) => since)) + timeoutMs;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      const now = performance.now();
      // This thread was busy, and has not looked at what came meanwhile.
      if (now - due > LATE_MS) for (const wait of this.#waits) wait.since = now;
      for (const wait of [...this.#waits]) {
        if (now - wait.since < timeoutMs) continue;
        this.#waits.delete(wait);
        wait.fail();
      }
      this.#watch();
    }, Math.max(due - performance.now(), 0));
    /** @type {any} */ (this.#timer).unref?.(); // the connection keeps the process
  }

  #tooLate() {
    const { timeoutMs = 0 } = this.#options;
    return new LinealError('NETWORK_TIMEOUT', `${this.name} sent nothing for ${timeoutMs / 1000} seconds`, {
      detail: this.#detail({ timeout_ms: timeoutMs }),
    });
  }

  /**
   * True: its body holds what was asked for. False: the file ends before.
   * @param {Response} response @param {number} start
   */
  #checkAnswer(response, start) {
    const { status } = response;
    if (status === 416) {
      const total = totalOf(response);
      if (total !== undefined) this.#noteSize(total);
      // Of an unknown size, this is where it ends.
      if (start > 0 && (this.size === undefined || start >= this.size)) return false;
      if (total === 0) return false;
      const all = this.size === undefined ? '' : ` of ${this.size}`;
      throw new LinealError('HTTP_RANGE', `${this.name} refused bytes from ${start}${all}`, {
        detail: this.#detail({ status }),
      });
    }
    if (status === 404 || status === 410) {
      throw new LinealError('SOURCE_NOT_FOUND', `${this.name} was not found (HTTP status ${status})`, {
        detail: this.#detail({ status }),
      });
    }
    if (status !== 200 && status !== 206) {
      const wait = retryAfter(response);
      const asks = wait ? `, and asks to wait ${Math.ceil(wait / 1000)} seconds` : '';
      const text = `${this.name} answered with HTTP status ${status} ${response.statusText}`.trimEnd();
      throw new LinealError('HTTP_STATUS', `${text}${asks}`, {
        remedy: statusRemedy(status),
        detail: this.#detail({ status, retry_after_ms: wait }),
      });
    }
    if (status === 206 && isEncoded(response)) {
      throw new LinealError('HTTP_RANGE', `${this.name} sent a part of a compressed file, which cannot be unpacked`, {
        remedy: 'switch compression of model files off on the server, or use another mirror',
        detail: this.#detail({ status, content_encoding: response.headers.get('content-encoding') }),
      });
    }
    this.#checkPage(response);
    this.#answered = true;
    this.#checkVersion(response);
    if (status === 206) {
      this.#ranged = true;
      const range = contentRange(response);
      if (range && range.start !== start) {
        throw new LinealError(
          'HTTP_RANGE',
          `${this.name} was asked for bytes from ${start} and sent those from ${range.start}`,
          {
            detail: this.#detail({ asked: start, received: range.start }),
          },
        );
      }
      if (range?.total !== undefined) this.#noteSize(range.total);
    } else if (!response.headers.get('content-encoding') && response.headers.has('content-length')) {
      this.#noteSize(Number(response.headers.get('content-length')));
    }
    return true;
  }

  /**
   * A server that sent a model first and sends a page now (signed out, gone, too many requests).
   * @param {Response} response
   */
  #checkPage(response) {
    const type = pageType(response);
    if (!this.#answered) this.#calledPage = type !== undefined;
    else if (type !== undefined && !this.#calledPage) {
      throw new LinealError('SOURCE_CHANGED', `${this.name} now answers with a page (${type}) and not with the file`, {
        remedy: 'check that you may still read the address, and open it again',
        detail: this.#detail({ content_type: type }),
      });
    }
  }

  /** @param {Response} response */
  #checkVersion(response) {
    for (const kind of /** @type {const} */ (['etag', 'last-modified'])) {
      const value = response.headers.get(kind);
      if (value === null) continue;
      if (this.#versionKind === undefined) {
        this.#versionKind = kind;
        this.#version = value;
      } else if (this.#versionKind === kind && this.#version !== value) {
        throw this.#changed(`its ${kind} was ${this.#version} and is now ${value}`);
      }
      if (this.#versionKind === kind) return;
    }
  }

  /** @param {number} total */
  #noteSize(total) {
    if (this.size !== undefined && this.size !== total) {
      throw this.#changed(`it had ${this.size} bytes and now has ${total}`);
    }
    this.size = total;
  }

  /** @param {string} how */
  #changed(how) {
    return new LinealError('SOURCE_CHANGED', `${this.name} changed while it was read: ${how}`, {
      detail: this.#detail({}),
    });
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
        this.size = Number(length);
    } catch {
      // The size stays unknown: the core is told so, and checks less beforehand.
    }
  }

  /**
   * @param {number} offset
   * @param {Uint8Array} bytes
   * @param {Response} response
   */
  #checkStart(offset, bytes, response) {
    const type = pageType(response);
    if (offset === 0 && type !== undefined && GGUF_MAGIC.some((byte, i) => bytes[i] !== byte)) {
      this.close();
      throw new LinealError(
        'NOT_GGUF',
        `${this.name} answered with a page (${type}) and not with a GGUF file`,
        {
          remedy: 'check the address: servers often send an HTML page in place of a missing file',
          detail: this.#detail({ content_type: type }),
        },
      );
    }
    return bytes;
  }

  /** @param {number} offset @param {number} promised @param {number} received */
  #truncated(offset, promised, received) {
    return new LinealError(
      'SOURCE_TRUNCATED',
      `${this.name} ended ${promised - received} bytes early: ${promised} were promised from byte ${offset}`,
      { detail: this.#detail({ offset, expected_bytes: promised, received_bytes: received }) },
    );
  }

  /** @param {unknown} error */
  #network(error) {
    if (error instanceof LinealError) return error;
    const reason = /** @type {any} */ (error instanceof Error && error.cause instanceof Error ? error.cause : {});
    const code = typeof reason.code === 'string' ? reason.code : undefined;
    const text = [messageOf(error), reason.message || code].filter(Boolean).join(': ');
    const location = /** @type {any} */ (globalThis).location;
    const foreign = location?.origin && new URL(this.#url).origin !== location.origin;
    if (foreign && !this.#answered) {
      return new LinealError(
        'NETWORK',
        `${this.name} could not be read (${text}); it is on another site, which may not allow this page to read it (CORS)`,
        {
          remedy:
            'check the connection and the address; the server must send Access-Control-Allow-Origin, or put the model on this site, or choose a downloaded file',
          detail: this.#detail({ cors_suspected: true }),
          cause: error,
        },
      );
    }
    return new LinealError('NETWORK', `reading ${this.name} failed: ${text}`, {
      detail: this.#detail(code === undefined ? {} : { system_code: code }),
      cause: error,
    });
  }

  /** @param {Record<string, unknown>} more */
  #detail(more) {
    return { source: this.name, ...more };
  }
}

/** A response body with a position; holds at most one network chunk. */
class BodyStream {
  #reader;
  #rest = NOTHING;
  #stats;
  #watch;

  /**
   * @param {Response} response
   * @param {{ bytesRead: number }} stats
   * @param {number} position of its first byte in the file
   * @param {{ inTime: <T>(promise: Promise<T>, onTimeout: () => void) => Promise<T>, ended: () => void }} watch
   */
  constructor(response, stats, position, watch) {
    this.#watch = watch;
    this.#reader = response.body?.getReader();
    this.#stats = stats;
    this.position = position;
  }

  /**
   * 1 to `length` bytes, none at the end.
   * @param {number} length
   * @returns {Promise<Uint8Array>}
   */
  async take(length) {
    const reader = this.#reader;
    while (this.#rest.length === 0) {
      const part = reader && (await this.#watch.inTime(reader.read(), () => this.cancel()));
      if (!part || part.done) {
        this.#watch.ended();
        return NOTHING;
      }
      this.#rest = part.value;
      this.#stats.bytesRead += part.value.length;
    }
    const bytes = this.#rest.subarray(0, length);
    this.#rest = this.#rest.subarray(bytes.length);
    this.position += bytes.length;
    return bytes;
  }

  /**
   * Goes on until so many are there, or the body ends.
   * @param {Collected} got
   * @param {number} until
   */
  async collect(got, until) {
    while (got.filled < until) {
      const bytes = await this.take(until - got.filled);
      if (bytes.length === 0) return;
      got.bytes.set(bytes, got.filled);
      got.filled += bytes.length;
    }
  }

  cancel() {
    this.#watch.ended();
    this.#rest = NOTHING;
    this.#reader?.cancel().catch(() => {});
  }
}

/**
 * @param {Response} response
 * @returns {{ start: number, bytes: number, total: number | undefined } | undefined} undefined when absent or hidden
 */
function contentRange(response) {
  const match = /^bytes (\d+)-(\d+)\/(\d+|\*)$/i.exec(response.headers.get('content-range') ?? '');
  if (!match) return undefined;
  const start = Number(match[1]);
  return {
    start,
    bytes: Number(match[2]) - start + 1,
    total: match[3] === '*' ? undefined : Number(match[3]),
  };
}

/** @param {string} a @param {string} b */
function sameOrigin(a, b) {
  return new URL(a).origin === new URL(b).origin;
}

/** @param {Response} response */
function isEncoded(response) {
  return !/^(identity)?$/i.test(response.headers.get('content-encoding') ?? '');
}

/** What helps against such an answer; undefined: what always does. @param {number} status */
function statusRemedy(status) {
  if (status === 401) return "sign in: give fetch.headers an Authorization, or fetch.credentials: 'include'";
  if (status === 403) {
    return 'check that you may read it (on a hub: accept the terms of the model), and give a token as fetch.headers Authorization';
  }
  if (status === 429) return 'wait and try again; many servers allow more to those who give an Authorization in fetch.headers';
  if (status >= 500 || status === 408) return 'the fault is on the server: try again later, or use another mirror';
  return undefined;
}

/** What 416 says of the size. @param {Response} response */
function totalOf(response) {
  const match = /\/(\d+)$/.exec(response.headers.get('content-range') ?? '');
  return match ? Number(match[1]) : undefined;
}

/**
 * The SHA-256 of the whole file, in hex, where the server states it: as hubs and
 * stores of artifacts do, or as a digest of the representation.
 * @param {Response} response
 */
function statedSha256(response) {
  const { headers } = response;
  const plain = /^"?([0-9a-f]{64})"?$/i.exec(headers.get('x-linked-etag') ?? headers.get('x-checksum-sha256') ?? '');
  if (plain) return plain[1].toLowerCase();
  const digest = /\bsha-256=:?([A-Za-z0-9+/]{43}=)/.exec(headers.get('repr-digest') ?? '');
  if (!digest || isEncoded(response)) return undefined;
  return hex(Uint8Array.from(atob(digest[1]), (character) => character.charCodeAt(0)));
}

/** The type of an answer that is a page. @param {Response} response */
function pageType(response) {
  const type = response.headers.get('content-type') ?? '';
  return /\b(html|xml)\b/i.test(type) ? type : undefined;
}

/** Seconds or a date, as milliseconds. @param {Response} response */
function retryAfter(response) {
  const text = response.headers.get('retry-after');
  if (text === null) return undefined;
  const ms = /^\s*\d+\s*$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return Number.isFinite(ms) ? Math.max(ms, 0) : undefined;
}
