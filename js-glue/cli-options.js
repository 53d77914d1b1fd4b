// The command line's options: one table for parsing, checking and --help.
import { parseArgs } from 'node:util';
import { byteSize, oneOf } from './checks.js';
import { messageOf } from './errors.js';
import { LinealError } from './index.js';
import { nearest } from './nearest.js';
import { KV_TYPES } from './options.js';
import { withoutSecrets } from './source.js';

/**
 * @typedef {object} Option
 * @property {'string' | 'boolean'} type
 * @property {string} [short]
 * @property {boolean} [multiple]
 * @property {string} [value] shown in help
 * @property {string} help
 * @property {(text: string, name: string) => unknown} [parse]
 */

/** @param {string} text @param {string} name */
function integer(text, name) {
  if (!/^[+-]?\d+$/.test(text.trim())) throw usage(`--${name} takes a whole number, not '${text}'`);
  return Number(text);
}

/** @param {string} text @param {string} name */
function number(text, name) {
  const n = Number(text);
  if (text.trim() === '' || !Number.isFinite(n)) throw usage(`--${name} takes a number, not '${text}'`);
  return n;
}

/** @param {string} text @param {string} name */
function ids(text, name) {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((part) => integer(part, name));
}

/** @param {number} least */
const from = (least) => (/** @type {string} */ text, /** @type {string} */ name) => {
  const n = integer(text, name);
  if (n < least) throw usage(`--${name} takes a whole number from ${least}, not '${text}'`);
  return n;
};
const positive = from(1);
const natural = from(0);

/** Milliseconds. @param {string} text @param {string} name */
function seconds(text, name) {
  const ms = Math.ceil(number(text, name) * 1000);
  if (ms < 0 || ms >= 2 ** 31) throw usage(`--${name} takes seconds from 0 to 2147483, not '${text}'`);
  return ms;
}

/** @param {string} text @param {string} name */
function context(text, name) {
  return text === 'max' ? 'max' : positive(text, name);
}

/** @param {string} text @param {string} name */
function rule(text, name) {
  const at = text.lastIndexOf('=');
  if (at < 1) throw usage(`--${name} takes GLOB=FORM, not '${text}'`);
  return /** @type {[string, string]} */ ([text.slice(0, at), text.slice(at + 1)]);
}

/** @param {string} text @param {string} name */
function folder(text, name) {
  if (text === '') throw usage(`--${name} takes a folder, not ''`);
  return text;
}

/** @param {string} text @param {string} name */
function threads(text, name) {
  return text === 'auto' ? 'auto' : positive(text, name);
}

/** @param {string} text @param {string} name */
function header(text, name) {
  const at = text.indexOf(':');
  if (at < 1) throw usage(`--${name} takes 'Name: value', not '${text}'`);
  return /** @type {[string, string]} */ ([text.slice(0, at).trim(), text.slice(at + 1).trim()]);
}

/** @param {string} text @param {string} name */
const kvPart = (text, name) => oneOf(`--${name}`, text, KV_TYPES);

/** @type {Record<string, Option>} */
export const OPTIONS = {
  json: { type: 'boolean', help: 'one JSON object on one line of stdout, and nothing else' },
  quiet: { type: 'boolean', short: 'q', help: 'no progress on stderr' },
  help: { type: 'boolean', short: 'h', help: 'this text' },
  context: {
    type: 'string',
    short: 'c',
    value: 'N|max',
    parse: context,
    help: "context in tokens, or max: the largest that fits (default: the model's own, at most 2048)",
  },
  memory: {
    type: 'string',
    short: 'm',
    value: 'SIZE',
    parse: (text, name) => byteSize(`--${name}`, text, 1),
    help: 'memory budget, for example 2GiB or 512MB',
  },
  kv: {
    type: 'string',
    value: 'TYPE|auto',
    parse: (text, name) => (text === 'auto' ? text : oneOf(`--${name}`, text, KV_TYPES, " or 'auto'")),
    help: 'key-value cache: auto, f32, f16, q8_0 or q4_0 (default auto)',
  },
  'kv-k': {
    type: 'string',
    value: 'TYPE',
    parse: kvPart,
    help: 'its keys, where they are held otherwise than its values',
  },
  'kv-v': { type: 'string', value: 'TYPE', parse: kvPart, help: 'its values' },
  'host-profile': {
    type: 'string',
    value: 'NAME',
    help: 'plan as for a browser, phone, node or native host (default: the one at hand)',
  },
  hold: { type: 'string', value: 'FORM', help: 'hold all weights as stored, x8, f32 or f16' },
  tensor: {
    type: 'string',
    multiple: true,
    value: 'GLOB=FORM',
    parse: rule,
    help: 'hold the tensors of such names in that form (* and ? stand for others; inspect lists them); may be repeated, the first that fits counts',
  },
  map: { type: 'boolean', help: 'a picture of linear memory too; with --json its rows, as map' },
  stream: {
    type: 'string',
    value: 'MODE',
    help: 'auto: weights that do not fit are read again for each token; off: never (default auto)',
  },
  chunk: { type: 'string', value: 'N', parse: positive, help: 'prompt tokens evaluated in one pass' },
  module: { type: 'string', value: 'NAME', help: 'build to run: auto, base, relaxed or relaxed-mt-64 (default auto)' },
  header: {
    type: 'string',
    multiple: true,
    value: "'N: V'",
    parse: header,
    help: 'HTTP header for a URL; may be repeated',
  },
  timeout: {
    type: 'string',
    value: 'SECONDS',
    parse: seconds,
    help: 'give a URL up after so long without a byte (default 60; 0: never)',
  },
  cache: {
    type: 'string',
    value: 'DIR',
    parse: folder,
    help: "where models from URLs are kept (default: the user's cache folder)",
  },
  'no-cache': { type: 'boolean', help: 'keep nothing of what is downloaded, and use nothing that was kept' },
  verify: { type: 'boolean', help: 'check what is read from the cache; what is damaged is fetched again' },
  sha256: { type: 'string', value: 'HEX', help: 'refuse a model from a URL that has another SHA-256' },
  hub: {
    type: 'string',
    value: 'URL',
    help: 'where hf:owner/repo/file.gguf is fetched: a mirror (default LINEAL_HUB, else the public hub)',
  },
  prompt: { type: 'string', short: 'p', value: 'TEXT', help: 'the text to continue' },
  ids: { type: 'string', value: '1,2,3', parse: ids, help: 'the prompt as token ids, in place of --prompt' },
  'max-tokens': {
    type: 'string',
    short: 'n',
    value: 'N',
    parse: integer,
    help: 'at most so many tokens (default 128)',
  },
  temperature: {
    type: 'string',
    short: 't',
    value: 'T',
    parse: number,
    help: '0, the default, is greedy and reproducible',
  },
  seed: {
    type: 'string',
    short: 's',
    value: 'S',
    parse: integer,
    help: 'seed for temperature above 0 (default 0)',
  },
  'top-k': { type: 'string', value: 'K', parse: integer, help: 'keep the K likeliest (default 40; 0: off)' },
  'top-p': {
    type: 'string',
    value: 'P',
    parse: number,
    help: 'keep the likeliest that reach P (default 0.95; 1: off)',
  },
  'min-p': {
    type: 'string',
    value: 'P',
    parse: number,
    help: 'drop those below P times the likeliest (default 0.05; 0: off)',
  },
  'repeat-penalty': {
    type: 'string',
    value: 'X',
    parse: number,
    help: 'above 1: recent tokens become less likely (default 1: off)',
  },
  'repeat-last-n': {
    type: 'string',
    value: 'N',
    parse: integer,
    help: 'how many tokens are recent (default 64)',
  },
  stop: { type: 'string', multiple: true, value: 'TEXT', help: 'end before this text; may be repeated' },
  'ignore-eos': { type: 'boolean', help: 'go on past the end-of-generation token' },
  'parse-special': { type: 'boolean', help: 'control tokens written in the text become their ids' },
  'no-bos': { type: 'boolean', help: 'do not add the BOS or EOS token that the file asks for' },
  logprobs: { type: 'boolean', help: 'add the log-probability of each token to the JSON' },
  stats: { type: 'boolean', help: 'timings and memory on stderr at the end' },
  text: { type: 'string', value: 'TEXT', help: 'the text' },
  tokens: { type: 'string', value: '1,2,3', parse: ids, help: 'token ids' },
  out: {
    type: 'string',
    short: 'o',
    value: 'FILE',
    help: 'file to write: float32 [n_tok, n_vocab], little endian',
  },
  file: { type: 'string', short: 'f', value: 'FILE', help: 'text file' },
  'bench-prompt': {
    type: 'string',
    short: 'p',
    value: 'N',
    parse: positive,
    help: 'prompt tokens (default 512, less for a shorter context)',
  },
  'bench-tokens': {
    type: 'string',
    short: 'n',
    value: 'N',
    parse: natural,
    help: 'tokens to generate (default 128, less for a shorter context)',
  },
  profile: {
    type: 'boolean',
    help: 'a second run that times each step: a table by kernel; with --json each step of the plan too',
  },
  trace: {
    type: 'string',
    value: 'FILE',
    help: "write what was done, step by step, in Chrome's trace format (ui.perfetto.dev)",
  },
  threads: {
    type: 'string',
    value: 'N|auto',
    parse: threads,
    help: 'threads that compute (default auto; never more than the machine has)',
  },
};

/** Flags of options of the API that have another name there. */
const FLAGS = /** @type {Record<string, string>} */ ({
  'placement.profile': 'host-profile',
  'placement.hold': 'hold',
  'placement.tensors': 'tensor',
  'fetch.headers': 'header',
  'fetch.timeoutMs': 'timeout',
  'cache.directory': 'cache',
  'cache.sha256': 'sha256',
});

/**
 * The error, its message beginning with the flag where it begins with the API's
 * name of an option: the one that was typed.
 * @param {LinealError} error
 */
export function inFlags(error) {
  const { option } = error.detail;
  if (error.code !== 'BAD_ARGUMENT' || typeof option !== 'string') return error;
  const name = option.replace(/\[.*/s, '');
  const flag = FLAGS[name] ?? name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  if (!Object.hasOwn(OPTIONS, flag) || !error.message.startsWith(name)) return error;
  const { code, remedy, detail } = error;
  return new LinealError(code, `--${flag}${error.message.slice(name.length)}`, { remedy, detail, cause: error });
}

/** @param {string} message @param {string} [remedy] */
export function usage(message, remedy) {
  return new LinealError('BAD_ARGUMENT', message, { remedy: remedy ?? 'see lineal --help' });
}

/**
 * @param {string} command
 * @param {readonly string[]} names options that the command has
 * @param {string[]} argv
 * @param {{ required?: readonly string[], words?: number, missing?: string }} [rules]
 * @returns {{ source: string, more: string[], values: Record<string, any>, help: boolean }}
 */
export function parseCommand(command, names, argv, rules = {}) {
  const remedy = `see lineal ${command} --help`;
  const config = Object.fromEntries(
    names.map((name) => {
      const { type, short, multiple } = OPTIONS[name];
      // `default: undefined` is not allowed: leave keys out.
      return [name, { type, ...(short ? { short } : {}), ...(multiple ? { multiple } : {}) }];
    }),
  );
  let parsed;
  try {
    parsed = parseArgs({ args: argv, options: config, allowPositionals: true, strict: true });
  } catch (error) {
    const [text] = messageOf(error).split(/\.\s|\n/);
    const meant = nearest(/^Unknown option '--(.*)'$/.exec(text)?.[1] ?? '', names);
    throw usage(meant === undefined ? text : `${text}; the nearest is --${meant}`, `${remedy}; a value that begins with - is written --option=value`);
  }
  const given = /** @type {Record<string, any>} */ (parsed.values);
  if (given.help) return { source: '', more: [], values: given, help: true };
  const [source, ...more] = parsed.positionals;
  if (source === undefined) throw usage(rules.missing ?? `${command} needs a model: a GGUF file or URL`, remedy);
  const last = more[(rules.words ?? 1) - 1];
  if (last !== undefined)
    throw usage(`${command} takes one model, and '${withoutSecrets(last)}' follows it`, remedy);
  for (const name of rules.required ?? []) {
    if (given[name] === undefined) throw usage(`${command} needs --${name}`, remedy);
  }
  /** @type {Record<string, any>} */
  const values = {};
  for (const [name, value] of Object.entries(given)) {
    const { parse } = OPTIONS[name];
    if (!parse) values[name] = value;
    else values[name] = Array.isArray(value) ? value.map((item) => parse(item, name)) : parse(value, name);
  }
  return { source, more, values, help: false };
}

/**
 * @param {string} command
 * @param {{ usage: string, summary: string, options: readonly string[] }} info
 */
export function commandHelp(command, info) {
  const rows = info.options.map((name) => {
    const { short, value, help } = OPTIONS[name];
    const flags = `${short ? `-${short}, ` : '    '}--${name}${value ? ` ${value}` : ''}`;
    return `  ${flags.padEnd(30)} ${help}`;
  });
  return `lineal ${command} ${info.usage}\n\n${info.summary}\n\nOptions\n${rows.join('\n')}\n`;
}
