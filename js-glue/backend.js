// The two places where an engine can run, with one interface: in this thread
// (LocalBackend), or in a worker that holds a LocalBackend (WorkerBackend).
// One backend, one engine.
import { Engine } from './engine.js';
import { LinealError, closedError } from './errors.js';
import { closeParts, readCustom, viewOf } from './source.js';
import { Rpc, portOf } from './rpc.js';
import { startWorker } from './start-worker.js';
import { ThreadHost } from './threads.js';
import { atMost } from './turn.js';

const CLOSE_PATIENCE_MS = 500;

/** @typedef {import('./engine.js').EngineContext} EngineContext */
/** @typedef {import('./engine.js').TokenEvent} TokenEvent */
/** @typedef {import('./source.js').Descriptor} Descriptor */
/** @typedef {import('./options.js').PlanOptions} PlanOptions */
/** @typedef {import('./options.js').GenerateSettings} GenerateSettings */
/** @typedef {import('./index.d.ts').GenerationResult} GenerationResult */
/** @typedef {import('./index.d.ts').LogitsRow} LogitsRow */

export class LocalBackend {
  /** @type {Engine | undefined} */ #engine;
  /** @type {Descriptor[]} */ #parts = [];

  get #open() {
    if (!this.#engine) throw closedError();
    return this.#engine;
  }

  /** @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context */
  async explain(parts, options, context) {
    this.#parts = parts;
    const engine = await Engine.readHeader(parts, options, context);
    try {
      return await engine.plan(options, context);
    } finally {
      await engine.close();
    }
  }

  /** @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context */
  async inspect(parts, options, context) {
    this.#parts = parts;
    const engine = await Engine.readHeader(parts, options, context, { firstPartOnly: false });
    try {
      return engine.inspect();
    } finally {
      await engine.close();
    }
  }

  /** @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context */
  async openTokenizer(parts, options, context) {
    this.#parts = parts;
    const engine = await Engine.readHeader(parts, options, context, { firstPartOnly: true });
    try {
      engine.bindTokenizer();
    } catch (error) {
      await engine.close();
      throw error;
    }
    this.#engine = engine;
    return engine.info;
  }

  /** @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context */
  async open(parts, options, context) {
    this.#parts = parts;
    const { engine, explanation } = await Engine.open(parts, options, context);
    this.#engine = engine;
    // The plan says how many compute; the info must not say another number.
    return { info: { ...engine.info, threads: explanation.threads }, explanation };
  }

  /** The info once all weights are there; see Engine.weights. */
  async weights() {
    return this.#open.weights();
  }

  /** @param {LinealError} error */
  abortLoad(error) {
    this.#engine?.abortLoad(error);
  }

  /**
   * @param {string | Int32Array} prompt @param {GenerateSettings} settings @param {AbortSignal} signal
   * @param {(result: GenerationResult) => void} onEnd
   */
  generate(prompt, settings, signal, onEnd) {
    return this.#open.generate(prompt, settings, signal, onEnd);
  }

  /** @param {Int32Array} ids @param {AbortSignal} signal */
  evaluate(ids, signal) {
    return this.#open.evaluate(ids, signal);
  }

  /** @param {string | Int32Array} input @param {AbortSignal} signal */
  async embed(input, signal) {
    return this.#open.embed(input, signal);
  }

  /** @param {Int32Array} ids @param {number} from @param {AbortSignal} signal */
  async score(ids, from, signal) {
    return this.#open.score(ids, from, signal);
  }

  /** @param {string} text @param {{ addSpecial: boolean, parseSpecial: boolean }} options */
  async tokenize(text, options) {
    return this.#open.tokenize(text, options);
  }

  /** @param {Int32Array} ids @param {boolean} showSpecial */
  async detokenize(ids, showSpecial) {
    return this.#open.detokenize(ids, showSpecial);
  }

  /** @param {Int32Array} ids */
  async pieces(ids) {
    return this.#open.pieces(ids);
  }

  async memory() {
    return this.#open.memory();
  }

  async explainPlan() {
    return this.#open.explainPlan();
  }

  async close() {
    const engine = this.#engine;
    this.#engine = undefined;
    await engine?.close();
    await closeParts(this.#parts); // those that were not opened, too
  }
}

/**
 * What can cross to the worker, where it is checked: a view would take its whole buffer along.
 * @param {unknown} bytes
 */
function portableBytes(bytes) {
  if (!(bytes instanceof Uint8Array)) return null;
  return bytes.length === bytes.buffer.byteLength ? bytes : bytes.slice();
}

export class WorkerBackend {
  #rpc;
  #worker;
  #threads;
  #closed = false;
  /** @type {Promise<unknown> | undefined} once they are told to end */ #ended;
  /** @type {((progress: import('./index.d.ts').Progress) => void) | undefined} */ #onProgress;
  /** @type {((offset: number, length: number) => Promise<Uint8Array>)[]} */ #readers = [];
  /** @type {LinealError | undefined} the last error of one of them, with its cause */ #readError;
  /** @type {Descriptor[]} */ #parts = [];

  static async start() {
    const state = {
      gone: '',
      fail: (/** @type {string} */ reason) => {
        state.gone = reason;
      },
    };
    const backend = new WorkerBackend(await startWorker('worker', (reason) => state.fail(reason)));
    state.fail = (reason) => backend.fail(reason);
    if (state.gone) backend.fail(state.gone);
    return backend;
  }

  /** @param {import('./start-worker.js').StartedWorker} worker */
  constructor(worker) {
    this.#worker = worker;
    this.#threads = new ThreadHost((method, args) => this.#rpc.notify(method, args));
    this.#rpc = new Rpc(portOf(worker.target), {
      ...this.#threads.handlers,
      progress: (progress) => this.#onProgress?.(progress),
      read: async ({ id, offset, length }) => {
        try {
          return portableBytes(await this.#readers[id](offset, length));
        } catch (error) {
          this.#readError = LinealError.from(error);
          throw this.#readError;
        }
      },
    });
  }

  /** @param {string} reason */
  fail(reason) {
    this.#rpc.fail(
      this.#closed
        ? closedError()
        : new LinealError('WORKER_FAILED', `the worker stopped: ${reason}`, { detail: { reason } }),
    );
    if (!this.#closed) this.#terminate();
  }

  #terminate() {
    this.#ended ??= Promise.all([this.#threads.close(), this.#worker.terminate()]);
    return this.#ended;
  }

  /**
   * What cannot cross, or would be copied whole, stays here and is read in chunks.
   * @param {Descriptor[]} parts
   * @returns {Descriptor[]}
   */
  #portable(parts) {
    return parts.map((part) => {
      if (part.kind !== 'bytes' && part.kind !== 'custom') return part;
      const id = this.#readers.length;
      if (part.kind === 'bytes') {
        const { size } = part;
        this.#readers.push(async (offset, length) => viewOf(part.bytes, size, offset, length).slice());
        return { kind: 'remote', of: part.kind, id, size, name: part.name, forward: false };
      }
      this.#readers.push((offset, length) => readCustom(part.custom, part.name, offset, length));
      return { kind: 'remote', of: part.kind, id, size: part.custom.size, name: part.name, forward: part.forward };
    });
  }

  /** @param {string} method @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context */
  async #start(method, parts, options, context) {
    this.#onProgress = context.onProgress;
    this.#parts = parts;
    try {
      return await this.#rpc.call(
        method,
        { parts: this.#portable(parts), options, progress: Boolean(context.onProgress) },
        context.signal,
      );
    } catch (error) {
      throw this.#withCause(error);
    } finally {
      if (!options.overlap) this.#onProgress = undefined;
    }
  }

  /** An error of a reader went to the worker and came back without its cause. @param {unknown} error */
  #withCause(error) {
    const own = this.#readError;
    return error instanceof LinealError && own?.code === error.code && own.message === error.message ? own : error;
  }

  /** @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context */
  explain(parts, options, context) {
    return this.#start('explain', parts, options, context);
  }

  /** @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context */
  inspect(parts, options, context) {
    return this.#start('inspect', parts, options, context);
  }

  /** @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context */
  openTokenizer(parts, options, context) {
    return this.#start('openTokenizer', parts, options, context);
  }

  /** @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context */
  open(parts, options, context) {
    return this.#start('open', parts, options, context);
  }

  /** @returns {Promise<import('./engine.js').LoadedInfo>} */
  async weights() {
    try {
      return await this.#rpc.call('weights');
    } catch (error) {
      throw this.#withCause(error);
    } finally {
      this.#onProgress = undefined;
    }
  }

  /** @param {LinealError} error */
  abortLoad(error) {
    this.#rpc.notify('abortLoad', error.toJSON());
  }

  /**
   * @param {string | Int32Array} prompt @param {GenerateSettings} settings @param {AbortSignal} signal
   * @param {(result: GenerationResult) => void} onEnd
   * @returns {AsyncGenerator<TokenEvent, void, void>}
   */
  generate(prompt, settings, signal, onEnd) {
    return this.#stream('generate', { prompt, settings }, signal, onEnd);
  }

  /**
   * @param {Int32Array} ids @param {AbortSignal} signal
   * @returns {AsyncGenerator<LogitsRow, void, void>}
   */
  evaluate(ids, signal) {
    return this.#stream('evaluate', { ids }, signal, () => {});
  }

  /**
   * @param {'generate' | 'evaluate'} kind @param {unknown} args @param {AbortSignal} signal
   * @param {(result: GenerationResult) => void} onEnd
   * @returns {AsyncGenerator<any, void, void>}
   */
  async *#stream(kind, args, signal, onEnd) {
    const stream = await this.#rpc.call('streamStart', { kind, args });
    const abort = () => this.#rpc.notify('streamAbort', { stream });
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
    let running = true;
    try {
      for (;;) {
        running = false; // an error ends the stream at the other end
        const next = await this.#rpc.call('streamNext', { stream });
        if (next.done) {
          if (next.result) onEnd(next.result);
          return;
        }
        running = true;
        yield next.value;
      }
    } finally {
      signal.removeEventListener('abort', abort);
      if (running) {
        const { result } = await this.#rpc.call('streamReturn', { stream });
        if (result) onEnd(result);
      }
    }
  }

  /** @param {string | Int32Array} input @param {AbortSignal} signal */
  embed(input, signal) {
    return this.#rpc.call('embed', { input }, signal);
  }

  /** @param {Int32Array} ids @param {number} from @param {AbortSignal} signal */
  score(ids, from, signal) {
    return this.#rpc.call('score', { ids, from }, signal);
  }

  /** @param {string} text @param {{ addSpecial: boolean, parseSpecial: boolean }} options */
  tokenize(text, options) {
    return this.#rpc.call('tokenize', { text, options });
  }

  /** @param {Int32Array} ids @param {boolean} showSpecial */
  detokenize(ids, showSpecial) {
    return this.#rpc.call('detokenize', { ids, showSpecial });
  }

  /** @param {Int32Array} ids */
  pieces(ids) {
    return this.#rpc.call('pieces', { ids });
  }

  memory() {
    return this.#rpc.call('memory');
  }

  explainPlan() {
    return this.#rpc.call('explainPlan');
  }

  async close() {
    if (this.#closed) return;
    this.#closed = true;
    // Threads that wait inside of wasm hear no message: browsers give them two
    // seconds before they end them. So the engine lets them go first, if it answers.
    await atMost(this.#rpc.call('close').catch(() => {}), CLOSE_PATIENCE_MS);
    this.#rpc.fail(closedError());
    // Ending the worker gives everything back at once; its state is worth nothing.
    await this.#terminate();
    await closeParts(this.#parts);
  }
}
