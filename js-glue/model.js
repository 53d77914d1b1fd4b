// Model, Generation and Tokenizer as the user holds them, over a backend.
import { LinealError, abortError, badArgument, closedError } from './errors.js';
import { checkPrompt, generateSettings, tokenIds, whole } from './options.js';

const CLOSE_PATIENCE_MS = 1000;

/** @typedef {import('./backend.js').LocalBackend | import('./backend.js').WorkerBackend} Backend */
/** @typedef {import('./index.d.ts').GenerationResult} GenerationResult */

/**
 * A controller that fires with the user's signal, and can be fired from here.
 * @param {AbortSignal | undefined} signal
 */
function linkedController(signal) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort, { once: true });
  return { controller, unlink: () => signal?.removeEventListener('abort', abort) };
}

class Generation {
  /** @type {GenerationResult | undefined} */ result;
  #events;
  #onToken;
  #unlink;
  /** @type {Promise<GenerationResult> | undefined} */ #done;
  /** @type {((result: GenerationResult) => void)} */ #resolve = () => {};
  /** @type {((error: unknown) => void)} */ #reject = () => {};
  /** @type {{ error: unknown } | undefined} */ #failure;
  #iterated = false;
  /** @type {string[]} pieces that came while nobody read them */ #buffer = [];
  /** @type {Promise<void> | undefined} */ #draining;

  /**
   * @param {AsyncGenerator<import('./engine.js').TokenEvent, void, void>} events
   * @param {import('./index.d.ts').GenerateOptions['onToken']} onToken
   * @param {() => void} unlink
   */
  constructor(events, onToken, unlink) {
    this.#events = events;
    this.#onToken = onToken;
    this.#unlink = unlink;
  }

  /** @param {GenerationResult} result */
  end(result) {
    this.result = result;
    this.#resolve(result);
  }

  get done() {
    this.#done ??= new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      if (this.result) resolve(this.result);
      else if (this.#failure) reject(this.#failure.error);
      // Whoever also iterates starts in this turn; otherwise it runs by itself.
      else
        setTimeout(() => {
          if (!this.#iterated) this.#draining = this.#drain();
        }, 0);
    });
    return this.#done;
  }

  async #drain() {
    try {
      for (let piece = await this.#pull(); piece !== undefined; piece = await this.#pull())
        this.#buffer.push(piece);
    } catch {
      // #failure has it: `done` rejects, and a reader who comes later gets it too.
    }
  }

  /** The next text that is not empty; undefined at the end. */
  async #pull() {
    try {
      for (;;) {
        const { value, done } = await this.#events.next();
        if (done || !value) {
          this.#unlink();
          // Ended by close() before it began: there is no result.
          if (!this.result) throw closedError();
          return undefined;
        }
        if (value.id >= 0)
          this.#onToken?.({
            id: value.id,
            index: value.index,
            ...('logprob' in value ? { logprob: value.logprob } : {}),
          });
        if (value.text !== '') return value.text;
      }
    } catch (error) {
      await this.#fail(error);
      throw error;
    }
  }

  /** @param {unknown} error */
  async #fail(error) {
    this.#failure = { error };
    this.#reject(error);
    this.#unlink();
    // An error of onToken leaves the engine running: end it.
    await this.#events.return(undefined).catch(() => {});
  }

  /** @returns {AsyncIterator<string, undefined>} */
  [Symbol.asyncIterator]() {
    if (this.#iterated) throw badArgument('a generation can be iterated once');
    this.#iterated = true;
    return {
      next: async () => {
        if (this.#draining) await this.#draining;
        const buffered = this.#buffer.shift();
        if (buffered !== undefined) return { value: buffered, done: false };
        if (this.#failure) throw this.#failure.error;
        if (this.result) return { value: undefined, done: true };
        const piece = await this.#pull();
        return piece === undefined ? { value: undefined, done: true } : { value: piece, done: false };
      },
      return: async () => {
        await this.#events.return(undefined);
        // Left before it began: there is no result.
        if (!this.result && !this.#failure) await this.#fail(abortError());
        this.#unlink();
        return { value: undefined, done: true };
      },
    };
  }
}

export class Model {
  /** @readonly */ info;
  /** @readonly */ explanation;
  #backend;
  #closed = false;
  /** What runs, so that close() can end it. @type {Set<{ controller: AbortController, end: () => Promise<unknown> }>} */
  #running = new Set();

  /**
   * @param {Backend} backend
   * @param {import('./index.d.ts').ModelInfo} info
   * @param {import('./index.d.ts').Explanation} explanation
   */
  constructor(backend, info, explanation) {
    this.#backend = backend;
    this.info = info;
    this.explanation = explanation;
  }

  /**
   * @param {string | ArrayLike<number>} prompt
   * @param {import('./index.d.ts').GenerateOptions} [options]
   */
  generate(prompt, options = {}) {
    const { controller, unlink } = linkedController(options?.signal);
    const start = () => {
      this.#checkOpen();
      const settings = generateSettings(options);
      return this.#backend.generate(checkPrompt(prompt), settings, controller.signal, (result) =>
        generation.end(result),
      );
    };
    const events = this.#exclusive(start, controller);
    const generation = new Generation(events, options?.onToken, unlink);
    return generation;
  }

  /**
   * @param {ArrayLike<number>} ids
   * @param {{ signal?: AbortSignal }} [options]
   * @returns {AsyncGenerator<import('./index.d.ts').LogitsRow, void, void>}
   */
  async *evaluate(ids, options = {}) {
    const { controller, unlink } = linkedController(options.signal);
    try {
      yield* this.#exclusive(
        () => this.#backend.evaluate(/** @type {Int32Array} */ (checkPrompt(ids)), controller.signal),
        controller,
      );
    } finally {
      unlink();
    }
  }

  /**
   * @param {ArrayLike<number>} ids
   * @param {{ from?: number, signal?: AbortSignal }} [options]
   * @returns {Promise<Float64Array>}
   */
  async score(ids, options = {}) {
    this.#checkOpen();
    const { controller, unlink } = linkedController(options.signal);
    this.#checkIdle();
    const entry = { controller, end: async () => {} };
    this.#running.add(entry);
    try {
      const checked = /** @type {Int32Array} */ (checkPrompt(ids));
      const from = whole('from', options.from ?? 0, 0, 2 ** 31 - 1);
      return await this.#backend.score(checked, from, controller.signal);
    } finally {
      this.#running.delete(entry);
      unlink();
    }
  }

  /**
   * One at a time; it begins when it is first asked for something.
   * @template T
   * @param {() => AsyncGenerator<T, void, void>} start
   * @param {AbortController} controller
   * @returns {AsyncGenerator<T, void, void>}
   */
  async *#exclusive(start, controller) {
    this.#checkOpen();
    this.#checkIdle();
    const inner = start();
    const entry = { controller, end: () => inner.return(undefined) };
    this.#running.add(entry);
    try {
      for (;;) {
        const { value, done } = await inner.next();
        if (done) return;
        yield value;
      }
    } finally {
      await inner.return(undefined);
      this.#running.delete(entry);
    }
  }

  #checkIdle() {
    if (this.#running.size > 0)
      throw new LinealError('BUSY', 'a generation or evaluation is running on this model');
  }

  #checkOpen() {
    if (this.#closed) throw closedError();
  }

  /** @param {string} text @param {import('./index.d.ts').TokenizeOptions} [options] */
  async tokenize(text, options = {}) {
    this.#checkOpen();
    return this.#backend.tokenize(checkText(text), tokenizeOptions(options));
  }

  /** @param {ArrayLike<number>} ids @param {{ showSpecial?: boolean }} [options] */
  async detokenize(ids, options = {}) {
    this.#checkOpen();
    return this.#backend.detokenize(tokenIds(ids), Boolean(options.showSpecial));
  }

  /** @param {ArrayLike<number>} ids */
  async pieces(ids) {
    this.#checkOpen();
    return this.#backend.pieces(tokenIds(ids));
  }

  async memory() {
    this.#checkOpen();
    return this.#backend.memory();
  }

  async close() {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.all(
      [...this.#running].map(async ({ controller, end }) => {
        controller.abort(abortError());
        // What does not end by itself (a read that hangs) ends with the backend.
        /** @type {ReturnType<typeof setTimeout> | undefined} */ let timer;
        const patience = new Promise((resolve) => {
          timer = setTimeout(resolve, CLOSE_PATIENCE_MS);
        });
        await Promise.race([end().catch(() => {}), patience]);
        clearTimeout(timer);
      }),
    );
    await this.#backend.close();
  }
}

export class Tokenizer {
  /** @readonly */ vocabSize;
  #backend;
  #closed = false;

  /** @param {Backend} backend @param {number} vocabSize */
  constructor(backend, vocabSize) {
    this.#backend = backend;
    this.vocabSize = vocabSize;
  }

  #checkOpen() {
    if (this.#closed) throw closedError();
  }

  /** @param {string} text @param {import('./index.d.ts').TokenizeOptions} [options] */
  async encode(text, options = {}) {
    this.#checkOpen();
    return this.#backend.tokenize(checkText(text), tokenizeOptions(options));
  }

  /** @param {ArrayLike<number>} ids @param {{ showSpecial?: boolean }} [options] */
  async decode(ids, options = {}) {
    this.#checkOpen();
    return this.#backend.detokenize(tokenIds(ids), Boolean(options.showSpecial));
  }

  /** @param {ArrayLike<number>} ids */
  async pieces(ids) {
    this.#checkOpen();
    return this.#backend.pieces(tokenIds(ids));
  }

  async close() {
    if (this.#closed) return;
    this.#closed = true;
    await this.#backend.close();
  }
}

/** @param {unknown} text */
function checkText(text) {
  if (typeof text !== 'string') throw badArgument(`the text is a string, not ${typeof text}`);
  return text;
}

/** @param {import('./index.d.ts').TokenizeOptions} options */
function tokenizeOptions(options) {
  return { addSpecial: options.addSpecial ?? true, parseSpecial: Boolean(options.parseSpecial) };
}
