// Evaluates what is pending in the core: brings it the weights that it waits
// for, and lets others have their turn in between.
import { STATUS } from './abi-names.js';
import { LinealError, abortable, throwIfAborted } from './errors.js';
import { nextTurn } from './turn.js';

/** @typedef {import('./profile.js').Profiler} Profiler */
/** @typedef {'ready' | 'more' | 'waited' | 'full' | 'aborted'} Evaluated */

/** How long a token that is read from the source may keep others waiting. */
const TURN_MS = 50;

export class Evaluator {
  #core;
  #loader;
  #lastTurn = 0;
  /** For weights, while something was to be evaluated. */ waitedMs = 0;

  /** @param {import('./abi.js').Core} core bound @param {import('./loader.js').Loader} loader */
  constructor(core, loader) {
    this.#core = core;
    this.#loader = loader;
  }

  /**
   * Evaluates all that is pending.
   * @param {AbortSignal} signal
   * @param {Profiler | undefined} profiler
   * @returns {Promise<'ready' | 'full' | 'aborted'>}
   */
  async all(signal, profiler) {
    for (;;) {
      const status = await this.once(signal, profiler);
      if (status !== 'more' && status !== 'waited') return status;
    }
  }

  /**
   * Evaluates a chunk of what is pending, or the layers of it whose weights are there.
   * @param {AbortSignal} signal
   * @param {Profiler | undefined} profiler
   * @returns {Promise<Evaluated>}
   */
  async once(signal, profiler) {
    if (signal.aborted) return 'aborted';
    const status = this.#run(profiler);
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
  #run(profiler) {
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
      this.waitedMs += performance.now() - start;
    }
  }

  /**
   * Evaluates chunk by chunk; says which positions have logits.
   * @param {number} total
   * @param {AbortSignal} signal
   * @returns {AsyncGenerator<{ first: number, rows: number }, void, void>}
   */
  async *chunksOf(total, signal) {
    const core = this.#core;
    for (;;) {
      throwIfAborted(signal);
      const status = this.#run();
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
}
