// The same bytes give the same model, however they arrive; evaluation does not
// depend on how the prompt is cut, on what was asked before, or on what else is
// open.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { explain, open } from '../../js-glue/index.js';
import {
  BUNDLED, MODULES, countingSource, fixture, fixturesMissing, generate, rowsOf, temporary,
} from '../lib/fixtures.mjs';
import { ggufBytes, random, tinyLlama } from '../lib/gguf-write.mjs';
import { startServer } from '../lib/http-server.mjs';

const skip = fixturesMissing();
const PROMPT = 'In the beginning God created';
let server;
before(async () => { server = await startServer({ '/kjv.gguf': BUNDLED, '/late.gguf': BUNDLED }); });
after(() => server.close());

/** What a model says, to the bit. */
async function fingerprint(source, options = {}) {
  const model = await open(source, { context: 96, allLogits: true, ...options });
  try {
    const rows = await rowsOf(model, [1, 5, 9, 23, 77, 101]);
    const { result } = await generate(model, [1, 5, 9], { maxTokens: 12, logprobs: true, ignoreEos: true });
    return { rows, tokens: result.tokens, logprobs: result.logprobs };
  } finally {
    await model.close();
  }
}

// --- (g) how the bytes are cut -------------------------------------------------------

test('one byte, 7 bytes, 4,096 bytes or any number at a time give the same model', async () => {
  for (const type of ['F32', 'F16', 'Q8_0', 'Q4_0']) {
    const bytes = ggufBytes(tinyLlama({ d_model: 32, n_head: 2, d_ff: 64, type, bias: true }));
    const whole = await fingerprint(bytes);
    for (const seed of [0, 1, 2, 3, 4]) {
      const rng = random(seed);
      const step = [1, 7, 4096, () => 1 + (rng.next() % 50), () => 1 + (rng.next() % 100_000)][seed];
      assert.deepEqual(await fingerprint(countingSource(bytes, { step })), whole, `${type}, step ${step}`);
    }
  }
});

test('a source of unknown size gives the same model', async () => {
  const bytes = ggufBytes(tinyLlama());
  assert.deepEqual(await fingerprint(countingSource(bytes, { known: false, step: 5000 })), await fingerprint(bytes));
});

test('path, Blob, ArrayBuffer, view with an offset and HTTP give the same model; each byte is fetched once', async () => {
  const bytes = fs.readFileSync(BUNDLED);
  const whole = await fingerprint(BUNDLED);
  const padded = new Uint8Array(bytes.length + 3);
  padded.set(bytes, 3);
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  for (const source of [new Blob([bytes]), buffer, padded.subarray(3)]) {
    assert.deepEqual(await fingerprint(source), whole, source.constructor.name);
  }
  server.reset();
  const seen = [];
  assert.deepEqual(await fingerprint(`${server.url}/kjv.gguf`, { onProgress: (p) => seen.push(p) }), whole);
  const { bytes: sent } = server.stats('/kjv.gguf');
  // header bytes may be read once for the plan; weights once (field bug 5: a callback must not double the download)
  assert.ok(sent <= bytes.length + (1 << 20), `${sent} bytes were sent for a file of ${bytes.length}`);
  let last = -1;
  for (const { phase, loaded, total } of seen.filter((p) => p.phase === 'weights')) {
    assert.ok(loaded >= last && loaded <= total, `${phase}: ${loaded} of ${total} after ${last}`);
    last = loaded;
  }
  assert.equal(seen.at(-1).loaded, seen.at(-1).total);
});

test('JS asks a source for at most 4 MiB at a time, for rising offsets of weights, and never past the end', { skip }, async () => {
  const file = fixture('kjv/kjv-2.6m-f32.gguf');
  const source = countingSource(file);
  const asked = [];
  const read = source.read;
  source.read = function counted(offset, length) { asked.push({ offset, length }); return read.call(this, offset, length); };
  const model = await open(source);
  await model.close();
  for (const { length } of asked) assert.ok(length <= 4 << 20, `${length} bytes asked for at once`);
  assert.ok(source.bytes <= fs.statSync(file).size + (1 << 20));
  assert.ok(source.closed >= 1, 'the source was closed');
});

test('a split model equals the whole one, its parts given in any order', { skip }, async () => {
  const part = (n) => fixture(`stories260k/stories260K-split-0000${n}-of-00003.gguf`);
  const whole = await fingerprint(fixture('stories260k/stories260K.gguf'));
  assert.deepEqual(await fingerprint(part(1)), whole);
  assert.deepEqual(await fingerprint([part(3), part(1), part(2)]), whole);
  await assert.rejects(open([part(1), part(2)]), { name: 'LinealError', code: 'SPLIT_MISMATCH' });
  const blobs = await Promise.all([1, 2, 3].map(async (n) => new Blob([fs.readFileSync(part(n))])));
  assert.deepEqual(await fingerprint(blobs), whole);
});

// --- bad transport: refused with a cause, and the next load works ----------------------------

const transport = {
  'an HTML page with status 200': [{ body: '<!doctype html><title>Sign in</title>' + ' '.repeat(3000) }, ['NOT_GGUF', 'SOURCE_NOT_A_MODEL']],
  'status 404': [{ status: 404 }, ['SOURCE_NOT_FOUND', 'HTTP_STATUS']],
  'status 500': [{ status: 500 }, ['HTTP_STATUS']],
  'an empty answer': [{ body: '', type: 'application/octet-stream' }, ['NOT_GGUF', 'SOURCE_NOT_A_MODEL', 'SOURCE_TRUNCATED']],
  'a file cut in its header': [{ truncateAt: 9000 }, ['GGUF_TRUNCATED']],
  'a file cut in its weights': [{ truncateAt: 800_000 }, ['GGUF_TRUNCATED', 'SOURCE_TRUNCATED']],
  'a body shorter than promised': [{ lieAbout: 800_000 }, ['HTTP_RANGE']],
  'a connection that breaks each time': [{ cutAt: 300_000, noRange: true }, ['NETWORK', 'SOURCE_TRUNCATED']],
  'a wrong Content-Range': [{ contentRange: 'bytes 5-9/10' }, ['HTTP_RANGE']],
};
for (const [name, [fault, codes]] of Object.entries(transport)) {
  test(`${name}: a typed error, and the same address then works`, async () => {
    const url = `${server.url}/late.gguf`;
    server.faults['/late.gguf'] = fault;
    await assert.rejects(open(url), (error) => {
      assert.equal(error.name, 'LinealError');
      assert.ok(codes.includes(error.code), `${error.code}: ${error.message}`);
      assert.ok(error.message.length > 10 && error.remedy.length > 5, `${error.message} / ${error.remedy}`);
      return true;
    });
    delete server.faults['/late.gguf'];
    const model = await open(url);
    const { result } = await generate(model, 'In the beginning', { maxTokens: 2 });
    assert.deepEqual(result.tokens, [271, 261]);
    await model.close();
  });
}

test('a truncated file: the message names the tensor and how many bytes are missing', async () => {
  const bytes = fs.readFileSync(BUNDLED);
  await assert.rejects(open(bytes.subarray(0, 800_000)), (error) => {
    assert.equal(error.code, 'GGUF_TRUNCATED');
    assert.match(error.message, /blk\.\d|token_embd|output/);
    assert.match(error.message, /\d/);
    return true;
  });
});

for (const [name, fault] of Object.entries({
  'a server that ignores Range': { noRange: true },
  'a server that sends no Content-Length': { noLength: true },
  'a server with neither': { noLength: true, noRange: true },
  'a server that refuses HEAD': { noHead: true },
  'a slow server that sends small pieces': { chunk: 100_000, delay: 1 },
  'a connection that breaks once and resumes': (request, attempt) => (attempt === 0 || attempt === 2 ? { cutAt: 500_000, etag: '"a"' } : { etag: '"a"' }),
})) {
  test(`${name} still gives the model`, async () => {
    server.reset();
    server.faults['/late.gguf'] = fault;
    try {
      const model = await open(`${server.url}/late.gguf`);
      const { result } = await generate(model, 'In the beginning', { maxTokens: 4 });
      await model.close();
      assert.deepEqual(result.tokens, [271, 261, 345, 981]);
    } finally {
      delete server.faults['/late.gguf'];
    }
  });
}

test('an aborted open rejects with ABORTED and stops the download', async () => {
  server.reset();
  server.faults['/late.gguf'] = { chunk: 20_000, delay: 5 };
  const controller = new AbortController();
  await assert.rejects(open(`${server.url}/late.gguf`, {
    signal: controller.signal,
    onProgress: ({ phase, loaded }) => { if (phase === 'weights' && loaded > 0) controller.abort(); },
  }), { name: 'LinealError', code: 'ABORTED' });
  await new Promise((resolve) => { setTimeout(resolve, 100); });
  const { bytes } = server.stats('/late.gguf');
  assert.ok(bytes < 1_500_000, `${bytes} bytes were sent`);
  delete server.faults['/late.gguf'];
  await assert.rejects(explain(BUNDLED, { signal: AbortSignal.abort() }), { code: 'ABORTED' });
});

// --- (j) independence ---------------------------------------------------------------------------

for (const module of MODULES) {
  test(`logits do not depend on the prefill chunk, to the bit, ${module} build`, async () => {
    const ids = Array.from({ length: 70 }, (_, i) => (i === 0 ? 1 : 270 + ((i * 37) % 600)));
    let first;
    for (const chunk of [128, 16, 3, 1]) {
      const model = await open(BUNDLED, { module, chunk, allLogits: true, context: 128 });
      const rows = await rowsOf(model, ids);
      await model.close();
      assert.equal(rows.length, ids.length);
      first ??= rows;
      assert.deepEqual(rows, first, `chunk ${chunk}`);
    }
  });

  test(`a reused prefix equals a cold run, ${module} build`, async () => {
    const model = await open(BUNDLED, { module, context: 256 });
    try {
      const options = { maxTokens: 12, logprobs: true };
      const long = `${PROMPT} the heaven and the earth, and`;
      const cold = (await generate(model, long, { ...options, reuse: false })).result;
      assert.equal(cold.reusedTokens, 0);
      await generate(model, PROMPT, options);
      const warm = (await generate(model, long, options)).result;
      assert.ok(warm.reusedTokens > 3, `${warm.reusedTokens} tokens were reused`);
      const again = (await generate(model, long, options)).result;
      assert.equal(again.reusedTokens, again.promptTokens.length - 1);
      for (const run of [warm, again]) {
        assert.deepEqual(run.tokens, cold.tokens);
        assert.deepEqual(run.logprobs, cold.logprobs);
      }
    } finally {
      await model.close();
    }
  });
}

test('two models open at once do not touch each other', async () => {
  const other = ggufBytes(tinyLlama({ seed: 3, n_ctx: 64 }));
  const alone = [
    (await fingerprint(BUNDLED)).tokens,
    (await fingerprint(other, { context: 64 })).tokens,
  ];
  const [a, b] = await Promise.all([open(BUNDLED, { context: 96 }), open(other, { context: 64 })]);
  const runs = await Promise.all([a, b, a, b].map(async (model, i) => {
    if (i > 1) return null;
    return (await generate(model, [1, 5, 9], { maxTokens: 12, ignoreEos: true })).result.tokens;
  }));
  assert.deepEqual(runs.slice(0, 2), alone);
  await a.close();
  assert.deepEqual((await generate(b, [1, 5, 9], { maxTokens: 12, ignoreEos: true, reuse: false })).result.tokens, alone[1]);
  await b.close();
});

test('30 cycles of open, generate and close: the same text and the same memory each time', async () => {
  let first;
  for (let i = 0; i < 30; i++) {
    const model = await open(BUNDLED, { context: 64 });
    const { liveBytes, liveBlocks, hostBytes } = await model.memory();
    const { text } = await generate(model, 'And the', { maxTokens: 4 });
    await model.close();
    await model.close(); // allowed
    first ??= { text, liveBytes, liveBlocks, hostBytes };
    assert.deepEqual({ text, liveBytes, liveBlocks, hostBytes }, first, `cycle ${i}`);
  }
});

test('a closed model refuses, a busy one says so, and a generation left early ends', async () => {
  const model = await open(BUNDLED, { context: 128 });
  const running = model.generate('In the beginning', { maxTokens: 50 })[Symbol.asyncIterator]();
  await running.next();
  await assert.rejects(model.generate('And', { maxTokens: 1 }).done, { name: 'LinealError', code: 'BUSY' });
  await running.return();
  assert.equal((await generate(model, 'And', { maxTokens: 1 })).result.tokens.length, 1);
  await model.close();
  await assert.rejects(model.generate('And').done, { name: 'LinealError', code: 'CLOSED' });
});

test('an aborted generation ends within one token and keeps what was made', async () => {
  const model = await open(BUNDLED, { context: 256 });
  const controller = new AbortController();
  let seen = 0, atAbort = 0;
  const { result, text } = await generate(model, 'In the beginning', {
    maxTokens: 200, signal: controller.signal,
    onToken: () => { if (++seen === 5) { atAbort = seen; controller.abort(); } },
  });
  assert.equal(result.finishReason, 'aborted');
  assert.ok(result.tokens.length - atAbort <= 1, `${result.tokens.length} tokens, aborted at ${atAbort}`);
  assert.equal(result.text, text);
  assert.equal((await generate(model, 'And', { maxTokens: 1 })).result.tokens.length, 1);
  await model.close();
});

test('bytes of a temporary file that shrinks between plan and load are missed, not invented', async () => {
  const path = temporary('shrinks.gguf');
  const bytes = fs.readFileSync(BUNDLED);
  fs.writeFileSync(path, bytes);
  const source = countingSource(bytes);
  const read = source.read;
  source.read = function short(offset, length) {
    return offset + length > 1_000_000 ? new Uint8Array(0) : read.call(this, offset, length);
  };
  await assert.rejects(open(source), (error) => {
    assert.ok(['GGUF_TRUNCATED', 'SOURCE_TRUNCATED', 'SOURCE_UNREADABLE'].includes(error.code), error.code);
    return true;
  });
});
