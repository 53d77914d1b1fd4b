// A model behind HTTP. Range requests where the server has them; else one
// forward stream. Every answer is checked (status, range, size, version, an
// HTML page in place of a model), and a cut connection is taken up again.
import { LinealError, abortError } from './errors.js';

const RETRY_DELAYS_MS = [100, 400, 1000];
// A forward stream reads over a gap up to this size; beyond it a new request is cheaper.
const MAX_SKIP_BYTES = 1024 * 1024;
const GGUF_MAGIC = [0x47, 0x47, 0x55, 0x46];
const NOTHING = new Uint8Array(0);

export class HttpSource {
  stats = { bytesRead: 0, requests: 0 };
  /** @type {number | undefined} */ size;
  rangeRead = true;
  /** @type {string | null} ETag, or Last-Modified */ #version = null;
  /** @type {'etag' | 'last-modified' | undefined} */ #versionKind;
  #answered = false;
  /** @type {BodyStream | undefined} */ #forward;
  #url;
  #options;

  /**
   * @param {string} url absolute
   * @param {{ headers?: Record<string, string>, credentials?: RequestCredentials }} [options]
   */
  constructor(url, options = {}) {
    this.#url = url;
    this.#options = options;
    // Queries often carry secrets, and data: addresses are long.
    this.name = url.startsWith('data:') ? 'data: address' : url.split(/[?#]/)[0];
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
    return this.#withRetries(signal, async () => {
      const response = await this.#request(offset, offset + wanted - 1, signal);
      if (!response) return NOTHING;
      const stream = new BodyStream(response, this.stats);
      if (response.status !== 206) {
        this.rangeRead = false;
        this.#forward = stream;
        return this.#checkStart(offset, await this.#takeFrom(stream, offset, length), response);
      }
      if (this.size === undefined) await this.#askSize(signal);
      const promised = contentRange(response)?.bytes ?? wanted;
      const bytes = await stream.collect(Math.min(wanted, promised));
      stream.cancel();
      const ended = this.size === undefined && contentRange(response) === undefined;
      if (bytes.length < Math.min(wanted, promised) && !ended)
        throw this.#truncated(offset, promised, bytes.length);
      return this.#checkStart(offset, bytes, response);
    });
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
    return this.#withRetries(signal, async () => {
      const stream = await this.#streamAt(offset, signal);
      if (!stream) return NOTHING;
      const bytes = await this.#takeFrom(stream, offset, length);
      if (bytes.length === 0 && this.size !== undefined) throw this.#truncated(offset, this.size - offset, 0);
      return bytes;
    });
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
    this.#forward = new BodyStream(response, this.stats, response.status === 206 ? offset : 0);
    if (response.status !== 206) this.rangeRead = false;
    return this.#forward;
  }

  /**
   * @param {BodyStream} stream
   * @param {number} offset
   * @param {number} length
   */
  async #takeFrom(stream, offset, length) {
    while (stream.position < offset) {
      if ((await stream.take(offset - stream.position)).length === 0) return NOTHING;
    }
    return stream.take(length);
  }

  /**
   * Runs the attempt again after a cut connection, as long as it may help.
   * @template T
   * @param {AbortSignal | undefined} signal
   * @param {() => Promise<T>} attempt
   */
  async #withRetries(signal, attempt) {
    for (let failures = 0; ; failures++) {
      try {
        if (signal?.aborted) throw abortError();
        return await attempt();
      } catch (error) {
        this.close();
        if (signal?.aborted) throw abortError(error);
        const failure = error instanceof LinealError ? error : this.#network(error);
        const transient = failure.code === 'NETWORK' || failure.code === 'SOURCE_TRUNCATED';
        // Before the first answer nothing says that the address is right: tell at once.
        if (!transient || !this.#answered || failures >= RETRY_DELAYS_MS.length) throw failure;
        await delay(RETRY_DELAYS_MS[failures], signal);
      }
    }
  }

  /**
   * A checked answer whose body has not been read; undefined: the file ends before `start`.
   * @param {number} start
   * @param {number | undefined} last
   * @param {AbortSignal} [signal]
   */
  async #request(start, last, signal) {
    const headers = { ...this.#options.headers, Range: `bytes=${start}-${last ?? ''}` };
    this.stats.requests++;
    let response;
    try {
      response = await fetch(this.#url, {
        headers,
        credentials: this.#options.credentials ?? 'same-origin',
        signal,
      });
    } catch (error) {
      throw this.#network(error);
    }
    try {
      return this.#checkAnswer(response, start);
    } catch (error) {
      response.body?.cancel().catch(() => {});
      throw error;
    }
  }

  /** @param {Response} response @param {number} start */
  #checkAnswer(response, start) {
    const { status } = response;
    if (status === 416) {
      const total = Number(/\/(\d+)$/.exec(response.headers.get('content-range') ?? '')?.[1] ?? NaN);
      response.body?.cancel().catch(() => {});
      if (Number.isNaN(total) || start >= total) {
        if (!Number.isNaN(total)) this.#noteSize(total);
        return undefined;
      }
      throw new LinealError('HTTP_RANGE', `${this.name} refused bytes from ${start} of ${total}`, {
        detail: this.#detail({ status }),
      });
    }
    if (status === 404 || status === 410) {
      throw new LinealError('SOURCE_NOT_FOUND', `${this.name} was not found (HTTP status ${status})`, {
        detail: this.#detail({ status }),
      });
    }
    if (status !== 200 && status !== 206) {
      throw new LinealError(
        'HTTP_STATUS',
        `${this.name} answered with HTTP status ${status} ${response.statusText}`.trimEnd(),
        {
          detail: this.#detail({ status }),
        },
      );
    }
    this.#answered = true;
    this.#checkVersion(response);
    if (status === 206) {
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
    return response;
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
      this.stats.requests++;
      const response = await fetch(this.#url, {
        method: 'HEAD',
        headers: this.#options.headers,
        credentials: this.#options.credentials ?? 'same-origin',
        signal,
      });
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
    const type = response.headers.get('content-type') ?? '';
    if (offset === 0 && /\b(html|xml)\b/i.test(type) && GGUF_MAGIC.some((byte, i) => bytes[i] !== byte)) {
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
    const cause =
      error instanceof Error && error.cause instanceof Error
        ? error.cause.message || /** @type {any} */ (error.cause).code
        : '';
    const text = [error instanceof Error ? error.message : String(error), cause].filter(Boolean).join(': ');
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
      detail: this.#detail({}),
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

  /**
   * @param {Response} response
   * @param {{ bytesRead: number }} stats
   * @param {number} [position] of its first byte in the file
   */
  constructor(response, stats, position = 0) {
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
    while (this.#rest.length === 0) {
      const part = await this.#reader?.read();
      if (!part || part.done) return NOTHING;
      this.#rest = part.value;
      this.#stats.bytesRead += part.value.length;
    }
    const bytes = this.#rest.subarray(0, length);
    this.#rest = this.#rest.subarray(bytes.length);
    this.position += bytes.length;
    return bytes;
  }

  /**
   * All of `length` bytes, fewer only at the end.
   * @param {number} length
   */
  async collect(length) {
    const all = new Uint8Array(length);
    let filled = 0;
    while (filled < length) {
      const bytes = await this.take(length - filled);
      if (bytes.length === 0) break;
      all.set(bytes, filled);
      filled += bytes.length;
    }
    return all.subarray(0, filled);
  }

  cancel() {
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

/** @param {number} ms @param {AbortSignal} [signal] */
function delay(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve(undefined);
    }
    signal?.addEventListener('abort', done, { once: true });
  });
}
