// What a page's process holds beside linear memory while a model comes over HTTP: buffers that are used again, not one
// for each piece that comes, which the collector lets pile up. And that what a read gave is not overwritten by the next.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromiumMissing } from '../lib/chromium.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';
import { startUnwatched, watchOpening } from '../lib/unwatched.mjs';

const skip = await chromiumMissing();
const MiB = 1 << 20;
const SHAPE = { n_layer: 6, d_model: 512, n_head: 8, n_kv_head: 8, d_ff: 2048, n_vocab: 8192, n_ctx: 64, type: 'F16' };
const MOST = 16 * MiB; // 2 to 12 were seen, and 22 to 72 with a buffer for each piece
const DATA = Buffer.from(Uint8Array.from({ length: 6_000_000 }, (_, i) => (i * 2654435761) >>> 24));
DATA.write('GGUF');
let place, size;

before(async () => {
  if (skip) return;
  const large = Buffer.from(ggufBytes(tinyLlama(SHAPE)));
  size = large.length;
  place = await startUnwatched({
    '/tiny.gguf': Buffer.from(ggufBytes(tinyLlama({ n_ctx: 64 }))), '/large.gguf': large,
    '/data.gguf': DATA, '/truth': DATA,
  });
});
after(() => place?.close());

const opening = (url, options) => watchOpening(place, url, options, { least: size / 2, ms: 20 });

for (const [name, options] of [
  ['in one stream', { cache: false }],
  ['in one stream, kept in the cache', {}],
  ['by ranges, overlapped', { cache: false, overlap: true }],
  ['by ranges, overlapped, kept in the cache', { overlap: true }],
]) {
  test(`a model that comes ${name}: the process holds little beside it`, { skip }, async (t) => {
    await place.inPage(({ modelCache }) => modelCache.clear());
    await opening('/tiny.gguf', options); // code is compiled, memory of the engine is there
    const { most: before_ } = await opening('/tiny.gguf', options);
    if (before_ === undefined) return t.skip('the system does not tell');
    place.server.reset();
    const { most, looks, linear } = await opening('/large.gguf', options);
    assert.equal(place.server.stats('/large.gguf').bytes, size);
    assert.ok(linear > size, `${linear}`);
    t.diagnostic(`${((most - before_) / MiB).toFixed(1)} MiB more than for a tiny model, of ${(size / MiB).toFixed()}, in ${looks} looks`);
    assert.ok(looks >= 5, `${looks}`);
    assert.ok(most - before_ < MOST, `${most - before_} bytes`);
  });
}

for (const [name, fault] of [
  ['ranges', {}],
  ['no ranges', { noRange: true }],
  ['ranges that end while several are read', (_, attempt) => (attempt > 3 ? { noRange: true } : {})],
  ['connections that break', { cutAt: 700_000 }],
]) {
  for (const byob of [true, false]) {
    test(`${name}, ${byob ? 'into our buffers' : 'bodies that are no streams of bytes'}: what a read gave stays`, { skip }, async () => {
      place.server.reset();
      place.server.faults['/data.gguf'] = fault;
      const out = await place.inPage(async (_, { byob: can }) => {
        const { HttpSource } = await import('/js-glue/source-http.js');
        const truth = new Uint8Array(await (await fetch('/truth')).arrayBuffer());
        const { getReader } = ReadableStream.prototype;
        const { read } = ReadableStreamBYOBReader.prototype;
        let filled = 0;
        const wrong = [];
        const compare = (how, at, bytes) => {
          if (bytes.length === 0 || bytes.some((byte, i) => byte !== truth[at + i])) wrong.push(`${how} at ${at}, ${bytes.length} bytes`);
        };
        if (!can) ReadableStream.prototype.getReader = function get(options) {
          if (options?.mode) throw new TypeError('no stream of bytes');
          return getReader.call(this);
        };
        ReadableStreamBYOBReader.prototype.read = function count(view) {
          filled++;
          return read.call(this, view);
        };
        try {
          const source = new HttpSource(`${location.origin}/data.gguf`);
          compare('first', 0, await source.read(0, 1000));
          const forward = async () => {
            for (let at = 2_000_000; at < 5_000_000;) {
              const bytes = await source.readForward(at, 400_000);
              compare('forward', at, bytes);
              at += bytes.length;
            }
          };
          await forward();
          for (let round = 0; round < 4; round++) {
            const kept = await Promise.all([1000, 600_000, 1_900_000, 3_000_000, 2_500_000].map(async (at) => {
              try {
                return { at, bytes: await source.read(at + round, 900_000) };
              } catch (error) {
                return error.code === 'HTTP_RANGE' ? undefined : { at, bytes: new Uint8Array(0), error };
              }
            }));
            for (const one of kept) if (one) compare(`read ${one.error?.code ?? ''}`, one.at + round, one.bytes);
          }
          await forward();
          await source.close();
        } finally {
          ReadableStream.prototype.getReader = getReader;
          ReadableStreamBYOBReader.prototype.read = read;
        }
        return { wrong, filled };
      }, { byob });
      assert.deepEqual(out.wrong, []);
      assert.equal(out.filled > 10, byob, `${out.filled}`);
    });
  }
}
