// What nobody should give and somebody will: files damaged at random, arguments
// of the wrong kind. Each fails with a typed error that has a remedy, or works;
// nothing traps, hangs or is passed over in silence.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { test } from 'node:test';
import { LinealError, chromeTrace, explain, inspect, memoryMap, modelCache, open, openTokenizer } from '../../js-glue/index.js';
import { messageOf } from '../../js-glue/errors.js';
import { BUNDLED, CLI, MODULES, generate } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';

const bytes = fs.readFileSync(BUNDLED);

/** Whole numbers below n, always the same ones (xorshift). */
function randoms(seed) {
  let s = seed;
  return (n) => {
    s ^= s << 13;
    s ^= s >>> 17;
    s ^= s << 5;
    return (s >>> 0) % n;
  };
}

/** The code that the work fails with, or 'ok'. What is no typed error, or none that helps, fails the test. */
async function outcome(what, work) {
  try {
    await work();
    return 'ok';
  } catch (error) {
    const text = `${what}: ${error?.stack ?? error}`;
    assert.ok(error instanceof LinealError && error.code !== 'INTERNAL', text);
    assert.ok(error.message !== '' && error.remedy !== '' && typeof error.detail === 'object', text);
    JSON.stringify(error);
    return error.code;
  }
}

async function use(file) {
  const model = await open(file, { context: 32 });
  try {
    await model.generate('In the', { maxTokens: 3 }).done;
    await model.tokenize('hello <s> \u00e9');
    await model.explainPlan();
  } finally {
    await model.close();
  }
}

const DAMAGE = {
  'bytes of the header': (file, below, header) => {
    for (let n = 1 + below(6); n > 0; n--) file[below(header)] = below(256);
  },
  'bytes of the keys': (file, below) => {
    for (let n = 1 + below(4); n > 0; n--) file[below(900)] = [0, 1, 127, 128, 255][below(5)];
  },
  'bytes of the table of tensors': (file, below, header) => {
    for (let n = 1 + below(4); n > 0; n--) file[header - 1 - below(3400)] = [0, 1, 127, 128, 255][below(5)];
  },
  'many bytes of the weights': (file, below, header) => {
    for (let n = 0; n < 5000; n++) file[header + below(file.length - header)] = below(256);
  },
  'its end': (file, below, header) => file.subarray(0, below(header + 5000)),
};

for (const [what, damage] of Object.entries(DAMAGE)) {
  test(`a model that has lost ${what}: typed errors, or it runs`, async () => {
    const { data_offset: header } = await inspect(bytes);
    const below = randoms(20261130);
    const codes = new Set();
    for (let round = 0; round < 40; round++) {
      const copy = new Uint8Array(bytes);
      const file = damage(copy, below, header) ?? copy;
      const start = performance.now();
      codes.add(await outcome(`round ${round}`, () => use(file)));
      for (const call of [explain, inspect, openTokenizer])
        await outcome(`${call.name}, round ${round}`, async () => (await call(file)).close?.());
      assert.ok(performance.now() - start < 10_000, `round ${round} took too long`);
    }
    assert.ok(codes.size > 1 || !codes.has('ok'), `damage was found: ${[...codes]}`);
  });
}

const thrower = () => {
  throw new Error('no');
};

test('arguments that throw while they are read, and things that look like options and hold none', async () => {
  for (const worker of [false, true]) {
    for (const [what, call, told] of [
      ['a getter of the options', () => explain(BUNDLED, Object.defineProperty({ worker }, 'context', { enumerable: true, get: thrower })), /cannot be read: no/],
      ['a proxy', () => explain(BUNDLED, new Proxy({}, { ownKeys: thrower })), /cannot be read: no/],
      ['a getter of the source', () => open(Object.defineProperty({ read() {} }, 'size', { get: thrower }), { worker }), /cannot be read: no/],
      ['a Map of options', () => explain(BUNDLED, new Map([['context', 5]])), /options are an object, not an object \(Map\)/],
      ['a Map of tensors', () => explain(BUNDLED, { worker, placement: { tensors: new Map([['*', 'f32']]) } }), /placement.tensors is an object/],
      ['headers as a list', () => explain(BUNDLED, { worker, fetch: { headers: [['a', 'b']] } }), /fetch.headers is an object/],
      ['a Set of cache options', () => explain(BUNDLED, { worker, cache: new Set() }), /cache is an object/],
      ['a number for a folder', () => explain(BUNDLED, { worker, wasmBaseUrl: 5 }), /wasmBaseUrl is the address of a folder, not 5/],
      ['null for a number', () => explain(BUNDLED, { worker, context: null }), /context is .* not null/],
      ['a host that maps', () => open(BUNDLED, { worker, host: { canMap: true } }), /host.canMap is for explain/],
    ]) {
      await assert.rejects(call(), (error) => {
        assert.ok(error instanceof LinealError, `${what}: ${error}`);
        assert.equal(error.code, 'BAD_ARGUMENT', what);
        assert.match(error.message, told);
        assert.notEqual(error.remedy, '');
        return true;
      }, what);
    }
    const unsayable = { size: 9, read() { throw Object.create(null); } };
    await assert.rejects(explain(unsayable, { worker }), { code: 'SOURCE_READ', message: /threw: what is no error$/ });
  }
  assert.equal(messageOf(Object.create(null)), 'what is no error');
  assert.equal(LinealError.from(Object.create(null)).code, 'INTERNAL');
});

test('functions that take what other functions gave refuse anything else', async () => {
  for (const wrong of [undefined, null, 5, 'x', {}, []]) {
    assert.throws(() => memoryMap(wrong), { name: 'LinealError', code: 'BAD_ARGUMENT' });
    assert.throws(() => chromeTrace(wrong, []), { name: 'LinealError', code: 'BAD_ARGUMENT' });
    await assert.rejects(modelCache.info(wrong), { name: 'LinealError', code: 'BAD_ARGUMENT' });
  }
});

test('the command line: an empty --out is refused before the work, a misspelt option has its nearest', () => {
  const lineal = (...args) => spawnSync(process.execPath, [CLI, ...args], { encoding: 'utf8', timeout: 30_000 });
  for (const args of [
    ['logits', BUNDLED, '--tokens', '1', '--out', ''],
    ['generate', BUNDLED, '-p', 'And', '--trace', ''],
  ]) {
    const { status, stdout, stderr } = lineal(...args);
    assert.deepEqual([status, stdout], [1, '']);
    assert.match(stderr, /^lineal: BAD_ARGUMENT: --(out|trace) is empty\n/);
  }
  assert.match(lineal('explain', BUNDLED, '--contxt', '5').stderr, /Unknown option '--contxt'; the nearest is --context\n/);
  assert.match(lineal('explain', BUNDLED, '--zzz').stderr, /Unknown option '--zzz'\n/);
  assert.match(lineal('explain', BUNDLED, '--memory', '0').stderr, /--memory is a number of bytes, .* from 1 to \d+, not '0'\n/);
});

/** A model whose first layer has this as a key, or a value, of every token. */
function modelWith(which, value) {
  const made = tinyLlama({ bias: true, n_kv_head: 2 });
  const tensor = made.tensors.find(({ name }) => name === `blk.0.attn_${which}.bias`);
  const { values } = tensor;
  tensor.values = () => {
    const out = values();
    out[out.length - 3] = value;
    return out;
  };
  return ggufBytes(made);
}

for (const module of MODULES) {
  test(`${module}: a key or a value beyond 16-bit floats is an error with such a cache, and none with another`, async () => {
    for (const which of ['k', 'v'])
      for (const [value, kvType, code] of [
        [6e4, 'f16', 'ok'], [-7e4, 'f16', 'NOT_NUMBERS'], [7e4, 'f16', 'NOT_NUMBERS'], [7e4, 'f32', 'ok'], [7e4, { k: 'f16', v: 'f32' }, which === 'k' ? 'NOT_NUMBERS' : 'ok'],
      ])
        for (const prompt of [[1, 30], [1, ...Array(60).fill(31)]]) {
          const what = `attn_${which} ${value} in ${JSON.stringify(kvType)}, ${prompt.length} tokens`;
          const got = await outcome(what, async () => {
            const model = await open(modelWith(which, value), { module, kvType, context: 64, worker: false });
            await generate(model, prompt, { maxTokens: 3, ignoreEos: true }).finally(() => model.close());
          });
          assert.equal(got, code, what);
          const scored = await outcome(`score of ${what}`, async () => {
            const model = await open(modelWith(which, value), { module, kvType, context: 64, worker: false, allLogits: true });
            await model.score(prompt).finally(() => model.close());
          });
          assert.equal(scored, code, `score of ${what}`);
        }
  });
}
