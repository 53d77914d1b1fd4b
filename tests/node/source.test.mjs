// Sources by themselves, against a server that counts and misbehaves.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { HttpSource } from '../../js-glue/source-http.js';
import { FileSource } from '../../js-glue/source-node.js';
import { describeSource, openSource } from '../../js-glue/source.js';
import { Spares } from '../../js-glue/spares.js';
import { temporary } from '../lib/fixtures.mjs';
import { startServer } from '../lib/http-server.mjs';

const SIZE = 3_000_000;
const DATA = Buffer.alloc(SIZE);
for (let i = 0; i < SIZE; i++) DATA[i] = (i * 31 + (i >> 8)) & 255;
DATA.write('GGUF');

let server;
before(async () => {
  server = await startServer({ '/m.gguf': DATA });
});
after(() => server.close());

function sourceWith(fault, options) {
  server.reset();
  server.faults['/m.gguf'] = fault;
  return new HttpSource(`${server.url}/m.gguf?token=secret`, options);
}

/** Everything from `at` on, through readForward. */
async function readAll(source, at = 0, step = 100_000) {
  const parts = [];
  for (;;) {
    const bytes = await source.readForward(at, step);
    if (bytes.length === 0) return Buffer.concat(parts);
    parts.push(Buffer.from(bytes));
    at += bytes.length;
  }
}

test('Range: exactly the bytes asked for, size and counts known', async () => {
  const source = sourceWith({});
  assert.deepEqual(Buffer.from(await source.read(0, 1000)), DATA.subarray(0, 1000));
  assert.equal(source.size, SIZE);
  assert.deepEqual(Buffer.from(await source.read(SIZE - 10, 1000)), DATA.subarray(SIZE - 10));
  assert.equal((await source.read(SIZE, 10)).length, 0);
  assert.deepEqual(source.stats, { bytesRead: 1010, requests: 2 });
  assert.equal(server.stats('/m.gguf').bytes, 1010);
});

test('a forward run is one request; gaps up to 1 MiB are read over, larger ones are not', async () => {
  const source = sourceWith({});
  assert.deepEqual(await readAll(source), DATA);
  assert.equal(server.stats('/m.gguf').requests, 1);
  const jumping = sourceWith({});
  await jumping.readForward(0, 100);
  await jumping.readForward(500_000, 100);
  assert.equal(server.stats('/m.gguf').requests, 1);
  const bytes = await jumping.readForward(2_900_000, 50);
  assert.deepEqual(Buffer.from(bytes), DATA.subarray(2_900_000, 2_900_000 + bytes.length));
  assert.equal(server.stats('/m.gguf').requests, 2);
  jumping.close();
});

test('no Range: one forward stream serves header and weights, and going back starts it again', async () => {
  const source = sourceWith({ noRange: true });
  const start = Buffer.from(await source.read(0, 1000));
  assert.deepEqual(start, DATA.subarray(0, start.length));
  assert.equal(source.rangeRead, false);
  assert.equal(source.size, SIZE);
  assert.deepEqual(await readAll(source, start.length), DATA.subarray(start.length));
  assert.equal(server.stats('/m.gguf').requests, 1);
  assert.deepEqual(Buffer.from(await source.read(5, 3)), DATA.subarray(5, 8));
  assert.equal(server.stats('/m.gguf').requests, 2);
  source.close();
});

test('an unknown size stays unknown, and the end is the end', async () => {
  const source = sourceWith({ noRange: true, noLength: true });
  assert.deepEqual(await readAll(source), DATA);
  assert.equal(source.size, undefined);
});

test('a hidden Content-Range: the size comes from HEAD, and each byte is right', async () => {
  const source = sourceWith({ contentRange: 'hidden' });
  assert.deepEqual(Buffer.from(await source.read(0, 500)), DATA.subarray(0, 500));
  assert.equal(source.size, SIZE);
  assert.deepEqual(Buffer.from(await source.read(SIZE - 5, 500)), DATA.subarray(SIZE - 5));
});

test('a cut connection is taken up where it broke', async () => {
  const source = sourceWith((request, attempt) => (attempt < 3 ? { cutAt: 700_000 } : {}));
  assert.deepEqual(await readAll(source), DATA);
  const { ranges } = server.stats('/m.gguf');
  assert.equal(ranges.length, 4);
  assert.match(ranges[1].range, /^bytes=[1-9]\d*-$/);
});

test('a connection that breaks each time gives up with a typed error', async () => {
  const source = sourceWith({ noRange: true, cutAt: 1000 });
  await assert.rejects(
    readAll(source),
    (error) => ['NETWORK', 'SOURCE_TRUNCATED'].includes(error.code) && error.remedy !== '',
  );
  assert.ok(server.stats('/m.gguf').requests <= 5);
});

test('a body shorter than its headers say is not silently short', async () => {
  const short = sourceWith({ lieAbout: 1_000_000 });
  assert.equal((await short.read(999_990, 20)).length, 10, 'the rest that is there');
  await assert.rejects(short.read(1_000_000, 20), { code: 'HTTP_RANGE' });
  const other = sourceWith({ noLength: true, cutAt: 900 });
  assert.deepEqual(Buffer.from(await other.read(0, 1000)), Buffer.from(DATA.subarray(0, 1000)), 'the next connection brings the rest');
  const dead = sourceWith({ noLength: true, dieAt: 900 });
  await assert.rejects(dead.read(0, 1000), (error) => ['NETWORK', 'SOURCE_TRUNCATED'].includes(error.code));
});

for (const [name, fault, code, check] of [
  ['404', { status: 404 }, 'SOURCE_NOT_FOUND', /404/],
  ['410', { status: 410 }, 'SOURCE_NOT_FOUND', /410/],
  ['403', { status: 403 }, 'HTTP_STATUS', /403/],
  ['500', { status: 500 }, 'HTTP_STATUS', /500/],
  ['an HTML page', { body: '<!doctype html><p>sign in' }, 'NOT_GGUF', /text\/html/],
  ['another range than asked', { contentRange: 'bytes 7-1006/3000000' }, 'HTTP_RANGE', /from 0 .* from 7/],
]) {
  test(`${name}: ${code}, naming the address without its query`, async () => {
    await assert.rejects(sourceWith(fault).read(0, 1000), (error) => {
      assert.equal(error.name, 'LinealError');
      assert.equal(error.code, code);
      assert.match(error.message, check);
      assert.match(error.message, /\/m\.gguf/);
      assert.doesNotMatch(error.message, /secret/);
      assert.notEqual(error.remedy, '');
      return true;
    });
  });
}

test('a GGUF that is called text/html is a GGUF', async () => {
  const source = sourceWith({ headers: { 'Content-Type': 'text/html' } });
  assert.equal((await source.read(0, 100)).length, 100);
});

test('a file that is replaced meanwhile: SOURCE_CHANGED, by ETag and by size', async () => {
  const byTag = sourceWith((request, attempt) => ({ etag: `"v${attempt}"` }));
  await byTag.read(0, 100);
  await assert.rejects(byTag.read(100, 100), { code: 'SOURCE_CHANGED' });
  const bySize = sourceWith((request, attempt) => (attempt === 0 ? {} : { truncateAt: SIZE - 1 }));
  await bySize.read(0, 100);
  await assert.rejects(bySize.read(100, 100), { code: 'SOURCE_CHANGED' });
});

test('no server: NETWORK at once; an abort: ABORTED', async () => {
  const closed = await startServer({});
  await closed.close();
  const start = Date.now();
  await assert.rejects(new HttpSource(`${closed.url}/m.gguf`).read(0, 10), { code: 'NETWORK' });
  assert.ok(Date.now() - start < 1000);
  const controller = new AbortController();
  const slow = sourceWith({ chunk: 1000, delay: 20 });
  const reading = slow.read(0, 1_000_000, controller.signal);
  setTimeout(() => controller.abort(), 50);
  await assert.rejects(reading, { code: 'ABORTED' });
});

test('an empty file: no bytes, size 0', async () => {
  const empty = await startServer({ '/e': Buffer.alloc(0) });
  const source = new HttpSource(`${empty.url}/e`);
  assert.equal((await source.read(0, 100)).length, 0);
  assert.equal(source.size, 0);
  await empty.close();
});

test('headers are sent with each request', async () => {
  const seen = [];
  const listener = http.createServer((request, response) => {
    seen.push(request.headers.authorization);
    response.writeHead(206, { 'Content-Range': 'bytes 0-3/4', 'Content-Length': 4 }).end('GGUF');
  });
  await new Promise((resolve) => {
    listener.listen(0, '127.0.0.1', resolve);
  });
  const source = new HttpSource(`http://127.0.0.1:${listener.address().port}/x`, {
    headers: { Authorization: 'Bearer t' },
  });
  await source.read(0, 4);
  assert.deepEqual(seen, ['Bearer t']);
  listener.close();
});

// A 6 GiB file whose byte at each offset is known without holding it.
const HUGE = 6 * 2 ** 30;
const byteAt = (offset) => ((offset / 4096) % 251) | 0;

test('offsets beyond 4 GiB are right over HTTP', async () => {
  const listener = http.createServer((request, response) => {
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range).map(Number);
    const end = Math.min(last || first + 8191, HUGE - 1);
    const body = Buffer.from(Array.from({ length: end - first + 1 }, (_, i) => byteAt(first + i)));
    response
      .writeHead(206, { 'Content-Range': `bytes ${first}-${first + body.length - 1}/${HUGE}` })
      .end(body);
  });
  await new Promise((resolve) => {
    listener.listen(0, '127.0.0.1', resolve);
  });
  const source = new HttpSource(`http://127.0.0.1:${listener.address().port}/x`);
  for (const offset of [2 ** 31 - 2, 2 ** 32 + 12_345, HUGE - 8]) {
    const bytes = await source.read(offset, 8);
    assert.deepEqual(
      [...bytes],
      Array.from({ length: 8 }, (_, i) => byteAt(offset + i)),
    );
    const [first] = await source.readForward(offset, 8);
    assert.equal(first, byteAt(offset));
  }
  assert.equal(source.size, HUGE);
  source.close();
  listener.close();
});

test('offsets beyond 4 GiB are right in a file', () => {
  const path = temporary('sparse.bin');
  const fd = fs.openSync(path, 'w');
  fs.writeSync(fd, 'here', 4.5 * 2 ** 30);
  fs.closeSync(fd);
  const source = new FileSource(path);
  assert.equal(source.size, 4.5 * 2 ** 30 + 4);
  const target = new Uint8Array(8);
  assert.equal(source.readSync(4.5 * 2 ** 30 - 2, target), 6);
  assert.equal(Buffer.from(target).toString(), '\0\0here\0\0');
  assert.equal(source.readSync(source.size, target), 0);
  source.close();
  source.close();
});

test('files: missing, a folder, unreadable', () => {
  assert.throws(() => new FileSource(temporary('none')), { code: 'SOURCE_NOT_FOUND' });
  assert.throws(() => new FileSource(import.meta.dirname ?? '.'), { code: 'SOURCE_UNREADABLE' });
});

test('Blobs and custom sources: at most 4 MiB at a time, checked', async () => {
  const [blob] = describeSource(new Blob([new Uint8Array(5 << 20)]));
  const source = await openSource(blob);
  assert.equal((await source.read(0, 5 << 20)).length, 4 << 20);
  assert.equal((await source.read(5 << 20, 10)).length, 0);
  const custom = await openSource(
    describeSource({ size: 10, read: (_offset, length) => new Uint8Array(length + 1) })[0],
  );
  await assert.rejects(custom.read(0, 10), { code: 'BAD_ARGUMENT' });
  let closed = 0;
  const closing = await openSource(
    describeSource({
      read: () => new Uint8Array(0),
      close: () => {
        closed++;
      },
    })[0],
  );
  await closing.close();
  assert.equal(closed, 1);
});

// --- servers that stall, are busy, or answer oddly ------------------------------------------

/** A server of one function, and its address. */
async function serverOf(t, answer) {
  const listener = http.createServer(answer);
  await new Promise((resolve) => {
    listener.listen(0, '127.0.0.1', resolve);
  });
  t.after(() => {
    listener.closeAllConnections();
    listener.close();
  });
  return `http://127.0.0.1:${listener.address().port}/m.gguf`;
}

/** What a good server does with a Range request. */
function sendRange(request, response, fields = {}) {
  const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
  const first = match ? Number(match[1]) : 0;
  const last = match && match[2] !== '' ? Math.min(Number(match[2]), SIZE - 1) : SIZE - 1;
  const range = match ? { 'Content-Range': `bytes ${first}-${last}/${SIZE}` } : {};
  response.writeHead(match ? 206 : 200, { 'Content-Length': last - first + 1, ...range, ...fields });
  response.end(DATA.subarray(first, last + 1));
}

test('a server that never answers, and one that stalls each time: NETWORK_TIMEOUT', async (t) => {
  const silent = await serverOf(t, () => {});
  const start = Date.now();
  await assert.rejects(new HttpSource(silent, { timeoutMs: 80 }).read(0, 100), (error) => {
    assert.equal(error.code, 'NETWORK_TIMEOUT');
    assert.match(error.message, /0\.08 seconds/);
    assert.match(error.remedy, /timeoutMs/);
    return true;
  });
  assert.ok(Date.now() - start < 3000);
  let requests = 0;
  const stalling = await serverOf(t, (request, response) => {
    requests++;
    const from = Number(/=(\d+)-/.exec(request.headers.range)[1]);
    response.writeHead(206, { 'Content-Range': `bytes ${from}-999/${SIZE}`, 'Content-Length': 1000 - from });
    response.write('GGUF');
  });
  await assert.rejects(new HttpSource(stalling, { timeoutMs: 50 }).read(0, 1000), { code: 'NETWORK_TIMEOUT' });
  assert.equal(requests, 4, 'a few bytes before each stall do not count');
  const often = sourceWith({ stallAt: 100_000 }, { timeoutMs: 100 });
  assert.deepEqual(Buffer.from(await often.read(0, 1_000_000)), Buffer.from(DATA.subarray(0, 1_000_000)), 'many do');
  assert.equal(server.stats('/m.gguf').requests, 10);
});

test('a connection that stalls is taken up where it stopped; a slow one is not stalled', async (t) => {
  let requests = 0;
  const url = await serverOf(t, (request, response) => {
    if (requests++ > 0) return sendRange(request, response);
    response.writeHead(206, { 'Content-Range': `bytes 0-${SIZE - 1}/${SIZE}`, 'Content-Length': SIZE });
    return response.write(DATA.subarray(0, 700_000));
  });
  const source = new HttpSource(url, { timeoutMs: 100 });
  assert.deepEqual(await readAll(source), DATA);
  assert.equal(requests, 2);
  const slow = sourceWith({ chunk: 300_000, delay: 40 }, { timeoutMs: 200 });
  assert.deepEqual(await readAll(slow), DATA);
  assert.equal(server.stats('/m.gguf').requests, 1);
});

for (const [status, retryAfter] of [
  [429, '0'],
  [503, new Date(Date.now() - 1000).toUTCString()],
  [503, undefined],
]) {
  test(`${status} with Retry-After ${retryAfter}: asked again, up to 3 times`, async (t) => {
    let requests = 0;
    let busy = 2;
    const url = await serverOf(t, (request, response) => {
      requests++;
      if (busy-- > 0) response.writeHead(status, retryAfter ? { 'Retry-After': retryAfter } : {}).end('busy');
      else sendRange(request, response);
    });
    assert.deepEqual(Buffer.from(await new HttpSource(url).read(0, 100)), DATA.subarray(0, 100));
    assert.equal(requests, 3);
    busy = Infinity;
    await assert.rejects(new HttpSource(url).read(0, 100), (error) => {
      assert.equal(error.code, 'HTTP_STATUS');
      assert.equal(error.detail.status, status);
      return true;
    });
    assert.equal(requests, 3 + 4);
  });
}

test('Retry-After is waited for, and an abort ends the wait', async (t) => {
  let requests = 0;
  const url = await serverOf(t, (request, response) => {
    if (requests++ === 0) response.writeHead(429, { 'Retry-After': '1' }).end();
    else if (request.headers.range === 'bytes=0-9') sendRange(request, response);
    else response.writeHead(503, { 'Retry-After': '3600' }).end();
  });
  const start = Date.now();
  const source = new HttpSource(url);
  await source.read(0, 10);
  assert.ok(Date.now() - start >= 990);
  const controller = new AbortController();
  const reading = source.read(20, 10, controller.signal);
  setTimeout(() => controller.abort(), 50);
  await assert.rejects(reading, { code: 'ABORTED' });
  assert.ok(Date.now() - start < 3000);
});

test('416 that does not say how many bytes there are is no empty file', async (t) => {
  let ranges = 0;
  const url = await serverOf(t, (request, response) => {
    if (!request.headers.range) return sendRange(request, response);
    ranges++;
    return response.writeHead(416).end();
  });
  const source = new HttpSource(url);
  assert.deepEqual(await readAll(source), DATA);
  assert.equal(source.size, SIZE);
  const other = new HttpSource(url);
  const start = Buffer.from(await other.read(0, 1000));
  assert.deepEqual(start, DATA.subarray(0, start.length));
  assert.equal(other.rangeRead, false);
  assert.equal(ranges, 2);
  const refusing = await serverOf(t, (request, response) => response.writeHead(416).end());
  await assert.rejects(new HttpSource(refusing).read(0, 1000), { code: 'HTTP_RANGE' });
});

test('a page in place of the weights: SOURCE_CHANGED, not bytes', async (t) => {
  let requests = 0;
  const url = await serverOf(t, (request, response) => {
    if (requests++ === 0) return sendRange(request, response, { 'Content-Type': 'application/octet-stream' });
    return response.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html>sign in'.padEnd(9000));
  });
  const source = new HttpSource(url);
  await source.read(0, 1000);
  await assert.rejects(source.readForward(1000, 1000), (error) => {
    assert.equal(error.code, 'SOURCE_CHANGED');
    assert.match(error.message, /page \(text\/html\)/);
    return true;
  });
});

test('an address with a user or password is refused, and no message holds it', () => {
  for (const address of [
    'http://me:hunter2@h/m.gguf',
    'https://hunter2@h/m.gguf',
    'http://me:hunter2@h:port/m.gguf',
    'http://me:hunter2@/',
    'http://h:port/m?key=hunter2',
  ]) {
    assert.throws(
      () => describeSource(address),
      (error) => {
        assert.equal(error.code, 'BAD_ARGUMENT');
        assert.doesNotMatch(JSON.stringify(error) + String(error.stack), /hunter2/);
        return true;
      },
    );
  }
  assert.throws(() => describeSource(new URL('http://me:hunter2@h/m.gguf')), { code: 'BAD_ARGUMENT' });
});

test('many requests under one signal leave no listener behind', async () => {
  const { signal } = new AbortController();
  const count = { added: 0, removed: 0 };
  const watched = {
    aborted: false,
    addEventListener: (...args) => {
      count.added++;
      signal.addEventListener(...args);
    },
    removeEventListener: (...args) => {
      count.removed++;
      signal.removeEventListener(...args);
    },
  };
  const source = sourceWith({});
  for (let i = 0; i < 30; i++) await source.read(i * 1000, 1000, watched);
  await source.readForward(50_000, 100, watched);
  source.close();
  assert.ok(count.added >= 31);
  assert.equal(count.removed, count.added);
});

test('ranges that a server stops giving while several are asked for: each read gets its own bytes', async () => {
  const bytes = Uint8Array.from({ length: 3_000_000 }, (_, i) => (i * 2654435761) >>> 24);
  const file = temporary('ranges-end.bin');
  fs.writeFileSync(file, bytes);
  const server = await startServer({ '/f': file }, { faults: { '/f': (_, attempt) => (attempt > 1 ? { noRange: true } : {}) } });
  try {
    for (let round = 0; round < 5; round++) {
      server.reset();
      const source = await new HttpSource(`${server.url}/f`);
      await source.read(0, 1000);
      const one = async (offset) => {
        const got = await source.read(offset, 100_000).catch((error) => error);
        if (got instanceof Error) assert.equal(got.code, 'HTTP_RANGE');
        else assert.deepEqual(Buffer.compare(got, bytes.subarray(offset, offset + got.length)), 0, `${offset}`);
      };
      await one(1000);
      await one(200_000); // from here on the whole file comes
      await Promise.all([300_000, 700_000, 500_000, 900_000].map(one));
      await source.close();
    }
  } finally {
    await server.close();
  }
});

test('buffers that are used again: given back once, and of here', () => {
  const spares = new Spares(100, 2);
  const first = spares.take(10);
  const second = spares.take(10);
  assert.equal(first.length, 10);
  assert.notEqual(first.buffer, second.buffer, 'one is in use');
  spares.give(first.subarray(3, 4));
  spares.give(first); // was given
  spares.give(new Uint8Array(200)); // another's
  spares.give(undefined);
  assert.equal(spares.lent(first), false);
  const third = spares.take(100);
  assert.equal(third.buffer, first.buffer);
  assert.ok(spares.lent(third));
  const fourth = spares.take(5);
  assert.ok(![first.buffer, second.buffer].includes(fourth.buffer));
  for (const bytes of [second, third, fourth]) spares.give(bytes);
  const large = spares.take(1000);
  assert.equal(large.length, 1000, 'one that is too small is let go');
  const moved = structuredClone(large.buffer, { transfer: [large.buffer] });
  spares.giveAnew(moved);
  assert.equal(spares.take(1).buffer, moved);
  spares.giveAnew(new ArrayBuffer(0)); // detached
  spares.clear();
  assert.equal(spares.take(1).buffer.byteLength, 100);
});
