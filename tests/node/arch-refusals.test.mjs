// What the architectures of docs/models.md cannot run, refused from the header; and vectors of damaged models.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { explain, open } from '../../js-glue/index.js';
import { ARCHITECTURES, EMBEDDINGS } from '../conformance/architectures.mjs';
import { describedModel } from '../conformance/generator.mjs';
import { ggufBytes } from '../lib/gguf-write.mjs';

/** The first variant of an architecture, changed. */
function model(row, { more = {}, drop, tensor, key } = {}) {
  const { variants: _, ...description } = row;
  const made = describedModel({ ...description, ...more });
  if (drop) made.tensors = made.tensors.filter(({ name }) => !drop.test(name));
  if (tensor) made.tensors = made.tensors.map((t) => (t.name === tensor.name ? { ...t, ...tensor } : t));
  if (key) made.metadata = [...made.metadata.filter(([name]) => name !== key[0]), key];
  return ggufBytes(made);
}

const shared = { ...ARCHITECTURES.granitemoe, experts: { count: 4, used: 2, shared: 40 } };
const dense = { ...EMBEDDINGS['gemma-embedding'], dense: 24, keys: { ...EMBEDDINGS['gemma-embedding'].keys, dense_2_feat_out: ['u32', 24] } };
const llama = ARCHITECTURES.llama, granite = ARCHITECTURES.granite;
const refused = {
  'one of two matrices after pooling': [model(dense, { drop: /dense_2/ }), 'MISSING_TENSOR', /dense_2/],
  'the other of them': [model(dense, { drop: /dense_3/ }), 'MISSING_TENSOR', /dense_3/],
  'a shared expert without its gate': [model(shared, { drop: /gate_shexp/ }), 'MISSING_TENSOR', /ffn_gate_shexp/],
  'a shared expert without its way down': [model(shared, { drop: /down_shexp/ }), 'MISSING_TENSOR', /ffn_down_shexp/],
  'a table of no token types': [
    model(EMBEDDINGS.bert, { tensor: { name: 'token_types.weight', shape: [48, 0], values: () => new Float32Array(0) } }),
    ['BAD_SHAPE', 'GGUF_CORRUPT', 'GGUF_LIMIT'], /token_types/,
  ],
  'logits divided by next to nothing': [model(granite, { key: ['granite.logit_scale', 'f32', 1e-45] }), 'GGUF_LIMIT', /logit_scale/],
  'a base of rope below 1': [model(llama, { key: ['llama.rope.freq_base', 'f32', 1e-45] }), 'GGUF_LIMIT', /freq_base/],
  'a magnitude of rope beyond reason': [
    model(llama, { key: ['llama.rope.scaling.attn_factor', 'f32', 1e30] }), 'GGUF_LIMIT', /attn_factor/,
  ],
  'a factor of rope next to nothing': [model(llama, { key: ['llama.rope.scaling.factor', 'f32', 1e-45] }), 'GGUF_LIMIT', /factor/],
  'more experts used than there are': [
    model(ARCHITECTURES.qwen3moe, { key: ['qwen3moe.expert_used_count', 'u32', 99] }), 'GGUF_LIMIT', /expert_used_count/,
  ],
  'heads that differ by layer': [
    model(llama, { key: ['llama.attention.head_count_kv', '[i32]', [2, 1, 2, 2]] }), ['UNSUPPORTED_FEATURE', 'MISSING_KEY'], /head_count_kv/,
  ],
  'a pooling that nobody knows': [model(EMBEDDINGS.bert, { key: ['bert.pooling_type', 'u32', 7] }), 'UNSUPPORTED_FEATURE', /pooling_type/],
};
for (const [name, [bytes, codes, text]] of Object.entries(refused)) {
  test(`refused: ${name}`, async () => {
    await assert.rejects(explain(bytes), (error) => {
      assert.equal(error.name, 'LinealError');
      assert.ok([codes].flat().includes(error.code), `${error.code}: ${error.message}`);
      assert.match(error.message, text);
      assert.ok(error.remedy);
      return true;
    });
  });
}

test('a vector that is no number or has no length is an error, and the model goes on', async () => {
  const damaged = (value) => model(EMBEDDINGS.bert, {
    tensor: { name: 'blk.0.layer_output_norm.bias', values: () => new Float32Array(EMBEDDINGS.bert.width ?? 48).fill(value) },
  });
  const broken = await open(damaged(NaN), { worker: false });
  try {
    await assert.rejects(broken.embed('the word'), { code: 'NOT_NUMBERS' });
    await assert.rejects(broken.embed('the word'), { code: 'NOT_NUMBERS' });
  } finally {
    await broken.close();
  }
});

for (const worker of [false, true]) {
  test(`embed: aborted beforehand, ${worker ? 'in a worker' : 'here'}`, async () => {
    const opened = await open(model(EMBEDDINGS.bert), { worker });
    try {
      await assert.rejects(opened.embed('the word', { signal: AbortSignal.abort() }), { code: 'ABORTED' });
      assert.ok((await opened.embed('the word')).length > 0);
      await assert.rejects((async () => { for await (const _ of opened.generate('the')); })(), { code: 'NO_LOGITS' });
    } finally {
      await opened.close();
    }
    const text = await open(model(llama), { worker });
    try {
      await assert.rejects(text.embed('the word'), { code: 'NO_EMBEDDINGS' });
    } finally {
      await text.close();
    }
  });
}
