// 64-bit addresses in a page: the bits of the module with 32, with threads and
// without, and chosen for a plan of more than 4 GiB.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { BUNDLED } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';
import { inPage, startBoth } from '../lib/site.mjs';
import { FAR_CONTEXT, FAR_MODEL, checkSame } from '../lib/wide-runs.mjs';

const skip = await chromiumMissing();
let browser, both, pages;

before(async () => {
  if (skip) return;
  browser = await startChromium();
  both = await startBoth(browser, {
    '/bundled.gguf': BUNDLED,
    '/far.gguf': ggufBytes(tinyLlama(FAR_MODEL)),
    '/generated.gguf': ggufBytes(
      tinyLlama({ n_layer: 3, d_model: 96, n_head: 6, n_kv_head: 3, d_ff: 160, n_vocab: 300, type: 'Q8_0' }),
    ),
  });
  ({ pages } = both);
});
after(async () => {
  await browser?.close();
  await both?.close();
});

/** compare of wide-runs.mjs, in the page. */
const compareIn = (page, ...args) =>
  inPage(page, async (lineal, ...more) => (await import('/tests/lib/wide-runs.mjs')).compare(lineal, ...more), ...args);

test('the same bits as with 32-bit addresses, isolated and not', { skip }, async () => {
  for (const [name, threads] of [['isolated', 2], ['plain', 1]]) {
    for (const [model, vocabulary] of [['bundled', 1024], ['generated', 300]]) {
      const out = await compareIn(pages[name], `/${model}.gguf`, { host: { threads: 2 } });
      checkSame(assert, out, { threads, vocabulary });
    }
    assert.deepEqual(pages[name].failures, []);
  }
});

test('keys and values beyond 4 GiB', { skip }, async () => {
  const out = await compareIn(pages.isolated, '/far.gguf', { host: { threads: 2 } }, { module: 'auto', context: FAR_CONTEXT });
  checkSame(assert, out, { threads: 2, vocabulary: 288 });
  assert.equal(out.got.address, 'NEEDS_64');
  assert.ok(out.got.end > 6 * 2 ** 30, `${out.got.end}`);
});

test('a plan of more than 4 GiB, with the capability and without', { skip }, async () => {
  const of = (host) =>
    inPage(pages.isolated, async (lineal, capabilities) => {
      const { bigModel } = await import('/tests/large/big-model.mjs');
      const source = bigModel({ idle: 20, layers: 2, rows: 32000 });
      const options = { stream: 'off', host: capabilities };
      const { fits, address, module } = await lineal.explain(source, options);
      const error = fits ? undefined : await lineal.open(source, options).catch(({ code, remedy }) => ({ code, remedy }));
      return { fits, address, module, error };
    }, host);
  const wide = await of({});
  assert.deepEqual([wide.fits, wide.address.code, wide.address.bits, wide.module], [true, 'NEEDS_64', 64, 'relaxed-mt-64']);
  const narrow = await of({ memory64: false });
  assert.deepEqual([narrow.fits, narrow.address.code, narrow.address.bits, narrow.module], [false, 'NO_MEMORY64', 32, 'relaxed']);
  assert.equal(narrow.error.code, 'DOES_NOT_FIT');
  assert.match(narrow.error.remedy, /64-bit WebAssembly memory/);
});

test('a file is read straight to where 32 bits do not reach', { skip }, async () => {
  const out = await pages.isolated.evaluate(`new Promise((resolve, reject) => {
    const worker = new Worker('/tests/lib/far-read-worker.mjs', { type: 'module' });
    worker.onmessage = ({ data }) => { worker.terminate(); resolve(data); };
    worker.onerror = ({ message }) => reject(new Error(message));
  })`);
  assert.deepEqual(out, { count: 2 ** 20, wrong: 0 });
});
