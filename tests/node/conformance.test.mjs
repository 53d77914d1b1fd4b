// The core of the oracle suite: one variant of each architecture against llama.cpp, and that the
// suite would see a fault. All variants: npm run conformance.
// What the engine declines by name is skipped with its message; with CI or LINEAL_STRICT=1 it fails.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { ARCHITECTURES } from '../conformance/architectures.mjs';
import { compareGreedy, compareRows, cosine } from '../conformance/compare.mjs';
import { DEFAULTS, describedModel, promptIds } from '../conformance/generator.mjs';
import { OracleProcess } from '../conformance/oracle-process.mjs';
import { comparePerplexity, sampledTexts, wideTypes } from '../conformance/perplexity.mjs';
import { BEGIN, END, withMatrix } from '../conformance/report.mjs';
import {
  architectureCases, boundsOf, embeddingCases, quantisedCases, runCase, runEmbedding,
} from '../conformance/suite.mjs';
import { ROOT, temporary } from '../lib/fixtures.mjs';
import { dropTensor, edited, ggufBytes } from '../lib/gguf-write.mjs';

const oracle = new OracleProcess();
const skip = await oracle.available() ? false : 'node-llama-cpp is not installed for this machine';
if (skip && process.env.CI) throw new Error(skip);
const strict = process.env.LINEAL_STRICT === '1' || process.env.CI === 'true';
after(() => oracle.close());

function judge(t, result) {
  if (result.status === 'unsupported' && !strict) return t.skip(`${result.code}: ${result.message}`);
  assert.equal(result.status, 'same', result.failures.join('; ') || result.message);
}

for (const { architecture, description } of architectureCases({ core: true })) {
  test(`as llama.cpp: ${architecture}`, { skip }, async (t) => {
    const result = await runCase({ open, oracle, description });
    judge(t, result);
    if (result.greedy) {
      assert.ok(result.greedy.equal > 48, `only ${result.greedy.equal} greedy steps could be compared`);
      t.diagnostic(`NMSE ${result.nmse.toExponential(1)}, log-probability ${result.worst.toExponential(1)}`);
    }
  });
}

for (const { architecture, description } of embeddingCases({ core: true })) {
  test(`embeddings as llama.cpp: ${architecture}`, { skip }, async (t) => {
    const result = await runEmbedding({ open, oracle, description });
    judge(t, result);
  });
}

for (const { architecture, variant, description } of quantisedCases()) {
  test(`no further from exact than llama.cpp: ${architecture}, ${variant}`, { skip }, async (t) => {
    judge(t, await runCase({ open, oracle, description, modules: ['base'] }));
  });
}

// 250 tokens on one build; 2,000 on both in `npm run conformance`
let texts;
for (const type of wideTypes()) {
  test(`perplexity as llama.cpp: wide-${type}`, { skip }, async (t) => {
    texts ??= await sampledTexts(open, 1);
    judge(t, await comparePerplexity({ open, oracle, type, texts, modules: ['base'] }));
  });
}

// --- that it would see a fault -------------------------------------------------------

// Pairs of descriptions that a fault could take for each other: llama.cpp's own distributions of
// the two must lie far outside the bounds.
const row = (name, overrides = {}) => ({ ...ARCHITECTURES[name], ...overrides });
const keys = (name, changed) => ({ keys: { ...ARCHITECTURES[name].keys, ...changed } });
const window = (name, n) => row(name, keys(name, { 'attention.sliding_window': ['u32', n] }));
const f32 = (v) => ['f32', v];
const yarn = (more) => row('mistral3', {
  head: 24, rope: { base: 500, scaling: 'yarn', factor: 4, original: 32, betaFast: 2, betaSlow: 0.25, ...more },
});
const confusable = {
  'a window one token longer, gemma2': [window('gemma2', 16), window('gemma2', 17)],
  'a window one token longer, gemma3': [window('gemma3', 16), window('gemma3', 17)],
  'a window one token longer, gpt-oss': [window('gpt-oss', 16), window('gpt-oss', 17)],
  'a window one token longer, cohere2': [window('cohere2', 16), window('cohere2', 17)],
  'another base in layers with a window': [row('gemma3'), row('gemma3', keys('gemma3', { 'rope.freq_base_swa': f32(9000) }))],
  'a cap of scores': [row('gemma2'), row('gemma2', keys('gemma2', { 'attn_logit_softcapping': f32(40) }))],
  'a cap of logits': [row('gemma2'), row('gemma2', keys('gemma2', { 'final_logit_softcapping': f32(40) }))],
  'rope in every fourth layer': [row('smollm3'), row('smollm3', { arch: 'llama' })],
  'the two layouts of rope': [row('llama'), row('llama', { arch: 'qwen2' })],
  'one expert more': [row('llama, experts'), row('llama, experts', { experts: { count: 4, used: 3 } })],
  'the scale of attention': [row('granite'), row('granite', keys('granite', { 'attention.scale': f32(0.112) }))],
  'the scale of the residual': [row('granite'), row('granite', keys('granite', { 'residual_scale': f32(0.61) }))],
  'where the slope of yarn begins': [yarn({}), yarn({ betaFast: 1 })],
  'where the slope of yarn ends': [yarn({}), yarn({ betaSlow: 0.5 })],
  'the logarithm of yarn': [yarn({}), yarn({ logMultiplier: 1 })],
  'the temperature of attention': [yarn({}), row('mistral3', { ...yarn({}), keys: { 'attention.temperature_scale': f32(0.1) } })],
  'epsilon': [row('llama'), row('llama', { epsilon: 1e-4 })],
  'partial rope': [row('glm4'), row('glm4', { rope: { dims: 8 } })],
};

async function llamaRows(description) {
  const path = temporary('confusable.gguf');
  fs.writeFileSync(path, ggufBytes(describedModel(description)));
  return oracle.logprobs(path, promptIds(88, DEFAULTS.vocab, 1));
}

for (const [name, [first, second]] of Object.entries(confusable)) {
  test(`would be seen: ${name}`, { skip }, async () => {
    const found = compareRows(await llamaRows(first), await llamaRows(second));
    const bounds = boundsOf(first);
    assert.ok(found.worst > 3 * bounds.worst, `moves log-probabilities by ${found.worst} only`);
    assert.ok(found.nmse > 3 * bounds.nmse, `normalised error ${found.nmse} only`);
  });
}

test('the comparison sees one wrong value, NaN, missing rows and a wrong token', () => {
  const rows = () => [Float64Array.of(0, 1, 2, 3), Float64Array.of(3, 2, 1, 0)].map((r) => {
    const sum = Math.log(r.reduce((a, v) => a + Math.exp(v), 0));
    return r.map((v) => v - sum);
  });
  const same = compareRows(rows(), rows());
  assert.ok(same.worst < 1e-12 && same.nmse < 1e-24);
  const wrong = rows();
  wrong[1][2] += 0.01;
  assert.ok(compareRows(wrong, rows()).worst > 5e-3);
  assert.equal(compareRows(wrong, rows()).position, 1);
  wrong[1][2] = NaN;
  assert.ok(Number.isNaN(compareRows(wrong, rows()).worst));
  assert.throws(() => compareRows(rows().slice(1), rows()), /1 rows/);
  const step = (token, logprob) => compareGreedy([token], [logprob], rows(), 0, 0.1);
  assert.deepEqual(step(3, rows()[0][3]), { equal: 1, close: 0, differ: 0, worst: 0 });
  assert.equal(step(2, rows()[0][2]).differ, 1);
  assert.ok(step(3, rows()[0][3] - 0.5).worst === 0.5);
  assert.equal(compareGreedy([2], [rows()[0][2]], rows(), 0, 2).close, 1);
  assert.ok(Math.abs(cosine([1, 2], [2, 4]) - 1) < 1e-12);
  assert.ok(cosine([1, 2], [2, 3]) < 0.9999);
});

test('a file on which llama.cpp fails is reported, and the next one runs', { skip }, async () => {
  const bad = temporary('bad.gguf');
  fs.writeFileSync(bad, ggufBytes(edited(describedModel(row('llama')), dropTensor('blk.1.ffn_up.weight'))));
  await assert.rejects(oracle.logprobs(bad, [1, 2]), /Failed to load model.*missing tensor/);
  assert.equal((await llamaRows(row('llama'))).length, 88);
});

test('docs/models.md has the markers, and what lies between them is replaced', () => {
  const document = fs.readFileSync(new URL('docs/models.md', `file://${ROOT}`), 'utf8');
  const changed = withMatrix(document, 'matrix');
  assert.match(changed, new RegExp(`${BEGIN.replace(/[()]/g, '\\$&')}\\n\\nmatrix\\n\\n${END}`));
  assert.throws(() => withMatrix('', 'matrix'), /markers/);
});
