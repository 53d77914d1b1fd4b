// The model cache where no file can be written: in the Cache API, with the
// same promises as in files.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { startCachePages } from '../lib/cache-page.mjs';
import { chromiumMissing } from '../lib/chromium.mjs';

const skip = await chromiumMissing();
const MiB = 1 << 20;
const EXTENT = 4 * MiB;
const slowly = { chunk: 1 << 16, delay: 8 };

/** Names of all caches of the Cache API, and whether there are files. */
const places = (pages) =>
  pages.inPage(async () => {
    const files = [];
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle('lineal-models', { create: true });
    for await (const name of folder.keys()) files.push(name);
    return { files: files.length, caches: (await caches.keys()).length };
  });

for (const [where, prelude, options, whole] of [
  ['the thread of the page', '', { worker: false }, true],
  ['a worker without synchronous handles', 'delete FileSystemFileHandle.prototype.createSyncAccessHandle', {}, true],
  ['a worker without a private file system', 'delete StorageManager.prototype.getDirectory', {}, false],
]) {
  test(`the Cache API, ${where}`, { skip }, async (t) => {
    const pages = await startCachePages(`cache-api-${where.replaceAll(' ', '-')}`, { prelude });
    t.after(() => pages.close());
    const { site, bytes, expected, inPage, sent } = pages;
    const load = (more = {}) => pages.openInPage({ ...options, ...more });
    const verify = () => inPage(({ modelCache }, url) => modelCache.verify(url));

    await t.test('each byte once, a warm start none, offline too', async () => {
      const cold = await load({ cache: { required: true } });
      assert.deepEqual([cold.tokens, cold.warnings], [expected, []], JSON.stringify(cold));
      assert.equal(sent(), bytes.length);
      assert.deepEqual(await places(pages), { files: 0, caches: 1 });
      site.faults['/m.gguf'] = { status: 503 };
      site.reset();
      for (const more of [{}, { overlap: true }, { cache: { verify: true } }, { overlap: true, cache: { verify: true } }]) {
        const warm = await load(more);
        assert.deepEqual([warm.tokens, warm.from, warm.warnings], [expected, ['cache'], []], JSON.stringify(warm));
      }
      assert.equal(site.stats('/m.gguf').requests, 0);
      delete site.faults['/m.gguf'];
      const [info, ...rest] = await inPage(({ modelCache }) => modelCache.list());
      assert.deepEqual([info.complete, info.size, info.cachedBytes, rest.length], [true, bytes.length, bytes.length, 0]);
      assert.ok(info.lastUsed > Date.now() - 600_000);
      assert.deepEqual((await verify()).damaged, []);
    });

    await t.test('a flipped bit and a lost extent are found, and only they are fetched again', async () => {
      const damage = (how) =>
        inPage(async (_lineal, _url, what) => {
          const [name] = await caches.keys();
          const cache = await caches.open(name);
          for (const { url } of await cache.keys()) {
            const [, start, end] = (/(\d+)-(\d+)$/.exec(url) ?? []).map(Number);
            if (!(start <= 9 * 2 ** 20 && 9 * 2 ** 20 < end)) continue;
            const old = new Uint8Array(await (await cache.match(url)).arrayBuffer());
            old[1000] ^= 16;
            if (what === 'flip') await cache.put(url, new Response(old));
            else await cache.delete(url);
            return end - start;
          }
          return 0;
        }, how);
      for (const [how, cache] of [['flip', { verify: true }], ['lose', true], ['lose', { verify: true }]]) {
        const size = await damage(how);
        assert.ok(size > 0 && size <= EXTENT);
        site.reset();
        const repaired = await load({ cache });
        assert.deepEqual(repaired.tokens, expected, JSON.stringify(repaired));
        assert.deepEqual(repaired.warnings.map(({ code }) => code), ['CACHE_REPAIRED']);
        assert.equal(sent(), size);
        assert.deepEqual((await verify()).damaged, []);
      }
      const size = await damage('flip');
      assert.deepEqual((await verify()).damaged.map((d) => d.bytes), [size]);
      site.reset();
      assert.deepEqual((await load()).tokens, expected);
      assert.equal(sent(), size);
    });

    if (!whole) return;
    await t.test('the browser is killed: the next load goes on, one extent twice at most', async () => {
      assert.equal(await inPage(({ modelCache }, url) => modelCache.delete(url)), true);
      assert.deepEqual(await places(pages), { files: 0, caches: 0 });
      let have = 0;
      for (const [point, overlap] of [[6 * MiB, false], [5.5 * MiB, true]]) {
        site.reset();
        site.faults['/m.gguf'] = slowly;
        const opening = load({ overlap }).catch(() => {}); // the page goes away
        while (sent() < point) await delay(1);
        await pages.kill();
        await opening;
        const fetched = sent();
        await pages.start();
        const info = await inPage(({ modelCache }, url) => modelCache.info(url));
        assert.ok(info.cachedBytes > have && !info.complete);
        assert.ok(fetched - (info.cachedBytes - have) <= EXTENT, `${fetched} bytes for ${info.cachedBytes - have}`);
        have = info.cachedBytes;
      }
      delete site.faults['/m.gguf'];
      site.reset();
      const { tokens } = await load({ cache: { verify: true } });
      assert.deepEqual([tokens, sent()], [expected, bytes.length - have]);
    });

    await t.test('two tabs share one download; no room is told', async () => {
      await inPage(({ modelCache }) => modelCache.clear());
      site.reset();
      site.faults['/m.gguf'] = slowly;
      const other = await pages.visit();
      const both = await Promise.all([load(), pages.openInPage(options, other)]);
      for (const { tokens, warnings, error } of both) assert.deepEqual([tokens, warnings], [expected, []], JSON.stringify(error));
      assert.equal(sent(), bytes.length);
      await other.close();
      await inPage(({ modelCache }) => modelCache.clear());
      delete site.faults['/m.gguf'];
      const session = await pages.page.context().newCDPSession(pages.page);
      await session.send('Storage.overrideQuotaForOrigin', { origin: site.url, quotaSize: 10 * MiB });
      const full = await load();
      assert.deepEqual([full.tokens, full.warnings.map(({ code }) => code)], [expected, ['CACHE_FULL']], JSON.stringify(full));
      assert.equal((await load({ cache: { required: true } })).error.code, 'CACHE_FULL');
      await session.send('Storage.overrideQuotaForOrigin', { origin: site.url });
    });

    await t.test('the storage gets full in the middle: the model opens all the same, and what came is used', async () => {
      const { full, have, again, fetched } = await pages.fillUp(options);
      assert.deepEqual([full.tokens, full.warnings.map(({ code }) => code)], [expected, ['CACHE_FULL']], JSON.stringify(full));
      assert.ok(have >= EXTENT && have < bytes.length, `${have} bytes were kept`);
      assert.deepEqual([again.tokens, again.warnings, fetched], [expected, [], bytes.length - have], JSON.stringify(again));
    });
  });
}

test('a copy that the page made serves its worker too', { skip }, async (t) => {
  const pages = await startCachePages('cache-api-both');
  t.after(() => pages.close());
  const { site, expected, openInPage, sent, inPage } = pages;
  await openInPage({ worker: false });
  site.reset();
  const read = await openInPage();
  assert.deepEqual([read.tokens, read.from, read.warnings, sent()], [expected, ['cache'], [], 0]);
  assert.equal(await inPage(({ modelCache }) => modelCache.clear()), 1);
  assert.deepEqual(await places(pages), { files: 0, caches: 0 });
});

