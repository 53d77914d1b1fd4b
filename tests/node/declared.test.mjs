// js-glue/index.d.ts is the manual: what comes out is what it declares, no more and no less.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import * as lineal from '../../js-glue/index.js';
import { LinealError, chromeTrace, explain, inspect, modelCache, open, openTokenizer, probeHost } from '../../js-glue/index.js';
import { describedModel } from '../conformance/generator.mjs';
import { architectureCases } from '../conformance/suite.mjs';
import { declaredFaults, declaredStrings, declaredValues, returnedFaults, typeFaults, unseen } from '../lib/declared.mjs';
import { BUNDLED, MODULES, ROOT, temporary } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';
import { startServer } from '../lib/http-server.mjs';

const as = (type, value) => assert.deepEqual(declaredFaults(type, value).slice(0, 5), [], type);
const returnedBy = (name, value) => assert.deepEqual(returnedFaults(name, value).slice(0, 5), [], name);

const ofArchitecture = (name) => architectureCases({ core: true }).find(({ architecture }) => architecture === name).description;
const olmoe = ofArchitecture('olmoe');
/** A mixture of experts that is worth a window. */
const EXPERTS = { ...olmoe, layers: 4, width: 128, experts: { ...olmoe.experts, count: 16, used: 2, ff: 128 }, vocab: 288 };

let server;
before(async () => {
  server = await startServer({ '/kjv.gguf': BUNDLED }, { faults: { '/kjv.gguf': { etag: '"1"', chunk: 100_000, delay: 30 } } });
});
after(() => server.close());

test('exports: those that are declared', () => {
  assert.deepEqual(Object.keys(lineal).sort(), [...declaredValues].sort());
});

test('the walk sees faults: what is missing, of another type, or not declared', () => {
  const reason = { code: 'A', text: 'b' };
  as('Reason', reason);
  for (const [value, fault] of [
    [{ code: 'A' }, /Reason\.text is declared and missing/],
    [{ ...reason, more: 1 }, /Reason\.more is there and not declared/],
    [{ ...reason, text: 1 }, /Reason\.text is 1, and not string/],
    [null, /Reason is null/],
  ]) {
    const [first, ...rest] = declaredFaults('Reason', value);
    assert.match(first, fault);
    assert.deepEqual(rest, []);
  }
  const region = { name: 'kv', scope: 'session', domain: 'HEAP', bytes: 1, high_water_bytes: 1, address: null };
  as('MemoryRegion', region);
  assert.match(declaredFaults('MemoryRegion', { ...region, scope: 'kept' })[0], /"kept"/);
  assert.match(declaredFaults('MemoryRegion', { ...region, bytes: NaN })[0], /bytes/);
  assert.match(declaredFaults('MemoryRegion', { ...region, address: '0x1' })[0], /address/);
  assert.match(declaredFaults('StepPlans', { all_logits: false, steps: [] }).join(), /steps is there and not declared/);
});

test('explain: what fits, what does not, what streams, what gives vectors; inspect', async () => {
  for (const module of MODULES) {
    const plan = await explain(BUNDLED, { module });
    as('Explanation', plan);
    assert.equal(plan.module, module);
    assert.match(plan.text, new RegExp(`module ${module},`));
  }
  as('Explanation', await explain(BUNDLED, { embeddings: true, context: 'max', placement: { profile: 'phone', hold: 'f16' } }));
  const refused = await explain(BUNDLED, { memory: '1MB', stream: 'off' });
  assert.ok(!refused.fits && refused.suggestions.length > 0);
  as('Explanation', refused);
  const options = { kvType: 'f32', context: 64, chunk: 16, streamWindow: '64KiB' };
  const streamed = await explain(ggufBytes(describedModel(EXPERTS)), { ...options, memory: 1 });
  assert.ok(streamed.streaming && streamed.tensors.some(({ domain }) => domain === 'STREAMED'));
  as('Explanation', streamed);
  for (const source of [BUNDLED, ggufBytes(tinyLlama({ tokenizer: 'none' }))]) as('Inspection', await inspect(source));
  for (const name of ['Explanation', 'ExplainedHost', 'ExplainedModel', 'TensorPlacement', 'Suggestion', 'MemoryLine', 'Streaming', 'Reason', 'Inspection'])
    assert.deepEqual(unseen(name), [], name);
});

for (const worker of [false, true]) {
  test(`a model, its generations and its memory${worker ? ', in a worker' : ''}`, async () => {
    const events = [];
    const told = (type) => (value) => events.push([type, value]);
    const model = await open(`${server.url}/kjv.gguf`, {
      context: 64, allLogits: true, chunk: 4, worker, onProgress: told('Progress'), cache: { directory: temporary(`declared-${worker}`), required: true },
    });
    try {
      as('Model', model);
      const generation = model.generate('In the beginning', {
        maxTokens: 4, logprobs: true, profile: 'trace', onProgress: told('PrefillProgress'),
        onToken: (token) => assert.deepEqual(Object.keys(token), ['id', 'index', 'logprob']),
      });
      as('Generation', generation);
      const result = await generation.done;
      as('GenerationResult', result);
      as('GenerationResult', await model.generate([1, 2, 3], { maxTokens: 0 }).done);
      as('MemoryUse', await model.memory());
      as('StepPlans', await model.explainPlan());
      for await (const row of model.evaluate([1, 2])) as('LogitsRow', row);
      returnedBy('chromeTrace', chromeTrace(model, [result]));
      for (const [type, value] of events) as(type, value);
      assert.ok(events.some(([, { bytesPerSecond }]) => bytesPerSecond > 0));
    } finally {
      await model.close();
    }
    for (const name of ['Progress', 'PrefillProgress', 'Model', 'ModelInfo', 'LoadPhase', 'Timings', 'MemoryReport', 'MemoryTable', 'MemoryUse',
      'MemoryRegion', 'MemorySum', 'LogitsRow', 'StepStats', 'GroupStats', 'PhaseStats', 'ProfileStats', 'TraceEvent', 'PlannedValue', 'StepPlan',
      'StepPlans', 'Generation']) assert.deepEqual(unseen(name), [], name);
  });
}

test('what streams tells what it read; windows and threads are in the steps', async () => {
  const source = ggufBytes(describedModel(EXPERTS));
  const options = { kvType: 'f32', context: 64, chunk: 16, streamWindow: '64KiB' };
  const floor = (await explain(source, { ...options, memory: 1 })).total_bytes;
  const whole = (await explain(source, options)).total_bytes;
  for (const part of [0, 0.6]) {
    const model = await open(source, { ...options, memory: Math.round(floor + part * (whole - floor)) });
    as('Model', model);
    as('GenerationResult', await model.generate([1, 5, 9], { maxTokens: 8, ignoreEos: true, profile: true }).done);
    as('StepPlans', await model.explainPlan());
    await model.close();
  }
  const windowed = await open(ggufBytes(describedModel(ofArchitecture('gemma2'))), { context: 64, threads: 2 });
  as('StepPlans', await windowed.explainPlan());
  await windowed.close();
  for (const name of ['GenerationResult', 'PlannedStep']) assert.deepEqual(unseen(name), [], name);
});

test('the host, the cache, the tokenizer, errors', async () => {
  returnedBy('probeHost', await probeHost());
  const directory = temporary('declared-cache');
  const url = `${server.url}/kjv.gguf`;
  const sha256 = '0'.repeat(64);
  await assert.rejects(open(url, { cache: { directory, sha256 } }), { code: 'SOURCE_CHECKSUM' });
  await (await open(url, { cache: { directory } })).close();
  const [kept, ...others] = await modelCache.list({ directory });
  assert.deepEqual(others, []);
  as('CachedModel', kept);
  as('CachedModel', await modelCache.info(url, { directory }));
  const tokenizer = await openTokenizer(BUNDLED);
  as('Tokenizer', tokenizer);
  await tokenizer.close();
  const error = await explain(temporary('none.gguf')).catch((thrown) => thrown);
  as('LinealError', error);
  for (const name of ['HostCapabilities', 'Tokenizer']) assert.deepEqual(unseen(name), [], name);
});

test('codes of errors: those of the core and of this layer, each once, and no other is thrown', () => {
  const declared = declaredStrings('LinealErrorCode');
  assert.equal(new Set(declared).size, declared.length);
  const text = fs.readFileSync(path.join(ROOT, 'src/status.inc'), 'utf8');
  const core = [...text.matchAll(/^LNL_STATUS\((\w+), (-?\d+)/gm)].map(([, name]) => name);
  const inner = ['OK', 'NEED_BYTES', 'MORE']; // never an error
  const own = declared.filter((code) => !core.includes(code));
  assert.deepEqual(core.filter((code) => !declared.includes(code)), inner);
  for (const code of own) assert.notEqual(new LinealError(code, 'x').remedy, '', code);
  const folder = path.join(ROOT, 'js-glue');
  for (const name of fs.readdirSync(folder).filter((file) => file.endsWith('.js'))) {
    const thrown = fs.readFileSync(path.join(folder, name), 'utf8').matchAll(/new LinealError\(\s*'(\w+)'/g);
    for (const [, code] of thrown) assert.ok(declared.includes(code), `${name} throws ${code}`);
  }
});

test('a strict consumer compiles, and the compiler sees what is wrong', () => {
  const head = "import { explain, open, memoryMap, chromeTrace, LinealError } from 'lineal';\n";
  const good = `${head}
      const plan = await explain('m.gguf', { context: 'max', kvType: { k: 'q8_0', v: 'q4_0' }, module: 'base' });
      const layers: number = plan.model.n_layer;
      const streamed = plan.tensors.filter(({ domain }) => domain === 'STREAMED').length;
      const model = await open(new Blob(), { threads: 'auto', onProgress: ({ phase, from }) => console.log(phase, from) });
      for await (const piece of model.generate([1, 2, 3])) console.log(piece.length);
      const { finishReason, stats } = await model.generate('x', { profile: true }).done;
      if (finishReason === 'context_full') console.log(stats?.kernels[0].gbPerS, layers, streamed);
      const use = await model.memory();
      console.log(memoryMap(use), use.scopes.session.bytes, chromeTrace(model, []).traceEvents.length);
      try { await model.embed('x'); } catch (error) { if (error instanceof LinealError && error.code === 'NO_EMBEDDINGS') throw error; }`;
  const bad = [
    ["await explain('m.gguf', { contxt: 1 });", /contxt/],
    ["await explain('m.gguf', { module: 'simd128' });", /simd128/],
    ["(await explain('m.gguf')).module === 'simd128';", /no overlap/],
    ["(await (await open('m.gguf')).memory()).scopes.kept;", /kept/],
    ["(await open('m.gguf')).info.threads = '1';", /string/],
  ];
  const found = typeFaults({ 'good.ts': good, ...Object.fromEntries(bad.map(([line], i) => [`bad-${i}.ts`, head + line])) });
  assert.equal(found.length, bad.length, found.join('\n'));
  for (const [i, [, fault]] of bad.entries()) assert.match(found.find((text) => text.startsWith(`bad-${i}.ts`)), fault);
});
