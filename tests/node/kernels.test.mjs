// The forms and kernels inside a real engine: the cases that also run natively
// (tests/native/kernel_cases.h), and dequantisation of the shared fixtures.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';

import { chooseModule } from '../../js-glue/caps.js';
import { MODULES, ROOT, fixture, fixtureJson, fixturesMissing } from '../lib/fixtures.mjs';

// Switches on, and works around, what Node 20 needs for relaxed SIMD.
await chooseModule('relaxed');

/** A fresh instance of dist/test/kernels-<name>.wasm. */
function load(name) {
  const file = path.join(ROOT, 'dist/test', `kernels-${name}.wasm`);
  assert.ok(
    fs.existsSync(file),
    `${path.relative(ROOT, file)} is missing: build it with \`npm run build\` (or see the top of wasm/kernel_test.c)`,
  );
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(file)));
  const text = (at) => {
    const bytes = new Uint8Array(exports.memory.buffer);
    return new TextDecoder().decode(bytes.subarray(at >>> 0, bytes.indexOf(0, at >>> 0)));
  };
  /** Fresh memory of that many bytes. */
  const take = (bytes) => exports.memory.grow(Math.ceil(bytes / 65536)) * 65536;
  return { exports, text, take };
}

const ISA = { base: 'simd128', relaxed: 'relaxed' };

for (const name of MODULES) {
  test(`kernels-${name}: every case of forms and kernels`, async (t) => {
    const { exports, text } = load(name);
    const count = exports.case_count();
    assert.ok(count >= 2 * exports.form_count(), `${count} cases`);
    for (let i = 0; i < count; i++) {
      await t.test(text(exports.case_name(i)), () => {
        if (exports.case_run(i) !== 0) assert.fail(text(exports.case_message()));
      });
    }
  });

  test(`kernels-${name}: kernels are named after its instruction set`, () => {
    const { exports, text } = load(name);
    const ending = new RegExp(`\\.${ISA[name]}$`);
    for (let i = 0; i < exports.form_count(); i++) {
      assert.match(text(exports.form_kernel(i)), ending);
      if (exports.packing_bytes(i, 256) > 0) assert.match(text(exports.packing_kernel(i)), ending);
    }
  });

  test(`kernels-${name}: dequantisation of the fixtures is bit-exact`, { skip: fixturesMissing() }, () => {
    const { exports, text, take } = load(name);
    const manifest = fixtureJson('quant', 'manifest.json');
    const values = manifest.rows * manifest.n_per_row;
    let compared = 0;
    for (let i = 0; i < exports.form_count(); i++) {
      const form = text(exports.form_name(i));
      const stored = Object.keys(manifest.types).find((type) => type.toLowerCase() === form.toLowerCase());
      assert.ok(stored, `no fixture for ${form}`);
      for (const variant of ['', '.im']) {
        const file = fixture('quant', `${stored}${variant}.bin`);
        // an unweighted type has no importance matrix; some types do not go without
        if (!fs.existsSync(file) && (variant || manifest.types[stored].requires_imatrix)) continue;
        const bin = fs.readFileSync(file);
        const expected = fs.readFileSync(fixture('quant', `${stored}${variant}.f32`));
        assert.equal(bin.length, exports.form_bytes(i, values));
        const src = take(bin.length) + 1; // unaligned
        const dst = take(expected.length);
        for (const scalar of [1, 0]) {
          new Uint8Array(exports.memory.buffer).set(bin, src);
          exports.form_decode(i, src, dst, values, scalar);
          const got = new Uint8Array(exports.memory.buffer, dst, expected.length);
          assert.ok(expected.equals(got), `${form}${variant} ${scalar ? 'scalar' : 'SIMD'}`);
          got.fill(0x55);
          compared++;
        }
      }
    }
    assert.ok(compared >= 2 * exports.form_count());
  });
}
