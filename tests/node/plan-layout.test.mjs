// Where activations lie, for every architecture: no two that are alive together share a byte, the
// slab is within 5 % of the least there can be, and with a place for each value of its own the
// logits are the same to the bit.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { STATUS, TEXT } from '../../js-glue/abi-names.js';
import { Core } from '../../js-glue/abi.js';
import { compileModule } from '../../js-glue/wasm-module.js';
import { probeHost } from '../../js-glue/index.js';
import { DEFAULTS, describedModel, promptIds } from '../conformance/generator.mjs';
import { architectureCases, embeddingCases } from '../conformance/suite.mjs';
import { ROOT } from '../lib/fixtures.mjs';
import { ggufBytes } from '../lib/gguf-write.mjs';

const PROMPT = 21;
const GENERATED = 3;
const SLACK = 1.05;

const module = await compileModule(new URL('dist/lineal-base.wasm', `file://${ROOT}`));
const host = await probeHost();

async function planned(bytes, options) {
  const core = await Core.create(module, host, 1);
  core.headerBegin(0, bytes.length);
  for (let at = 0; !core.headerPush(bytes.subarray(at, at + 65536)); at += 65536);
  core.plan({ context: 64, memory: 0, kvType: 'f32', chunk: 8, allLogits: false, ...options });
  return core;
}

function load(core, bytes) {
  core.bind();
  while (!core.loadNext()) {
    const { offset, bytes: count } = core.need();
    core.feed(bytes.slice(offset, offset + count));
  }
}

/** Every row of logits, or the vector, of a prompt and some tokens after it. */
function computed(core, ids) {
  const vector = core.number('nEmbd');
  const width = vector || core.number('nVocab');
  const rows = [];
  core.prompt(Int32Array.from(ids), false);
  for (let token = 0; ; token++) {
    let status;
    do {
      status = core.eval();
      assert.ok(status === STATUS.OK || status === STATUS.MORE, `status ${status}`);
      for (let row = 0; row < core.logitsRows(); row++) rows.push(core.logits(row, width));
    } while (status !== STATUS.OK);
    if (vector || token === GENERATED) return rows;
    core.sample();
  }
}

function checkPlan(plan, spread) {
  const { slab_bytes: slab, lower_bound_bytes: least, values } = plan;
  for (const [i, a] of values.entries()) {
    assert.ok(a.first <= a.last && a.offset % 64 === 0 && a.offset + a.bytes <= slab, `${a.name}: ${JSON.stringify(a)}`);
    for (const b of values.slice(i + 1)) {
      const together = a.first <= b.last && b.first <= a.last;
      const overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      assert.ok(!(overlap && (together || spread)), `${a.name} and ${b.name}`);
    }
  }
  let most = 0;
  for (let step = 0; step <= plan.steps.length; step++) {
    const alive = values.filter((v) => v.first <= step && step <= v.last);
    most = Math.max(most, alive.reduce((sum, v) => sum + v.bytes, 0));
  }
  assert.equal(least, most);
  if (spread) assert.equal(slab, values.reduce((sum, v) => sum + v.bytes, 0));
  else assert.ok(slab <= SLACK * least, `slab ${slab}, least ${least}`);
  return slab / least;
}

const cases = [...architectureCases(), ...embeddingCases().map((c) => ({ ...c, embeddings: true }))];
for (const { architecture, variant, description, embeddings = false } of cases) {
  test(`${embeddings ? 'embeddings, ' : ''}${architecture}, ${variant}`, async (t) => {
    const bytes = ggufBytes(describedModel(description));
    const ids = promptIds(PROMPT, description.vocab ?? DEFAULTS.vocab, 3);
    let worst = 0;
    for (const options of embeddings ? [{ embeddings }] : [{}, { allLogits: true }, { chunk: 1 }]) {
      const results = [];
      for (const spread of [false, true]) {
        const core = await planned(bytes, { ...options, spread });
        const plans = core.json(TEXT.PLAN_JSON);
        for (const name of ['decode', 'prefill']) {
          const ratio = checkPlan(plans[name], spread);
          if (!spread) worst = Math.max(worst, ratio);
        }
        load(core, bytes);
        results.push(computed(core, ids));
        core.close();
      }
      const [slab, spread] = results;
      assert.ok(slab.length > 0 && slab.every((row) => row.every(Number.isFinite)));
      assert.deepEqual(slab, spread);
    }
    t.diagnostic(`slab ${worst.toFixed(3)} of the least`);
  });
}
