// A model larger than its memory in a page: read from a file of the origin's private file system.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { generate, temporary } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';
import { inPage, openBlank, startBoth } from '../lib/site.mjs';

const skip = await chromiumMissing();
const IDS = [1, 5, 9, 23, 77];
const shape = { n_layer: 6, d_model: 256, n_head: 8, n_kv_head: 2, d_ff: 1024, n_vocab: 6000, n_ctx: 64, tokenizer: 'none' };
let browser, expected, both;

before(async () => {
  if (skip) return;
  const file = temporary('streamed-in-a-page.gguf');
  fs.writeFileSync(file, ggufBytes(tinyLlama({ ...shape, type: 'Q8_0' })));
  const model = await open(file, { context: 64 });
  expected = (await generate(model, IDS, { maxTokens: 10, ignoreEos: true })).result.tokens;
  await model.close();
  browser = await startChromium();
  both = await startBoth(browser, { '/model.gguf': file });
});
after(async () => {
  await browser?.close();
  await both?.close();
});

async function streamed({ explain, open: openModel }, ids, worker) {
  const root = await navigator.storage.getDirectory();
  const handle = await root.getFileHandle('model.gguf', { create: true });
  const writable = await handle.createWritable();
  await (await fetch('/model.gguf')).body.pipeTo(writable);
  const file = await handle.getFile();
  const { total_bytes: memory } = await explain(file, { context: 64, memory: 1 });
  const model = await openModel(file, { context: 64, memory, worker });
  const result = await model.generate(ids, { maxTokens: 10, ignoreEos: true }).done;
  const { hostBytes } = await model.memory();
  const { threads } = model.info;
  const { streaming } = model.explanation;
  await model.close();
  return { tokens: result.tokens, streamed: result.streaming, planned: streaming, memory, hostBytes, threads, size: file.size };
}

for (const name of ['isolated', 'plain']) {
  for (const worker of [true, false]) {
    test(`from the private file system, ${name} page, ${worker ? 'in a worker' : 'in the page'}`, { skip }, async (t) => {
      const page = await openBlank(browser, both.sites[name]);
      const out = await inPage(page, streamed, IDS, worker);
      await page.close();
      assert.deepEqual(out.tokens, expected);
      assert.ok(out.memory < out.size * 0.6, `${out.memory} of ${out.size}`);
      assert.ok(out.hostBytes <= out.memory, `${out.hostBytes} of ${out.memory}`);
      assert.equal(out.streamed.bytesPerToken, out.planned.bytes_per_token);
      t.diagnostic(`${out.threads} threads, ${(out.streamed.bytes / 1e3 / out.streamed.readMs).toFixed(0)} MB/s`);
    });
  }
}
