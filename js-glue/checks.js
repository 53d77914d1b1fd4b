// What arguments must be like. Each check gives the value back, or throws
// BAD_ARGUMENT, which names the option, what it may be, and what was given.
import { LinealError, badArgument } from './errors.js';
import { nearest } from './nearest.js';

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

/** Undefined: it is no size, or passes what a number holds exactly. @param {unknown} size */
function bytesIn(size) {
  if (typeof size === 'number') return Number.isSafeInteger(size) && size >= 0 ? size : undefined;
  const match = /^\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*$/i.exec(typeof size === 'string' ? size : '');
  const bytes = match ? Math.round(Number(match[1]) * UNITS[match[2].toLowerCase()]) : NaN;
  return Number.isSafeInteger(bytes) ? bytes : undefined;
}

/** @param {import('./index.d.ts').ByteSize} size */
export function parseByteSize(size) {
  return byteSize('the size', size, 0);
}

/**
 * An object without keys that nobody reads.
 * @param {unknown} options
 * @param {readonly string[]} known
 * @param {string} [name] of the option that holds them
 */
export function checkOptions(options, known, name) {
  // Of a Map no key would be seen.
  if (typeof options !== 'object' || options === null || Symbol.iterator in options)
    throw badArgument(`${name ?? 'options'} ${name ? 'is' : 'are'} an object, not ${shown(options)}`, name ? { option: name } : {});
  for (const key of Object.keys(options)) {
    if (known.includes(key)) continue;
    const within = name ? `${name}.` : '';
    const meant = nearest(key, known);
    const hint = meant === undefined ? '' : `; the nearest is '${within}${meant}'`;
    throw new LinealError('BAD_ARGUMENT', `there is no option '${within}${key}'${hint}`, {
      remedy: `the options are ${known.map((one) => within + one).join(', ')}`,
      detail: { option: within + key, known: [...known] },
    });
  }
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

/**
 * What is wrong with a number: which option, from where to where it goes, and what was given.
 * @param {string} name @param {string} may what it may be @param {number} least @param {number} most
 * @param {unknown} value
 */
function wrongNumber(name, may, least, most, value) {
  const given = shown(value);
  return badArgument(`${name} is ${may}, not ${given}`, { option: name, least, most, given });
}

/** @param {string} name @param {string} kind @param {number} low @param {number} high @param {unknown} value */
function outOfRange(name, kind, low, high, value) {
  return wrongNumber(name, `${kind} from ${low} to ${high}`, low, high, value);
}

/**
 * @param {string} name @param {unknown} value @param {number} low @param {number} high
 * @param {string} [word] that may stand in its place, and was not given
 */
export function whole(name, value, low, high, word) {
  if (Number.isInteger(value) && Number(value) >= low && Number(value) <= high) return Number(value);
  throw outOfRange(name, `${word === undefined ? '' : `'${word}' or `}a whole number`, low, high, value);
}

/** @param {string} name @param {unknown} value @param {number} low @param {number} high */
export function between(name, value, low, high) {
  if (typeof value === 'number' && value >= low && value <= high) return value;
  throw outOfRange(name, 'a number', low, high, value);
}

/** @param {string} name @param {unknown} value @param {number} high */
export function above0(name, value, high) {
  const number = between(name, value, 0, high);
  if (Math.fround(number) > 0) return number; // the core has floats of 32 bits
  throw wrongNumber(name, `a number above 0, up to ${high}`, 0, high, value);
}

/** Bytes, given as a number or a text. @param {string} name @param {unknown} value @param {number} low */
export function byteSize(name, value, low) {
  const bytes = bytesIn(value);
  if (bytes !== undefined && bytes >= low) return bytes;
  throw outOfRange(name, "a number of bytes, or a text like '512MiB' or '2GB',", low, Number.MAX_SAFE_INTEGER, value);
}

/**
 * @template {string} T
 * @param {string} name @param {unknown} value @param {readonly T[]} allowed
 * @param {string} [also] what else may stand there
 * @returns {T}
 */
export function oneOf(name, value, allowed, also = '') {
  const found = allowed.find((candidate) => candidate === value);
  if (found === undefined)
    throw badArgument(`${name} is ${allowed.map((a) => `'${a}'`).join(', ')}${also}, not ${shown(value)}`, {
      option: name,
    });
  return found;
}
