// What can be asked of the plan: types of keys and values, the largest context, forms by name or for
// all, profiles; what memory looks like; and that opening and closing leaves nothing behind.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { explain, inspect, memoryMap, open } from '../../js-glue/index.js';
import { nearestNames } from '../../js-glue/tensor-names.js';
import { BUNDLED, CLI, generate, memoryLine, nmse, rowsOf } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';

const IDS = [1, 5, 9, 23, 77, 30, 31, 32];
const typed = (code, text) => (error) => {
  assert.equal(error.code, code, error.message);
  assert.match(error.message, text);
  return true;
};
const reasons = ({ reasons: list }) => list.map(({ code }) => code);

async function withModel(source, options, work) {
  const model = await open(source, options);
  try {
    return await work(model);
  } finally {
    await model.close();
  }
}
const rows = (options) => withModel(BUNDLED, { allLogits: true, context: 64, ...options }, (model) => rowsOf(model, IDS));

// --- key-value cache ----------------------------------------------------------------------------

test('keys and values of two types: allocated as planned, logits near those of f32', async () => {
  const exact = await rows({ kvType: 'f32' });
  const error = (got) => Math.max(...got.map((row, i) => nmse(row, exact[i])));
  const bytes = {}, alone = {};
  for (const kvType of ['f32', 'f16', 'q8_0', 'q4_0']) {
    bytes[kvType] = memoryLine(await explain(BUNDLED, { context: 64, kvType }), 'kv');
    alone[kvType] = error(await rows({ kvType }));
  }
  const types = Object.keys(bytes);
  for (const [k, v] of types.flatMap((a) => types.filter((b) => b !== a).map((b) => [a, b]))) {
    const options = { context: 64, allLogits: true, kvType: { k, v } };
    await withModel(BUNDLED, options, async (model) => {
      assert.equal(model.explanation.kv_type, `${k}/${v}`);
      assert.equal(model.explanation.kv_reason.code, 'AS_ASKED');
      const { planned, measured } = await model.memory();
      assert.equal(planned.kv, (bytes[k] + bytes[v]) / 2);
      assert.equal(measured.kv, planned.kv);
      const off = error(await rowsOf(model, IDS));
      assert.ok(off > 0 && off < 2 * Math.max(alone[k], alone[v]), `${k}/${v}: ${off}, ${JSON.stringify(alone)}`);
    });
    assert.deepEqual(await rows({ kvType: { k, v }, chunk: 3 }), await rows({ kvType: { k, v } }));
  }
  assert.deepEqual(await rows({ kvType: { k: 'f16', v: 'f16' } }), await rows({ kvType: 'f16' }));
  for (const kvType of [{ k: 'f16' }, { k: 'auto', v: 'f16' }, { k: 'f16', v: 'f16', w: 1 }, 5, null])
    await assert.rejects(explain(BUNDLED, { kvType }), typed('BAD_ARGUMENT', /kvType/));
});

test("'auto' takes q8_0 where only that fits and the profile allows, and says so", async () => {
  const source = ggufBytes(tinyLlama({ n_layer: 4, d_model: 64, n_head: 2, n_kv_head: 2, n_ctx: 8192 }));
  const plan = (options) => explain(source, { context: 8192, ...options });
  const totals = {};
  for (const kvType of ['f16', 'q8_0']) totals[kvType] = (await plan({ kvType })).total_bytes;
  const memory = Math.floor((totals.f16 + totals.q8_0) / 2);
  const browser = await plan({ memory, placement: { profile: 'browser' } });
  assert.deepEqual([browser.fits, browser.kv_type, browser.kv_reason.code], [true, 'q8_0', 'TO_FIT']);
  assert.equal(browser.total_bytes, totals.q8_0);
  const node = await plan({ memory });
  assert.deepEqual([node.fits, node.kv_type, node.profile], [false, 'f16', 'node']);
  assert.ok(node.suggestions.some(({ code, sufficient }) => code === 'KV_Q8_0' && sufficient));
  assert.deepEqual((await plan({ kvType: 'q8_0', memory })).fits, true);
  const roomy = await plan({});
  assert.equal(roomy.kv_reason.code, roomy.kv_type === 'f32' ? 'SMALL_CACHE' : 'LARGE_CACHE');
});

test("context: 'max' is the largest that fits: explain and open, and the text says so", async () => {
  const whole = await explain(BUNDLED, { context: 'max' });
  assert.equal(whole.context, whole.model.n_ctx_train);
  assert.match(whole.text, /the largest that fits/);
  const memory = whole.total_bytes - 300_000;
  for (const kvType of ['auto', 'f32', 'q8_0', { k: 'q8_0', v: 'q4_0' }]) {
    const options = { memory, kvType, context: 'max' };
    const plan = await explain(BUNDLED, options);
    assert.ok(plan.fits && plan.context === plan.max_context);
    if (plan.context < whole.context) assert.equal((await explain(BUNDLED, { ...options, context: plan.context + 1 })).fits, false);
    await withModel(BUNDLED, options, async (model) => {
      assert.equal(model.info.context, plan.context);
      assert.ok((await model.memory()).hostBytes <= memory);
    });
  }
  const none = await explain(BUNDLED, { memory: '1MB', context: 'max' });
  assert.deepEqual([none.fits, none.max_context], [false, 0]);
  await assert.rejects(explain(BUNDLED, { context: 'most' }), typed('BAD_ARGUMENT', /context/));
});

// --- forms --------------------------------------------------------------------------------------

test('forms: by name before all before the core; the tensors say who decided and why', async () => {
  const placement = { hold: 'f16', tensors: { 'blk.0.*': 'stored', 'blk.*.ffn_down*': 'f32', '*_norm.weight': 'x8' } };
  const plan = await explain(BUNDLED, { placement });
  const find = (name) => plan.tensors.find((t) => t.name === name);
  const seen = (name) => [find(name).form, find(name).decided_by, reasons(find(name))[0]];
  assert.deepEqual(seen('blk.0.ffn_down.weight'), ['stored', 'tensor', 'AS_ASKED']);
  assert.deepEqual(seen('blk.1.ffn_down.weight'), ['f32', 'tensor', 'AS_ASKED']);
  assert.deepEqual(seen('blk.1.ffn_up.weight'), ['f16', 'uniform', 'AS_ASKED']);
  // Norms are f32: both wishes are passed over, by name and for all.
  const norm = find('output_norm.weight');
  assert.deepEqual([norm.decided_by, ...reasons(norm).slice(0, 2)], ['resolver', 'VECTOR_ONLY_F32', 'VECTOR_ONLY_F32']);
  const values = (t) => t.shape.reduce((a, b) => a * b, 1);
  assert.equal(find('blk.1.ffn_down.weight').resident_bytes, 4 * values(find('blk.1.ffn_down.weight')));
  assert.equal(find('blk.1.ffn_up.weight').resident_bytes, 2 * values(find('blk.1.ffn_up.weight')));
  assert.match(plan.text, /decided by tensor: AS_ASKED/);

  const exact = await rows({ kvType: 'f32' });
  for (const hold of ['stored', 'x8', 'f32', 'f16']) {
    await withModel(BUNDLED, { allLogits: true, context: 64, kvType: 'f32', placement: { hold } }, async (model) => {
      const { planned, measured } = await model.memory();
      assert.equal(measured.weights, planned.weights);
      const got = await rowsOf(model, IDS);
      const error = Math.max(...got.map((row, i) => nmse(row, exact[i])));
      assert.ok(error < 2e-3, `${hold}: ${error}`);
      const forms = new Set(model.explanation.tensors.map(({ form }) => form));
      assert.ok(forms.has(hold), [...forms].join());
    });
  }
});

test('forms and profiles that cannot be are refused by name', async () => {
  for (const [placement, text] of [
    [{ tensors: { 'blk.*.ffn_dwn*': 'stored' } }, /no tensor's name is like 'blk\.\*\.ffn_dwn\*'/],
    [{ tensors: { '*': 'q4' } }, /placement\.tensors/],
    [{ tensors: { '': 'f32' } }, /placement\.tensors/],
    [{ tensors: { 'a\nb': 'f32' } }, /placement\.tensors/],
    [{ tensors: [] }, /placement\.tensors/],
    [{ tensors: { '*': 'auto' } }, /placement\.tensors/],
    [{ hold: 'q8_0' }, /placement\.hold/],
    [{ profile: 'tablet' }, /placement\.profile/],
    [{ holds: 'f32' }, /placement\.hold/],
    [5, /placement/],
  ]) {
    await assert.rejects(explain(BUNDLED, { placement }), typed('BAD_ARGUMENT', text));
    await assert.rejects(open(BUNDLED, { placement, worker: true }), typed('BAD_ARGUMENT', text));
  }
});

test('the phone: no form larger than the stored one, small chunks, a ceiling, and no large matrix of floats', async () => {
  const phone = await explain(BUNDLED, { placement: { profile: 'phone' } });
  assert.deepEqual([phone.profile, phone.chunk, phone.limit_bytes, phone.kv_type], ['phone', 32, 2 ** 30, 'f16']);
  assert.equal(phone.kv_reason.code, 'PROFILE');
  for (const t of phone.tensors) assert.ok(t.resident_bytes <= t.stored_bytes, t.name);
  assert.ok(phone.tensors.some((t) => t.decided_by === 'profile' && reasons(t).includes('PROFILE_SAVES')));
  const own = await explain(BUNDLED);
  assert.ok(own.tensors.some((t) => t.resident_bytes > t.stored_bytes));
  assert.equal((await explain(BUNDLED, { memory: '2GiB', placement: { profile: 'phone' } })).limit_bytes, 2 ** 31);
  const floats = ggufBytes(tinyLlama({ type: 'F16', d_model: 512, n_vocab: 2100, n_ctx: 64 }));
  const strict = { placement: { profile: 'phone' } };
  await assert.rejects(explain(floats, strict), typed('UNSUPPORTED_TYPE', /F16.*phone/));
  assert.ok((await explain(floats, { placement: { profile: 'phone', hold: 'f16' } })).fits);
});

// --- looking at memory --------------------------------------------------------------------------

for (const worker of [false, true]) {
  test(`regions, scopes and the map, as planned and as they are${worker ? ', in a worker' : ''}`, async () => {
    const planned = await explain(BUNDLED, { context: 128, worker });
    assert.ok(planned.regions.every((r) => r.high_water_bytes === 0 || ['header', 'plan', 'mapped'].includes(r.name)));
    await withModel(BUNDLED, { context: 128, worker }, async (model) => {
      await generate(model, IDS, { maxTokens: 4, ignoreEos: true });
      const memory = await model.memory();
      const region = (name, of = memory) => of.regions.find((r) => r.name === name);
      for (const [name, scope] of Object.entries({ weights: 'model', kv: 'session', slab: 'step', scratch: 'scratch' })) {
        assert.equal(region(name).scope, scope);
        assert.equal(region(name).bytes, region(name, planned).bytes);
        assert.equal(region(name, planned).address, null);
        assert.equal(region(name).high_water_bytes, region(name).bytes);
      }
      const placed = memory.regions.filter((r) => r.address !== null && r.bytes > 0).sort((a, b) => a.address - b.address);
      assert.ok(placed.length >= 6);
      for (const [i, r] of placed.entries()) {
        assert.ok(r.address % 64 === 0 && r.address + r.bytes <= (placed[i + 1]?.address ?? memory.hostBytes), r.name);
      }
      assert.equal(memory.scopes.session.bytes, memory.measured.kv);
      assert.equal(memory.scopes.step.bytes, memory.measured.slab);
      assert.equal(memory.domains.HEAP.bytes, Object.values(memory.scopes).reduce((sum, s) => sum + s.bytes, 0));
      assert.ok(memory.domains.HEAP.bytes <= memory.liveBytes + 4096);
      const map = memoryMap(memory);
      for (const r of placed) assert.ok(map.includes(`0x${r.address.toString(16).padStart(8, '0')}`), map);
      assert.match(map, /as it is/);
      assert.match(memoryMap(planned), /as planned[^]*weights[^]*scope session/);
    });
  });

  test(`the steps and where their values lie${worker ? ', in a worker' : ''}`, async () => {
    await withModel(BUNDLED, { context: 128, worker }, async (model) => {
      const { decode, prefill } = await model.explainPlan();
      assert.equal(Math.max(decode.slab_bytes, prefill.slab_bytes), (await model.memory()).measured.slab);
      for (const plan of [decode, prefill]) {
        assert.ok(plan.steps.length > 20 && plan.slab_bytes <= 1.05 * plan.lower_bound_bytes);
        for (const { out, in0 } of plan.steps) {
          for (const value of [out, in0]) if (value !== undefined) assert.ok(plan.values[value].offset >= 0);
        }
        assert.ok(plan.steps.some((s) => s.weight === 'output_norm.weight'));
      }
    });
  });
}

for (const worker of [false, true]) {
  test(`a budget of the plan's total is kept, whatever is asked${worker ? ', in a worker' : ''}`, async () => {
    const source = ggufBytes(tinyLlama({ n_layer: 24, n_ctx: 128 }));
    const options = { context: 64, worker };
    const roomy = await withModel(source, options, (model) => model.explainPlan());
    assert.ok(JSON.stringify(roomy).length > 150_000, 'it comes in several pieces');
    const { total_bytes: memory } = await explain(source, options);
    await withModel(source, { ...options, memory }, async (model) => {
      const before = await model.memory();
      assert.equal(before.hostBytes, memory);
      assert.deepEqual(await model.explainPlan(), roomy);
      const { result } = await generate(model, IDS, { maxTokens: 4, ignoreEos: true, profile: 'trace' });
      assert.ok(result.stats.steps.length > 200);
      assert.deepEqual(await model.explainPlan(), roomy);
      const after = await model.memory();
      assert.deepEqual([after.hostBytes, after.growCalls], [memory, before.growCalls]);
      assert.equal(after.measured.total, memory);
    });
  });
}

test('the command line: --map, --context max, --kv-k, --hold, --tensor, --host-profile', () => {
  const lineal = (...args) => spawnSync(process.execPath, [CLI, ...args], { encoding: 'utf8' });
  const map = lineal('explain', BUNDLED, '--map', '--context', 'max', '--kv-k', 'q8_0', '--kv-v', 'q4_0');
  assert.equal(map.status, 0, map.stderr);
  assert.match(map.stdout, /the largest that fits/);
  assert.match(map.stdout, /q8_0\/q4_0/);
  assert.match(map.stdout, /linear memory, as planned[^]*session +kv +#/);
  const forms = lineal('explain', BUNDLED, '--json', '--hold', 'stored', '--tensor', '*ffn_up*=f16', '--host-profile', 'phone');
  assert.equal(forms.status, 0, forms.stderr);
  const { tensors, profile } = JSON.parse(forms.stdout);
  assert.equal(profile, 'phone');
  for (const t of tensors.filter(({ name }) => name.startsWith('blk.'))) {
    if (!t.name.includes('norm')) assert.equal(t.form, t.name.includes('ffn_up') ? 'f16' : 'stored');
  }
  const { map: rows, regions, total_bytes: total } = JSON.parse(lineal('explain', BUNDLED, '--json', '--map').stdout);
  assert.deepEqual(rows.regions, regions.filter(({ bytes, domain }) => bytes > 0 && domain === 'HEAP'));
  assert.equal(rows.total_bytes, total);
  assert.equal(rows.regions.reduce((sum, { bytes }) => sum + bytes, rows.other_bytes), total);
  for (const { scope } of rows.regions) assert.ok(rows.scopes[scope].bytes > 0);
  assert.equal(JSON.parse(lineal('explain', BUNDLED, '--json').stdout).map, undefined);
  const twice = ['--tensor', '*ffn_up*=f32', '--tensor', '*ffn_up*=f16'];
  for (const t of JSON.parse(lineal('explain', BUNDLED, '--json', ...twice).stdout).tensors)
    if (t.name.includes('ffn_up')) assert.equal(t.form, 'f32', 'of two rules for the same names the first counts');
  const pair = JSON.parse(lineal('explain', BUNDLED, '--json', '--kv', 'f32', '--kv-v', 'f16').stdout);
  assert.equal(pair.kv_type, 'f32/f16');
  assert.equal(lineal('generate', BUNDLED, '-p', 'And', '-n', '2', '--hold', 'f32', '--context', 'max').status, 0);
  for (const [args, text] of [
    [['--kv-k', 'f16'], /--kv-k and --kv-v/],
    [['--kv', 'auto', '--kv-k', 'f16'], /--kv-k and --kv-v/],
    [['--tensor', 'f16'], /--tensor takes GLOB=FORM/],
    [['--context', 'min'], /--context/],
  ]) {
    const wrong = lineal('explain', BUNDLED, ...args);
    assert.equal(wrong.status, 1);
    assert.match(wrong.stderr, text);
  }
});

test('a glob that no name follows: the remedy has globs that some follow, the nearest first, and none where none is like it', async () => {
  const { tensors } = await inspect(BUNDLED);
  const names = tensors.map(({ name }) => name);
  for (const [glob, nearest] of [
    ['ffn_down', 'blk.*.ffn_down.weight'],
    ['blk.99.ffn_down.weight', 'blk.*.ffn_down.weight'],
    ['blk.*.fnn_up*', 'blk.*.ffn_up.weight'],
    ['token_embed.weight', 'token_embd.weight'],
    ['ATTN_Q', 'blk.*.attn_q.weight'],
    ['outputnorm', 'output_norm.weight'],
    ['blk.*.*_dwn*', 'blk.*.ffn_down.weight'],
    ['blk.99*', 'blk.*.attn_k.weight'],
  ]) {
    assert.equal(nearestNames(glob, names)[0], nearest, glob);
    for (const worker of [false, true]) {
      const error = await explain(BUNDLED, { worker, placement: { tensors: { [glob]: 'f32' } } }).catch((thrown) => thrown);
      assert.equal(error.code, 'BAD_ARGUMENT');
      assert.match(error.message, /^no tensor's name is like /);
      assert.ok(error.remedy.includes(`'${nearest}'`) && /\* stands for any characters/.test(error.remedy), error.remedy);
      assert.equal(error.detail.glob, glob);
      assert.ok(error.detail.nearest.length <= 3);
      const [found] = (await explain(BUNDLED, { worker, placement: { tensors: { [error.detail.nearest[0]]: 'stored' } } })).tensors;
      assert.ok(found, 'what it says can be asked for');
    }
  }
  const told = (glob) => {
    const { status, stderr } = spawnSync(process.execPath, [CLI, 'explain', BUNDLED, '--tensor', `${glob}=f32`], { encoding: 'utf8' });
    assert.equal(status, 1);
    return stderr;
  };
  assert.match(told('attn'), /no tensor's name is like 'attn'\n {2}the nearest are '[^']+', '[^']+', '[^']+'.*inspect lists all names\n$/);
  assert.match(told('nosuch'), /no tensor's name is like 'nosuch'\n {2}\* stands for any characters and \? for one; inspect lists all names\n$/);
  for (const glob of ['nosuch', 'x', 'blk.*.xyz', 'blk.3.xyz.weight', 'visual.patch_embd', '?', 'zzz*weight', 'decoder.layers.7.mlp'])
    assert.deepEqual(nearestNames(glob, names), [], glob);
  assert.deepEqual(nearestNames('ffn_up', []), []);
});

// --- what fits loads, and leaves nothing ----------------------------------------------------------

test('what is said to fit loads at 100, 50 and 1 % of the ceiling, and never takes more', async () => {
  const { total_bytes: total } = await explain(BUNDLED, { context: 256 });
  for (const share of [1, 0.5, 0.01]) {
    const maxMemoryBytes = Math.ceil(total / share);
    const options = { context: 256, host: { maxMemoryBytes } };
    const plan = await explain(BUNDLED, options);
    assert.deepEqual([plan.fits, plan.total_bytes, plan.limit_bytes], [true, total, maxMemoryBytes]);
    await withModel(BUNDLED, options, async (model) => {
      await generate(model, IDS, { maxTokens: 8, ignoreEos: true });
      assert.ok((await model.memory()).hostBytes <= total);
    });
  }
  const less = await explain(BUNDLED, { context: 256, host: { maxMemoryBytes: total - 65536 } });
  assert.ok(!less.fits || less.total_bytes < total);
});

test('each suggestion that is said to be enough is', async () => {
  const { total_bytes: total } = await explain(BUNDLED, { kvType: 'f32' });
  const followed = new Set();
  for (let memory = Math.floor(total * 0.5); memory < total; memory += Math.floor(total / 13)) {
    for (const kvType of ['auto', 'f32']) {
      const plan = await explain(BUNDLED, { memory, kvType });
      for (const { code, sufficient, text } of plan.suggestions) {
        const change = {
          SMALLER_CONTEXT: { context: plan.max_context || 256 },
          KV_F16: { kvType: 'f16' },
          KV_Q8_0: { kvType: 'q8_0' },
          SMALLER_CHUNK: { chunk: 16 },
          MORE_MEMORY: { memory: plan.total_bytes },
        }[code];
        if (!change) continue;
        assert.equal((await explain(BUNDLED, { memory, kvType, ...change })).fits, sufficient, `${memory}: ${text}`);
        if (sufficient) followed.add(code);
      }
    }
  }
  assert.ok(followed.size >= 3, [...followed].join());
});

for (const worker of [false, true]) {
  test(`two models at once, double close, use after close${worker ? ', in a worker' : ''}`, async () => {
    const options = { context: 64, worker };
    const first = await open(BUNDLED, options);
    const second = await open(ggufBytes(tinyLlama({ n_ctx: 64 })), options);
    const both = await Promise.all([first, second].map((m) => m.generate(IDS, { maxTokens: 8, ignoreEos: true }).done));
    await second.close();
    const again = await first.generate(IDS, { maxTokens: 8, ignoreEos: true, reuse: false }).done;
    assert.deepEqual(again.tokens, both[0].tokens);
    await Promise.all([first.close(), first.close(), second.close()]);
    await first.close();
    for (const call of [
      () => first.generate(IDS).done,
      () => first.memory(),
      () => first.explainPlan(),
      () => first.tokenize('x'),
      () => first.score(IDS),
      () => rowsOf(first, IDS),
    ]) {
      await assert.rejects(call(), { name: 'LinealError', code: 'CLOSED' });
    }
  });
}

test('a hundred times opened and closed: every one takes the same memory', async () => {
  const source = ggufBytes(tinyLlama({ n_ctx: 64 }));
  let first;
  for (let i = 0; i < 100; i++) {
    await withModel(source, { context: 64, threads: 1 }, async (model) => {
      await generate(model, IDS, { maxTokens: 2, ignoreEos: true });
      const { hostBytes, liveBytes, liveBlocks, highWaterBytes, allocCalls, growCalls } = await model.memory();
      const now = { hostBytes, liveBytes, liveBlocks, highWaterBytes, allocCalls, growCalls };
      first ??= now;
      assert.deepEqual(now, first, `cycle ${i}`);
    });
  }
});
