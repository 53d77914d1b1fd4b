// LinealError: the one error of the package. It is data (code, message, remedy,
// detail), so that it crosses a worker border and a --json line whole.

/** Remedies of the codes of this layer; those of the core come with its status. */
const REMEDIES = {
  SOURCE_NOT_FOUND: 'check the path or address',
  SOURCE_UNREADABLE: 'check that it is a file that you may read, and choose it again',
  SOURCE_CHANGED: 'the file was replaced while it was being read: open it again',
  SOURCE_READ: 'see the cause: the read function of the source failed',
  SOURCE_TRUNCATED: 'try again; if it stays so, the file on the server is incomplete',
  SOURCE_CHECKSUM: 'check the address and the SHA-256; nothing of what came was kept',
  CACHE_UNAVAILABLE: 'open the model with cache: false, or give another place for the cache',
  CACHE_FULL: 'make room (modelCache.delete, lineal cache delete), or open the model with cache: false',
  HTTP_STATUS: 'check the address, and give the headers or credentials that the server wants',
  HTTP_RANGE:
    'the server or a proxy answers Range requests wrongly: use another mirror, or download the file first',
  NETWORK: 'check the connection and the address, then try again',
  NETWORK_TIMEOUT: 'try again; for a server that needs longer, raise fetch.timeoutMs',
  CALLBACK_FAILED: 'see the cause: the function that you gave failed',
  OUTPUT_FAILED: 'make room where the output goes, or send it elsewhere',
  ABORTED: 'start it again when wanted',
  BUSY: 'wait for the running generation to end, or abort it; open the model twice to run two at once',
  CLOSED: 'open the model again',
  NOT_NUMBERS:
    'the weights are damaged, or keys and values are beyond a cache of 16 bits: download the file again, or hold the cache in f32',
  NO_LOGITS: 'open the model without embeddings: true; an embedding model cannot generate at all',
  NO_EMBEDDINGS: 'open the model with embeddings: true',
  BAD_ARGUMENT: 'see the documented values of the option that the message names',
  WASM_UNSUPPORTED:
    'use an engine with WebAssembly SIMD: Chrome 91, Firefox 89, Safari 16.4, Node 20, or later',
  WASM_UNAVAILABLE: 'check that the .wasm files lie where the message says, or pass wasmBaseUrl',
  WASM_VERSION: 'install the package again: its JavaScript and its .wasm files are of different versions',
  WORKER_FAILED: 'open the model again; if it stays so, open it with worker: false to see the cause',
  INTERNAL: "please report this with the model's name and the message",
};

/** @typedef {{ remedy?: string, detail?: Record<string, unknown>, cause?: unknown }} ErrorOptions */

export class LinealError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {ErrorOptions} [options]
   */
  constructor(code, message, options = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'LinealError';
    /** @readonly */
    this.code = code;
    /** @readonly */
    this.remedy = options.remedy ?? /** @type {Record<string, string>} */ (REMEDIES)[code] ?? '';
    /** @readonly @type {Record<string, unknown>} */
    this.detail = options.detail ?? {};
  }

  toJSON() {
    return { code: this.code, message: this.message, remedy: this.remedy, detail: this.detail };
  }

  /** @param {unknown} json as toJSON gave it */
  static fromJSON(json) {
    const data = /** @type {any} */ (json ?? {});
    return new LinealError(String(data.code ?? 'INTERNAL'), String(data.message ?? 'unknown error'), {
      remedy: typeof data.remedy === 'string' ? data.remedy : undefined,
      detail: data.detail && typeof data.detail === 'object' ? data.detail : {},
    });
  }

  /**
   * Any thrown value as a LinealError.
   * @param {unknown} error
   */
  static from(error) {
    if (error instanceof LinealError) return error;
    if (isAbort(error)) return abortError(error);
    const text = messageOf(error);
    return new LinealError('INTERNAL', error instanceof Error ? `${error.name}: ${text}` : text, { cause: error });
  }
}

/** @param {unknown} error */
function isAbort(error) {
  return error instanceof Error && error.name === 'AbortError';
}

/** What a thrown value says; some cannot be made a text. @param {unknown} thrown */
export function messageOf(thrown) {
  try {
    return thrown instanceof Error ? thrown.message || thrown.name : String(thrown);
  } catch {
    return 'what is no error';
  }
}

/**
 * A function of the user threw.
 * @param {string} name of the function
 * @param {unknown} cause
 */
export function callbackError(name, cause) {
  return new LinealError('CALLBACK_FAILED', `${name} threw: ${messageOf(cause)}`, {
    detail: { callback: name },
    cause,
  });
}

/** @param {unknown} [cause] */
export function abortError(cause) {
  return new LinealError('ABORTED', 'the operation was aborted', { cause });
}

export function closedError() {
  return new LinealError('CLOSED', 'the model is closed');
}

/**
 * Throws ABORTED once the signal has fired.
 * @param {{ readonly aborted: boolean } | null | undefined} signal
 */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw abortError();
}

/**
 * @param {string} message
 * @param {Record<string, unknown>} [detail]
 */
export function badArgument(message, detail) {
  return new LinealError('BAD_ARGUMENT', message, { detail });
}

/**
 * The promise, or ABORTED as soon as the signal fires: for work that does not
 * look at the signal itself.
 * @template T
 * @param {Promise<T>} promise
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<T>}
 */
export function abortable(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(abortError());
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
