// What others do in the folder of the cache: entries that are not its own, locks
// that nobody lets go, models that make room for others.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { CachedSource } from '../../js-glue/cache.js';
import { headerLine, parseManifest } from '../../js-glue/cache-manifest.js';
import { LinealError, modelCache, open } from '../../js-glue/index.js';
import { cacheOptions } from '../../js-glue/options.js';
import { HttpSource } from '../../js-glue/source-http.js';
import { directoryStore } from '../../js-glue/store-node.js';
import { keyOf } from '../../js-glue/store.js';
import { BUNDLED, CLI, generate, temporary } from '../lib/fixtures.mjs';
import { startServer } from '../lib/http-server.mjs';

const KiB = 1024;
const SIZE = fs.statSync(BUNDLED).size;
const NAMES = ['/a.gguf', '/b.gguf', '/c.gguf', '/d.gguf'];
/** Looks like a model to a source, not to the core. */
const DATA = Buffer.alloc(500 * KiB, 'GGUF and more');
const LOCK = new URL('../../js-glue/store-node.js', import.meta.url).href;

let server, directory;
before(async () => {
  server = await startServer({
    '/kjv.gguf': BUNDLED, '/large.gguf': Buffer.concat([DATA, DATA, DATA]),
    ...Object.fromEntries(NAMES.map((name) => [name, DATA])),
  });
});
after(() => server.close());
beforeEach(() => {
  server.reset();
  directory = temporary(`others-${randomUUID()}`);
  fs.mkdirSync(directory);
});

const urlOf = (name) => `${server.url}${name}`;
const place = (...parts) => path.join(directory, ...parts);
const listed = async () => (await modelCache.list({ directory })).map(({ name }) => new URL(name).pathname).sort();

async function sourceOf(name, more = {}, patienceMs = undefined) {
  const url = urlOf(name);
  return CachedSource.open(new HttpSource(url), directoryStore(directory), cacheOptions({ directory, ...more }), { url, patienceMs });
}

/** All of it, or up to `to`, as the loader does. */
async function readThrough(source, to = Infinity) {
  const parts = [];
  for (let at = 0; at < to;) {
    let bytes;
    if (source.readSync) {
      bytes = new Uint8Array(64 * KiB);
      bytes = bytes.subarray(0, source.readSync(at, bytes));
    } else {
      bytes = await source.read(at, 64 * KiB);
    }
    if (bytes.length === 0) break;
    parts.push(Buffer.from(bytes));
    if (at === 0) await source.confirm();
    at += bytes.length;
  }
  if (to === Infinity) await source.finish();
  return Buffer.concat(parts);
}

async function readOnce(name, more, patienceMs) {
  const source = await sourceOf(name, more, patienceMs);
  try {
    return { bytes: await readThrough(source), warnings: source.warnings.map(({ code }) => code) };
  } finally {
    await source.close();
  }
}

// --- entries that are not ours ------------------------------------------------------------------

/** Kinds of entries by what makes them; each is given a path in the folder. */
const FOREIGN = {
  'a file in place of the folder': (at) => fs.writeFileSync(at, 'notes'),
  'an empty file': (at) => fs.writeFileSync(at, ''),
  'a dangling link': (at) => fs.symlinkSync(`${at}-nowhere`, at),
  'a link to a file': (at) => { fs.writeFileSync(`${at}.txt`, ''); fs.symlinkSync(`${at}.txt`, at); },
  'a folder in place of the journal': (at) => fs.mkdirSync(path.join(at, 'manifest'), { recursive: true }),
  'a folder in place of the bytes': (at) => { fs.mkdirSync(path.join(at, 'content'), { recursive: true }); fs.writeFileSync(path.join(at, 'manifest'), 'x'); },
  'a folder in place of the time': (at) => fs.mkdirSync(path.join(at, 'used'), { recursive: true }),
  'a dangling link in place of the journal': (at) => { fs.mkdirSync(at); fs.symlinkSync('nowhere', path.join(at, 'manifest')); },
  ...(process.platform === 'win32' ? {} : {
    'a pipe': (at) => execFileSync('mkfifo', [at]),
    'a pipe in place of the journal': (at) => { fs.mkdirSync(at); execFileSync('mkfifo', [path.join(at, 'manifest')]); },
    'a pipe in place of the bytes': (at) => { fs.mkdirSync(at); execFileSync('mkfifo', [path.join(at, 'content')]); fs.writeFileSync(path.join(at, 'manifest'), 'x'); },
  }),
  'a folder of files of another program': (at) => { fs.mkdirSync(at); fs.writeFileSync(path.join(at, 'thesis.txt'), 'years'); },
};
/** What is ours and damaged: passed over, removed by clear, made anew by a load. */
const DAMAGED = {
  'an empty folder': () => {},
  'an empty journal': (at) => fs.writeFileSync(path.join(at, 'manifest'), ''),
  'a journal of zeros': (at) => fs.writeFileSync(path.join(at, 'manifest'), Buffer.alloc(4096)),
  'a journal of random bytes': (at) => fs.writeFileSync(path.join(at, 'manifest'), Buffer.from(Array.from({ length: 5000 }, (_, i) => (i * 7919) % 251))),
  'a journal of another time': (at) => fs.writeFileSync(path.join(at, 'manifest'), headerLine({ name: 'x', size: -5, created: 0 })),
  'a journal whose header lacks everything': (at) => fs.writeFileSync(path.join(at, 'manifest'), headerLine({ size: 5 })),
  'bytes without a journal': (at) => fs.writeFileSync(path.join(at, 'content'), DATA),
  'a journal without bytes': (at) => fs.writeFileSync(path.join(at, 'manifest'), headerLine({ id: '1', name: 'http://x/y', size: 9, created: 1 })),
};

function command(...args) {
  const cacheHome = path.join(directory, '..', `${path.basename(directory)}-home`);
  fs.mkdirSync(cacheHome, { recursive: true });
  if (!fs.existsSync(path.join(cacheHome, 'lineal'))) fs.symlinkSync(directory, path.join(cacheHome, 'lineal'));
  return spawnSync(process.execPath, [CLI, 'cache', ...args], { encoding: 'utf8', env: { ...process.env, XDG_CACHE_HOME: cacheHome } });
}

test('entries that are not of the cache are passed over by all of it, and left alone', async () => {
  await readOnce('/a.gguf');
  const kinds = Object.entries(FOREIGN);
  for (const [i, [, make]] of kinds.entries()) make(place(String(i).padStart(32, 'f')));
  if (process.getuid?.() !== 0) {
    fs.mkdirSync(place('e'.repeat(32)), { mode: 0o000 });
  }
  fs.writeFileSync(place('README'), 'of another program');
  const before = fs.readdirSync(directory).sort();
  assert.deepEqual(await listed(), ['/a.gguf']);
  assert.match(command('list').stdout, /\/a\.gguf\n$/);
  assert.equal(JSON.parse(command('list', '--json').stdout).models.length, 1);
  for (const [i, [kind]] of kinds.entries()) {
    const key = String(i).padStart(32, 'f');
    assert.equal(await modelCache.info(key, { directory }), undefined, kind);
    assert.equal(await modelCache.delete(key, { directory }), false, kind);
    await assert.rejects(modelCache.verify(key, { directory }), { code: 'SOURCE_NOT_FOUND' }, kind);
  }
  // Room is made by what is ours.
  await readOnce('/b.gguf', { maxBytes: 600 * KiB });
  assert.deepEqual(await listed(), ['/b.gguf']);
  const { status, stdout } = command('clear');
  assert.deepEqual([status, stdout], [0, '1 removed\n']);
  assert.deepEqual(await listed(), []);
  assert.deepEqual(fs.readdirSync(directory).sort(), before.filter((name) => name !== undefined && !isModel(name)));
  function isModel(name) {
    return !/^[ef]/.test(name) && name !== 'README' && /^[0-9a-f]{32}$/.test(name);
  }
});

test('where the folder of a model is not ours, it runs uncached and says so, or is refused', async () => {
  for (const [kind, make] of Object.entries(FOREIGN)) {
    const at = place(await keyOf(urlOf('/a.gguf')));
    make(at);
    const before = fs.lstatSync(at).ino;
    const { bytes, warnings } = await readOnce('/a.gguf');
    assert.ok(bytes.equals(DATA), kind);
    assert.deepEqual(warnings, ['CACHE_UNAVAILABLE'], kind);
    await assert.rejects(readOnce('/a.gguf', { required: true }), (error) => {
      assert.equal(error.code, 'CACHE_UNAVAILABLE', kind);
      assert.match(error.message, /not of the cache/, kind);
      return true;
    });
    assert.equal(fs.lstatSync(at).ino, before, `${kind}: it is as it was`);
    fs.rmSync(at, { recursive: true, force: true });
  }
});

test('what is ours and damaged is passed over by list, made anew by a load, removed by clear', async () => {
  const key = await keyOf(urlOf('/a.gguf'));
  for (const [kind, make] of Object.entries(DAMAGED)) {
    const at = place(key);
    fs.mkdirSync(at);
    make(at);
    const partly = kind === 'a journal without bytes'; // nothing of it is there, and it says so
    assert.equal((await modelCache.list({ directory })).length, partly ? 1 : 0, kind);
    assert.equal(command('list').status, 0, kind);
    const { bytes, warnings } = await readOnce('/a.gguf');
    assert.ok(bytes.equals(DATA), kind);
    assert.deepEqual(warnings, [], kind);
    assert.deepEqual(await listed(), ['/a.gguf'], kind);
    fs.rmSync(at, { recursive: true });
    fs.mkdirSync(at);
    make(at);
    assert.equal(await modelCache.clear({ directory }), 1, kind);
    assert.deepEqual(fs.readdirSync(directory), [], kind);
  }
});

test('lines of a journal that no one has written, with the right CRC', () => {
  const header = headerLine({ id: '1', name: 'n', size: 100, created: 5 });
  const crcLine = (json) => headerLine({}).length && lineOf(json);
  for (const json of ['null', '5', '"from"', '[]', '{', '{"from":"0","to":"5"}', '{"from":0,"to":1e99}', '{"from":null,"to":4}']) {
    const text = header + crcLine(json);
    assert.deepEqual(parseManifest(text)?.extents, [], json);
    assert.equal(parseManifest(crcLine(json)), undefined, json);
  }
});

/** A line with its CRC, whatever it holds. @param {string} json */
function lineOf(json) {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(json)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return `${((crc ^ 0xffffffff) >>> 0).toString(16).padStart(8, '0')} ${json}\n`;
}

test('what the system refuses has a code, and is no INTERNAL', { skip: process.getuid?.() === 0 && 'root may read all' }, async () => {
  await readOnce('/a.gguf');
  fs.chmodSync(directory, 0o000);
  try {
    await assert.rejects(modelCache.list({ directory }), (error) => error instanceof LinealError && error.code === 'CACHE_UNAVAILABLE');
  } finally {
    fs.chmodSync(directory, 0o700);
  }
});

test('a lock that is no file: CACHE_UNAVAILABLE or uncached, never INTERNAL', async () => {
  await readOnce('/a.gguf');
  const key = await keyOf(urlOf('/a.gguf'));
  fs.mkdirSync(place(`${key}.lock`));
  await assert.rejects(modelCache.delete(key, { directory }), { code: 'CACHE_UNAVAILABLE' });
  await assert.rejects(modelCache.clear({ directory }), { code: 'CACHE_UNAVAILABLE' });
  fs.mkdirSync(place(`${await keyOf(urlOf('/b.gguf'))}.lock`));
  const { bytes, warnings } = await readOnce('/b.gguf');
  assert.ok(bytes.equals(DATA));
  assert.deepEqual(warnings, ['CACHE_UNAVAILABLE']);
});

// --- locks ----------------------------------------------------------------------------------------

/** A process that takes the lock of a model and does nothing: { child, file }. */
async function lockedByAnother(name) {
  const key = await keyOf(urlOf(name));
  const code = `const { directoryStore } = await import(${JSON.stringify(LOCK)});
    const unlock = await directoryStore(${JSON.stringify(directory)}).entry('${key}').lock();
    console.log(Boolean(unlock)); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [said] = await new Promise((resolve) => { child.stdout.once('data', (data) => resolve([String(data)])); });
  assert.equal(said.trim(), 'true');
  return { child, file: place(`${key}.lock`) };
}

test('a lock held by a process that does nothing: after a short wait the model comes past it, and says so', async (t) => {
  const { child, file } = await lockedByAnother('/kjv.gguf');
  t.after(() => child.kill());
  const tokens = async (options) => {
    const start = performance.now();
    const model = await open(urlOf('/kjv.gguf'), { context: 64, cache: { directory }, ...options });
    try {
      const { result } = await generate(model, 'In the beginning', { maxTokens: 4 });
      await model.loaded;
      const warnings = model.explanation.warnings.filter(({ code }) => code.startsWith('CACHE'));
      return { tokens: result.tokens, warnings, ms: performance.now() - start };
    } finally {
      await model.close();
    }
  };
  const [plain, overlapped] = await Promise.all([tokens({}), tokens({ overlap: true })]);
  for (const { tokens: got, warnings, ms } of [plain, overlapped]) {
    assert.deepEqual(got, [271, 261, 345, 981]);
    assert.deepEqual(warnings.map(({ code }) => code), ['CACHE_BUSY']);
    assert.match(warnings[0].text, /nothing for 6 seconds/);
    assert.ok(ms > 5500 && ms < 30_000, `${ms} ms`);
  }
  t.diagnostic(`${plain.ms.toFixed()} and ${overlapped.ms.toFixed()} ms`);
  assert.ok(fs.existsSync(file), 'the lock is the other one\'s');
  assert.deepEqual(await listed(), [], 'nothing was written');
  // It ends: the next load keeps what comes.
  const ended = new Promise((resolve) => { child.on('close', resolve); });
  child.kill('SIGKILL');
  await ended;
  const { warnings, ms } = await tokens({});
  assert.deepEqual(warnings, []);
  assert.ok(ms < 5500, `${ms} ms`);
  assert.equal((await modelCache.info(urlOf('/kjv.gguf'), { directory })).complete, true);
});

test('one that goes on is waited for again; what it has written is read from there', async () => {
  const store = directoryStore(directory);
  const writer = await sourceOf('/large.gguf');
  await readThrough(writer, 700 * KiB);
  const reader = await sourceOf('/large.gguf', {}, 300);
  server.reset();
  const half = await readThrough(reader, 900 * KiB);
  assert.deepEqual(reader.warnings.map(({ code }) => code), ['CACHE_BUSY']);
  const past = server.stats('/large.gguf').bytes;
  assert.ok(past > 0 && past <= 1000 * KiB, `${past} bytes came past the lock`);
  await readThrough(writer);
  const whole = await readThrough(reader);
  await writer.close();
  await reader.close();
  const expected = Buffer.concat([DATA, DATA, DATA]);
  assert.ok(expected.subarray(0, half.length).equals(half));
  assert.ok(expected.equals(whole));
  assert.ok(fs.readFileSync(place(await keyOf(urlOf('/large.gguf')), 'content')).equals(expected));
  assert.equal((await modelCache.verify(urlOf('/large.gguf'), { directory })).damaged.length, 0);
  assert.equal(await store.entry(await keyOf(urlOf('/large.gguf'))).held(), false);
});

test('a lock that is let go meanwhile is taken, and the copy gets whole', async () => {
  const key = await keyOf(urlOf('/large.gguf'));
  const unlock = await directoryStore(directory).entry(key).lock();
  const source = await sourceOf('/large.gguf', {}, 200);
  await readThrough(source, 200 * KiB);
  assert.deepEqual(source.warnings.map(({ code }) => code), ['CACHE_BUSY']);
  await unlock();
  const expected = Buffer.concat([DATA, DATA, DATA]);
  assert.ok(expected.equals(await readThrough(source)));
  await source.close();
  const info = await modelCache.info(key, { directory });
  assert.equal(info?.complete, true, JSON.stringify(info));
  assert.ok(fs.readFileSync(place(key, 'content')).equals(expected));
});

test('a file that changes while the lock is another one\'s is not mixed with the old one', async () => {
  const before = server.mounts['/d.gguf'];
  const key = await keyOf(urlOf('/d.gguf'));
  try {
    server.faults['/d.gguf'] = { etag: '"1"' };
    const source = await sourceOf('/d.gguf');
    await readThrough(source, 300 * KiB);
    await source.close();
    server.faults['/d.gguf'] = { etag: '"2"' };
    server.mounts['/d.gguf'] = Buffer.from(DATA.toString().replaceAll('more', 'less'));
    const unlock = await directoryStore(directory).entry(key).lock();
    const reader = await sourceOf('/d.gguf', {}, 100);
    await assert.rejects(readThrough(reader), { code: 'SOURCE_CHANGED' });
    await reader.close();
    await unlock();
    assert.ok((await readOnce('/d.gguf')).bytes.equals(server.mounts['/d.gguf']));
  } finally {
    server.mounts['/d.gguf'] = before;
    delete server.faults['/d.gguf'];
  }
});

test('where the cache is demanded, it is waited for longer, and then refused', async () => {
  const unlock = await directoryStore(directory).entry(await keyOf(urlOf('/a.gguf'))).lock();
  const start = performance.now();
  await assert.rejects(readOnce('/a.gguf', { required: true }, 60), (error) => {
    assert.equal(error.code, 'CACHE_UNAVAILABLE');
    assert.match(error.message, /another tab or process/);
    return true;
  });
  assert.ok(performance.now() - start >= 600);
  await unlock();
  assert.ok((await readOnce('/a.gguf', { required: true })).bytes.equals(DATA));
});

test('a process that has the id of one that is gone: its lock is taken over at once', { skip: process.platform !== 'linux' && 'no /proc' }, async (t) => {
  const { child, file } = await lockedByAnother('/a.gguf');
  t.after(() => child.kill());
  const entry = directoryStore(directory).entry(await keyOf(urlOf('/a.gguf')));
  assert.equal(await entry.lock(), undefined, 'its own');
  const lock = JSON.parse(fs.readFileSync(file, 'utf8'));
  assert.equal(lock.host, os.hostname());
  fs.writeFileSync(file, JSON.stringify({ ...lock, started: lock.started - 3_600_000 }));
  const start = performance.now();
  const { bytes, warnings } = await readOnce('/a.gguf');
  assert.ok(bytes.equals(DATA));
  assert.deepEqual(warnings, []);
  assert.ok(performance.now() - start < 5000);
  assert.deepEqual(await listed(), ['/a.gguf']);
});

// --- room -----------------------------------------------------------------------------------------

test('maxBytes: the least recently used goes first, none that is in use, and the bound holds', async () => {
  const maxBytes = 1200 * KiB;
  const total = async () => (await modelCache.list({ directory })).reduce((sum, { cachedBytes }) => sum + cachedBytes, 0);
  const use = async (name) => {
    const { warnings } = await readOnce(name, { maxBytes });
    await delay(15); // times of files
    assert.ok((await total()) <= maxBytes, name);
    return warnings;
  };
  assert.deepEqual(await use('/a.gguf'), []);
  assert.deepEqual(await use('/b.gguf'), []);
  assert.deepEqual(await use('/c.gguf'), []);
  assert.deepEqual(await listed(), ['/b.gguf', '/c.gguf']);
  await use('/b.gguf');
  await use('/d.gguf');
  assert.deepEqual(await listed(), ['/b.gguf', '/d.gguf'], 'b was used after c');
  // b is the oldest, and open: whole, and so without a lock.
  const open = await sourceOf('/b.gguf', { maxBytes });
  fs.utimesSync(place(await keyOf(urlOf('/b.gguf')), 'used'), new Date(1000), new Date(1000));
  assert.ok(open.readSync);
  await use('/a.gguf');
  assert.deepEqual(await listed(), ['/a.gguf', '/b.gguf']);
  // Open in another process, too.
  const { child } = await heldByAnother('/a.gguf');
  assert.deepEqual(await use('/c.gguf'), ['CACHE_FULL'], 'no room can be made');
  assert.deepEqual(await listed(), ['/a.gguf', '/b.gguf']);
  child.kill('SIGKILL');
  await new Promise((resolve) => { child.on('close', resolve); });
  assert.deepEqual(await use('/c.gguf'), [], 'what a dead process had open is not in use');
  assert.deepEqual(await listed(), ['/b.gguf', '/c.gguf']);
  assert.ok((await readThrough(open)).equals(DATA));
  await open.close();
  await use('/d.gguf');
  assert.deepEqual(await listed(), ['/c.gguf', '/d.gguf'], 'closed, b is the oldest again');
  // One that is being downloaded counts as whole, and stays.
  const coming = await sourceOf('/a.gguf', { maxBytes });
  await readThrough(coming, 100 * KiB);
  await use('/b.gguf');
  await readThrough(coming);
  await coming.close();
  assert.ok((await total()) <= maxBytes);
  assert.ok((await listed()).includes('/a.gguf'));
  // Begun, left, and gone on with when others have filled the room.
  await modelCache.clear({ directory });
  const begun = await sourceOf('/large.gguf', { maxBytes: 1600 * KiB });
  await readThrough(begun, 300 * KiB);
  await begun.close();
  await delay(15);
  await readOnce('/a.gguf', { maxBytes: 1600 * KiB });
  await readOnce('/b.gguf', { maxBytes: 1600 * KiB });
  assert.deepEqual(await listed(), ['/a.gguf', '/b.gguf', '/large.gguf']);
  await readOnce('/large.gguf', { maxBytes: 1600 * KiB });
  assert.ok((await total()) <= 1600 * KiB, `${await total()} bytes`);
  assert.deepEqual(await listed(), ['/large.gguf']);
});

/** A process that has a model of the cache open. */
async function heldByAnother(name) {
  const key = await keyOf(urlOf(name));
  const code = `const { directoryStore } = await import(${JSON.stringify(LOCK)});
    await directoryStore(${JSON.stringify(directory)}).entry('${key}').hold();
    console.log('open'); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
  await new Promise((resolve) => { child.stdout.once('data', resolve); });
  return { child };
}

test('a model larger than maxBytes runs uncached, says so with numbers, and evicts nothing', async () => {
  await readOnce('/a.gguf');
  const model = await open(urlOf('/kjv.gguf'), { context: 64, cache: { directory, maxBytes: '1MiB' } });
  assert.equal((await generate(model, 'In the beginning', { maxTokens: 4 })).result.tokens.length, 4);
  const [warning, ...rest] = model.explanation.warnings.filter(({ code }) => code.startsWith('CACHE'));
  await model.close();
  assert.deepEqual([warning.code, rest], ['CACHE_FULL', []]);
  assert.match(warning.text, new RegExp(`${SIZE} bytes, and the cache may hold ${2 ** 20}`));
  assert.deepEqual(await listed(), ['/a.gguf']);
  await assert.rejects(open(urlOf('/kjv.gguf'), { cache: { directory, maxBytes: '1MiB', required: true } }), (error) => {
    assert.equal(error.code, 'CACHE_FULL');
    assert.deepEqual([error.detail.needed_bytes, error.detail.max_bytes], [SIZE, 2 ** 20]);
    assert.match(error.remedy, /maxBytes/);
    return true;
  });
});
