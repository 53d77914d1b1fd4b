// hf: addresses, streams, file lists and handles, parts of a split model over
// each kind of source, and what the command line makes of them.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { progressLine, progressText } from '../../js-glue/cli-progress.js';
import { DEFAULT_HUB, hubOption, hubUrl } from '../../js-glue/hub.js';
import { explain, open } from '../../js-glue/index.js';
import { describeSource } from '../../js-glue/source.js';
import { BUNDLED, CLI, countingSource, fixture, fixturesMissing, generate } from '../lib/fixtures.mjs';
import { startServer } from '../lib/http-server.mjs';

const run = promisify(execFile);
const skip = fixturesMissing();
const BYTES = fs.readFileSync(BUNDLED);
const TOKENS = [271, 261, 345, 981];
const base = '/some.one/a-model/resolve';
let server;
before(async () => {
  server = await startServer({
    [`${base}/main/kjv.gguf`]: BUNDLED,
    [`${base}/v2/sub/kjv.gguf`]: BUNDLED,
    [`/mirror${base}/main/kjv.gguf`]: BUNDLED,
  });
});
after(() => server.close());

async function tokensOf(source, options = {}) {
  const model = await open(source, { context: 64, ...options });
  try {
    return (await generate(model, 'In the beginning', { maxTokens: 4 })).result.tokens;
  } finally {
    await model.close();
  }
}

// --- hf: -----------------------------------------------------------------------------------

test('hf: addresses: file, folder, revision, mirror', async () => {
  const at = (text) => hubUrl(text, DEFAULT_HUB).href;
  assert.equal(at('hf:o/r/f.gguf'), `${DEFAULT_HUB}/o/r/resolve/main/f.gguf`);
  assert.equal(at('HF://o/r/d/f.gguf@v1.0'), `${DEFAULT_HUB}/o/r/resolve/v1.0/d/f.gguf`);
  assert.equal(at('hf:o/r/f x#1?.gguf@refs/pr/2'), `${DEFAULT_HUB}/o/r/resolve/refs%2Fpr%2F2/f%20x%231%3F.gguf`);
  assert.deepEqual(describeSource('hf:o/r/f.gguf')[0].url, at('hf:o/r/f.gguf'));
  assert.match(describeSource('hf:o/r/m-00002-of-00003.gguf')[0].url, /m-00001-of-00003\.gguf$/);
  assert.deepEqual(await tokensOf('hf:some.one/a-model/kjv.gguf', { hub: server.url }), TOKENS);
  assert.deepEqual(await tokensOf('hf:some.one/a-model/sub/kjv.gguf@v2', { hub: new URL(server.url) }), TOKENS);
  assert.deepEqual(await tokensOf('hf:some.one/a-model/kjv.gguf', { hub: `${server.url}/mirror/` }), TOKENS);
  await assert.rejects(tokensOf('hf:some.one/a-model/none.gguf', { hub: server.url }), { code: 'SOURCE_NOT_FOUND' });
});

test('what is no hf: address or hub is refused', () => {
  for (const text of ['hf:', 'hf:o', 'hf:o/r', 'hf:o/r/', 'hf:/r/f', 'hf:o/../f', 'hf:o/r/../f', 'hf:o/r/f@', 'hf:o/r/f@..', 'hf:o/r/f@a?b', 'hf:.o/r/f'])
    assert.throws(() => describeSource(text), { code: 'BAD_ARGUMENT' }, text);
  for (const hub of ['', 'hub', 'ftp://h', 'https://user:hunter2@h', 'https://h/?token=hunter2', 5]) {
    assert.throws(() => hubOption(hub), (error) => {
      assert.equal(error.code, 'BAD_ARGUMENT');
      assert.doesNotMatch(JSON.stringify(error) + String(error.stack), /hunter2/);
      return true;
    });
  }
});

test('the command line: --hub, LINEAL_HUB, and a URL that overlaps', async () => {
  const args = ['generate', 'hf:some.one/a-model/kjv.gguf', '-p', 'In the beginning', '-n', '4', '--json'];
  const tokens = ({ stdout }) => JSON.parse(stdout).tokens;
  const env = { ...process.env, LINEAL_HUB: server.url };
  assert.deepEqual(tokens(await run(process.execPath, [CLI, ...args], { env })), TOKENS);
  assert.deepEqual(tokens(await run(process.execPath, [CLI, ...args, '--hub', `${server.url}/mirror`], { env })), TOKENS);
  await assert.rejects(run(process.execPath, [CLI, ...args, '--hub', 'nowhere'], { env }), { stdout: /BAD_ARGUMENT/ });
});

// --- streams and files ------------------------------------------------------------------------

/** In pieces of any length, an empty one among them. */
function streamOf(bytes, step = 50_000) {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at === 0) controller.enqueue(new Uint8Array(0));
      controller.enqueue(bytes.subarray(at, at + step));
      at += step;
      if (at >= bytes.length) controller.close();
    },
  });
}

test('a ReadableStream is a model, in process, in a worker and overlapped; it serves once', async () => {
  for (const worker of [false, true]) {
    for (const overlap of [false, true]) {
      for (const step of [1000, 5_000_000])
        assert.deepEqual(await tokensOf(streamOf(BYTES, step), { worker, overlap }), TOKENS);
    }
  }
  const stream = streamOf(BYTES);
  assert.equal((await explain(stream)).fits, true);
  await assert.rejects(tokensOf(stream), { code: 'BAD_ARGUMENT' });
});

test('a stream that fails, ends early or gives no bytes: typed, with its cause', async () => {
  const failing = new ReadableStream({
    pull(controller) { controller.error(new Error('mine')); },
  });
  await assert.rejects(tokensOf(failing), (error) => error.code === 'SOURCE_READ' && error.cause.message === 'mine');
  await assert.rejects(tokensOf(streamOf(BYTES.subarray(0, 900_000))), { code: 'GGUF_TRUNCATED' });
  const texts = new ReadableStream({ pull(controller) { controller.enqueue('GGUF'); } });
  await assert.rejects(tokensOf(texts), { code: 'BAD_ARGUMENT' });
  let cancelled = 0;
  const long = new ReadableStream({
    pull(controller) { controller.enqueue(new Uint8Array(1000)); },
    cancel() { cancelled++; },
  });
  await assert.rejects(tokensOf(long), { code: 'NOT_GGUF' });
  assert.equal(cancelled, 1);
});

test('a file handle is read through its file; one whose file is gone is not found', async () => {
  const before = globalThis.FileSystemFileHandle;
  globalThis.FileSystemFileHandle = class { name = 'm.gguf'; getFile = async () => new File([BYTES], 'm.gguf'); };
  try {
    const handle = new globalThis.FileSystemFileHandle();
    assert.deepEqual(await tokensOf(handle), TOKENS);
    handle.getFile = async () => { throw new DOMException('gone', 'NotFoundError'); };
    await assert.rejects(tokensOf(handle), { code: 'SOURCE_NOT_FOUND' });
  } finally {
    if (before) globalThis.FileSystemFileHandle = before;
    else delete globalThis.FileSystemFileHandle;
  }
});

test('a split model over each kind of source equals the whole one', { skip }, async () => {
  const name = (n) => `stories260K-split-0000${n}-of-00003.gguf`;
  const parts = [1, 2, 3].map((n) => fs.readFileSync(fixture(`stories260k/${name(n)}`)));
  const ids = [1, 5, 9];
  const tokens = async (source, options) => {
    const model = await open(source, { context: 64, ...options });
    try {
      return (await generate(model, ids, { maxTokens: 8, ignoreEos: true })).result.tokens;
    } finally {
      await model.close();
    }
  };
  const whole = await tokens(fixture('stories260k/stories260K.gguf'));
  const split = await startServer(Object.fromEntries(parts.map((part, i) => [`/d/${name(i + 1)}`, part])));
  try {
    for (const overlap of [false, true]) {
      const sources = {
        files: [3, 1, 2].map((n) => new File([parts[n - 1]], name(n))),
        bytes: parts.map((part) => new Uint8Array(part)),
        custom: parts.map((part) => countingSource(part, { step: 30_000 })),
        streams: parts.map((part) => streamOf(part, 10_000)),
        url: `${split.url}/d/${name(2)}`,
        urls: [2, 3, 1].map((n) => `${split.url}/d/${name(n)}`),
        mixed: [new Blob([parts[0]]), `${split.url}/d/${name(2)}`, streamOf(parts[2])],
      };
      for (const [kind, source] of Object.entries(sources))
        assert.deepEqual(await tokens(source, { overlap }), whole, `${kind}, overlap ${overlap}`);
    }
  } finally {
    await split.close();
  }
});

// --- the bar ------------------------------------------------------------------------------------

const MiB = 2 ** 20;
const half = { phase: 'weights', loaded: 45 * MiB, total: 90 * MiB };
const rated = { ...half, bytesPerSecond: MiB, remainingMs: 45_000 };

test('the bar: bytes, rate, time left', () => {
  assert.equal(progressText(rated, 100), 'weights  [############............]  50 %  45.0 of 90.0 MiB, 1.0 MiB/s, 45 s left');
  assert.match(progressText({ ...rated, loaded: rated.total, remainingMs: 0 }, 100), /\[#{24}\] 100 % {2}90\.0 of 90\.0 MiB, 1\.0 MiB\/s$/);
  assert.match(progressText({ ...rated, remainingMs: 3_725_000 }, 100), /1 h 2 min left/);
  assert.match(progressText({ ...half, loaded: 300_000 }, 100), /0\.3 of 90\.0 MiB$/);
  assert.match(progressText({ ...half, total: 5 * 2 ** 30 }, 100), /0\.04 of 5\.00 GiB$/);
  assert.equal(progressText({ phase: 'compile', loaded: 0, total: undefined }, 80), 'compile');
  assert.equal(progressText({ phase: 'header', loaded: 262_144, total: undefined }, 80), 'header   256.0 KiB');
  assert.match(progressText({ phase: 'prefill', loaded: 3, total: 4 }, 80), /^prefill {2}\[#{18}\.{6}\] {2}75 % {2}3 of 4 tokens$/);
});

test('the bar is there at any width from 40 columns, and what counts more is left out later', () => {
  assert.equal(progressText(half, 39), 'weights  [##..]  50 %  45.0 of 90.0 MiB');
  assert.equal(progressText(rated, 39), 'weights  [####....]  50 %  45 s left');
  assert.equal(progressText(rated, 59), 'weights  [####....]  50 %  45.0 of 90.0 MiB, 45 s left');
  assert.equal(progressText({ ...rated, from: 'cache' }, 79), 'weights  [##..]  50 %  45.0 of 90.0 MiB, from the cache, 1.0 MiB/s, 45 s left');
  const sizes = [0, 1, 1023, 1024, 10_000_000, 1023.96 * MiB, 2 ** 30, 2 ** 40];
  const usual = [90 * MiB, 4.7 * 2 ** 30];
  for (const total of [...usual, 1, 1023.9 * MiB, 2 ** 42]) {
    for (const loaded of [...sizes.filter((bytes) => bytes < total), total]) {
      for (const remainingMs of [undefined, 0, 900, 45_000, 3_599_000, 3_599_000_000]) {
        for (const bytesPerSecond of remainingMs === undefined ? [undefined, MiB] : [1000, 1023 * MiB]) {
          for (const from of [undefined, 'cache', 'network']) {
            const progress = { phase: 'weights', loaded, total, bytesPerSecond, remainingMs, from };
            for (const columns of [40, 41, 60, 79, 80, 81, 120, 200]) {
              const line = progressText(progress, columns - 1);
              assert.match(line, /^weights {2}\[#*\.*\] +\d+ %/, JSON.stringify(progress));
              assert.ok(line.length < columns, `${columns}: ${line}`);
              if (remainingMs) assert.match(line, / left$/, `${columns}: ${JSON.stringify(progress)}`);
              else if (loaded > 0 && (columns >= 60 || usual.includes(total))) assert.match(line, / of /, `${columns}: ${JSON.stringify(progress)}`);
              if (columns >= 120) assert.equal(line.includes('/s'), bytesPerSecond !== undefined, line);
            }
          }
        }
      }
    }
  }
  for (const [loaded, total] of [[3, 4], [1000, 16384], [100_000, 131_072]]) {
    for (const columns of [40, 60, 80, 120]) {
      const line = progressText({ phase: 'prefill', loaded, total }, columns - 1);
      assert.match(line, /^prefill {2}\[#*\.*\] +\d+ %/);
      assert.ok(line.length < columns, `${columns}: ${line}`);
    }
  }
  // Narrower than that it is cut, and does not go on in the next line.
  for (let columns = 1; columns < 40; columns++) assert.ok(progressText(rated, columns - 1).length < columns);
});

test('no line is longer than the terminal, though the terminal becomes narrower', () => {
  const out = [];
  const stream = { isTTY: true, columns: 120, write: (text) => out.push(text) };
  const line = progressLine({}, stream);
  line.update({ ...rated, from: 'cache' });
  assert.ok(out[0].length > 80);
  stream.columns = 60;
  line.update(rated);
  line.show('x'.repeat(100));
  line.clear();
  for (const text of out.slice(1)) for (const part of text.split('\r')) assert.ok(part.length < 60, text);
});

test('the line is written for people only, and leaves nothing behind', () => {
  const written = (stream, values = {}) => {
    const out = [];
    const line = progressLine(values, { columns: 40, write: (text) => out.push(text), ...stream });
    line.update({ phase: 'compile', loaded: 0, total: undefined });
    line.update({ phase: 'weights', loaded: 1, total: 2 });
    line.end();
    line.update({ phase: 'weights', loaded: 2, total: 2 });
    return out;
  };
  assert.deepEqual(written({}), []);
  assert.deepEqual(written({ isTTY: true }, { quiet: true }), []);
  const out = written({ isTTY: true });
  assert.equal(out.length, 3);
  assert.match(out[2], /^\r +\r$/);
});
