// `npm run web` as it is started, in headless Chromium: the page loads the bundled model and generates, with
// threads where it is cross-origin isolated, and says why where it is not.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { drive } from '../lib/demo-page.mjs';
import { startDemoSite } from '../lib/demo-site.mjs';
import { BUNDLED, generate } from '../lib/fixtures.mjs';

const skip = await chromiumMissing();
const PROMPT = 'In the beginning';
/** Another name of this machine: over http not secure, and so never isolated. */
const ELSEWHERE = 'elsewhere.test';
let site, browser, expected;

before(async () => {
  if (skip) return;
  site = await startDemoSite();
  browser = await startChromium({ args: [`--host-resolver-rules=MAP ${ELSEWHERE} 127.0.0.1`] });
  const model = await open(BUNDLED, { module: 'base' });
  expected = (await generate(model, PROMPT, { maxTokens: 24 })).result;
  await model.close();
});
after(async () => {
  await browser?.close();
  site?.close();
});

/** Plans, loads, generates; what the page says and what went wrong with it. */
async function visit(url) {
  const page = await browser.newPage();
  const refused = [];
  page.on('response', (response) => { if (response.status() >= 400) refused.push(`${response.status()} ${response.url()}`); });
  page.on('requestfailed', (request) => {
    const { errorText } = request.failure();
    if (errorText !== 'net::ERR_ABORTED') refused.push(`${errorText} ${request.url()}`); // that was the page's own wish
  });
  const { settled, state, text, load, run } = drive(page);
  await page.goto(url);
  await settled();
  const facts = await text('#facts');
  await load();
  await state('ready');
  const { text: written, ids } = await run({ prompt: PROMPT });
  const out = {
    facts, written, ids, refused,
    verdict: await text('#verdict'),
    warnings: await text('#warnings'),
    host: await text('#host'),
    isolated: await page.evaluate(() => globalThis.crossOriginIsolated),
    cores: await page.evaluate(() => navigator.hardwareConcurrency),
    loud: page.messages.filter(({ type }) => ['error', 'warning'].includes(type)).map((message) => message.text),
    failures: page.failures,
  };
  await page.close();
  return out;
}

test('the address that it prints: isolated, threads, the text, a quiet console', { skip }, async () => {
  assert.match(site.url, /^http:\/\/127\.0\.0\.1:\d+\/web\/$/);
  const out = await visit(site.url);
  assert.equal(out.verdict, 'Fits');
  assert.deepEqual([out.written, out.ids], [expected.text, [...expected.tokens]]);
  assert.equal(out.isolated, true);
  const threads = Number(/^Threads\s+(\d+)/m.exec(out.facts)[1]);
  assert.equal(threads > 1, out.cores > 1, out.facts);
  assert.doesNotMatch(out.host + out.warnings, /isolated/);
  assert.deepEqual([out.loud, out.failures, out.refused], [[], [], []]);
});

test('by another name, over http: one thread, the page says why, and the text is the same', { skip }, async () => {
  const out = await visit(site.url.replace('127.0.0.1', ELSEWHERE));
  assert.equal(out.isolated, false);
  assert.match(out.facts, /^Threads\s+1$/m);
  assert.match(out.warnings, /^running on 1 thread, because the page is not cross-origin isolated: that takes https, or the name localhost$/m);
  assert.match(out.host, /not isolated: 1 thread/);
  assert.deepEqual([out.written, out.ids], [expected.text, [...expected.tokens]]);
  assert.deepEqual([out.failures, out.refused], [[], []]);
  // The browser itself says that the headers count for nothing there.
  assert.deepEqual(out.loud.filter((line) => !/Cross-Origin-Opener-Policy/.test(line)), []);
});
