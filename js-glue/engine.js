// One open model: its sources, its instance of the core, one timeline. The
// same code runs in process and inside a worker. All arguments and results are
// plain data.
import { Core, STATUS, TEXT, compileModule, memoryGiven, sharedMemory } from './abi.js';
import { WIDE_MODULE, chooseModule, physicalBytes, probeCapabilities, threadsPossible } from './caps.js';
import { LinealError, abortable, closedError, throwIfAborted } from './errors.js';
import { FIRST_READ_BYTES, Loader } from './loader.js';
import { LoadClock, Profiler } from './profile.js';
import { openSource } from './source.js';
import { sums } from './memory-map.js';
import { withNearestNames } from './tensor-names.js';
import { TextStream, decodeText } from './text.js';
import { Threads } from './threads.js';
import { nextTurn } from './turn.js';

/** @typedef {import('./options.js').PlanOptions} PlanOptions */
/** @typedef {import('./options.js').GenerateSettings} GenerateSettings */
/** @typedef {import('./source.js').Descriptor} Descriptor */
/** @typedef {import('./loader.js').LoadContext} EngineContext */
/** @typedef {import('./index.d.ts').GenerationResult} GenerationResult */
/** @typedef {import('./index.d.ts').LogitsRow} LogitsRow */
/** @typedef {import('./index.d.ts').ModelInfo & { warnings: import('./index.d.ts').Reason[] }} LoadedInfo */
/** @typedef {import('./index.d.ts').HostCapabilities} HostCapabilities */

/** @typedef {'ready' | 'more' | 'waited' | 'full' | 'aborted'} Evaluated */
/**
 * Id -1: no token, but text that was held back, or how far the prompt is.
 * @typedef {{ id: number, index: number, logprob?: number, text: string,
 *   prefill?: { loaded: number, total: number } }} TokenEvent
 */

// A prompt that is evaluated while weights arrive passes each layer as a whole
// only if it is one chunk: chunks are larger then, where no budget was given.
const AHEAD_CHUNK = 512;

/** Less than this says nothing about the speed of a source. */
const MEASURABLE_BYTES = 16 * 1024 * 1024;
/** What 32-bit addresses reach. */
const NARROW_BYTES = 2 ** 32;
/** How long a token that is read from the source may keep others waiting. */
const TURN_MS = 50;
const PLAIN_TEXT = { addSpecial: true, parseSpecial: false };

export class Engine {
  #core;
  #loader;
  #moduleName;
  #host;
  /** @type {Threads | undefined} */ #threads;
  #clock;
  /** @type {import('./profile.js').Plans | undefined} */ #plans;
  #busy = false;
  #closed = false;
  #lastTurn = 0;
  /** @type {Promise<void>} resolves when all weights are there */ #weights = Promise.resolve();
  #waitedMs = 0; // for weights, while something was to be evaluated
  /** @type {boolean | undefined} whether the tokenizer puts a space before a text */ #spacePrefix;

  /**
   * @param {Core} core @param {Loader} loader @param {import('./options.js').ModuleName} moduleName @param {HostCapabilities} host
   * @param {LoadClock} clock
   */
  constructor(core, loader, moduleName, host, clock) {
    this.#core = core;
    this.#loader = loader;
    this.#moduleName = moduleName;
    this.#host = host;
    this.#clock = clock;
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
      engine = new Engine(core, loader, name, capabilities, clock);
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
    const engine = await Engine.readHeader(parts, options, context);
    try {
      let explanation = await engine.plan(options, context);
      if (!explanation.fits) throw doesNotFit(explanation);
      engine.#loaded('plan');
      engine.#core.bind();
      engine.#loaded('bind');
      engine.#threads = new Threads(engine.#core, Boolean(context.endsWithWorker));
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
      if (!(await started)) explanation = engine.#explanation();
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

  /**
   * Plans, with 64-bit addresses if that is what the plan needs, and the engine gives the memory.
   * @param {PlanOptions} options @param {EngineContext} context
   * @returns {Promise<import('./index.d.ts').Explanation>}
   */
  async plan(options, context) {
    const explanation = this.#planned(options);
    const { bits, chosen_bits: chosen } = explanation.address;
    if (chosen === bits || this.#moduleName === WIDE_MODULE) return this.#tried(explanation, options);
    return (await this.#wider(options, context)) ?? this.#tried(this.#planned(options), options);
  }

  /**
   * Moves on to the module with 64-bit addresses and plans; undefined: it would not have more than
   * 32-bit ones reach, so the plan is to be made with these again.
   * @param {PlanOptions} options @param {EngineContext} context
   */
  async #wider(options, context) {
    const name = await chooseModule(WIDE_MODULE); // throws if the host was said to have what it lacks
    const start = await startModule(name, this.#host, options).catch((error) => {
      if (error.code === 'OUT_OF_MEMORY') return undefined;
      throw error;
    });
    throwIfAborted(context.signal);
    const narrow = this.#core;
    const wide = await start?.(this.#host);
    try {
      if (wide) {
        this.#loader.copyHeadersTo(wide);
        this.#core = wide;
        const explanation = this.#tried(this.#planned(options), options);
        if ((explanation.limit_bytes ?? Infinity) > NARROW_BYTES) {
          this.#loader.moveTo(wide);
          this.#moduleName = name;
          return explanation;
        }
        this.#core = narrow;
      }
      narrow.setCeiling(NARROW_BYTES);
      return undefined;
    } finally {
      (this.#core === wide ? narrow : wide)?.close();
    }
  }

  /**
   * A plan that fits is tried: what the engine does not give is the ceiling, and it is planned again.
   * @param {import('./index.d.ts').Explanation} explanation @param {PlanOptions} options
   * @returns {import('./index.d.ts').Explanation}
   */
  #tried(explanation, options) {
    const { kind, maxMemoryBytes } = options.host; // of another machine, this one says nothing
    if (!explanation.fits || kind !== undefined || maxMemoryBytes !== undefined) return explanation;
    const wide = explanation.address.bits === 64;
    const given = memoryGiven(explanation.total_bytes, { shared: this.#core.shared, wide });
    if (given >= explanation.total_bytes) return explanation;
    this.#core.setCeiling(given);
    return this.#planned(options);
  }

  /**
   * @param {PlanOptions} options
   * @returns {import('./index.d.ts').Explanation}
   */
  #planned(options) {
    const { overlap, chunk, memory, allLogits } = options;
    if (overlap && chunk === 0 && memory === 0 && !allLogits) {
      this.#place({ ...options, chunk: AHEAD_CHUNK });
      const explanation = this.#explanation();
      if (explanation.fits && !explanation.streaming) return explanation;
    }
    this.#place(options);
    return this.#explanation();
  }

  /** @param {PlanOptions} options */
  #place(options) {
    try {
      this.#core.plan(options);
    } catch (error) {
      throw withNearestNames(error, () => this.inspect().tensors.map(({ name }) => name));
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

  /** @returns {import('./index.d.ts').Explanation} */
  #explanation() {
    const explanation = this.#core.json(TEXT.EXPLAIN_JSON);
    explanation.source = this.#loader.stats;
    explanation.warnings.push(...this.#loader.warnings);
    if (explanation.streaming) addExpected(explanation.streaming, this.#loader.reading);
    explanation.text = this.#core.text(TEXT.EXPLAIN);
    return explanation;
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
      module: this.#moduleName,
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

  /** @returns {import('./index.d.ts').MemoryReport} */
  #memoryReport() {
    const { planned, measured } = this.#core.json(TEXT.MEMORY_JSON);
    return { planned, measured };
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
      yield* this.#generate(prompt, settings, signal, onEnd);
    } finally {
      this.#busy = false;
    }
  }

  /**
   * @param {string | Int32Array} prompt
   * @param {GenerateSettings} settings
   * @param {AbortSignal} signal
   * @param {(result: GenerationResult) => void} onEnd
   * @returns {AsyncGenerator<TokenEvent, void, void>}
   */
  async *#generate(prompt, settings, signal, onEnd) {
    const core = this.#core;
    const start = performance.now();
    this.#checkLogits();
    if (typeof prompt === 'string') this.#checkLength(prompt);
    const ids = typeof prompt === 'string' ? core.tokenize(prompt, settings) : prompt;
    this.#checkCount(ids);
    core.sampler(settings.sampler);
    const reused = core.prompt(ids, settings.reuse);
    const profiler = settings.profile ? this.#profiler(settings.profile === 'trace') : undefined;
    const stream = new TextStream(settings.stop);
    /** @type {number[]} */ const tokens = [];
    /** @type {number[]} */ const logprobs = [];
    let text = '';
    /** @type {GenerationResult['finishReason'] | undefined} */ let finish;
    let prefillMs = 0;
    let firstTokenMs = 0;
    let decodeMs = 0;
    let counters = { allocCalls: 0, growCalls: 0 };
    const count = () => ({ allocCalls: core.number('allocCalls'), growCalls: core.number('growCalls') });
    const fetched = () => ({
      bytes: core.number('streamedBytes'),
      ms: this.#loader.reading.ms,
      hits: core.number('expertHits'),
      misses: core.number('expertMisses'),
    });
    const fetchedBefore = fetched();
    let fetchedByPrompt = fetchedBefore;
    let decoding = 0; // since when
    let failed = false;

    try {
      const prefillStart = performance.now();
      const waited = this.#waitedMs;
      const total = ids.length - reused;
      /** @type {Evaluated} */ let status;
      do {
        status = await this.#evaluateOnce(signal, profiler);
        if (!settings.progress || status === 'aborted') continue;
        const loaded = status === 'more' ? Math.min(core.number('nPast') - reused, total) : total;
        if (status !== 'waited') yield { id: -1, index: -1, text: '', prefill: { loaded, total } };
      } while (status === 'more' || status === 'waited');
      prefillMs = performance.now() - prefillStart - (this.#waitedMs - waited);
      profiler?.endPhase('prefill', prefillMs, prefillStart);
      if (status === 'aborted') finish = 'aborted';
      else if (status === 'full') finish = 'context_full';
      else if (settings.maxTokens === 0) finish = 'length';
      counters = count();
      fetchedByPrompt = fetched();
      decoding = performance.now();

      while (!finish) {
        const stepStart = performance.now();
        if (tokens.length > 0) {
          const step = await this.#evaluate(signal, profiler);
          if (step !== 'ready') {
            finish = step === 'aborted' ? 'aborted' : 'context_full';
            break;
          }
        }
        const id = profiler ? profiler.sample() : core.sample();
        if (tokens.length === 0) firstTokenMs = performance.now() - start;
        else decodeMs += performance.now() - stepStart;
        if (core.isEnd(id) && !settings.ignoreEos) {
          finish = 'eos';
          break;
        }
        /** @type {TokenEvent} */
        const event = { id, index: tokens.length, text: '' };
        if (settings.logprobs) {
          event.logprob = core.logprob(Math.max(core.logitsRows() - 1, 0), id);
          logprobs.push(event.logprob);
        }
        tokens.push(id);
        event.text = stream.push(core.piece(id, settings.showSpecial));
        if (stream.stopped) finish = 'stop';
        else if (tokens.length >= settings.maxTokens) finish = 'length';
        if (finish && finish !== 'stop') event.text += stream.finish();
        text += event.text;
        if (stream.stopped) finish = 'stop';
        yield event;
        if (!finish) {
          await nextTurn();
          if (signal.aborted) finish = 'aborted';
        }
      }
      // The last events may have held text back.
      const rest = stream.finish();
      if (stream.stopped) finish = 'stop';
      if (rest !== '') {
        text += rest;
        yield { id: -1, index: -1, text: rest };
      }
    } catch (error) {
      failed = true;
      throw error;
    } finally {
      profiler?.end();
      if (!failed && !core.dead) {
        if (decoding > 0) profiler?.endPhase('decode', decodeMs, decoding);
        const after = decoding ? count() : counters;
        onEnd({
          text,
          tokens,
          promptTokens: Array.from(ids),
          reusedTokens: reused,
          finishReason: finish ?? 'aborted', // none: the caller left the loop
          timings: {
            loadMs: this.#clock.totalMs,
            prefillMs,
            firstTokenMs,
            decodeMs,
            prefillTps: rate(ids.length - reused, prefillMs),
            decodeTps: rate(tokens.length - 1, decodeMs),
          },
          memory: this.#memoryReport(),
          decodeAllocations: after.allocCalls - counters.allocCalls,
          memoryGrows: after.growCalls - counters.growCalls,
          ...streamingOf(fetchedBefore, fetchedByPrompt, fetched(), tokens.length - 1),
          ...(settings.logprobs ? { logprobs } : {}),
          ...(profiler ? { stats: profiler.stats() } : {}),
        });
      }
    }
  }

  /** @param {boolean} trace */
  #profiler(trace) {
    this.#plans ??= /** @type {import('./profile.js').Plans} */ (this.#core.json(TEXT.PLAN_JSON));
    return new Profiler(this.#core, this.#plans, trace ? this.#clock.origin : undefined, this.#loader.fetches);
  }

  /**
   * Evaluates all that is pending.
   * @param {AbortSignal} signal
   * @param {Profiler | undefined} profiler
   * @returns {Promise<'ready' | 'full' | 'aborted'>}
   */
  async #evaluate(signal, profiler) {
    for (;;) {
      const status = await this.#evaluateOnce(signal, profiler);
      if (status !== 'more' && status !== 'waited') return status;
    }
  }

  /**
   * Evaluates a chunk of what is pending, or the layers of it whose weights are there.
   * @param {AbortSignal} signal
   * @param {Profiler | undefined} profiler
   * @returns {Promise<Evaluated>}
   */
  async #evaluateOnce(signal, profiler) {
    if (signal.aborted) return 'aborted';
    const status = this.#eval(profiler);
    if (status === STATUS.OK) return 'ready';
    if (status === STATUS.CONTEXT_FULL) return 'full';
    if (status === STATUS.NEED_BYTES) {
      await this.#bringWeights(signal);
      return signal.aborted ? 'aborted' : 'waited';
    }
    await this.#giveTurn();
    return 'more';
  }

  /** As Core.eval. @param {Profiler} [profiler] */
  #eval(profiler) {
    try {
      return profiler ? profiler.eval() : this.#core.eval();
    } catch (error) {
      // The core only knows that it is not loaded.
      throw this.#loader.failure ?? error;
    }
  }

  async #giveTurn() {
    await nextTurn();
    this.#lastTurn = performance.now();
  }

  /**
   * Evaluation waits for weights: resolves when more are there, or the signal has fired.
   * @param {AbortSignal} signal
   */
  async #bringWeights(signal) {
    if (this.#loader.streams) {
      try {
        await this.#loader.feed(signal);
      } catch (error) {
        if (!signal.aborted) throw error;
      }
      // a token may take a second of reading, and others want a turn
      if (performance.now() - this.#lastTurn > TURN_MS) await this.#giveTurn();
      return;
    }
    const start = performance.now();
    try {
      await abortable(this.#loader.more(), signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.#waitedMs += performance.now() - start;
    }
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
      for await (const { first, rows } of this.#chunksOf(ids.length, signal)) {
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
      for await (const { rows } of this.#chunksOf(ids.length, signal)) {
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
      for await (const { first, rows } of this.#chunksOf(ids.length, signal)) {
        for (let row = 0; row < rows; row++) {
          const i = first + row;
          if (i >= from && i + 1 < ids.length) out[i - from] = this.#core.logprob(row, ids[i + 1]);
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

  /**
   * Evaluates chunk by chunk; says which positions have logits.
   * @param {number} total
   * @param {AbortSignal} signal
   * @returns {AsyncGenerator<{ first: number, rows: number }, void, void>}
   */
  async *#chunksOf(total, signal) {
    const core = this.#core;
    for (;;) {
      throwIfAborted(signal);
      const status = this.#eval();
      if (status === STATUS.NEED_BYTES) {
        await this.#bringWeights(signal);
        continue;
      }
      if (status === STATUS.CONTEXT_FULL)
        throw new LinealError('PROMPT_TOO_LONG', `${total} ids do not fit in the context`);
      const rows = core.logitsRows();
      const done = status === STATUS.OK;
      // Rows end at the last position evaluated.
      const end = done ? total : core.number('nPast');
      if (rows > 0) yield { first: end - rows, rows };
      if (done) return;
      await nextTurn();
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

/** @param {import('./index.d.ts').Explanation} explanation */
function doesNotFit(explanation) {
  const { total_bytes: needed, limit_bytes: limit, suggestions } = explanation;
  const enough = suggestions.filter((s) => s.sufficient);
  const advice = (enough.length > 0 ? enough : suggestions).map((s) => s.text);
  return new LinealError(
    'DOES_NOT_FIT',
    `the model does not fit: it needs ${needed} bytes${limit === null ? '' : `, and ${limit} are allowed`}`,
    {
      remedy:
        advice.length > 0 ? advice.join('; or ') : 'choose a smaller quantisation, or a larger memory budget',
      detail: { needed_bytes: needed, budget_bytes: limit, suggestions },
    },
  );
}

/**
 * Fetches and compiles the module; what it gives makes a core of it.
 * @param {import('./options.js').ModuleName} name @param {HostCapabilities} host @param {PlanOptions} options
 * @returns {Promise<(capabilities: HostCapabilities) => Promise<Core>>}
 */
async function startModule(name, host, options) {
  const wide = name === WIDE_MODULE;
  const shared = wide || threadsPossible(host, options.threads) ? sharedMemory(wide) : undefined;
  if (wide && !shared) {
    throw new LinealError('OUT_OF_MEMORY', 'this engine gives no memory with 64-bit addresses at present', {
      remedy: 'close other models or pages, or set a memory budget below 4 GiB',
    });
  }
  const file = `lineal-${name}${shared && !wide ? '-mt' : ''}.wasm`;
  const module = await compileModule(new URL(file, options.wasmBaseUrl));
  const physical = await physicalBytes();
  return async (capabilities) => {
    const core = await Core.create(module, capabilities, options.threads, shared?.memory);
    if (shared?.maxBytes) core.setCeiling(shared.maxBytes);
    // What there is of it counts where there can be more than 32-bit addresses reach.
    if (physical > 0 && (wide || capabilities.memory64))
      core.setCeiling(wide ? physical : Math.max(physical, NARROW_BYTES));
    return core;
  };
}

/** @param {number} count @param {number} ms */
function rate(count, ms) {
  return count > 0 && ms > 0 ? (count / ms) * 1000 : 0;
}

/**
 * What reading alone would allow, as fast as the source was while the weights came.
 * @param {import('./index.d.ts').Streaming} streaming
 * @param {{ bytes: number, ms: number }} reading
 */
function addExpected(streaming, reading) {
  const known = reading.bytes >= MEASURABLE_BYTES && reading.ms > 0;
  streaming.read_bytes_per_s = known ? Math.round((reading.bytes / reading.ms) * 1000) : null;
  streaming.expected_tokens_per_s =
    streaming.read_bytes_per_s === null ? null : streaming.read_bytes_per_s / streaming.bytes_per_token;
}

/**
 * @typedef {{ bytes: number, ms: number, hits: number, misses: number }} Fetched
 * @param {Fetched} before
 * @param {Fetched} prompt after it
 * @param {Fetched} now
 * @param {number} decoded tokens
 * @returns {Pick<GenerationResult, 'streaming'>}
 */
function streamingOf(before, prompt, now, decoded) {
  const uses = now.hits + now.misses - before.hits - before.misses;
  if (now.bytes === before.bytes && uses === 0) return {};
  return {
    streaming: {
      bytes: now.bytes - before.bytes,
      readMs: now.ms - before.ms,
      bytesPerToken: decoded > 0 ? (now.bytes - prompt.bytes) / decoded : 0,
      decodeReadMs: now.ms - prompt.ms,
      ...(uses > 0 ? { experts: { uses, hitRate: (now.hits - before.hits) / uses } } : {}),
    },
  };
}
