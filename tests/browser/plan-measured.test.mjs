// The plan against what was taken, in a page, on every fixture; what the system says of the tab; and a
// hundred models opened and closed.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { chromiumMissing } from '../lib/chromium.mjs';
import { BUNDLED, FIXTURES, fixturesMissing, modelFixtures } from '../lib/fixtures.mjs';
import { ggufBytes, layout, tinyLlama } from '../lib/gguf-write.mjs';
import { planFaults } from '../lib/plan-measured.mjs';
import { startPage } from '../lib/tab-memory.mjs';

const skip = await chromiumMissing();
const without = fixturesMissing();
const MiB = 1 << 20;
const BALLAST = { n_layer: 4, d_model: 512, n_head: 8, n_kv_head: 8, d_ff: 2048, n_vocab: 8192, n_ctx: 512, type: 'F16' };
let place;

before(async () => {
  if (skip) return;
  place = await startPage({
    '/bundled.gguf': BUNDLED,
    '/tiny.gguf': Buffer.from(ggufBytes(tinyLlama({ n_ctx: 64 }))),
    '/large.gguf': Buffer.from(ggufBytes(tinyLlama(BALLAST))),
    ...(without ? {} : { '/fixtures/': FIXTURES }),
  });
});
after(() => place?.close());

test('the plan is what is taken, on every fixture', { skip: skip || without }, async (t) => {
  const names = modelFixtures();
  assert.ok(names.length >= 35, `${names.length}`);
  for (const options of [{ module: 'auto' }, { module: 'base', threads: 1, context: 96, kvType: 'q8_0' }]) {
    const results = await place.inPage(async (lineal, { names: all, options: chosen }) => {
      const { planAndMeasure } = await import('/tests/lib/plan-measured.mjs');
      const out = [];
      for (const name of all) out.push(await planAndMeasure(lineal, `/fixtures/${name}`, { cache: false, ...chosen }));
      return out;
    }, { names, options });
    results.forEach((got, i) => assert.deepEqual(planFaults(got), [], `${names[i]} ${JSON.stringify(options)}`));
    const off = Math.max(...results.map(({ measured, planned }) => Math.abs(measured.total / planned.total - 1)));
    t.diagnostic(`${options.module}: the whole is off by ${(off * 100).toFixed(2)} % at most`);
  }
});

test('a hundred times opened and closed in a page: every one takes the same, and the tab does not grow', { skip }, async (t) => {
  const cycle = async (lineal, { count, url }) => {
    const seen = new Set();
    const source = await (await fetch(url)).blob();
    for (let i = 0; i < count; i++) {
      const model = await lineal.open(source, { context: 64, threads: 1 });
      await model.generate([1, 5, 9], { maxTokens: 2, ignoreEos: true }).done;
      const { hostBytes, liveBytes, liveBlocks, highWaterBytes, allocCalls, growCalls } = await model.memory();
      seen.add(JSON.stringify({ hostBytes, liveBytes, liveBlocks, highWaterBytes, allocCalls, growCalls }));
      await model.close();
    }
    return [...seen];
  };
  const small = await place.inPage(cycle, { count: 100, url: '/tiny.gguf' });
  assert.equal(small.length, 1, small.join('\n'));
  // Models large enough to be seen from outside.
  const large = await place.inPage(cycle, { count: 1, url: '/large.gguf' });
  const { hostBytes } = JSON.parse(large[0]);
  assert.ok(hostBytes > 48 * MiB, `${hostBytes}`);
  const one = await place.rendererBytes();
  assert.deepEqual(await place.inPage(cycle, { count: 12, url: '/large.gguf' }), large);
  const many = await place.rendererBytes();
  if (one === undefined) return t.skip('the system does not tell');
  t.diagnostic(`renderer: ${(one / MiB).toFixed()} MiB after one, ${(many / MiB).toFixed()} MiB after 13, each of ${(hostBytes / MiB).toFixed()} MiB`);
  assert.ok(many < one + 3 * hostBytes, `${one} bytes, then ${many}`);
});

test('two models at once, closed twice, used after that: typed errors', { skip }, async () => {
  const out = await place.inPage(async (lineal) => {
    const code = (work) => work().then(() => 'NONE', (error) => `${error.name} ${error.code}`);
    const options = { context: 64 };
    const [first, second] = await Promise.all(['/bundled.gguf', '/tiny.gguf'].map((url) => lineal.open(url, options)));
    const run = (model) => model.generate([1, 5, 9], { maxTokens: 6, ignoreEos: true, reuse: false }).done.then(({ tokens }) => tokens);
    const both = await Promise.all([run(first), run(second)]);
    await second.close();
    const again = await run(first);
    await Promise.all([first.close(), first.close(), second.close()]);
    const codes = [];
    for (const use of [() => run(first), () => first.memory(), () => first.explainPlan(), () => first.tokenize('x')])
      codes.push(await code(use));
    codes.push(await code(() => lineal.open('/bundled.gguf', { memory: '1MB' })));
    return { both, again, codes };
  });
  assert.equal(out.both[1].length, 6);
  assert.deepEqual(out.again, out.both[0]);
  assert.deepEqual(out.codes, [...Array(4).fill('LinealError CLOSED'), 'LinealError DOES_NOT_FIT']);
});

test('a refused model in a page: no request begins in the weights', { skip }, async () => {
  const model = tinyLlama(BALLAST);
  const { dataOffset } = layout(model);
  place.server.reset();
  const out = await place.inPage(async ({ explain, open }) => {
    const options = { memory: '4MiB', stream: 'off', cache: false };
    const { fits } = await explain('/large.gguf', options);
    return [fits, await open('/large.gguf', options).then(() => 'NONE', (error) => error.code)];
  });
  assert.deepEqual(out, [false, 'DOES_NOT_FIT']);
  const { ranges } = place.server.stats('/large.gguf');
  assert.ok(ranges.length >= 2);
  for (const { range } of ranges) assert.ok(Number(/^bytes=(\d+)-/.exec(range)[1]) < dataOffset, range);
});

test('what the system says of the tab: little more than the plan while a model is open, and little after', { skip }, async (t) => {
  const before_ = await place.rendererBytes();
  if (before_ === undefined) return t.skip('the system does not tell');
  const { total, used } = await place.inPage(async (lineal) => {
    const model = await lineal.open('/large.gguf', { cache: false, threads: 1 });
    await model.generate([1, 5, 9], { maxTokens: 2, ignoreEos: true }).done;
    globalThis.model = model;
    return { total: model.explanation.total_bytes, used: (await model.memory()).hostBytes };
  });
  const open = await place.rendererBytes();
  await place.page.evaluate(() => globalThis.model.close());
  // The worker ends on its own time, and the engine collects on its own.
  let closed = await place.rendererBytes();
  for (let i = 0; i < 100 && closed >= open - total / 2; i++) {
    await delay(100);
    closed = await place.rendererBytes();
  }
  t.diagnostic(`plan ${(total / MiB).toFixed(1)} MiB, linear memory ${(used / MiB).toFixed(1)}, the tab gains `
    + `${((open - before_) / MiB).toFixed(1)}, has ${((closed - before_) / MiB).toFixed(1)} more once closed`);
  assert.ok(Math.abs(used / total - 1) <= 0.02);
  assert.ok(open - before_ < total + 64 * MiB);
  assert.ok(closed < open - total / 2, 'given back');
});
