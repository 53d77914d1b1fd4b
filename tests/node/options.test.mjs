// Arguments: what is accepted, what is refused, and that the message names it.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import { LinealError, modelCache, parseByteSize } from '../../js-glue/index.js';
import { nearest } from '../../js-glue/nearest.js';
import {
  cacheOptions, checkPrompt, evaluateOptions, fetchOptions, generateSettings, planOptions, scoreOptions, tokenIds,
} from '../../js-glue/options.js';
import { allParts, describeSource } from '../../js-glue/source.js';
import { chooseModule, probeCapabilities } from '../../js-glue/caps.js';

test('sizes', () => {
  const good = {
    0: 0,
    123: 123,
    '5B': 5,
    '2GiB': 2 ** 31,
    '2 gib': 2 ** 31,
    '512MB': 512e6,
    '1.5 KiB': 1536,
    '100kb': 100_000,
    ' 7 MiB ': 7 * 2 ** 20,
    '.5GB': 5e8,
    '1TiB': 2 ** 40,
  };
  for (const [text, bytes] of Object.entries(good)) assert.equal(parseByteSize(text), bytes, text);
  assert.equal(parseByteSize(2 ** 40), 2 ** 40);
  for (const bad of [
    '',
    'GiB',
    '-1',
    '2 XB',
    '1e9',
    '0x10',
    '2GiBs',
    '1 2',
    NaN,
    -1,
    1.5,
    Infinity,
    2 ** 60,
    '99999999TiB',
    null,
    undefined,
    {},
  ]) {
    assert.throws(() => parseByteSize(bad), { name: 'LinealError', code: 'BAD_ARGUMENT' }, String(bad));
  }
});

test('plan options: defaults, and each bad value is named', () => {
  const plan = planOptions({ memory: '1GiB', context: 128 });
  assert.deepEqual(
    { ...plan, wasmBaseUrl: '' },
    {
      context: 128,
      memory: 2 ** 30,
      kvType: 'auto',
      placement: { profile: 'auto', hold: 'auto', tensors: '' },
      chunk: 0,
      allLogits: false,
      embeddings: false,
      overlap: false,
      stream: 'auto',
      streamWindow: 0,
      module: 'auto',
      threads: 0,
      host: {},
      wasmBaseUrl: '',
    },
  );
  assert.match(plan.wasmBaseUrl, /\/dist\/$/);
  for (const [name, value] of [
    ['context', 0],
    ['context', 1.5],
    ['context', '5'],
    ['memory', 0],
    ['kvType', 'f64'],
    ['kvType', { k: 'f16', v: 'auto' }],
    ['placement', { hold: 'q8_0' }],
    ['placement', { tensors: { '*': 'int8' } }],
    ['chunk', -1],
    ['module', 'wasm64'],
    ['threads', 0],
    ['threads', 'many'],
  ]) {
    assert.throws(
      () => planOptions({ [name]: value }),
      (error) => error.code === 'BAD_ARGUMENT' && error.message.includes(name),
      `${name} ${value}`,
    );
  }
  assert.throws(() => planOptions(null), { code: 'BAD_ARGUMENT' });
});

test('generate settings: greedy by default, and each bad value is named', () => {
  const { sampler, maxTokens, stop } = generateSettings();
  assert.deepEqual(
    { ...sampler, maxTokens, stop },
    {
      temperature: 0,
      topK: 40,
      topP: 0.95,
      minP: 0.05,
      repeatPenalty: 1,
      repeatLastN: 64,
      seed: 0,
      maxTokens: 128,
      stop: [],
    },
  );
  assert.deepEqual(generateSettings({ stop: 'x' }).stop, ['x']);
  for (const [name, value] of [
    ['maxTokens', -1],
    ['maxTokens', NaN],
    ['temperature', -0.1],
    ['temperature', 'hot'],
    ['topK', 1.5],
    ['topP', 1.1],
    ['minP', -1],
    ['repeatPenalty', 0],
    ['repeatLastN', -1],
    ['seed', -1],
    ['seed', 2 ** 32],
    ['stop', ['']],
    ['stop', [5]],
  ]) {
    assert.throws(
      () => generateSettings({ [name]: value }),
      (error) => error.code === 'BAD_ARGUMENT' && error.message.includes(name),
      `${name} ${value}`,
    );
  }
});

const MOST = Number.MAX_SAFE_INTEGER;
const TOKENS = 2 ** 31 - 1;
const plan = (name) => (value) => planOptions({ [name]: value });
const host = (name) => (value) => planOptions({ host: { [name]: value } });
const generation = (name) => (value) => generateSettings({ [name]: value });

/**
 * Every option that is a count, a size or another number: what it is called in messages, its kind, the least and the
 * most it may be, and how it is given. What is documented to mean something at 0 has 0 for its least.
 */
const NUMBERS = [
  ['context', 'whole', 1, TOKENS, plan('context')],
  ['memory', 'bytes', 1, MOST, plan('memory')],
  ['chunk', 'whole', 1, 2 ** 20, plan('chunk')],
  ['streamWindow', 'bytes', 1, MOST, plan('streamWindow')],
  ['threads', 'whole', 1, 65536, plan('threads')],
  ['host.threads', 'whole', 1, 65536, host('threads')],
  ['host.maxMemoryBytes', 'whole', 0, MOST, host('maxMemoryBytes')],
  ['fetch.timeoutMs', 'whole', 0, TOKENS, (timeoutMs) => fetchOptions({ timeoutMs })],
  ['cache.maxBytes', 'bytes', 1, MOST, (maxBytes) => cacheOptions({ maxBytes })],
  ['maxTokens', 'whole', 0, TOKENS, generation('maxTokens')],
  ['temperature', 'any', 0, 100, generation('temperature')],
  ['topK', 'whole', 0, TOKENS, generation('topK')],
  ['topP', 'above', 0, 1, generation('topP')],
  ['minP', 'any', 0, 1, generation('minP')],
  ['repeatPenalty', 'any', 0.01, 100, generation('repeatPenalty')],
  ['repeatLastN', 'whole', 0, TOKENS, generation('repeatLastN')],
  ['seed', 'whole', 0, 2 ** 32 - 1, generation('seed')],
  ['from', 'whole', 0, TOKENS, (from) => scoreOptions({ from })],
  ['size of the source', 'whole', 0, MOST, (size) => describeSource({ size, read() {} })],
  ['the size', 'bytes', 0, MOST, (size) => parseByteSize(size)],
];

test('numbers: each option refuses what is out of its range with one error that names it, the range and what was given', () => {
  for (const [name, kind, least, most, give] of NUMBERS) {
    for (const good of [kind === 'above' ? 0.001 : least, most]) assert.doesNotThrow(() => give(good), `${name} ${good}`);
    if (kind === 'bytes') assert.doesNotThrow(() => give('2 MiB'), name);
    const wrong = [least - 1, -1, -0.5, most + 1, most * 2, NaN, Infinity, -Infinity, null, true, 5n, [], {}, () => 1, '', '-1', 'many'];
    if (kind === 'whole' || kind === 'bytes') wrong.push(least + 0.5, 1e300);
    if (kind === 'above') wrong.push(0, 1e-300); // which is 0 in the core
    if (kind === 'bytes') wrong.push('1 XB', '99999999TiB', ...(least > 0 ? ['0', '0MiB', '0.1'] : []));
    else wrong.push('5');
    for (const value of wrong) {
      const what = `${name}: ${typeof value === 'function' ? 'a function' : String(value)}`;
      assert.throws(() => give(value), (error) => {
        assert.ok(error instanceof LinealError, `${what}: ${error}`);
        assert.equal(error.code, 'BAD_ARGUMENT', what);
        assert.ok(error.message.startsWith(`${name} is `), `${what}: ${error.message}`);
        assert.ok(error.message.includes(String(most)) && /, not ./.test(error.message), `${what}: ${error.message}`);
        if (typeof value === 'number') assert.ok(error.message.endsWith(`not ${value}`), error.message);
        assert.ok(error.remedy !== '' && error.detail.option === name, what);
        assert.deepEqual([error.detail.least, error.detail.most], [least, most], what);
        return true;
      }, what);
    }
  }
});

test('numbers: index.d.ts has no other option that is one', () => {
  const manual = fs.readFileSync(new URL('../../js-glue/index.d.ts', import.meta.url), 'utf8');
  const inTable = new Set(NUMBERS.map(([name]) => name));
  const prefixes = {
    ExplainOptions: '', GenerateOptions: '', TokenizeOptions: '', PlacementOptions: 'placement.', HostCapabilities: 'host.',
    FetchOptions: 'fetch.', CacheOptions: 'cache.',
  };
  let found = 0;
  for (const [name, prefix] of Object.entries(prefixes)) {
    const [, body] = new RegExp(`interface ${name} \\{\\n(.*?)\\n\\}`, 's').exec(manual) ?? [];
    assert.ok(body, name);
    for (const [, option] of body.matchAll(/^ {2}(\w+)\??: (?:number|ByteSize)\b/gm)) {
      found++;
      assert.ok(inTable.has(prefix + option), `${prefix}${option} is in the table above`);
    }
  }
  assert.ok(found >= 16, `${found} found`);
  assert.match(manual, /options\?: \{ from\?: number; /);
});

test('what is of the wrong kind is told with the option, and with all that it may be', () => {
  const cases = [
    [() => generateSettings({ profile: 'x' }), 'profile', "profile is true, false or 'trace', not 'x'"],
    [() => planOptions({ kvType: null }), 'kvType', "kvType is 'auto', 'f32', 'f16', 'q8_0', 'q4_0', or { k, v } with one of them for each, not null"],
    [() => planOptions({ placement: 'phone' }), 'placement', "placement is an object, not 'phone'"],
    [() => planOptions({ host: 'node' }), 'host', "host is an object, not 'node'"],
    [() => cacheOptions(5), 'cache', 'cache is true, false, a folder or an object, not 5'],
    [() => cacheOptions(''), 'cache', "cache is true, false, a folder or an object, not ''"],
    [() => cacheOptions(null), 'cache', 'cache is an object, not null'],
  ];
  for (const [give, option, message] of cases)
    assert.throws(give, (error) => {
      assert.deepEqual([error.code, error.message, error.detail.option], ['BAD_ARGUMENT', message, option]);
      return true;
    });
  for (const profile of [true, false, 'trace']) assert.equal(generateSettings({ profile }).profile, profile);
});

test('an option that there is not: the nearest is told, if any is like it, and all of them', async () => {
  for (const [wrong, meant] of [['contxt', 'context'], ['Threads', 'threads'], ['streamwindow', 'streamWindow'], ['memroy', 'memory']]) {
    assert.throws(() => planOptions({ [wrong]: 1 }), (error) => {
      assert.equal(error.message, `there is no option '${wrong}'; the nearest is '${meant}'`);
      assert.match(error.remedy, /^the options are context, /);
      return true;
    });
  }
  for (const wrong of ['x', 'nothing', 'temp', 'gpuLayers', '__proto', 'toString'])
    assert.throws(() => planOptions({ [wrong]: 1 }), { code: 'BAD_ARGUMENT', message: `there is no option '${wrong}'` });
  assert.throws(() => planOptions({ host: { thread: 1 } }), { message: "there is no option 'host.thread'; the nearest is 'host.threads'" });
  assert.throws(() => evaluateOptions({ q: 1 }), { message: "there is no option 'q'", remedy: 'the options are signal' });
  await assert.rejects(modelCache.list({ dir: '/x' }), { code: 'BAD_ARGUMENT' });
  assert.equal(nearest('', ['a', 'b']), undefined);
  assert.equal(nearest('a', []), undefined);
  assert.equal(nearest('tread', ['stream', 'threads']), 'threads', 'of those equally far the one that begins like it');
});

test('prompts and ids', () => {
  assert.throws(() => checkPrompt(''), { code: 'EMPTY_PROMPT' });
  assert.throws(() => checkPrompt([]), { code: 'EMPTY_PROMPT' });
  for (const bad of [[1.5], [NaN], ['1'], [2 ** 31], [null]])
    assert.throws(() => tokenIds(bad), { code: 'BAD_TOKEN' });
  for (const bad of [5, null, undefined, {}]) assert.throws(() => checkPrompt(bad), { code: 'BAD_ARGUMENT' });
  assert.deepEqual(tokenIds([1, -1]), new Int32Array([1, -1]));
});

test('sources are told apart; a path, a URL, a file: URL, and what is none of them', () => {
  assert.deepEqual(describeSource('a/b.gguf'), [{ kind: 'path', path: 'a/b.gguf' }]);
  assert.deepEqual(describeSource('C:\\m.gguf')[0].kind, 'path');
  assert.equal(describeSource('http://h/x.gguf')[0].kind, 'url');
  assert.deepEqual(describeSource(new URL('file:///m%20x/y.gguf')), [{ kind: 'path', path: '/m x/y.gguf' }]);
  assert.equal(describeSource(new Blob([]))[0].kind, 'blob');
  assert.equal(describeSource(new ArrayBuffer(1))[0].kind, 'bytes');
  assert.equal(describeSource({ read() {} })[0].kind, 'custom');
  for (const bad of ['', [], 5, null, undefined, {}, 'ftp://h/x', { size: -1, read() {} }, ['']]) {
    assert.throws(() => describeSource(bad), { code: 'BAD_ARGUMENT' }, String(bad));
  }
});

test('parts of a split model: derived from any part, kept in the query, ordered by name', () => {
  const first = describeSource('dir/m-00002-of-00003.gguf');
  assert.deepEqual(
    allParts(first, 3).map((d) => d.path),
    [1, 2, 3].map((n) => `dir/m-0000${n}-of-00003.gguf`),
  );
  const url = describeSource('http://h/m-00001-of-00002.gguf?download=true#x');
  assert.deepEqual(
    allParts(url, 2).map((d) => d.url),
    [1, 2].map((n) => `http://h/m-0000${n}-of-00002.gguf?download=true#x`),
  );
  const mixed = describeSource([3, 1, 2].map((n) => new File([], `m-0000${n}-of-00003.gguf`)));
  assert.deepEqual(
    allParts(mixed, 3).map((d) => d.name[6]),
    ['1', '2', '3'],
  );
  assert.throws(() => allParts(describeSource(new Blob([])), 2), { code: 'SPLIT_MISMATCH' });
  assert.throws(() => allParts(describeSource('plain.gguf'), 2), { code: 'SPLIT_MISMATCH' });
  assert.throws(() => allParts(mixed, 2), { code: 'SPLIT_MISMATCH' });
});

test('the module is one that computes right, and a wish is obeyed', async () => {
  assert.equal(await chooseModule('base'), 'base');
  assert.ok(['base', 'relaxed'].includes(await chooseModule('auto')));
  await assert.rejects(chooseModule('fast'), { code: 'BAD_ARGUMENT' });
});

test('capabilities: probed, overridden, and unknown ones refused', async () => {
  const here = await probeCapabilities();
  assert.deepEqual([here.kind, here.isolated, here.canWait], ['node', true, true]);
  assert.equal(here.threads, availableParallelism());
  assert.equal((await probeCapabilities({}, { syncRead: true })).syncRead, true);
  assert.equal((await probeCapabilities({ kind: 'browser', maxMemoryBytes: 2 ** 31 })).maxMemoryBytes, 2 ** 31);
  assert.equal((await probeCapabilities({ kind: 'wasi' })).threads, 1);
  for (const bad of [{ kind: 'toaster' }, { wings: true }, { canGrow: 1 }, { threads: 0 }, { maxMemoryBytes: -1 }])
    assert.throws(() => planOptions({ host: bad }), { code: 'BAD_ARGUMENT' });
});
