// Model, Generation and Tokenizer as the user holds them, over a backend.
import { LinealError, abortError, badArgument, callbackError, closedError, throwIfAborted } from './errors.js';
import {
  checkPrompt,
  checkSequence,
  checkText,
  detokenizeOptions,
  evaluateOptions,
  generateSettings,
  scoreOptions,
  tokenIds,
  tokenizeOptions,
} from './options.js';
import { linkedController } from './signals.js';
import { atMost } from './turn.js';

const CLOSE_PATIENCE_MS = 1000;

/** @typedef {import('./backend.js').LocalBackend | import('./backend.js').WorkerBackend} Backend */
/** @typedef {import('./index.d.ts').GenerationResult} GenerationResult */

/** @type {import('./index.d.ts').GenerateOptions} */
const NO_HOOKS = {};

/**
 * Does the work at once, and gives its value, or throws, when asked.
 * @template T
 * @param {() => T} work
 * @returns {{ failed: boolean, get: () => T }}
 */
function now(work) {
  try {
    const value = work();
    return { failed: false, get: () => value };
  } catch (error) {
    return {
      failed: true,
      get: () => {
        throw error;
      },
    };
  }
}

class Generation {
  /** @type {GenerationResult | undefined} */ result;
  #events;
  #onToken;
  #onProgress;
  #unlink;
  /** @type {Promise<GenerationResult> | undefined} */ #done;
  /** @type {((result: GenerationResult) => void)} */ #resolve = () => {};
  /** @type {((error: unknown) => void)} */ #reject = () => {};
  /** @type {{ error: unknown } | undefined} */ #failure;
  #iterated = false;
  /** @type {string[]} pieces that came while nobody read them */ #buffer = [];
  #draining = false;
  /** @type {Promise<unknown>} settles when nobody pulls: pieces keep their order */ #pulling = Promise.resolve();

  /**
   * @param {AsyncGenerator<import('./engine.js').TokenEvent, void, void>} events
   * @param {import('./index.d.ts').GenerateOptions} hooks
   * @param {() => void} unlink
   */
  constructor(events, { onToken, onProgress }, unlink) {
    this.#events = events;
    this.#onToken = onToken;
    this.#onProgress = onProgress;
    this.#unlink = unlink;
  }

  /**
   * The model is free again. Not a method: the user holds the generation.
   * @param {Generation} generation
   * @param {GenerationResult | undefined} result undefined: it failed
   */
  static end(generation, result) {
    if (!result || generation.result || generation.#failure) return;
    generation.result = result;
    generation.#resolve(result);
  }

  get done() {
    this.#done ??= new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (this.result) this.#resolve(this.result);
    else if (this.#failure) this.#reject(this.#failure.error);
    // Who reads by hand and now waits for the end reads no more.
    else if (this.#iterated) this.#drain();
    // Whoever also iterates starts in this turn; otherwise it runs by itself.
    else
      setTimeout(() => {
        if (!this.#iterated) this.#drain();
      }, 0);
    return this.#done;
  }

  /** Runs to the end; the pieces wait for a reader. */
  async #drain() {
    if (this.#draining) return;
    this.#draining = true;
    try {
      while (!this.result && !this.#failure) {
        await this.#inTurn(async () => {
          const piece = await this.#pull();
          if (piece !== undefined) this.#buffer.push(piece);
        });
      }
    } catch {
      // #failure has it: `done` rejects, and a reader who comes later gets it too.
    }
  }

  /**
   * @template T
   * @param {() => Promise<T>} work
   * @returns {Promise<T>}
   */
  #inTurn(work) {
    const turn = this.#pulling.then(work);
    this.#pulling = turn.catch(() => {});
    return turn;
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
        if (value.id >= 0 || value.prefill) this.#report(value);
        if (value.text !== '') return value.text;
      }
    } catch (error) {
      await this.#fail(error);
      throw error;
    }
  }

  /** @param {import('./engine.js').TokenEvent} event */
  #report({ id, index, logprob, prefill }) {
    if (prefill) {
      try {
        this.#onProgress?.({ phase: 'prefill', ...prefill });
      } catch (error) {
        throw callbackError('onProgress', error);
      }
      return;
    }
    try {
      this.#onToken?.({ id, index, ...(logprob === undefined ? {} : { logprob }) });
    } catch (error) {
      throw callbackError('onToken', error);
    }
  }

  /** @param {unknown} error */
  async #fail(error) {
    this.#failure = { error };
    // An error of onToken leaves the engine running: end it.
    await this.#events.return(undefined).catch(() => {});
    this.#unlink();
    this.#reject(error);
  }

  /** @returns {AsyncIterator<string, undefined>} */
  [Symbol.asyncIterator]() {
    if (this.#iterated) throw badArgument('a generation can be iterated once');
    this.#iterated = true;
    return {
      next: () =>
        this.#inTurn(async () => {
          const buffered = this.#buffer.shift();
          if (buffered !== undefined) return { value: buffered, done: false };
          if (this.#failure) throw this.#failure.error;
          if (this.result) return { value: undefined, done: true };
          const piece = await this.#pull();
          return piece === undefined ? { value: undefined, done: true } : { value: piece, done: false };
        }),
      return: async () => {
        this.#buffer = [];
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
  /** Resolves when all weights are in place. @type {Promise<void>} */ loaded = Promise.resolve();
  #backend;
  #closed = false;
  /**
   * What runs, so that close() can end it.
   * @type {Set<{ controller: AbortController, end: () => Promise<unknown>, release: () => void }>}
   */
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
   * What is wrong with the arguments is said when the generation is asked for something, like every error of it.
   * @param {string | import('./index.d.ts').TokenIds} prompt
   * @param {import('./index.d.ts').GenerateOptions} [options]
   */
  generate(prompt, options = {}) {
    const checked = now(() => ({ settings: generateSettings(options), prompt: checkPrompt(prompt) }));
    const { signal, ...hooks } = checked.failed ? NO_HOOKS : options;
    const { controller, unlink } = linkedController(signal);
    /** @type {GenerationResult | undefined} */ let result;
    /** @returns {AsyncGenerator<import('./engine.js').TokenEvent, void, void>} */
    const start = () => {
      const { settings, prompt: checkedPrompt } = checked.get();
      return this.#backend.generate(checkedPrompt, settings, controller.signal, (r) => {
        result = r;
      });
    };
    const events = this.#exclusive(start, controller, () => Generation.end(generation, result));
    /** @type {Generation} */
    const generation = new Generation(events, hooks, unlink);
    return generation;
  }

  /**
   * @param {import('./index.d.ts').TokenIds} ids
   * @param {{ signal?: AbortSignal }} [options]
   * @returns {AsyncGenerator<import('./index.d.ts').LogitsRow, void, void>}
   */
  evaluate(ids, options = {}) {
    return this.#evaluate(now(() => ({ ids: checkSequence(ids), ...evaluateOptions(options) })));
  }

  /**
   * @param {{ get: () => { ids: Int32Array, signal: AbortSignal | undefined } }} checked
   * @returns {AsyncGenerator<import('./index.d.ts').LogitsRow, void, void>}
   */
  async *#evaluate(checked) {
    const { ids, signal } = checked.get();
    const { controller, unlink } = linkedController(signal);
    try {
      yield* this.#exclusive(() => this.#backend.evaluate(ids, controller.signal), controller);
    } finally {
      unlink();
    }
  }

  /**
   * @param {import('./index.d.ts').TokenIds} ids
   * @param {{ from?: number, signal?: AbortSignal }} [options]
   * @returns {Promise<Float64Array>}
   */
  async score(ids, options = {}) {
    const { from, signal } = scoreOptions(options);
    const checked = checkSequence(ids);
    return this.#alone(signal, (inner) => this.#backend.score(checked, from, inner));
  }

  /**
   * @param {string | import('./index.d.ts').TokenIds} input
   * @param {{ signal?: AbortSignal }} [options]
   * @returns {Promise<Float32Array>}
   */
  async embed(input, options = {}) {
    const { signal } = evaluateOptions(options);
    const checked = typeof input === 'string' ? checkText(input) : checkSequence(input);
    return this.#alone(signal, (inner) => this.#backend.embed(checked, inner));
  }

  /**
   * Work that nothing else may run beside.
   * @template T
   * @param {AbortSignal | undefined} signal
   * @param {(signal: AbortSignal) => Promise<T>} work
   * @returns {Promise<T>}
   */
  async #alone(signal, work) {
    this.#checkOpen();
    throwIfAborted(signal);
    this.#checkIdle();
    const { controller, unlink } = linkedController(signal);
    const entry = { controller, end: async () => {}, release: () => {} };
    this.#running.add(entry);
    try {
      return await work(controller.signal);
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
   * @param {() => void} [onRelease] called once the model takes other work again
   * @returns {AsyncGenerator<T, void, void>}
   */
  async *#exclusive(start, controller, onRelease) {
    this.#checkOpen();
    this.#checkIdle();
    const inner = start();
    const entry = {
      controller,
      end: () => inner.return(undefined),
      release: () => {
        this.#running.delete(entry);
        onRelease?.();
      },
    };
    this.#running.add(entry);
    try {
      for (;;) {
        const { value, done } = await inner.next();
        if (done) return;
        yield value;
      }
    } finally {
      await inner.return(undefined);
      entry.release();
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

  /** @param {import('./index.d.ts').TokenIds} ids @param {{ showSpecial?: boolean }} [options] */
  async detokenize(ids, options = {}) {
    this.#checkOpen();
    return this.#backend.detokenize(tokenIds(ids), detokenizeOptions(options).showSpecial);
  }

  /** @param {import('./index.d.ts').TokenIds} ids */
  async pieces(ids) {
    this.#checkOpen();
    return this.#backend.pieces(tokenIds(ids));
  }

  async memory() {
    this.#checkOpen();
    return this.#backend.memory();
  }

  async explainPlan() {
    this.#checkOpen();
    return this.#backend.explainPlan();
  }

  async close() {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.all(
      [...this.#running].map(async ({ controller, end, release }) => {
        controller.abort(abortError());
        // What does not end by itself (a read that hangs) ends with the backend.
        await atMost(end().catch(() => {}), CLOSE_PATIENCE_MS);
        release();
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

  /** @param {import('./index.d.ts').TokenIds} ids @param {{ showSpecial?: boolean }} [options] */
  async decode(ids, options = {}) {
    this.#checkOpen();
    return this.#backend.detokenize(tokenIds(ids), detokenizeOptions(options).showSpecial);
  }

  /** @param {import('./index.d.ts').TokenIds} ids */
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

