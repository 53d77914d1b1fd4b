// The demo page in headless Chromium: the same tokens as Node, errors that can
// be read and are got over, nothing done on the page's own thread.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { drive } from '../lib/demo-page.mjs';
import { BUNDLED, ROOT, generate, temporary } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama, writeSparse } from '../lib/gguf-write.mjs';
import { ISOLATED, STRICT_CSP, startServer } from '../lib/http-server.mjs';

const skip = await chromiumMissing();
const PROMPT = 'In the beginning';
const MODEL = '/web/models/kjv-2.6m-Q4_K_M.gguf';
const MiB = 1 << 20;

let server, browser, page, expected, big;
/** What a user does on the page of the test. */
let state, text, settled, load, run;

before(async () => {
  if (skip) return;
  const bytes = fs.readFileSync(BUNDLED);
  const large = tinyLlama({
    n_layer: 4, d_model: 512, n_head: 8, d_ff: 2048, n_vocab: 8192, n_ctx: 1024, type: 'F32', zeroLayers: [0, 1, 2, 3],
  });
  large.tensors.filter((t) => t.shape.length > 1).forEach((t) => { delete t.values; });
  big = { path: temporary('big.gguf'), ...writeSparse(temporary('big.gguf'), large) };
  const mounts = {
    '/': ROOT,
    '/other/model.gguf': BUNDLED,
    '/other/big.gguf': big.path,
    '/other/page.gguf': Buffer.from('<!doctype html><title>Sign in</title>' + ' '.repeat(2000)),
    '/other/truncated.gguf': bytes.subarray(0, 900_000),
    '/other/text.gguf': Buffer.from('this is no model\n'.repeat(4000)),
    '/other/arch.gguf': Buffer.from(bytes.toString('latin1').replace(/(general\.architecture.{12})llama/s, '$1lxxma'), 'latin1'),
    '/other/long.gguf': ggufBytes(tinyLlama({ n_ctx: 4096, d_model: 256, n_head: 4, d_ff: 1024, n_layer: 4, n_vocab: 288 })),
  };
  server = await startServer(mounts, { headers: { ...ISOLATED, ...STRICT_CSP } });
  browser = await startChromium();
  const model = await open(BUNDLED, { module: 'base' });
  expected = (await generate(model, PROMPT, { maxTokens: 24 })).result;
  await model.close();
});
after(async () => {
  await browser?.close();
  await server?.close();
});
beforeEach(async () => {
  if (skip) return;
  server.reset();
  page = await browser.newPage();
  ({ state, text, settled, load, run } = drive(page));
  // Models that earlier tests downloaded would come from the cache.
  const session = await page.context().newCDPSession(page);
  await session.send('Storage.clearDataForOrigin', { origin: server.url, storageTypes: 'all' });
  await session.detach();
});
afterEach(async () => {
  await page?.close();
  page = undefined;
  for (const name of Object.keys(server?.faults ?? {})) delete server.faults[name];
});

// --- what a user does -------------------------------------------------------------

async function visit(path = '/web/') {
  await page.goto(server.url + path);
  await settled();
}
async function explainUrl(url) {
  await page.fill('#url', url);
  await page.click('#use-url');
  await page.waitForFunction(() => document.body.dataset.state !== 'planning');
}
function assertQuiet() {
  const loud = page.messages.filter((m) => ['error', 'warning'].includes(m.type));
  assert.deepEqual([...loud, ...page.failures], []);
}
async function assertError(code) {
  await page.waitForSelector('#error:not([hidden])');
  const codes = [code].flat();
  const shown = await text('#error-code');
  assert.ok(codes.includes(shown), `${shown}: ${await text('#error-message')}`);
  assert.ok((await text('#error-message')).length > 10);
  assert.ok((await text('#error-remedy')).length > 5, 'a remedy is shown');
}
/** The chosen model, which is the bundled one, loads and generates. */
async function assertLoads() {
  await load();
  await state('ready');
  assert.ok(await page.locator('#error').isHidden());
  assert.deepEqual((await run({ maxTokens: 4 })).ids, expected.tokens.slice(0, 4));
}
async function assertNextLoadWorks() {
  await page.click('#use-bundled');
  await state('planned').catch(() => state('ready'));
  await assertLoads();
}

// --- the main path -----------------------------------------------------------------

for (const module of ['auto', 'base', 'relaxed']) {
  test(`the bundled model gives Node's tokens, module ${module}`, { skip }, async () => {
    await visit();
    await page.selectOption('#module', module);
    await state('planned');
    assert.equal(await text('#verdict'), 'Fits');
    await load();
    await state('ready');
    const result = await run();
    assert.deepEqual(result.prompt, expected.promptTokens);
    assert.deepEqual(result.ids, expected.tokens);
    assert.equal(result.text, expected.text);
    assert.equal(result.finish, 'length');
    assert.match(await text('#stat-speed'), /\d tokens\/s/);
    assert.match(await text('#stat-first'), /\d m?s/);
    assert.equal(await text('#stat-allocations'), '0');
    const note = await text('#ready-note');
    assert.match(note, module === 'base' ? /base build/ : /relaxed build/);
    assertQuiet();
  });
}

test('the plan: a bar whose parts add up, a table of all tensors, text', { skip }, async () => {
  await visit();
  assert.equal(await page.locator('#load').isEnabled(), true);
  assert.ok((await page.locator('#bar i').count()) >= 4);
  await page.click('#memory-details > summary');
  const numbers = await page.locator('#memory-table tbody td:nth-child(2)').allInnerTexts();
  const bytes = numbers.map((n) => Number(n.replaceAll(',', '')));
  assert.equal(bytes.slice(0, -1).reduce((a, b) => a + b), bytes.at(-1));
  await page.click('#tensor-details > summary');
  await page.waitForSelector('#tensor-table tbody td.name');
  await page.fill('#tensor-filter', 'blk.2 q4_k');
  assert.match(await text('#tensor-shown'), /^\d+ of 38 shown$/);
  for (const name of await page.locator('#tensor-table td.name').allInnerTexts()) assert.match(name, /^blk\.2\./);
  await page.click('#text-details > summary');
  assert.match(await text('#plan-text'), /blk/);
  assertQuiet();
});

test('explain over HTTP reads the header only; a budget too small gives suggestions and no Load', { skip }, async () => {
  await visit();
  await page.fill('#memory', '12 MiB');
  await explainUrl(`${server.url}/other/big.gguf`);
  assert.equal(await text('#verdict'), 'Does not fit');
  assert.ok(await page.locator('#load').isDisabled());
  assert.ok((await page.locator('#suggestions li').count()) >= 2);
  assert.ok(big.fileBytes > 40 * MiB);
  const { bytes } = server.stats('/other/big.gguf');
  assert.ok(bytes <= big.headerBytes + MiB, `${bytes} bytes were sent, the header has ${big.headerBytes}`);
  assertQuiet();
});

test('a file through the picker gives the same tokens, a dropped one too', { skip }, async () => {
  await visit();
  await page.setInputFiles('#file', BUNDLED);
  await page.waitForFunction(() => document.querySelector('#plan-name').textContent.includes('MiB'));
  await state('planned');
  await load();
  await state('ready');
  assert.deepEqual((await run()).ids, expected.tokens);

  const data = await page.evaluateHandle(async (url) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([await (await fetch(url)).blob()], 'dropped.gguf'));
    return transfer;
  }, MODEL);
  await page.dispatchEvent('body', 'drop', { dataTransfer: data });
  await page.waitForFunction(() => document.querySelector('#plan-name').textContent.includes('dropped'));
  await page.waitForFunction(() => document.body.dataset.state !== 'planning');
  await load();
  await state('ready');
  assert.deepEqual((await run()).ids, expected.tokens);
  assertQuiet();
});

test('the engine runs in a worker, and the page answers while it generates', { skip }, async () => {
  await visit();
  await explainUrl(`${server.url}/other/long.gguf`);
  await load();
  await state('ready');
  assert.ok(page.workers().length >= 1, `${page.workers().length} workers`);
  await page.evaluate(() => {
    let last = performance.now();
    globalThis.gaps = [];
    const tick = () => {
      const now = performance.now();
      if (document.body.dataset.state === 'generating') globalThis.gaps.push(now - last);
      last = now;
      setTimeout(tick, 5);
    };
    tick();
  });
  const { ids } = await run({ prompt: 'the rest '.repeat(150), maxTokens: 200 });
  const gaps = (await page.evaluate(() => globalThis.gaps)).sort((a, b) => a - b);
  assert.ok(ids.length > 10 && gaps.length >= 5, `${ids.length} tokens, ${gaps.length} ticks`);
  assert.ok(gaps[Math.floor(gaps.length * 0.9)] < 100, `gaps between ticks: ${gaps.slice(-10)}`);
  assertQuiet();
});

test('Stop ends the generation within one token, Escape too; the next one works', { skip }, async () => {
  await visit();
  await explainUrl(`${server.url}/other/long.gguf`);
  await load();
  await state('ready');
  for (const how of ['button', 'key']) {
    await page.fill('#prompt', 'the rest');
    await page.fill('#max-tokens', '3000');
    const counts = await page.evaluate((stopWith) => new Promise((resolve) => {
      const shown = document.querySelector('#stat-tokens');
      let atStop = 0;
      const seen = new MutationObserver(() => {
        const n = Number(shown.textContent.replaceAll(',', ''));
        if (n >= 8 && !atStop) {
          atStop = n;
          if (stopWith === 'button') document.querySelector('#stop').click();
          else document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
        }
      });
      seen.observe(shown, { childList: true, characterData: true, subtree: true });
      const done = new MutationObserver(() => {
        if (document.body.dataset.state !== 'ready') return;
        seen.disconnect();
        done.disconnect();
        const made = document.querySelector('#token-ids').textContent.split(' ').filter(Boolean).length;
        resolve({ atStop, made, finish: document.querySelector('#stat-finish').dataset.reason });
      });
      document.querySelector('#generate').click();
      done.observe(document.body, { attributes: true, attributeFilter: ['data-state'] });
    }), how);
    assert.equal(counts.finish, 'aborted');
    assert.ok(counts.made - counts.atStop <= 1, `${how}: ${counts.made} tokens, stopped at ${counts.atStop}`);
  }
  assert.equal((await run({ prompt: 'the', maxTokens: 3 })).ids.length, 3);
  assertQuiet();
});

// --- faults ---------------------------------------------------------------------------

const faults = {
  'a wrong address': ['/other/nothing.gguf', ['SOURCE_NOT_FOUND', 'HTTP_STATUS']],
  'an HTML page in place of a model': ['/other/page.gguf', ['SOURCE_NOT_A_MODEL', 'NOT_GGUF']],
  'a text file': ['/other/text.gguf', ['NOT_GGUF', 'SOURCE_NOT_A_MODEL']],
  'a truncated file': ['/other/truncated.gguf', ['GGUF_TRUNCATED', 'SOURCE_TRUNCATED']],
  'an unknown architecture': ['/other/arch.gguf', ['UNSUPPORTED_ARCHITECTURE']],
  'a server that is not there': ['http://127.0.0.1:9/model.gguf', ['NETWORK']],
  'no address at all': ['http://', ['BAD_ARGUMENT', 'NETWORK', 'SOURCE_NOT_FOUND', 'HTTP_STATUS', 'SOURCE_UNREADABLE', 'SOURCE_NOT_A_MODEL']],
};
for (const [name, [path, codes]] of Object.entries(faults)) {
  test(`${name}: a typed error is shown, and the next load works`, { skip }, async () => {
    await visit();
    await explainUrl(path.startsWith('/') ? server.url + path : path);
    if (await page.locator('#error').isHidden()) {
      await page.waitForFunction(() => !document.querySelector('#load').disabled);
      await load();
    }
    await assertError(codes);
    assert.deepEqual(page.failures, []);
    await assertNextLoadWorks();
  });
}

test('an HTML page first, then the real file at the same address', { skip }, async () => {
  server.faults['/other/model.gguf'] = { body: '<!doctype html><title>Sign in</title>' };
  await visit();
  await explainUrl(`${server.url}/other/model.gguf`);
  await assertError(['SOURCE_NOT_A_MODEL', 'NOT_GGUF']);
  delete server.faults['/other/model.gguf'];
  await explainUrl(`${server.url}/other/model.gguf`);
  await assertLoads();
});

test('a connection cut in mid-download: an error, and loading again works', { skip }, async () => {
  await visit();
  await explainUrl(`${server.url}/other/model.gguf`);
  server.faults['/other/model.gguf'] = { cutAt: 700_000, noRange: true };
  await load();
  await assertError(['NETWORK', 'SOURCE_TRUNCATED', 'SOURCE_CHANGED', 'HTTP_RANGE', 'GGUF_TRUNCATED']);
  delete server.faults['/other/model.gguf'];
  await explainUrl(`${server.url}/other/model.gguf`);
  await assertLoads();
});

test('Cancel aborts a slow load, progress never passes 100 %, and the next load works', { skip }, async () => {
  await visit();
  await explainUrl(`${server.url}/other/model.gguf`);
  server.faults['/other/model.gguf'] = { chunk: 16_000, delay: 15 };
  await page.evaluate(() => {
    globalThis.worst = 0;
    const bar = document.querySelector('#progress');
    new MutationObserver(() => { globalThis.worst = Math.max(globalThis.worst, Number(bar.getAttribute('value') ?? 0)); })
      .observe(bar, { attributes: true });
  });
  await page.click('#load');
  await page.waitForFunction(() => /^[1-9]\d* %/.test(document.querySelector('#progress-text').textContent));
  await page.click('#cancel-load');
  await page.waitForFunction(() => document.body.dataset.state === 'planned');
  assert.match(await text('#load-status'), /cancelled/i);
  assert.ok((await page.evaluate(() => globalThis.worst)) < 1);
  assert.ok(await page.locator('#error').isHidden());
  delete server.faults['/other/model.gguf'];
  await load();
  await state('ready');
  assert.ok((await page.evaluate(() => globalThis.worst)) <= 1);
  assert.deepEqual((await run({ maxTokens: 4 })).ids, expected.tokens.slice(0, 4));
});

test('while a model comes: rate and time left, and a prompt that runs through the layers that are there', { skip }, async () => {
  await visit();
  await explainUrl(`${server.url}/other/model.gguf`);
  server.faults['/other/model.gguf'] = { chunk: 16_000, delay: 20 };
  await page.evaluate(() => {
    globalThis.told = [];
    const text = document.querySelector('#progress-text');
    new MutationObserver(() => globalThis.told.push(text.textContent)).observe(text, { childList: true, characterData: true, subtree: true });
  });
  await page.click('#load');
  await page.waitForFunction(() => document.body.dataset.state === 'loading' && !document.querySelector('#generate').disabled);
  assert.match(await text('#ready-note'), /already/);
  assert.deepEqual((await run({ maxTokens: 4 })).ids, expected.tokens.slice(0, 4));
  const told = await page.evaluate(() => globalThis.told);
  assert.ok(told.some((line) => /^\d+ % of 1\.\d+ MiB, [\d.]+ KiB\/s, (\d+ s|less than a second) left$/.test(line)), told.join('; '));
  const shares = told.flatMap((line) => /^\d+(?= %)/.exec(line) ?? []).map(Number);
  assert.deepEqual(shares, [...shares].sort((a, b) => a - b), 'never backwards');
  assert.equal(shares.at(-1), 100);
  assert.match(await text('#load-status'), /^Loaded/);
  assertQuiet();

  // Cancelled while it generates: the page says so once, and goes on.
  await explainUrl(`${server.url}/other/model.gguf?another=in-the-cache`);
  await page.click('#load');
  await page.waitForFunction(() => document.body.dataset.state === 'loading' && !document.querySelector('#generate').disabled);
  await page.click('#generate');
  await page.click('#cancel-load');
  await page.waitForFunction(() => document.body.dataset.state === 'planned');
  assert.match(await text('#load-status'), /cancelled/i);
  assert.ok(await page.locator('#error').isHidden());
  delete server.faults['/other/model.gguf'];
  await load();
  assert.deepEqual((await run({ maxTokens: 4 })).ids, expected.tokens.slice(0, 4));
});

test('bad requests on the page: a prompt too long, a context too long, nonsense for memory', { skip }, async () => {
  await visit();
  await load();
  await state('ready');
  await page.fill('#prompt', 'and the '.repeat(400));
  await page.click('#generate');
  await assertError('PROMPT_TOO_LONG');
  assert.deepEqual((await run({ maxTokens: 4 })).ids, expected.tokens.slice(0, 4));
  await page.fill('#context', '100000');
  await page.dispatchEvent('#context', 'change');
  await assertError('CONTEXT_TOO_LONG');
  await page.fill('#context', '');
  await page.fill('#memory', 'a lot');
  await page.dispatchEvent('#memory', 'change');
  await assertError('BAD_ARGUMENT');
});

// --- what must not happen ------------------------------------------------------------------

test('the GPU is never touched, and nothing is fetched from elsewhere', { skip }, async () => {
  await page.addInitScript(() => {
    Object.defineProperty(Navigator.prototype, 'gpu', { get() { globalThis.gpuTouched = true; throw new Error('the GPU was touched'); } });
  });
  const elsewhere = [];
  page.on('request', (request) => { if (!request.url().startsWith(server.url)) elsewhere.push(request.url()); });
  await visit();
  await load();
  await state('ready');
  await run({ maxTokens: 4 });
  assert.equal(await page.evaluate(() => globalThis.gpuTouched ?? false), false);
  assert.deepEqual(elsewhere, []);
  // the bundled model: the header for the plan, then the file once
  const { bytes } = server.stats(MODEL);
  assert.ok(bytes <= fs.statSync(BUNDLED).size + 2 * MiB, `${bytes} bytes of the model were sent`);
  assertQuiet();
});

test('a page that is not isolated works too', { skip }, async () => {
  const plain = await startServer(server.mounts, { headers: STRICT_CSP });
  try {
    await page.goto(`${plain.url}/web/`);
    assert.equal(await page.evaluate(() => globalThis.crossOriginIsolated), false);
    await state('planned');
    assert.match(await text('#facts'), /^Threads\s+1$/m);
    assert.match(await text('#warnings'), /^running on 1 thread, because the page is not cross-origin isolated$/m);
    await load();
    await state('ready');
    assert.deepEqual((await run({ maxTokens: 8 })).ids, expected.tokens.slice(0, 8));
    assertQuiet();
  } finally {
    await plain.close();
  }
});

test('phone width: nothing sticks out; all controls have names; the keyboard reaches them', { skip }, async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  await visit();
  await page.click('#tensor-details > summary');
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360);
  const unnamed = await page.evaluate(() => [...document.querySelectorAll('button, input, select, textarea')]
    .filter((e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label'))).map((e) => e.id));
  assert.deepEqual(unnamed, []);
  const reached = new Set();
  for (let i = 0; i < 30; i++) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => document.activeElement?.id ?? ''));
  }
  for (const id of ['use-bundled', 'file', 'url', 'use-url', 'context', 'memory', 'module', 'load', 'prompt']) {
    assert.ok(reached.has(id), `${id} is reached with Tab: ${[...reached]}`);
  }
  await page.focus('#load');
  await page.keyboard.press('Enter');
  await state('ready');
  await page.fill('#max-tokens', '4');
  await page.focus('#prompt');
  await page.keyboard.press('Control+Enter');
  await page.waitForFunction(() => document.querySelector('#token-ids').textContent.split(' ').length === 4);
  assertQuiet();
});
