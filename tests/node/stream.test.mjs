// Models larger than their memory: weights stay in the source and pass through a window.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { LinealError, explain, open } from '../../js-glue/index.js';
import { MODULES, countingSource, generate, memoryLine, rowsOf, temporary } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';
import { startServer } from '../lib/http-server.mjs';
import { describedModel, promptIds } from '../conformance/generator.mjs';
import { architectureCases } from '../conformance/suite.mjs';

const IDS = [1, 5, 9, 23, 77, 40, 12];
/** About 10 MB in 8 bits, of which a third is the vocabulary. */
const shape = {
  n_layer: 6, d_model: 256, n_head: 8, n_kv_head: 2, d_ff: 1024, n_vocab: 6000, n_ctx: 96, tokenizer: 'none',
};
const FULL = { kvType: 'f32', context: 96, chunk: 16 };

let path, bytes, server;
/** What the same model gives in enough memory. */
const resident = {};
before(async () => {
  path = temporary('larger-than-memory.gguf');
  bytes = ggufBytes(tinyLlama({ ...shape, type: (name) => (/ffn_down|attn_v/.test(name) ? 'Q6_K' : 'Q8_0') }));
  fs.writeFileSync(path, bytes);
  server = await startServer({ '/model.gguf': path });
  for (const module of MODULES) resident[module] = await resultsOf(path, { module });
});
after(() => server.close());

async function resultsOf(source, options) {
  const model = await open(source, { ...FULL, ...options });
  try {
    const { result } = await generate(model, IDS, { maxTokens: 12, ignoreEos: true, logprobs: true });
    return { tokens: result.tokens, logprobs: result.logprobs, result, explanation: model.explanation, memory: await model.memory() };
  } finally {
    await model.close();
  }
}

/** The least memory that streaming can do with, and the plan for that. */
async function least(source, options) {
  const { total_bytes: memory } = await explain(source, { ...options, memory: 1 });
  return memory;
}

for (const module of MODULES) {
  for (const threads of [1, 2]) {
    for (const part of [0, 0.5]) {
      test(`${module}, ${threads} threads, ${part * 100} % of the weights' room: the same bits, within the budget`, async () => {
        const options = { module, threads, ...FULL };
        const whole = (await explain(path, options)).total_bytes;
        const floor = await least(path, options);
        assert.ok(floor < whole / 2, `${floor} of ${whole}`);
        const memory = Math.round(floor + part * (whole - floor));
        const got = await resultsOf(path, { ...options, memory });
        assert.deepEqual(got.tokens, resident[module].tokens);
        assert.deepEqual(got.logprobs, resident[module].logprobs);
        // the size of linear memory, pages and all
        assert.ok(got.memory.hostBytes <= memory, `${got.memory.hostBytes} of ${memory}`);
        assert.equal(got.memory.measured.window, memoryLine(got.explanation, 'window'));
        assert.equal(got.memory.measured.weights, got.memory.planned.weights);
        assert.equal(got.result.decodeAllocations, 0);
        assert.equal(got.result.memoryGrows, 0);
        const { streaming } = got.explanation;
        assert.equal(got.result.streaming.bytesPerToken, streaming.bytes_per_token);
        assert.ok(got.result.streaming.readMs >= got.result.streaming.decodeReadMs);
        const streamed = got.explanation.tensors.filter((t) => t.domain === 'STREAMED');
        assert.equal(streaming.tensors, streamed.length);
        assert.equal(streaming.stored_bytes, streamed.reduce((sum, t) => sum + t.stored_bytes, 0));
        assert.ok(got.explanation.warnings.some(({ code }) => code === 'STREAMED'));
      });
    }
  }
}

test('every position of a prompt, and a prompt in several chunks', async () => {
  const all = { kvType: 'f32', context: 96, allLogits: true, chunk: 3 };
  const rows = async (options) => {
    const model = await open(path, { ...all, ...options });
    const got = await rowsOf(model, IDS);
    await model.close();
    return got;
  };
  assert.deepEqual(await rows({ memory: await least(path, all) }), await rows({}));
});

test('from any source: bytes, a Blob, a function, a server, a worker', async () => {
  const memory = await least(path, FULL);
  const counted = countingSource(path, { step: 100_000 });
  const sources = { bytes, blob: new Blob([bytes]), function: counted, url: `${server.url}/model.gguf` };
  for (const [name, source] of Object.entries(sources)) {
    for (const worker of [false, true]) {
      if (name === 'function' && worker) continue;
      const got = await resultsOf(source, { memory, worker });
      assert.deepEqual(got.tokens, resident[got.explanation.module === 'relaxed' ? 'relaxed' : 'base'].tokens, `${name}, ${worker}`);
      assert.ok(got.result.streaming.bytes > 0);
    }
  }
  assert.equal(counted.closed, 1, 'closed with the model');
});

test('from a server, kept in the cache: each byte is fetched once, whatever stays in memory', async () => {
  const floor = await least(path, FULL);
  const whole = (await explain(path, FULL)).total_bytes;
  for (const part of [0, 0.4]) {
    const directory = temporary(`streamed-cache-${part}`);
    const memory = Math.round(floor + part * (whole - floor));
    for (const fetched of [bytes.length, 0]) {
      server.reset();
      const got = await resultsOf(`${server.url}/model.gguf`, { memory, cache: { directory } });
      assert.deepEqual(got.logprobs, resident[got.explanation.module === 'relaxed' ? 'relaxed' : 'base'].logprobs);
      assert.ok(got.result.streaming.bytes > bytes.length / 2);
      assert.equal(server.stats('/model.gguf')?.bytes ?? 0, fetched, `${part}`);
      assert.deepEqual(got.explanation.warnings.filter(({ code }) => code.startsWith('CACHE')), []);
    }
  }
});

test('off: it does not fit, and streaming is among the suggestions', async () => {
  const memory = await least(path, FULL);
  const explanation = await explain(path, { ...FULL, memory, stream: 'off' });
  assert.equal(explanation.fits, false);
  assert.equal(explanation.streaming, undefined);
  assert.equal(explanation.suggestions.find(({ code }) => code === 'STREAM')?.sufficient, true);
  await assert.rejects(open(path, { ...FULL, memory, stream: 'off' }), { code: 'DOES_NOT_FIT' });
  const fits = await explain(path, { ...FULL, memory });
  assert.equal(fits.fits, true);
  await assert.rejects(open(path, { ...FULL, memory: memory - 65536 }), { code: 'DOES_NOT_FIT' });
  const roomy = await explain(path, { ...FULL });
  assert.equal(roomy.streaming, undefined);
  assert.ok(roomy.tensors.every(({ domain }) => domain !== 'STREAMED'));
});

test('the largest context, where some or all of it takes streaming: it fits, and no less than with less memory', async () => {
  const floor = await least(path, { ...FULL, context: 1 });
  const whole = (await explain(path, FULL)).total_bytes;
  let before = 0;
  for (let part = 0; part <= 1.2; part += 0.1) {
    const options = { kvType: 'f32', chunk: FULL.chunk, context: 'max', memory: Math.round(floor + part * (whole - floor)) };
    const plan = await explain(path, options);
    assert.ok(plan.fits, `${part}: ${plan.context} of ${plan.max_context}`);
    assert.ok(plan.context >= before, `${plan.context} with more memory, ${before} with less`);
    before = plan.context;
    const model = await open(path, options);
    assert.equal(model.info.context, plan.context);
    await model.close();
  }
  assert.ok(before > 64);
});

test('aborted in the middle of a token, then used again', async () => {
  const memory = await least(path, FULL);
  for (const threads of [1, 2]) {
    const counted = countingSource(path);
    const model = await open(counted, { ...FULL, memory, threads });
    try {
      const module = model.info.module;
      for (let reads = 1; reads < 60; reads += 9) {
        const controller = new AbortController();
        const limit = counted.reads.length + reads;
        const read = counted.read;
        counted.read = function (offset, length) {
          if (this.reads.length >= limit) controller.abort();
          return read.call(this, offset, length);
        };
        const { result } = await generate(model, [1, 2, 3], { maxTokens: 3, ignoreEos: true, signal: controller.signal });
        counted.read = read;
        assert.equal(result.finishReason, 'aborted');
        const { result: again } = await generate(model, IDS, { maxTokens: 12, ignoreEos: true });
        assert.deepEqual(again.tokens, resident[module].tokens);
      }
    } finally {
      await model.close();
    }
  }
});

test('a read that never ends: abort and close do not wait for it', async () => {
  const memory = await least(path, FULL);
  for (const how of ['abort', 'close']) {
    const counted = countingSource(path);
    const model = await open(counted, { ...FULL, memory });
    const { read } = counted;
    const limit = counted.reads.length + 5;
    const controller = new AbortController();
    let hung;
    const hangs = new Promise((resolve) => { hung = resolve; });
    counted.read = function (offset, length) {
      if (this.reads.length < limit) return read.call(this, offset, length);
      hung();
      return new Promise(() => {});
    };
    const generation = generate(model, IDS, { maxTokens: 3, ignoreEos: true, signal: controller.signal });
    generation.catch(() => {});
    await hangs;
    const start = performance.now();
    if (how === 'abort') {
      controller.abort();
      assert.equal((await generation).result.finishReason, 'aborted');
    } else {
      const closing = model.close();
      await generation.catch((error) => assert.equal(error.code, 'CLOSED'));
      await closing;
    }
    assert.ok(performance.now() - start < 3000);
    await model.close();
  }
});

test('a source that fails while a token is computed: its error, and the model still closes', async () => {
  const memory = await least(path, FULL);
  for (const threads of [1, 2]) {
    const counted = countingSource(path);
    const model = await open(counted, { ...FULL, memory, threads });
    counted.read = () => {
      throw new Error('unplugged');
    };
    await assert.rejects(generate(model, IDS, { maxTokens: 3 }), (error) => {
      assert.ok(error instanceof LinealError);
      assert.equal(error.code, 'SOURCE_READ');
      return true;
    });
    await model.close();
  }
});

test('profiling counts the reading as part of the step', async () => {
  const memory = await least(path, FULL);
  const model = await open(path, { ...FULL, memory });
  try {
    const { result } = await generate(model, IDS, { maxTokens: 4, ignoreEos: true, profile: true });
    const { decode } = result.stats.phases;
    assert.ok(decode.stepMs <= decode.ms);
    assert.ok(decode.stepMs > result.streaming.decodeReadMs * 0.9, `${decode.stepMs}, ${result.streaming.decodeReadMs}`);
    assert.ok(result.stats.steps.every(({ weight, bytes: read }) => !weight?.includes('ffn') || read > 0));
  } finally {
    await model.close();
  }
});

// Fused matrices, experts, convolutions, learned positions, tied and own outputs: whatever an
// architecture multiplies with, by parts or whole.
test('every architecture gives the same bits streamed', async (t) => {
  let streamed = 0;
  let index = 0;
  for (const { architecture, description } of architectureCases({ core: true })) {
    const model = ggufBytes(describedModel(description));
    const options = { kvType: 'f32', allLogits: true, context: 64, chunk: 5, threads: 1 + (index++ % 2), streamWindow: 1 };
    const memory = await least(model, options);
    const plan = await explain(model, { ...options, memory });
    if (!plan.streaming) {
      t.diagnostic(`${architecture}: too small to be worth a window`);
      continue;
    }
    streamed++;
    const ids = promptIds(17, description.vocab ?? 288, 3);
    const rows = async (more) => {
      const engine = await open(model, { ...options, ...more });
      const got = await rowsOf(engine, ids);
      await engine.close();
      return got;
    };
    assert.deepEqual(await rows({ memory }), await rows({}), architecture);
  }
  assert.ok(streamed > 10, `${streamed} were streamed`);
});

test('of a mixture of experts only those that were chosen are read, and the last ones stay', async () => {
  const base = architectureCases({ core: true }).find(({ architecture }) => architecture === 'olmoe').description;
  const experts = { ...base.experts, count: 16, used: 2, ff: 128 };
  const model = ggufBytes(describedModel({ ...base, layers: 4, width: 128, experts, vocab: 288 }));
  const options = { kvType: 'f32', context: 64, chunk: 16, threads: 1, streamWindow: '64KiB' };
  const run = async (more) => {
    const engine = await open(model, { ...options, ...more });
    const { result } = await generate(engine, [1, 5, 9], { maxTokens: 24, ignoreEos: true, logprobs: true });
    const use = await engine.memory();
    await engine.close();
    return { result, use, plan: engine.explanation };
  };
  const all = await run({});
  const floor = await least(model, options);
  const span = all.plan.total_bytes - floor;
  let before = -1;
  for (const part of [0, 0.3, 0.6]) {
    const memory = Math.round(floor + part * span);
    const some = await run({ memory });
    assert.deepEqual(some.result.tokens, all.result.tokens);
    assert.deepEqual(some.result.logprobs, all.result.logprobs);
    assert.ok(some.use.hostBytes <= memory);
    assert.equal(some.use.measured.window, some.use.planned.window);
    const { streaming } = some.result;
    if (part === 0) {
      // no place for any: what a token reads is what the plan says, two experts of sixteen among it
      assert.equal(streaming.bytesPerToken, some.plan.streaming.bytes_per_token);
      const whole = some.plan.tensors.filter(({ domain }) => domain === 'STREAMED').reduce((sum, t) => sum + t.stored_bytes, 0);
      assert.ok(streaming.bytesPerToken < whole / 3, `${streaming.bytesPerToken} of ${whole}`);
      continue;
    }
    assert.ok(some.plan.streaming.expert_places > 2);
    assert.ok(streaming.experts.uses > 0 && streaming.experts.hitRate > before, `${part}: ${streaming.experts.hitRate}`);
    assert.ok(streaming.bytesPerToken < some.plan.streaming.bytes_per_token);
    before = streaming.experts.hitRate;
  }
});
