// One page and servers that misbehave, and after each the page loads a good
// model from the same address; a prompt that overlaps its download; files that are
// chosen, dropped or streamed.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { BUNDLED } from '../lib/fixtures.mjs';
import { startServer } from '../lib/http-server.mjs';
import { openBlank, startSite } from '../lib/site.mjs';

const skip = await chromiumMissing();
const TOKENS = [271, 261, 345, 981];
const BLANK = Buffer.from('<!doctype html><title>blank</title><input type="file" id="file" multiple>');
let site, other, browser, page;

before(async () => {
  if (skip) return;
  site = await startSite({ '/blank.html': BLANK, '/m.gguf': BUNDLED });
  other = await startServer({ '/m.gguf': BUNDLED });
  browser = await startChromium();
  page = await openBlank(browser, site);
  await page.evaluate(async () => {
    const { open } = await import('/js-glue/index.js');
    globalThis.tokensOf = async (source, options) => {
      try {
        const model = await open(source, { context: 64, cache: false, ...options });
        try {
          return (await model.generate('In the beginning', { maxTokens: 4 }).done).tokens;
        } finally {
          await model.close();
        }
      } catch (error) {
        return { code: error.code, message: error.message, remedy: error.remedy };
      }
    };
  });
});
after(async () => {
  await browser?.close();
  await site?.close();
  await other?.close();
});

const tokensOf = (url, options = {}) =>
  page.evaluate(([address, how]) => globalThis.tokensOf(address, how), [url, options]);

test('misbehaving servers in one page: an error or the model, and then the model', { skip }, async () => {
  const cut = (_request, attempt) => (attempt < 3 ? { cutAt: 1000 * attempt } : {});
  const cases = [
    ['401', { status: 401 }, 'HTTP_STATUS'],
    ['403', { status: 403 }, 'HTTP_STATUS'],
    ['404', { status: 404 }, 'SOURCE_NOT_FOUND'],
    ['503', { status: 503 }, 'HTTP_STATUS'],
    ['429', { status: 429 }, 'HTTP_STATUS'],
    ['a page', { body: '<!doctype html><p>sign in' }, 'NOT_GGUF'],
    ['another range', { contentRange: 'bytes 9-200/5000000' }, 'HTTP_RANGE'],
    ['a circle', (request) => ({ redirect: request.url }), 'NETWORK'],
    ['another version', (_request, attempt) => ({ etag: `"${attempt}"` }), 'SOURCE_CHANGED'],
    ['stalls', { stallAt: 1000 }, 'NETWORK_TIMEOUT', { fetch: { timeoutMs: 200 } }],
    ['a Content-Length that is too small', { promise: -1000, noRange: true }, 'GGUF_TRUNCATED'],
    // Chromium drops what it has not handed out yet when the connection ends too early: a matter of luck.
    ['a Content-Length that is too large', { promise: 1000, noRange: true }, { tokensOr: 'NETWORK' }],
    ['no Content-Length', { noLength: true, noRange: true }, TOKENS],
    ['no Content-Length, of ranges', { noLength: true }, TOKENS],
    ['the whole file for a range, once', (_request, attempt) => (attempt === 1 ? { noRange: true } : {}), TOKENS],
    ['429 once, with Retry-After', (_request, attempt) => (attempt === 0 ? { status: 429, headers: { 'Retry-After': '0' } } : {}), TOKENS],
    ['502 in the weights', (_request, attempt) => (attempt === 1 ? { status: 502 } : {}), TOKENS],
    ['redirected', { redirect: '/m.gguf' }, TOKENS],
    ['no Range', { noRange: true }, TOKENS],
    ['compressed', { gzip: true }, TOKENS],
    ['cut', cut, TOKENS],
    ['cut after each 300 KB', { cutAt: 300_000 }, TOKENS],
    ['cut after each 100 KB', { cutAt: 100_000 }, TOKENS],
    ['cut after each 20 KB', { cutAt: 20_000 }, TOKENS],
    ['closed before the first answer', (_request, attempt) => (attempt < 2 ? { drop: true } : {}), TOKENS],
    ['stalls once', (_request, attempt) => (attempt === 0 ? { stallAt: 1000 } : {}), TOKENS, { fetch: { timeoutMs: 600 } }],
  ].flatMap((one) => [[false, ...one], [true, ...one]]);
  // Each at an address of its own, a few at a time: most of them wait.
  let next = 0;
  const work = async () => {
    for (let i = next++; i < cases.length; i = next++) {
      const [overlap, name, fault, expected, options] = cases[i];
      const address = `/case-${i}.gguf`;
      site.mounts[address] = BUNDLED;
      site.faults[address] = fault;
      const got = await tokensOf(address, { overlap, ...options });
      delete site.faults[address];
      if (typeof expected === 'string') {
        assert.equal(got.code, expected, `${name}: ${JSON.stringify(got)}`);
        assert.notEqual(got.remedy, '', name);
      } else if (expected.tokensOr === undefined || got.code !== expected.tokensOr) {
        assert.deepEqual(got, TOKENS, name);
      }
      assert.deepEqual(await tokensOf(address, { overlap }), TOKENS, `after ${name}`);
    }
  };
  await Promise.all([work(), work(), work()]);
});

test('another origin: refused with a word on CORS, allowed through a redirect, no header of the user', { skip }, async () => {
  const refused = await tokensOf(`${other.url}/m.gguf`);
  assert.equal(refused.code, 'NETWORK');
  assert.match(refused.message, /CORS/);
  other.reset();
  site.reset();
  other.faults['/m.gguf'] = { headers: { 'Access-Control-Allow-Origin': '*' } };
  site.faults['/m.gguf'] = { redirect: `${other.url}/m.gguf` };
  const got = await tokensOf('/m.gguf', { overlap: true, fetch: { headers: { Authorization: 'Bearer hunter2' } } });
  delete site.faults['/m.gguf'];
  delete other.faults['/m.gguf'];
  assert.deepEqual(got, TOKENS, JSON.stringify(got));
  assert.equal(site.stats('/m.gguf').requests, 1);
  const { ranges } = other.stats('/m.gguf');
  assert.ok(ranges.length >= 2);
  assert.ok(ranges.every(({ headers }) => headers.authorization === undefined));
});

test('a FileList, a ReadableStream and a file handle of the origin private file system', { skip }, async () => {
  await page.setInputFiles('#file', BUNDLED);
  const out = await page.evaluate(async () => {
    const { files } = document.querySelector('#file');
    const root = await navigator.storage.getDirectory();
    const handle = await root.getFileHandle('m.gguf', { create: true });
    const writable = await handle.createWritable();
    await writable.write(files[0]);
    await writable.close();
    return {
      list: await globalThis.tokensOf(files),
      stream: await globalThis.tokensOf(files[0].stream(), { overlap: true }),
      handle: await globalThis.tokensOf(handle),
    };
  });
  assert.deepEqual(out, { list: TOKENS, stream: TOKENS, handle: TOKENS });
});
