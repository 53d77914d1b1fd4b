// Plans a model whose header was read: where each byte would live. The core
// decides; what is found here is which module, with how much memory, may plan.
import { TEXT } from './abi-names.js';
import { WIDE_MODULE, chooseModule } from './caps.js';
import { LinealError, throwIfAborted } from './errors.js';
import { withNearestNames } from './tensor-names.js';
import { NARROW_BYTES, memoryGiven, startModule } from './wasm-module.js';

/** @typedef {import('./options.js').PlanOptions} PlanOptions */
/** @typedef {import('./options.js').ModuleName} ModuleName */
/** @typedef {import('./loader.js').LoadContext} EngineContext */

// A prompt that is evaluated while weights arrive passes each layer as a whole
// only if it is one chunk: chunks are larger then, where no budget was given.
const AHEAD_CHUNK = 512;

/** Less than this says nothing about the speed of a source. */
const MEASURABLE_BYTES = 16 * 1024 * 1024;

export class Planner {
  /** The core that has the header, and made the last plan. */ core;
  /** @type {ModuleName} that it is of */ moduleName;
  #loader;
  #host;

  /**
   * @param {import('./abi.js').Core} core @param {import('./loader.js').Loader} loader @param {ModuleName} moduleName
   * @param {import('./index.d.ts').HostCapabilities} host
   */
  constructor(core, loader, moduleName, host) {
    this.core = core;
    this.moduleName = moduleName;
    this.#loader = loader;
    this.#host = host;
  }

  /**
   * Plans, with 64-bit addresses if that is what the plan needs, and the engine gives the memory.
   * @param {PlanOptions} options @param {EngineContext} context
   * @returns {Promise<import('./index.d.ts').Explanation>}
   */
  async plan(options, context) {
    const explanation = this.#planned(options);
    const { bits, chosen_bits: chosen } = explanation.address;
    if (chosen === bits || this.moduleName === WIDE_MODULE) return this.#tried(explanation, options);
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
    const narrow = this.core;
    const wide = await start?.(this.#host);
    try {
      if (wide) {
        this.#loader.copyHeadersTo(wide);
        this.core = wide;
        const explanation = this.#tried(this.#planned(options), options);
        if ((explanation.limit_bytes ?? Infinity) > NARROW_BYTES) {
          this.#loader.moveTo(wide);
          this.moduleName = name;
          return explanation;
        }
        this.core = narrow;
      }
      narrow.setCeiling(NARROW_BYTES);
      return undefined;
    } finally {
      (this.core === wide ? narrow : wide)?.close();
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
    const given = memoryGiven(explanation.total_bytes, { shared: this.core.shared, wide });
    if (given >= explanation.total_bytes) return explanation;
    this.core.setCeiling(given);
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
      const explanation = this.explanation();
      if (explanation.fits && !explanation.streaming) return explanation;
    }
    this.#place(options);
    return this.explanation();
  }

  /** @param {PlanOptions} options */
  #place(options) {
    try {
      this.core.plan(options);
    } catch (error) {
      throw withNearestNames(error, () => namesIn(this.core.json(TEXT.INSPECT_JSON)));
    }
  }

  /** @returns {import('./index.d.ts').Explanation} */
  explanation() {
    const explanation = this.core.json(TEXT.EXPLAIN_JSON);
    explanation.source = this.#loader.stats;
    explanation.warnings.push(...this.#loader.warnings);
    if (explanation.streaming) addExpected(explanation.streaming, this.#loader.reading);
    explanation.text = this.core.text(TEXT.EXPLAIN);
    return explanation;
  }
}

/** @param {import('./index.d.ts').Inspection} inspection */
const namesIn = ({ tensors }) => tensors.map(({ name }) => name);

/** @param {import('./index.d.ts').Explanation} explanation */
export function doesNotFit(explanation) {
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
 * What reading alone would allow, as fast as the source was while the weights came.
 * @param {import('./index.d.ts').Streaming} streaming
 * @param {{ bytes: number, ms: number }} reading
 */
export function addExpected(streaming, reading) {
  const known = reading.bytes >= MEASURABLE_BYTES && reading.ms > 0;
  streaming.read_bytes_per_s = known ? Math.round((reading.bytes / reading.ms) * 1000) : null;
  streaming.expected_tokens_per_s =
    streaming.read_bytes_per_s === null ? null : streaming.read_bytes_per_s / streaming.bytes_per_token;
}
