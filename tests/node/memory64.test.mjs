// Addresses of 64 bits: which module a plan gets and why, and that the one with
// 64-bit addresses gives the bits of the one with 32. What needs 5 GiB of memory
// for real is in tests/large.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { explain, open, probeHost } from '../../js-glue/index.js';
import { bigModel } from '../large/big-model.mjs';
import { BUNDLED, fixture, fixturesMissing, generate, temporary } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';
import { FAR_CONTEXT, FAR_MODEL, WIDE, checkSame, compare } from '../lib/wide-runs.mjs';

const GIB = 2 ** 30;
const { memory64 } = await probeHost();
const skip = memory64 ? false : 'this Node has no 64-bit memory for WebAssembly (Node 24 and later have it)';

/** 5 GiB of weights, of which only the header is ever read here. */
const five = bigModel({ idle: 20, layers: 2, rows: 32000 });
/** The address record without the sentence, which must be in the text for people. */
async function addressOf(source, options) {
  const plan = await explain(source, options);
  const { text, ...address } = plan.address;
  assert.ok(plan.text.includes(text));
  return { plan, address };
}

test('what fits in 4 GiB, cache included, keeps 32 bits', async () => {
  const small = { bits: 32, chosen_bits: 32, code: 'FITS_32' };
  for (const host of [{ memory64: false }, { memory64: true }])
    assert.deepEqual((await addressOf(BUNDLED, { host })).address, small);
  const source = bigModel({ layers: 1, rows: 32000, context: 2 ** 20 });
  const { plan, address } = await addressOf(source, { context: 2 ** 19, kvType: 'f16', host: { memory64: true } });
  assert.ok(plan.total_bytes > 2 * GIB);
  assert.deepEqual(address, small);
});

test('more than 4 GiB on a host without 64-bit memory: refused before any weight, with the remedy', async () => {
  let read = 0;
  const source = {
    ...five,
    read(offset, length) {
      read = Math.max(read, offset + length);
      return five.read(offset, length);
    },
  };
  const options = { host: { memory64: false }, stream: 'off' };
  const { plan, address } = await addressOf(source, options);
  assert.deepEqual(address, { bits: 32, chosen_bits: 32, code: 'NO_MEMORY64' });
  assert.equal(plan.fits, false);
  const suggestion = plan.suggestions.find(({ code }) => code === 'MEMORY64');
  assert.equal(suggestion.sufficient, true);
  await assert.rejects(open(source, options), (error) => {
    assert.equal(error.code, 'DOES_NOT_FIT');
    assert.ok(error.remedy.includes(suggestion.text), error.remedy);
    return true;
  });
  assert.ok(read <= 2 ** 20, `${read} bytes`);
  // Streamed it fits, and the plan says what would do better.
  const streamed = await addressOf(source, { host: { memory64: false } });
  assert.equal(streamed.plan.fits, true);
  assert.equal(streamed.address.code, 'NO_MEMORY64');
  assert.ok(streamed.plan.streaming.tensors > 0);
});

test('more than the budget: 64-bit addresses would not help', async () => {
  for (const options of [{ memory: '2 GiB' }, { host: { maxMemoryBytes: 3 * GIB } }, { placement: { profile: 'phone' } }]) {
    const host = { memory64: true, ...options.host };
    const { plan, address } = await addressOf(five, { stream: 'off', ...options, host });
    assert.deepEqual(address, { bits: 32, chosen_bits: 32, code: 'NOT_ALLOWED' });
    assert.equal(plan.fits, false);
    assert.ok(!plan.suggestions.some(({ code }) => code === 'MEMORY64'));
  }
});

test('a module that is asked for is kept', async () => {
  const { plan, address } = await addressOf(five, { module: 'base', stream: 'off', host: { memory64: true } });
  assert.deepEqual(address, { bits: 32, chosen_bits: 32, code: 'ASKED_FOR' });
  assert.equal(plan.fits, false);
});

test('a host that is said to have what it lacks: a typed error', { skip: memory64 && 'this host has it' }, async () => {
  await assert.rejects(explain(five, { host: { memory64: true } }), { code: 'WASM_UNSUPPORTED' });
  await assert.rejects(open(BUNDLED, { module: WIDE }), (error) => {
    assert.equal(error.code, 'WASM_UNSUPPORTED');
    assert.match(error.remedy, /module: 'auto'/);
    return true;
  });
});

test('more than 4 GiB on a host that has it: 64 bits, and nothing is given up', { skip }, async () => {
  const { plan, address } = await addressOf(five, { stream: 'off' });
  assert.deepEqual(address, { bits: 64, chosen_bits: 64, code: 'NEEDS_64' });
  assert.equal(plan.fits, true);
  assert.ok(plan.total_bytes > five.size);
  assert.equal(plan.limit_bytes > 4 * GIB && plan.limit_bytes <= 16 * GIB, true);
  // 20 GiB are more than any engine gives.
  const twenty = await explain(bigModel({ idle: 84, layers: 2, rows: 32000 }), { stream: 'off' });
  assert.equal(twenty.fits, false);
  assert.equal(twenty.address.code, 'NEEDS_64');
});

// --- the largest context --------------------------------------------------------------------------

/** Its cache in f32 takes 1 KiB a token, 8 GiB at the most. */
const far = ggufBytes(tinyLlama(FAR_MODEL));
const longest = { context: 'max', kvType: 'f32' };

test('without 64-bit memory the largest context is that of 4 GiB, whatever the budget', async () => {
  const host = { memory64: false };
  const { context } = await explain(far, { ...longest, host });
  assert.ok(context > 2 ** 21);
  for (const options of [{ memory: '4GiB' }, { memory: '6GiB' }, { memory: '20GiB' }, { host: { maxMemoryBytes: 6 * GIB } }]) {
    const { plan, address } = await addressOf(far, { ...longest, ...options, host: { ...host, ...options.host } });
    assert.deepEqual([plan.context, plan.max_context, plan.limit_bytes, plan.fits], [context, context, 4 * GIB, true]);
    assert.deepEqual(address, { bits: 32, chosen_bits: 32, code: 'FITS_32' });
    assert.equal((await explain(far, { kvType: 'f32', ...options, host: { ...host, ...options.host } })).max_context, context);
  }
});

test('a budget above 4 GiB: the largest context is that of the module with 64-bit addresses', { skip }, async () => {
  const narrow = await explain(far, { ...longest, host: { memory64: false } });
  for (const options of [{ memory: '6GiB' }, { host: { maxMemoryBytes: 6 * GIB } }]) {
    const { plan, address } = await addressOf(far, { ...longest, ...options });
    assert.deepEqual(address, { bits: 64, chosen_bits: 64, code: 'NEEDS_64' });
    assert.equal(plan.context, (await explain(far, { ...longest, ...options, module: WIDE })).context);
    assert.ok(plan.context > 1.4 * narrow.context);
    assert.deepEqual([plan.fits, plan.max_context, plan.limit_bytes], [true, plan.context, 6 * GIB]);
    assert.ok(plan.total_bytes <= 6 * GIB && plan.total_bytes > 6 * GIB - 2 ** 20);
    // What an ordinary plan says of it can be had, and is less by what that module's tables might take at most.
    const usual = await addressOf(far, { kvType: 'f32', ...options });
    assert.equal(usual.address.code, 'FITS_32');
    assert.equal(usual.plan.limit_bytes, 6 * GIB);
    const { max_context: max } = usual.plan;
    assert.ok(max <= plan.context && max > plan.context - 1024, `${max}, ${plan.context}`);
    assert.equal((await explain(far, { ...options, kvType: 'f32', context: max })).fits, true);
  }
});

test('no budget: 4 GiB, unless the model needs more with the usual context', { skip }, async () => {
  const narrow = await explain(far, { ...longest, host: { memory64: false } });
  const { plan, address } = await addressOf(far, longest);
  assert.deepEqual(address, { bits: 32, chosen_bits: 32, code: 'FITS_32' });
  assert.deepEqual([plan.context, plan.limit_bytes], [narrow.context, 4 * GIB]);
  const large = bigModel({ idle: 20, layers: 2, rows: 32000, context: 2 ** 17 });
  const all = await addressOf(large, { context: 'max', stream: 'off' });
  assert.equal(all.address.code, 'NEEDS_64');
  assert.ok(all.plan.fits && all.plan.context > 2048 && all.plan.total_bytes > large.size + 2 * GIB);
});

test('a budget above 4 GiB: what 32 bits reach keeps them', { skip }, async () => {
  const source = ggufBytes(tinyLlama({ ...FAR_MODEL, n_ctx: 3 * 2 ** 20 }));
  const { plan, address } = await addressOf(source, { ...longest, memory: '8GiB' });
  assert.deepEqual([plan.context, address.code], [3 * 2 ** 20, 'FITS_32']);
  assert.ok(plan.total_bytes > 3 * GIB);
});

test('suggestions look beyond 4 GiB, and are true', { skip }, async () => {
  const asked = { context: FAR_MODEL.n_ctx, kvType: 'f32' };
  const { plan, address } = await addressOf(far, { ...asked, memory: '6GiB' });
  assert.deepEqual([plan.fits, address.code, plan.limit_bytes], [false, 'NEEDS_64', 6 * GIB]);
  const smaller = plan.suggestions.find(({ code }) => code === 'SMALLER_CONTEXT');
  assert.ok(smaller.sufficient);
  const followed = await explain(far, { ...asked, context: plan.max_context, memory: '6GiB' });
  assert.ok(followed.fits && followed.total_bytes > 5.9 * GIB);
  const little = await explain(far, { ...asked, memory: '3GiB' });
  const more = little.suggestions.find(({ code }) => code === 'MORE_MEMORY');
  const [, bytes] = /\((\d+) bytes are needed/.exec(more.text);
  const enough = await explain(far, { ...asked, memory: Number(bytes) });
  assert.deepEqual([enough.fits, enough.address.bits], [more.sufficient, 64]);
});

test('the largest context of 6 GiB, opened', { skip }, async () => {
  const model = await open(far, { ...longest, memory: '6GiB', threads: 2, host: { threads: 2 } });
  const { result } = await generate(model, [1, 5, 9], { maxTokens: 3, ignoreEos: true });
  const { hostBytes, measured, planned } = await model.memory();
  await model.close();
  assert.equal(model.info.module, WIDE);
  assert.equal(result.tokens.length, 3);
  assert.deepEqual(measured, planned);
  assert.ok(hostBytes <= 6 * GIB && hostBytes > 5.9 * GIB, `${hostBytes}`);
});

const generated = ggufBytes(
  tinyLlama({ n_layer: 3, d_model: 96, n_head: 6, n_kv_head: 3, d_ff: 160, n_vocab: 300, type: 'Q8_0' }),
);
for (const threads of [1, 2]) {
  test(`the bits of 32-bit addresses, ${threads} threads`, { skip }, async () => {
    const host = { threads };
    const options = { threads, host };
    checkSame(assert, await compare({ open }, BUNDLED, options), { threads, vocabulary: 1024 });
    checkSame(assert, await compare({ open }, generated, options), { threads, vocabulary: 300 });
  });
}

test('a text, and the rest of the interface', { skip }, async () => {
  const of = async (module) => {
    const model = await open(BUNDLED, { module, threads: 2, host: { threads: 2 }, context: 128 });
    const { tokens, text } = (await generate(model, 'In the beginning 🌊', { maxTokens: 12, seed: 7, temperature: 0.8, topK: 20 })).result;
    const ids = await model.tokenize('God said,\tLet there be light');
    const out = { tokens, text, ids, back: await model.detokenize(ids), score: await model.score(ids).catch(({ code }) => code) };
    await assert.rejects(model.evaluate([99999]).next(), { code: 'BAD_TOKEN' });
    await model.close();
    return out;
  };
  assert.deepEqual(await of(WIDE), await of('relaxed'));
});

test('keys and values beyond 4 GiB', { skip }, async () => {
  const out = await compare({ open }, ggufBytes(tinyLlama(FAR_MODEL)), { threads: 2, host: { threads: 2 } }, {
    module: 'auto', context: FAR_CONTEXT,
  });
  checkSame(assert, out, { threads: 2, vocabulary: 288 });
  assert.equal(out.got.address, 'NEEDS_64');
  assert.ok(out.got.end > 6 * GIB, `${out.got.end}`);
});

test('streamed through a window with 64-bit addresses', { skip }, async () => {
  const file = temporary('wide-stream.gguf');
  fs.writeFileSync(file, ggufBytes(tinyLlama({ n_layer: 6, d_model: 256, d_ff: 512, n_vocab: 320, type: 'Q8_0' })));
  const plan = await explain(file, { module: WIDE, context: 64, allLogits: true, kvType: 'f32' });
  const out = await compare({ open }, file, { threads: 2, host: { threads: 2 }, memory: Math.floor(plan.total_bytes * 0.8) });
  checkSame(assert, out, { threads: 2, vocabulary: 320 });
  assert.ok(out.got.measured.window > 0);
});

test('a file is read straight to where 32 bits do not reach', { skip }, () => {
  const far = 5 * GIB, bytes = fs.readFileSync(BUNDLED).subarray(0, 2 ** 20);
  const memory = new WebAssembly.Memory({ initial: 8n, maximum: 262144n, address: 'i64', shared: true });
  memory.grow(BigInt(far / 65536 + 32));
  const file = fs.openSync(BUNDLED);
  assert.equal(fs.readSync(file, new Uint8Array(memory.buffer, far + 64, bytes.length), 0, bytes.length, 0), bytes.length);
  fs.closeSync(file);
  const seen = Buffer.from(new Uint8Array(memory.buffer, far, bytes.length + 128).slice());
  assert.ok(seen.subarray(64, -64).equals(bytes));
  assert.deepEqual([seen[63], seen.at(-64)], [0, 0]);
});

test('every architecture and type of the fixtures, the same bits', { skip: skip || fixturesMissing() }, async () => {
  const files = ['arch', 'kjv'].flatMap((folder) =>
    fs.readdirSync(fixture(folder)).filter((name) => name.endsWith('.gguf')).map((name) => fixture(folder, name)),
  );
  assert.ok(files.length >= 20);
  for (const file of files) {
    const out = await compare({ open }, file, { threads: 2, host: { threads: 2 } });
    assert.equal(out.different, 0, file);
    assert.ok(out.logits > 0);
    assert.deepEqual(out.got.tokens, out.narrow.tokens, file);
    assert.deepEqual(out.got.measured, out.got.planned, file);
  }
});
