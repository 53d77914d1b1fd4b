// The ceiling of memory, found by trying: engines that give less than addresses reach, as phones do. V8's
// --wasm-max-mem-pages is a real ceiling; others are played by a WebAssembly.Memory that refuses.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { before, test } from 'node:test';
import { explain, open, probeHost } from '../../js-glue/index.js';
import { bigModel } from '../large/big-model.mjs';
import { BUNDLED, ROOT, countingSource, generate, temporary } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama, writeSparse } from '../lib/gguf-write.mjs';

const MiB = 1 << 20;
const PAGE = 65536;
let path, headerBytes;

before(() => {
  const model = tinyLlama({ n_layer: 2, d_model: 2048, n_head: 16, n_kv_head: 4, d_ff: 8192, n_ctx: 4096, type: 'F16', zeroLayers: [0, 1] });
  path = temporary('large.gguf');
  ({ headerBytes } = writeSparse(path, model));
});

/** What work(lineal, path, argument) gives in a process whose engine has at most so many pages for a memory. */
function under(pages, work, argument = null) {
  const script = `import * as lineal from ${JSON.stringify(new URL('js-glue/index.js', `file://${ROOT}`))};
    import { countingSource } from ${JSON.stringify(new URL('tests/lib/fixtures.mjs', `file://${ROOT}`))};
    console.log(JSON.stringify(await (${work})({ ...lineal, countingSource }, ${JSON.stringify(path)}, ${JSON.stringify(argument)})));`;
  const child = spawnSync(process.execPath, [`--wasm-max-mem-pages=${pages}`, '--input-type=module', '-e', script], { encoding: 'utf8' });
  assert.equal(child.status, 0, child.stderr);
  return JSON.parse(child.stdout);
}

/**
 * Every WebAssembly.Memory that work asks for, while those that `refuses` are refused; but the one page by
 * which it is seen whether there are 64-bit addresses.
 */
async function watching(refuses, work) {
  const asked = [];
  const { Memory } = WebAssembly;
  WebAssembly.Memory = class extends Memory {
    constructor(descriptor) {
      if (descriptor.maximum !== 1n) asked.push(descriptor);
      if (refuses(descriptor)) throw new RangeError('could not allocate memory');
      super(descriptor);
    }
  };
  try {
    return { asked, result: await work() };
  } finally {
    WebAssembly.Memory = Memory;
  }
}

test('enough memory: what limits is said to be the addresses, and trying takes none', async () => {
  await explain(BUNDLED); // what is compiled once
  const before_ = process.memoryUsage().rss;
  const { asked, result } = await watching(() => false, () => explain(path, { threads: 1 }));
  assert.deepEqual([result.fits, result.limit_reason.code, result.limit_bytes], [true, 'ADDRESS_SPACE', 2 ** 32]);
  assert.deepEqual(asked, [{ initial: result.total_bytes / PAGE, maximum: result.total_bytes / PAGE }]);
  assert.ok(result.total_bytes > 250 * MiB);
  assert.ok(process.memoryUsage().rss < before_ + 64 * MiB, 'pages that nobody writes to are not there');
});

test('nothing is tried of what is refused, of a small plan, or for another machine', async () => {
  for (const [source, options, fits] of [
    [path, { memory: '100MiB', stream: 'off' }, false],
    [BUNDLED, {}, true],
    [path, { host: { kind: 'browser' } }, true],
    [path, { host: { maxMemoryBytes: 2 ** 31 } }, true],
    [path, { host: { maxMemoryBytes: 2 ** 26 }, stream: 'off' }, false],
  ]) {
    const { asked, result } = await watching(({ shared }) => !shared, () => explain(source, { threads: 1, ...options }));
    assert.deepEqual(asked, []);
    assert.equal(result.fits, fits);
    if (options.host?.maxMemoryBytes) assert.deepEqual([result.limit_bytes, result.limit_reason.code], [options.host.maxMemoryBytes, 'HOST']);
    if (options.memory) assert.equal(result.limit_reason.code, 'BUDGET');
  }
  const phone = await explain(BUNDLED, { placement: { profile: 'phone' } });
  assert.equal(phone.limit_reason.code, 'PROFILE');
});

for (const threads of [1, 2]) {
  const pages = 3200; // 200 MiB

  test(`a small ceiling, ${threads} thread(s): stepped down to, said, planned under, and no weight is read`, () => {
    const out = under(pages, async ({ explain: plan, open: load, countingSource: count }, file, chosen) => {
      const options = { threads: chosen, stream: 'off' };
      const { fits, limit_bytes: limit, limit_reason: reason, total_bytes: total, suggestions, text } = await plan(file, options);
      const source = count(file);
      const error = await load(source, options).then(() => ({ code: 'NONE' }), (e) => e.toJSON());
      const followed = {};
      const follow = { STREAM: { stream: 'auto' }, SMALLER_CONTEXT: { context: 256 } };
      for (const { code, sufficient } of suggestions)
        if (follow[code]) followed[code] = [(await plan(file, { ...options, ...follow[code] })).fits, sufficient];
      return { fits, limit, reason, total, text, error, followed, read: source.bytes };
    }, threads);
    assert.equal(out.fits, false);
    assert.equal(out.reason.code, 'PROBED');
    assert.match(out.text, /limit +\d.*found by trying/);
    assert.ok(out.limit <= pages * PAGE && out.limit > pages * PAGE - out.total / 8, `${out.limit}`);
    assert.equal(out.limit % PAGE, 0);
    assert.equal(out.error.code, 'DOES_NOT_FIT');
    assert.equal(out.error.detail.budget_bytes, out.limit);
    assert.ok(out.read <= headerBytes + MiB, `${out.read} bytes`);
    assert.ok(out.followed.STREAM);
    for (const [fits, sufficient] of Object.values(out.followed)) assert.equal(fits, sufficient);
  });

  test(`a small ceiling, ${threads} thread(s): what fits under it loads, and memory stays below`, () => {
    const out = under(pages, async ({ explain: plan, open: load }, file, chosen) => {
      const options = { threads: chosen, context: 256 };
      const { fits, total_bytes: total, limit_bytes: limit, limit_reason: reason, streaming } = await plan(file, options);
      const model = await load(file, options);
      const { tokens } = await model.generate([1, 5, 9], { maxTokens: 2, ignoreEos: true }).done;
      const { hostBytes } = await model.memory();
      await model.close();
      return { fits, total, limit, reason: reason.code, streams: Boolean(streaming), tokens: tokens.length, hostBytes };
    }, threads);
    assert.deepEqual([out.fits, out.streams, out.reason, out.tokens], [true, true, 'PROBED', 2]);
    assert.ok(out.total <= out.limit && out.hostBytes <= out.limit, JSON.stringify(out));
  });
}

test('an engine that sets aside less for shared memory: that is the limit, and models load', async () => {
  const source = ggufBytes(tinyLlama({ n_ctx: 64 }));
  for (const most of [40_000, 16_384, 4096]) {
    const { result } = await watching(({ maximum }) => maximum > most, async () => {
      const plan = await explain(source, { threads: 2 });
      const model = await open(source, { threads: 2 });
      const { result: generated } = await generate(model, [1, 5, 9], { maxTokens: 2, ignoreEos: true });
      await model.close();
      return { plan, tokens: generated.tokens.length, threads: model.info.threads };
    });
    assert.equal(result.tokens, 2);
    if (result.threads === 1) continue; // a machine with one processor
    assert.deepEqual([result.plan.limit_reason.code, result.plan.fits], ['PROBED', true]);
    assert.ok(result.plan.limit_bytes <= most * PAGE && result.plan.limit_bytes > 0.6 * most * PAGE, `${result.plan.limit_bytes}`);
  }
});

test('an engine that gives no more at all: refused, not hung', async () => {
  const source = countingSource(path);
  const { asked, result } = await watching(() => true, () => explain(source, { threads: 1, stream: 'off' }));
  assert.deepEqual([result.fits, result.limit_reason.code], [false, 'PROBED']);
  assert.ok(asked.length <= 17);
});

// --- more than 4 GiB ------------------------------------------------------------------------------

const GIB = 2 ** 30;
const { memory64 } = await probeHost();
const skip = memory64 ? false : 'this Node has no 64-bit memory for WebAssembly';
/** 5 GiB of weights, of which only the header is read. */
const five = bigModel({ idle: 20, layers: 2, rows: 32000 });
const OPTIONS = { stream: 'off', threads: 2, host: { threads: 2 } };
const isWide = ({ address }) => address === 'i64';
/** A wide memory of a plan, and not the one that a module begins with. */
const trials = (asked) => asked.filter((d) => isWide(d) && d.initial === d.maximum && d.initial > 64n);

test('more than 4 GiB: what the plan needs is tried once, and given', { skip }, async () => {
  const { asked, result } = await watching(() => false, () => explain(five, OPTIONS));
  assert.deepEqual([result.fits, result.address.code], [true, 'NEEDS_64']);
  const pages = BigInt(result.total_bytes / PAGE);
  assert.deepEqual(trials(asked), [{ initial: pages, maximum: pages, address: 'i64', shared: true }]);
  // Nothing is tried of what is refused anyhow, or for another machine.
  const refused = await watching(() => false, () => explain(five, { ...OPTIONS, memory: '4.5GiB' }));
  assert.deepEqual([refused.result.fits, trials(refused.asked)], [false, []]);
  const other = await watching(() => false, () => explain(five, { ...OPTIONS, host: { kind: 'browser', threads: 2 } }));
  assert.deepEqual([other.result.fits, trials(other.asked)], [true, []]);
});

test('more than 4 GiB, and an engine that gives less: stepped down to, said, planned under', { skip }, async () => {
  const most = 4.75 * GIB;
  const refuses = (d) => isWide(d) && Number(d.initial) * PAGE > most;
  const under4 = (options) => watching(refuses, () => explain(five, options));
  const { asked, result } = await under4(OPTIONS);
  assert.deepEqual([result.fits, result.limit_reason.code, result.address.code], [false, 'PROBED', 'NEEDS_64']);
  assert.ok(result.limit_bytes <= most && result.limit_bytes > most - result.total_bytes / 8, `${result.limit_bytes}`);
  assert.ok(trials(asked).length <= 4);
  await watching(refuses, () =>
    assert.rejects(open(five, OPTIONS), (error) => {
      assert.equal(error.code, 'DOES_NOT_FIT');
      assert.equal(error.detail.budget_bytes, result.limit_bytes);
      return true;
    }),
  );
  const streamed = (await under4({ ...OPTIONS, stream: 'auto' })).result;
  assert.deepEqual([streamed.fits, streamed.limit_bytes, streamed.address.bits], [true, result.limit_bytes, 64]);
  assert.ok(streamed.streaming && streamed.total_bytes > 4 * GIB && streamed.total_bytes <= result.limit_bytes);
  // The largest context is that of what is given.
  const source = ggufBytes(tinyLlama({ n_layer: 2, n_ctx: 2 ** 23 }));
  const largest = (await watching(refuses, () => explain(source, { ...OPTIONS, context: 'max', kvType: 'f32', memory: '6GiB' }))).result;
  assert.deepEqual([largest.fits, largest.limit_reason.code, largest.address.code], [true, 'PROBED', 'NEEDS_64']);
  assert.ok(largest.total_bytes > 4 * GIB && largest.total_bytes <= most, `${largest.total_bytes}`);
});

test('more than 4 GiB, and an engine that gives no more than that with 64-bit addresses: 32 bits again', { skip }, async () => {
  for (const [title, refuses] of Object.entries({
    'no memory of the plan': (d) => isWide(d) && d.initial > 64n,
    'no 64-bit memory at all': (d) => isWide(d) && d.maximum > 1n, // one page is asked for to see whether there is any
  })) {
    const { result } = await watching(refuses, () => explain(five, OPTIONS));
    assert.deepEqual([result.fits, result.limit_reason.code, result.limit_bytes], [false, 'PROBED', 4 * GIB], title);
    assert.deepEqual([result.address.bits, result.address.chosen_bits, result.address.code], [32, 32, 'NOT_ALLOWED'], title);
    await watching(refuses, () => assert.rejects(open(five, OPTIONS), { code: 'DOES_NOT_FIT' }));
    const streamed = (await watching(refuses, () => explain(five, { ...OPTIONS, stream: 'auto' }))).result;
    assert.ok(streamed.fits && streamed.streaming && streamed.total_bytes <= 4 * GIB, title);
  }
});
