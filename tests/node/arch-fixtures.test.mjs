// Every model of ../shared/fixtures/arch against the logits that llama.cpp gave for it, position by
// position, on both builds. The weights are f32, and so is all arithmetic.
// An architecture that the engine declines is skipped with its message; with CI or LINEAL_STRICT=1 it fails.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { MODULES, fixture, fixtureFloats, fixturesMissing, nmse, rowsOf } from '../lib/fixtures.mjs';

const NMSE = 1e-6;
const skip = fixturesMissing();
const strict = process.env.LINEAL_STRICT === '1' || process.env.CI === 'true';

/** Ids of prompt.txt, 'ids:1,5,9'. */
function promptIds() {
  const [, list] = /^ids:([\d,]+)/.exec(fs.readFileSync(fixture('arch', 'prompt.txt'), 'utf8'));
  return list.split(',').map(Number);
}

const names = skip ? ['arch'] : fs.readdirSync(fixture('arch')).filter((n) => n.endsWith('.gguf')).map((n) => n.slice(0, -5));
if (!skip) test('the fixtures of architectures are there', () => assert.ok(names.length >= 15, `${names.length}`));

for (const name of names) {
  for (const module of MODULES) {
    test(`logits of ${name}, ${module}`, { skip }, async (t) => {
      const expected = fixtureFloats('arch', `${name}.logits.f32`);
      const ids = promptIds();
      const vocab = expected.length / ids.length;
      let model;
      try {
        model = await open(fixture('arch', `${name}.gguf`), { module, allLogits: true, kvType: 'f32' });
      } catch (error) {
        if (!strict && error.code?.startsWith('UNSUPPORTED_')) return t.skip(`${error.code}: ${error.message}`);
        throw error;
      }
      try {
        const rows = await rowsOf(model, ids);
        assert.equal(rows.length, ids.length);
        let worst = 0;
        rows.forEach((row, i) => {
          assert.equal(row.length, vocab);
          const error = nmse(row, expected.subarray(i * vocab, (i + 1) * vocab));
          worst = Math.max(worst, error);
          assert.ok(error < NMSE, `position ${i}: ${error}`);
        });
        t.diagnostic(`worst position: ${worst.toExponential(1)}`);
      } finally {
        await model.close();
      }
    });
  }
}
