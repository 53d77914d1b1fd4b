// Every byte has its place: the plan reads the header only, the loader obeys
// the plan, decoding allocates nothing, and nothing breaks beyond 2 and 4 GiB.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { explain, open } from '../../js-glue/index.js';
import {
  BUNDLED, MODULES, countingSource, fixture, fixturesMissing, generate, memoryLine, rowsOf, temporary,
} from '../lib/fixtures.mjs';
import { ggufBytes, layout, tensorBytes, tinyLlama, writeSparse } from '../lib/gguf-write.mjs';
import { startServer } from '../lib/http-server.mjs';

const MiB = 1 << 20;
const all = (n) => Array.from({ length: n }, (_, i) => i);

/** A model of Llama-1B's shape whose matrices are holes. */
function oneBillion(type) {
  const model = tinyLlama({
    n_layer: 16, d_model: 2048, n_head: 32, n_kv_head: 8, d_ff: 8192, n_vocab: 32000, n_ctx: 4096, type, zeroLayers: all(16),
  });
  for (const name of ['token_embd.weight', 'output.weight']) delete model.tensors.find((t) => t.name === name).values;
  return model;
}

let server, big, bigPath;
before(async () => {
  bigPath = temporary('two-gigabytes.gguf');
  big = writeSparse(bigPath, oneBillion('F16'));
  server = await startServer({ '/big.gguf': bigPath, '/kjv.gguf': BUNDLED });
});
after(() => server.close());

test('explain of a 2 GB file behind HTTP reads the header and at most 1 MiB more', async () => {
  assert.ok(big.fileBytes > 2e9, `the file has ${big.fileBytes} bytes`);
  server.reset();
  const explanation = await explain(`${server.url}/big.gguf`, { context: 2048, kvType: 'f16', memory: '4 GiB' });
  const { bytes, requests } = server.stats('/big.gguf');
  assert.ok(bytes <= big.headerBytes + MiB, `${bytes} bytes were sent, the header has ${big.headerBytes}`);
  assert.ok(requests <= 8, `${requests} requests`);
  assert.equal(explanation.tensors.length, 16 * 9 + 3);
  assert.equal(explanation.tensors.reduce((sum, t) => sum + t.stored_bytes, 0),
    oneBillion('F16').tensors.reduce((sum, t) => sum + tensorBytes(t.type, t.shape), 0));
});

test('the KV cache of that shape: 64 MiB in 16 bits and 128 MiB in f32 at 2,048 tokens', async () => {
  const kv = async (kvType) => {
    const explanation = await explain(bigPath, { context: 2048, kvType });
    return memoryLine(explanation, 'kv');
  };
  assert.equal(await kv('f16'), 64 * MiB);
  assert.equal(await kv('f32'), 128 * MiB);
});

test('too small a budget: at least two suggestions, each with its saving, and the larger budget they speak of is enough', async () => {
  const explanation = await explain(bigPath, { memory: '1 GiB', stream: 'off' });
  assert.equal(explanation.fits, false);
  assert.ok(explanation.suggestions.length >= 2, `${explanation.suggestions.length} suggestions`);
  for (const suggestion of explanation.suggestions) {
    assert.ok(suggestion.text.length > 10);
    assert.equal(typeof suggestion.sufficient, 'boolean');
    assert.ok(suggestion.saves_bytes >= 0);
  }
  assert.ok(explanation.suggestions.some((s) => s.sufficient), 'one that is enough');
  const source = countingSource(bigPath);
  await assert.rejects(open(source, { memory: '1 GiB', stream: 'off' }), (error) => {
    assert.equal(error.code, 'DOES_NOT_FIT');
    assert.ok(error.remedy.length > 0);
    return true;
  });
  assert.ok(source.bytes <= big.headerBytes + MiB, `${source.bytes} bytes were read before the refusal`);
});

const loadable = [
  ['bundled Q4_K_M', BUNDLED],
  ...(fixturesMissing() ? [] : ['stories260k/stories260K.gguf', 'stories260k/wide-F16.gguf', 'stories260k/wide-BF16.gguf',
    'stories260k/wide-Q8_0.gguf', 'kjv/kjv-2.6m-Q4_0.gguf', 'stories260k/stories260K-split-00001-of-00003.gguf',
    'arch/llama-dense.gguf'].map((file) => [file, fixture(file)])),
  ['tied, biases, odd heads', ggufBytes(tinyLlama({ tied: true, bias: true, n_head: 3, n_kv_head: 1, d_head: 24, d_model: 40 }))],
];
for (const [name, source] of loadable) {
  for (const options of [{}, { kvType: 'f16', context: 64, chunk: 7 }, { kvType: 'f32', context: 100, allLogits: true }]) {
    test(`${name}: the plan is what is taken (${JSON.stringify(options)})`, async () => {
      const planned = await explain(source, options);
      const model = await open(source, options);
      try {
        assert.deepEqual(model.explanation.tensors, planned.tensors);
        const use = await model.memory();
        for (const line of ['weights', 'kv', 'slab', 'scratch', 'tables']) {
          assert.equal(use.measured[line], use.planned[line], line);
        }
        const resident = planned.tensors.reduce((sum, t) => sum + t.resident_bytes, 0);
        const padding = use.planned.weights - resident; // each tensor starts on 64 bytes
        assert.ok(padding >= 0 && padding < 64 * planned.tensors.length, `${use.planned.weights}, tensors ${resident}`);
        for (const line of ['weights', 'kv', 'slab']) assert.equal(use.planned[line], memoryLine(planned, line), `explain, ${line}`);
        assert.ok(Math.abs(use.measured.total / use.planned.total - 1) <= 0.02, 'the whole within 2 %');
        await generate(model, [1, 5, 9, 23], { maxTokens: 4, ignoreEos: true });
        const later = await model.memory();
        assert.deepEqual(later.measured, use.measured);
      } finally {
        await model.close();
      }
    });
  }
}

for (const module of MODULES) {
  test(`1,000 decode steps allocate nothing, ${module} build`, async () => {
    const model = await open(ggufBytes(tinyLlama({ n_layer: 2, n_ctx: 1200 })), { module, context: 1200 });
    try {
      await generate(model, [1, 5, 9], { maxTokens: 2, ignoreEos: true });
      const before = await model.memory();
      const { result } = await generate(model, [1, 5, 9], { maxTokens: 1001, ignoreEos: true });
      const after = await model.memory();
      assert.equal(result.tokens.length, 1001);
      assert.equal(result.decodeAllocations, 0);
      assert.equal(result.memoryGrows, 0);
      assert.equal(after.highWaterBytes, before.highWaterBytes);
      assert.equal(after.growCalls, before.growCalls);
      assert.equal(after.liveBlocks, before.liveBlocks);
    } finally {
      await model.close();
    }
  });
}

test('the step slab does not grow with the number of layers', async () => {
  const slab = async (n_layer) => {
    const explanation = await explain(ggufBytes(tinyLlama({ n_layer, d_model: 128, n_head: 8, n_kv_head: 2, d_ff: 352 })));
    return memoryLine(explanation, 'slab');
  };
  const two = await slab(2);
  assert.ok(two > 0);
  assert.equal(await slab(16), two);
});

test('file offsets beyond 4 GiB are read right', async () => {
  // each tensor lies on a boundary of 2^29 bytes: 21 tensors reach past 10 GiB
  const shape = { n_layer: 2, seed: 4 };
  const path = temporary('far-offsets.gguf');
  const { fileBytes } = writeSparse(path, tinyLlama({ ...shape, alignment: 2 ** 29 }));
  assert.ok(fileBytes > 2 ** 33, `the file has ${fileBytes} bytes`);
  const near = await open(ggufBytes(tinyLlama(shape)), { allLogits: true });
  const far = await open(path, { allLogits: true });
  try {
    const ids = [1, 5, 9, 23, 77];
    assert.deepEqual(await rowsOf(far, ids), await rowsOf(near, ids));
  } finally {
    await near.close();
    await far.close();
  }
});

// Feed-forward matrices of zeros add nothing, so a model with 2.3 GiB of them
// must compute what the same model with tiny ones computes, from attention
// weights, a KV cache and a slab that all lie beyond 2 GiB.
const ballast = { n_layer: 2, d_model: 256, n_head: 4, n_kv_head: 2, n_vocab: 288, n_ctx: 64, seed: 9 };
function withoutFeedForward(d_ff) {
  const model = tinyLlama({ ...ballast, d_ff });
  const isHole = (t) => /ffn_(gate|up|down)/.test(t.name);
  model.tensors.filter(isHole).forEach((t) => { delete t.values; });
  // the seeds follow the order of the tensors, not their sizes, so both models draw the same attention weights
  return { ...model, tensors: [...model.tensors.filter(isHole), ...model.tensors.filter((t) => !isHole(t))] };
}
for (const module of process.env.LINEAL_LARGE ? MODULES : ['relaxed']) {
  test(`a heap of more than 2 GiB generates right, ${module} build`, { timeout: 240_000 }, async () => {
    const path = temporary('ballast.gguf');
    const large = withoutFeedForward(400_000);
    const { fileBytes } = writeSparse(path, large);
    const real = layout(large).tensors.find((t) => t.name === 'blk.0.attn_q.weight');
    assert.ok(real.at > 2.2 * 2 ** 30, `${fileBytes} bytes, the first real weight at ${real.at}`);
    const options = { module, context: 32, allLogits: true, chunk: 8 };
    const expected = await open(ggufBytes(withoutFeedForward(32)), options);
    const model = await open(path, options);
    try {
      assert.ok((await model.memory()).hostBytes > 2.2 * 2 ** 30);
      const ids = [1, 5, 9, 23];
      assert.deepEqual(await rowsOf(model, ids), await rowsOf(expected, ids));
      const run = async (m) => (await generate(m, ids, { maxTokens: 3, ignoreEos: true })).result.tokens;
      assert.deepEqual(await run(model), await run(expected));
    } finally {
      await model.close();
      await expected.close();
    }
  });
}
