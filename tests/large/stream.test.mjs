// Models larger than their memory, at the size people have: 1.3 GB of dense weights and 2 GB of
// experts under 400 MiB, from a file in Node and from the private file system in Chromium. The bits are those of
// the resident run; how fast it is against bare reads of the same bytes is told, and not judged
// (bench/stream.mjs is for that).
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';

import { open } from '../../js-glue/index.js';
import { modelFile, promptIds } from '../bench/models.mjs';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { generate, memoryLine } from '../lib/fixtures.mjs';
import { ISOLATED } from '../lib/http-server.mjs';
import { openBlank, startSite } from '../lib/site.mjs';

const skip = await chromiumMissing();
const BUDGET = 400 * 2 ** 20;
const OPTIONS = { context: 256, kvType: 'f16', memory: BUDGET };
const IDS = promptIds(8);
const GENERATION = { maxTokens: 12, ignoreEos: true, logprobs: true };
const log = (text) => process.stderr.write(`${text}\n`);
const MODELS = { '1.3 GB': ['1B', 'Q8_0'], '2 GB of experts': ['64x', 'Q4_0'] };
const files = {};
const resident = {}; // of this engine; a page has another
let site, browser, page;

before(async () => {
  for (const [name, [shape, quant]] of Object.entries(MODELS)) {
    files[name] = modelFile(shape, quant, log);
    const model = await open(files[name], { ...OPTIONS, memory: undefined });
    const { result } = await generate(model, IDS, GENERATION);
    resident[name] = { tokens: result.tokens, logprobs: result.logprobs };
    await model.close();
  }
  if (skip) return;
  const mounts = { '/read.js': Buffer.from(READ) };
  for (const name of Object.keys(MODELS)) mounts[`/${name.replaceAll(' ', '-')}.gguf`] = files[name];
  site = await startSite(mounts, { headers: ISOLATED });
  browser = await startChromium();
  page = await openBlank(browser, site);
  page.setDefaultTimeout(0);
});
after(async () => {
  await browser?.close();
  await site?.close();
});

/** Bare reads of the cached file through a synchronous handle, again and again into the same place. */
const READ = `onmessage = async ({ data: { key, step, most } }) => {
  const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('lineal-models');
  const file = await (await (await root.getDirectoryHandle(key)).getFileHandle('content'))
    .createSyncAccessHandle({ mode: 'readwrite-unsafe' });
  const size = Math.min(file.getSize(), most);
  const bytes = new Uint8Array(new SharedArrayBuffer(step));
  const start = performance.now();
  for (let at = 0; at < size; at += step) file.read(bytes, { at });
  const ms = performance.now() - start;
  file.close();
  postMessage(size / ms * 1000);
};`;

/** What one thread reads of the file in a second, as the window does. */
function fileBandwidth(file, piece) {
  const fd = fs.openSync(file, 'r');
  const target = new Uint8Array(new SharedArrayBuffer(piece));
  const size = Math.min(fs.fstatSync(fd).size, 2 ** 30);
  const start = performance.now();
  for (let at = 0; at < size; at += piece) fs.readSync(fd, target, 0, piece, at);
  const ms = performance.now() - start;
  fs.closeSync(fd);
  return (size / ms) * 1000;
}

/** One read: a slot, unless only experts are streamed. */
const pieceOf = ({ slot_bytes, expert_bytes }) => slot_bytes || expert_bytes;

/** What holds wherever it runs. */
function check(t, expected, { result, explanation, memory }, bandwidth) {
  const { streaming } = explanation;
  assert.deepEqual(result.tokens, expected.tokens);
  assert.deepEqual(result.logprobs, expected.logprobs);
  assert.ok(memory.hostBytes <= BUDGET, `${memory.hostBytes} bytes of linear memory`);
  assert.equal(memory.hostBytes, explanation.total_bytes, 'the total is as planned');
  assert.equal(memory.measured.window, memoryLine(explanation, 'window'));
  assert.equal(result.decodeAllocations, 0);
  assert.equal(result.memoryGrows, 0);
  const { bytesPerToken, experts } = result.streaming;
  if (experts) {
    const whole = explanation.tensors.filter(({ domain }) => domain === 'STREAMED').reduce((sum, w) => sum + w.stored_bytes, 0);
    assert.ok(bytesPerToken <= streaming.bytes_per_token, `${bytesPerToken} of ${streaming.bytes_per_token}: what is there is not read again`);
    assert.ok(streaming.bytes_per_token < whole / 7, `${streaming.bytes_per_token} of ${whole}: 8 of 64`);
    assert.ok(experts.hitRate > 0 && experts.hitRate < 1);
    t.diagnostic(`${streaming.expert_places} places for experts, hit rate ${experts.hitRate.toFixed(3)}`);
  } else {
    assert.equal(bytesPerToken, streaming.bytes_per_token);
  }
  const possible = bandwidth / bytesPerToken;
  const { decodeTps } = result.timings;
  t.diagnostic(`${explanation.module}, ${(bytesPerToken / 1e6).toFixed(1)} MB a token ` +
    `(planned ${(streaming.bytes_per_token / 1e6).toFixed(1)}), ${decodeTps.toFixed(2)} tokens/s; the source gives ${(bandwidth / 1e9).toFixed(2)} GB/s, ` +
    `${possible.toFixed(2)} tokens/s: ${((100 * decodeTps) / possible).toFixed(0)} %`);
}

for (const name of Object.keys(MODELS)) {
  test(`${name} under 400 MiB from a file: the bits of the resident run`, async (t) => {
    const model = await open(files[name], OPTIONS);
    try {
      const { result } = await generate(model, IDS, GENERATION);
      const bandwidth = fileBandwidth(files[name], pieceOf(model.explanation.streaming));
      check(t, resident[name], { result, explanation: model.explanation, memory: await model.memory() }, bandwidth);
    } finally {
      await model.close();
    }
  });

  test(`${name} under 400 MiB in Chromium: each byte fetched once, then from the private file system`, { skip }, async (t) => {
    const url = `/${name.replaceAll(' ', '-')}.gguf`;
    const { size } = fs.statSync(files[name]);
    const runs = [];
    let fetched = 0;
    for (const cached of [false, true]) {
      site.reset();
      const out = await page.evaluate(inPage, [url, IDS, OPTIONS, GENERATION]);
      const { bytes } = site.stats(url) ?? { bytes: 0 };
      // Experts that were never chosen are in neither memory nor cache.
      const all = out.result.streaming.experts === undefined;
      if (cached && all) assert.equal(bytes, 0, 'nothing is fetched again');
      else assert.ok((fetched += bytes) <= size, `${fetched} of ${size} bytes were fetched`);
      t.diagnostic(`${cached ? 'from the private file system' : 'from the network'}: ${bytes} bytes fetched, heap of the page ${out.heap}`);
      runs.push(out);
    }
    const { result: expected } = await page.evaluate(inPage, [url, IDS, { ...OPTIONS, memory: undefined }, GENERATION]);
    for (const run of runs) check(t, expected, run, run.bandwidth);
  });
}

async function inPage([url, ids, options, generation]) {
  const { modelCache, open: openModel } = await import('/js-glue/index.js');
  const model = await openModel(url, options);
  const result = await model.generate(ids, generation).done;
  const memory = await model.memory();
  const { explanation } = model;
  await model.close();
  if (!explanation.streaming) return { result };
  const [{ key }] = (await modelCache.list()).filter((entry) => entry.name.endsWith(url));
  const bandwidth = await new Promise((resolve) => {
    const worker = new Worker('/read.js');
    worker.onmessage = (event) => {
      worker.terminate();
      resolve(event.data);
    };
    worker.postMessage({ key, step: explanation.streaming.slot_bytes || explanation.streaming.expert_bytes, most: 2 ** 30 });
  });
  return { result, memory, explanation, bandwidth, heap: performance.memory?.usedJSHeapSize };
}
