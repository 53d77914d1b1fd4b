// Options of the public API, checked and completed. The results are plain
// data, so that they cross to a worker.
import { LinealError, badArgument } from './errors.js';

/** @typedef {import('./index.d.ts').ExplainOptions} ExplainOptions */
/** @typedef {import('./index.d.ts').GenerateOptions} GenerateOptions */

/**
 * @typedef {object} PlanOptions
 * @property {number} context 0: the default
 * @property {number} memory 0: no budget
 * @property {'auto' | 'f32' | 'f16'} kvType
 * @property {number} chunk 0: the default
 * @property {boolean} allLogits
 * @property {'auto' | 'base' | 'relaxed'} module
 * @property {number} threads 0: the core chooses
 * @property {Partial<import('./index.d.ts').HostCapabilities>} host
 * @property {string} wasmBaseUrl
 */

/** Where the .wasm files lie in the package. */
export const DIST_URL = new URL('../dist/', import.meta.url).href;

const UNITS = /** @type {Record<string, number>} */ ({
  '': 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
});

/** @param {import('./index.d.ts').ByteSize} size */
export function parseByteSize(size) {
  if (typeof size === 'number') {
    if (Number.isSafeInteger(size) && size >= 0) return size;
  } else {
    const match = /^\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*$/i.exec(String(size));
    const unit = match && UNITS[match[2].toLowerCase()];
    if (match && unit !== undefined && unit !== null) {
      const bytes = Math.round(Number(match[1]) * unit);
      if (Number.isSafeInteger(bytes)) return bytes;
    }
  }
  throw badArgument(
    `'${String(size)}' is not a size: give bytes, or a number with KB, MB, GB, KiB, MiB or GiB`,
  );
}

/**
 * @param {ExplainOptions} [options]
 * @returns {PlanOptions}
 */
export function planOptions(options = {}) {
  checkObject(options);
  const {
    context,
    memory,
    kvType = 'auto',
    chunk,
    allLogits = false,
    module = 'auto',
    threads = 'auto',
    host = {},
    wasmBaseUrl,
  } = options;
  if (memory !== undefined && parseByteSize(memory) === 0)
    throw badArgument('memory is a budget above 0 bytes');
  return {
    context: context === undefined ? 0 : whole('context', context, 1, 2 ** 31 - 1),
    memory: memory === undefined ? 0 : parseByteSize(memory),
    kvType: oneOf('kvType', kvType, ['auto', 'f32', 'f16']),
    chunk: chunk === undefined ? 0 : whole('chunk', chunk, 1, 2 ** 20),
    allLogits: Boolean(allLogits),
    module: oneOf('module', module, ['auto', 'base', 'relaxed']),
    threads: threads === 'auto' ? 0 : whole('threads', threads, 1, 2 ** 16),
    host: { ...host },
    wasmBaseUrl: wasmBaseUrl === undefined ? DIST_URL : folderUrl(wasmBaseUrl),
  };
}

/** @param {string | URL} url relative to the page, where there is one */
function folderUrl(url) {
  try {
    const { href } = new URL(url, /** @type {any} */ (globalThis).document?.baseURI ?? import.meta.url);
    return href.endsWith('/') ? href : `${href}/`;
  } catch {
    throw badArgument(`wasmBaseUrl '${String(url)}' is not an address`);
  }
}

/**
 * @typedef {object} GenerateSettings
 * @property {number} maxTokens
 * @property {{ temperature: number, topK: number, topP: number, minP: number, repeatPenalty: number,
 *   repeatLastN: number, seed: number }} sampler
 * @property {string[]} stop
 * @property {boolean} parseSpecial
 * @property {boolean} addSpecial
 * @property {boolean} showSpecial
 * @property {boolean} ignoreEos
 * @property {boolean} logprobs
 * @property {boolean} reuse
 */

/**
 * @param {GenerateOptions} [options]
 * @returns {GenerateSettings}
 */
export function generateSettings(options = {}) {
  checkObject(options);
  const { stop = [] } = options;
  const stops = typeof stop === 'string' ? [stop] : [...stop];
  if (stops.some((text) => typeof text !== 'string' || text === ''))
    throw badArgument('stop holds texts that are not empty');
  return {
    maxTokens: whole('maxTokens', options.maxTokens ?? 128, 0, 2 ** 31 - 1),
    sampler: {
      temperature: between('temperature', options.temperature ?? 0, 0, 100),
      topK: whole('topK', options.topK ?? 40, 0, 2 ** 31 - 1),
      topP: between('topP', options.topP ?? 0.95, 0, 1),
      minP: between('minP', options.minP ?? 0.05, 0, 1),
      repeatPenalty: between('repeatPenalty', options.repeatPenalty ?? 1, 0.01, 100),
      repeatLastN: whole('repeatLastN', options.repeatLastN ?? 64, 0, 2 ** 31 - 1),
      seed: whole('seed', options.seed ?? 0, 0, 2 ** 32 - 1),
    },
    stop: stops,
    parseSpecial: Boolean(options.parseSpecial),
    addSpecial: options.addSpecial ?? true,
    showSpecial: Boolean(options.showSpecial),
    ignoreEos: Boolean(options.ignoreEos),
    logprobs: Boolean(options.logprobs),
    reuse: options.reuse ?? true,
  };
}

/**
 * A prompt as text or checked ids.
 * @param {string | ArrayLike<number>} prompt
 */
export function checkPrompt(prompt) {
  if (typeof prompt === 'string' ? prompt === '' : prompt?.length === 0) {
    throw new LinealError('EMPTY_PROMPT', 'the prompt holds no token', {
      remedy: 'give a prompt of at least one token',
    });
  }
  return typeof prompt === 'string' ? prompt : tokenIds(prompt);
}

/**
 * @param {ArrayLike<number>} ids
 * @returns {Int32Array}
 */
export function tokenIds(ids) {
  if (ids instanceof Int32Array) return ids;
  if (!ids || typeof ids !== 'object' || !(ids.length >= 0))
    throw badArgument('token ids are an array of whole numbers');
  const out = new Int32Array(ids.length);
  for (let i = 0; i < out.length; i++) {
    if ((ids[i] | 0) !== ids[i]) {
      throw new LinealError('BAD_TOKEN', `token ${i} is ${String(ids[i])}, which is not a token id`, {
        remedy: 'give ids from 0 to the vocabulary size minus one',
        detail: { index: i },
      });
    }
    out[i] = ids[i];
  }
  return out;
}

/** @param {unknown} options */
function checkObject(options) {
  if (typeof options !== 'object' || options === null) throw badArgument('options are an object');
}

/** @param {string} name @param {unknown} value @param {number} low @param {number} high */
export function whole(name, value, low, high) {
  const n = between(name, value, low, high);
  if (!Number.isInteger(n)) throw badArgument(`${name} is a whole number, not ${n}`);
  return n;
}

/** @param {string} name @param {unknown} value @param {number} low @param {number} high */
export function between(name, value, low, high) {
  if (typeof value !== 'number' || !(value >= low && value <= high)) {
    throw badArgument(`${name} is a number from ${low} to ${high}, not ${String(value)}`, { option: name });
  }
  return value;
}

/**
 * @template {string} T
 * @param {string} name @param {unknown} value @param {readonly T[]} allowed
 * @returns {T}
 */
export function oneOf(name, value, allowed) {
  const found = allowed.find((candidate) => candidate === value);
  if (found === undefined)
    throw badArgument(`${name} is ${allowed.map((a) => `'${a}'`).join(', ')}, not '${String(value)}'`, {
      option: name,
    });
  return found;
}
