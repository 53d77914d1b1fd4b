// Sources that are interrupted: connections that die after every few bytes, reads
// that give nothing for a moment or for long. What came is kept, what is missing
// is asked for, and a model that streams is whole again when its source is.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { CachedSource } from '../../js-glue/cache.js';
import { explain, modelCache, open } from '../../js-glue/index.js';
import { cacheOptions } from '../../js-glue/options.js';
import { HttpSource } from '../../js-glue/source-http.js';
import { directoryStore } from '../../js-glue/store-node.js';
import { countingSource, generate, temporary } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';
import { startServer } from '../lib/http-server.mjs';

const KB = 1000;
const IDS = [1, 5, 9, 23];
const FULL = { context: 32, chunk: 16, kvType: 'f32', threads: 1 };
const shape = { tokenizer: 'none', n_ctx: 32, n_head: 4, n_kv_head: 1 };
const MODELS = {
  small: ggufBytes(tinyLlama({ ...shape, n_layer: 3, d_model: 64, d_ff: 128, n_vocab: 256, type: 'Q8_0' })),
  large: ggufBytes(tinyLlama({ ...shape, n_layer: 4, d_model: 256, d_ff: 1024, n_vocab: 512, type: 'Q8_0' })),
};
const FILE = temporary('interrupted.gguf');
const expected = {};
let server;
before(async () => {
  fs.writeFileSync(FILE, MODELS.large);
  server = await startServer(Object.fromEntries(Object.entries(MODELS).map(([name, bytes]) => [`/${name}.gguf`, bytes])));
  for (const name of Object.keys(MODELS)) expected[name] = (await run(MODELS[name])).logprobs;
});
after(() => server.close());

async function textOf(model) {
  const { result } = await generate(model, IDS, { maxTokens: 3, ignoreEos: true, logprobs: true, reuse: false });
  return { logprobs: result.logprobs, streamed: result.streaming?.bytes ?? 0 };
}

async function run(source, options = {}) {
  const model = await open(source, { ...FULL, ...options });
  try {
    const got = await textOf(model);
    await model.loaded;
    return { ...got, explanation: model.explanation };
  } finally {
    await model.close();
  }
}

/** Half of the weights stay in the source. */
async function streaming(bytes) {
  const whole = await explain(bytes, FULL);
  const { total_bytes: least } = await explain(bytes, { ...FULL, memory: 1 });
  return { memory: Math.round((whole.total_bytes + least) / 2) };
}

async function withFault(name, fault, work) {
  server.reset();
  server.faults[name] = fault;
  try {
    return await work();
  } finally {
    delete server.faults[name];
  }
}

// --- connections ----------------------------------------------------------------------------

test('a read goes on from the byte that came, however few each connection brings', async () => {
  const bytes = Buffer.from(MODELS.large);
  const directory = temporary('interrupted-reads');
  const url = `${server.url}/large.gguf`;
  for (const [cutAt, length] of [[1, 100], [1000, 60 * KB], [300 * KB, 900 * KB]]) {
    for (const cache of [false, true]) {
      await withFault('/large.gguf', { cutAt, etag: '"1"' }, async () => {
        const inner = new HttpSource(url);
        const settings = cacheOptions({ directory, required: true });
        const source = cache ? await CachedSource.open(inner, directoryStore(directory), settings, { url }) : inner;
        try {
          let wanted = 0;
          const collect = async (how, at, end) => {
            wanted += end - at;
            for (let i = at; i < end;) {
              const got = await source[how](i, end - i);
              assert.ok(got.length > 0, `${how} at ${i}`);
              assert.ok(bytes.subarray(i, i + got.length).equals(got), `${how} at ${i}, ${got.length} bytes`);
              i += got.length;
            }
          };
          await collect('read', 0, length);
          await source.confirm?.();
          const at = bytes.length - length;
          if (cutAt < bytes.length / 8) {
            await collect('read', at - 2 * length, at - length);
            await Promise.all([collect('read', at - length, at), collect('readForward', at, bytes.length)]);
          }
          const { bytes: sent, requests } = server.stats('/large.gguf');
          assert.ok(sent <= wanted * 1.25 + 4 * cutAt, `${sent} bytes were sent for ${wanted}, ${cutAt} at a time`);
          assert.ok(requests >= wanted / cutAt);
        } finally {
          await source.close();
        }
      });
      if (cache) await modelCache.clear({ directory });
    }
  }
});

test('every connection dies after N bytes: opened plain, overlapped and streamed, kept or not, all is the same', async () => {
  for (const [name, cutAt] of [['small', 1000], ['small', 12 * KB], ['large', 300 * KB], ['large', 1900 * KB]]) {
    const bytes = MODELS[name];
    const ways = { plain: {}, overlapped: { overlap: true }, streamed: await streaming(bytes) };
    for (const [way, options] of Object.entries(ways)) {
      for (const cache of [false, { directory: temporary(`interrupted-${name}-${cutAt}-${way}`), required: true }]) {
        const what = `${name}, ${cutAt} bytes, ${way}, ${cache ? 'cached' : 'not cached'}`;
        await withFault(`/${name}.gguf`, { cutAt, etag: '"1"' }, async () => {
          const { logprobs, streamed, explanation } = await run(`${server.url}/${name}.gguf`, { ...options, cache });
          assert.deepEqual(logprobs, expected[name], what);
          assert.equal(Boolean(explanation.streaming), way === 'streamed', what);
          const { bytes: sent } = server.stats(`/${name}.gguf`);
          const needed = bytes.length + (cache ? 0 : streamed);
          assert.ok(sent <= needed * 1.2 + 4 * cutAt, `${what}: ${sent} bytes were sent for ${needed}`);
        });
      }
    }
  }
});

test('a model of which hundreds of bytes take a connection each still opens', async () => {
  const bytes = ggufBytes(tinyLlama({ ...shape, n_layer: 1, n_head: 1, d_model: 32, d_ff: 32, n_vocab: 32, type: 'Q8_0' }));
  server.mounts['/tiny.gguf'] = bytes;
  await withFault('/tiny.gguf', (_request, attempt) => (attempt < 400 ? { cutAt: 1 } : {}), async () => {
    const { logprobs } = await run(`${server.url}/tiny.gguf`, { overlap: true });
    assert.deepEqual(logprobs, (await run(bytes)).logprobs);
    const { requests, bytes: sent } = server.stats('/tiny.gguf');
    assert.ok(requests > 400 && requests < 500, `${requests} requests`);
    assert.ok(sent <= bytes.length + 100, `${sent} of ${bytes.length} bytes`);
  });
});

test('where no connection brings a byte any more, three more tries follow, and what came is kept', async () => {
  const directory = temporary('interrupted-dead');
  const bytes = MODELS.large;
  const dieAt = Math.floor(bytes.length * 0.8);
  for (const overlap of [false, true]) {
    await withFault('/large.gguf', { dieAt, etag: '"1"' }, async () => {
      const options = { overlap, cache: { directory, required: true } };
      await assert.rejects(run(`${server.url}/large.gguf`, options), ({ code }) => ['NETWORK', 'GGUF_TRUNCATED'].includes(code));
      const { requests } = server.stats('/large.gguf');
      assert.ok(requests <= 20, `${requests} requests`);
      const [{ cachedBytes }] = await modelCache.list({ directory });
      assert.ok(cachedBytes >= dieAt * 0.9, `${cachedBytes} of ${dieAt} bytes were kept`);
      delete server.faults['/large.gguf'];
      assert.deepEqual((await run(`${server.url}/large.gguf`, options)).logprobs, expected.large);
      assert.ok(server.stats('/large.gguf').bytes <= bytes.length * 1.05);
    });
    await modelCache.clear({ directory });
  }
});

// --- reads that give nothing ----------------------------------------------------------------

/** A custom source whose reads pass through `change(read, offset, length)`, which may be set at any time. */
function changing(bytes) {
  const source = countingSource(bytes);
  const { read } = source;
  source.change = undefined;
  source.read = function changed(offset, length) {
    const plain = (n = length) => read.call(this, offset, n);
    return this.change ? this.change(plain, offset, length) : plain();
  };
  return source;
}

const NOTHING = new Uint8Array(0);

/** Nothing the first time at each of these places. */
function onceNothing(every) {
  const seen = new Set();
  let count = 0;
  return (plain, offset) => {
    if (seen.has(offset) || count++ % every !== 0) return plain();
    seen.add(offset);
    return NOTHING;
  };
}

test('short reads are continued, and a read of nothing before the end is made again', async () => {
  const bytes = MODELS.large;
  const ways = { plain: {}, overlapped: { overlap: true }, streamed: await streaming(bytes) };
  for (const [way, options] of Object.entries(ways)) {
    for (const worker of way === 'streamed' ? [false, true] : [false]) {
      for (const [what, change] of Object.entries({
        'short reads': (plain, offset, length) => plain(Math.max(1, Math.min(length, (offset % 7919) * 37))),
        'nothing now and then': onceNothing(9),
        'nothing at first': onceNothing(Infinity),
      })) {
        const source = changing(bytes);
        source.change = change;
        const got = await run(source, { ...options, worker });
        assert.deepEqual(got.logprobs, expected.large, `${way}, ${what}, worker ${worker}`);
      }
    }
  }
});

test('a source that gives nothing any more while it is opened: typed, in bounded time', async () => {
  for (const [name, options] of Object.entries({ plain: {}, overlapped: { overlap: true }, header: {} })) {
    const source = changing(MODELS.large);
    const from = name === 'header' ? 100 : Math.floor(MODELS.large.length / 2);
    let empty = 0;
    source.change = (plain, offset, length) => {
      if (offset < from) return plain(Math.min(length, from - offset));
      empty++;
      return NOTHING;
    };
    await assert.rejects(run(source, options), { code: 'GGUF_TRUNCATED' }, name);
    assert.equal(empty, 4, `${name}: asked for four times`);
  }
});

/** What can fail under a model that streams: { source, broken(): heals() }. */
const FAILING = {
  'gives nothing': () => {
    const source = changing(MODELS.large);
    return { source, codes: ['SOURCE_TRUNCATED'], break: () => { source.change = () => NOTHING; }, heal: () => { source.change = undefined; } };
  },
  'is shorter than it was': () => {
    const source = changing(MODELS.large);
    const end = Math.floor(MODELS.large.length / 4);
    const cut = (plain, offset, length) => (offset < end ? plain(Math.min(length, end - offset)) : NOTHING);
    return { source, codes: ['SOURCE_TRUNCATED'], break: () => { source.change = cut; }, heal: () => { source.change = undefined; } };
  },
  throws: () => {
    const source = changing(MODELS.large);
    const unplugged = () => { throw new Error('unplugged'); };
    return { source, codes: ['SOURCE_READ'], break: () => { source.change = unplugged; }, heal: () => { source.change = undefined; } };
  },
  'is a file that is cut and written again': () => ({
    source: FILE,
    codes: ['SOURCE_TRUNCATED'],
    break: () => fs.truncateSync(FILE, 100 * KB),
    heal: () => fs.writeFileSync(FILE, MODELS.large, { flag: 'r+' }),
  }),
  'is a server that is away': () => ({
    source: `${server.url}/large.gguf`,
    codes: ['NETWORK'],
    break: () => { server.faults['/large.gguf'] = { drop: true }; },
    heal: () => { delete server.faults['/large.gguf']; },
  }),
  'is a server that has less': () => ({
    source: `${server.url}/large.gguf`,
    codes: ['SOURCE_TRUNCATED', 'HTTP_RANGE'],
    break: () => { server.faults['/large.gguf'] = { lieAbout: Math.floor(MODELS.large.length / 4) }; },
    heal: () => { delete server.faults['/large.gguf']; },
  }),
};

for (const [what, make] of Object.entries(FAILING)) {
  test(`a model streams, and its source ${what}: the call fails, the next one gives the same text`, async () => {
    const memory = await streaming(MODELS.large);
    const ways = [[1, false], [2, false], [1, true]];
    const made = ways.map(() => make());
    const models = await Promise.all(ways.map(([threads, worker], i) => open(made[i].source, { ...FULL, ...memory, threads, worker })));
    const every = (work) => Promise.all(models.map(work));
    const gives = (model, i) => textOf(model).then(({ logprobs }) => assert.deepEqual(logprobs, expected.large, String(ways[i])));
    const rejects = (model, i) =>
      assert.rejects(textOf(model), (error) => {
        assert.ok(made[i].codes.includes(error.code), `${ways[i]}: ${error.code}: ${error.message}`);
        assert.ok(error.message.length > 20 && error.remedy !== '');
        return true;
      });
    try {
      assert.ok(models.every(({ explanation }) => explanation.streaming));
      await every(gives);
      for (const { break: fail } of made) fail();
      await every(rejects);
      await every(rejects);
      for (const { heal } of made) heal();
      await every(gives);
      await every(gives);
    } finally {
      for (const { heal } of made) heal();
      await every((model) => model.close());
    }
  });
}

test('the copy in the cache is cut under a model that reads it: the rest is fetched again', async () => {
  const directory = temporary('interrupted-copy');
  const url = `${server.url}/large.gguf`;
  const options = { ...FULL, ...(await streaming(MODELS.large)), cache: { directory } };
  await run(url, options);
  const model = await open(url, options);
  try {
    assert.deepEqual((await textOf(model)).logprobs, expected.large);
    const [{ key }] = await modelCache.list({ directory });
    fs.truncateSync(`${directory}/${key}/content`, 100 * KB);
    server.reset();
    assert.deepEqual((await textOf(model)).logprobs, expected.large);
    assert.ok(server.stats('/large.gguf').bytes > 0);
    assert.deepEqual((await textOf(model)).logprobs, expected.large);
    assert.ok(server.stats('/large.gguf').bytes <= MODELS.large.length, 'each byte once');
  } finally {
    await model.close();
  }
  assert.deepEqual(await modelCache.verify(url, { directory }).then(({ damaged }) => damaged), []);
});
