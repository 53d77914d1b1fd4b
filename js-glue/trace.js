// What a model did, in Chrome's trace format: for ui.perfetto.dev.
import { badArgument } from './errors.js';
import { FETCH_NUMBERS } from './fetch-log.js';
import { EVENT, EVENT_NUMBERS } from './profile.js';

/** @typedef {import('./index.d.ts').TraceEvent} TraceEvent */
/** @typedef {import('./index.d.ts').GenerationResult} GenerationResult */
/** @typedef {import('./index.d.ts').StepStats} StepStats */

const PID = 1;
const TRACKS = /** @type {const} */ ({ phases: 1, steps: 2, memory: 3, fetch: 4 });
const PHASES = /** @type {const} */ (['prefill', 'decode']);

/** @param {number} ms */
const nanos = (ms) => Math.round(ms * 1e6);
/** Milliseconds to microseconds, to the nanosecond. @param {number} ms */
const micros = (ms) => nanos(ms) / 1e3;

/**
 * Both ends are rounded, so that what lay within another event still does.
 * @param {keyof typeof TRACKS} track
 * @param {string} name
 * @param {number} startMs
 * @param {number} endMs
 * @param {Record<string, unknown>} [args]
 * @returns {TraceEvent}
 */
function span(track, name, startMs, endMs, args = {}) {
  const dur = (nanos(endMs) - nanos(startMs)) / 1e3;
  return { name, ph: 'X', pid: PID, tid: TRACKS[track], ts: micros(startMs), dur, cat: track, args };
}

/** @param {number} ms @param {string} name @param {Record<string, number>} args @returns {TraceEvent} */
function counter(ms, name, args) {
  return { name, ph: 'C', pid: PID, tid: TRACKS.memory, ts: micros(ms), cat: 'memory', args };
}
/** @param {number} ms @param {number} bytes */
const memoryCounter = (ms, bytes) => counter(ms, 'linear memory', { bytes });
/** @param {number} ms @param {number} calls */
const allocationCounter = (ms, calls) => counter(ms, 'allocator', { calls });

/** @param {number} ms @param {string} name @param {Record<string, unknown>} args @returns {TraceEvent} */
function moment(ms, name, args) {
  return { name, ph: 'i', s: 't', pid: PID, tid: TRACKS.memory, ts: micros(ms), cat: 'memory', args };
}

/** @param {Float64Array} fetches @returns {TraceEvent[]} */
function fetchEvents(fetches) {
  /** @type {TraceEvent[]} */ const out = [];
  for (let i = 0; i < fetches.length; i += FETCH_NUMBERS) {
    const [part, offset, bytes, start, end] = fetches.subarray(i, i + FETCH_NUMBERS);
    out.push(span('fetch', `part ${part + 1}`, start, end, { offset, bytes }));
  }
  return out;
}

/** The same for a step in every layer. @param {StepStats} step */
function nameOf({ op, weight }) {
  return weight === undefined ? op : `${op} ${weight.replace(/^blk\.\d+\./, '').replace(/\.weight$/, '')}`;
}

/** @param {StepStats} step @param {number} bytes */
function stepArgs({ step, op, layer, weight, type, form, kernel }, bytes) {
  return { op, step, layer, weight, type, form, kernel, bytes };
}

/** @param {GenerationResult} result @param {number} index @returns {TraceEvent[]} */
function generationEvents({ stats, memory, timings }, index) {
  const { trace, steps } = /** @type {NonNullable<GenerationResult['stats']>} */ (stats);
  if (!trace) return [];
  const { events, memoryBytes, allocations } = trace;
  const out = fetchEvents(trace.fetches);
  let phasesSeen = 0;
  for (let at = 0; at < events.length; at += EVENT_NUMBERS) {
    const [kind, which, start, end, bytes] = events.subarray(at, at + EVENT_NUMBERS);
    if (kind === EVENT.STEP) {
      out.push(span('steps', nameOf(steps[which]), start, end, stepArgs(steps[which], bytes)));
    } else if (kind === EVENT.PASS) {
      out.push(span('steps', which === 1 ? '1 token' : `${which} tokens`, start, end, { tokens: which }));
      out.push(moment(start, 'slab reset', { bytes }));
    } else if (kind === EVENT.SAMPLE) {
      out.push(span('steps', 'sample', start, end, { token: which }));
    } else {
      const tps = which === 0 ? timings.prefillTps : timings.decodeTps;
      out.push(
        span('phases', PHASES[which], start, end, {
          generation: index,
          tokens_per_s: tps,
          ...(which === 0 ? { memory: memory.measured } : {}),
        }),
      );
      if (phasesSeen === 0)
        out.push(memoryCounter(start, memoryBytes[0]), allocationCounter(start, allocations[0]));
      phasesSeen++;
      out.push(memoryCounter(end, memoryBytes[phasesSeen]), allocationCounter(end, allocations[phasesSeen]));
    }
  }
  return out;
}

/** @type {typeof import('./index.d.ts').chromeTrace} */
export function chromeTrace(model, results) {
  const { info, explanation } = model ?? {};
  if (!info?.loadPhases || !explanation?.regions) throw badArgument('chromeTrace takes a model that open gave');
  if (!Array.isArray(results) || results.some((result) => !result?.stats?.trace))
    throw badArgument("chromeTrace takes results of generations with profile: 'trace'");
  /** @type {TraceEvent[]} */ const names = Object.entries(TRACKS).map(([name, tid]) => ({
    name: 'thread_name',
    ph: 'M',
    pid: PID,
    tid,
    ts: 0,
    args: { name },
  }));
  names.unshift({ name: 'process_name', ph: 'M', pid: PID, tid: 0, ts: 0, args: { name: 'lineal' } });
  const planned = Object.fromEntries(explanation.memory.map(({ name, bytes }) => [name, bytes]));
  const taken = (/** @type {number} */ ms) =>
    explanation.regions
      .filter(({ domain, bytes }) => domain === 'HEAP' && bytes > 0)
      .map(({ name, scope, bytes }) => moment(ms, `take ${name}`, { scope, bytes }));
  const loading = info.loadPhases.flatMap(({ name, startMs, ms, memoryBytes }) => [
    // Binding takes the arenas: their sizes are the memory table.
    span('phases', name, startMs, startMs + ms, name === 'bind' ? { memory: planned } : {}),
    ...(name === 'bind' ? [span('memory', 'bind arenas', startMs, startMs + ms, planned), ...taken(startMs + ms)] : []),
    memoryCounter(startMs + ms, memoryBytes),
  ]);
  const running = results.flatMap(generationEvents);
  // Of two that begin together, the one that holds the other comes first.
  const events = [...loading, ...running].sort((a, b) => a.ts - b.ts || (b.dur ?? 0) - (a.dur ?? 0));
  return {
    traceEvents: [...names, ...events],
    displayTimeUnit: 'ms',
    otherData: {
      model: String(explanation.model.name),
      module: info.module,
      threads: info.threads,
      dropped_events: results.reduce((sum, { stats }) => sum + (stats?.trace?.dropped ?? 0), 0),
    },
  };
}
