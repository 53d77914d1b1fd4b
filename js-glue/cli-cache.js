// `lineal cache`: what is in the cache of models, checked and removed.
import { usage } from './cli-options.js';
import { LinealError, modelCache } from './index.js';

/** @typedef {import('./index.d.ts').CachedModel} CachedModel */
/** @typedef {import('./cli-commands.js').Values} Values */

const ACTIONS = ['list', 'info', 'delete', 'verify', 'clear'];
/** Those that take a model. */
const OF_ONE = ['info', 'delete', 'verify'];

/** @type {import('./cli-commands.js').Command} */
export const CACHE_COMMAND = {
  usage: 'list|info|delete|verify|clear [KEY|URL]',
  summary: 'The models kept on disk: list them, show, remove or check one, remove all.',
  options: ['cache', 'json', 'quiet', 'help'],
  words: 2,
  missing: `cache needs to be told what to do: ${ACTIONS.join(', ')}`,
  run: runCache,
};

/** @param {unknown} value @param {string} text @param {Values} values */
function print(value, text, values) {
  process.stdout.write(values.json ? `${JSON.stringify(value)}\n` : text);
}

/** @param {number} bytes */
const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

/** @param {number} ms */
const day = (ms) => new Date(ms).toISOString().slice(0, 16).replace('T', ' ');

/** @param {CachedModel} model */
function row({ key, name, size, cachedBytes, complete, lastUsed }) {
  const part = complete ? mib(size) : `${mib(cachedBytes)} of ${mib(size)}`;
  return `${key}  ${part.padStart(12)}  ${day(lastUsed)}  ${name}\n`;
}

/** @param {CachedModel} model */
function details(model) {
  const shown = { ...model, created: day(model.created), lastUsed: day(model.lastUsed) };
  return Object.entries(shown)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name.padEnd(13)} ${value}\n`)
    .join('');
}

/**
 * @param {string} action
 * @param {Values} values
 * @param {AbortSignal} _signal
 * @param {string[]} words
 */
async function runCache(action, values, _signal, words) {
  const [model] = words;
  if (!ACTIONS.includes(action)) throw usage(`cache cannot '${action}': it can ${ACTIONS.join(', ')}`);
  if (OF_ONE.includes(action) !== (model !== undefined))
    throw usage(model === undefined ? `cache ${action} needs a key or address` : `cache ${action} takes no model`);
  const place = { directory: values.cache };
  switch (action) {
    case 'list': {
      const models = await modelCache.list(place);
      print({ models }, models.map(row).join('') || 'nothing is cached\n', values);
      return 0;
    }
    case 'info': {
      const info = await modelCache.info(model, place);
      if (!info) throw missing(model);
      print(info, details(info), values);
      return 0;
    }
    case 'delete': {
      if (!(await modelCache.delete(model, place))) throw missing(model);
      print({ removed: 1 }, '', values);
      return 0;
    }
    case 'verify': {
      const result = await modelCache.verify(model, place);
      const damaged = result.damaged.reduce((sum, { bytes }) => sum + bytes, 0);
      const found = damaged ? `${damaged} bytes are damaged, and are fetched again at the next load` : 'all are right';
      print(result, `${result.checkedBytes} bytes checked: ${found}\n`, values);
      return damaged ? 1 : 0;
    }
    default: {
      const removed = await modelCache.clear(place);
      print({ removed }, `${removed} removed\n`, values);
      return 0;
    }
  }
}

/** @param {string} model */
function missing(model) {
  return new LinealError('SOURCE_NOT_FOUND', `there is no cached model '${model.replace(/\?.*/s, '')}'`, {
    remedy: 'see lineal cache list',
  });
}
