// The model cache in the browser's private file system: a warm start without a
// request, what a killed browser leaves behind, two tabs, damage, full disks.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { keyOf } from '../../js-glue/store.js';
import { startCachePages } from '../lib/cache-page.mjs';
import { chromiumMissing } from '../lib/chromium.mjs';

const skip = await chromiumMissing();
const MiB = 1 << 20;
const EXTENT = 4 * MiB;
let pages, site, bytes, expected, inPage, openInPage, sent;

before(async () => {
  if (skip) return;
  pages = await startCachePages('cache-profile');
  ({ site, bytes, expected, inPage, openInPage, sent } = pages);
});
after(() => pages?.close());
beforeEach(async () => {
  if (skip) return;
  delete site.faults['/m.gguf'];
  await inPage(({ modelCache }) => modelCache.clear());
  site.reset();
});

const slowly = { chunk: 1 << 16, delay: 2 };

test('by default: each byte once, a warm start none, read straight into memory, offline too', { skip }, async () => {
  const cold = await openInPage();
  assert.deepEqual(cold.tokens, expected, JSON.stringify(cold));
  assert.deepEqual(cold.warnings, []);
  assert.equal(sent(), bytes.length);
  site.reset();
  site.faults['/m.gguf'] = { status: 503 };
  const warm = await openInPage();
  assert.deepEqual(warm.tokens, expected, JSON.stringify(warm));
  assert.deepEqual(warm.from, ['cache']);
  assert.equal(warm.syncRead, true);
  assert.equal(site.stats('/m.gguf').requests, 0);
  const { list, space } = await inPage(async ({ modelCache }) => ({
    list: await modelCache.list(),
    space: (await navigator.storage.estimate()).usage,
  }));
  assert.deepEqual(list.map(({ complete, size }) => [complete, size]), [[true, bytes.length]]);
  assert.ok(space >= bytes.length);
});

test('explain, then open: the header is not fetched again; cache: false keeps nothing', { skip }, async () => {
  await inPage(({ explain }, url) => explain(url).then(() => 0));
  const header = sent();
  assert.ok(header <= 256 * 1024);
  assert.deepEqual((await openInPage()).tokens, expected);
  assert.equal(sent(), bytes.length);
  site.reset();
  assert.deepEqual((await openInPage({ cache: false })).from, ['network']);
  assert.equal(sent(), bytes.length);
});

test('the browser is killed at 10 points of its downloads: the next load goes on, and fetches one extent twice at most', { skip }, async (t) => {
  let have = 0, most = 0;
  for (let i = 0; i < 10; i++) {
    site.reset();
    site.faults['/m.gguf'] = { ...slowly, delay: 4 };
    const point = Math.random() * Math.min(bytes.length - have - MiB, 7 * MiB);
    let ended;
    const opening = openInPage({ overlap: i % 2 === 1 }).then((got) => { ended = got; }, () => {}); // the page goes away
    while (sent() < point && !ended) await delay(1);
    assert.equal(ended, undefined, 'it was killed');
    await pages.kill();
    await opening;
    const fetched = sent();
    await pages.start();
    const [info] = await inPage(({ modelCache }) => modelCache.list());
    const now = info?.cachedBytes ?? 0;
    assert.ok(now >= have, 'what was believed stays');
    assert.ok(!info?.complete);
    most = Math.max(most, fetched - (now - have));
    have = now;
  }
  t.diagnostic(`at most ${(most / MiB).toFixed(2)} MiB that were sent are fetched again`);
  assert.ok(most <= EXTENT, `${most} bytes`);
  site.reset();
  delete site.faults['/m.gguf'];
  const { tokens, from } = await openInPage({ cache: { verify: true } });
  assert.deepEqual(tokens, expected);
  assert.deepEqual(from.sort(), ['cache', 'network']);
  assert.equal(sent(), bytes.length - have);
  assert.deepEqual(await inPage(({ modelCache }, url) => modelCache.verify(url).then(({ damaged }) => damaged)), []);
});

test('the connection is killed for good at random points: the next load goes on, and fetches one extent twice at most', { skip }, async (t) => {
  const paths = Array.from({ length: 6 }, (_, i) => `/die-${i}.gguf`);
  const twice = await Promise.all(paths.map(async (name, i) => {
    site.mounts[name] = bytes;
    site.faults[name] = { dieAt: Math.floor(((i + Math.random()) / paths.length) * bytes.length) };
    const overlap = i % 2 === 1;
    const failed = await openInPage({ overlap }, pages.page, name);
    assert.ok(['NETWORK', 'SOURCE_TRUNCATED', 'GGUF_TRUNCATED'].includes(failed.error?.code), JSON.stringify(failed));
    delete site.faults[name];
    const again = await openInPage({ overlap, cache: { verify: true } }, pages.page, name);
    assert.deepEqual(again.tokens, expected, JSON.stringify(again));
    return site.stats(name).bytes - bytes.length;
  }));
  t.diagnostic(`at most ${(Math.max(...twice) / MiB).toFixed(2)} MiB were fetched twice`);
  assert.ok(Math.min(...twice) >= 0 && Math.max(...twice) <= EXTENT, `${twice}`);
});

test('two tabs share one download, and both read the copy at once', { skip }, async () => {
  site.faults['/m.gguf'] = slowly;
  const other = await pages.visit();
  const both = await Promise.all([openInPage(), openInPage({}, other)]);
  for (const { tokens, error } of both) assert.deepEqual(tokens, expected, JSON.stringify(error));
  assert.equal(sent(), bytes.length);
  site.reset();
  const warm = await Promise.all([openInPage(), openInPage({}, other)]);
  for (const { tokens, from } of warm) assert.deepEqual([tokens, from], [expected, ['cache']]);
  assert.equal(sent(), 0);
  await other.close();
});

test('a flipped bit: found by verify and by load with the option; only its extent is fetched', { skip }, async () => {
  await openInPage();
  const flip = () =>
    inPage(async ({ modelCache }) => {
      const [{ key }] = await modelCache.list();
      const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('lineal-models');
      const file = await (await root.getDirectoryHandle(key)).getFileHandle('content');
      const at = 9 * 2 ** 20;
      const [byte] = new Uint8Array(await (await file.getFile()).slice(at, at + 1).arrayBuffer());
      const writable = await file.createWritable({ keepExistingData: true });
      await writable.write({ type: 'write', position: at, data: new Uint8Array([byte ^ 16]) });
      await writable.close();
      return key;
    });
  await flip();
  site.reset();
  const repaired = await openInPage({ cache: { verify: true } });
  assert.deepEqual(repaired.tokens, expected, JSON.stringify(repaired));
  assert.deepEqual(repaired.warnings.map(({ code }) => code), ['CACHE_REPAIRED']);
  assert.ok(sent() > 0 && sent() <= EXTENT, `${sent()} bytes`);
  const key = await flip();
  const { damaged } = await inPage(({ modelCache }, _url, which) => modelCache.verify(which), key);
  assert.equal(damaged.length, 1);
  site.reset();
  assert.deepEqual((await openInPage()).tokens, expected);
  assert.ok(sent() > 0 && sent() <= EXTENT, `${sent()} bytes`);
  const state = await inPage(async ({ modelCache }, url) => ({
    left: (await modelCache.verify(url)).damaged,
    gone: await modelCache.delete(url),
    info: (await modelCache.info(url)) ?? null,
  }));
  assert.deepEqual(state, { left: [], gone: true, info: null });
});

test('sha256 is compared in the browser too', { skip }, async () => {
  const wrong = await openInPage({ cache: { sha256: '0'.repeat(64) } });
  assert.equal(wrong.error.code, 'SOURCE_CHECKSUM');
  assert.equal(wrong.error.detail.actual, createHash('sha256').update(bytes).digest('hex'));
  assert.equal(site.stats('/dist/lineal-sha256.wasm').requests, 1, 'by the module');
  const right = await openInPage({ cache: { sha256: wrong.error.detail.actual } });
  assert.deepEqual(right.tokens, expected, JSON.stringify(right));
});

test('a SHA-256 that the server states is compared where verify is asked for', { skip }, async () => {
  site.faults['/m.gguf'] = { headers: { 'X-Linked-ETag': `"${'5'.repeat(64)}"` } };
  assert.deepEqual((await openInPage()).tokens, expected);
  await inPage(({ modelCache }) => modelCache.clear());
  assert.equal((await openInPage({ cache: { verify: true } })).error?.code, 'SOURCE_CHECKSUM');
  const sum = createHash('sha256').update(bytes).digest('hex');
  site.faults['/m.gguf'] = { headers: { 'X-Linked-ETag': `"${sum}"` } };
  assert.deepEqual((await openInPage({ cache: { verify: true } })).tokens, expected);
  assert.equal((await inPage(({ modelCache }) => modelCache.list()))[0].sha256, sum);
});

test('a page that cannot write files reads a copy that is there', { skip }, async () => {
  await openInPage();
  site.reset();
  const read = await openInPage({ worker: false });
  assert.deepEqual([read.tokens, read.from, read.warnings, sent()], [expected, ['cache'], [], 0]);
});

test('the storage gets full in the middle: the model opens all the same, and what came is used', { skip }, async () => {
  for (const overlap of [false, true]) {
    const { full, have, again, fetched } = await pages.fillUp({ overlap });
    assert.deepEqual([full.tokens, full.warnings.map(({ code }) => code)], [expected, ['CACHE_FULL']], JSON.stringify(full));
    assert.ok(have >= EXTENT && have < bytes.length, `${have} bytes were kept`);
    assert.deepEqual([again.tokens, again.warnings], [expected, []], JSON.stringify(again));
    assert.equal(fetched, bytes.length - have);
  }
});

test('a tab that has the right to write and does nothing: after a short wait the model comes past it', { skip }, async () => {
  const key = await keyOf(`${site.url}/m.gguf`);
  const other = await pages.visit();
  await other.evaluate(`new Promise((resolve) => {
    navigator.locks.request('lineal-models:${key}', () => { resolve(); return new Promise(() => {}); });
  })`);
  const past = await openInPage();
  assert.deepEqual(past.tokens, expected, JSON.stringify(past));
  assert.deepEqual(past.warnings.map(({ code }) => code), ['CACHE_BUSY']);
  assert.deepEqual(past.from, ['network']);
  assert.ok(past.ms > 5500, `${past.ms} ms`);
  assert.deepEqual(await inPage(({ modelCache }) => modelCache.list()), []);
  await other.close();
  site.reset();
  const kept = await openInPage();
  assert.deepEqual([kept.tokens, kept.warnings, sent()], [expected, [], bytes.length], JSON.stringify(kept));
});

test('entries of the folder that are not of the cache are passed over and left alone', { skip }, async () => {
  await openInPage();
  const key = await keyOf(`${site.url}/other.gguf`);
  site.mounts['/other.gguf'] = bytes;
  const made = await inPage(async ({ modelCache }, url, mine) => {
    const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('lineal-models');
    const folder = (name) => root.getDirectoryHandle(name, { create: true });
    await root.getFileHandle('f'.repeat(32), { create: true });
    await (await folder('e'.repeat(32))).getDirectoryHandle('manifest', { create: true });
    await (await folder(mine)).getDirectoryHandle('content', { create: true });
    await root.getFileHandle('notes', { create: true });
    await folder('d'.repeat(32)); // of a download that was killed at its beginning
    const codeOf = (promise) => promise.then((value) => value ?? null, ({ code }) => code);
    const list = (await modelCache.list()).map(({ complete }) => complete);
    const of = [];
    for (const name of ['e', 'f'].map((digit) => digit.repeat(32)))
      of.push(await codeOf(modelCache.info(name)), await codeOf(modelCache.delete(name)), await codeOf(modelCache.verify(name)));
    return { list, of };
  }, key);
  assert.deepEqual(made.list, [true]);
  assert.deepEqual(made.of, [null, false, 'SOURCE_NOT_FOUND', null, false, 'SOURCE_NOT_FOUND']);
  const uncached = await openInPage({}, pages.page, '/other.gguf');
  assert.deepEqual([uncached.tokens, uncached.warnings.map(({ code }) => code)], [expected, ['CACHE_UNAVAILABLE']], JSON.stringify(uncached));
  const left = await inPage(async ({ modelCache }) => {
    const removed = await modelCache.clear();
    const root = await (await navigator.storage.getDirectory()).getDirectoryHandle('lineal-models');
    const names = [];
    for await (const name of root.keys()) names.push(name);
    for (const name of names) await root.removeEntry(name, { recursive: true });
    return { removed, names: names.sort() };
  });
  assert.deepEqual(left, { removed: 2, names: [key, 'e'.repeat(32), 'f'.repeat(32), 'notes'].sort() });
});

test('maxBytes in the browser: what is open in a tab is not evicted', { skip }, async () => {
  const names = ['/1.gguf', '/2.gguf', '/3.gguf'];
  for (const name of names) site.mounts[name] = bytes;
  const maxBytes = bytes.length * 2.5;
  const there = () => inPage(async ({ modelCache }) => (await modelCache.list()).map(({ name }) => new URL(name).pathname).sort());
  for (const name of names) assert.deepEqual((await openInPage({ cache: { maxBytes } }, pages.page, name)).warnings, []);
  assert.deepEqual(await there(), ['/2.gguf', '/3.gguf'], 'the least recently used went');
  const other = await pages.visit();
  await other.evaluate(`(async () => {
    const { open } = await import('/js-glue/index.js');
    globalThis.opened = await open(new URL('/2.gguf', location.href), { context: 64 });
  })()`);
  await inPage(async ({ open: openModel }) => (await openModel(new URL('/3.gguf', location.href), { context: 64 })).close());
  assert.deepEqual((await openInPage({ cache: { maxBytes } }, pages.page, '/1.gguf')).warnings, []);
  assert.deepEqual(await there(), ['/1.gguf', '/2.gguf']);
  await other.close();
});

test('no room: it runs all the same, or tells how much was needed', { skip }, async () => {
  const session = await pages.page.context().newCDPSession(pages.page);
  await session.send('Storage.overrideQuotaForOrigin', { origin: site.url, quotaSize: 10 * MiB });
  const full = await openInPage();
  assert.deepEqual(full.tokens, expected, JSON.stringify(full));
  assert.deepEqual(full.warnings.map(({ code }) => code), ['CACHE_FULL']);
  const { error } = await openInPage({ cache: { required: true } });
  await session.send('Storage.overrideQuotaForOrigin', { origin: site.url });
  assert.equal(error.code, 'CACHE_FULL');
  // What browsers say is free is not what they give.
  assert.ok(error.detail.needed_bytes > 0 && error.detail.available_bytes >= 0, JSON.stringify(error));
});
