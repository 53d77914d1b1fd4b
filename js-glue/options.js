// Options of the public API, checked and completed. The results are plain
// data, so that they cross to a worker.
import { isNode } from './caps.js';
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
const KV_TYPES = /** @type {const} */ (['f32', 'f16', 'q8_0', 'q4_0']);
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
const HOST_TYPES = /** @type {Record<string, string>} */ ({
  kind: 'string',
  canMap: 'boolean',
  canGrow: 'boolean',
  memory64: 'boolean',
  syncRead: 'boolean',
  rangeRead: 'boolean',
  isolated: 'boolean',
  canWait: 'boolean',
  threads: 'number',
  maxMemoryBytes: 'number',
});
/** Without one byte from a server. */
const DEFAULT_TIMEOUT_MS = 60_000;
/** No context is as long; as Int32Array 256 MiB. */
const MAX_IDS = 2 ** 26;
const NOT_IDS = [DataView, BigInt64Array, BigUint64Array];

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
    const match = /^\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*$/i.exec(typeof size === 'string' ? size : '');
    const unit = match && UNITS[match[2].toLowerCase()];
    if (match && unit !== undefined && unit !== null) {
      const bytes = Math.round(Number(match[1]) * unit);
      if (Number.isSafeInteger(bytes)) return bytes;
    }
  }
  throw badArgument(
    `${shown(size)} is not a size: give bytes, or a number with KB, MB, GB, KiB, MiB or GiB`,
  );
}

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
  if (memory !== undefined && parseByteSize(memory) === 0)
    throw badArgument('memory is a budget above 0 bytes');
  return {
    context:
      context === undefined ? 0
      : context === 'max' ? LARGEST_CONTEXT
      : whole('context', context, 1, 2 ** 31 - 1),
    memory: memory === undefined ? 0 : parseByteSize(memory),
    kvType: kvTypeOption(kvType),
    placement: placementOption(options.placement),
    chunk: chunk === undefined ? 0 : whole('chunk', chunk, 1, 2 ** 20),
    allLogits: flag('allLogits', allLogits, false),
    embeddings: flag('embeddings', embeddings, false),
    overlap: flag('overlap', options.overlap, false),
    stream: oneOf('stream', stream, ['auto', 'off']),
    streamWindow: streamWindow === undefined ? 0 : parseByteSize(streamWindow),
    module: oneOf('module', module, ['auto', 'base', 'relaxed', 'relaxed-mt-64']),
    threads: threads === 'auto' ? 0 : whole('threads', threads, 1, 2 ** 16),
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
    return oneOf('kvType', given, /** @type {const} */ (['auto', ...KV_TYPES]));
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
  if (typeof tensors !== 'object' || tensors === null || Array.isArray(tensors))
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
 * Known capabilities, each of the right type: plain data.
 * @param {Partial<import('./index.d.ts').HostCapabilities>} [host]
 * @returns {Partial<import('./index.d.ts').HostCapabilities>}
 */
function hostOptions(host = {}) {
  checkOptions(host, Object.keys(HOST_TYPES), 'host');
  for (const [name, value] of Object.entries(host)) {
    const type = HOST_TYPES[name];
    if (value !== undefined && typeof value !== type)
      throw badArgument(`host.${name} is a ${type}, not ${shown(value)}`, { option: `host.${name}` });
  }
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
    timeoutMs: whole('fetch.timeoutMs', timeoutMs, 0, 2 ** 31 - 1),
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
  else if (typeof option === 'string') options = option === 'auto' ? {} : { directory: option };
  else if (option !== true) throw badArgument(`cache is true, false, a folder or an object, not ${shown(option)}`);
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
    maxBytes: maxBytes === undefined ? 0 : parseByteSize(maxBytes),
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
    const { href } = new URL(url, /** @type {any} */ (globalThis).document?.baseURI ?? import.meta.url);
    return href.endsWith('/') ? href : `${href}/`;
  } catch {
    throw badArgument(`wasmBaseUrl ${shown(url)} is not an address`);
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

/**
 * @param {GenerateOptions} [options]
 * @returns {GenerateSettings}
 */
export function generateSettings(options = {}) {
  checkOptions(options, GENERATE_KEYS);
  checkSignal(options.signal);
  checkFunction('onToken', options.onToken);
  checkFunction('onProgress', options.onProgress);
  const { stop = [] } = options;
  if (typeof stop !== 'string' && !Array.isArray(stop))
    throw badArgument(`stop is a text or an array of texts, not ${shown(stop)}`, { option: 'stop' });
  const stops = typeof stop === 'string' ? [stop] : [...stop];
  if (stops.some((text) => typeof text !== 'string' || text === ''))
    throw badArgument('stop holds texts that are not empty', { option: 'stop' });
  if (options.topP === 0) throw badArgument('topP is a number above 0, up to 1, not 0', { option: 'topP' });
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
    parseSpecial: flag('parseSpecial', options.parseSpecial, false),
    addSpecial: flag('addSpecial', options.addSpecial, true),
    showSpecial: flag('showSpecial', options.showSpecial, false),
    ignoreEos: flag('ignoreEos', options.ignoreEos, false),
    logprobs: flag('logprobs', options.logprobs, false),
    reuse: flag('reuse', options.reuse, true),
    progress: options.onProgress !== undefined,
    profile: options.profile === 'trace' ? 'trace' : flag('profile', options.profile, false),
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
  return {
    from: whole('from', options.from ?? 0, 0, 2 ** 31 - 1),
    signal: checkSignal(options.signal),
  };
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

/**
 * An object without keys that nobody reads.
 * @param {unknown} options
 * @param {readonly string[]} known
 * @param {string} [name] of the option that holds them
 */
export function checkOptions(options, known, name) {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw badArgument(`${name ?? 'options'} ${name ? 'is' : 'are'} an object, not ${shown(options)}`);
  for (const key of Object.keys(options)) {
    if (known.includes(key)) continue;
    const [nearest] = [...known].sort((a, b) => distance(a, key) - distance(b, key));
    const option = name ? `${name}.${key}` : key;
    throw badArgument(`there is no option '${option}'; the nearest is '${name ? `${name}.` : ''}${nearest}'`, {
      option,
      known: [...known],
    });
  }
}

/**
 * How many letters are to be put in, taken out or changed; case does not count.
 * @param {string} a
 * @param {string} b
 * @param {boolean} [anywhere] it is enough that a part of b is like a
 */
export function distance(a, b, anywhere = false) {
  const [from, to] = [a.toLowerCase(), b.toLowerCase()];
  let row = Array.from({ length: to.length + 1 }, (_, i) => (anywhere ? 0 : i));
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const changed = row[j - 1] + (from[i - 1] === to[j - 1] ? 0 : 1);
      next[j] = Math.min(changed, row[j] + 1, next[j - 1] + 1);
    }
    row = next;
  }
  return anywhere ? Math.min(...row) : row[to.length];
}

/**
 * @param {unknown} signal
 * @returns {AbortSignal | undefined}
 */
export function checkSignal(signal) {
  const s = /** @type {any} */ (signal);
  if (
    signal !== undefined &&
    !(typeof s === 'object' && typeof s?.aborted === 'boolean' && typeof s.addEventListener === 'function')
  )
    throw badArgument(`signal is an AbortSignal, not ${shown(signal)}`, { option: 'signal' });
  return s;
}

/** @param {string} name @param {unknown} value */
export function checkFunction(name, value) {
  if (value !== undefined && typeof value !== 'function')
    throw badArgument(`${name} is a function, not ${shown(value)}`, { option: name });
}

/** @param {string} name @param {unknown} value @param {boolean} fallback */
export function flag(name, value, fallback) {
  if (value === undefined) return fallback;
  if (typeof value !== 'boolean')
    throw badArgument(`${name} is true or false, not ${shown(value)}`, { option: name });
  return value;
}

/** A value as a message names it: never long, and safe for what String() refuses. @param {unknown} value */
export function shown(value) {
  if (typeof value === 'string') return `'${value.length > 60 ? `${value.slice(0, 60)}...` : value}'`;
  if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return String(value);
  if (typeof value === 'function') return 'a function';
  const name = value.constructor?.name;
  return typeof name === 'string' && name !== '' ? `an object (${name})` : 'an object';
}

/** @param {string} name @param {unknown} value @param {number} low @param {number} high */
export function whole(name, value, low, high) {
  const n = between(name, value, low, high);
  if (!Number.isInteger(n)) throw badArgument(`${name} is a whole number, not ${n}`, { option: name });
  return n;
}

/** @param {string} name @param {unknown} value @param {number} low @param {number} high */
export function between(name, value, low, high) {
  if (typeof value !== 'number' || !(value >= low && value <= high)) {
    throw badArgument(`${name} is a number from ${low} to ${high}, not ${shown(value)}`, { option: name });
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
    throw badArgument(`${name} is ${allowed.map((a) => `'${a}'`).join(', ')}, not ${shown(value)}`, {
      option: name,
    });
  return found;
}
