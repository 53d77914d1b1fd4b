// A prompt that runs through each layer as soon as its weights are there: the
// same results to the bit, weights in the order of use, and errors where they
// belong.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { explain, modelCache, open } from '../../js-glue/index.js';
import { EVENT, EVENT_NUMBERS } from '../../js-glue/profile.js';
import { runsOf } from '../../js-glue/prefetch.js';
import { BUNDLED, countingSource, generate, temporary } from '../lib/fixtures.mjs';
import { ggufBytes, layout, tinyLlama } from '../lib/gguf-write.mjs';
import { startServer } from '../lib/http-server.mjs';

const IDS = [1, 5, 9, 23, 77, 101, 3, 260];
const OPTIONS = { maxTokens: 6, logprobs: true, ignoreEos: true };
/** 12 layers of 1.8 MB, and as in many files the output before them. */
const MODEL = (() => {
  const model = tinyLlama({ n_layer: 12, d_model: 192, n_head: 4, d_ff: 512, n_vocab: 2048, tokenizer: 'none' });
  const output = model.tensors.findIndex(({ name }) => name === 'output.weight');
  return { ...model, tensors: [...model.tensors.splice(output, 1), ...model.tensors] };
})();
const BYTES = ggufBytes(MODEL);
const OUTPUT = layout(MODEL).tensors[0];
const FILE = temporary('overlap.gguf');
let server;
let expected;

before(async () => {
  fs.writeFileSync(FILE, BYTES);
  server = await startServer({ '/m.gguf': BYTES });
  expected = await fingerprint(FILE, {});
});
after(() => server.close());

const url = () => `${server.url}/m.gguf`;

async function fingerprint(source, options = { overlap: true }) {
  const model = await open(source, { context: 64, ...options });
  try {
    const { result } = await generate(model, IDS, OPTIONS);
    const again = (await generate(model, IDS.slice(0, 5), OPTIONS)).result;
    await model.loaded;
    return { tokens: [result.tokens, again.tokens], logprobs: [result.logprobs, again.logprobs] };
  } finally {
    await model.close();
  }
}

/** A server that answers with these faults, as long as the work takes. */
async function withFault(fault, work, rate = 0) {
  server.reset();
  server.faults['/m.gguf'] = fault;
  server.rate = rate;
  try {
    return await work();
  } finally {
    delete server.faults['/m.gguf'];
    server.rate = 0;
  }
}

test('neighbours in the order are one run, gaps up to 64 KiB are read over', () => {
  const at = (part, offset, bytes) => ({ part, offset, bytes });
  assert.deepEqual(runsOf([at(0, 100, 50), at(0, 160, 40), at(0, 200, 1), at(0, 150, 10), at(1, 160, 5)]), [
    at(0, 100, 101), at(0, 150, 10), at(1, 160, 5),
  ]);
  assert.deepEqual(runsOf([at(0, 0, 1), at(0, 1 + 65536, 1), at(0, 3 + 2 * 65536, 1)]), [at(0, 0, 65538), at(0, 131075, 1)]);
});

for (const worker of [false, true]) {
  const where = worker ? 'in a worker' : 'in process';

  test(`any source gives what a whole load gives, to the bit, ${where}`, async () => {
    const stream = () => new Blob([BYTES]).stream();
    const sources = {
      path: FILE,
      url: url(),
      blob: new Blob([BYTES]),
      bytes: new Uint8Array(BYTES),
      custom: countingSource(BYTES, { step: 100_000 }),
      stream: stream(),
    };
    for (const [name, source] of Object.entries(sources))
      assert.deepEqual(await fingerprint(source, { overlap: true, worker }), expected, name);
    for (const chunk of [1, 3]) assert.deepEqual(await fingerprint(FILE, { overlap: true, worker, chunk }), expected);
    for (const fault of [{ noRange: true }, { noRange: true, noLength: true }, { noLength: true }])
      await withFault(fault, async () => assert.deepEqual(await fingerprint(url(), { overlap: true, worker }), expected));
  });

  test(`a file cut in its weights: the same typed error from generate and loaded, ${where}`, async () => {
    const cut = BYTES.length - 300_000;
    await withFault({ truncateAt: cut }, async () => {
      await assert.rejects(open(url(), { overlap: true, worker, context: 64 }), { code: 'GGUF_TRUNCATED' }, 'the size tells');
    });
    const source = countingSource(BYTES, { known: false });
    const { read } = source;
    source.read = function cutOff(offset, length) {
      return offset >= cut ? new Uint8Array(0) : read.call(this, offset, Math.min(length, cut - offset));
    };
    const model = await open(source, { overlap: true, worker, context: 64 });
    try {
      const codes = await Promise.all([
        model.generate(IDS, OPTIONS).done.catch(({ code, message }) => ({ code, message })),
        model.loaded.catch(({ code, message }) => ({ code, message })),
      ]);
      assert.equal(codes[0].code, 'GGUF_TRUNCATED');
      assert.match(codes[0].message, /blk\.11|output/);
      assert.deepEqual(codes[1], codes[0]);
      await assert.rejects(model.generate(IDS).done, { code: 'GGUF_TRUNCATED' });
    } finally {
      await model.close();
    }
  });

  test(`a read that throws, a signal, onProgress that throws and close() end the loading, ${where}`, async () => {
    const source = countingSource(BYTES, { step: 200_000 });
    const { read } = source;
    source.read = function failing(offset, length) {
      if (offset > 8e6) throw new Error('mine');
      return read.call(this, offset, length);
    };
    const first = await open(source, { overlap: true, worker, context: 64 });
    await assert.rejects(first.generate(IDS).done, { code: 'SOURCE_READ' });
    await assert.rejects(first.loaded, (error) => error.code === 'SOURCE_READ' && error.cause.message === 'mine');
    await first.close();

    await withFault({}, async () => {
      const controller = new AbortController();
      const model = await open(url(), { overlap: true, worker, context: 64, signal: controller.signal });
      const generation = model.generate(IDS).done;
      generation.catch(() => {});
      setTimeout(() => controller.abort(), 50);
      await assert.rejects(generation, { code: 'ABORTED' });
      await assert.rejects(model.loaded, { code: 'ABORTED' });
      await model.close();

      let told = 0;
      const throwing = await open(url(), {
        overlap: true, worker, context: 64,
        onProgress: ({ phase }) => { if (phase === 'weights' && ++told > 2) throw new Error('mine'); },
      });
      await assert.rejects(throwing.loaded, (error) => error.code === 'CALLBACK_FAILED' && error.cause.message === 'mine');
      await assert.rejects(throwing.generate(IDS).done, { code: 'CALLBACK_FAILED' });
      await throwing.close();

      server.reset();
      const closed = await open(url(), { overlap: true, worker, context: 64 });
      const ended = closed.generate(IDS).done;
      await new Promise((resolve) => { setTimeout(resolve, 100); });
      await closed.close();
      assert.equal((await ended.catch((error) => ({ finishReason: error.code }))).finishReason, 'aborted');
      await assert.rejects(closed.loaded, { code: 'CLOSED' });
      const { bytes } = server.stats('/m.gguf');
      await new Promise((resolve) => { setTimeout(resolve, 300); });
      assert.ok(server.stats('/m.gguf').bytes <= bytes + (1 << 20), 'nothing more is fetched');
    }, 4e6);
    assert.deepEqual(await fingerprint(url(), { overlap: true, worker }), expected, 'a good load afterwards');
  });
}

test('steps run while bytes arrive: only the last layers and the output come after the last byte', async () => {
  await withFault({}, async () => {
    const seen = [];
    const model = await open(url(), { overlap: true, context: 64, onProgress: (p) => seen.push(p) });
    const { result } = await generate(model, IDS, { ...OPTIONS, profile: 'trace' });
    await model.loaded;
    const weights = model.info.loadPhases.find(({ name }) => name === 'weights');
    const there = weights.startMs + weights.ms;
    await model.close();
    assert.deepEqual(result.logprobs, expected.logprobs[0]);

    const { events } = result.stats.trace;
    const layers = [];
    for (let at = 0; at < events.length; at += EVENT_NUMBERS) {
      const step = result.stats.steps[events[at + 1]];
      if (events[at] === EVENT.STEP && step.phase === 'prefill') layers.push({ layer: step.layer, early: events[at + 3] < there });
    }
    const early = layers.filter((step) => step.early);
    assert.ok(early.length >= layers.length * 0.5, `${early.length} of ${layers.length} steps ran before the last byte`);
    assert.ok(early.some(({ layer }) => layer === 6), 'half of the layers');

    const { bytes, ranges } = server.stats('/m.gguf');
    assert.ok(bytes <= BYTES.length, `${bytes} bytes were sent for a file of ${BYTES.length}`);
    // The output lies first in the file, and is fetched last. What is asked for together may come in any order.
    const starts = ranges.map(({ range }) => Number(/=(\d+)-/.exec(range)[1]));
    const { dataOffset, tensors } = layout(MODEL);
    const output = dataOffset + OUTPUT.at, layersAt = output + OUTPUT.size;
    const normAt = dataOffset + tensors.find(({ name }) => name === 'output_norm.weight').at;
    const indices = (from, to) => starts.flatMap((at, i) => (at >= from && at < to ? [i] : []));
    const outputs = indices(output, layersAt), layersToo = indices(layersAt, normAt);
    assert.ok(outputs.length >= 1 && layersToo.length >= 10, `${starts}`);
    assert.ok(Math.min(...outputs) > layersToo.at(-1) - 4, `${starts}`);

    let last = { weights: -1, header: -1 };
    for (const { phase, loaded, total } of seen.filter((p) => p.phase !== 'compile')) {
      assert.ok(loaded >= last[phase] && (total === undefined || loaded <= total));
      last = { ...last, [phase]: loaded };
    }
    const end = seen.at(-1);
    assert.deepEqual([end.phase, end.loaded, end.remainingMs], ['weights', end.total, 0]);
    const { bytesPerSecond, remainingMs } = seen.findLast((p) => p.phase === 'weights' && p.remainingMs > 0);
    assert.ok(bytesPerSecond > 1e6 && bytesPerSecond < 10e6, `${bytesPerSecond} bytes/s`);
    assert.ok(remainingMs < 10_000);
  }, 8e6);
});

test('through the cache several segments come at once, each byte once; a verified warm start fetches none', async () => {
  await withFault({}, async () => {
    const cache = { directory: temporary('overlap-cache'), required: true };
    assert.deepEqual(await fingerprint(url(), { overlap: true, cache }), expected);
    const { bytes, most } = server.stats('/m.gguf');
    assert.equal(bytes, BYTES.length);
    assert.ok(most >= 2, `${most} answers at once`);
    for (const verify of [true, false])
      assert.deepEqual(await fingerprint(url(), { overlap: true, cache: { ...cache, verify } }), expected);
    assert.equal(server.stats('/m.gguf').bytes, bytes);
  }, 20e6);
});

test('what the cache has to tell while weights come is among the warnings once they are there', async () => {
  const address = url();
  const damaged = [0.5, 0.9].map((share) => Math.floor(share * BYTES.length)); // of layers that come late
  for (const worker of [false, true]) await withFault({}, async () => {
    const cache = { directory: temporary(`overlap-damaged-${worker}`), verify: true };
    assert.deepEqual(await fingerprint(address, { cache }), expected);
    const [{ key }] = await modelCache.list({ directory: cache.directory });
    const file = path.join(cache.directory, key, 'content');
    const bytes = fs.readFileSync(file);
    for (const at of damaged) bytes[at] ^= 1;
    fs.writeFileSync(file, bytes);
    server.rate = 8e6;
    const model = await open(address, { context: 64, overlap: true, worker, cache });
    const cacheWarnings = () => model.explanation.warnings.filter(({ code }) => code.startsWith('CACHE')).length;
    assert.ok(cacheWarnings() < 2);
    await model.loaded;
    assert.equal(cacheWarnings(), 2);
    assert.deepEqual((await generate(model, IDS, OPTIONS)).result.logprobs, expected.logprobs[0]);
    await model.close();
  });
});

test('memory is as planned, prompts of up to 512 tokens are one chunk unless told otherwise', async () => {
  assert.equal((await explain(ggufBytes(tinyLlama({ n_ctx: 2048 })), { overlap: true })).chunk, 512);
  const model = await open(BUNDLED, { overlap: true });
  assert.equal(model.info.chunk, model.info.context);
  const { planned, measured } = await model.memory();
  assert.deepEqual(measured, planned);
  await model.loaded;
  assert.ok(model.info.loadMs > 0 && model.info.loadPhases.some(({ name }) => name === 'weights'));
  await model.close();
  for (const [options, chunk] of [[{ chunk: 7 }, 7], [{ memory: '1GiB' }, 128], [{ context: 96 }, 96]]) {
    const other = await open(BUNDLED, { overlap: true, ...options });
    assert.equal(other.info.chunk, chunk);
    await other.close();
  }
});

test('onProgress of generate tells how far the prompt is', async () => {
  for (const worker of [false, true]) {
    const model = await open(BUNDLED, { context: 96, chunk: 4, worker });
    const seen = [];
    await model.generate(IDS, { maxTokens: 2, onProgress: (p) => seen.push(p) }).done;
    assert.deepEqual(seen, [4, 8].map((loaded) => ({ phase: 'prefill', loaded, total: 8 })));
    const failing = model.generate([3, 2, 1], { onProgress: () => { throw new Error('mine'); } });
    await assert.rejects(failing.done, (error) => error.code === 'CALLBACK_FAILED' && error.cause.message === 'mine');
    assert.equal((await model.generate(IDS, { maxTokens: 2 }).done).tokens.length, 2);
    await model.close();
  }
});
