// Where the test data is, and small helpers that several suites share.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const FIXTURES = path.resolve(ROOT, '../shared/fixtures');
export const BUNDLED = path.join(ROOT, 'web/models/kjv-2.6m-Q4_K_M.gguf');
export const CLI = path.join(ROOT, 'js-glue/cli.js');

/** Both builds of the engine. */
export const MODULES = ['base', 'relaxed'];

/** Why the shared fixtures can't be used, or false. With CI set they must be there. */
export function fixturesMissing() {
  if (fs.existsSync(path.join(FIXTURES, 'generations.json'))) return false;
  const reason = 'no ../shared/fixtures beside the repository';
  if (process.env.CI) throw new Error(reason);
  return reason;
}

export const fixture = (...parts) => path.join(FIXTURES, ...parts);
export const fixtureJson = (...parts) => JSON.parse(fs.readFileSync(fixture(...parts), 'utf8'));
export function fixtureFloats(...parts) {
  const bytes = fs.readFileSync(fixture(...parts));
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

let folder;
/** A path in a folder of this process that is removed when it ends. */
export function temporary(name) {
  if (!folder) {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'lineal-test-'));
    process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));
  }
  return path.join(folder, name);
}

// Command lines that tests start keep models here, and not in the user's folder.
process.env.XDG_CACHE_HOME = temporary('cache-home');

/**
 * A CustomSource over bytes or a file that counts what is read:
 * source.reads [{offset, length}], source.bytes, source.end (the furthest byte).
 * step: bytes delivered at a time, a number or a function returning one.
 */
export function countingSource(data, { step = Infinity, name = 'counted source', known = true } = {}) {
  const fd = typeof data === 'string' ? fs.openSync(data, 'r') : undefined;
  const size = fd === undefined ? data.length : fs.fstatSync(fd).size;
  const next = typeof step === 'function' ? step : () => step;
  return {
    name,
    ...(known ? { size } : {}),
    reads: [],
    bytes: 0,
    end: 0,
    closed: 0,
    read(offset, length) {
      const n = Math.max(0, Math.min(length, next(), size - offset));
      this.reads.push({ offset, length: n });
      this.bytes += n;
      this.end = Math.max(this.end, offset + n);
      if (fd === undefined) return data.slice(offset, offset + n);
      const out = new Uint8Array(n);
      let have = 0;
      while (have < n) {
        const got = fs.readSync(fd, out, have, n - have, offset + have);
        if (got === 0) throw new Error('the test file is shorter than it said');
        have += got;
      }
      return out;
    },
    close() {
      this.closed++;
      if (fd !== undefined && this.closed === 1) fs.closeSync(fd);
    },
  };
}

/** Natural log-probabilities of a row of logits. */
export function logSoftmax(logits) {
  let most = -Infinity;
  for (const v of logits) if (v > most) most = v;
  let sum = 0;
  for (const v of logits) sum += Math.exp(v - most);
  const norm = most + Math.log(sum);
  return Float64Array.from(logits, (v) => v - norm);
}

/** All rows of `model.evaluate`, by position. */
export async function rowsOf(model, ids) {
  const rows = [];
  for await (const { index, logits } of model.evaluate(ids)) rows[index] = logits;
  return rows;
}

/** sum((a - b)^2) / sum(b^2) */
export function nmse(a, b) {
  let error = 0, norm = 0;
  for (let i = 0; i < b.length; i++) {
    error += (a[i] - b[i]) ** 2;
    norm += b[i] ** 2;
  }
  return error / norm;
}

/** Bytes of one line of explain's memory table. */
export function memoryLine(explanation, name) {
  const line = explanation.memory.find((entry) => entry.name === name);
  if (!line) throw new Error(`explain has no memory line '${name}'`);
  return line.bytes;
}

/** Runs a generation to its end: {pieces, text, result}. */
export async function generate(model, prompt, options) {
  const generation = model.generate(prompt, options);
  const pieces = [];
  for await (const piece of generation) pieces.push(piece);
  return { pieces, text: pieces.join(''), result: await generation.done };
}

/** All models of the fixtures that can be loaded, by path; of a split one the first part. */
export function modelFixtures() {
  return ['kjv', 'stories260k', 'arch'].flatMap((folder) =>
    fs.readdirSync(fixture(folder))
      .filter((name) => name.endsWith('.gguf') && !/-be\.gguf$|-0000[2-9]-of-/.test(name))
      .map((name) => path.posix.join(folder, name)));
}
