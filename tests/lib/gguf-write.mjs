// Writes GGUF files for tests: any metadata, any tensor, real quantised blocks,
// and files of many gigabytes that are mostly holes.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
import fs from 'node:fs';

/** GGML type ids and block geometry of the types that this writer encodes. */
export const TYPES = {
  F32: { id: 0, len: 1, bytes: 4 },
  F16: { id: 1, len: 1, bytes: 2 },
  Q4_0: { id: 2, len: 32, bytes: 18 },
  Q5_0: { id: 6, len: 32, bytes: 22 },
  Q8_0: { id: 8, len: 32, bytes: 34 },
  Q4_K: { id: 12, len: 256, bytes: 144 },
  Q6_K: { id: 14, len: 256, bytes: 210 },
  F64: { id: 28, len: 1, bytes: 8 }, // has no form: to be refused
  BF16: { id: 30, len: 1, bytes: 2 },
  MXFP4: { id: 39, len: 32, bytes: 17 },
};

const VALUE = {
  u8: 0, i8: 1, u16: 2, i16: 3, u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9, u64: 10, i64: 11, f64: 12,
};

// --- numbers ------------------------------------------------------------------

/** A small deterministic generator: next() is uint32, uniform() in (0, 1), normal() is N(0, 1). */
export function random(seed) {
  let state = (seed ^ 0x9e3779b9) >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
  const uniform = () => (next() + 0.5) / 4294967296;
  const normal = () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  return { next, uniform, normal };
}

const floatBox = new Float32Array(1);
const bitsBox = new Uint32Array(floatBox.buffer);

/** The nearest half, ties to even, as its 16 bits. */
export function toHalf(value) {
  const a = Math.abs(value);
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  if (Number.isNaN(value)) return 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  // spacing of halves around a: 2^-24 below 2^-14, else 2^(exponent - 10)
  const exponent = a < 2 ** -14 ? -14 : Math.floor(Math.log2(a));
  const fixed = 2 ** exponent > a && exponent > -14 ? exponent - 1 : exponent;
  const ulp = 2 ** (fixed - 10);
  const n = a / ulp;
  const floor = Math.floor(n);
  const rest = n - floor;
  const rounded = floor + (rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? 1 : 0);
  // rounded is the significand with its leading bit: adding it to the exponent carries right
  return sign | (a < 2 ** -14 ? rounded : ((fixed + 14) << 10) + rounded);
}

export function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

function toBfloat(value) {
  floatBox[0] = value;
  const bits = bitsBox[0];
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** What the codes of MXFP4 stand for, times two: a sign, two bits of exponent, one of fraction. */
const MXFP4_VALUES = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

const clamp = (v, low, high) => (v < low ? low : v > high ? high : v);

// --- blocks: x[at, at + len) into out[to, to + bytes) -------------------------------

function signedExtreme(x, at, n) {
  let extreme = 0;
  for (let i = 0; i < n; i++) if (Math.abs(x[at + i]) > Math.abs(extreme)) extreme = x[at + i];
  return extreme;
}

const ENCODE = {
  F32: (x, at, view, to) => view.setFloat32(to, x[at], true),
  F16: (x, at, view, to) => view.setUint16(to, toHalf(x[at]), true),
  BF16: (x, at, view, to) => view.setUint16(to, toBfloat(x[at]), true),
  Q8_0(x, at, view, to) {
    const d = Math.abs(signedExtreme(x, at, 32)) / 127;
    view.setUint16(to, toHalf(d), true);
    for (let i = 0; i < 32; i++) view.setInt8(to + 2 + i, d ? clamp(Math.round(x[at + i] / d), -127, 127) : 0);
  },
  Q4_0(x, at, view, to) {
    const d = signedExtreme(x, at, 32) / -8; // the extreme value gets code 0, that is -8
    view.setUint16(to, toHalf(d), true);
    const code = (i) => (d ? clamp(Math.floor(x[at + i] / d + 8.5), 0, 15) : 8);
    for (let i = 0; i < 16; i++) view.setUint8(to + 2 + i, code(i) | (code(i + 16) << 4));
  },
  Q5_0(x, at, view, to) {
    const d = signedExtreme(x, at, 32) / -16; // as Q4_0, with a fifth bit of each code in a word of its own
    const code = Array.from({ length: 32 }, (_, i) => (d ? clamp(Math.floor(x[at + i] / d + 16.5), 0, 31) : 16));
    view.setUint16(to, toHalf(d), true);
    view.setUint32(to + 2, code.reduce((bits, c, i) => bits | ((c >> 4) << i), 0) >>> 0, true);
    for (let i = 0; i < 16; i++) view.setUint8(to + 6 + i, (code[i] & 15) | ((code[i + 16] & 15) << 4));
  },
  Q4_K(x, at, view, to) {
    // eight runs of 32: x ~ d*scale*q - dmin*min, scale and min of 6 bits, q of 4
    const step = [], low = [];
    for (let j = 0; j < 8; j++) {
      const run = x.subarray(at + 32 * j, at + 32 * j + 32);
      const min = Math.min(0, ...run);
      step.push((Math.max(...run) - min) / 15);
      low.push(-min);
    }
    const dBits = toHalf(Math.max(...step) / 63), mBits = toHalf(Math.max(...low) / 63);
    const d = fromHalf(dBits), m = fromHalf(mBits);
    const scale = step.map((s) => (d ? clamp(Math.round(s / d), 0, 63) : 0));
    const min = low.map((s) => (m ? clamp(Math.round(s / m), 0, 63) : 0));
    view.setUint16(to, dBits, true);
    view.setUint16(to + 2, mBits, true);
    for (let j = 0; j < 4; j++) {
      view.setUint8(to + 4 + j, scale[j] | ((scale[j + 4] >> 4) << 6));
      view.setUint8(to + 8 + j, min[j] | ((min[j + 4] >> 4) << 6));
      view.setUint8(to + 12 + j, (scale[j + 4] & 15) | ((min[j + 4] & 15) << 4));
    }
    const code = (j, i) => {
      const s = d * scale[j];
      return s ? clamp(Math.round((x[at + 32 * j + i] + m * min[j]) / s), 0, 15) : 0;
    };
    for (let pair = 0; pair < 4; pair++) {
      for (let i = 0; i < 32; i++) {
        view.setUint8(to + 16 + 32 * pair + i, code(2 * pair, i) | (code(2 * pair + 1, i) << 4));
      }
    }
  },
  Q6_K(x, at, view, to) {
    // sixteen runs of 16: x ~ d*scale*(q - 32), scale int8, q of 6 bits
    const step = [];
    for (let j = 0; j < 16; j++) step.push(signedExtreme(x, at + 16 * j, 16) / -32);
    const most = step.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0);
    const dBits = toHalf(most / -128), d = fromHalf(dBits);
    const scale = step.map((s) => (d ? clamp(Math.round(s / d), -128, 127) : 0));
    const q = new Uint8Array(256);
    for (let i = 0; i < 256; i++) {
      const s = d * scale[i >> 4];
      q[i] = s ? clamp(Math.round(x[at + i] / s) + 32, 0, 63) : 32;
    }
    for (let half = 0; half < 2; half++) {
      for (let l = 0; l < 32; l++) {
        const v = [0, 32, 64, 96].map((k) => q[128 * half + k + l]);
        view.setUint8(to + 64 * half + l, (v[0] & 15) | ((v[2] & 15) << 4));
        view.setUint8(to + 64 * half + 32 + l, (v[1] & 15) | ((v[3] & 15) << 4));
        view.setUint8(to + 128 + 32 * half + l, (v[0] >> 4) | ((v[1] >> 4) << 2) | ((v[2] >> 4) << 4) | ((v[3] >> 4) << 6));
      }
    }
    scale.forEach((s, j) => view.setInt8(to + 192 + j, s));
    view.setUint16(to + 208, dBits, true);
  },
  MXFP4(x, at, view, to) {
    // one power of two for 32 values: the largest value gets one of the two largest codes
    const most = Math.abs(signedExtreme(x, at, 32));
    const power = most ? clamp(Math.floor(Math.log2(most)) + 125, 0, 254) : 0;
    const d = 2 ** (power - 128);
    const code = (i) => {
      let best = 0;
      for (let c = 1; c < 16; c++) {
        if (Math.abs(x[at + i] - d * MXFP4_VALUES[c]) < Math.abs(x[at + i] - d * MXFP4_VALUES[best])) best = c;
      }
      return best;
    };
    view.setUint8(to, power);
    for (let i = 0; i < 16; i++) view.setUint8(to + 1 + i, code(i) | (code(i + 16) << 4));
  },
};

/** Types that this writer encodes. */
export const WRITABLE = Object.keys(ENCODE);

/** Float32Array to the stored bytes of a type; the length must be whole blocks. */
export function encode(type, values) {
  const { len, bytes } = TYPES[type];
  if (values.length % len) throw new Error(`${values.length} values are no whole blocks of ${type}`);
  const out = new Uint8Array((values.length / len) * bytes);
  const view = new DataView(out.buffer);
  for (let at = 0, to = 0; at < values.length; at += len, to += bytes) ENCODE[type](values, at, view, to);
  return out;
}

const DECODE = {
  F32: (view, at, x, to) => { x[to] = view.getFloat32(at, true); },
  F16: (view, at, x, to) => { x[to] = fromHalf(view.getUint16(at, true)); },
  BF16(view, at, x, to) {
    bitsBox[0] = view.getUint16(at, true) << 16;
    x[to] = floatBox[0];
  },
  Q8_0(view, at, x, to) {
    const d = fromHalf(view.getUint16(at, true));
    for (let i = 0; i < 32; i++) x[to + i] = d * view.getInt8(at + 2 + i);
  },
  Q4_0(view, at, x, to) {
    const d = fromHalf(view.getUint16(at, true));
    for (let i = 0; i < 32; i++) x[to + i] = d * (((view.getUint8(at + 2 + (i % 16)) >> (i < 16 ? 0 : 4)) & 15) - 8);
  },
  Q5_0(view, at, x, to) {
    const d = fromHalf(view.getUint16(at, true)), high = view.getUint32(at + 2, true);
    for (let i = 0; i < 32; i++) {
      const low = (view.getUint8(at + 6 + (i % 16)) >> (i < 16 ? 0 : 4)) & 15;
      x[to + i] = d * ((low | (((high >>> i) & 1) << 4)) - 16);
    }
  },
  Q4_K(view, at, x, to) {
    const d = fromHalf(view.getUint16(at, true)), m = fromHalf(view.getUint16(at + 2, true));
    const byte = (i) => view.getUint8(at + 4 + i);
    for (let j = 0; j < 8; j++) {
      const scale = j < 4 ? byte(j) & 63 : (byte(j + 4) & 15) | ((byte(j - 4) >> 6) << 4);
      const min = j < 4 ? byte(j + 4) & 63 : (byte(j + 4) >> 4) | ((byte(j) >> 6) << 4);
      for (let i = 0; i < 32; i++) {
        const q = (view.getUint8(at + 16 + 32 * (j >> 1) + i) >> (j & 1 ? 4 : 0)) & 15;
        x[to + 32 * j + i] = d * scale * q - m * min;
      }
    }
  },
  Q6_K(view, at, x, to) {
    const d = fromHalf(view.getUint16(at + 208, true));
    for (let i = 0; i < 256; i++) {
      const half = i >> 7, part = (i >> 5) & 3, l = i & 31;
      const low = (view.getUint8(at + 64 * half + 32 * (part & 1) + l) >> (part & 2 ? 4 : 0)) & 15;
      const high = (view.getUint8(at + 128 + 32 * half + l) >> (2 * part)) & 3;
      x[to + i] = d * view.getInt8(at + 192 + (i >> 4)) * ((low | (high << 4)) - 32);
    }
  },
  MXFP4(view, at, x, to) {
    const d = 2 ** (view.getUint8(at) - 128);
    for (let i = 0; i < 32; i++) x[to + i] = d * MXFP4_VALUES[(view.getUint8(at + 1 + (i % 16)) >> (i < 16 ? 0 : 4)) & 15];
  },
};

/** The values that stored bytes of a type stand for. */
export function decode(type, bytes) {
  const { len, bytes: step } = TYPES[type];
  const out = new Float32Array((bytes.length / step) * len);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0, to = 0; at < bytes.length; at += step, to += len) DECODE[type](view, at, out, to);
  return out;
}

/** The same model with every matrix decoded to F32: what its stored bytes stand for. */
export function dequantised(model) {
  return {
    ...model,
    tensors: model.tensors.map((t) => (t.type === 'F32' || !t.values ? t
      : { ...t, type: 'F32', values: () => decode(t.type, encode(t.type, t.values())) })),
  };
}

// --- files ------------------------------------------------------------------------

class Writer {
  parts = [];
  size = 0;
  bytes(b) { this.parts.push(b); this.size += b.length; return this; }
  scalar(bytes, write) {
    const b = Buffer.alloc(bytes);
    write(b);
    return this.bytes(b);
  }
  u32(v) { return this.scalar(4, (b) => b.writeUInt32LE(v)); }
  u64(v) { return this.scalar(8, (b) => b.writeBigUInt64LE(BigInt.asUintN(64, BigInt(v)))); }
  string(v) {
    const b = typeof v === 'string' ? Buffer.from(v, 'utf8') : Buffer.from(v);
    return this.u64(b.length).bytes(b);
  }
  value(type, v) {
    switch (type) {
      case 'u8': return this.scalar(1, (b) => b.writeUInt8(v));
      case 'i8': return this.scalar(1, (b) => b.writeInt8(v));
      case 'bool': return this.scalar(1, (b) => b.writeUInt8(Number(v)));
      case 'u16': return this.scalar(2, (b) => b.writeUInt16LE(v));
      case 'i16': return this.scalar(2, (b) => b.writeInt16LE(v));
      case 'u32': return this.u32(v);
      case 'i32': return this.scalar(4, (b) => b.writeInt32LE(v));
      case 'f32': return this.scalar(4, (b) => b.writeFloatLE(v));
      case 'u64': case 'i64': return this.u64(v);
      case 'f64': return this.scalar(8, (b) => b.writeDoubleLE(v));
      case 'string': return this.string(v);
      default: throw new Error(`no value type ${type}`);
    }
  }
  done() { return Buffer.concat(this.parts); }
}

const roundUp = (n, to) => Math.ceil(n / to) * to;

/** Stored bytes of a tensor of this type and shape (innermost first). */
export function tensorBytes(type, shape) {
  const { len, bytes } = TYPES[type];
  return (shape.reduce((a, b) => a * b, 1) / len) * bytes;
}

/**
 * Lays a file out. model: {
 *   metadata: [[key, type, value]] (type 'u32', 'string', ..., or '[string]' for an array),
 *   tensors: [{name, type, shape, values?: () => Float32Array, bytes?: Uint8Array}]
 *     (without values or bytes: zeros, a hole in writeSparse),
 *   version?: 3, alignment?: 32 }
 * tensors may override `typeId` and `offset` to write damaged files.
 */
export function layout(model) {
  const { version = 3, alignment = 32 } = model;
  const metadata = alignment === 32 ? model.metadata
    : [...model.metadata, ['general.alignment', 'u32', alignment]];
  let cursor = 0;
  const tensors = model.tensors.map((t) => {
    const bytes = t.storedBytes ?? tensorBytes(t.type, t.shape);
    const offset = cursor;
    cursor = roundUp(cursor + bytes, alignment);
    return { ...t, size: bytes, at: offset };
  });
  const w = new Writer();
  w.bytes(Buffer.from('GGUF')).u32(version).u64(tensors.length).u64(metadata.length);
  for (const [key, type, value] of metadata) {
    w.string(key);
    if (type.startsWith('[')) {
      const item = type.slice(1, -1);
      w.u32(VALUE.array).u32(VALUE[item]).u64(value.length);
      for (const v of value) w.value(item, v);
    } else {
      w.u32(VALUE[type]).value(type, value);
    }
  }
  for (const t of tensors) {
    w.string(t.name).u32(t.shape.length);
    for (const d of t.shape) w.u64(d);
    w.u32(t.typeId ?? TYPES[t.type].id).u64(t.offset ?? t.at);
  }
  const header = w.done();
  const dataOffset = roundUp(header.length, alignment);
  const last = tensors.at(-1);
  return {
    header, dataOffset, tensors,
    fileBytes: last ? dataOffset + roundUp(last.at + last.size, alignment) : header.length,
  };
}

const tensorData = (t) => t.bytes ?? (t.values ? encode(t.type, t.values()) : null);

/** The whole file in memory. */
export function ggufBytes(model) {
  const plan = layout(model);
  const out = Buffer.alloc(plan.fileBytes);
  plan.header.copy(out);
  for (const t of plan.tensors) {
    const data = tensorData(t);
    if (data) out.set(data, plan.dataOffset + t.at);
  }
  return out;
}

/** Writes the file with holes for tensors that have no data: any size takes milliseconds.
 *  Returns {headerBytes, dataOffset, fileBytes}. */
export function writeSparse(path, model) {
  const plan = layout(model);
  const fd = fs.openSync(path, 'w');
  try {
    fs.writeSync(fd, plan.header, 0, plan.header.length, 0);
    for (const t of plan.tensors) {
      const data = tensorData(t);
      if (data) fs.writeSync(fd, data, 0, data.length, plan.dataOffset + t.at);
    }
    fs.ftruncateSync(fd, plan.fileBytes);
  } finally {
    fs.closeSync(fd);
  }
  return { headerBytes: plan.header.length, dataOffset: plan.dataOffset, fileBytes: plan.fileBytes };
}

// --- models -----------------------------------------------------------------------

/** Pieces of a small SPM vocabulary: <unk> <s> </s>, 256 bytes, characters, syllables, then fillers. */
export function spmVocabulary(count) {
  const tokens = ['<unk>', '<s>', '</s>'];
  const types = [2, 3, 3];
  const scores = [0, 0, 0];
  for (let i = 0; i < 256; i++) {
    tokens.push(`<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`);
    types.push(6);
    scores.push(0);
  }
  if (count < tokens.length) throw new Error(`an SPM vocabulary has at least ${tokens.length} tokens`);
  const add = (piece) => {
    if (tokens.length >= count) return;
    tokens.push(piece);
    types.push(1);
    scores.push(-(tokens.length - 259));
  };
  const letters = 'etaoinshrdlucmfwypvbgkqjxz';
  add('\u2581');
  for (const c of letters) add(c);
  for (const c of letters) add('\u2581' + c);
  for (const a of 'tsrnldm') for (const b of 'aeiou') { add(a + b); add('\u2581' + a + b); }
  for (let i = 0; tokens.length < count; i++) add(`\u2581#${i}`);
  return { tokens, types, scores };
}

/** The character that byte-level BPE writes for each byte: printable ones as themselves. */
export function byteToBpeCharacter() {
  const map = [];
  let next = 256;
  for (let b = 0; b < 256; b++) {
    const printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    map.push(String.fromCodePoint(printable ? b : next++));
  }
  return map;
}

/** Keys of a small tokenizer: "spm", "bpe", "none" (no keys but the name) or "absent". */
export function tokenizerMetadata(kind, nVocab, options) {
  if (kind === 'absent') return [];
  if (kind === 'none') return [['tokenizer.ggml.model', 'string', 'none']];
  if (kind === 'spm') {
    const v = options.vocabulary ?? spmVocabulary(nVocab);
    return [
      ['tokenizer.ggml.model', 'string', 'llama'],
      ['tokenizer.ggml.pre', 'string', options.pre ?? 'default'],
      ['tokenizer.ggml.tokens', '[string]', v.tokens],
      ['tokenizer.ggml.scores', '[f32]', v.scores],
      ['tokenizer.ggml.token_type', '[i32]', v.types],
      ['tokenizer.ggml.bos_token_id', 'u32', 1],
      ['tokenizer.ggml.eos_token_id', 'u32', options.eos ?? 2],
      ['tokenizer.ggml.unknown_token_id', 'u32', 0],
      ['tokenizer.ggml.add_bos_token', 'bool', options.addBos ?? true],
    ];
  }
  if (kind === 'bpe') {
    const bytes = byteToBpeCharacter();
    const tokens = [...bytes];
    const merges = [];
    for (const [a, b] of ['th', 'he', 'in', 'er', 'an'].map((m) => [...m])) {
      tokens.push(a + b);
      merges.push(`${a} ${b}`);
    }
    tokens.push('<|endoftext|>', '<|im_start|>', '<|im_end|>');
    const types = tokens.map((_, i) => (i >= tokens.length - 3 ? 3 : 1));
    while (tokens.length < nVocab) {
      tokens.push(`<|filler_${tokens.length}|>`);
      types.push(5);
    }
    if (tokens.length > nVocab) throw new Error(`this BPE vocabulary has ${tokens.length} tokens`);
    return [
      ['tokenizer.ggml.model', 'string', 'gpt2'],
      ['tokenizer.ggml.pre', 'string', options.pre ?? 'gpt-2'],
      ['tokenizer.ggml.tokens', '[string]', tokens],
      ['tokenizer.ggml.token_type', '[i32]', types],
      ['tokenizer.ggml.merges', '[string]', merges],
      ['tokenizer.ggml.bos_token_id', 'u32', tokens.indexOf('<|endoftext|>')],
      ['tokenizer.ggml.eos_token_id', 'u32', tokens.indexOf('<|im_end|>')],
      ['tokenizer.ggml.add_bos_token', 'bool', options.addBos ?? false],
    ];
  }
  throw new Error(`no tokenizer kind ${kind}`);
}

/**
 * A random model of architecture llama, the same for the same options.
 * Options, with defaults: n_layer 2, d_model 64, n_head 4, n_kv_head n_head,
 * d_head d_model / n_head, d_ff 128, n_vocab 288, n_ctx 128, type 'F32' (of every
 * matrix; or a function of the tensor's name), tied false, bias false (of q, k, v),
 * rope {dims, base, linear, freqs: [d_head / 2 divisors]}, seed 1,
 * tokenizer 'spm' | 'bpe' | 'none' | 'absent', pre, vocabulary, addBos, eos, zeroLayers
 * (indices of layers whose matrices are zero: they pass their input on
 * unchanged, and are holes in writeSparse), deviation (of the weights, times 1/sqrt(k)).
 * Returns a model for layout, ggufBytes and writeSparse.
 */
export function tinyLlama(options = {}) {
  const o = {
    n_layer: 2, d_model: 64, n_head: 4, d_ff: 128, n_vocab: 288, n_ctx: 128, type: 'F32', tied: false, bias: false,
    rope: {}, seed: 1, tokenizer: 'spm', zeroLayers: [], deviation: 1, epsilon: 1e-5, ...options,
  };
  o.n_kv_head ??= o.n_head;
  const dHead = o.d_head ?? o.d_model / o.n_head;
  const typeOf = typeof o.type === 'function' ? o.type : () => o.type;
  const rng = random(o.seed);
  const seedOf = () => rng.next();
  const normals = (n, deviation, mean = 0) => {
    const seed = seedOf();
    return () => {
      const r = random(seed);
      return Float32Array.from({ length: n }, () => mean + deviation * r.normal());
    };
  };
  const tensors = [];
  const matrix = (name, k, rows, zero = false) => {
    const values = normals(k * rows, o.deviation / Math.sqrt(k));
    tensors.push({ name, type: typeOf(name), shape: [k, rows], ...(zero ? {} : { values }) });
  };
  const vector = (name, n, deviation, mean) =>
    tensors.push({ name, type: 'F32', shape: [n], values: normals(n, deviation, mean) });

  // a tied embedding is the output matrix too: smaller, so that the logits stay of order one
  const embedding = normals(o.d_model * o.n_vocab, o.tied ? 0.3 : 1);
  tensors.push({ name: 'token_embd.weight', type: typeOf('token_embd.weight'), shape: [o.d_model, o.n_vocab], values: embedding });
  if (o.rope.freqs) {
    tensors.push({
      name: 'rope_freqs.weight', type: 'F32', shape: [o.rope.freqs.length],
      values: () => Float32Array.from(o.rope.freqs),
    });
  }
  for (let i = 0; i < o.n_layer; i++) {
    const zero = o.zeroLayers.includes(i);
    const p = `blk.${i}.`;
    const d_ff = typeof o.d_ff === 'function' ? o.d_ff(i) : o.d_ff;
    vector(`${p}attn_norm.weight`, o.d_model, 0.1, 1);
    matrix(`${p}attn_q.weight`, o.d_model, o.n_head * dHead, zero);
    matrix(`${p}attn_k.weight`, o.d_model, o.n_kv_head * dHead, zero);
    matrix(`${p}attn_v.weight`, o.d_model, o.n_kv_head * dHead, zero);
    if (o.bias) {
      vector(`${p}attn_q.bias`, o.n_head * dHead, 0.5, 0);
      vector(`${p}attn_k.bias`, o.n_kv_head * dHead, 0.5, 0);
      vector(`${p}attn_v.bias`, o.n_kv_head * dHead, 0.5, 0);
    }
    matrix(`${p}attn_output.weight`, o.n_head * dHead, o.d_model, zero);
    vector(`${p}ffn_norm.weight`, o.d_model, 0.1, 1);
    matrix(`${p}ffn_gate.weight`, o.d_model, d_ff, zero);
    matrix(`${p}ffn_up.weight`, o.d_model, d_ff, zero);
    matrix(`${p}ffn_down.weight`, d_ff, o.d_model, zero);
  }
  vector('output_norm.weight', o.d_model, 0.1, 1);
  if (!o.tied) matrix('output.weight', o.d_model, o.n_vocab);

  const metadata = [
    ['general.architecture', 'string', 'llama'],
    ['general.name', 'string', `tiny random llama, seed ${o.seed}`],
    ['llama.vocab_size', 'u32', o.n_vocab],
    ['llama.context_length', 'u32', o.n_ctx],
    ['llama.embedding_length', 'u32', o.d_model],
    ['llama.block_count', 'u32', o.n_layer],
    ['llama.feed_forward_length', 'u32', typeof o.d_ff === 'function' ? o.d_ff(0) : o.d_ff],
    ['llama.attention.head_count', 'u32', o.n_head],
    ['llama.attention.head_count_kv', 'u32', o.n_kv_head],
    ['llama.attention.layer_norm_rms_epsilon', 'f32', o.epsilon],
    ['llama.rope.freq_base', 'f32', o.rope.base ?? 10000],
  ];
  if (o.d_head !== undefined) {
    metadata.push(['llama.attention.key_length', 'u32', dHead], ['llama.attention.value_length', 'u32', dHead]);
  }
  if (o.d_head !== undefined || o.rope.dims) {
    metadata.push(['llama.rope.dimension_count', 'u32', o.rope.dims ?? dHead]);
  }
  if (o.rope.linear) {
    metadata.push(['llama.rope.scaling.type', 'string', 'linear'], ['llama.rope.scaling.factor', 'f32', o.rope.linear]);
  }
  metadata.push(...tokenizerMetadata(o.tokenizer, o.n_vocab, o));
  return { metadata, tensors, version: o.version ?? 3, alignment: o.alignment ?? 32 };
}

/** The frequency divisors of Llama 3's rope_freqs.weight. */
export function llama3RopeFreqs(dHead, { base = 10000, factor = 8, low = 1, high = 4, original = 64 } = {}) {
  return Array.from({ length: dHead / 2 }, (_, i) => {
    const wavelength = 2 * Math.PI * base ** ((2 * i) / dHead);
    if (wavelength < original / high) return 1;
    if (wavelength > original / low) return factor;
    const smooth = (original / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  });
}

/** The model with one thing changed: `edit(copy)` may rewrite metadata and tensors. */
export function edited(model, edit) {
  const copy = { ...model, metadata: model.metadata.map((m) => [...m]), tensors: model.tensors.map((t) => ({ ...t })) };
  edit(copy);
  return copy;
}
export const setKey = (key, type, value) => (m) => {
  const found = m.metadata.find((entry) => entry[0] === key);
  if (found) { found[1] = type; found[2] = value; } else m.metadata.push([key, type, value]);
};
export const dropKey = (key) => (m) => { m.metadata = m.metadata.filter((entry) => entry[0] !== key); };
export const dropTensor = (name) => (m) => { m.tensors = m.tensors.filter((t) => t.name !== name); };
export const setTensor = (name, fields) => (m) => { Object.assign(m.tensors.find((t) => t.name === name), fields); };
