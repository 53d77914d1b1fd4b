// A description of a model (which norms, biases, projections, experts it has, and of what shape)
// made into a tiny random GGUF: the keys and tensors that the loaders of its architecture ask for.
import { random, tokenizerMetadata } from '../lib/gguf-write.mjs';

/**
 * What a description may say, with what holds where it doesn't.
 *
 * Weights are drawn so that every part matters: the products of queries and keys spread over
 * several units (attention is neither flat nor fixed on one token), each block adds to the
 * residual stream about as much as it holds, and logits spread over `outputGain` units.
 */
export const DEFAULTS = {
  seed: 1,
  layers: 3,
  width: 48,
  heads: 4,
  kvHeads: 2, // or a number a layer: 0 is a layer of short convolution
  head: undefined, // size of a head, written as keys; otherwise width / heads
  ff: 80,
  vocab: 288,
  context: 512,
  epsilon: 1e-5,
  type: 'F32', // of every matrix, or a function of its name

  norm: 'rms', // or 'layer'
  normBias: false,
  preNorm: true, // attn_norm
  ffnNorm: true,
  postNorm: false, // of what attention gives
  ffnPostNorm: false,
  outputNorm: 'output_norm',

  qkv: 'split', // or 'fused'
  qkvBias: false,
  outBias: false,
  qkNorm: 'none', // 'head': one vector for all heads, 'row': for the whole row, 'heads': one a head
  sinks: false,

  ffn: 'gated', // 'fused': gate and up in one matrix, 'plain': no gate
  ffnBias: false,
  experts: undefined, // {count, used, ff?, shared?, sharedGate?, bias?}

  output: 'own', // or 'tied', or 'none': a model of embeddings
  outputBias: false,
  positions: false, // learned
  tokenTypes: 0,
  embeddingNorm: false,
  bertNorms: false,
  convolution: 0, // taps of the short convolution
  dense: 0, // width between the two dense layers after pooling

  // {base, dims, scaling, factor, original, attnFactor, freqs, long, short}: keys of rope.*, and factors
  rope: {},
  keys: {}, // more keys: name without the architecture -> [type, value]

  qkGain: 1.5,
  valueGain: 1,
  ffnGain: 1.4,
  outputGain: 3,
  embeddingGain: undefined, // deviation of token_embd; the default depends on `output`
  name: 'tiny random model', // llama.cpp looks for some names ('phi-3') and changes tokens then
};

const SCALING_KEYS = {
  factor: ['factor', 'f32'],
  original: ['original_context_length', 'u32'],
  attnFactor: ['attn_factor', 'f32'],
  betaFast: ['yarn_beta_fast', 'f32'],
  betaSlow: ['yarn_beta_slow', 'f32'],
  logMultiplier: ['yarn_log_multiplier', 'f32'],
  alpha: ['alpha', 'f32'],
};

/** Keys of rope scaling as [suffix, type, value]. */
function ropeKeys(rope, headSize, ownHead) {
  const keys = [['rope.freq_base', 'f32', rope.base ?? 10000]];
  if (rope.dims || ownHead) keys.push(['rope.dimension_count', 'u32', rope.dims ?? headSize]);
  if (rope.scaling) keys.push(['rope.scaling.type', 'string', rope.scaling]);
  for (const [name, [suffix, type]] of Object.entries(SCALING_KEYS)) {
    if (rope[name] !== undefined) keys.push([`rope.scaling.${suffix}`, type, rope[name]]);
  }
  return keys;
}

/** Collects tensors; each draws its values from a seed of its own, so that adding one changes no other. */
class Tensors {
  list = [];
  constructor(spec) {
    this.typeOf = typeof spec.type === 'function' ? spec.type : () => spec.type;
    this.seeds = random(spec.seed * 7919 + 13);
  }

  add(name, type, shape, deviation, mean = 0) {
    const seed = this.seeds.next();
    const count = shape.reduce((a, b) => a * b, 1);
    this.list.push({
      name, type, shape,
      values() {
        const r = random(seed);
        return Float32Array.from({ length: count }, () => mean + deviation * r.normal());
      },
    });
  }

  /** Rows of k inputs each; `more`: a third dimension, the experts. */
  matrix(name, k, rows, gain, more = []) {
    this.add(name, this.typeOf(name), [k, rows, ...more], gain / Math.sqrt(k));
  }

  vector(name, shape, deviation, mean = 0) {
    this.add(name, 'F32', Array.isArray(shape) ? shape : [shape], deviation, mean);
  }

  constant(name, values) {
    this.list.push({ name, type: 'F32', shape: [values.length], values: () => Float32Array.from(values) });
  }
}

function norm(t, name, size, bias, mean = 1) {
  t.vector(`${name}.weight`, size, 0.2 * mean, mean);
  if (bias) t.vector(`${name}.bias`, size, 0.2);
}

function attention(t, s, p, headSize, kvHeads) {
  const q = s.heads * headSize, kv = kvHeads * headSize;
  if (s.qkv === 'fused') {
    t.matrix(`${p}attn_qkv.weight`, s.width, q + 2 * kv, s.qkGain);
    if (s.qkvBias) t.vector(`${p}attn_qkv.bias`, q + 2 * kv, 0.5);
  } else {
    for (const [name, rows, gain] of [['q', q, s.qkGain], ['k', kv, s.qkGain], ['v', kv, s.valueGain]]) {
      t.matrix(`${p}attn_${name}.weight`, s.width, rows, gain);
      if (s.qkvBias) t.vector(`${p}attn_${name}.bias`, rows, 0.5);
    }
  }
  if (s.qkNorm === 'head') for (const name of ['q', 'k']) t.vector(`${p}attn_${name}_norm.weight`, headSize, 0.3, 1.3);
  if (s.qkNorm === 'row') {
    t.vector(`${p}attn_q_norm.weight`, q, 0.3, 1.3);
    t.vector(`${p}attn_k_norm.weight`, kv, 0.3, 1.3);
  }
  if (s.qkNorm === 'heads') {
    t.vector(`${p}attn_q_norm.weight`, [headSize, s.heads], 0.3, 1.3);
    t.vector(`${p}attn_k_norm.weight`, [headSize, kvHeads], 0.3, 1.3);
  }
  if (s.sinks) t.vector(`${p}attn_sinks.weight`, s.heads, 1.5, 1);
  t.matrix(`${p}attn_output.weight`, q, s.width, 1);
  if (s.outBias) t.vector(`${p}attn_output.bias`, s.width, 0.3);
}

function convolution(t, s, p) {
  t.add(`${p}shortconv.conv.weight`, 'F32', [s.convolution, s.width], 0.7);
  t.matrix(`${p}shortconv.in_proj.weight`, s.width, 3 * s.width, 1.2);
  t.matrix(`${p}shortconv.out_proj.weight`, s.width, s.width, 1);
}

function feedForward(t, s, p) {
  if (s.ffn !== 'plain' && s.ffn !== 'fused') {
    t.matrix(`${p}ffn_gate.weight`, s.width, s.ff, s.ffnGain);
    if (s.ffnBias && s.ffn === 'gated') t.vector(`${p}ffn_gate.bias`, s.ff, 0.3);
  }
  const up = s.ffn === 'fused' ? 2 * s.ff : s.ff;
  t.matrix(`${p}ffn_up.weight`, s.width, up, s.ffnGain);
  if (s.ffnBias) t.vector(`${p}ffn_up.bias`, up, 0.3);
  t.matrix(`${p}ffn_down.weight`, s.ff, s.width, s.ffnGain);
  if (s.ffnBias) t.vector(`${p}ffn_down.bias`, s.width, 0.3);
}

function experts(t, s, p) {
  const { count, ff = s.ff, shared, sharedGate, bias, choiceBias } = s.experts;
  t.matrix(`${p}ffn_gate_inp.weight`, s.width, count, 1.5);
  if (bias) t.vector(`${p}ffn_gate_inp.bias`, count, 0.5);
  if (choiceBias) t.vector(`${p}exp_probs_b.bias`, count, 0.3);
  for (const [name, k, rows] of [['gate', s.width, ff], ['up', s.width, ff], ['down', ff, s.width]]) {
    t.matrix(`${p}ffn_${name}_exps.weight`, k, rows, s.ffnGain, [count]);
    if (bias) t.vector(`${p}ffn_${name}_exps.bias`, [rows, count], 0.3);
  }
  if (!shared) return;
  if (sharedGate) t.vector(`${p}ffn_gate_inp_shexp.weight`, s.width, 1 / Math.sqrt(s.width));
  for (const [name, k, rows] of [['gate', s.width, shared], ['up', s.width, shared], ['down', shared, s.width]]) {
    t.matrix(`${p}ffn_${name}_shexp.weight`, k, rows, s.ffnGain);
  }
}

function block(t, s, i, headSize, kvHeads) {
  const p = `blk.${i}.`;
  if (s.preNorm) norm(t, `${p}attn_norm`, s.width, s.normBias);
  if (kvHeads === 0) convolution(t, s, p);
  else attention(t, s, p, headSize, kvHeads);
  if (s.bertNorms) norm(t, `${p}attn_output_norm`, s.width, true);
  if (s.postNorm) norm(t, `${p}post_attention_norm`, s.width, false);
  if (s.ffnNorm) norm(t, `${p}ffn_norm`, s.width, s.normBias);
  if (s.experts && i >= (s.experts.dense ?? 0)) experts(t, s, p);
  else feedForward(t, s, p);
  if (s.ffnPostNorm) norm(t, `${p}post_ffw_norm`, s.width, false);
  if (s.bertNorms) norm(t, `${p}layer_output_norm`, s.width, true);
}

/**
 * A tied embedding is small: or else the likeliest token after each is itself, whatever came
 * before. The output norm makes up for it.
 */
const embeddingDeviation = (s) => s.embeddingGain ?? (s.output === 'tied' ? 0.12 : 1);
const outputNormMean = (s) => (s.output === 'tied' ? s.outputGain / (embeddingDeviation(s) * Math.sqrt(s.width)) : 1);

function outerTensors(t, s, headSize) {
  const tied = s.output === 'tied';
  const deviation = embeddingDeviation(s);
  t.add('token_embd.weight', t.typeOf('token_embd.weight'), [s.width, s.vocab], deviation);
  if (s.positions) t.add('position_embd.weight', 'F32', [s.width, s.context], tied ? deviation : 0.7);
  if (s.tokenTypes) t.add('token_types.weight', 'F32', [s.width, s.tokenTypes], 0.5);
  if (s.embeddingNorm) norm(t, 'token_embd_norm', s.width, true);
  if (s.rope.freqs) t.constant('rope_freqs.weight', s.rope.freqs);
  if (s.rope.long) t.constant('rope_factors_long.weight', s.rope.long(s.rope.dims ?? headSize));
  if (s.rope.short) t.constant('rope_factors_short.weight', s.rope.short(s.rope.dims ?? headSize));
}

/**
 * The model of a description, for ggufBytes of tests/lib/gguf-write.mjs.
 * The same description gives the same bytes.
 */
export function describedModel(description) {
  const s = { ...DEFAULTS, ...description };
  const kvOf = Array.isArray(s.kvHeads) ? (i) => s.kvHeads[i] : () => s.kvHeads;
  const headSize = s.head ?? s.width / s.heads;
  if (headSize % 2) throw new Error(`${s.arch}: heads of ${headSize} values`);

  const t = new Tensors(s);
  outerTensors(t, s, headSize);
  for (let i = 0; i < s.layers; i++) block(t, s, i, headSize, kvOf(i));
  if (s.outputNorm) norm(t, s.outputNorm, s.width, s.normBias, outputNormMean(s));
  if (s.output === 'own') t.matrix('output.weight', s.width, s.vocab, s.outputGain);
  if (s.dense) {
    t.matrix('dense_2.weight', s.width, s.dense, 1);
    t.matrix('dense_3.weight', s.dense, s.width, 1);
  }
  if (s.outputBias) t.vector('output.bias', s.vocab, 0.5);

  const keys = [
    ['vocab_size', 'u32', s.vocab],
    ['context_length', 'u32', s.context],
    ['embedding_length', 'u32', s.width],
    ['block_count', 'u32', s.layers],
    ['feed_forward_length', 'u32', s.ff],
    ['attention.head_count', 'u32', s.heads],
    ['attention.head_count_kv', Array.isArray(s.kvHeads) ? '[i32]' : 'u32', s.kvHeads],
    [s.norm === 'rms' ? 'attention.layer_norm_rms_epsilon' : 'attention.layer_norm_epsilon', 'f32', s.epsilon],
    ...(s.positions ? [] : ropeKeys(s.rope, headSize, s.head !== undefined)),
  ];
  if (s.head !== undefined) keys.push(['attention.key_length', 'u32', s.head], ['attention.value_length', 'u32', s.head]);
  if (s.experts) {
    keys.push(['expert_count', 'u32', s.experts.count], ['expert_used_count', 'u32', s.experts.used]);
    if (s.experts.ff) keys.push(['expert_feed_forward_length', 'u32', s.experts.ff]);
    if (s.experts.dense) keys.push(['leading_dense_block_count', 'u32', s.experts.dense]);
    if (s.experts.shared) keys.push(['expert_shared_feed_forward_length', 'u32', s.experts.shared]);
  }
  if (s.convolution) keys.push(['shortconv.l_cache', 'u32', s.convolution]);
  for (const [name, [type, value]] of Object.entries(s.keys)) keys.push([name, type, value]);

  return {
    metadata: [
      ['general.architecture', 'string', s.arch],
      ['general.name', 'string', s.name],
      ...keys.map(([name, type, value]) => [`${s.arch}.${name}`, type, value]),
      ...(s.tokenizer ?? tokenizerMetadata('spm', s.vocab, {})),
    ],
    tensors: t.list,
    version: 3,
    alignment: 32,
  };
}

/** Token ids of a prompt for a vocabulary; begins with id 1. */
export function promptIds(count, vocab, seed) {
  const r = random(seed * 31 + 5);
  return [1, ...Array.from({ length: count - 1 }, () => r.next() % vocab)];
}
