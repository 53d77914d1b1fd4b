// Synthetic GGUF models at the shapes of real ones. Which tensor has which type
// follows llama.cpp's quantiser, its fall-backs included, so that the bytes
// that a token costs are those of the real file.
//
// Weights are N(0, 1/k), N(0, 0.02) in the embedding. Quantising a gigabyte
// value by value takes minutes, so a few thousand blocks of each type and scale
// are quantised for real, and a tensor is made of runs of them from random places.
import fs from 'node:fs';
import path from 'node:path';

import { ROOT } from '../lib/fixtures.mjs';
import { TYPES, encode, layout, llama3RopeFreqs, random, spmVocabulary, tensorBytes } from '../lib/gguf-write.mjs';

export const MODELS_DIR = path.join(ROOT, 'build/bench/models');
/** Part of each file's name: raise it when the files change. */
const VERSION = 1;

export const SHAPES = {
  tiny: {
    title: 'a tiny model, for tests of this generator',
    d_model: 96, n_layer: 2, d_ff: 256, n_head: 3, n_kv_head: 1, n_vocab: 512, n_ctx: 1024, ropeBase: 10000,
  },
  '135M': {
    title: 'SmolLM2-135M',
    d_model: 576, n_layer: 30, d_ff: 1536, n_head: 9, n_kv_head: 3, n_vocab: 49152, n_ctx: 8192, ropeBase: 100000,
  },
  '0.5B': {
    title: 'Qwen2.5-0.5B', arch: 'qwen2', epsilon: 1e-6,
    d_model: 896, n_layer: 24, d_ff: 4864, n_head: 14, n_kv_head: 2, n_vocab: 151936, n_ctx: 32768, ropeBase: 1000000,
  },
  '1B': {
    title: 'Llama-3.2-1B',
    d_model: 2048, n_layer: 16, d_ff: 8192, n_head: 32, n_kv_head: 8, n_vocab: 128256, n_ctx: 131072, ropeBase: 500000,
    rope: { factor: 32, low: 1, high: 4, original: 8192 },
  },
  '64x': {
    title: 'a mixture of 8 of 64 experts, 2 GB in 4 bits',
    d_model: 1024, n_layer: 16, d_ff: 1152, n_head: 16, n_kv_head: 4, n_vocab: 32000, n_ctx: 4096, ropeBase: 500000,
    experts: { count: 64, used: 8 },
  },
};

/** general.file_type of each quantisation. */
export const QUANTS = { Q4_0: 2, Q8_0: 7, Q4_K_M: 15 };

// --- types --------------------------------------------------------------------

/** The first and last eighth of the layers, and every third between them. */
const usesMoreBits = (i, n) => i < n >> 3 || i >= (7 * n) >> 3 || (i - (n >> 3)) % 3 === 2;

/** The type of a matrix with rows of k values, layer `i` of `n`. */
export function matrixType(quant, name, k, i, n) {
  let type = quant;
  if (name === 'token_embd.weight') type = quant === 'Q8_0' ? 'Q8_0' : 'Q6_K'; // tied: it is the output matrix, too
  else if (quant === 'Q4_K_M') type = /attn_v|ffn_down/.test(name) && usesMoreBits(i, n) ? 'Q6_K' : 'Q4_K';
  if (k % TYPES[type].len !== 0) type = { Q4_K: 'Q5_0', Q6_K: 'Q8_0' }[type];
  return type;
}

/** The tensors of a file: [{name, type, shape, fill, deviation}], innermost dimension first. */
export function tensorsOf(shapeName, quant) {
  const s = SHAPES[shapeName];
  const dHead = s.d_model / s.n_head;
  const kv = dHead * s.n_kv_head;
  const out = [];
  const matrix = (name, k, rows, layer = 0) => out.push({
    name, type: matrixType(quant, name, k, layer, s.n_layer), shape: [k, ...[rows].flat()], fill: 'matrix',
    deviation: name === 'token_embd.weight' ? 0.02 : 1 / Math.sqrt(k),
  });
  const vector = (name, n, fill) => out.push({ name, type: 'F32', shape: [n], fill });
  matrix('token_embd.weight', s.d_model, s.n_vocab);
  if (s.rope) vector('rope_freqs.weight', dHead / 2, 'rope');
  for (let i = 0; i < s.n_layer; i++) {
    const p = `blk.${i}.`;
    vector(`${p}attn_norm.weight`, s.d_model, 'norm');
    for (const [x, rows] of [['q', s.d_model], ['k', kv], ['v', kv]]) {
      matrix(`${p}attn_${x}.weight`, s.d_model, rows, i);
      if (s.arch === 'qwen2') vector(`${p}attn_${x}.bias`, rows, 'bias');
    }
    matrix(`${p}attn_output.weight`, s.d_model, s.d_model, i);
    vector(`${p}ffn_norm.weight`, s.d_model, 'norm');
    const { count } = s.experts ?? {};
    const [suffix, each] = count ? ['_exps', [count]] : ['', []];
    if (count) out.push({ name: `${p}ffn_gate_inp.weight`, type: 'F32', shape: [s.d_model, count], fill: 'router' });
    matrix(`${p}ffn_gate${suffix}.weight`, s.d_model, [s.d_ff, ...each], i);
    matrix(`${p}ffn_up${suffix}.weight`, s.d_model, [s.d_ff, ...each], i);
    matrix(`${p}ffn_down${suffix}.weight`, s.d_ff, [s.d_model, ...each], i);
  }
  vector('output_norm.weight', s.d_model, 'norm');
  return out;
}

/** Stored bytes of the weights that one decoded token reads: all but experts, once, as the embedding is the output matrix. */
export function bytesPerToken(shapeName, quant) {
  const { count = 1, used = 1 } = SHAPES[shapeName].experts ?? {};
  return tensorsOf(shapeName, quant).reduce(
    (sum, t) => sum + tensorBytes(t.type, t.shape) * (t.name.includes('_exps') ? used / count : 1), 0,
  );
}

// --- prompt -------------------------------------------------------------------

const FIRST_WORD = 286; // where spmVocabulary has '\u2581' + letter
const LETTERS = 'etaoinshrdlucmfwypvbgkqjxz';
const letterAt = (i) => (i * 17 + (i >> 3)) % LETTERS.length;

/** BOS and n - 1 one-letter words, as ids and as text: every peer gets the same n tokens. */
export const promptIds = (n) => [1, ...Array.from({ length: n - 1 }, (_, i) => FIRST_WORD + letterAt(i))];
export const promptText = (n) => Array.from({ length: n - 1 }, (_, i) => LETTERS[letterAt(i)]).join(' ');

// --- files --------------------------------------------------------------------

const POOL_BLOCKS = 4096;
const RUN_BLOCKS = 7; // odd: no run keeps step with the rows
const WRITE_BYTES = 1 << 22;
// Special and byte tokens get small rows, so that greedy decoding never ends or gives half a character.
const SPECIAL_TOKENS = 259;

class Pools {
  #pools = new Map();
  #rng;

  constructor(rng) {
    this.#rng = rng;
  }

  /** Encoded blocks of N(0, deviation). */
  get(type, deviation) {
    const key = `${type} ${deviation}`;
    if (!this.#pools.has(key)) {
      const n = POOL_BLOCKS * TYPES[type].len;
      this.#pools.set(key, encode(type, Float32Array.from({ length: n }, () => deviation * this.#rng.normal())));
    }
    return this.#pools.get(key);
  }
}

/** `count` blocks of a tensor from its pool, into `out`. */
function fillBlocks(out, count, pool, bytes, rng) {
  for (let done = 0; done < count; done += RUN_BLOCKS) {
    const run = Math.min(RUN_BLOCKS, count - done);
    const from = (rng.next() % (POOL_BLOCKS - RUN_BLOCKS)) * bytes;
    out.set(pool.subarray(from, from + run * bytes), done * bytes);
  }
}

function floatValues(tensor, shape, rng) {
  const n = tensor.shape.reduce((a, b) => a * b);
  if (tensor.fill === 'rope') {
    return Float32Array.from(llama3RopeFreqs(2 * n, { base: shape.ropeBase, ...shape.rope }));
  }
  const [mean, deviation] = { norm: [1, 0.05], bias: [0, 0.1], router: [0, 1 / Math.sqrt(tensor.shape[0])] }[tensor.fill];
  return Float32Array.from({ length: n }, () => mean + deviation * rng.normal());
}

function metadataOf(shapeName, quant) {
  const s = SHAPES[shapeName];
  const arch = s.arch ?? 'llama';
  const vocabulary = spmVocabulary(s.n_vocab);
  return [
    ['general.architecture', 'string', arch],
    ['general.name', 'string', `synthetic ${s.title} ${quant}`],
    ['general.file_type', 'u32', QUANTS[quant]],
    ['general.quantization_version', 'u32', 2],
    [`${arch}.vocab_size`, 'u32', s.n_vocab],
    [`${arch}.context_length`, 'u32', s.n_ctx],
    [`${arch}.embedding_length`, 'u32', s.d_model],
    [`${arch}.block_count`, 'u32', s.n_layer],
    [`${arch}.feed_forward_length`, 'u32', s.d_ff],
    [`${arch}.attention.head_count`, 'u32', s.n_head],
    [`${arch}.attention.head_count_kv`, 'u32', s.n_kv_head],
    [`${arch}.attention.layer_norm_rms_epsilon`, 'f32', s.epsilon ?? 1e-5],
    [`${arch}.rope.freq_base`, 'f32', s.ropeBase],
    [`${arch}.rope.dimension_count`, 'u32', s.d_model / s.n_head],
    ...(s.experts ? [[`${arch}.expert_count`, 'u32', s.experts.count], [`${arch}.expert_used_count`, 'u32', s.experts.used]] : []),
    ['tokenizer.ggml.model', 'string', 'llama'],
    ['tokenizer.ggml.pre', 'string', 'default'],
    ['tokenizer.ggml.tokens', '[string]', vocabulary.tokens],
    ['tokenizer.ggml.scores', '[f32]', vocabulary.scores],
    ['tokenizer.ggml.token_type', '[i32]', vocabulary.types],
    ['tokenizer.ggml.bos_token_id', 'u32', 1],
    ['tokenizer.ggml.eos_token_id', 'u32', 2],
    ['tokenizer.ggml.unknown_token_id', 'u32', 0],
    ['tokenizer.ggml.add_bos_token', 'bool', true],
    ['tokenizer.ggml.add_eos_token', 'bool', false],
  ];
}

/** Writes a model; the same arguments give the same file. Returns its size in bytes. */
export function writeModel(file, shapeName, quant, { seed = 1 } = {}) {
  const rng = random(seed);
  const pools = new Pools(rng);
  const plan = layout({ metadata: metadataOf(shapeName, quant), tensors: tensorsOf(shapeName, quant) });
  const fd = fs.openSync(file, 'w');
  try {
    fs.writeSync(fd, plan.header, 0, plan.header.length, 0);
    for (const t of plan.tensors) {
      let at = plan.dataOffset + t.at;
      const put = (data) => {
        fs.writeSync(fd, data, 0, data.length, at);
        at += data.length;
      };
      if (t.fill !== 'matrix') {
        put(encode('F32', floatValues(t, SHAPES[shapeName], rng)));
        continue;
      }
      const { len, bytes } = TYPES[t.type];
      const rowBlocks = t.shape[0] / len;
      let left = rowBlocks * t.shape.slice(1).reduce((a, b) => a * b);
      if (t.name === 'token_embd.weight') {
        const count = SPECIAL_TOKENS * rowBlocks;
        const special = new Uint8Array(count * bytes);
        fillBlocks(special, count, pools.get(t.type, t.deviation / 100), bytes, rng);
        put(special);
        left -= count;
      }
      const pool = pools.get(t.type, t.deviation);
      const buffer = new Uint8Array(Math.floor(WRITE_BYTES / bytes) * bytes);
      while (left > 0) {
        const count = Math.min(left, buffer.length / bytes);
        fillBlocks(buffer, count, pool, bytes, rng);
        put(buffer.subarray(0, count * bytes));
        left -= count;
      }
    }
    fs.ftruncateSync(fd, plan.fileBytes);
  } finally {
    fs.closeSync(fd);
  }
  return plan.fileBytes;
}

/** The path of a model in build/bench/models, written now if it is not there. */
export function modelFile(shapeName, quant, log = () => {}) {
  const file = path.join(MODELS_DIR, `${shapeName}-${quant}-v${VERSION}.gguf`);
  if (!fs.existsSync(file)) {
    log(`writing ${path.basename(file)}`);
    fs.mkdirSync(MODELS_DIR, { recursive: true });
    writeModel(`${file}.part`, shapeName, quant);
    fs.renameSync(`${file}.part`, file);
  }
  return file;
}
