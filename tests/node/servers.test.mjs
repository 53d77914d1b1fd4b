// Servers that misbehave: either the model comes all the same, or the error
// names the cause and the remedy; and the same address then gives a good model.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { HttpSource } from '../../js-glue/source-http.js';
import { BUNDLED, generate } from '../lib/fixtures.mjs';
import { random } from '../lib/gguf-write.mjs';
import { startServer } from '../lib/http-server.mjs';

const SIZE = fs.statSync(BUNDLED).size;
const TOKENS = [271, 261, 345, 981];
const PATH = '/m.gguf';
let server, other;
before(async () => {
  server = await startServer({ [PATH]: BUNDLED });
  other = await startServer({ [PATH]: BUNDLED, '/elsewhere.gguf': BUNDLED });
});
after(async () => {
  await server.close();
  await other.close();
});

async function tokensOf(options = {}, address = server.url + PATH) {
  const model = await open(address, { context: 64, ...options });
  try {
    return (await generate(model, 'In the beginning', { maxTokens: 4 })).result.tokens;
  } finally {
    await model.close();
  }
}

/** Opens with the fault, with and without overlap; then without the fault. */
async function withFault(fault, work) {
  for (const overlap of [false, true]) {
    server.reset();
    other.reset();
    server.faults[PATH] = fault;
    try {
      await work({ overlap }, server.stats);
    } finally {
      delete server.faults[PATH];
    }
    assert.deepEqual(await tokensOf({ overlap }), TOKENS, 'the same address afterwards');
  }
}

// --- the model comes all the same ----------------------------------------------------------

/** attempt counts requests of both phases: the header is the first. */
const first = (count, fault) => (_request, attempt) => (attempt < count ? fault : {});

for (const [name, fault, options = {}] of [
  ['no Range', { noRange: true }],
  ['no Range, no Content-Length, no HEAD', { noRange: true, noLength: true, noHead: true }],
  ['compressed as a whole', { gzip: true }],
  ['a part of the compressed file for a Range', { gzip: 'range' }],
  ['a Content-Length that is too large', { promise: 1000, noRange: true }],
  ['closed before the first answer, three times', first(3, { drop: true })],
  ['closed before later answers', (_request, attempt) => (attempt > 0 && attempt < 4 ? { drop: true } : {})],
  ['stalls once before the first byte', first(1, { stallAt: 0 }), { fetch: { timeoutMs: 300 } }],
  ['stalls once in the weights', (_request, attempt) => (attempt === 1 ? { stallAt: 200_000 } : {}), { fetch: { timeoutMs: 300 } }],
  ['500 once', first(1, { status: 500 })],
  ['502 in the weights', (_request, attempt) => (attempt === 1 || attempt === 2 ? { status: 502 } : {})],
  ['503 with Retry-After', first(2, { status: 503, headers: { 'Retry-After': '0' } })],
  ['the whole file for a Range, once, in the weights', (_request, attempt) => (attempt === 2 ? { noRange: true } : {})],
]) {
  test(`${name}: the model comes all the same`, () =>
    withFault(fault, async (how) => assert.deepEqual(await tokensOf({ ...how, ...options }), TOKENS)));
}

test('a connection cut at any point, three times, costs at most what was cut', async () => {
  const rng = random(5);
  const points = [0, 1, 4095, 4096, 262_143, 262_144, ...Array.from({ length: 8 }, () => rng.next() % SIZE)];
  for (const cutAt of points) {
    for (const overlap of [false, true]) {
      server.reset();
      server.faults[PATH] = (_request, attempt) => (attempt < 2 || attempt === 5 ? { cutAt, etag: '"a"' } : { etag: '"a"' });
      try {
        assert.deepEqual(await tokensOf({ overlap }), TOKENS, `cut at ${cutAt}`);
      } finally {
        delete server.faults[PATH];
      }
      const { bytes } = server.stats(PATH);
      assert.ok(bytes <= SIZE + 6 * (1 << 20), `${bytes} bytes were sent`);
    }
  }
});

test('429 is waited out as Retry-After asks', () =>
  withFault(first(1, { status: 429, headers: { 'Retry-After': '1' } }), async (how) => {
    const start = Date.now();
    assert.deepEqual(await tokensOf(how), TOKENS);
    assert.ok(Date.now() - start >= 990);
  }));

// --- errors ---------------------------------------------------------------------------------

for (const [name, fault, code, message, remedy, requests] of [
  ['401', { status: 401 }, 'HTTP_STATUS', /401/, /Authorization/, 1],
  ['403', { status: 403 }, 'HTTP_STATUS', /403/, /token/, 1],
  ['404', { status: 404 }, 'SOURCE_NOT_FOUND', /404/, /address/, 1],
  ['429', { status: 429 }, 'HTTP_STATUS', /429/, /wait/, 4],
  ['500', { status: 500 }, 'HTTP_STATUS', /500/, /mirror/, 4],
  ['a page', { body: '<!doctype html><p>sign in' }, 'NOT_GGUF', /page/, /address/, 1],
  ['closed before each answer', { drop: true }, 'NETWORK', /reading .*\/m\.gguf failed/, /connection/, 4],
  ['another range', { contentRange: `bytes 9-200/${SIZE}` }, 'HTTP_RANGE', /from 0 .* from 9/, /mirror/, 1],
  ['a circle', { redirect: PATH }, 'HTTP_STATUS', /redirects more than/, /circle/, 11],
  ['a redirect to no web address', { redirect: 'ftp://h/m.gguf' }, 'HTTP_STATUS', /no http/, /another/, 1],
  ['a Content-Length that is too small', { promise: -1000, noRange: true }, 'GGUF_TRUNCATED', /bytes/, /./],
]) {
  test(`${name}: ${code}, with the cause and the remedy`, () =>
    withFault(fault, async (how, stats) => {
      await assert.rejects(tokensOf(how), (error) => {
        assert.equal(error.code, code, error.message);
        assert.match(error.message, message);
        assert.match(error.remedy, remedy);
        return true;
      });
      if (requests) assert.equal(stats(PATH).requests, requests);
    }));
}

test('stalls in each answer: NETWORK_TIMEOUT', () =>
  withFault({ stallAt: 0 }, async (how, stats) => {
    await assert.rejects(tokensOf({ ...how, fetch: { timeoutMs: 150 } }), (error) => {
      assert.equal(error.code, 'NETWORK_TIMEOUT');
      assert.match(error.message, /sent nothing for 0\.15 seconds/);
      return true;
    });
    assert.ok(stats(PATH).requests <= 4);
  }));

test('a file that changes between header and weights: SOURCE_CHANGED', () =>
  withFault((_request, attempt) => ({ etag: attempt === 0 ? '"a"' : '"b"' }), (how) =>
    assert.rejects(tokensOf(how), (error) => error.code === 'SOURCE_CHANGED' && /etag was "a"/.test(error.message))));

test('the whole file for each range but the first, while several are read: HTTP_RANGE', async () => {
  server.reset();
  server.faults[PATH] = (_request, attempt) => (attempt === 0 ? {} : { noRange: true });
  const source = new HttpSource(server.url + PATH);
  try {
    await source.read(0, 1000);
    const reads = await Promise.allSettled([source.read(5000, 1000), source.read(9000, 1000)]);
    const failed = reads.filter(({ status }) => status === 'rejected');
    assert.ok(failed.length >= 1);
    for (const { reason } of failed) {
      assert.equal(reason.code, 'HTTP_RANGE');
      assert.match(reason.message, /whole file/);
      assert.match(reason.remedy, /mirror/);
    }
  } finally {
    source.close();
    delete server.faults[PATH];
  }
});

// --- redirects and secrets ------------------------------------------------------------------

const SECRETS = { Authorization: 'Bearer hunter2', 'X-Token': 'hunter2' };

test('a redirect to another origin is followed once, without the headers of the user', async () => {
  for (const overlap of [false, true]) {
    server.reset();
    other.reset();
    server.faults[PATH] = { redirect: `${other.url}/elsewhere.gguf?signature=hunter2` };
    try {
      assert.deepEqual(await tokensOf({ overlap, fetch: { headers: SECRETS } }), TOKENS);
    } finally {
      delete server.faults[PATH];
    }
    const { ranges } = server.stats(PATH);
    assert.equal(ranges.length, 1, 'later requests go straight there');
    assert.equal(ranges[0].headers['x-token'], 'hunter2');
    for (const { headers } of other.stats('/elsewhere.gguf').ranges) {
      assert.equal(headers.authorization, undefined);
      assert.equal(headers['x-token'], undefined);
    }
  }
});

test('where a redirect led is good for some time only: the address is asked again', async () => {
  server.reset();
  other.reset();
  server.faults[PATH] = { redirect: `${other.url}/elsewhere.gguf` };
  other.faults['/elsewhere.gguf'] = (_request, attempt) => (attempt === 1 ? { status: 403 } : {});
  try {
    assert.deepEqual(await tokensOf({ fetch: { headers: SECRETS } }), TOKENS);
  } finally {
    delete server.faults[PATH];
    delete other.faults['/elsewhere.gguf'];
  }
  assert.equal(server.stats(PATH).requests, 2);
  other.faults['/elsewhere.gguf'] = { status: 403 };
  server.faults[PATH] = { redirect: `${other.url}/elsewhere.gguf?signature=hunter2` };
  try {
    await assert.rejects(tokensOf({ fetch: { headers: SECRETS } }), (error) => {
      assert.equal(error.code, 'HTTP_STATUS');
      assert.doesNotMatch(JSON.stringify(error) + String(error.stack), /hunter2/);
      return true;
    });
  } finally {
    delete server.faults[PATH];
    delete other.faults['/elsewhere.gguf'];
  }
});

test('a redirect within the origin keeps the headers', async () => {
  const one = await startServer({ '/to.gguf': BUNDLED });
  one.faults['/from.gguf'] = { redirect: '/to.gguf' };
  try {
    assert.deepEqual(await tokensOf({ fetch: { headers: SECRETS } }, `${one.url}/from.gguf`), TOKENS);
    assert.ok(one.stats('/to.gguf').ranges.every(({ headers }) => headers.authorization === SECRETS.Authorization));
    assert.equal(one.stats('/from.gguf').requests, 1);
  } finally {
    await one.close();
  }
});
