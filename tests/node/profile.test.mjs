// The profiler: the plan's steps, their bytes and times, the same tokens; the
// trace, the table and the JSON of the command line.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { TEXT } from '../../js-glue/abi-names.js';
import { Core } from '../../js-glue/abi.js';
import { compileModule } from '../../js-glue/wasm-module.js';
import { chromeTrace, explain, open, probeHost } from '../../js-glue/index.js';
import { BUNDLED, CLI, ROOT, generate, memoryLine, temporary } from '../lib/fixtures.mjs';

const CONTEXT = 64; // a multiple of 8, so that the cache has no padding
const PROMPT = Array.from({ length: 20 }, (_, i) => 30 + i);
const CHUNK = 8;
const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);
const near = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-6 * Math.max(Math.abs(a), Math.abs(b)), `${what}: ${a}, ${b}`);

/** What the core plans, asked without the profiler. */
async function plansOf({ chunk = CHUNK, allLogits = false } = {}) {
  const module = await compileModule(new URL('dist/lineal-base.wasm', `file://${ROOT}`));
  const core = await Core.create(module, await probeHost());
  const bytes = fs.readFileSync(BUNDLED);
  core.headerBegin(0, bytes.length);
  for (let at = 0; !core.headerPush(bytes.subarray(at, at + 65536)); at += 65536);
  core.plan({ context: CONTEXT, memory: 0, kvType: 'auto', chunk, allLogits });
  const plans = core.json(TEXT.PLAN_JSON);
  core.close();
  return plans;
}

/** Closed when the test ends, however it ends. */
async function openModel(t, options = {}) {
  const model = await open(BUNDLED, { module: 'base', threads: 1, context: CONTEXT, chunk: CHUNK, ...options });
  t.after(() => model.close());
  return model;
}

const run = async (model, options, prompt = PROMPT) =>
  (await generate(model, prompt, { maxTokens: 12, ignoreEos: true, reuse: false, ...options })).result;

const operations = (rows) => rows.reduce((total, { gops, ms }) => total + gops * ms * 1e6, 0);

/** What the rows of a phase say about the plan, without figures. */
const shapeOf = (rows) => rows.map(({ op, weight, type, form, kernel }) => ({ op, weight, type, form, kernel }));

function checkFigures(stats, timings) {
  for (const phase of ['prefill', 'decode']) {
    const rows = stats.steps.filter((row) => row.phase === phase);
    const totals = stats.phases[phase];
    assert.equal(totals.ms, timings[`${phase}Ms`]);
    near(sum(rows, 'ms'), totals.stepMs, 'step times');
    assert.ok(totals.stepMs + totals.sampleMs <= totals.ms, `${phase}: ${JSON.stringify(totals)}`);
    near(sum(rows, 'share'), 100, 'shares');
    for (const row of rows) {
      assert.ok(row.ms > 0 && row.calls > 0, JSON.stringify(row));
      near(row.gbPerS, row.bytes / row.ms / 1e6, 'GB/s');
      assert.equal(row.gops > 0, row.op === 'matmul');
    }
    for (const groups of [stats.ops, stats.kernels]) {
      const mine = groups.filter((group) => group.phase === phase);
      for (const name of ['ms', 'calls', 'bytes', 'share']) near(sum(mine, name), sum(rows, name), name);
      assert.equal(sum(mine, 'steps'), rows.length);
      assert.deepEqual(mine, [...mine].sort((a, b) => b.ms - a.ms), 'the longest first');
    }
    const ops = stats.ops.filter((group) => group.phase === phase).map(({ op }) => op);
    assert.equal(new Set(ops).size, ops.length);
  }
}

for (const threads of [1, 2]) {
  test(`${threads} threads: each step of the plan once a pass, its bytes, and the tokens of a plain run`, async (t) => {
    const plans = await plansOf();
    const model = await openModel(t, { threads, host: { threads } });
    const plain = await run(model);
    assert.equal(plain.stats, undefined);
    const { stats, timings, tokens, ...more } = await run(model, { profile: true });
    assert.deepEqual(tokens, plain.tokens);
    assert.equal(more.text, plain.text);
    assert.equal(more.decodeAllocations, 0);
    assert.equal(stats.trace, undefined);
    checkFigures(stats, timings);
    const decode = stats.steps.filter(({ phase }) => phase === 'decode');
    const prefill = stats.steps.filter(({ phase }) => phase === 'prefill');
    assert.deepEqual(shapeOf(decode), shapeOf(plans.decode.steps));
    assert.deepEqual(shapeOf(prefill), shapeOf(plans.prefill.steps));
    for (const rows of [decode, prefill]) assert.deepEqual(rows.map(({ step }) => step), [...rows.keys()]);

    // 20 tokens in chunks of 8; logits are made in the last one only.
    assert.deepEqual([stats.phases.prefill.passes, stats.phases.prefill.tokens], [3, 20]);
    prefill.forEach(({ calls }, i) => assert.equal(calls, i < plans.prefill.output_step ? 3 : 1));
    assert.deepEqual([stats.phases.decode.passes, stats.phases.decode.tokens], [11, 11]);
    for (const { calls } of decode) assert.equal(calls, 11);

    // Weights: what explain says is read for a token. The embedding is tied: its matrix is the output's, too.
    const { tensors } = model.explanation;
    const matrices = tensors.filter(({ shape }) => shape.length === 2);
    const matmul = decode.filter(({ op }) => op === 'matmul');
    assert.deepEqual(matmul.map(({ weight }) => weight).sort(), matrices.map(({ name }) => name).sort());
    assert.equal(sum(matmul, 'bytes'), 11 * sum(matrices, 'resident_bytes'));
    const values = matrices.reduce((total, { shape }) => total + shape[0] * shape[1], 0);
    near(operations(matmul), 11 * 2 * values, 'operations');
    const [output] = matrices.filter(({ name }) => name === 'token_embd.weight').map(({ shape }) => shape[0] * shape[1]);
    near(operations(prefill), 2 * (20 * (values - output) + output), 'operations, one position of 20 with logits');

    // The cache: each token looks at all before it and at itself.
    const perToken = memoryLine(model.explanation, 'kv') / CONTEXT;
    const attn = (rows) => sum(rows.filter(({ op }) => op === 'attn'), 'bytes');
    assert.equal(attn(prefill), (perToken * 20 * 21) / 2);
    assert.equal(attn(decode), (perToken * (31 * 32 - 20 * 21)) / 2);
    assert.equal(sum(decode.filter(({ op }) => op === 'kv_store'), 'bytes'), perToken * 11);

    // Layers are named by the weight where there is one; what lies outside has none.
    for (const { layer, weight } of decode) {
      if (weight) assert.equal(layer, weight.startsWith('blk.') ? Number(weight.split('.')[1]) : undefined);
    }
    assert.deepEqual(new Set(decode.map(({ layer }) => layer)), new Set([undefined, 0, 1, 2, 3]));

    // Whole passes again afterwards.
    const evals = t.mock.method(Core.prototype, 'eval');
    const again = await run(model);
    assert.equal(evals.mock.callCount(), 3 + 11);
    assert.deepEqual([again.tokens, again.stats], [plain.tokens, undefined]);
  });
}

test('the last token of a prompt alone takes the plan of decode: still one row a step', async (t) => {
  const plans = await plansOf();
  const model = await openModel(t);
  const { stats, timings } = await run(model, { profile: true }, PROMPT.slice(0, 9));
  const prefill = stats.steps.filter(({ phase }) => phase === 'prefill');
  assert.equal(stats.phases.prefill.passes, 2);
  assert.equal(prefill.length, plans.prefill.steps.length);
  prefill.forEach(({ calls }, i) => assert.equal(calls, i < plans.prefill.output_step ? 2 : 1));
  checkFigures(stats, timings);
});

test('a model that keeps all logits', async (t) => {
  const plans = await plansOf({ allLogits: true });
  const model = await openModel(t, { allLogits: true });
  const { stats, timings } = await run(model, { profile: true });
  const decode = stats.steps.filter(({ phase }) => phase === 'decode');
  assert.deepEqual(shapeOf(decode), shapeOf(plans.prefill.steps));
  const output = stats.steps.filter(({ op, weight }) => op === 'matmul' && weight === 'token_embd.weight');
  assert.deepEqual(output.map(({ calls }) => calls), [3, 11]);
  const [rows] = model.explanation.tensors.filter(({ name }) => name === 'token_embd.weight').map(({ shape }) => shape);
  near(operations(output.slice(0, 1)), 2 * rows[0] * rows[1] * 20, 'operations of all 20 positions');
  checkFigures(stats, timings);
});

test('generations that end early have their stats; a bad profile option is refused', async (t) => {
  const model = await openModel(t);
  const full = await run(model, { profile: true, maxTokens: 100 });
  assert.equal(full.finishReason, 'context_full');
  assert.equal(full.stats.phases.decode.passes, CONTEXT - PROMPT.length);
  checkFigures(full.stats, full.timings);
  const none = await run(model, { profile: true, maxTokens: 0 });
  assert.deepEqual([none.stats.phases.prefill.passes, none.stats.phases.decode.passes], [3, 0]);
  const controller = new AbortController();
  const onToken = ({ index }) => index === 3 && controller.abort();
  const aborted = await run(model, { profile: 'trace', signal: controller.signal, onToken });
  assert.equal(aborted.finishReason, 'aborted');
  assert.equal(aborted.stats.phases.decode.passes, aborted.tokens.length - 1);
  const left = model.generate(PROMPT, { profile: 'trace', maxTokens: 12, ignoreEos: true });
  for await (const piece of left) if (piece !== undefined) break;
  checkNesting(chromeTrace(model, [aborted, await left.done]).traceEvents);
  const plain = await run(model);
  assert.equal(plain.tokens.length, 12);
  assert.throws(() => chromeTrace(model, [plain]), { code: 'BAD_ARGUMENT', message: /trace/ });
  await assert.rejects(run(model, { profile: 'yes' }), { code: 'BAD_ARGUMENT', message: /profile/ });
});

/** Within a track, events nest or follow each other. */
function checkNesting(events) {
  for (const track of new Set(events.map(({ tid }) => tid))) {
    const spans = events.filter(({ ph, tid }) => ph === 'X' && tid === track);
    const ends = [];
    for (const { name, ts, dur } of spans) {
      assert.ok(ts >= 0 && dur >= 0, `${name} ${ts} ${dur}`);
      while (ends.length > 0 && ends.at(-1) <= ts + 5e-4) ends.pop(); // half a nanosecond
      if (ends.length > 0) assert.ok(ts + dur <= ends.at(-1) + 5e-4, `track ${track}: ${name} at ${ts} overlaps`);
      ends.push(ts + dur);
    }
  }
}

/** Checks what every trace has; returns the spans by track. */
function checkTrace(trace, { tokens, phases = ['prefill', 'decode'] }) {
  const { traceEvents: events } = trace;
  assert.equal(trace.displayTimeUnit, 'ms');
  assert.equal(trace.otherData.dropped_events, 0);
  for (const event of events) {
    assert.ok(['X', 'i', 'C', 'M'].includes(event.ph) && Number.isFinite(event.ts) && event.pid === 1);
  }
  checkNesting(events);
  const named = Object.fromEntries(
    events.filter(({ name }) => name === 'thread_name').map(({ tid, args }) => [args.name, tid]),
  );
  assert.deepEqual(Object.keys(named), ['phases', 'steps', 'memory', 'fetch']);
  assert.equal(events.find(({ name }) => name === 'process_name').args.name, 'lineal');
  const spans = (track) => events.filter(({ ph, tid }) => ph === 'X' && tid === named[track]);
  assert.deepEqual(
    spans('phases').map(({ name }) => name),
    ['compile', 'header', 'plan', 'bind', 'weights', 'threads', ...phases],
  );
  const steps = spans('steps');
  const passes = steps.filter(({ name }) => /tokens?$/.test(name));
  const inner = steps.filter(({ args }) => args.op);
  const holds = (outer, event) => outer.ts <= event.ts + 5e-4 && event.ts + event.dur <= outer.ts + outer.dur + 5e-4;
  const outer = spans('phases').filter(({ name }) => phases.includes(name));
  for (const step of inner) assert.equal(passes.filter((pass) => holds(pass, step)).length, 1, step.name);
  for (const pass of passes) assert.equal(outer.filter((phase) => holds(phase, pass)).length, 1, pass.name);
  assert.equal(steps.filter(({ name }) => name === 'sample').length, tokens);
  assert.equal(events.filter(({ name }) => name === 'slab reset').length, passes.length);
  const bind = spans('memory').find(({ name }) => name === 'bind arenas');
  assert.ok(bind.args.weights > 1e6 && bind.args.kv > 0);
  const counts = (which, key) => events.filter(({ ph, name }) => ph === 'C' && name === which).map(({ args }) => args[key]);
  assert.ok(counts('linear memory', 'bytes').at(-1) >= bind.args.weights, 'the counter ends with the memory taken');
  // Each region as it is taken, and no allocation from there on but for the prompt.
  const taken = events.filter(({ ph, name }) => ph === 'i' && name.startsWith('take '));
  for (const { ts } of taken) assert.ok(Math.abs(ts - bind.ts - bind.dur) < 1e-2);
  const bytesOf = Object.fromEntries(taken.map(({ name, args }) => [name.slice(5), args.bytes]));
  for (const name of ['weights', 'kv', 'slab', 'scratch']) assert.equal(bytesOf[name], bind.args[name], name);
  const calls = counts('allocator', 'calls');
  assert.equal(calls.length, 1 + phases.length);
  assert.equal(calls.at(-1), calls.at(-2), 'decoding allocates nothing');
  // All of the file that was read, from the header to the last weight, each byte once.
  const fetches = spans('fetch');
  const opening = spans('phases').filter(({ name }) => ['header', 'weights'].includes(name));
  for (const fetch of fetches) assert.ok(opening.some((phase) => holds(phase, fetch)), JSON.stringify(fetch));
  assert.equal(fetches[0].args.offset, 0);
  return { passes, inner, fetches };
}

test('worker: true: the stats and the trace cross', async (t) => {
  const model = await openModel(t, { worker: true });
  const result = await run(model, { profile: 'trace' });
  checkFigures(result.stats, result.timings);
  assert.ok(result.stats.trace.events instanceof Float64Array);
  const trace = JSON.parse(JSON.stringify(chromeTrace(model, [result])));
  const { passes, inner, fetches } = checkTrace(trace, { tokens: 12 });
  assert.equal(passes.length, 3 + 11);
  const { size } = fs.statSync(BUNDLED);
  const weights = sum(model.explanation.tensors, 'stored_bytes');
  const first = fetches.findIndex(({ args }) => args.offset > 0);
  assert.ok(sum(fetches.map(({ args }) => args), 'bytes') >= weights && first > 0, JSON.stringify(fetches));
  for (const { args } of fetches) assert.ok(args.offset + args.bytes <= size);
  // What was read is told once.
  const again = await run(model, { profile: 'trace' });
  assert.equal(again.stats.trace.fetches.length, 0);
  assert.equal(inner.length, sum(result.stats.steps, 'calls'));
  for (const { op, bytes, calls, phase } of result.stats.ops.filter((group) => group.op === 'matmul')) {
    const events = inner.filter((event) => event.args.op === op);
    assert.ok(calls < events.length && bytes <= events.reduce((total, { args }) => total + args.bytes, 0), phase);
  }
  near(inner.reduce((total, { args }) => total + args.bytes, 0), sum(result.stats.steps, 'bytes'), 'bytes');
});

test('a trace of weights that stay in the source: each read, as many bytes as the result says', async (t) => {
  const least = await explain(BUNDLED, { module: 'base', context: CONTEXT, threads: 1, memory: 1 });
  const model = await openModel(t, { memory: least.total_bytes + 400_000, streamWindow: 65536 });
  assert.ok(model.explanation.streaming);
  await run(model); // not traced, so not kept
  const result = await run(model, { profile: 'trace' });
  const { traceEvents: events } = chromeTrace(model, [result]);
  checkNesting(events);
  const phases = events.filter(({ ph, cat }) => ph === 'X' && cat === 'phases');
  const begin = phases.find(({ name }) => name === 'prefill').ts;
  const fetches = events.filter(({ ph, cat }) => ph === 'X' && cat === 'fetch');
  const later = fetches.filter(({ ts }) => ts >= begin);
  assert.ok(later.length > 12 && later.length < fetches.length, `${later.length} of ${fetches.length}`);
  assert.equal(sum(later.map(({ args }) => args), 'bytes'), result.streaming.bytes);
});

function lineal(args) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [CLI, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.on('data', (data) => (out += data));
    child.stderr.on('data', (data) => (err += data));
    child.on('close', (code) => resolve({ code, out, err }));
  });
}

test('bench --profile --json --trace: all of it, and a file that holds what ran', async () => {
  const file = temporary('bench-trace.json');
  const args = ['bench', BUNDLED, '-p', '20', '-n', '9', '--threads', '1', '--profile', '--trace', file, '--json'];
  const { code, out, err } = await lineal(args);
  assert.equal(code, 0, err);
  const { profile, trace, ...rest } = JSON.parse(out);
  assert.ok(rest.decode_tps > 0);
  assert.deepEqual(Object.keys(profile), ['overhead', 'load', 'phases', 'ops', 'kernels', 'steps']);
  assert.deepEqual(Object.keys(profile.overhead), ['prefill', 'decode']);
  assert.deepEqual(profile.load.map(({ name }) => name), ['compile', 'header', 'plan', 'bind', 'weights', 'threads']);
  assert.equal(profile.phases.decode.passes, 8);
  const { ms, gb_per_s: rate, share, ...step } = profile.steps.find(
    ({ phase, weight }) => phase === 'decode' && weight === 'blk.3.ffn_down.weight',
  );
  assert.ok(ms > 0 && rate > 0 && share > 0);
  assert.deepEqual([step.op, step.layer, step.calls, step.type], ['matmul', 3, 8, 'Q6_K']);
  const written = JSON.parse(fs.readFileSync(file, 'utf8'));
  assert.deepEqual(trace, { file, events: written.traceEvents.length });
  const { inner } = checkTrace(written, { tokens: 9 });
  assert.equal(inner.length, sum(profile.steps, 'calls'));
});

test('bench --profile prints tables, the largest share first', async () => {
  const { code, out, err } = await lineal(['bench', BUNDLED, '-p', '20', '-n', '9', '--threads', '1', '--profile']);
  assert.equal(code, 0, err);
  assert.match(out, /^load, in ms: compile [\d.]+, header/m);
  assert.match(out, /^prefill: 20 tokens in 1 passes, /m);
  const [, table] = out.split(/^decode: .*$/m);
  const shares = [...table.matchAll(/^ +([\d.]+) % +[\d.]+ +[\d.]+ +\d+ .* {2}\w+/gm)].map(([, share]) => Number(share));
  assert.ok(shares.length >= 10, table);
  assert.deepEqual(shares, [...shares].sort((a, b) => b - a));
  assert.ok(Math.abs(shares.reduce((a, b) => a + b) - 100) < 1);
  assert.match(table, /^ .* matmul +Q4_K +\w+$/m);
  for (const line of out.split('\n')) assert.equal(line, line.trimEnd());
});

test('generate --trace: the same text, and a trace; --help names it', async () => {
  const file = temporary('generate-trace.json');
  const args = ['generate', BUNDLED, '-p', 'In the beginning', '-n', '5', '--threads', '2'];
  const { code, out } = await lineal([...args, '--trace', file]);
  assert.deepEqual([code, out], [0, ' of the LORD, and\n']);
  checkTrace(JSON.parse(fs.readFileSync(file, 'utf8')), { tokens: 5 });
  assert.match((await lineal(['generate', '--help'])).out, /--trace FILE/);
  assert.match((await lineal(['bench', '--help'])).out, /--profile[^]*--trace FILE/);
});

test('a --trace that cannot be written is refused before anything is opened', async () => {
  const nowhere = path.join(temporary('no-such-folder'), 'trace.json');
  for (const command of [['bench'], ['generate', '-p', 'And']]) {
    const { code, out } = await lineal([...command, 'no-such-model.gguf', '--trace', nowhere, '--json']);
    const { error } = JSON.parse(out);
    assert.deepEqual([code, error.code], [1, 'BAD_ARGUMENT']);
    assert.ok(error.message.includes(nowhere) && error.remedy.includes('--trace'), out);
  }
  const { out } = await lineal(['bench', BUNDLED, '--trace', BUNDLED, '--json']);
  assert.match(JSON.parse(out).error.message, /is the model itself/);
  const file = temporary('unfinished.json');
  assert.equal((await lineal(['bench', 'no-such-model.gguf', '--trace', file])).code, 1);
  assert.equal(fs.existsSync(file), false);
});
