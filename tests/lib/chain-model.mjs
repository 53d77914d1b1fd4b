// A model whose greedy continuation is known beforehand: its one layer is zero,
// so the logits depend on the last token alone, and each token of the chain
// makes the next one certain. For tests of streaming, stop texts and bytes.
import { spmVocabulary, tinyLlama } from './gguf-write.mjs';

/**
 * chain: ids, each at most once; after chain[i] comes chain[i + 1], and the last
 * one repeats. vocabulary: {tokens, types, scores} or undefined for the usual one.
 * nContext: context length. Returns a model for ggufBytes and writeSparse.
 */
export function chainModel(chain, { vocabulary, n_vocab = 320, n_ctx = 256, ...options } = {}) {
  if (new Set(chain).size !== chain.length) throw new Error('a chain has no id twice');
  const count = vocabulary?.tokens.length ?? n_vocab;
  const dModel = Math.ceil((chain.length + 1) / 32) * 32;
  const model = tinyLlama({
    n_layer: 1, d_model: dModel, n_head: 1, d_ff: 32, n_vocab: count, n_ctx, zeroLayers: [0],
    vocabulary: vocabulary ?? spmVocabulary(count), ...options,
  });
  const set = (name, values) => { model.tensors.find((t) => t.name === name).values = () => values; };
  const embedding = new Float32Array(dModel * count);
  const output = new Float32Array(dModel * count);
  for (let id = 0; id < count; id++) embedding[id * dModel + dModel - 1] = 1; // off the chain: no direction of its own
  chain.forEach((id, i) => {
    embedding[id * dModel + dModel - 1] = 0;
    embedding[id * dModel + i] = 1;
    output[chain[Math.min(i + 1, chain.length - 1)] * dModel + i] = 10;
  });
  set('token_embd.weight', embedding);
  set('output.weight', output);
  set('output_norm.weight', new Float32Array(dModel).fill(1));
  return model;
}
