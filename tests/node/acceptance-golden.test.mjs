// What llama.cpp says about the fixture models, and what we say: token ids,
// greedy tokens, log-probabilities, logits, perplexity. Both builds.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { explain, inspect, open } from '../../js-glue/index.js';
import {
  BUNDLED, CLI, FIXTURES, MODULES, fixture, fixtureFloats, fixtureJson, fixturesMissing, generate, logSoftmax, nmse,
  rowsOf,
} from '../lib/fixtures.mjs';

const skip = fixturesMissing();
const GREEDY_PREFIX = 16; // what the issue asks of quantised models
// In f32 arithmetic on its weights one token of this model has a log-probability
// of -0.972, the reference -0.899, we -1.14: with 2 bits a step is nearly a tie.
const TOLERANCE = { 'stories260k/wide-Q2_K.gguf': 0.25 };
const references = skip ? {} : fixtureJson('generations.json');

// at module level: the list of tests depends on the types that the files hold
const typesOf = new Map();
const runnable = []; // the core itself says what it has no form for
for (const file of Object.keys(references)) {
  const { tensors } = await inspect(fixture(file));
  typesOf.set(file, new Set(tensors.map((t) => t.type)));
  try {
    await explain(fixture(file));
    runnable.push(file);
  } catch (error) {
    if (error.code !== 'UNSUPPORTED_TYPE') throw error;
  }
}

test('the fixtures hold the models that these tests are about', { skip }, () => {
  const forms = [
    'F32', 'F16', 'BF16', 'Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ4_NL', 'IQ4_XS',
  ];
  for (const type of forms) {
    assert.ok(runnable.some((file) => typesOf.get(file).has(type)), `a model with ${type}`);
  }
  assert.ok(runnable.some((file) => file.includes('-00001-of-')), 'a split model');
});

/**
 * Quantised models: the reference multiplies by activations rounded in another
 * way, so tokens may part where two are nearly as likely. Along the reference's
 * own first 16 tokens each log-probability must be within 0.15 of its; where our
 * free run parts from it, the token we took was as good as that allows.
 */
async function assertNear(model, reference, tokens, tolerance = 0.15) {
  const wanted = reference.greedy_tokens.slice(0, GREEDY_PREFIX);
  const rows = await rowsOf(model, [...reference.prompt_tokens, ...wanted.slice(0, -1)]);
  const parted = wanted.findIndex((id, i) => tokens[i] !== id);
  wanted.forEach((id, i) => {
    const ours = logSoftmax(rows[reference.prompt_tokens.length - 1 + i]);
    const theirs = reference.first_logprobs[i];
    assert.ok(Math.abs(ours[id] - theirs) <= tolerance, `step ${i}: token ${id} has ${ours[id]}, reference ${theirs}`);
    if (i === parted) assert.ok(ours[tokens[i]] - ours[id] <= 2 * tolerance, `step ${i}: ${tokens[i]} in place of ${id}`);
  });
}

for (const file of runnable) {
  for (const module of MODULES) {
    test(`${file}, ${module} build: the tokens of the reference`, async () => {
      const reference = references[file];
      const types = typesOf.get(file);
      const model = await open(fixture(file), { module, allLogits: true });
      try {
        const { result, text } = await generate(model, reference.prompt, {
          maxTokens: reference.greedy_tokens.length, logprobs: true, ignoreEos: true,
        });
        assert.deepEqual(result.promptTokens, reference.prompt_tokens);
        if ([...types].every((type) => type === 'F32' || type === 'F16')) {
          assert.deepEqual(result.tokens, reference.greedy_tokens);
          assert.equal(reference.prompt + text, reference.text);
          if (types.size === 1 && types.has('F32')) {
            reference.first_logprobs.forEach((value, i) => {
              assert.ok(Math.abs(result.logprobs[i] - value) < 1e-3, `step ${i}: ${result.logprobs[i]}, reference ${value}`);
            });
          }
          return;
        }
        await assertNear(model, reference, result.tokens, TOLERANCE[file]);
      } finally {
        await model.close();
      }
    });
  }
}

for (const module of MODULES) {
  test(`logits of arch/llama-dense.gguf, ${module} build`, { skip }, async () => {
    const reference = fixtureFloats('arch', 'llama-dense.logits.f32');
    const ids = [1, 5, 9, 23, 77, 101, 3, 64, 12, 90, 33, 7, 55, 118, 2, 41]; // arch/prompt.txt
    const model = await open(fixture('arch/llama-dense.gguf'), { module, allLogits: true });
    try {
      const rows = await rowsOf(model, ids);
      const n = reference.length / ids.length;
      assert.equal(rows.length, ids.length);
      rows.forEach((row, i) => {
        assert.equal(row.length, n);
        const error = nmse(row, reference.subarray(i * n, (i + 1) * n));
        assert.ok(error < 1e-7, `position ${i}: normalised mean squared error ${error}`);
      });
    } finally {
      await model.close();
    }
  });
}

// The text has 35,000 tokens, so a run takes seconds: each file once, on the
// two builds in turn; LINEAL_LARGE=1 runs all pairs.
const PERPLEXITY = [
  ['f32', 12.7415, 'base'], ['Q8_0', 12.7410, 'relaxed'], ['Q4_0', 12.9046, 'base'], ['Q4_K_M', 12.7845, 'relaxed'],
  ['Q2_K', 13.6307, 'base', 0.01],
];
for (const [quant, value, first, tolerance = 0.005] of PERPLEXITY) {
  for (const module of process.env.LINEAL_LARGE ? MODULES : [first]) {
    test(`perplexity of kjv ${quant} on val.txt at context 256, ${module} build`, { skip }, async () => {
      const file = quant === 'Q4_K_M' ? BUNDLED : fixture(`kjv/kjv-2.6m-${quant}.gguf`);
      const { stdout } = await promisify(execFile)(process.execPath, [
        CLI, 'perplexity', file, '--file', `${FIXTURES}/kjv/val.txt`, '--context', '256', '--module', module, '--json',
      ], { maxBuffer: 1 << 24 });
      const { perplexity, scored } = JSON.parse(stdout);
      assert.ok(scored > 10000, `${scored} tokens were scored`);
      assert.ok(Math.abs(perplexity / value - 1) < tolerance, `${perplexity}, llama.cpp ${value}`);
    });
  }
}

test('the bundled model, which needs no fixtures, agrees with llama.cpp on both builds', async () => {
  const reference = { // of generations.json, so that a clone by itself can check its one model
    prompt_tokens: [1, 299, 972, 261, 803, 267, 972, 294],
    greedy_tokens: [271, 261, 345, 981, 270, 369, 987, 363, 285, 336, 993, 270, 312, 394, 981, 299],
    first_logprobs: [
      -0.77492, -0.72426, -2.69605, -0.91822, -1.43222, -2.72654, -1.20539, -0.72161, -0.11812, -1.72004, -1.48003, -1.39974,
      -1.24839, -2.24754, -0.62983, -1.64187,
    ],
  };
  for (const module of MODULES) {
    const model = await open(BUNDLED, { module, allLogits: true });
    const { result } = await generate(model, 'In the beginning', { maxTokens: GREEDY_PREFIX });
    assert.deepEqual(result.promptTokens, reference.prompt_tokens);
    assert.deepEqual(result.tokens.slice(0, 11), reference.greedy_tokens.slice(0, 11));
    await assertNear(model, reference, result.tokens);
    await model.close();
  }
});
