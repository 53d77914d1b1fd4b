// Time and bytes of each step of a generation, and of the phases of opening a
// model. The core has no clock: it runs one step a call, and the calls are timed.
import { STATUS } from './abi-names.js';

/** @typedef {import('./index.d.ts').StepStats} StepStats */
/** @typedef {import('./index.d.ts').GroupStats} GroupStats */
/** @typedef {StepStats['phase']} Phase */

/**
 * A step as TEXT_PLAN_JSON has it.
 * @typedef {object} PlanStep
 * @property {string} op
 * @property {number} layer
 * @property {number} [out] value
 * @property {string} [weight]
 * @property {string} [type]
 * @property {string} [form]
 * @property {string} [kernel]
 * @property {number} [weight_bytes]
 * @property {number} [weight_values]
 * @property {number} [weight_rows] of all experts
 * @property {boolean} [windowed] attention looks back Plans.window positions only
 */

/**
 * @typedef {object} Plan
 * @property {PlanStep[]} steps
 * @property {{ name: string, rows: 'tokens' | 'output' | 'routed' | 'one', cols: number }[]} values
 * @property {number} output_step the first step that only serves the logits
 * @property {number} slab_bytes
 */

/**
 * @typedef {object} Plans
 * @property {boolean} all_logits
 * @property {number} key_bytes of the K and V of one position of one layer
 * @property {number} window
 * @property {number} experts
 * @property {number} experts_used for a token
 * @property {Plan} decode
 * @property {Plan} prefill
 */

/** What happens in a trace; the second number of an event says which. */
export const EVENT = /** @type {const} */ ({
  STEP: 0, // index in stats.steps
  PASS: 1, // tokens
  SAMPLE: 2, // index of the token
  PHASE: 3, // 0 prefill, 1 decode
});
/** Numbers an event: kind, which, start and end in ms since `open`, bytes. */
export const EVENT_NUMBERS = 5;
const MAX_EVENTS = 1_000_000;

/** What `open` did, one thing after the other. */
export class LoadClock {
  /** On the clock of performance.now(). */
  origin = performance.now();
  /** @type {import('./index.d.ts').LoadPhase[]} */ phases = [];
  #last = this.origin;

  /**
   * The phase that began at the end of the one before is over.
   * @param {import('./index.d.ts').LoadPhase['name']} name
   * @param {number} memoryBytes linear memory now
   */
  end(name, memoryBytes) {
    const now = performance.now();
    this.phases.push({ name, startMs: this.#last - this.origin, ms: now - this.#last, memoryBytes });
    this.#last = now;
  }

  get totalMs() {
    return this.#last - this.origin;
  }
}

/** The events of one generation, in one growing array. */
class Events {
  #numbers = new Float64Array(EVENT_NUMBERS * 4096);
  #count = 0;
  dropped = 0;
  #origin;

  /** @param {number} origin */
  constructor(origin) {
    this.#origin = origin;
  }

  /** @param {number} kind of EVENT @param {number} which @param {number} start @param {number} end @param {number} bytes */
  add(kind, which, start, end, bytes) {
    if (this.#count === MAX_EVENTS) {
      this.dropped++;
      return;
    }
    const at = this.#count++ * EVENT_NUMBERS;
    if (at === this.#numbers.length) {
      const more = new Float64Array(at * 2);
      more.set(this.#numbers);
      this.#numbers = more;
    }
    const to = this.#numbers;
    to[at] = kind;
    to[at + 1] = which;
    to[at + 2] = start - this.#origin;
    to[at + 3] = end - this.#origin;
    to[at + 4] = bytes;
  }

  get numbers() {
    return this.#numbers.slice(0, this.#count * EVENT_NUMBERS);
  }
}

/** What a row of stats.steps is made from. */
class Row {
  calls = 0;
  ms = 0;
  bytes = 0;
  ops = 0;

  /**
   * @param {number} place in stats.steps
   * @param {Phase} phase @param {number} index in the plan @param {PlanStep} step @param {number | undefined} layer
   */
  constructor(place, phase, index, step, layer) {
    this.place = place;
    this.phase = phase;
    this.index = index;
    this.step = step;
    this.layer = layer;
  }

  /** @returns {StepStats} */
  stats() {
    const { op, weight, type, form, kernel } = this.step;
    return {
      phase: this.phase,
      step: this.index,
      op,
      ...(this.layer === undefined ? {} : { layer: this.layer }),
      ...(weight === undefined ? {} : { weight, type, form, kernel }),
      ...figures(this),
    };
  }
}

/** What all passes over a plan have in common, added up: bytes and operations follow from it. */
class Sums {
  passes = 0;
  tokens = 0;
  /** Positions that the tokens attend to. */
  keys = 0;
  /** The same where a window bounds them. */
  windowKeys = 0;
  /** Positions whose logits are made. */
  outputs = 0;
  /** Matrices of a mixture of experts that are read, at most. */
  experts = 0;

  /** @param {Plans} plans @param {number} past positions before @param {number} tokens @param {number} outputs */
  add(plans, past, tokens, outputs) {
    this.passes++;
    this.tokens += tokens;
    this.keys += keysUpTo(past + tokens, Infinity) - keysUpTo(past, Infinity);
    this.windowKeys += keysUpTo(past + tokens, plans.window) - keysUpTo(past, plans.window);
    this.outputs += outputs;
    this.experts += Math.min(plans.experts, tokens * plans.experts_used);
    return this;
  }
}

/** What the first tokens of a text attend to: themselves and all before. @param {number} tokens @param {number} window */
function keysUpTo(tokens, window) {
  const near = Math.min(tokens, window);
  return (near * (near + 1)) / 2 + (tokens > near ? (tokens - near) * window : 0);
}

/** The passes of one phase over one plan. */
class Tally {
  all = new Sums();
  /** Those that made logits. */
  output = new Sums();

  /** @param {Plans} plans @param {Plan} plan @param {Row[]} rows for each step */
  constructor(plans, plan, rows) {
    this.plans = plans;
    this.plan = plan;
    this.rows = rows;
    this.ms = new Float64Array(rows.length);
  }

  /** Adds itself to its rows. */
  settle() {
    const { plans, plan, rows, ms } = this;
    rows.forEach((row, index) => {
      const sums = index < plan.output_step ? this.all : this.output;
      row.calls += sums.passes;
      row.ms += ms[index];
      row.bytes += bytesOf(plans, plan, row.step, sums);
      row.ops += operationsOf(plans, plan, row.step, sums);
    });
  }
}

/** @param {{ calls: number, ms: number, bytes: number, ops: number }} sums */
function figures({ calls, ms, bytes, ops }) {
  return { calls, ms, share: 0, bytes, gbPerS: perSecond(bytes, ms), gops: perSecond(ops, ms) };
}

/** In units of 10^9. @param {number} count @param {number} ms */
const perSecond = (count, ms) => (ms > 0 ? count / ms / 1e6 : 0);

/** Runs the passes of one generation in place of Core.eval, and times them. */
export class Profiler {
  #core;
  #plans;
  /** @type {Events | undefined} */ #events;
  /** @type {Phase} */ #phase = 'prefill';
  /** @type {Row[]} */ #rows = [];
  /** @type {Map<string, Tally>} of phase and plan */ #tallies = new Map();
  #starts;
  #ends;
  /** 1: a pass may be over after so many steps. */ #mayEnd;
  /** Steps done of the pass that runs. */ #done = 0;
  /** @type {number | undefined} when the step that waits for bytes began */ #waiting;
  #samples = 0;
  #memory;
  #allocations;
  #fetches;
  #fetchesKept = false;
  #origin = 0;
  #totals = { prefill: noTotals(), decode: noTotals() };

  /**
   * Right after Core.prompt. From here on to `end` the core runs one step a call.
   * @param {import('./abi.js').Core} core
   * @param {Plans} plans
   * @param {number | undefined} traceFrom the zero of a trace, if there shall be one
   * @param {import('./fetch-log.js').FetchLog} fetches for such a trace: what was read while the model was opened is in the first
   */
  constructor(core, plans, traceFrom, fetches) {
    this.#core = core;
    this.#plans = plans;
    this.#fetches = fetches;
    if (traceFrom !== undefined) {
      this.#events = new Events(traceFrom);
      this.#origin = traceFrom;
      this.#fetchesKept = fetches.on;
      fetches.on = true;
    }
    const most = Math.max(plans.decode.steps.length, plans.prefill.steps.length);
    this.#starts = new Float64Array(most);
    this.#ends = new Float64Array(most);
    this.#mayEnd = new Uint8Array(most + 1);
    for (const { steps, output_step: output } of [plans.decode, plans.prefill])
      this.#mayEnd[steps.length] = this.#mayEnd[output] = 1;
    this.#memory = [core.number('hostBytes')];
    this.#allocations = [core.number('allocCalls')];
    core.stepLimit(1);
  }

  /**
   * As Core.eval without a step limit. The time between two steps goes to the
   * second, so that nothing is lost between the readings of a coarse clock.
   */
  eval() {
    const core = this.#core;
    // Reading what a step waits for is part of it.
    let start = this.#waiting ?? performance.now();
    this.#waiting = undefined;
    for (;;) {
      const status = core.eval();
      const end = performance.now();
      if (status === STATUS.NEED_BYTES) this.#waiting = start;
      // Nothing ran to its end.
      if (status === STATUS.NEED_BYTES || status === STATUS.CONTEXT_FULL) return status;
      this.#starts[this.#done] = start;
      this.#ends[this.#done++] = end;
      if (status !== STATUS.MORE || (this.#mayEnd[this.#done] === 1 && core.nextStep() === 0)) {
        this.#endPass();
        return status;
      }
      start = end;
    }
  }

  /** As Core.sample. */
  sample() {
    const start = performance.now();
    const id = this.#core.sample();
    const end = performance.now();
    // The first token's belongs to neither phase.
    if (this.#samples > 0) this.#totals.decode.sampleMs += end - start;
    this.#events?.add(EVENT.SAMPLE, this.#samples, start, end, 0);
    this.#samples++;
    return id;
  }

  /**
   * A phase is over; decode follows prefill.
   * @param {Phase} phase
   * @param {number} ms what the timings say
   * @param {number} start of performance.now(): it ends now
   */
  endPhase(phase, ms, start) {
    this.#totals[phase].ms = ms;
    this.#events?.add(EVENT.PHASE, phase === 'prefill' ? 0 : 1, start, performance.now(), 0);
    this.#memory.push(this.#core.number('hostBytes'));
    this.#allocations.push(this.#core.number('allocCalls'));
    this.#phase = 'decode';
  }

  /** Whole passes again. */
  end() {
    if (this.#events) this.#fetches.on = this.#fetchesKept;
    if (!this.#core.dead) this.#core.stepLimit(0);
  }

  #endPass() {
    const tokens = this.#core.chunkTokens();
    const past = this.#core.number('nPast') - tokens;
    const { all_logits: allLogits } = this.#plans;
    const name = this.#core.number('chunkDecodes') ? 'decode' : 'prefill';
    const tally = this.#tallyOf(name);
    const { plan, rows, ms } = tally;
    const done = this.#done;
    const starts = this.#starts;
    const ends = this.#ends;
    const outputs = done <= plan.output_step ? 0 : allLogits ? tokens : 1;
    tally.all.add(this.#plans, past, tokens, outputs);
    if (outputs > 0) tally.output.add(this.#plans, past, tokens, outputs);
    for (let i = 0; i < done; i++) ms[i] += ends[i] - starts[i];
    this.#done = 0;
    const totals = this.#totals[this.#phase];
    totals.passes++;
    totals.tokens += tokens;
    const events = this.#events;
    if (!events) return;
    const one = new Sums().add(this.#plans, past, tokens, outputs);
    events.add(EVENT.PASS, tokens, starts[0], ends[done - 1], plan.slab_bytes);
    for (let i = 0; i < done; i++) {
      const { place, step } = rows[i];
      events.add(EVENT.STEP, place, starts[i], ends[i], bytesOf(this.#plans, plan, step, one));
    }
  }

  /**
   * The rows of the plan's steps. The rest of a prompt may be one token, which
   * takes the plan of decode: what is the same in both shares a row.
   * @param {'prefill' | 'decode'} name of the plan
   */
  #tallyOf(name) {
    const phase = this.#phase;
    const known = this.#tallies.get(`${phase} ${name}`);
    if (known) return known;
    const plan = this.#plans[name];
    const keysOf = (/** @type {readonly Row[]} */ rows) => distinct(rows.map(({ step }) => step));
    const others = this.#rows.filter((row) => row.phase === phase);
    const keys = keysOf(others);
    const layers = layersOf(plan);
    const rows = distinct(plan.steps).map((key, index) => {
      const same = others[keys.indexOf(key)];
      if (same) return same;
      const row = new Row(this.#rows.length, phase, index, plan.steps[index], layers[index]);
      this.#rows.push(row);
      return row;
    });
    const tally = new Tally(this.#plans, plan, rows);
    this.#tallies.set(`${phase} ${name}`, tally);
    return tally;
  }

  /** Once, at the end. @returns {import('./index.d.ts').ProfileStats} */
  stats() {
    const { prefill, decode } = this.#totals;
    for (const tally of this.#tallies.values()) tally.settle();
    for (const { phase, ms } of this.#rows) this.#totals[phase].stepMs += ms;
    const steps = this.#rows.map((row) => row.stats());
    const withShare = (/** @type {any[]} */ rows) => {
      for (const row of rows) {
        const { stepMs } = this.#totals[/** @type {Phase} */ (row.phase)];
        row.share = stepMs > 0 ? (row.ms / stepMs) * 100 : 0;
      }
      return rows;
    };
    withShare(steps);
    return {
      phases: { prefill, decode },
      steps,
      ops: withShare(this.#grouped(['phase', 'op'])),
      kernels: withShare(this.#grouped(['phase', 'op', 'type', 'form', 'kernel'])),
      ...(this.#events ? { trace: this.#trace(this.#events) } : {}),
    };
  }

  /**
   * Sums over the steps that agree in these, the longest first.
   * @param {readonly ('phase' | 'op' | 'type' | 'form' | 'kernel')[]} names
   * @returns {GroupStats[]}
   */
  #grouped(names) {
    /** @type {Map<string, any>} */ const groups = new Map();
    for (const row of this.#rows) {
      const all = { phase: row.phase, ...row.step };
      const values = names.flatMap((name) => (all[name] === undefined ? [] : [[name, all[name]]]));
      const key = JSON.stringify(values);
      const group = groups.get(key) ?? { values, steps: 0, calls: 0, ms: 0, bytes: 0, ops: 0 };
      groups.set(key, group);
      group.steps++;
      for (const sum of /** @type {const} */ (['calls', 'ms', 'bytes', 'ops'])) group[sum] += row[sum];
    }
    return [...groups.values()]
      .map(
        (group) =>
          /** @type {GroupStats} */ ({
            ...Object.fromEntries(group.values),
            steps: group.steps,
            ...figures(group),
          }),
      )
      .sort((a, b) => (a.phase === b.phase ? b.ms - a.ms : a.phase === 'prefill' ? -1 : 1));
  }

  /** @param {Events} events */
  #trace(events) {
    const { reads, dropped } = this.#fetches.take(this.#origin);
    return {
      events: events.numbers,
      dropped: events.dropped + dropped,
      memoryBytes: this.#memory,
      allocations: this.#allocations,
      fetches: reads,
    };
  }
}

function noTotals() {
  return { ms: 0, stepMs: 0, sampleMs: 0, tokens: 0, passes: 0 };
}

/**
 * A name for each step that no other step of the list has.
 * @param {readonly PlanStep[]} steps
 */
function distinct(steps) {
  /** @type {Map<string, number>} */ const seen = new Map();
  return steps.map(({ op, layer, weight = '' }) => {
    const name = `${op} ${layer} ${weight}`;
    const count = seen.get(name) ?? 0;
    seen.set(name, count + 1);
    return `${name} ${count}`;
  });
}

/**
 * The layer of each step; undefined outside of the layers, where the core says 0.
 * @param {Plan} plan
 */
function layersOf({ steps, output_step: end }) {
  const first = steps.findIndex(({ weight }) => weight?.startsWith('blk.'));
  return steps.map(({ layer }, index) => (index >= first && index < end ? layer : undefined));
}

/**
 * Bytes of weights read, or of the key-value cache read (attn) or written
 * (kv_store); activations are not counted.
 * @param {Plans} plans @param {Plan} plan @param {PlanStep} step @param {Sums} sums of the passes
 */
function bytesOf(plans, plan, step, { passes, tokens, keys, windowKeys, experts }) {
  const { op, weight_bytes: bytes = 0, weight_rows: rows = 1 } = step;
  if (op === 'embed' || op === 'embed_position') return Math.round((bytes / rows) * tokens);
  if (op === 'attn') return plans.key_bytes * (step.windowed ? windowKeys : keys);
  if (op === 'kv_store') return plans.key_bytes * tokens;
  if (op === 'expert_matmul') return Math.round(bytes * partOf(plan, step) * experts);
  return Math.round(bytes * (op === 'matmul' ? partOf(plan, step) : 1) * passes);
}

/**
 * Multiplications and additions of a matrix product.
 * @param {Plans} plans @param {Plan} plan @param {PlanStep} step @param {Sums} sums of the passes
 */
function operationsOf(plans, plan, step, { tokens, outputs }) {
  const { op, weight_values: values = 0 } = step;
  const each = 2 * values * partOf(plan, step);
  if (op === 'expert_matmul') return each * tokens * plans.experts_used;
  if (op !== 'matmul') return 0;
  return each * (outOf(plan, step)?.rows === 'output' ? outputs : tokens);
}

/** The part of its weight's rows that one product takes. @param {Plan} plan @param {PlanStep} step */
const partOf = (plan, step) => (outOf(plan, step)?.cols ?? 0) / (step.weight_rows ?? 1);

/** The value that a step makes. @param {Plan} plan @param {PlanStep} step */
const outOf = (plan, { out }) => (out === undefined ? undefined : plan.values[out]);
