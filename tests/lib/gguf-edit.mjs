// Copies of a GGUF file that has no tensors (a vocabulary) with other metadata.
import fs from 'node:fs';

const VALUE_BYTES = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const [BOOL, STRING, ARRAY] = [7, 8, 9];

function string(text) {
  const bytes = Buffer.from(text);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(bytes.length));
  return Buffer.concat([length, bytes]);
}

/** The pairs of a header, keys as text and the rest (type and value) as bytes. */
function pairs(bytes) {
  let at = 24;
  const u64 = () => Number(bytes.readBigUInt64LE((at += 8) - 8));
  const skip = (type) => {
    if (type === STRING) {
      const length = u64();
      at += length;
    } else if (type === ARRAY) {
      const item = bytes.readUInt32LE(at);
      at += 4;
      const count = u64();
      if (item === STRING) for (let i = 0; i < count; i++) skip(item);
      else at += count * VALUE_BYTES[item];
    } else {
      at += VALUE_BYTES[type];
    }
  };
  const found = new Map();
  for (let left = Number(bytes.readBigUInt64LE(16)); left > 0; left--) {
    const length = u64();
    const key = bytes.toString('utf8', at, at + length);
    at += length;
    const begin = at;
    at += 4;
    skip(bytes.readUInt32LE(begin));
    found.set(key, bytes.subarray(begin, at));
  }
  return found;
}

/** The first `count` items of an array of strings or of 4-byte numbers. */
function truncated(value, count) {
  const item = value.readUInt32LE(4);
  let at = 16;
  for (let i = 0; i < count; i++) at += item === STRING ? 8 + Number(value.readBigUInt64LE(at)) : 4;
  const copy = Buffer.from(value.subarray(0, at));
  copy.writeBigUInt64LE(BigInt(count), 8);
  return copy;
}

/**
 * Writes the file again with keys set to strings or booleans, or left out (null).
 * @param {string} from @param {string} to @param {Record<string, string | boolean | null>} keys
 * @param {number} [count] keep this many tokens only
 */
export function rewriteVocabulary(from, to, keys, count) {
  const bytes = fs.readFileSync(from);
  const found = pairs(bytes);
  for (const [key, value] of Object.entries(keys)) {
    if (value === null) found.delete(key);
    else if (typeof value === 'boolean') found.set(key, Buffer.from([BOOL, 0, 0, 0, Number(value)]));
    else found.set(key, Buffer.concat([Buffer.from([STRING, 0, 0, 0]), string(value)]));
  }
  for (const name of count ? ['tokens', 'scores', 'token_type'] : []) {
    const key = `tokenizer.ggml.${name}`;
    if (found.has(key)) found.set(key, truncated(found.get(key), count));
  }
  const header = Buffer.from(bytes.subarray(0, 24));
  header.writeBigUInt64LE(0n, 8);
  header.writeBigUInt64LE(BigInt(found.size), 16);
  fs.writeFileSync(to, Buffer.concat([header, ...[...found].flatMap(([key, rest]) => [string(key), rest])]));
}
