// A model of 1.3 GB in a page: how fast it loads from the private file system
// beside bare reads of the same file, and what JavaScript holds meanwhile.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { modelFile } from '../bench/models.mjs';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';
import { watchHeap } from '../lib/heap.mjs';
import { ISOLATED } from '../lib/http-server.mjs';
import { openBlank, startSite } from '../lib/site.mjs';
import { startUnwatched, watchOpening } from '../lib/unwatched.mjs';

const skip = await chromiumMissing();
const MiB = 1 << 20;
const LEAST_SHARE = 0.6;
const ROUNDS = 4;
/** Reads the whole file through a synchronous handle, each byte to its own place in fresh memory, as a load must. */
const RAW = `onmessage = async ({ data: { key, step } }) => {
  const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('lineal-models');
  const file = await (await (await root.getDirectoryHandle(key)).getFileHandle('content'))
    .createSyncAccessHandle({ mode: 'readwrite-unsafe' });
  const size = file.getSize();
  const start = performance.now();
  const memory = new WebAssembly.Memory({ initial: Math.ceil(size / 65536), maximum: 65536, shared: true });
  const bytes = new Uint8Array(memory.buffer);
  let count = 0;
  for (let at = 0; at < size; at += step) count += file.read(bytes.subarray(at, Math.min(at + step, size)), { at });
  const ms = performance.now() - start;
  file.close();
  postMessage({ count, ms });
};`;
/** Beside linear memory and an engine, as the system counts: what JavaScript holds, and what its heaps have grown by. */
const MOST_BESIDE = 40 * MiB;
let site, browser, page, heap, size;

before(async () => {
  if (skip) return;
  const file = modelFile('1B', 'Q8_0', (text) => process.stderr.write(`${text}\n`));
  ({ size } = fs.statSync(file));
  site = await startSite({ '/m.gguf': file, '/raw.js': Buffer.from(RAW) }, { headers: ISOLATED });
  browser = await startChromium();
  page = await openBlank(browser, site);
  page.setDefaultTimeout(0);
  heap = await watchHeap(page);
});
after(async () => {
  await browser?.close();
  await site?.close();
});

/** Opens the model and says what it was like: { ms, loadMs, hostBytes, syncRead, warnings }. */
const load = (options = {}) =>
  page.evaluate(async (more) => {
    const { open } = await import('/js-glue/index.js');
    const start = performance.now();
    const model = await open('/m.gguf', { context: 256, ...more });
    if (more.overlap) await model.generate([1, 2, 3], { maxTokens: 1 }).done;
    const ms = performance.now() - start;
    const { hostBytes } = await model.memory();
    const { warnings, host } = model.explanation;
    const { loadMs } = model.info; // without the start of the worker, whose scripts come over HTTP here
    await model.close();
    return { ms, loadMs, hostBytes, syncRead: host.sync_read, warnings: warnings.filter(({ code }) => code.startsWith('CACHE')) };
  }, options);

/** The same, and the most that JavaScript held meanwhile. */
async function watched(options, pause) {
  let most = { bytes: 0 }, threads = 0, count = 0, result;
  const loading = load(options).then((got) => { result = got; });
  loading.catch(() => { result = {}; });
  while (!result) {
    const now = await heap.now();
    if (now.bytes > most.bytes) most = now;
    threads = Math.max(threads, now.threads);
    count++;
    await delay(pause); // each look costs memory itself
  }
  await loading;
  return { ...result, most, threads, count };
}

for (const [name, options, cached, limit = 24] of [
  ['its address, kept in the cache', {}, false],
  ['the private file system', {}, true],
  ['the private file system, overlapped', { overlap: true }, true],
  // 650 requests leave 11 KB of garbage each in the browser itself, which it collects when it likes: 22 to 27 MiB were seen.
  ['its address, overlapped, nothing kept', { overlap: true, cache: false }, false, 32],
]) {
  test(`loading 1.3 GB from ${name}: JavaScript holds less than ${limit} MiB`, { skip }, async (t) => {
    site.reset();
    const { most, threads, count, hostBytes, ms, warnings } = await watched(options, cached ? 60 : 500);
    const mib = (bytes) => (bytes / MiB).toFixed(1);
    t.diagnostic(`${mib(most.bytes)} MiB at most (objects ${mib(most.objects)}, of the browser ${mib(most.embedder)}, ` +
      `buffers ${mib(most.buffers)}) of ${threads} threads in ${count} looks; ${(ms / 1000).toFixed(1)} s`);
    assert.equal(site.stats('/m.gguf').bytes, cached ? 0 : size);
    assert.deepEqual(warnings, []);
    assert.ok(hostBytes > size, 'it is there');
    assert.ok(threads >= 2 && count >= 5, `${threads} threads, ${count} looks`);
    assert.ok(most.bytes > MiB && most.bytes < limit * MiB, `${most.bytes} bytes`);
  });
}

// JavaScript's own count has been wrong by hundreds of megabytes (NOTES.md): the system's, in a page that nobody watches.
for (const [name, options] of [
  ['kept in the cache', {}],
  ['overlapped, nothing kept', { overlap: true, cache: false }],
]) {
  test(`loading 1.3 GB from its address, ${name}: the process holds less than ${MOST_BESIDE / MiB} MiB beside it`, { skip }, async (t) => {
    const place = await startUnwatched({
      '/tiny.gguf': Buffer.from(ggufBytes(tinyLlama({ n_ctx: 64 }))), '/m.gguf': modelFile('1B', 'Q8_0'),
    });
    try {
      const how = { least: size / 2, ms: 100 };
      await watchOpening(place, '/tiny.gguf', options, how); // code is compiled
      const tiny = await watchOpening(place, '/tiny.gguf', options, how);
      if (tiny.most === undefined) return t.skip('the system does not tell');
      const { most, looks, linear } = await watchOpening(place, '/m.gguf', options, how);
      t.diagnostic(`${((most - tiny.most) / MiB).toFixed(1)} MiB more than for a tiny model, in ${looks} looks`);
      assert.ok(linear > size && looks >= 5, `${linear} bytes, ${looks} looks`);
      assert.ok(most - tiny.most < MOST_BESIDE, `${most - tiny.most} bytes`);
    } finally {
      await place.close();
    }
  });
}

test('loading 1.3 GB from the private file system: 60 % of bare reads', { skip }, async (t) => {
  const key = await page.evaluate(async () => (await (await import('/js-glue/index.js')).modelCache.list())[0].key);
  const raw = () =>
    page.evaluate((data) => new Promise((resolve) => {
      const worker = new Worker('/raw.js');
      worker.onmessage = (event) => {
        worker.terminate();
        resolve(event.data);
      };
      worker.postMessage(data);
    }), { key, step: MiB });
  const rates = { raw: [], load: [] };
  for (let round = 0; round < ROUNDS; round++) {
    const bare = await raw();
    assert.equal(bare.count, size);
    rates.raw.push(size / bare.ms / 1e6);
    const loaded = await load();
    assert.equal(loaded.syncRead, true);
    rates.load.push(size / loaded.loadMs / 1e6);
  }
  const share = Math.max(...rates.load) / Math.max(...rates.raw); // the least disturbed
  const list = (values) => values.map((v) => v.toFixed(2)).join(', ');
  t.diagnostic(`bare reads ${list(rates.raw)} GB/s, loads ${list(rates.load)} GB/s: ${(100 * share).toFixed(0)} %`);
  assert.ok(share >= LEAST_SHARE, `${share}`);
});
