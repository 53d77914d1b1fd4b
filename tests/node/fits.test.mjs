// What the verdict promises: a refused model costs no growth of memory and no request for a weight; what is
// said to help does help, smaller types among it; what is said to fit loads under the ceiling of a real engine.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Core } from '../../js-glue/abi.js';
import { compileModule } from '../../js-glue/wasm-module.js';
import { chooseModule } from '../../js-glue/caps.js';
import { explain, open, probeHost } from '../../js-glue/index.js';
import { MODULES, ROOT } from '../lib/fixtures.mjs';
import { TYPES, ggufBytes, layout, tinyLlama } from '../lib/gguf-write.mjs';
import { startServer } from '../lib/http-server.mjs';

const SMALL = tinyLlama({ n_layer: 3, d_model: 256, n_head: 8, n_kv_head: 4, d_ff: 512, n_vocab: 512, n_ctx: 1024, type: 'F16' });
const REFUSED = { memory: '1.5MiB' };

let server, headerBytes;
before(async () => {
  const bytes = ggufBytes(SMALL);
  headerBytes = layout(SMALL).dataOffset;
  server = await startServer({ '/m.gguf': Buffer.from(bytes) });
});
after(() => server.close());

test('a refused model: no request begins in the weights, whatever it is refused by', async () => {
  for (const overlap of [false, true]) {
    for (const refusal of [REFUSED, { host: { maxMemoryBytes: 1_600_000 } }, { memory: '2.4MiB', stream: 'off', kvType: 'f32' }]) {
      for (const call of [explain, open]) {
        server.reset();
        const result = call(`${server.url}/m.gguf`, { ...refusal, overlap });
        if (call === open) await assert.rejects(result, { code: 'DOES_NOT_FIT' });
        else assert.equal((await result).fits, false);
        const { ranges } = server.stats('/m.gguf');
        assert.ok(ranges.length >= 1);
        for (const { range } of ranges) assert.ok(Number(/^bytes=(\d+)-/.exec(range)[1]) < headerBytes, range);
      }
    }
  }
});

for (const name of MODULES) {
  test(`a refused model: memory does not grow, and using it nevertheless is a typed error, ${name} build`, async () => {
    await chooseModule(name); // it may need flags
    const module = await compileModule(new URL(`dist/lineal-${name}.wasm`, `file://${ROOT}`));
    const bytes = ggufBytes(SMALL);
    const options = { context: 0, kvType: 'auto', chunk: 0, allLogits: false };
    const make = async () => {
      const core = await Core.create(module, await probeHost(), 1);
      core.headerBegin(0, bytes.length);
      for (let at = 0; !core.headerPush(bytes.subarray(at, at + 65536)); at += 65536);
      return core;
    };
    const refused = await make();
    const before_ = ['growCalls', 'hostBytes'].map((n) => refused.number(n));
    for (const memory of [1, 1_500_000, 2_000_000]) {
      refused.plan({ ...options, memory, stream: memory > 1_600_000 ? 'off' : 'auto' });
      assert.equal(refused.number('fits'), 0);
      assert.deepEqual(['growCalls', 'hostBytes'].map((n) => refused.number(n)), before_);
    }
    assert.throws(() => refused.bind(), { code: 'DOES_NOT_FIT' });
    // Nor can it be used nevertheless.
    for (const use of [
      () => refused.prompt(Int32Array.of(1, 5, 9), false),
      () => refused.eval(),
      () => refused.sample(),
      () => refused.loadNext(),
    ])
      assert.throws(use, { code: 'BAD_STATE' });
    assert.deepEqual(['growCalls', 'hostBytes'].map((n) => refused.number(n)), before_);
    // The same model, allowed, grows it: the counter counts.
    const allowed = await make();
    allowed.plan({ ...options, memory: 0 });
    allowed.bind();
    assert.ok(allowed.number('growCalls') > before_[0] && allowed.number('hostBytes') > before_[1]);
    refused.close();
    allowed.close();
  });
}

// --- suggestions ----------------------------------------------------------------------------------

/** The type that a 4-bit quantiser gives rows of k values. */
const fourBits = (k) => (k % TYPES.Q4_K.len === 0 ? 'Q4_K' : k % TYPES.Q4_0.len === 0 ? 'Q4_0' : 'F16');

function quantised(model) {
  const tensors = model.tensors.map((t) => (t.shape.length > 1 ? { ...t, type: fourBits(t.shape[0]) } : t));
  return { ...model, tensors };
}

for (const [title, shape] of Object.entries({
  'F16, rows of 256': { type: 'F16', d_model: 256, d_ff: 512 },
  'Q8_0, rows of 96': { type: 'Q8_0', d_model: 96, d_ff: 288, n_head: 3, n_kv_head: 3 },
  'F32, rows of 72, which no block divides': { type: 'F32', d_model: 72, d_ff: 256, n_head: 3, n_kv_head: 3 },
  'Q6_K, which is widened': { type: 'Q6_K', d_model: 256, d_ff: 256 },
})) {
  test(`suggestions followed, each kind: ${title}`, async () => {
    const model = tinyLlama({ n_layer: 4, n_vocab: 2048, n_ctx: 2048, n_head: 8, n_kv_head: 2, ...shape });
    const source = ggufBytes(model);
    const smaller = ggufBytes(quantised(model));
    const { total_bytes: total } = await explain(source, { kvType: 'f32' });
    const seen = { true: new Set(), false: new Set() };
    for (let memory = Math.floor(total * 0.35); memory < total; memory += Math.floor(total / 23)) {
      for (const options of [
        {},
        { stream: 'off' },
        { stream: 'off', kvType: 'f32' },
        { stream: 'off', kvType: { k: 'q8_0', v: 'f16' } },
        { stream: 'off', placement: { profile: 'browser' } },
      ]) {
        const plan = await explain(source, { memory, ...options });
        if (plan.fits) continue;
        assert.ok(plan.suggestions.length >= 2);
        for (const { code, sufficient, text, saves_bytes: saves } of plan.suggestions) {
          const follow = {
            SMALLER_CONTEXT: [source, { context: plan.max_context || 256 }],
            KV_F16: [source, { kvType: 'f16' }],
            KV_Q8_0: [source, { kvType: 'q8_0' }],
            SMALLER_CHUNK: [source, { chunk: 16 }],
            SMALLER_TYPE: [smaller, {}],
            STREAM: [source, { stream: 'auto' }],
            MORE_MEMORY: [source, { memory: plan.total_bytes }],
          }[code];
          assert.ok(follow, `a suggestion that nobody follows: ${code}`);
          const then = await explain(follow[0], { memory, ...options, ...follow[1] });
          const what = `${memory} ${JSON.stringify(options)}: ${text}`;
          if (code === 'SMALLER_TYPE') assert.ok(then.fits || !sufficient, what); // the file's own header may be smaller still
          else assert.equal(then.fits, sufficient, what);
          if (code !== 'MORE_MEMORY') assert.ok(saves > 0, what);
          seen[sufficient].add(code);
        }
      }
    }
    assert.ok(seen.true.has('MORE_MEMORY') && seen.true.has('SMALLER_CONTEXT') && seen.true.has('KV_Q8_0') && seen.true.has('STREAM'), [...seen.true].join());
    const canShrink = shape.d_model % 32 === 0 && shape.type !== 'Q6_K';
    if (canShrink) assert.ok(seen.true.has('SMALLER_TYPE'), [...seen.true].join());
  });
}
