// A llama with matrices of any GGML type, from blocks that llama.cpp's quantiser made: those of
// ../shared/fixtures/quant, put together anew row by row. What each block stands for lies beside
// it, so the exact result is that of f32 on those values.
import fs from 'node:fs';
import { fixture, fixtureFloats, fixtureJson, fixturesMissing } from '../lib/fixtures.mjs';
import { random } from '../lib/gguf-write.mjs';
import { describedModel } from './generator.mjs';

const DESCRIPTION = { arch: 'llama', width: 256, heads: 8, kvHeads: 2, ff: 512, layers: 2 };
const EXACT = new Set(['f32', 'f16', 'bf16']);

/** Type names of the fixtures, as cases: none where the fixtures are absent. */
export function fixtureTypeCases() {
  if (fixturesMissing()) return [];
  const types = Object.keys(fixtureJson('quant', 'manifest.json').types);
  // the types of activations have no values there
  const weights = types.filter((type) => type !== 'f32' && filesOf(type).length);
  return weights.map((type) => ({
    architecture: 'llama',
    variant: `${type.toUpperCase()}, llama.cpp's blocks`,
    description: { ...DESCRIPTION, quantised: !EXACT.has(type), blocksOf: type },
  }));
}

/** Pairs of files of a type: made without and with an importance matrix. */
const filesOf = (type) => ['', '.im'].map((made) => [`${type}${made}.bin`, `${type}${made}.f32`])
  .filter((names) => names.every((name) => fs.existsSync(fixture('quant', name))));

/** {id, len, bytes, stored: [Uint8Array], values: [Float32Array]}: the blocks of a type. */
function blocksOf(type) {
  const { id, blck: len, type_size: bytes } = fixtureJson('quant', 'manifest.json').types[type];
  const pool = { id, len, bytes, stored: [], values: [] };
  for (const [bin, f32] of filesOf(type)) {
    const stored = fs.readFileSync(fixture('quant', bin)), values = fixtureFloats('quant', f32);
    for (let i = 0; i < values.length / len; i++) {
      pool.stored.push(stored.subarray(i * bytes, (i + 1) * bytes));
      pool.values.push(values.subarray(i * len, (i + 1) * len));
    }
  }
  return pool;
}

const rootMeanSquare = (arrays) => {
  let sum = 0, count = 0;
  for (const a of arrays) for (const v of a) { sum += v * v; count++; }
  return Math.sqrt(sum / count);
};

/**
 * {quantised, exact}: the same model, its matrices in blocks and as the values of the blocks. The
 * blocks are much larger than weights are: norms before a matrix shrink by as much, and the
 * embedding grows. Of types with blocks of 256 there are eight or sixteen different rows; an output
 * matrix of those would give equal logits to many tokens, so theirs stays f32.
 */
export function modelOfBlocks(description) {
  const pool = blocksOf(description.blocksOf);
  const size = rootMeanSquare(pool.values);
  const model = describedModel(description);
  const choose = random(77);
  const few = pool.len === description.width;
  const inBlocks = ({ name, shape }) => shape.length > 1 && !(name === 'token_embd.weight' || (few && name === 'output.weight'));
  const factors = {
    token_embd: 16 * size,
    output: 1,
    attn_norm: (few ? 0.5 : 1) / (16 * size),
    ffn_norm: 1.4 / (16 * size),
    output_norm: few ? 1 : 3 / (16 * size),
  };
  const quantised = [], exact = [];
  for (const t of model.tensors) {
    if (inBlocks(t)) {
      const count = (t.shape[0] * t.shape[1]) / pool.len;
      const picked = Array.from({ length: count }, () => choose.next() % pool.values.length);
      const values = new Float32Array(count * pool.len), bytes = new Uint8Array(count * pool.bytes);
      picked.forEach((which, i) => {
        values.set(pool.values[which], i * pool.len);
        bytes.set(pool.stored[which], i * pool.bytes);
      });
      quantised.push({ name: t.name, shape: t.shape, typeId: pool.id, storedBytes: bytes.length, bytes });
      exact.push({ ...t, type: 'F32', values: () => values });
    } else {
      const values = t.values().map((v) => v * factors[t.name.split('.').at(-2)]);
      for (const list of [quantised, exact]) list.push({ ...t, values: () => values });
    }
  }
  return { quantised: { ...model, tensors: quantised }, exact: { ...model, tensors: exact } };
}
