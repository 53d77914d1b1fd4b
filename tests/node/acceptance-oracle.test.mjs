// Tiny random models against llama.cpp, log-probability by log-probability:
// shapes that no fixture has. Skipped where node-llama-cpp is not installed.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { MODULES, logSoftmax, rowsOf, temporary } from '../lib/fixtures.mjs';
import { dequantised, ggufBytes, llama3RopeFreqs, tinyLlama } from '../lib/gguf-write.mjs';
import { disposeOracle, loadOracle, oracleLogprobs } from '../lib/oracle.mjs';

const oracle = await loadOracle();
const skip = oracle ? false : 'node-llama-cpp is not installed for this machine';
if (skip && process.env.CI) throw new Error(skip);
after(disposeOracle);

// Both sides work in f32, adding in different orders. One matrix product over
// k terms of order one is then off by about 2^-24 sqrt(k), some 1e-6 at
// k = 352; seven of them a layer, amplified by softmax and SiLU slopes of
// order one, over at most 4 layers, into logits of up to 10, gives 1e-5 to
// 1e-4. A wrong angle, head or bias moves log-probabilities by 0.01 and more.
const TOLERANCE = 5e-4;
// Quantised matrices are multiplied by activations of 8 bits: each is off by
// up to 1/254 of the largest in its block of 32, about 0.3 % of a typical value
// there, 0.5 % after 14 products. Squared and relative to the logits: 1e-4 or so.
const QUANTISED_NMSE = 1e-3;

const IDS = [1, 5, 9, 23, 77, 101, 3, 64, 12, 90, 33, 7, 55, 118, 2, 41, 200, 287, 0, 150, 60, 61, 62, 63];

const exact = {
  'plain': {},
  'one head': { n_head: 1 },
  'three heads of 12': { d_model: 36, n_head: 3, d_ff: 50 },
  'five heads of 6, odd widths': { d_model: 30, n_head: 5, d_ff: 77, n_vocab: 301 },
  'seven layers': { n_layer: 7 },
  'GQA 4:2': { n_head: 4, n_kv_head: 2 },
  'GQA 6:2': { d_model: 96, n_head: 6, n_kv_head: 2 },
  'GQA 5:1': { d_model: 40, n_head: 5, n_kv_head: 1 },
  'GQA 8:1': { d_model: 64, n_head: 8, n_kv_head: 1 },
  'GQA 12:3': { d_model: 96, n_head: 12, n_kv_head: 3 },
  'head size larger than d_model / n_head': { d_model: 40, n_head: 3, n_kv_head: 1, d_head: 24 },
  'head size smaller than d_model / n_head': { d_model: 64, n_head: 2, d_head: 8 },
  'tied embedding': { tied: true },
  'biases': { bias: true, n_kv_head: 2 },
  'tied, biases, GQA, own head size': { tied: true, bias: true, n_head: 6, n_kv_head: 3, d_head: 10, d_model: 44, d_ff: 100 },
  'rope: linear scaling': { rope: { linear: 4 } },
  'rope: factors of Llama 3': { rope: { freqs: llama3RopeFreqs(16) } },
  'rope: base 500000': { rope: { base: 500000 } },
  'large epsilon': { epsilon: 0.1 },
  'long rows': { d_model: 352, n_head: 11, d_ff: 700 },
};
const stored = { 'F16 matrices': 'F16', 'BF16 matrices': 'BF16' };
for (const [name, type] of Object.entries(stored)) exact[name] = { type, d_model: 48, n_head: 3, d_ff: 100, bias: true };

const quantised = {};
for (const type of ['Q8_0', 'Q4_0']) quantised[type] = { type, d_model: 96, n_head: 3, d_ff: 160 };
for (const type of ['Q4_K', 'Q6_K']) quantised[type] = { type, d_model: 256, n_head: 8, n_kv_head: 2, d_ff: 512 };
quantised['Q4_0, tied'] = { type: 'Q4_0', tied: true };
quantised['mixed types'] = {
  d_model: 256, d_ff: 256, n_head: 4,
  type: (name) => ({ attn_q: 'Q8_0', attn_k: 'Q4_0', attn_v: 'Q6_K', ffn_up: 'F16', ffn_down: 'BF16', output: 'Q6_K' }[name.split('.').at(-2)] ?? 'Q4_K'),
};

async function both(name, options) {
  const model = tinyLlama({ seed: name.length, ...options });
  const path = temporary('oracle.gguf');
  fs.writeFileSync(path, ggufBytes(dequantised(model)));
  return { bytes: ggufBytes(model), reference: await oracleLogprobs(oracle, path, IDS) };
}

for (const [name, options] of Object.entries(exact)) {
  test(`as llama.cpp: ${name}`, { skip }, async () => {
    const { bytes, reference } = await both(name, options);
    for (const module of MODULES) {
      for (const chunk of [5, 128]) {
        const model = await open(bytes, { module, chunk, allLogits: true, kvType: 'f32' });
        const rows = await rowsOf(model, IDS);
        await model.close();
        assert.equal(rows.length, IDS.length);
        rows.forEach((row, i) => {
          const ours = logSoftmax(row);
          assert.equal(ours.length, reference[i].length);
          const worst = ours.reduce((most, v, id) => Math.max(most, Math.abs(v - reference[i][id])), 0);
          assert.ok(worst < TOLERANCE, `${module}, chunk ${chunk}, position ${i}: off by ${worst}`);
        });
      }
    }
  });
}

for (const [name, options] of Object.entries(quantised)) {
  test(`near llama.cpp on the dequantised weights: ${name}`, { skip }, async () => {
    const { bytes, reference } = await both(name, options);
    for (const module of MODULES) {
      const model = await open(bytes, { module, allLogits: true, kvType: 'f32' });
      const rows = await rowsOf(model, IDS);
      await model.close();
      rows.forEach((row, i) => {
        const ours = logSoftmax(row), theirs = reference[i];
        const mean = theirs.reduce((a, v) => a + v, 0) / theirs.length;
        let error = 0, norm = 0;
        ours.forEach((v, id) => { error += (v - theirs[id]) ** 2; norm += (theirs[id] - mean) ** 2; });
        assert.ok(error / norm < QUANTISED_NMSE, `${module}, position ${i}: ${error / norm}`);
      });
    }
  });
}

test('an f16 KV cache stays near the f32 one', { skip }, async () => {
  const { bytes, reference } = await both('f16 cache', { n_kv_head: 2 });
  const model = await open(bytes, { allLogits: true, kvType: 'f16' });
  const rows = await rowsOf(model, IDS);
  await model.close();
  let worst = 0;
  rows.forEach((row, i) => logSoftmax(row).forEach((v, id) => { worst = Math.max(worst, Math.abs(v - reference[i][id])); }));
  // halves are off by 2^-12; the values of the cache and the logits are of order one to ten
  assert.ok(worst < 0.02 && worst > 0, `off by ${worst}`);
});
