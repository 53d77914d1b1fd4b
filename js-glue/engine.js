// One open model: its sources, its instance of the core, one timeline. The
// same code runs in process and inside a worker. All arguments and results are
// plain data.
import { TEXT } from './abi-names.js';
import { chooseModule, probeCapabilities } from './caps.js';
import { LinealError, abortable, badArgument, closedError, throwIfAborted } from './errors.js';
import { Evaluator } from './evaluator.js';
import { tokensAfter } from './generate.js';
import { FIRST_READ_BYTES, Loader } from './loader.js';
import { sums } from './memory-map.js';
import { Planner, addExpected, doesNotFit } from './planner.js';
import { LoadClock, Profiler } from './profile.js';
import { openSource } from './source.js';
import { TextStream, decodeText } from './text.js';
import { Threads } from './threads.js';
import { startModule } from './wasm-module.js';

/** @typedef {import('./options.js').PlanOptions} PlanOptions */
/** @typedef {import('./options.js').GenerateSettings} GenerateSettings */
/** @typedef {import('./source.js').Descriptor} Descriptor */
/** @typedef {import('./loader.js').LoadContext} EngineContext */
/** @typedef {import('./index.d.ts').GenerationResult} GenerationResult */
/** @typedef {import('./index.d.ts').LogitsRow} LogitsRow */
/** @typedef {import('./index.d.ts').ModelInfo & { warnings: import('./index.d.ts').Reason[] }} LoadedInfo */
/** @typedef {import('./generate.js').TokenEvent} TokenEvent */

const PLAIN_TEXT = { addSpecial: true, parseSpecial: false };

export class Engine {
  #core;
  #loader;
  #planner;
  /** @type {Threads | undefined} */ #threads;
  #evaluator;
  #clock;
  /** @type {import('./profile.js').Plans | undefined} */ #plans;
  #busy = false;
  #closed = false;
  /** @type {Promise<void>} resolves when all weights are there */ #weights = Promise.resolve();
  /** @type {boolean | undefined} whether the tokenizer puts a space before a text */ #spacePrefix;

  /** @param {Planner} planner @param {Loader} loader @param {LoadClock} clock */
  constructor(planner, loader, clock) {
    this.#planner = planner;
    this.#core = planner.core;
    this.#loader = loader;
    this.#clock = clock;
    this.#evaluator = new Evaluator(this.#core, loader);
  }

  // --- opening --------------------------------------------------------------------

  /**
   * Reads the header, of all parts or of the first one only.
   * @param {Descriptor[]} parts
   * @param {PlanOptions} options
   * @param {EngineContext} given
   * @param {{ firstPartOnly?: boolean }} [how]
   */
  static async readHeader(parts, options, given, how = {}) {
    const context = { ...given, wasmBaseUrl: options.wasmBaseUrl };
    throwIfAborted(context.signal);
    const clock = new LoadClock();
    context.onProgress?.({ phase: 'compile', loaded: 0, total: undefined });
    const name = await chooseModule(options.module);
    const start = await startModule(name, await probeCapabilities(options.host), options);
    throwIfAborted(context.signal);
    clock.end('compile', 0);
    const source = await openSource(parts[0], context);
    let engine;
    try {
      // First of all: its answer tells what the source can do, and the plan is made for that.
      const first = source.readSync
        ? undefined
        : await abortable(source.read(0, FIRST_READ_BYTES, context.signal), context.signal);
      const capabilities = await probeCapabilities(options.host, {
        syncRead: Boolean(source.readSync),
        rangeRead: source.rangeRead,
      });
      const core = await start(capabilities);
      const loader = new Loader(core, parts, source, context);
      engine = new Engine(new Planner(core, loader, name, capabilities), loader, clock);
      await loader.readHeaders(first, Boolean(how.firstPartOnly));
      engine.#loaded('header');
      return engine;
    } catch (error) {
      if (engine) await engine.close();
      else await source.close();
      throw error;
    }
  }

  /**
   * Plans, and unless it fits or loads, throws; then loads. The engine is closed on failure.
   * @param {Descriptor[]} parts @param {PlanOptions} options @param {EngineContext} context
   */
  static async open(parts, options, context) {
    if (options.host.canMap)
      throw badArgument('host.canMap is for explain: open reads a file, it cannot map it', { option: 'host.canMap' });
    const engine = await Engine.readHeader(parts, options, context);
    try {
      let explanation = await engine.plan(options, context);
      if (!explanation.fits) throw doesNotFit(explanation);
      engine.#loaded('plan');
      engine.#core.bind();
      engine.#loaded('bind');
      engine.#threads = new Threads(engine.#core, context.startThread);
      const started = engine.#threads.start(); // while the weights come
      started.catch(() => {}); // nobody waits for it if they do not come
      // Between weights that stay are some that do not: a stream would go on into those.
      if (options.overlap || explanation.streaming) engine.#loader.loadAhead();
      if (options.overlap && !explanation.streaming) {
        engine.#weights = engine.#loader.loadWeights().then(() => engine.#loaded('weights'));
        engine.#weights.catch(() => {}); // generate tells it, and whoever asks for weights()
      } else {
        await engine.#loader.loadWeights();
        engine.#loaded('weights');
      }
      if (!(await started)) explanation = engine.#planner.explanation();
      // Not asked of the core again: a text would take memory beyond the plan.
      if (explanation.streaming) addExpected(explanation.streaming, engine.#loader.reading);
      for (const warning of engine.#loader.warnings)
        if (!explanation.warnings.some(({ text }) => text === warning.text)) explanation.warnings.push(warning);
      throwIfAborted(context.signal);
      engine.#loaded('threads');
      return { engine, explanation };
    } catch (error) {
      await engine.close();
      throw error;
    }
  }

  /** @param {import('./index.d.ts').LoadPhase['name']} phase that is over */
  #loaded(phase) {
    this.#clock.end(phase, this.#core.number('hostBytes'));
  }

  /** As Planner.plan. @param {PlanOptions} options @param {EngineContext} context */
  async plan(options, context) {
    try {
      return await this.#planner.plan(options, context);
    } finally {
      // It may have moved on to another module.
      this.#core = this.#planner.core;
      this.#evaluator = new Evaluator(this.#core, this.#loader);
    }
  }

  /**
   * Resolves when all weights are in place, at once if they are, with the info and
   * what the sources had to say; rejects when they cannot be.
   * @returns {Promise<LoadedInfo>}
   */
  async weights() {
    await this.#weights;
    return { ...this.info, warnings: this.#loader.warnings };
  }

  /** Weights that are still on their way are not wanted any more. @param {LinealError} error */
  abortLoad(error) {
    this.#loader.abort(error);
  }

  /** @returns {import('./index.d.ts').Inspection} */
  inspect() {
    const inspection = this.#core.json(TEXT.INSPECT_JSON);
    inspection.text = this.#core.text(TEXT.INSPECT);
    return inspection;
  }

  bindTokenizer() {
    this.#core.tokBind();
  }

  // --- asking ------------------------------------------------------------------------

  /** @returns {import('./index.d.ts').ModelInfo} */
  get info() {
    const core = this.#core;
    return {
      context: core.number('nCtx'),
      contextTrain: core.number('nCtxTrain'),
      vocabSize: core.number('nVocab'),
      bos: core.number('bos'),
      eos: core.number('eos'),
      addsBos: core.number('addsBos') !== 0,
      hasTokenizer: core.number('hasTokenizer') !== 0,
      chunk: core.number('chunk'),
      module: this.#planner.moduleName,
      threads: core.threadCount(),
      loadMs: this.#clock.totalMs,
      loadPhases: this.#clock.phases,
    };
  }

  /** @returns {import('./index.d.ts').MemoryUse} */
  memory() {
    this.#checkOpen();
    const core = this.#core;
    const use = {
      liveBytes: core.number('liveBytes'),
      liveBlocks: core.number('liveBlocks'),
      highWaterBytes: core.number('highWaterBytes'),
      hostBytes: core.number('hostBytes'),
      allocCalls: core.number('allocCalls'),
      growCalls: core.number('growCalls'),
    };
    const { planned, measured, regions } = core.json(TEXT.MEMORY_JSON);
    return { planned, measured, regions, ...sums(regions), ...use };
  }

  /** @returns {import('./index.d.ts').StepPlans} */
  explainPlan() {
    this.#checkOpen();
    return this.#core.json(TEXT.PLAN_JSON);
  }

  // --- text ----------------------------------------------------------------------------

  /**
   * @param {string} text
   * @param {{ addSpecial: boolean, parseSpecial: boolean }} options
   */
  tokenize(text, options) {
    this.#checkOpen();
    return this.#core.tokenize(text, options);
  }

  /**
   * The text that the ids stand for: what tokenize was given, where that can be known.
   * @param {Int32Array} ids
   * @param {boolean} showSpecial
   */
  detokenize(ids, showSpecial) {
    this.#checkOpen();
    // SPM puts a space before a text; it is no part of the text.
    this.#spacePrefix ??= this.#putsSpace();
    const stream = new TextStream();
    let text = '';
    for (const id of ids) {
      this.#checkId(id);
      text += stream.push(this.#core.piece(id, showSpecial));
    }
    text += stream.finish();
    return this.#spacePrefix && !showSpecial && text.startsWith(' ') ? text.slice(1) : text;
  }

  #putsSpace() {
    const [first] = this.#core.tokenize('a', { addSpecial: false, parseSpecial: false });
    return first !== undefined && this.#core.piece(first, false)[0] === 0x20;
  }

  /** @param {Int32Array} ids */
  pieces(ids) {
    this.#checkOpen();
    return Array.from(ids, (id) => {
      this.#checkId(id);
      return decodeText(this.#core.piece(id, true));
    });
  }

  /**
   * Refuses a text that cannot fit, before it takes memory.
   * @param {string} text
   */
  #checkLength(text) {
    const context = this.#core.number('nCtx');
    const most = context * this.#core.number('maxPieceBytes');
    // In UTF-8 it has as many bytes at least.
    if (most > 0 && text.length > most) {
      throw promptTooLong(
        `the prompt has ${text.length} characters, and the ${context} tokens of the context hold ${most} bytes at most`,
        { characters: text.length, context },
      );
    }
  }

  /** @param {Int32Array} ids */
  #checkCount(ids) {
    const context = this.#core.number('nCtx');
    if (ids.length > context) {
      throw promptTooLong(`the prompt has ${ids.length} tokens, but the context holds ${context}`, {
        tokens: ids.length,
        context,
      });
    }
  }

  /** @param {number} id */
  #checkId(id) {
    const count = this.#core.number('nVocab');
    if (id < 0 || id >= count) {
      throw new LinealError('BAD_TOKEN', `token ${id} is outside the vocabulary of ${count}`, {
        remedy: 'give ids from 0 to the vocabulary size minus one',
        detail: { id, vocab_size: count },
      });
    }
  }

  // --- generation --------------------------------------------------------------------------

  /**
   * One event a token; the result is what the generator returns. It works only
   * when asked for the next token.
   * @param {string | Int32Array} prompt
   * @param {GenerateSettings} settings
   * @param {AbortSignal} signal
   * @param {(result: GenerationResult) => void} onEnd also called when the caller stops early
   * @returns {AsyncGenerator<TokenEvent, void, void>}
   */
  async *generate(prompt, settings, signal, onEnd) {
    this.#checkOpen();
    this.#enter();
    try {
      const start = performance.now();
      this.#checkLogits();
      if (typeof prompt === 'string') this.#checkLength(prompt);
      const ids = typeof prompt === 'string' ? this.#core.tokenize(prompt, settings) : prompt;
      this.#checkCount(ids);
      const parts = {
        core: this.#core,
        loader: this.#loader,
        evaluator: this.#evaluator,
        clock: this.#clock,
        profiler: (/** @type {boolean} */ trace) => this.#profiler(trace),
      };
      yield* tokensAfter(parts, ids, settings, start, signal, onEnd);
    } finally {
      this.#busy = false;
    }
  }

  /** @param {boolean} trace */
  #profiler(trace) {
    this.#plans ??= /** @type {import('./profile.js').Plans} */ (this.#core.json(TEXT.PLAN_JSON));
    return new Profiler(this.#core, this.#plans, trace ? this.#clock.origin : undefined, this.#loader.fetches);
  }

  /**
   * The logits after each id, or after the last one only, from an empty context.
   * @param {Int32Array} ids
   * @param {AbortSignal} signal
   * @returns {AsyncGenerator<LogitsRow, void, void>}
   */
  async *evaluate(ids, signal) {
    this.#checkOpen();
    this.#enter();
    try {
      const core = this.#core;
      const vocab = core.number('nVocab');
      this.#checkLogits();
      this.#checkCount(ids);
      core.prompt(ids, false);
      for await (const { first, rows } of this.#evaluator.chunksOf(ids.length, signal)) {
        for (let row = 0; row < rows; row++) yield { index: first + row, logits: core.logits(row, vocab) };
      }
    } finally {
      this.#busy = false;
    }
  }

  /**
   * The vector of a text, of length 1.
   * @param {string | Int32Array} input
   * @param {AbortSignal} signal
   */
  async embed(input, signal) {
    this.#checkOpen();
    const core = this.#core;
    const width = core.number('nEmbd');
    if (width === 0) throw new LinealError('NO_EMBEDDINGS', 'this model was opened to give logits');
    this.#enter();
    try {
      const ids = typeof input === 'string' ? core.tokenize(input, PLAIN_TEXT) : input;
      this.#checkCount(ids);
      core.prompt(ids, false);
      let vector = new Float32Array(0);
      for await (const { rows } of this.#evaluator.chunksOf(ids.length, signal)) {
        if (rows > 0) vector = core.logits(0, width);
      }
      return vector;
    } finally {
      this.#busy = false;
    }
  }

  /**
   * log p(ids[i + 1] | ids[0..i]) for i from `from`; the rows stay in the core.
   * @param {Int32Array} ids
   * @param {number} from
   * @param {AbortSignal} signal
   */
  async score(ids, from, signal) {
    this.#checkOpen();
    this.#enter();
    try {
      const out = new Float64Array(Math.max(ids.length - 1 - from, 0)).fill(NaN);
      this.#checkLogits();
      this.#checkCount(ids);
      this.#core.prompt(ids, false);
      for await (const { first, rows } of this.#evaluator.chunksOf(ids.length, signal)) {
        for (let row = 0; row < rows; row++) {
          const i = first + row;
          if (i < from || i + 1 >= ids.length) continue;
          out[i - from] = this.#core.logprob(row, ids[i + 1]);
          if (Number.isNaN(out[i - from]))
            throw new LinealError('NOT_NUMBERS', `the logits after token ${i + 1} are not numbers`);
        }
      }
      if (out.some(Number.isNaN)) {
        throw new LinealError(
          'BAD_ARGUMENT',
          'score needs the logits of each position, and this model keeps the last only',
          {
            remedy: 'open the model with allLogits: true',
          },
        );
      }
      return out;
    } finally {
      this.#busy = false;
    }
  }

  // --- ending ----------------------------------------------------------------------------------

  #checkLogits() {
    if (this.#core.number('nEmbd') > 0)
      throw new LinealError('NO_LOGITS', 'this model gives vectors of texts, and no logits');
  }

  #enter() {
    if (this.#busy) throw new LinealError('BUSY', 'a generation or evaluation is running on this model');
    if (this.#loader.failure) throw this.#loader.failure;
    this.#busy = true;
  }

  #checkOpen() {
    if (this.#closed) throw closedError();
  }

  /** Gives all memory back. May be called again. */
  async close() {
    if (this.#closed) return;
    this.#closed = true;
    await this.#threads?.stop(); // they compute in the memory that is given back next
    this.#core.close();
    await this.#loader.close();
  }
}

/** @param {string} message @param {Record<string, unknown>} detail */
function promptTooLong(message, detail) {
  return new LinealError('PROMPT_TOO_LONG', message, {
    remedy: 'shorten the prompt, or open the model with a larger context',
    detail,
  });
}
