// The benchmark's generator: what it writes is a model that loads and generates,
// with the types and sizes of the real files. No timing here.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { explain, open } from '../../js-glue/index.js';
import { QUANTS, SHAPES, bytesPerToken, promptIds, promptText, tensorsOf, writeModel } from '../bench/models.mjs';
import { newest, ofOneMachine, report } from '../bench/report.mjs';
import { generate, temporary } from '../lib/fixtures.mjs';
import { decode, tensorBytes } from '../lib/gguf-write.mjs';

/** Types of a file and how many matrices have each. */
function typeCounts(shape, quant) {
  const counts = {};
  for (const t of tensorsOf(shape, quant)) if (t.fill === 'matrix') counts[t.type] = (counts[t.type] ?? 0) + 1;
  return counts;
}

test('types follow the quantiser: rows that are no multiple of 256 fall back', () => {
  // 576 columns: Q4_K and Q6_K fall back to Q5_0 and Q8_0; ffn_down has 1536 columns and keeps them.
  // Q6_K goes to the first and last eighth of the layers and to each third between them.
  const layers = [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29];
  const more = tensorsOf('135M', 'Q4_K_M').filter((t) => t.name.endsWith('ffn_down.weight') && t.type === 'Q6_K');
  assert.deepEqual(more.map((t) => Number(t.name.split('.')[1])), layers);
  assert.deepEqual(typeCounts('135M', 'Q4_K_M'), {
    Q8_0: 1 + layers.length, Q5_0: 30 * 6 - layers.length, Q4_K: 30 - layers.length, Q6_K: layers.length,
  });
  assert.deepEqual(typeCounts('135M', 'Q4_0'), { Q8_0: 1, Q4_0: 210 });
  assert.deepEqual(typeCounts('1B', 'Q4_0'), { Q6_K: 1, Q4_0: 16 * 7 });
  assert.deepEqual(typeCounts('1B', 'Q8_0'), { Q8_0: 1 + 16 * 7 });
});

test('sizes are those of the real models', () => {
  const count = (shape) => tensorsOf(shape, 'Q8_0').reduce((sum, t) => sum + t.shape.reduce((a, b) => a * b, 1), 0);
  assert.equal(count('135M'), 134515008);
  assert.equal(count('0.5B'), 494032768);
  assert.equal(count('1B'), 1235814432);
  for (const shape of Object.keys(SHAPES)) assert.ok(bytesPerToken(shape, 'Q4_0') < bytesPerToken(shape, 'Q8_0'));
});

for (const quant of Object.keys(QUANTS)) {
  test(`${quant}: the file loads, generates the same twice, and never ends early`, async (t) => {
    const file = temporary(`tiny-${quant}.gguf`);
    writeModel(file, 'tiny', quant);
    const other = temporary('again.gguf');
    writeModel(other, 'tiny', quant);
    assert.ok(fs.readFileSync(file).equals(fs.readFileSync(other)), 'the same arguments give the same bytes');

    const tensors = tensorsOf('tiny', quant);
    const plan = await explain(file).catch((error) => error);
    if (plan.code === 'UNSUPPORTED_TYPE') return t.skip(plan.message);
    if (plan instanceof Error) throw plan;
    assert.deepEqual(plan.tensors.map((p) => [p.name, p.type, p.stored_bytes]), tensors.map((x) => [x.name, x.type, tensorBytes(x.type, x.shape)]));

    const model = await open(file, { context: 64 });
    try {
      assert.deepEqual([...await model.tokenize(promptText(40))], promptIds(40));
      const options = { maxTokens: 16, reuse: false, logprobs: true };
      const { result } = await generate(model, promptIds(8), options);
      assert.equal(result.tokens.length, 16);
      assert.ok(result.tokens.every((id) => id >= 259), 'no special or byte token');
      assert.ok(result.logprobs.every((p) => p < 0 && p > -20));
      assert.deepEqual((await generate(model, promptIds(8), options)).result.tokens, result.tokens);
    } finally {
      await model.close();
    }
  });
}

test('weights have the deviation that they should have', () => {
  const file = temporary('tiny-sigma.gguf');
  const size = writeModel(file, 'tiny', 'Q4_0');
  assert.equal(fs.statSync(file).size, size);
  const last = tensorsOf('tiny', 'Q4_0').at(-2); // blk.1.ffn_down, before the last norm
  assert.equal(last.name, 'blk.1.ffn_down.weight');
  const bytes = fs.readFileSync(file);
  const end = size - 96 * 4; // the norm; both are multiples of the alignment
  const values = decode('Q4_0', new Uint8Array(bytes.subarray(end - tensorBytes('Q4_0', last.shape), end)));
  const deviation = Math.sqrt(values.reduce((sum, v) => sum + v * v, 0) / values.length);
  assert.ok(Math.abs(deviation * Math.sqrt(256) - 1) < 0.05, `deviation ${deviation}`);
});

test('a report of several runs says what was measured at which commit, and leaves other machines out', () => {
  const run = (cpu, commit) => ({
    kind: 'run', date: '2026-11-30T12:00:00Z', load: 0, options: { runs: 5 }, missing: [],
    machine: { cpu, cores: 2, memoryBytes: 2 ** 34, system: 'Linux', flags: [] }, versions: { lineal: '0.1.0', commit },
  });
  const skip = (model, quant, section, reason) => ({ kind: 'skip', model, quant, section, reason });
  const all = [
    run('slow', 'aaa'), skip('0.5B', 'Q4_0', 'speed', 'on the slow machine'),
    run('fast', 'bbb'), skip('135M', 'Q4_0', 'speed', 'first'), skip('1B', 'Q8_0', 'speed', 'only then'), skip('135M', 'Q4_0', 'start', 'too'),
    run('fast', 'ccc'), skip('135M', 'Q4_0', 'speed', 'again'),
  ];
  const records = newest(ofOneMachine(all));
  assert.deepEqual(records.map(({ reason, commit }) => `${reason} ${commit}`).sort(), ['again ccc', 'only then bbb', 'too bbb']);
  const text = report(all.findLast(({ kind }) => kind === 'run'), records);
  assert.match(text, /lineal 0\.1\.0 \(ccc; at bbb: 1B Q8_0, start\)/);
  assert.ok(!text.includes('slow'), text);
  assert.match(report(all[0], newest(ofOneMachine(all.slice(0, 2)))), /lineal 0\.1\.0 \(aaa\),/);
});
