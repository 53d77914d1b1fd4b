// The table of what is compared: one row an architecture, its variants as overrides of the row.
// What each field means: generator.mjs.
//
// `half`: the reference looks GELU up in a table of 16-bit floats, see compare.mjs.
// `core`: the one variant that `npm test` runs, where it isn't the first.
import { DEFAULTS } from './generator.mjs';
import { llama3RopeFreqs, tokenizerMetadata } from '../lib/gguf-write.mjs';

const u32 = (value) => ['u32', value];
const f32 = (value) => ['f32', value];

// Shapes that every architecture gets. Heads of 12 values, an odd number of them.
const ODD_HEADS = { width: 36, heads: 3, kvHeads: 1, ff: 50, vocab: 301 };
const NO_GROUPS = { heads: 4, kvHeads: 4 };
const OWN_HEAD = { width: 40, heads: 3, kvHeads: 1, head: 24 };
const SMALL_HEAD = { width: 64, heads: 4, kvHeads: 2, head: 8 };
const TIED = { output: 'tied' };
const LINEAR = { rope: { scaling: 'linear', factor: 4 } };
// the prompt and what is generated go well past 32 tokens
const YARN = { rope: { scaling: 'yarn', factor: 4, original: 32 } };
const SEEDS = { 'seed 2': { seed: 2 }, 'seed 3': { seed: 3 } };

const several = (...variants) => Object.assign({}, ...variants, SEEDS);
const SHAPES = { 'odd head count': ODD_HEADS };
const HEADS = { 'heads larger than width / heads': OWN_HEAD, 'heads smaller than width / heads': SMALL_HEAD };

// divisors of the frequencies, as LongRoPE files have them
const longFactors = (dims) => Array.from({ length: dims / 2 }, (_, i) => 1 + i * 1.7);
const shortFactors = (dims) => Array.from({ length: dims / 2 }, (_, i) => 1 + i * 0.05);
const longRope = (original) => ({
  scaling: 'longrope', factor: 4, original, attnFactor: 1.19, long: longFactors, short: shortFactors,
});
// node-llama-cpp's context is 256 positions: the reference takes the long factors where the
// original context is shorter than that, whatever the length of the text. So the text is made
// longer than the original context too (or all of it shorter), and both sides mean the same.
const LONG = { rope: longRope(32), promptLength: 40 };
const SHORT = { rope: longRope(512) };

/** Pieces of a small WordPiece vocabulary: letters that begin words, and letters within them. */
function wordPieceTokens() {
  const letters = [...'abcdefghijklmnopqrstuvwxyz'];
  return [
    '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', ...letters.map((c) => `\u2581${c}`), '\u2581,', '\u2581.', ...letters,
    '\u2581the', '\u2581qu', '\u2581word', 'er', 'ing', 'ck',
  ];
}

function wordPieceMetadata() {
  const tokens = wordPieceTokens();
  return [
    ['tokenizer.ggml.model', 'string', 'bert'],
    ['tokenizer.ggml.pre', 'string', 'default'],
    ['tokenizer.ggml.tokens', '[string]', tokens],
    ['tokenizer.ggml.token_type', '[i32]', tokens.map((_, i) => (i < 5 ? 3 : 1))],
    ['tokenizer.ggml.token_type_count', 'u32', 2],
    ['tokenizer.ggml.padding_token_id', 'u32', 0],
    ['tokenizer.ggml.unknown_token_id', 'u32', 1],
    ['tokenizer.ggml.bos_token_id', 'u32', 2],
    ['tokenizer.ggml.cls_token_id', 'u32', 2],
    ['tokenizer.ggml.eos_token_id', 'u32', 3],
    ['tokenizer.ggml.seperator_token_id', 'u32', 3],
    ['tokenizer.ggml.mask_token_id', 'u32', 4],
  ];
}

/** The SPM vocabulary of the others, with EOS after each text: last pooling reads it. */
function spmWithEnd() {
  return [...tokenizerMetadata('spm', DEFAULTS.vocab, {}), ['tokenizer.ggml.add_eos_token', 'bool', true]];
}

// What the table of GELU can't blur: everything else.
const NO_GELU = { 'hardly any feed-forward part': { ffnGain: 0.01, half: false } };

const EXPERTS = { count: 4, used: 2 };
const WINDOW = (n, pattern) => ({
  'attention.sliding_window': u32(n),
  ...(pattern ? { 'attention.sliding_window_pattern': u32(pattern) } : {}),
});

const gemmaLike = { output: 'tied', ffn: 'gated', head: 16, half: true, width: 48, heads: 4, kvHeads: 1 };
const graniteScales = {
  'embedding_scale': f32(1.5), 'residual_scale': f32(0.6), 'attention.scale': f32(0.11), 'logit_scale': f32(0.9),
};

/** name -> {...description, variants: {name: overrides}} */
export const ARCHITECTURES = {
  'llama': {
    arch: 'llama',
    variants: several(SHAPES, HEADS, {
      'as many kv heads': NO_GROUPS,
      'tied': TIED,
      'biases': { qkvBias: true, outBias: true, ffnBias: true },
      'rope: factors of Llama 3': { rope: { base: 500000, freqs: llama3RopeFreqs(12, { base: 500000 }) } },
      'rope: linear': LINEAR,
      'rope: yarn past the original context': YARN,
      'rope: yarn, attn_factor': { rope: { ...YARN.rope, attnFactor: 0.8 } },
      'rope: base 1000000': { rope: { base: 1000000 } },
      'seven layers': { layers: 7 },
      'large epsilon': { epsilon: 0.1 },
    }),
  },
  'llama, experts': {
    arch: 'llama', experts: EXPERTS,
    variants: several(SHAPES, {
      'all of the experts': { experts: { count: 4, used: 4 } },
      'one of eight experts': { experts: { count: 8, used: 1 } },
      'three of five experts': { experts: { count: 5, used: 3 } },
      'tied': TIED,
    }),
  },
  'mistral3': {
    arch: 'mistral3',
    variants: several(SHAPES, HEADS, {
      'rope: yarn past the original context': YARN,
      'rope: yarn, its own slopes and logarithm': {
        head: 24, rope: { ...YARN.rope, base: 500, betaFast: 2, betaSlow: 0.25, logMultiplier: 1 },
      },
      'attention temperature': { rope: { ...YARN.rope, original: 16 }, keys: { 'attention.temperature_scale': f32(0.3) } },
    }),
  },
  'qwen2': {
    arch: 'qwen2', qkvBias: true,
    variants: several(SHAPES, {
      'tied': TIED, 'no biases': { qkvBias: false }, 'rope: yarn past the original context': YARN,
      'rope: base 1000000': { rope: { base: 1000000 } },
    }),
  },
  'qwen3': {
    arch: 'qwen3', qkNorm: 'head',
    variants: several(SHAPES, HEADS, { 'tied': TIED, 'rope: yarn past the original context': YARN }),
  },
  'qwen3moe': {
    arch: 'qwen3moe', qkNorm: 'head', experts: { count: 6, used: 2, ff: 40 },
    variants: several(SHAPES, HEADS, {
      'three of eight experts': { experts: { count: 8, used: 3, ff: 24 } },
      'rope: yarn past the original context': YARN,
    }),
  },
  'gemma2': {
    arch: 'gemma2', ...gemmaLike, postNorm: true, ffnPostNorm: true, layers: 4,
    keys: { ...WINDOW(16), 'attn_logit_softcapping': f32(50), 'final_logit_softcapping': f32(30) },
    variants: several({
      'odd head count': { width: 36, heads: 3, kvHeads: 1, head: 12, ff: 50 },
      'tight caps': { keys: { ...WINDOW(16), 'attn_logit_softcapping': f32(1.5), 'final_logit_softcapping': f32(4) } },
      'caps left out': { keys: WINDOW(16) },
      'window of 1': { keys: WINDOW(1) },
      'window longer than the text': { keys: WINDOW(4096) },
      'five layers': { layers: 5 },
      'heads smaller than width / heads': { head: 8 },
    }),
  },
  'gemma3': {
    arch: 'gemma3', ...gemmaLike, postNorm: true, ffnPostNorm: true, qkNorm: 'head', layers: 7,
    rope: { base: 1000000 },
    keys: { ...WINDOW(16), 'rope.freq_base_swa': f32(10000) },
    variants: several({
      'odd head count': { width: 36, heads: 3, kvHeads: 1, head: 12, ff: 50 },
      'window of 5': { keys: { ...WINDOW(5), 'rope.freq_base_swa': f32(10000) } },
      'base of the window left out': { keys: WINDOW(16) },
      'no window': { keys: {} },
      'pattern of 3': { keys: { ...WINDOW(16, 3), 'rope.freq_base_swa': f32(10000) } },
      'rope: linear': { rope: { base: 1000000, scaling: 'linear', factor: 8 } },
      'output of its own': { output: 'own', embeddingGain: 0.3 },
      'final cap': { keys: { ...WINDOW(16), 'final_logit_softcapping': f32(5) } },
    }),
  },
  'phi3': {
    arch: 'phi3', qkv: 'fused', ffn: 'fused',
    variants: several(SHAPES, {
      'as many kv heads': NO_GROUPS,
      'tied': TIED,
      'partial rope': { rope: { dims: 8 } },
      'rope: longrope, long text': LONG,
      'rope: longrope, short text': SHORT,
      'rope: longrope, partial, tied': { promptLength: 40, rope: { ...longRope(32), dims: 8 }, output: 'tied' },
      'a window, which llama.cpp ignores': { keys: WINDOW(16) },
      'split projections': { qkv: 'split', qkvBias: true },
    }),
  },
  'gpt2': {
    arch: 'gpt2', norm: 'layer', normBias: true, qkv: 'fused', qkvBias: true, outBias: true, ffn: 'plain',
    ffnBias: true, positions: true, heads: 4, kvHeads: 4, half: true,
    variants: several(NO_GELU, { 'odd head count': { ...ODD_HEADS, kvHeads: 3 }, 'tied': TIED }),
  },
  'olmo2': {
    arch: 'olmo2', preNorm: false, ffnNorm: false, postNorm: true, ffnPostNorm: true, qkNorm: 'row',
    variants: several(SHAPES, {
      'as many kv heads': NO_GROUPS,
      'window (OLMo 3)': { layers: 5, keys: WINDOW(16) },
      'window, yarn in the layers without': { layers: 5, keys: WINDOW(16), ...YARN },
      'rope: base 500000': { rope: { base: 500000 } },
    }),
  },
  'granite': {
    arch: 'granite', keys: graniteScales,
    variants: several(SHAPES, HEADS, {
      'tied': TIED, 'logit scale only': { keys: { logit_scale: f32(0.5) } },
      'biases': { qkvBias: true, outBias: true, ffnBias: true },
    }),
  },
  'smollm3': {
    arch: 'smollm3', layers: 6, variants: several(SHAPES, { 'tied': TIED, 'rope: yarn past the original context': YARN }),
  },
  'gpt-oss': {
    arch: 'gpt-oss', head: 16, ffnNorm: false, postNorm: true, qkvBias: true, outBias: true, sinks: true, layers: 4,
    experts: { count: 4, used: 2, ff: 48, bias: true }, keys: WINDOW(16),
    variants: several({
      'odd head count': { width: 36, heads: 3, kvHeads: 1, head: 12, experts: { count: 5, used: 3, ff: 32, bias: true } },
      'window of 3': { keys: WINDOW(3) },
      'rope: yarn past the original context': { rope: { base: 150000, ...YARN.rope } },
      'values beyond the limit': { ffnGain: 6 },
    }),
  },
  'lfm2': {
    arch: 'lfm2', layers: 5, kvHeads: [0, 0, 2, 0, 2], qkNorm: 'head', convolution: 3, outputNorm: 'token_embd_norm',
    variants: several({
      'odd head count': { ...ODD_HEADS, kvHeads: [0, 1, 0, 0, 1] },
      'attention first': { kvHeads: [2, 0, 0, 2, 0] },
      'four taps': { convolution: 4 },
      'tied': TIED,
    }),
  },
  'lfm2moe': {
    arch: 'lfm2moe', layers: 5, kvHeads: [0, 0, 2, 0, 2], qkNorm: 'head', convolution: 3, outputNorm: 'token_embd_norm',
    experts: { count: 6, used: 2, ff: 40, choiceBias: true, dense: 2 }, keys: { 'expert_gating_func': u32(2) },
    variants: several({
      'softmax': { keys: { 'expert_gating_func': u32(1) } },
      'odd head count': { ...ODD_HEADS, kvHeads: [0, 1, 0, 0, 1] },
      'no dense layers': { experts: { count: 6, used: 3, ff: 40, choiceBias: true, dense: 0 } },
    }),
  },
  'arcee': { arch: 'arcee', ffn: 'plain', variants: several(SHAPES, HEADS, { 'tied': TIED }) },
  'internlm2': { arch: 'internlm2', variants: several(SHAPES, { 'as many kv heads': NO_GROUPS }) },
  'exaone': {
    arch: 'exaone', variants: several(SHAPES, HEADS, { 'rope: factors of Llama 3': { rope: { freqs: llama3RopeFreqs(12) } } }),
  },
  'seed_oss': {
    arch: 'seed_oss', ffnNorm: false, postNorm: true, variants: several(SHAPES, HEADS, { 'biases': { qkvBias: true } }),
  },
  'olmoe': {
    arch: 'olmoe', qkNorm: 'row', heads: 4, kvHeads: 4, experts: EXPERTS,
    variants: several({
      'odd head count': { ...ODD_HEADS, kvHeads: 3 }, 'three of five experts': { experts: { count: 5, used: 3 } },
    }),
  },
  'command-r': {
    arch: 'command-r', norm: 'layer', ffnNorm: false, output: 'tied', keys: { 'logit_scale': f32(0.9) },
    variants: several(SHAPES, { 'norms of q and k': { qkNorm: 'heads', layers: 64, width: 48, heads: 2, kvHeads: 1, ff: 64, epsilon: 0.01 } }),
  },
  'gptneox': {
    arch: 'gptneox', norm: 'layer', normBias: true, qkv: 'fused', qkvBias: true, outBias: true, ffn: 'plain', ffnBias: true,
    rope: { dims: 4 }, half: true, heads: 4, kvHeads: 4, keys: { 'use_parallel_residual': ['bool', true] },
    variants: several({
      'odd head count': { ...ODD_HEADS, kvHeads: 3 },
      'one after the other': { keys: { 'use_parallel_residual': ['bool', false] } },
    }),
  },
  'gemma': {
    arch: 'gemma', ...gemmaLike,
    variants: several(NO_GELU, { 'odd head count': { width: 36, heads: 3, kvHeads: 1, head: 12, ff: 50 } }),
  },
  'qwen2moe': {
    arch: 'qwen2moe', qkvBias: true, experts: { count: 6, used: 2, ff: 40, shared: 56, sharedGate: true },
    variants: several(SHAPES, { 'all of the experts': { experts: { count: 3, used: 3, ff: 40, shared: 56, sharedGate: true } } }),
  },
  'granitemoe': {
    arch: 'granitemoe', keys: graniteScales, experts: EXPERTS,
    variants: several(SHAPES, { 'shared expert': { experts: { ...EXPERTS, shared: 40 } }, 'tied': TIED }),
  },
  'exaone4': {
    arch: 'exaone4', preNorm: false, ffnNorm: false, postNorm: true, ffnPostNorm: true, qkNorm: 'head',
    variants: several(SHAPES, {
      'rope: factors of Llama 3': { rope: { freqs: llama3RopeFreqs(12) } },
      'window, 64 layers (32B)': { layers: 64, width: 24, heads: 2, kvHeads: 1, ff: 32, keys: WINDOW(16) },
      'tied': TIED,
    }),
  },
  'glm4': {
    arch: 'glm4', postNorm: true, ffnPostNorm: true, ffn: 'fused', rope: { dims: 6 },
    variants: several(SHAPES, HEADS, { 'biases': { qkvBias: true }, 'rope in all of a head': { rope: {} } }),
  },
  'cohere2': {
    arch: 'cohere2', norm: 'layer', ffnNorm: false, output: 'tied', layers: 5,
    keys: { ...WINDOW(16), 'logit_scale': f32(1.1) },
    variants: several(SHAPES, { 'window of 5': { keys: { ...WINDOW(5), 'logit_scale': f32(0.6) } } }),
  },
  'starcoder2': {
    arch: 'starcoder2', norm: 'layer', normBias: true, qkvBias: true, outBias: true, ffn: 'plain', ffnBias: true,
    half: true, variants: several(SHAPES, NO_GELU, { 'tied': TIED, 'no biases of q, k, v': { qkvBias: false } }),
  },
  'stablelm': {
    arch: 'stablelm', norm: 'layer', normBias: true, rope: { dims: 4 },
    variants: several(SHAPES, {
      'biases': { qkvBias: true },
      'norms of q and k, parallel': { qkNorm: 'heads', ffnNorm: false },
    }),
  },
  'phi2': {
    arch: 'phi2', norm: 'layer', normBias: true, qkv: 'fused', qkvBias: true, outBias: true, ffnNorm: false,
    ffn: 'plain', ffnBias: true, outputBias: true, rope: { dims: 6 }, half: true, heads: 4, kvHeads: 4,
    variants: several(NO_GELU, {
      'odd head count': { ...ODD_HEADS, kvHeads: 3, rope: { dims: 4 } }, 'split projections': { qkv: 'split' },
    }),
  },
  'minicpm': {
    arch: 'minicpm',
    keys: { 'embedding_scale': f32(2), 'residual_scale': f32(0.7), 'logit_scale': f32(1.2) },
    variants: several(SHAPES, {
      // without logit_scale, llama.cpp multiplies by what MiniCPM divides by: always written here
      'other scales left out': { keys: { 'logit_scale': f32(1.2) }, embeddingGain: 0.1 },
      'tied': TIED,
      'rope: longrope, long text': LONG,
    }),
  },
  'hunyuan-dense': {
    arch: 'hunyuan-dense', qkNorm: 'head',
    variants: several(SHAPES, HEADS, { 'tied': TIED, 'rope: alpha': { rope: { alpha: 50 } } }),
  },
  'ernie4_5': {
    // llama.cpp reads attn_output.bias here and does not add it: not compared
    arch: 'ernie4_5', variants: several(SHAPES, HEADS, { 'tied': TIED, 'biases': { qkvBias: true } }),
  },
};

/** Types of matrices other than F32, on a llama; the reference gets the values that the blocks stand for. */
export const QUANTISED = { arch: 'llama', width: 256, heads: 8, kvHeads: 2, ff: 256, layers: 2 };
/** The same, of experts in gpt-oss. */
export const QUANTISED_EXPERTS = {
  ...ARCHITECTURES['gpt-oss'], width: 64, head: 16, experts: { count: 4, used: 2, ff: 64, bias: true }, variants: undefined,
};

// --- embeddings -----------------------------------------------------------------

const POOLING = { mean: 1, cls: 2, last: 3 };
const pooled = (pooling, more) => ({ 'pooling_type': u32(POOLING[pooling]), ...more });
const bidirectional = { 'attention.causal': ['bool', false] };
const bertLike = {
  norm: 'layer', preNorm: false, ffnNorm: false, bertNorms: true, embeddingNorm: true, outputNorm: undefined,
  output: 'none', kvHeads: 4, tokenTypes: 2, tokenizer: wordPieceMetadata(), vocab: wordPieceTokens().length,
};
const gemmaWindow = { ...WINDOW(16, 3), 'rope.freq_base_swa': f32(10000) };

/** As ARCHITECTURES, for models that give one vector for a text. */
export const EMBEDDINGS = {
  'bert': {
    arch: 'bert', ...bertLike, qkvBias: true, outBias: true, ffn: 'plain', ffnBias: true, positions: true,
    keys: pooled('mean', bidirectional),
    variants: {
      'pooling: first token': { keys: pooled('cls', bidirectional) },
      'odd head count': { width: 36, heads: 3, kvHeads: 3, ff: 50 },
      'seed 2': { seed: 2 },
    },
  },
  'nomic-bert': {
    arch: 'nomic-bert', ...bertLike, qkv: 'fused', keys: pooled('mean', bidirectional),
    variants: {
      'rope: base 1000': { rope: { base: 1000 } },
      'odd head count': { width: 36, heads: 3, kvHeads: 3, ff: 50 },
      'seed 2': { seed: 2 },
    },
  },
  'qwen3': {
    arch: 'qwen3', qkNorm: 'head', keys: pooled('last'), tokenizer: spmWithEnd(),
    variants: {
      'pooling: mean': { keys: pooled('mean') }, 'tied': TIED, 'seed 2': { seed: 2 },
    },
  },
  'gemma-embedding': {
    arch: 'gemma-embedding', ...gemmaLike, postNorm: true, ffnPostNorm: true, qkNorm: 'head', layers: 4,
    rope: { base: 1000000 }, keys: pooled('mean', gemmaWindow), tokenizer: spmWithEnd(),
    variants: {
      'dense layers after pooling': {
        dense: 96,
        keys: pooled('mean', {
          ...gemmaWindow, 'dense_2_feat_in': u32(48), 'dense_2_feat_out': u32(96),
          'dense_3_feat_in': u32(96), 'dense_3_feat_out': u32(48),
        }),
      },
      'seed 2': { seed: 2 },
    },
  },
};

export const EMBEDDED_TEXTS = [
  'a',
  'the quick brown fox jumps over the lazy dog',
  'in the beginning was the word, and after it came a great many more, so that no window of sixteen holds them all',
];
