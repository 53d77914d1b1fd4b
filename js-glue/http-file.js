// What the answers of one address say of its file, and whether they go together: one that changes, a page in place of
// a model, bytes that were not asked for, an end before the end.
import { LinealError, messageOf } from './errors.js';
import { contentRange, isEncoded, isGguf, pageType, retryAfter, statedSha256, statusRemedy, totalOf } from './http-answer.js';


export class HttpFile {
  #url;
  #name;
  /** @type {string | null} ETag, or Last-Modified */ #version = null;
  /** @type {'etag' | 'last-modified' | undefined} */ #versionKind;
  /** @type {string | undefined} SHA-256 of the whole, in hex */ #stated;
  /** Whether the address has given anything of a file. */ answered = false;
  /** Whether the first answer called itself a page: some servers name every file so. */ #calledPage = false;
  /** Whether a range was answered with a range. */ ranged = false;
  /** @type {number | undefined} */ size;

  /** @param {string} url @param {string} name for messages */
  constructor(url, name) {
    this.#url = url;
    this.#name = name;
  }

  /**
   * What the server said that the file is.
   * @returns {{ etag?: string, lastModified?: string, statedSha256?: string }}
   */
  get version() {
    const stated = this.#stated === undefined ? {} : { statedSha256: this.#stated };
    if (this.#version === null) return stated;
    return { ...stated, ...(this.#versionKind === 'etag' ? { etag: this.#version } : { lastModified: this.#version }) };
  }

  /** What any answer says, also one that leads elsewhere, as hubs do. @param {Response} response */
  hear(response) {
    this.#stated ??= statedSha256(response);
  }

  /**
   * True: its body holds what was asked for. False: the file ends before.
   * @param {Response} response @param {number} start
   */
  check(response, start) {
    const { status } = response;
    if (status === 416) {
      const total = totalOf(response);
      if (total !== undefined) this.#noteSize(total);
      // Of an unknown size, this is where it ends.
      if (start > 0 && (this.size === undefined || start >= this.size)) return false;
      if (total === 0) return false;
      const all = this.size === undefined ? '' : ` of ${this.size}`;
      throw new LinealError('HTTP_RANGE', `${this.#name} refused bytes from ${start}${all}`, {
        detail: this.detail({ status }),
      });
    }
    if (status === 404 || status === 410) {
      throw new LinealError('SOURCE_NOT_FOUND', `${this.#name} was not found (HTTP status ${status})`, {
        detail: this.detail({ status }),
      });
    }
    if (status !== 200 && status !== 206) {
      const wait = retryAfter(response);
      const asks = wait ? `, and asks to wait ${Math.ceil(wait / 1000)} seconds` : '';
      const text = `${this.#name} answered with HTTP status ${status} ${response.statusText}`.trimEnd();
      throw new LinealError('HTTP_STATUS', `${text}${asks}`, {
        remedy: statusRemedy(status),
        detail: this.detail({ status, retry_after_ms: wait }),
      });
    }
    if (status === 206 && isEncoded(response)) {
      throw new LinealError('HTTP_RANGE', `${this.#name} sent a part of a compressed file, which cannot be unpacked`, {
        remedy: 'switch compression of model files off on the server, or use another mirror',
        detail: this.detail({ status, content_encoding: response.headers.get('content-encoding') }),
      });
    }
    this.#checkPage(response);
    this.answered = true;
    this.#checkVersion(response);
    if (status === 206) {
      this.ranged = true;
      const range = contentRange(response);
      if (range && range.start !== start) {
        throw new LinealError(
          'HTTP_RANGE',
          `${this.#name} was asked for bytes from ${start} and sent those from ${range.start}`,
          {
            detail: this.detail({ asked: start, received: range.start }),
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
    if (!this.answered) this.#calledPage = type !== undefined;
    else if (type !== undefined && !this.#calledPage) {
      throw new LinealError('SOURCE_CHANGED', `${this.#name} now answers with a page (${type}) and not with the file`, {
        remedy: 'check that you may still read the address, and open it again',
        detail: this.detail({ content_type: type }),
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
    return new LinealError('SOURCE_CHANGED', `${this.#name} changed while it was read: ${how}`, {
      detail: this.detail({}),
    });
  }

  /**
   * The bytes, if those of the beginning are not a page's.
   * @param {number} offset
   * @param {Uint8Array} bytes
   * @param {Response} response
   */
  checkStart(offset, bytes, response) {
    const type = pageType(response);
    if (offset === 0 && type !== undefined && !isGguf(bytes)) {
      throw new LinealError(
        'NOT_GGUF',
        `${this.#name} answered with a page (${type}) and not with a GGUF file`,
        {
          remedy: 'check the address: servers often send an HTML page in place of a missing file',
          detail: this.detail({ content_type: type }),
        },
      );
    }
    return bytes;
  }

  /** @param {number} timeoutMs */
  tooLate(timeoutMs) {
    return new LinealError('NETWORK_TIMEOUT', `${this.#name} sent nothing for ${timeoutMs / 1000} seconds`, {
      detail: this.detail({ timeout_ms: timeoutMs }),
    });
  }

  /** @param {number} offset @param {number} promised @param {number} received */
  truncated(offset, promised, received) {
    return new LinealError(
      'SOURCE_TRUNCATED',
      `${this.#name} ended ${promised - received} bytes early: ${promised} were promised from byte ${offset}`,
      { detail: this.detail({ offset, expected_bytes: promised, received_bytes: received }) },
    );
  }

  /** @param {unknown} error */
  network(error) {
    if (error instanceof LinealError) return error;
    const reason = /** @type {any} */ (error instanceof Error && error.cause instanceof Error ? error.cause : {});
    const code = typeof reason.code === 'string' ? reason.code : undefined;
    const text = [messageOf(error), reason.message || code].filter(Boolean).join(': ');
    const location = /** @type {any} */ (globalThis).location;
    const foreign = location?.origin && new URL(this.#url).origin !== location.origin;
    if (foreign && !this.answered) {
      return new LinealError(
        'NETWORK',
        `${this.#name} could not be read (${text}); it is on another site, which may not allow this page to read it (CORS)`,
        {
          remedy:
            'check the connection and the address; the server must send Access-Control-Allow-Origin, or put the model on this site, or choose a downloaded file',
          detail: this.detail({ cors_suspected: true }),
          cause: error,
        },
      );
    }
    return new LinealError('NETWORK', `reading ${this.#name} failed: ${text}`, {
      detail: this.detail(code === undefined ? {} : { system_code: code }),
      cause: error,
    });
  }

  /** @param {Record<string, unknown>} more */
  detail(more) {
    return { source: this.#name, ...more };
  }
}
