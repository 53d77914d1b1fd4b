// Threads: the same bits for any number of them, the number that is chosen and
// why, and that neither a death nor a close leaves anything hanging.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import { explain, open } from '../../js-glue/index.js';
import { BUNDLED, CLI, MODULES, generate, memoryLine, rowsOf } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';

/** The workers that live now. */
const workers = new Set();
process.on('worker', (worker) => {
  workers.add(worker);
  worker.once('exit', () => workers.delete(worker));
});

/** A host with so many cores, whatever this one has. */
const cores = (threads) => ({ threads, host: { threads } });

const codesOf = (explanation) => explanation.warnings.map(({ code }) => code);

async function run(source, threads, module) {
  const model = await open(source, { ...cores(threads), module, context: 64, allLogits: true });
  try {
    assert.equal(model.info.threads, threads);
    const { result } = await generate(model, [1, 5, 9, 7, 30, 31, 32, 33, 34], { maxTokens: 24, ignoreEos: true });
    assert.equal(result.decodeAllocations, 0);
    assert.equal(result.memoryGrows, 0);
    const { planned, measured } = result.memory;
    assert.deepEqual(measured, planned);
    const rows = await rowsOf(model, result.promptTokens.concat(result.tokens));
    return { tokens: result.tokens, rows };
  } finally {
    await model.close();
  }
}

for (const module of MODULES) {
  test(`${module}: tokens and logits are the same bits for 1, 2, 3 and 4 threads`, async () => {
    const generated = ggufBytes(
      tinyLlama({ n_layer: 3, d_model: 96, n_head: 6, n_kv_head: 3, d_ff: 160, n_vocab: 300, type: 'Q8_0' }),
    );
    for (const source of [BUNDLED, generated]) {
      const want = await run(source, 1, module);
      assert.ok(want.rows.every((row) => row.every(Number.isFinite)));
      for (const threads of [2, 3, 4]) assert.deepEqual(await run(source, threads, module), want, `${threads} threads`);
    }
  });
}

test('the number: what the host has, at most what was asked for, and why', async () => {
  const of = async (threads, host) => {
    const plan = await explain(BUNDLED, { threads, host });
    assert.equal(plan.threads_asked, threads === 'auto' ? 0 : threads);
    assert.ok(plan.text.includes(`${plan.threads} thread`) && plan.text.includes(plan.threads_reason.text));
    return [plan.threads, plan.threads_reason.code, codesOf(plan).filter((code) => /THREAD/.test(code))];
  };
  const page = { kind: 'browser', canWait: true, isolated: true };
  assert.deepEqual(await of('auto', { threads: 2 }), [2, 'AUTO', []]);
  assert.deepEqual(await of('auto', { threads: 6 }), [4, 'AUTO', []]);
  assert.deepEqual(await of('auto', { threads: 64 }), [8, 'AUTO', []]);
  assert.deepEqual(await of(3, { threads: 4 }), [3, 'ASKED_FOR', []]);
  assert.deepEqual(await of(64, { threads: 2 }), [2, 'CORES', ['THREADS_CLAMPED']]);
  assert.deepEqual(await of(64, { threads: 64 }), [16, 'LIMIT', ['THREADS_CLAMPED']]);
  assert.deepEqual(await of(1, { threads: 4 }), [1, 'ASKED_FOR_ONE', []]);
  assert.deepEqual(await of('auto', { threads: 1 }), [1, 'ONE_CORE', []]);
  assert.deepEqual(await of(2, { threads: 1 }), [1, 'ONE_CORE', ['ONE_THREAD']]);
  assert.deepEqual(await of(2, { ...page, threads: 4 }), [2, 'ASKED_FOR', []]);
  assert.deepEqual(await of(2, { ...page, threads: 4, isolated: false }), [1, 'NOT_ISOLATED', ['ONE_THREAD']]);
  assert.deepEqual(await of('auto', { ...page, threads: 4, canWait: false }), [1, 'MAIN_THREAD', ['ONE_THREAD']]);
  assert.equal(workers.size, 0, 'a plan starts nothing');
  const clamped = (await explain(BUNDLED, { threads: 64, host: { threads: 2 } })).warnings;
  assert.match(clamped.find(({ code }) => code === 'THREADS_CLAMPED').text, /64 threads .* on 2/);
  for (const threads of [0, -1, 1.5, 'two', '2']) {
    await assert.rejects(async () => explain(BUNDLED, { threads }), { code: 'BAD_ARGUMENT', message: /threads/ });
  }
});

test('by default every core of a small machine computes, and stacks are in the plan', async () => {
  const [one, two] = [await explain(BUNDLED, cores(1)), await explain(BUNDLED, cores(2))];
  const more = memoryLine(two, 'scratch') - memoryLine(one, 'scratch');
  assert.ok(more >= 128 << 10, `${more} bytes for a second thread`);
  const model = await open(BUNDLED);
  const n = availableParallelism();
  if (n <= 4) assert.equal(model.info.threads, n);
  assert.equal(model.explanation.threads, model.info.threads);
  assert.equal(workers.size, model.info.threads - 1);
  await model.close();
  assert.equal(workers.size, 0);
});

test('a thread that is killed while the model generates: THREAD_LOST, and the next open works', async () => {
  const model = await open(BUNDLED, cores(3));
  assert.equal(workers.size, 2);
  const generation = model.generate('And', { maxTokens: 200, ignoreEos: true });
  let pieces = 0;
  await assert.rejects(
    async () => {
      for await (const piece of generation) {
        void piece;
        if (++pieces === 5) await [...workers][0].terminate();
      }
    },
    { code: 'THREAD_LOST', message: /3 threads/ },
  );
  assert.equal(pieces, 5);
  await assert.rejects(model.generate('And').done, { name: 'LinealError' });
  await model.close();
  assert.equal(workers.size, 0);
  const again = await open(BUNDLED, cores(3));
  const { text } = await generate(again, 'In the beginning', { maxTokens: 5 });
  assert.equal(text, ' of the LORD, and');
  await again.close();
});

/**
 * What the work gets: open, whose core stops with a trap in the next evaluation after trap(how). how 'sound': its
 * memory stays as it was; 'damaged': nothing in it is what it was.
 */
async function withTrap(work) {
  const { instantiate } = WebAssembly;
  let how = '';
  WebAssembly.instantiate = async (module, imports) => {
    const made = await instantiate.call(WebAssembly, module, imports);
    const memory = imports?.env?.memory;
    if (!memory) return made;
    const lnl_abi_eval = (...args) => {
      if (how === 'damaged') new Uint8Array(memory.buffer).fill(255);
      if (how === 'sound') throw new WebAssembly.RuntimeError('unreachable');
      return made.exports.lnl_abi_eval(...args);
    };
    return { exports: { ...made.exports, lnl_abi_eval } };
  };
  try {
    return await work((wanted) => { how = wanted; });
  } finally {
    WebAssembly.instantiate = instantiate;
  }
}

for (const how of ['sound', 'damaged']) {
  for (const threads of [2, 4]) {
    test(`after a trap that left memory ${how}: close() with ${threads} threads is prompt, and leaves no worker`, async () => {
      await withTrap(async (trap) => {
        const ports = [];
        const { MessageChannel: Channel } = globalThis;
        globalThis.MessageChannel = class extends Channel {
          constructor() {
            super();
            ports.push(this.port1);
          }
        };
        const model = await open(BUNDLED, cores(threads));
        globalThis.MessageChannel = Channel;
        assert.equal((await generate(model, 'In the beginning', { maxTokens: 5 })).text, ' of the LORD, and');
        let returned = 0;
        for (const port of ports) port.addEventListener('message', ({ data }) => { if (data.ready === false) returned++; });
        trap(how);
        await assert.rejects(model.generate('And').done, { code: 'INTERNAL', message: /core stopped in eval/ });
        await assert.rejects(model.memory(), { code: 'INTERNAL' });
        const start = performance.now();
        await model.close();
        const ms = performance.now() - start;
        assert.ok(ms < 500, `close() took ${ms} ms`);
        if (how === 'sound') assert.equal(returned, threads - 1, 'they were told to go, which browsers need');
        assert.equal(workers.size, 0);
      });
    });
  }
}

test('twenty models opened and closed leave no worker', async () => {
  for (let i = 0; i < 20; i++) {
    const model = await open(BUNDLED, { ...cores(2), context: 32 });
    assert.equal(workers.size, 1);
    if (i % 5 === 0) assert.equal((await generate(model, 'In the', { maxTokens: 3 })).result.tokens.length, 3);
    await model.close();
    assert.equal(workers.size, 0);
  }
});

test('an open that fails, or is aborted, leaves no worker', async () => {
  const bytes = ggufBytes(tinyLlama());
  await assert.rejects(open(bytes.subarray(0, bytes.length - 100), cores(2)), { code: 'GGUF_TRUNCATED' });
  assert.equal(workers.size, 0);
  const controller = new AbortController();
  const onProgress = ({ phase }) => phase === 'weights' && controller.abort();
  await assert.rejects(open(bytes, { ...cores(2), signal: controller.signal, onProgress }), { code: 'ABORTED' });
  assert.equal(workers.size, 0);
});

test('threads that do not start: one computes, and the explanation says so', async () => {
  process.once('worker', (worker) => worker.terminate());
  const model = await open(BUNDLED, cores(2));
  assert.equal(model.info.threads, 1);
  assert.equal(model.explanation.threads, 1);
  assert.equal(model.explanation.threads_reason.code, 'NOT_STARTED');
  assert.deepEqual(codesOf(model.explanation).filter((code) => /THREAD/.test(code)), ['ONE_THREAD']);
  assert.equal(workers.size, 0);
  assert.equal((await generate(model, 'In the beginning', { maxTokens: 5 })).text, ' of the LORD, and');
  await model.close();
});

test('threads of an engine in a worker of ours: not below that worker, and none is left', async () => {
  for (let i = 0; i < 5; i++) {
    const model = await open(BUNDLED, { ...cores(3), worker: true });
    assert.equal(model.info.threads, 3);
    assert.equal(workers.size, 3, 'all are started by this thread');
    if (i === 0) assert.equal((await generate(model, 'In the beginning', { maxTokens: 5 })).text, ' of the LORD, and');
    await model.close();
    assert.equal(workers.size, 0);
  }
});

for (const [killed, code] of [[0, 'WORKER_FAILED'], [1, 'THREAD_LOST']]) {
  test(`an engine in a worker of ours: ${killed ? 'a thread of it' : 'the worker'} is killed: ${code}, and none is left`, async () => {
    const model = await open(BUNDLED, { ...cores(3), worker: true });
    assert.equal((await generate(model, 'In the beginning', { maxTokens: 5 })).text, ' of the LORD, and');
    const [...all] = workers;
    await all[killed].terminate();
    await assert.rejects(model.generate('And').done, { code });
    await model.close();
    assert.equal(workers.size, 0);
  });
}

test('an open in a worker of ours that fails, or is aborted, leaves no worker', async () => {
  const options = { ...cores(3), worker: true };
  const bytes = ggufBytes(tinyLlama());
  await assert.rejects(open(bytes.subarray(0, bytes.length - 100), options), { code: 'GGUF_TRUNCATED' });
  assert.equal(workers.size, 0);
  const controller = new AbortController();
  const onProgress = ({ phase }) => phase === 'weights' && controller.abort();
  await assert.rejects(open(bytes, { ...options, signal: controller.signal, onProgress }), { code: 'ABORTED' });
  assert.equal(workers.size, 0);
});

/** Runs node with the arguments; {code, out}. */
async function node(args) {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'], timeout: 60_000 });
  let out = '';
  child.stdout.on('data', (data) => (out += data));
  const [code] = await once(child, 'close');
  return { code, out };
}

/** A program given as a text, whose options are not those of its workers. */
const program = (options, last = '') => [
  '--input-type=module',
  '-e',
  `import { open } from ${JSON.stringify(new URL('../../js-glue/index.js', import.meta.url).href)};
   const model = await open(${JSON.stringify(BUNDLED)}, ${JSON.stringify(options)});
   console.log((await model.generate('In the beginning', { maxTokens: 5 }).done).text);${last}`,
];

test('a program that forgets to close ends all the same', async () => {
  assert.deepEqual(await node(program({ threads: 2, host: { threads: 2 } })), { code: 0, out: ' of the LORD, and\n' });
});

test('a program given on the command line has workers too', async () => {
  for (const threads of [1, 2]) {
    const args = program({ worker: true, threads, host: { threads } }, 'await model.close();');
    assert.deepEqual(await node(args), { code: 0, out: ' of the LORD, and\n' });
  }
});

test('lineal bench and generate --threads', async () => {
  const bench = await node([CLI, 'bench', BUNDLED, '-p', '32', '-n', '8', '--threads', '2', '--json']);
  assert.equal(bench.code, 0);
  const result = JSON.parse(bench.out);
  assert.equal(result.threads, Math.min(2, availableParallelism()));
  assert.ok(result.decode_tps > 0);
  const one = await node([CLI, 'generate', BUNDLED, '-p', 'In the beginning', '-n', '5', '--threads', '1', '--json']);
  assert.equal(JSON.parse(one.out).threads, 1);
  const bad = await node([CLI, 'explain', BUNDLED, '--threads', 'many', '--json']);
  assert.equal(JSON.parse(bad.out).error.code, 'BAD_ARGUMENT');
});
