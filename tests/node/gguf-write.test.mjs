// The tests' own GGUF writer: its blocks decode to what was encoded, and to
// what llama.cpp decodes from the same bytes.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { fixture, fixtureFloats, fixturesMissing } from '../lib/fixtures.mjs';
import { TYPES, decode, encode, fromHalf, ggufBytes, random, tinyLlama, toHalf } from '../lib/gguf-write.mjs';

test('halves: every one survives, and rounding is to nearest even', () => {
  for (let bits = 0; bits < 0x10000; bits++) {
    const value = fromHalf(bits);
    if (Number.isNaN(value)) assert.ok(Number.isNaN(fromHalf(toHalf(value))));
    else assert.equal(toHalf(value), bits);
  }
  assert.equal(toHalf(1 + 2 ** -11), 0x3c00);
  assert.equal(toHalf(1 + 3 * 2 ** -11), 0x3c02);
  assert.equal(toHalf(65519), 0x7bff);
  assert.equal(toHalf(65520), 0x7c00);
  assert.equal(toHalf(2 ** -25), 0);
  assert.equal(toHalf(2 ** -25 * 1.001), 1);
});

// worst rounding of a block, relative to its largest value: half a code step
const STEP = { F32: 0, F16: 2 ** -11, BF16: 2 ** -8, Q8_0: 1 / 250, Q4_0: 1 / 7, Q5_0: 1 / 15, Q4_K: 1 / 10, Q6_K: 1 / 30 };
for (const [type, step] of Object.entries(STEP)) {
  test(`${type}: what is encoded comes back`, () => {
    const rng = random(5);
    const x = Float32Array.from({ length: 1024 }, () => rng.normal());
    const bytes = encode(type, x);
    assert.equal(bytes.length, (1024 / TYPES[type].len) * TYPES[type].bytes);
    const y = decode(type, bytes);
    const most = Math.max(...x.map(Math.abs));
    x.forEach((v, i) => assert.ok(Math.abs(v - y[i]) <= step * most, `${i}: ${v} came back as ${y[i]}`));
  });
}

const skip = fixturesMissing();
for (const type of Object.keys(STEP)) {
  test(`${type}: llama.cpp's bytes decode to llama.cpp's values`, { skip }, () => {
    const name = type.endsWith('_K') ? `q${type.slice(1)}` : type.toLowerCase();
    assert.deepEqual(decode(type, new Uint8Array(fs.readFileSync(fixture('quant', `${name}.bin`)))), fixtureFloats('quant', `${name}.f32`));
  });
}

test('the same options give the same bytes, another seed gives others', () => {
  assert.ok(ggufBytes(tinyLlama()).equals(ggufBytes(tinyLlama())));
  assert.ok(!ggufBytes(tinyLlama()).equals(ggufBytes(tinyLlama({ seed: 2 }))));
});
