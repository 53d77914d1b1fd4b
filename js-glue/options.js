// Options of the public API, checked and completed. The results are plain
// data, so that they cross to a worker.
import { isNode } from './caps.js';
import { above0, between, byteSize, checkFunction, checkOptions, checkSignal, flag, oneOf, shown, whole } from './checks.js';
import { LinealError, badArgument } from './errors.js';

/** @typedef {import('./index.d.ts').ExplainOptions} ExplainOptions */
/** @typedef {import('./index.d.ts').GenerateOptions} GenerateOptions */
/** @typedef {import('./index.d.ts').ModuleName} ModuleName with or without threads; the last always has them */

/**
 * @typedef {object} PlanOptions
 * @property {number} context 0: the default; LARGEST_CONTEXT: the largest that fits
 * @property {number} memory 0: no budget
 * @property {import('./index.d.ts').KvType} kvType
 * @property {{ profile: import('./index.d.ts').Profile, hold: import('./index.d.ts').Hold, tensors: string }} placement
 *   tensors: lines GLOB=HOLD
 * @property {number} chunk 0: the default
 * @property {boolean} allLogits
 * @property {boolean} embeddings
 * @property {boolean} overlap
 * @property {'auto' | 'off'} stream
 * @property {number} streamWindow bytes; 0: the default
 * @property {ModuleName | 'auto'} module
 * @property {number} threads 0: the core chooses
 * @property {Partial<import('./index.d.ts').HostCapabilities>} host
 * @property {string} wasmBaseUrl
 */

/** Where the .wasm files lie in the package. */
export const DIST_URL = new URL('../dist/', import.meta.url).href;

/** The `context` that stands for the largest that fits. */
export const LARGEST_CONTEXT = 2 ** 32 - 1;
/** What a cache's keys or values are held in. */
export const KV_TYPES = /** @type {const} */ (['f32', 'f16', 'q8_0', 'q4_0']);
const HOLDS = /** @type {const} */ (['stored', 'x8', 'f32', 'f16']);
const PROFILES = /** @type {const} */ (['auto', 'browser', 'phone', 'node', 'native']);

const PLAN_KEYS = [
  'context',
  'memory',
  'kvType',
  'placement',
  'chunk',
  'allLogits',
  'embeddings',
  'stream',
  'streamWindow',
  'module',
  'threads',
  'host',
  'worker',
  'signal',
  'onProgress',
  'fetch',
  'cache',
  'hub',
  'overlap',
  'wasmBaseUrl',
];
const GENERATE_KEYS = [
  'maxTokens',
  'temperature',
  'topK',
  'topP',
  'minP',
  'repeatPenalty',
  'repeatLastN',
  'seed',
  'signal',
  'onToken',
  'onProgress',
  'stop',
  'parseSpecial',
  'addSpecial',
  'showSpecial',
  'ignoreEos',
  'logprobs',
  'reuse',
  'profile',
];
const HOST_KINDS = /** @type {const} */ (['browser', 'node', 'wasi', 'native']);
const HOST_FLAGS = /** @type {const} */ ([
  'canMap',
  'canGrow',
  'memory64',
  'syncRead',
  'rangeRead',
  'isolated',
  'canWait',
]);
/** Positions, and counts of tokens. */
const MOST_TOKENS = 2 ** 31 - 1;
const MOST_CHUNK = 2 ** 20;
const MOST_THREADS = 2 ** 16;
const MOST_TIMEOUT_MS = 2 ** 31 - 1;
/** Without one byte from a server. */
const DEFAULT_TIMEOUT_MS = 60_000;
/** No context is as long; as Int32Array 256 MiB. */
const MAX_IDS = 2 ** 26;
const NOT_IDS = [DataView, BigInt64Array, BigUint64Array];

/**
 * @param {ExplainOptions} [options]
 * @returns {PlanOptions}
 */
export function planOptions(options = {}) {
  checkOptions(options, PLAN_KEYS);
  checkSignal(options.signal);
  checkFunction('onProgress', options.onProgress);
  flag('worker', options.worker, false);
  const {
    context,
    memory,
    kvType = 'auto',
    chunk,
    allLogits,
    embeddings,
    stream = 'auto',
    streamWindow,
    module = 'auto',
    threads = 'auto',
    wasmBaseUrl,
  } = options;
  return {
    context:
      context === undefined ? 0
      : context === 'max' ? LARGEST_CONTEXT
      : whole('context', context, 1, MOST_TOKENS, 'max'),
    memory: memory === undefined ? 0 : byteSize('memory', memory, 1),
    kvType: kvTypeOption(kvType),
    placement: placementOption(options.placement),
    chunk: chunk === undefined ? 0 : whole('chunk', chunk, 1, MOST_CHUNK),
    allLogits: flag('allLogits', allLogits, false),
    embeddings: flag('embeddings', embeddings, false),
    overlap: flag('overlap', options.overlap, false),
    stream: oneOf('stream', stream, ['auto', 'off']),
    streamWindow: streamWindow === undefined ? 0 : byteSize('streamWindow', streamWindow, 1),
    module: oneOf('module', module, ['auto', 'base', 'relaxed', 'relaxed-mt-64']),
    threads: threads === 'auto' ? 0 : whole('threads', threads, 1, MOST_THREADS, 'auto'),
    host: hostOptions(options.host),
    wasmBaseUrl: wasmBaseUrl === undefined ? DIST_URL : folderUrl(wasmBaseUrl),
  };
}

/**
 * @param {unknown} given
 * @returns {import('./index.d.ts').KvType}
 */
function kvTypeOption(given) {
  if (typeof given !== 'object' || given === null)
    return oneOf('kvType', given, /** @type {const} */ (['auto', ...KV_TYPES]), ', or { k, v } with one of them for each');
  checkOptions(given, ['k', 'v'], 'kvType');
  const pair = /** @type {Record<string, unknown>} */ (given);
  return { k: oneOf('kvType.k', pair.k, KV_TYPES), v: oneOf('kvType.v', pair.v, KV_TYPES) };
}

/**
 * @param {import('./index.d.ts').PlacementOptions} [placement]
 * @returns {PlanOptions['placement']}
 */
function placementOption(placement = {}) {
  checkOptions(placement, ['profile', 'hold', 'tensors'], 'placement');
  const { profile = 'auto', hold = 'auto', tensors = {} } = placement;
  if (typeof tensors !== 'object' || tensors === null || Symbol.iterator in tensors)
    throw badArgument(`placement.tensors is an object of globs and forms, not ${shown(tensors)}`, {
      option: 'placement.tensors',
    });
  const lines = Object.entries(tensors).map(([glob, form]) => {
    // What ends a line, or the text, would be read as another rule.
    if (/^$|[\n\0]/.test(glob))
      throw badArgument(`placement.tensors: ${shown(glob)} is no glob for names of tensors`, {
        option: 'placement.tensors',
      });
    return `${glob}=${oneOf(`placement.tensors['${glob}']`, form, HOLDS)}\n`;
  });
  return {
    profile: oneOf('placement.profile', profile, PROFILES),
    hold: oneOf('placement.hold', hold, ['auto', ...HOLDS]),
    tensors: lines.join(''),
  };
}

/**
 * Known capabilities, each one that a host can have: plain data.
 * @param {Partial<import('./index.d.ts').HostCapabilities>} [host]
 * @returns {Partial<import('./index.d.ts').HostCapabilities>}
 */
function hostOptions(host = {}) {
  checkOptions(host, ['kind', ...HOST_FLAGS, 'threads', 'maxMemoryBytes'], 'host');
  const { kind, threads, maxMemoryBytes } = host;
  if (kind !== undefined) oneOf('host.kind', kind, HOST_KINDS);
  for (const name of HOST_FLAGS) flag(`host.${name}`, host[name], false);
  if (threads !== undefined) whole('host.threads', threads, 1, MOST_THREADS);
  if (maxMemoryBytes !== undefined)
    whole('host.maxMemoryBytes', maxMemoryBytes, 0, Number.MAX_SAFE_INTEGER);
  return { ...host };
}

/**
 * @typedef {object} FetchSettings
 * @property {Record<string, string>} headers
 * @property {RequestCredentials} credentials
 * @property {number} timeoutMs 0: none
 */

/**
 * The values of headers are secrets: no message holds one.
 * @param {import('./index.d.ts').FetchOptions} [options]
 * @returns {FetchSettings}
 */
export function fetchOptions(options = {}) {
  checkOptions(options, ['headers', 'credentials', 'timeoutMs'], 'fetch');
  const { headers = {}, credentials = 'same-origin', timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  if (typeof headers !== 'object' || headers === null || Symbol.iterator in headers)
    throw badArgument('fetch.headers is an object of names and values', { option: 'fetch.headers' });
  for (const [name, value] of Object.entries(headers)) {
    let valid = typeof value === 'string';
    try {
      if (valid) new Headers([[name, value]]);
    } catch {
      valid = false;
    }
    if (!valid) {
      throw badArgument(
        `fetch.headers: ${JSON.stringify(name)} is not the name of a header, or its value is no text that a header may hold`,
        { option: 'fetch.headers', header: name },
      );
    }
  }
  return {
    headers: { ...headers },
    credentials: oneOf('fetch.credentials', credentials, ['omit', 'same-origin', 'include']),
    timeoutMs: whole('fetch.timeoutMs', timeoutMs, 0, MOST_TIMEOUT_MS),
  };
}

/**
 * @typedef {object} CacheSettings
 * @property {string} directory '': the default
 * @property {boolean} verify
 * @property {boolean} revalidate
 * @property {string[]} sha256 of each part, in hex; empty: not known
 * @property {number} maxBytes 0: no limit
 * @property {boolean} required
 * @property {boolean} persist
 */

const CACHE_KEYS = ['directory', 'verify', 'revalidate', 'sha256', 'maxBytes', 'required', 'persist'];

/**
 * @param {import('./index.d.ts').OpenOptions['cache']} [option]
 * @returns {CacheSettings | undefined} undefined: no cache
 */
export function cacheOptions(option = 'auto') {
  if (option === false || (option === 'auto' && isNode)) return undefined;
  /** @type {import('./index.d.ts').CacheOptions} */ let options = {};
  if (typeof option === 'object') options = option;
  else if (typeof option === 'string' && option !== '') options = option === 'auto' ? {} : { directory: option };
  else if (option !== true) throw badArgument(`cache is true, false, a folder or an object, not ${shown(option)}`, { option: 'cache' });
  checkOptions(options, CACHE_KEYS, 'cache');
  const { sha256 = [], maxBytes } = options;
  const sums = (Array.isArray(sha256) ? sha256 : [sha256]).map((sum) => {
    if (typeof sum !== 'string' || !/^[0-9a-f]{64}$/i.test(sum))
      throw badArgument(`cache.sha256 is 64 hexadecimal digits, not ${shown(sum)}`, { option: 'cache.sha256' });
    return sum.toLowerCase();
  });
  return {
    directory: cacheDirectory(options.directory),
    verify: flag('cache.verify', options.verify, false),
    revalidate: flag('cache.revalidate', options.revalidate, false),
    sha256: sums,
    maxBytes: maxBytes === undefined ? 0 : byteSize('cache.maxBytes', maxBytes, 1),
    // What cannot be kept cannot be hashed as a whole.
    required: flag('cache.required', options.required, false) || sums.length > 0,
    persist: flag('cache.persist', options.persist, false),
  };
}

/** @param {unknown} directory */
export function cacheDirectory(directory = '') {
  if (typeof directory !== 'string')
    throw badArgument(`cache.directory is a path, not ${shown(directory)}`, { option: 'cache.directory' });
  if (directory !== '' && !isNode)
    throw badArgument('a browser has one cache, and no directory can be given', { option: 'cache.directory' });
  return directory;
}

/** @param {string | URL} url relative to the page, where there is one */
function folderUrl(url) {
  try {
    if (typeof url !== 'string' && !(url instanceof URL)) throw new TypeError();
    const { href } = new URL(url, /** @type {any} */ (globalThis).document?.baseURI ?? import.meta.url);
    return href.endsWith('/') ? href : `${href}/`;
  } catch {
    throw badArgument(`wasmBaseUrl is the address of a folder, not ${shown(url)}`, { option: 'wasmBaseUrl' });
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
 * @property {boolean} progress whether onProgress wants to know how far the prompt is
 * @property {boolean | 'trace'} profile
 */

/** @param {unknown} given @returns {boolean | 'trace'} */
function profileOption(given = false) {
  if (typeof given === 'boolean' || given === 'trace') return given;
  throw badArgument(`profile is true, false or 'trace', not ${shown(given)}`, { option: 'profile' });
}

/**
 * @param {GenerateOptions} [options]
 * @returns {GenerateSettings}
 */
export function generateSettings(options = {}) {
  checkOptions(options, GENERATE_KEYS);
  checkSignal(options.signal);
  checkFunction('onToken', options.onToken);
  checkFunction('onProgress', options.onProgress);
  const {
    maxTokens = 128,
    temperature = 0,
    topK = 40,
    topP = 0.95,
    minP = 0.05,
    repeatPenalty = 1,
    repeatLastN = 64,
    seed = 0,
    stop = [],
  } = options;
  if (typeof stop !== 'string' && !Array.isArray(stop))
    throw badArgument(`stop is a text or an array of texts, not ${shown(stop)}`, { option: 'stop' });
  const stops = typeof stop === 'string' ? [stop] : [...stop];
  if (stops.some((text) => typeof text !== 'string' || text === ''))
    throw badArgument('stop holds texts that are not empty', { option: 'stop' });
  return {
    maxTokens: whole('maxTokens', maxTokens, 0, MOST_TOKENS),
    sampler: {
      temperature: between('temperature', temperature, 0, 100),
      topK: whole('topK', topK, 0, MOST_TOKENS),
      topP: above0('topP', topP, 1),
      minP: between('minP', minP, 0, 1),
      repeatPenalty: between('repeatPenalty', repeatPenalty, 0.01, 100),
      repeatLastN: whole('repeatLastN', repeatLastN, 0, MOST_TOKENS),
      seed: whole('seed', seed, 0, 2 ** 32 - 1),
    },
    stop: stops,
    parseSpecial: flag('parseSpecial', options.parseSpecial, false),
    addSpecial: flag('addSpecial', options.addSpecial, true),
    showSpecial: flag('showSpecial', options.showSpecial, false),
    ignoreEos: flag('ignoreEos', options.ignoreEos, false),
    logprobs: flag('logprobs', options.logprobs, false),
    reuse: flag('reuse', options.reuse, true),
    progress: options.onProgress !== undefined,
    profile: profileOption(options.profile),
  };
}

/** @param {import('./index.d.ts').TokenizeOptions} [options] */
export function tokenizeOptions(options = {}) {
  checkOptions(options, ['addSpecial', 'parseSpecial']);
  return {
    addSpecial: flag('addSpecial', options.addSpecial, true),
    parseSpecial: flag('parseSpecial', options.parseSpecial, false),
  };
}

/** @param {{ showSpecial?: boolean }} [options] */
export function detokenizeOptions(options = {}) {
  checkOptions(options, ['showSpecial']);
  return { showSpecial: flag('showSpecial', options.showSpecial, false) };
}

/** @param {{ signal?: AbortSignal }} [options] */
export function evaluateOptions(options = {}) {
  checkOptions(options, ['signal']);
  return { signal: checkSignal(options.signal) };
}

/** @param {{ from?: number, signal?: AbortSignal }} [options] */
export function scoreOptions(options = {}) {
  checkOptions(options, ['from', 'signal']);
  const { from = 0, signal } = options;
  return { from: whole('from', from, 0, MOST_TOKENS), signal: checkSignal(signal) };
}

/**
 * A prompt as text or checked ids.
 * @param {string | import('./index.d.ts').TokenIds} prompt
 */
export function checkPrompt(prompt) {
  if (prompt === '') throw emptyPrompt();
  return typeof prompt === 'string' ? prompt : checkSequence(prompt);
}

/**
 * Ids to evaluate: at least one.
 * @param {import('./index.d.ts').TokenIds} ids
 */
export function checkSequence(ids) {
  const checked = tokenIds(ids);
  if (checked.length === 0) throw emptyPrompt();
  return checked;
}

function emptyPrompt() {
  return new LinealError('EMPTY_PROMPT', 'the prompt holds no token', {
    remedy: 'give a prompt of at least one token',
  });
}

/**
 * A copy of the ids, which the caller may change meanwhile.
 * @param {import('./index.d.ts').TokenIds} given
 * @returns {Int32Array}
 */
export function tokenIds(given) {
  const view = ArrayBuffer.isView(given);
  if (view ? NOT_IDS.some((type) => given instanceof type) : !Array.isArray(given))
    throw badArgument(`token ids are an array or typed array of whole numbers, not ${shown(given)}`);
  const ids = /** @type {readonly number[] | Int32Array} */ (given);
  if (ids.length > MAX_IDS)
    throw badArgument(`${ids.length} token ids were given, and ${MAX_IDS} are the most`);
  if (ids instanceof Int32Array) return ids.slice();
  const out = new Int32Array(ids.length);
  for (let i = 0; i < out.length; i++) {
    if (!Number.isInteger(ids[i]) || (ids[i] | 0) !== ids[i]) {
      throw new LinealError('BAD_TOKEN', `token ${i} is ${shown(ids[i])}, which is not a token id`, {
        remedy: 'give ids from 0 to the vocabulary size minus one',
        detail: { index: i },
      });
    }
    out[i] = ids[i];
  }
  return out;
}

/** @param {unknown} text */
export function checkText(text) {
  if (typeof text !== 'string') throw badArgument(`the text is a string, not ${shown(text)}`);
  return text;
}
