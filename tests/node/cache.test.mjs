// The model cache in a directory: each byte fetched once, resumed after any
// end, never poisoned, repaired where damaged; and its command line.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { CachedSource } from '../../js-glue/cache.js';
import {
  EXTENT_BYTES, addExtent, dropLine, extentLine, headerLine, holes, parseManifest, wholeLine,
} from '../../js-glue/cache-manifest.js';
import { explain, inspect, modelCache, open } from '../../js-glue/index.js';
import { cacheOptions } from '../../js-glue/options.js';
import { Sha256, wasmBlocks } from '../../js-glue/sha256.js';
import { HttpSource } from '../../js-glue/source-http.js';
import { directoryStore } from '../../js-glue/store-node.js';
import { keyOf } from '../../js-glue/store.js';
import { BUNDLED, CLI, ROOT, generate, temporary } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';
import { startServer } from '../lib/http-server.mjs';

const MiB = 1 << 20;
const CHILD = new URL('../lib/cache-child.mjs', import.meta.url).pathname;
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

/** Looks like a model to a source, not to the core. */
const DATA = Buffer.alloc(22 * MiB + 12345);
for (let i = 0, x = 1; i + 4 <= DATA.length; i += 4) {
  x = (Math.imul(x, 1664525) + 1013904223) | 0;
  DATA.writeInt32LE(x, i);
}
DATA.write('GGUF');
const MODEL = fs.readFileSync(BUNDLED);

let server, url, directory;
before(async () => {
  server = await startServer({ '/data.gguf': DATA, '/kjv.gguf': BUNDLED });
  url = `${server.url}/data.gguf`;
});
after(() => server.close());
beforeEach(() => {
  server.reset();
  for (const name of Object.keys(server.faults)) delete server.faults[name];
  directory = temporary(`cache-${randomUUID()}`);
});

const sent = (name = '/data.gguf') => server.stats(name).bytes;
const settings = (more = {}) => cacheOptions({ directory, ...more });

async function cached(more = {}, { address = url, store = directoryStore(directory) } = {}) {
  return CachedSource.open(new HttpSource(address), store, settings(more), { url: address });
}

/** Reads from `from` to `to` as the loader does: the header, then on and on. */
async function readThrough(source, { from = 0, to = Infinity, whole = true } = {}) {
  const parts = [];
  for (let at = from; at < to;) {
    let bytes;
    if (source.readSync) {
      bytes = new Uint8Array(Math.min(MiB, to - at));
      bytes = bytes.subarray(0, source.readSync(at, bytes));
    } else {
      bytes = await (at === 0 ? source.read(0, Math.min(256 * 1024, to)) : source.readForward(at, Math.min(MiB, to - at)));
    }
    if (bytes.length === 0) break;
    parts.push(Buffer.from(bytes));
    if (at === 0) await source.confirm();
    at += bytes.length;
  }
  if (whole) await source.finish();
  return Buffer.concat(parts);
}

/** As readThrough with a source of its own, closed: { bytes, warnings }. */
async function readOnce(more, how, where) {
  const source = await cached(more, where);
  try {
    return { bytes: await readThrough(source, how), warnings: source.warnings, straight: Boolean(source.readSync) };
  } finally {
    await source.close();
  }
}

const contentFile = async (address = url) => path.join(directory, await keyOf(address), 'content');

// --- parts by themselves ------------------------------------------------------------

test('journal: what is whole is believed, in any order; torn and damaged lines are not', () => {
  const header = { id: 'a', name: 'n', size: 100, created: 5 };
  const first = { start: 0, end: 40, hash: 'x' };
  const last = { start: 70, end: 100, hash: 'y' };
  const text = headerLine(header) + extentLine(last) + extentLine(first);
  assert.deepEqual(parseManifest(text).extents, [first, last]);
  for (let cut = 0; cut < text.length; cut++) {
    const found = parseManifest(text.slice(0, cut));
    assert.ok((found?.extents.length ?? 0) <= 2);
    // What follows a torn line stands after a line break, and is read.
    if (found) assert.ok(parseManifest(`${text.slice(0, cut)}\n${extentLine(first)}`).extents.some((e) => e.start === 0));
  }
  const damaged = Buffer.from(text);
  damaged[text.length - 20] ^= 1;
  assert.deepEqual(parseManifest(damaged.toString()).extents, [last]);
  assert.deepEqual(parseManifest(text + dropLine(first)).extents, [last]);
  assert.equal(parseManifest(text + wholeLine('z')).sha256, 'z');
  assert.equal(parseManifest(text + wholeLine('z') + dropLine(first)).sha256, undefined);
  assert.equal(parseManifest(extentLine(first)), undefined);
  assert.deepEqual(holes([first, last], 10, 100), [{ start: 40, end: 70 }]);
  assert.equal(addExtent([first, last], { start: 30, end: 50, hash: '' }), false);
});

test('SHA-256 in JavaScript is SHA-256, and by the module too', async () => {
  const module = fs.readFileSync(path.join(ROOT, 'dist/lineal-sha256.wasm'));
  const fast = await wasmBlocks(module);
  for (const blocks of [undefined, fast]) for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 65_536, 100_001, 300_000]) {
    const hash = new Sha256(blocks);
    for (let at = 0, step = 1; at < length; at += step, step = (step * 7) % 97 || 1) hash.update(DATA.subarray(at, Math.min(at + step, length)));
    assert.equal(hash.digest(), sha256(DATA.subarray(0, length)), `${length} bytes`);
  }
});

test('lock: one at a time; what a dead process left is taken over', async () => {
  const entry = directoryStore(directory).entry('0'.repeat(32));
  const file = path.join(directory, `${'0'.repeat(32)}.lock`);
  const unlock = await entry.lock();
  assert.ok(unlock);
  assert.equal(await entry.lock(), undefined);
  await unlock();
  assert.equal(fs.existsSync(file), false);
  const mine = { host: (await import('node:os')).hostname(), id: 'x' };
  const { pid } = spawnSync(process.execPath, ['-e', '0']);
  const left = [
    JSON.stringify({ ...mine, pid, started: 0 }), // ended
    JSON.stringify({ ...mine, pid: process.pid, started: 1000 }), // another of our id, in a container
  ];
  for (const text of left) {
    fs.writeFileSync(file, text);
    const again = await entry.lock();
    assert.ok(again, text);
    await again();
  }
  fs.writeFileSync(file, JSON.stringify({ ...mine, host: 'another', pid: 1, started: 0 }));
  assert.equal(await entry.lock(), undefined, 'of another machine, and alive');
  fs.utimesSync(file, new Date(0), new Date(0));
  await (await entry.lock())();
});

// --- models ---------------------------------------------------------------------------

test('open: each byte is fetched once, headers included; a warm start fetches none, offline too', async () => {
  const alone = await startServer({ '/kjv.gguf': BUNDLED });
  const address = `${alone.url}/kjv.gguf?key=secret`;
  const options = { cache: directory, context: 64 };
  await explain(address, options);
  const seen = [];
  const cold = await open(address, { ...options, onProgress: (p) => p.loaded && seen.push(p.from) });
  const { tokens } = (await generate(cold, 'In the beginning', { maxTokens: 8 })).result;
  await cold.close();
  assert.equal(alone.stats('/kjv.gguf').bytes, MODEL.length);
  assert.ok(seen.includes('network'));
  const [info] = await modelCache.list({ directory });
  assert.ok(info.complete);
  assert.equal(info.size, MODEL.length);
  assert.doesNotMatch(JSON.stringify(info), /secret/);
  await alone.close();
  seen.length = 0;
  const warm = await open(address, { ...options, onProgress: (p) => p.loaded && seen.push(p.from) });
  assert.deepEqual((await generate(warm, 'In the beginning', { maxTokens: 8 })).result.tokens, tokens);
  assert.deepEqual(new Set(seen), new Set(['cache']));
  assert.equal(warm.explanation.host.sync_read, true);
  assert.deepEqual(warm.explanation.warnings.filter(({ code }) => code.startsWith('CACHE')), []);
  assert.equal(warm.explanation.source.cached_bytes, warm.explanation.source.bytes_read);
  await warm.close();
  assert.deepEqual(fs.readFileSync(await contentFile(address)), MODEL);
});

test('in a worker too; and without the option Node keeps nothing', async () => {
  const address = `${server.url}/kjv.gguf`;
  for (const requests of [true, false]) {
    server.reset();
    const model = await open(address, { cache: { directory, verify: true }, worker: true, context: 64 });
    await model.close();
    assert.equal(server.stats('/kjv.gguf').requests > 0, requests);
  }
  const model = await open(address, { context: 64 });
  await model.close();
  assert.equal(sent('/kjv.gguf'), MODEL.length);
});

test('a page, a cut file, a file that is no model: nothing is believed, and the next load works', async () => {
  const address = `${server.url}/kjv.gguf`;
  const options = { cache: directory, context: 64 };
  const wrong = Buffer.from(MODEL);
  wrong.fill(255, 8, 24);
  for (const fault of [
    { body: '<!doctype html><title>Sign in</title>' },
    { body: wrong, type: 'application/octet-stream' },
    { truncateAt: 900_000 },
    { status: 503 },
    { status: 404 },
  ]) {
    server.faults['/kjv.gguf'] = fault;
    await assert.rejects(open(address, options), { name: 'LinealError' });
    if (!fault.truncateAt) assert.deepEqual(await modelCache.list({ directory }), []);
  }
  delete server.faults['/kjv.gguf'];
  const model = await open(address, options);
  assert.equal((await generate(model, 'In the beginning', { maxTokens: 5 })).text, ' of the LORD, and');
  await model.close();
  assert.deepEqual(fs.readFileSync(await contentFile(address)), MODEL);
});

// --- resuming ---------------------------------------------------------------------------

/** The child process: { child, at(): how far it is, done: what it says at its end }. */
function download() {
  const child = spawn(process.execPath, [CHILD, url, directory], { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.on('data', (data) => { out += data; });
  const lines = () => out.split('\n').slice(0, -1);
  return {
    child,
    at: () => Number(lines().at(-1) ?? 0),
    done: new Promise((resolve) => {
      child.on('close', (code) => resolve(code === 0 ? JSON.parse(lines().at(-1)) : undefined));
    }),
  };
}

test('killed at 10 random points, it goes on at the last extent each time', async (t) => {
  server.faults['/data.gguf'] = { chunk: 1 << 16, delay: 1, etag: '"1"' };
  let have = 0;
  let most = 0;
  for (let i = 0; i < 10; i++) {
    const { child, at, done } = download();
    const until = have + Math.random() * Math.min(DATA.length - MiB - have, 7 * MiB);
    while (at() < until && child.exitCode === null) await delay(1);
    child.kill('SIGKILL');
    assert.equal(await done, undefined, 'it was killed');
    const [info] = await modelCache.list({ directory });
    const now = info?.cachedBytes ?? 0;
    assert.ok(now >= have, 'what was believed stays');
    most = Math.max(most, at() - now);
    have = now;
  }
  t.diagnostic(`at most ${(most / MiB).toFixed(2)} MiB that had come are fetched again`);
  assert.ok(most <= EXTENT_BYTES, `${most} bytes`);
  server.reset();
  const { sha256: sum, warnings } = await download().done;
  assert.equal(sum, sha256(DATA));
  assert.deepEqual(warnings, []);
  assert.equal(sent(), DATA.length - have);
  assert.equal((await modelCache.verify(url, { directory })).damaged.length, 0);
});

test('the connection is killed for good at 20 random points: the next load goes on, verified, one extent twice at most', async (t) => {
  const model = ggufBytes(tinyLlama({ n_ctx: 64, d_model: 256, n_head: 4, d_ff: 1024, n_layer: 3, n_vocab: 288 }));
  assert.ok(model.length > 2 * EXTENT_BYTES);
  const alone = await startServer({});
  const tokensOf = async (source, options = {}) => {
    const opened = await open(source, { context: 64, ...options });
    try {
      return (await generate(opened, 'the rest', { maxTokens: 4 })).result.tokens;
    } finally {
      await opened.close();
    }
  };
  const expected = await tokensOf(model);
  const twice = await Promise.all(Array.from({ length: 20 }, async (_, i) => {
    const name = `/${i}.gguf`;
    alone.mounts[name] = model;
    alone.faults[name] = { dieAt: Math.floor(((i + Math.random()) / 20) * model.length) };
    const options = { overlap: i % 2 === 1, cache: { directory, required: true } };
    await assert.rejects(tokensOf(alone.url + name, options),
      ({ code }) => ['NETWORK', 'SOURCE_TRUNCATED', 'GGUF_TRUNCATED'].includes(code));
    delete alone.faults[name];
    options.cache.verify = true;
    assert.deepEqual(await tokensOf(alone.url + name, options), expected);
    const { damaged, checkedBytes } = await modelCache.verify(alone.url + name, { directory });
    assert.deepEqual([damaged, checkedBytes], [[], model.length]);
    return alone.stats(name).bytes - model.length;
  }));
  await alone.close();
  t.diagnostic(`at most ${(Math.max(...twice) / MiB).toFixed(2)} MiB were fetched twice`);
  assert.ok(Math.min(...twice) >= 0 && Math.max(...twice) <= EXTENT_BYTES, `${twice}`);
});

test('connections cut at many points and aborts: each byte is on disk but once', async () => {
  let attempts = 0;
  server.faults['/data.gguf'] = () => (attempts++ % 2 === 1 ? { cutAt: 3_000_000, etag: '"1"' } : { etag: '"1"' });
  for (let to = 3 * MiB; to < DATA.length; to += 7 * MiB) await readOnce({}, { to, whole: false });
  const { bytes } = await readOnce();
  assert.equal(sha256(bytes), sha256(DATA));
  assert.equal((await modelCache.info(url, { directory })).complete, true);
  server.reset();
  const warm = await readOnce();
  assert.ok(warm.straight);
  assert.equal(sha256(warm.bytes), sha256(DATA));
  assert.equal(server.stats('/data.gguf').requests, 0);
});

test('any order of reads makes a whole copy', async () => {
  const source = await cached();
  await source.read(0, 256 * 1024);
  await source.confirm();
  for (const at of [15 * MiB, 3 * MiB + 7, 20 * MiB, 9 * MiB]) {
    const bytes = await source.readForward(at, MiB);
    assert.deepEqual(Buffer.from(bytes), DATA.subarray(at, at + bytes.length));
  }
  // Several at once, some over each other.
  const places = [5, 5.5, 1, 6, 18, 0.5, 12, 5.75].map((n) => n * MiB);
  const several = await Promise.all(places.map((at) => source.read(at, MiB)));
  several.forEach((bytes, i) => {
    assert.ok(bytes.length > 0);
    assert.deepEqual(Buffer.from(bytes), DATA.subarray(places[i], places[i] + bytes.length));
  });
  assert.equal(sha256(await readThrough(source)), sha256(DATA));
  await source.close();
  assert.deepEqual(fs.readFileSync(await contentFile()), DATA);
  assert.equal((await modelCache.info(url, { directory })).complete, true);
  const asked = server.stats('/data.gguf').ranges.filter(({ range }) => !range.endsWith('-'));
  const once = asked.reduce((sum, { sent: n }) => sum + n, 0);
  assert.ok(once <= DATA.length, `${once} bytes by ranges`);
});

test('servers without Range, or without a length', async () => {
  server.faults['/data.gguf'] = { noRange: true };
  await readOnce({}, { to: 6 * MiB, whole: false });
  assert.equal(sha256((await readOnce()).bytes), sha256(DATA));
  server.reset();
  assert.equal(sha256((await readOnce()).bytes), sha256(DATA));
  assert.equal(sent(), 0);
  directory = temporary(`cache-${randomUUID()}`);
  server.faults['/data.gguf'] = { noRange: true, noLength: true };
  const { bytes, warnings } = await readOnce();
  assert.equal(sha256(bytes), sha256(DATA));
  assert.match(warnings[0].text, /how long/);
  assert.deepEqual(await modelCache.list({ directory }), []);
  await assert.rejects(readOnce({ required: true }), { code: 'CACHE_UNAVAILABLE' });
});

// --- damage and change ---------------------------------------------------------------------

async function flip(at) {
  const fd = fs.openSync(await contentFile(), 'r+');
  const byte = Buffer.alloc(1);
  fs.readSync(fd, byte, 0, 1, at);
  byte[0] ^= 4;
  fs.writeSync(fd, byte, 0, 1, at);
  fs.closeSync(fd);
}

test('a flipped bit is found by verify, and by a load with the option on; only its extent is fetched', async () => {
  await readOnce();
  for (const how of ['load', 'command']) {
    await flip(9 * MiB + 77);
    if (how === 'command') {
      const { damaged } = await modelCache.verify(url, { directory });
      assert.equal(damaged.length, 1);
      assert.ok(damaged[0].offset <= 9 * MiB && damaged[0].bytes <= EXTENT_BYTES);
    }
    server.reset();
    const { bytes, warnings } = await readOnce({ verify: how === 'load' });
    assert.equal(sha256(bytes), sha256(DATA), how);
    assert.equal(warnings.length, how === 'load' ? 1 : 0);
    assert.ok(sent() > 0 && sent() <= EXTENT_BYTES, `${sent()} bytes`);
    assert.equal((await modelCache.verify(url, { directory })).damaged.length, 0);
  }
  fs.truncateSync(await contentFile(), 10 * MiB);
  assert.equal(sha256((await readOnce()).bytes), sha256(DATA), 'a file cut short');
  fs.rmSync(await contentFile());
  assert.equal(sha256((await readOnce()).bytes), sha256(DATA), 'a file removed');
});

test('a changed file: what was begun is dropped; what is whole only if asked, and offline never', async () => {
  const alone = await startServer({ '/data.gguf': DATA }, { faults: { '/data.gguf': { etag: '"1"' } } });
  const address = `${alone.url}/data.gguf`;
  const changed = Buffer.from(DATA);
  changed.fill(7, 5 * MiB, 6 * MiB);
  const read = (more, how) => readOnce(more, how, { address });
  await read({}, { to: 12 * MiB, whole: false });
  alone.mounts['/data.gguf'] = changed;
  alone.faults['/data.gguf'] = { etag: '"2"' };
  assert.equal(sha256((await read()).bytes), sha256(changed), 'begun');
  alone.mounts['/data.gguf'] = DATA.subarray(0, 10 * MiB);
  alone.faults['/data.gguf'] = { etag: '"3"' };
  assert.equal(sha256((await read()).bytes), sha256(changed), 'whole: nobody asks');
  assert.equal(sha256((await read({ revalidate: true })).bytes), sha256(DATA.subarray(0, 10 * MiB)));
  alone.reset();
  assert.ok((await read({ revalidate: true })).straight);
  assert.equal(alone.stats('/data.gguf').bytes, 1, 'asking is cheap');
  await alone.close();
  const { bytes, warnings } = await read({ revalidate: true });
  assert.equal(bytes.length, 10 * MiB);
  assert.equal(warnings[0].code, 'CACHE_NOT_REVALIDATED');
});

test('a file that changes under a download is told, and not mixed with the old one', async () => {
  server.faults['/data.gguf'] = (request, attempt) => (attempt === 0 ? { etag: '"1"', cutAt: 5 * MiB } : { etag: '"2"' });
  await assert.rejects(readOnce({}, { from: 0 }), { code: 'SOURCE_CHANGED' });
  server.faults['/data.gguf'] = { etag: '"2"' };
  assert.equal(sha256((await readOnce()).bytes), sha256(DATA));
});

test('sha256: the right one opens, another one leaves nothing behind', async () => {
  const right = sha256(DATA);
  const wrong = right.replace(/^./, (c) => (c === '0' ? '1' : '0'));
  await assert.rejects(readOnce({ sha256: wrong }), (error) => {
    assert.equal(error.code, 'SOURCE_CHECKSUM');
    assert.equal(error.detail.actual, right);
    return true;
  });
  assert.deepEqual(await modelCache.list({ directory }), []);
  await readOnce({ sha256: right });
  server.reset();
  assert.ok((await readOnce({ sha256: right.toUpperCase() })).straight);
  assert.equal(sent(), 0);
  assert.equal((await modelCache.info(url, { directory })).sha256, right);
  await assert.rejects(open(BUNDLED, { cache: { directory, sha256: right } }), { code: 'BAD_ARGUMENT' });
});

test('a SHA-256 that the server states is compared when the download is complete', async () => {
  const right = sha256(DATA);
  const wrong = sha256(MODEL);
  const headersOf = (sum) => [
    { 'X-Linked-ETag': `"${sum}"` },
    { 'X-Checksum-Sha256': sum.toUpperCase() },
    { 'Repr-Digest': `sha-512=:abc=:, sha-256=:${Buffer.from(sum, 'hex').toString('base64')}:` },
  ];
  for (const headers of headersOf(wrong)) {
    server.faults['/data.gguf'] = { headers };
    await assert.rejects(readOnce(), ({ code, message, detail }) =>
      code === 'SOURCE_CHECKSUM' && /server says/.test(message) && detail.expected === wrong && detail.actual === right);
    assert.deepEqual(await modelCache.list({ directory }), []);
  }
  for (const headers of headersOf(right)) {
    server.faults['/data.gguf'] = { headers };
    await readOnce({}, { to: 9 * MiB, whole: false }); // what it stated is known when it goes on
    await readOnce();
    assert.equal((await modelCache.info(url, { directory })).sha256, right);
    await modelCache.clear({ directory });
  }
  // Where it redirects, too: hubs do so.
  server.faults['/elsewhere.gguf'] = { redirect: '/data.gguf', headers: headersOf(wrong)[0] };
  server.faults['/data.gguf'] = {};
  await assert.rejects(readOnce({}, {}, { address: `${server.url}/elsewhere.gguf` }), { code: 'SOURCE_CHECKSUM' });
  server.faults['/data.gguf'] = { headers: { 'X-Linked-ETag': '"not-a-sum"', 'Repr-Digest': 'sha-256=:abc:' } };
  await readOnce();
});

// --- room -------------------------------------------------------------------------------------

/** A store whose disk takes so many bytes, and says that there is more. */
function smallDisk(bytes) {
  const store = directoryStore(directory);
  let left = bytes;
  return {
    ...store,
    space: async () => ({ available: 2 ** 40, quota: 2 ** 41 }),
    entry(key) {
      const entry = store.entry(key);
      return {
        ...entry,
        async content(create) {
          const content = await entry.content(create);
          if (!content) return content;
          const { write } = content;
          return {
            ...content,
            write(at, data) {
              if (data.length > left) throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
              left -= data.length;
              write(at, data);
            },
          };
        },
      };
    },
  };
}

test('a full disk: the model runs all the same and says so; where caching was demanded, numbers', async () => {
  const { bytes, warnings } = await readOnce({}, {}, { store: smallDisk(9 * MiB) });
  assert.equal(sha256(bytes), sha256(DATA));
  assert.deepEqual(warnings.map(({ code }) => code), ['CACHE_FULL']);
  await assert.rejects(readOnce({ required: true }, {}, { store: smallDisk(2 * MiB) }), (error) => {
    assert.equal(error.code, 'CACHE_FULL');
    assert.equal(error.detail.available_bytes, 2 ** 40);
    assert.ok(error.detail.needed_bytes > 0 && error.remedy !== '');
    return true;
  });
  const none = { ...smallDisk(0), space: async () => ({ available: 1000 }) };
  await assert.rejects(readOnce({ required: true }, {}, { store: none }), { code: 'CACHE_FULL' });
  // With room again it goes on where it stood.
  assert.equal(sha256((await readOnce()).bytes), sha256(DATA));
  assert.equal((await modelCache.info(url, { directory })).complete, true);
});

test('a folder that cannot be made: uncached, or CACHE_UNAVAILABLE', async () => {
  const blocked = path.join(temporary('a-file'), 'below');
  fs.writeFileSync(temporary('a-file'), '');
  const address = `${server.url}/kjv.gguf`;
  const { warnings } = await explain(address, { cache: blocked });
  assert.ok(warnings.some(({ code }) => code === 'CACHE_UNAVAILABLE'));
  await assert.rejects(explain(address, { cache: { directory: blocked, required: true } }), { code: 'CACHE_UNAVAILABLE' });
});

test('maxBytes: the least recently used makes room; a model that is larger is not kept', async () => {
  const small = DATA.subarray(0, 5 * MiB);
  const names = ['/a.gguf', '/b.gguf', '/c.gguf'];
  const many = await startServer(Object.fromEntries(names.map((name) => [name, small])));
  const use = (name) => readOnce({ maxBytes: 12 * MiB }, {}, { address: many.url + name });
  const there = async () => (await modelCache.list({ directory })).map(({ name }) => new URL(name).pathname);
  for (const name of ['/a.gguf', '/b.gguf', '/a.gguf', '/c.gguf']) {
    await use(name);
    await delay(15); // times of files
  }
  assert.deepEqual(await there(), ['/c.gguf', '/a.gguf']);
  const { warnings } = await readOnce({ maxBytes: MiB }, {}, { address: `${many.url}/b.gguf` });
  assert.equal(warnings[0].code, 'CACHE_FULL');
  assert.deepEqual(await there(), ['/c.gguf', '/a.gguf']);
  await many.close();
});

// --- several at once -----------------------------------------------------------------------------

test('two processes share one download', async () => {
  server.faults['/data.gguf'] = { chunk: 1 << 16, delay: 1 };
  const results = await Promise.all([download().done, download().done]);
  for (const { sha256: sum } of results) assert.equal(sum, sha256(DATA));
  assert.equal(sent(), DATA.length);
});

test('two of one process too; when the first gives up the second goes on', async () => {
  server.faults['/data.gguf'] = { chunk: 1 << 16, delay: 1 };
  const first = await cached();
  const second = await cached();
  const reading = readThrough(second);
  await readThrough(first, { to: 9 * MiB, whole: false });
  await assert.rejects(modelCache.delete(url, { directory }), { code: 'BUSY' });
  await first.close();
  assert.equal(sha256(await reading), sha256(DATA));
  await second.close();
  assert.ok(sent() <= DATA.length + 6 * MiB, `${sent()} bytes`); // the stream that was given up
});

// --- options and command line ---------------------------------------------------------------------

test('options: what is wrong is refused', async () => {
  for (const cache of [5, { verfy: true }, { sha256: 'abc' }, { directory: 7 }, { maxBytes: 'much' }, { verify: 1 }, null])
    await assert.rejects(inspect(BUNDLED, { cache }), { code: 'BAD_ARGUMENT' }, JSON.stringify(cache));
  await assert.rejects(modelCache.delete('/a/path', { directory }), { code: 'BAD_ARGUMENT' });
  await assert.rejects(modelCache.verify(url, { directory }), { code: 'SOURCE_NOT_FOUND' });
  assert.equal(await modelCache.delete(url, { directory }), false);
  assert.equal(await modelCache.info(url, { directory }), undefined);
});

test('who only looks makes no folder', async () => {
  const missing = path.join(directory, 'not', 'there');
  assert.deepEqual(await modelCache.list({ directory: missing }), []);
  assert.equal(await modelCache.info(url, { directory: missing }), undefined);
  assert.equal(await modelCache.delete(url, { directory: missing }), false);
  await modelCache.clear({ directory: missing });
  await assert.rejects(modelCache.verify(url, { directory: missing }), { code: 'SOURCE_NOT_FOUND' });
  assert.equal(fs.existsSync(path.dirname(missing)), false);
});

test('lineal cache', async () => {
  const address = `${server.url}/kjv.gguf`;
  const run = (...args) =>
    new Promise((resolve) => {
      const child = spawn(process.execPath, [CLI, ...args], { env: { ...process.env, XDG_CACHE_HOME: directory } });
      let out = '';
      let err = '';
      child.stdout.on('data', (data) => { out += data; });
      child.stderr.on('data', (data) => { err += data; });
      child.on('close', (code) => resolve({ code, out, err }));
    });
  assert.equal((await run('inspect', address, '--no-cache')).code, 0);
  assert.match((await run('cache', 'list')).out, /nothing/);
  await run('generate', address, '-p', 'And', '-n', '2');
  server.reset();
  assert.equal((await run('generate', address, '-p', 'And', '-n', '2', '--sha256', sha256(MODEL))).code, 0);
  assert.equal(sent('/kjv.gguf'), 0);
  const list = JSON.parse((await run('cache', 'list', '--json')).out).models;
  assert.deepEqual(list.map(({ complete, name }) => [complete, name]), [[true, address]]);
  assert.match((await run('cache', 'info', list[0].key)).out, /1660800/);
  assert.match((await run('cache', 'verify', address)).out, /all are right/);
  const file = path.join(directory, 'lineal', list[0].key, 'content');
  const bytes = fs.readFileSync(file);
  bytes[1000] ^= 1;
  fs.writeFileSync(file, bytes);
  const { code, out } = await run('cache', 'verify', list[0].key);
  assert.equal(code, 1);
  assert.match(out, /damaged/);
  assert.equal((await run('cache', 'delete', address)).code, 0);
  assert.match((await run('cache', 'delete', address)).err, /SOURCE_NOT_FOUND/);
  assert.match((await run('cache', 'clear')).out, /0 removed/);
  for (const args of [['cache'], ['cache', 'eat'], ['cache', 'info'], ['cache', 'list', 'x'], ['cache', 'info', 'a', 'b']])
    assert.match((await run(...args)).err, /BAD_ARGUMENT/, args.join(' '));
});
