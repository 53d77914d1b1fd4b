// Models of several GiB whose bytes are computed when they are read, as sources
// {size, read}: no file is needed. For Node and for pages alike.
//
// What they must give is known from a small model with the same layers that matter:
//   deep  most layers add nothing, since their output matrices are zeros, and those
//         that matter lie last, beyond 4 GiB. Their other matrices are not zeros, so
//         that a wrapped address would read, or overwrite, something else.
//   wide  one tensor beyond 4 GiB: an embedding, tied, whose rows repeat. The logits
//         of row v are those of row v modulo the period.

const BLOCK_BYTES = 34; // of 32 values in Q8_0
const TILE_BLOCKS = 60013; // a prime: no row begins like another
const SCALE = 0x0afa; // half a standard deviation of a weight with 4096 inputs, over 73
const ALIGN = 32;

/** What the matrices are made of, from random places. */
let tileBytes;
function tile() {
  if (tileBytes) return tileBytes;
  tileBytes = new Uint8Array(TILE_BLOCKS * BLOCK_BYTES);
  for (let i = 0, state = 1; i < tileBytes.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const at = i % BLOCK_BYTES;
    tileBytes[i] = at === 0 ? SCALE & 255 : at === 1 ? SCALE >> 8 : Math.max(state >>> 24, 1);
  }
  return tileBytes;
}

/** Kinds of tensors: each fills `out` from its byte `at` on. */
const FILL = {
  zeros: (tensor, at, out) => out.fill(0),
  ones(tensor, at, out) {
    const one = [0, 0, 0x80, 0x3f];
    for (let i = 0; i < out.length; i++) out[i] = one[(at + i) % 4];
  },
  random(tensor, at, out) {
    const from = tile();
    for (let done = 0; done < out.length; ) {
      const inPeriod = (at + done) % tensor.period;
      const start = (tensor.salt * BLOCK_BYTES + inPeriod) % from.length;
      const run = Math.min(out.length - done, from.length - start, tensor.period - inPeriod);
      out.set(from.subarray(start, start + run), done);
      done += run;
    }
  },
};

/** Little-endian fields. */
class Header {
  #bytes = [];
  #view = new DataView(new ArrayBuffer(8));
  #put(method, bytes, value) {
    this.#view[method](0, value, true);
    for (let i = 0; i < bytes; i++) this.#bytes.push(this.#view.getUint8(i));
    return this;
  }
  u32(value) { return this.#put('setUint32', 4, value); }
  u64(value) { return this.#put('setBigUint64', 8, BigInt(value)); }
  f32(value) { return this.#put('setFloat32', 4, value); }
  string(text) {
    const bytes = new TextEncoder().encode(text);
    this.u64(bytes.length).#bytes.push(...bytes);
    return this;
  }
  done() { return Uint8Array.from(this.#bytes); }
}

const U32 = 4, F32 = 6, STRING = 8;

/**
 * A llama of the 8B shape in Q8_0, without a tokenizer.
 * @param {{ idle?: number, layers: number, rows: number, period?: number, tied?: boolean, context?: number }} of idle: layers that add
 *   nothing, before those that do; rows: of the vocabulary; period: after so many its rows repeat
 * @returns {{ size: number, name: string, read: (offset: number, length: number) => Uint8Array }}
 */
export function bigModel({ idle = 0, layers, rows, period = rows, tied = false, context = 4096 }) {
  const d = 4096, kv = 1024, ff = 14336;
  const tensors = [];
  const add = (name, type, shape, fill, more) => tensors.push({ name, type, shape, fill, ...more });
  let salt = 0;
  const matrix = (name, k, n, { zeros = false, seed = ++salt, every = n } = {}) => {
    const row = (k / 32) * BLOCK_BYTES;
    add(name, 8, [k, n], zeros ? 'zeros' : 'random', { bytes: row * n, period: row * every, salt: seed * 7919 });
  };
  const vector = (name) => add(name, 0, [d], 'ones', { bytes: 4 * d });
  matrix('token_embd.weight', d, rows, { seed: 1, every: period });
  for (let i = 0; i < idle + layers; i++) {
    const p = `blk.${i}`;
    const zeros = i < idle;
    salt = zeros ? 1000 + 7 * i : 10 + 7 * (i - idle);
    vector(`${p}.attn_norm.weight`);
    matrix(`${p}.attn_q.weight`, d, d);
    matrix(`${p}.attn_k.weight`, d, kv);
    matrix(`${p}.attn_v.weight`, d, kv);
    matrix(`${p}.attn_output.weight`, d, d, { zeros });
    vector(`${p}.ffn_norm.weight`);
    matrix(`${p}.ffn_gate.weight`, d, ff);
    matrix(`${p}.ffn_up.weight`, d, ff);
    matrix(`${p}.ffn_down.weight`, ff, d, { zeros });
  }
  vector('output_norm.weight');
  if (!tied) matrix('output.weight', d, rows, { seed: 2, every: period });

  const keys = [
    ['general.architecture', STRING, 'llama'], ['general.name', STRING, `${idle} idle and ${layers} layers, ${rows} rows`],
    ['llama.context_length', U32, context], ['llama.embedding_length', U32, d], ['llama.block_count', U32, idle + layers],
    ['llama.feed_forward_length', U32, ff], ['llama.attention.head_count', U32, 32],
    ['llama.attention.head_count_kv', U32, 8], ['llama.attention.layer_norm_rms_epsilon', F32, 1e-5],
    ['llama.rope.freq_base', F32, 500000],
  ];
  const header = new Header().u32(0x46554747).u32(3).u64(tensors.length).u64(keys.length);
  for (const [key, type, value] of keys) {
    header.string(key).u32(type);
    if (type === U32) header.u32(value);
    else if (type === F32) header.f32(value);
    else header.string(value);
  }
  let at = 0;
  for (const tensor of tensors) {
    tensor.at = at;
    at = Math.ceil((at + tensor.bytes) / ALIGN) * ALIGN;
    header.string(tensor.name).u32(tensor.shape.length);
    for (const n of tensor.shape) header.u64(n);
    header.u32(tensor.type).u64(tensor.at);
  }
  const head = header.done();
  const start = Math.ceil(head.length / ALIGN) * ALIGN;
  const size = start + at;

  const read = (offset, length) => {
    const out = new Uint8Array(Math.min(length, size - offset)); // zeros between tensors
    const end = offset + out.length;
    if (offset < head.length) out.set(head.subarray(offset, end));
    for (const tensor of tensors) {
      const from = Math.max(offset, start + tensor.at), to = Math.min(end, start + tensor.at + tensor.bytes);
      if (from < to)
        FILL[tensor.fill](tensor, from - start - tensor.at, out.subarray(from - offset, to - offset));
    }
    return out;
  };
  return { size, name: `${(size / 2 ** 30).toFixed(2)} GiB`, read };
}

/** The models and, of each, the small one that gives the same logits. */
export const CASES = {
  deep: { big: { idle: 20, layers: 2, rows: 32000 }, small: { layers: 2, rows: 32000 } },
  wide: { big: { layers: 1, rows: 1_200_000, period: 32000, tied: true }, small: { layers: 1, rows: 32000, tied: true } },
};

const IDS = Array.from({ length: 24 }, (_, i) => (i * 2654435761) % 31991);

/** Opens, evaluates and generates: what came, what it took. */
async function runOne(lineal, source, ids, options) {
  const start = performance.now();
  const model = await lineal.open(source, { context: 256, kvType: 'f16', ...options });
  const loadMs = performance.now() - start;
  let logits;
  for await (const row of model.evaluate(ids)) logits = row.logits;
  const { tokens, timings, decodeAllocations } = await model.generate(ids, { maxTokens: 6, ignoreEos: true }).done;
  const { info, explanation } = model;
  const memory = await model.memory();
  await model.close();
  return { logits, tokens, timings, decodeAllocations, info, explanation, memory, loadMs };
}

/**
 * One of CASES in this host: the small model with 32-bit addresses, then the big one, compared.
 * @param {typeof import('../../js-glue/index.js')} lineal
 * @param {keyof typeof CASES} name
 */
export async function runCase(lineal, name, options = {}) {
  const { big, small } = CASES[name];
  const expected = await runOne(lineal, bigModel(small), IDS, options);
  const source = bigModel(big);
  // Ids from far up in the tensor, where rows repeat.
  const shift = Math.floor((big.rows - 1) / small.rows) * small.rows - small.rows;
  const got = await runOne(lineal, source, IDS.map((id) => id + (shift > 0 ? shift : 0)), options);
  let different = 0;
  for (let i = 0; i < got.logits.length; i++)
    if (!Object.is(got.logits[i], expected.logits[i % expected.logits.length])) different++;
  const { fits, address, total_bytes: planned, suggestions } = got.explanation;
  return {
    fileBytes: source.size,
    small: { module: expected.info.module, address: expected.explanation.address, tokens: expected.tokens },
    rows: got.logits.length,
    different,
    spread: Math.max(...expected.logits.subarray(0, 1000)) - Math.min(...expected.logits.subarray(0, 1000)),
    tokens: got.tokens,
    module: got.info.module,
    threads: got.info.threads,
    fits, address, planned, suggestions,
    memory: got.memory,
    decodeAllocations: got.decodeAllocations,
    loadMs: got.loadMs,
    timings: got.timings,
    text: got.explanation.text,
  };
}
