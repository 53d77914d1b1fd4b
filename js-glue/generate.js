// One generation: evaluates the prompt, then samples and evaluates a token at a
// time, and measures what that took.
import { TEXT } from './abi-names.js';
import { TextStream } from './text.js';
import { nextTurn } from './turn.js';

/** @typedef {import('./index.d.ts').GenerationResult} GenerationResult */
/** @typedef {import('./evaluator.js').Evaluated} Evaluated */

/**
 * Id -1: no token, but text that was held back, or how far the prompt is.
 * @typedef {{ id: number, index: number, logprob?: number, text: string,
 *   prefill?: { loaded: number, total: number } }} TokenEvent
 */

/**
 * What a generation works with, of an engine that does nothing else meanwhile.
 * @typedef {object} Parts
 * @property {import('./abi.js').Core} core
 * @property {import('./loader.js').Loader} loader
 * @property {import('./evaluator.js').Evaluator} evaluator
 * @property {import('./profile.js').LoadClock} clock
 * @property {(trace: boolean) => import('./profile.js').Profiler} profiler makes one
 */

/** @param {import('./abi.js').Core} core @returns {import('./index.d.ts').MemoryReport} */
function memoryReport(core) {
  const { planned, measured } = core.json(TEXT.MEMORY_JSON);
  return { planned, measured };
}

/**
 * One event a token. It works only when asked for the next one.
 * @param {Parts} parts
 * @param {Int32Array} ids of the prompt
 * @param {import('./options.js').GenerateSettings} settings
 * @param {number} start when it was asked for
 * @param {AbortSignal} signal
 * @param {(result: GenerationResult) => void} onEnd also called when the caller stops early
 * @returns {AsyncGenerator<TokenEvent, void, void>}
 */
export async function* tokensAfter(parts, ids, settings, start, signal, onEnd) {
  const { core, loader, evaluator, clock } = parts;
  core.sampler(settings.sampler);
  const reused = core.prompt(ids, settings.reuse);
  const profiler = settings.profile ? parts.profiler(settings.profile === 'trace') : undefined;
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
    ms: loader.reading.ms,
    hits: core.number('expertHits'),
    misses: core.number('expertMisses'),
  });
  const fetchedBefore = fetched();
  let fetchedByPrompt = fetchedBefore;
  let decoding = 0; // since when
  let failed = false;

  try {
    const prefillStart = performance.now();
    const waited = evaluator.waitedMs;
    const total = ids.length - reused;
    /** @type {Evaluated} */ let status;
    do {
      status = await evaluator.once(signal, profiler);
      if (!settings.progress || status === 'aborted') continue;
      const loaded = status === 'more' ? Math.min(core.number('nPast') - reused, total) : total;
      if (status !== 'waited') yield { id: -1, index: -1, text: '', prefill: { loaded, total } };
    } while (status === 'more' || status === 'waited');
    prefillMs = performance.now() - prefillStart - (evaluator.waitedMs - waited);
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
        const step = await evaluator.all(signal, profiler);
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
          loadMs: clock.totalMs,
          prefillMs,
          firstTokenMs,
          decodeMs,
          prefillTps: rate(ids.length - reused, prefillMs),
          decodeTps: rate(tokens.length - 1, decodeMs),
        },
        memory: memoryReport(core),
        decodeAllocations: after.allocCalls - counters.allocCalls,
        memoryGrows: after.growCalls - counters.growCalls,
        ...streamingOf(fetchedBefore, fetchedByPrompt, fetched(), tokens.length - 1),
        ...(settings.logprobs ? { logprobs } : {}),
        ...(profiler ? { stats: profiler.stats() } : {}),
      });
    }
  }
}

/** @param {number} count @param {number} ms */
function rate(count, ms) {
  return count > 0 && ms > 0 ? (count / ms) * 1000 : 0;
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
