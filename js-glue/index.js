// The public API; index.d.ts is its manual.
import { LocalBackend, WorkerBackend } from './backend.js';
import { chooseModule, isPage, probeCapabilities } from './caps.js';
import { LinealError, abortError, badArgument, callbackError, messageOf, throwIfAborted } from './errors.js';
import { hubOption } from './hub.js';
import { memoryMap } from './memory-map.js';
import { Model, Tokenizer } from './model.js';
import { modelCache } from './cache-admin.js';
import { parseByteSize } from './checks.js';
import { cacheOptions, fetchOptions, planOptions } from './options.js';
import { linkedController } from './signals.js';
import { closeParts, describeSource } from './source.js';
import { chromeTrace } from './trace.js';

export { LinealError, chromeTrace, memoryMap, modelCache, parseByteSize };

export const version = '0.1.0';

/** @typedef {import('./index.d.ts').ExplainOptions} ExplainOptions */
/** @typedef {import('./index.d.ts').Source} Source */
/** @typedef {import('./model.js').Backend} Backend */

/**
 * The arguments, checked. What else is thrown meanwhile is of their own making: a getter, a proxy.
 * @param {Source} source
 * @param {ExplainOptions} options
 */
function readArguments(source, options) {
  try {
    const plan = planOptions(options);
    const cache = cacheOptions(options.cache);
    const parts = describeSource(source, { ...fetchOptions(options.fetch), cache }, hubOption(options.hub));
    if (cache && cache.sha256.length > 0 && parts.some(({ kind }) => kind !== 'url'))
      throw badArgument('cache.sha256 is compared for models at addresses only', { option: 'cache.sha256' });
    return { plan, cache, parts };
  } catch (cause) {
    if (cause instanceof LinealError) throw cause;
    throw new LinealError('BAD_ARGUMENT', `the arguments cannot be read: ${messageOf(cause)}`, { cause });
  }
}

/**
 * Checks the arguments, starts the backend, and ends it again if the work fails.
 * @template T
 * @param {Source} source
 * @param {ExplainOptions} options
 * @param {(backend: Backend, parts: import('./source.js').Descriptor[], plan: import('./options.js').PlanOptions,
 *   context: import('./engine.js').EngineContext) => Promise<T>} work
 * @param {boolean} keep whether a success keeps the backend
 * @returns {Promise<T>}
 */
async function withBackend(source, options, work, keep) {
  const { plan, cache, parts } = readArguments(source, options);
  // Only a page may ask; the answer changes nothing now.
  if (cache?.persist && isPage) navigator.storage?.persist?.().catch(() => {});
  const { onProgress } = options;
  throwIfAborted(options.signal);
  const { controller, unlink } = linkedController(options.signal);
  const { signal } = controller;
  /** @type {LinealError | undefined} */ let failed;
  /** @param {import('./index.d.ts').Progress} progress */
  const report = (progress) => {
    if (failed) return;
    try {
      onProgress?.(progress);
    } catch (error) {
      // In a worker nobody could throw it where the work is: end that instead.
      failed = callbackError('onProgress', error);
      controller.abort(failed);
    }
  };
  /** @type {Backend | undefined} */ let backend;
  /** @type {Promise<void> | undefined} */ let loading;
  try {
    backend = (options.worker ?? isPage) ? await WorkerBackend.start() : new LocalBackend();
    const result = await work(backend, parts, plan, { signal, onProgress: onProgress && report });
    throwIfAborted(signal);
    if (!keep) await backend.close();
    loading = plan.overlap && result instanceof Model ? watchWeights(backend, result, signal) : undefined;
    return result;
  } catch (error) {
    await backend?.close().catch(() => {}); // the first error is the one that counts
    await closeParts(parts).catch(() => {});
    throw failed ?? LinealError.from(error);
  } finally {
    if (loading) loading.finally(unlink);
    else unlink();
  }
}

/**
 * Until all weights are there the signal ends their loading; then the info and the warnings are complete.
 * @param {Backend} backend @param {Model} model @param {AbortSignal} signal
 * @returns {Promise<void>} never rejects
 */
function watchWeights(backend, model, signal) {
  const abort = () =>
    backend.abortLoad(signal.reason instanceof LinealError ? signal.reason : abortError());
  signal.addEventListener('abort', abort, { once: true });
  const loaded = backend.weights().then(
    ({ loadMs, loadPhases, warnings }) => {
      Object.assign(model.info, { loadMs, loadPhases });
      const known = model.explanation.warnings;
      known.push(...warnings.filter(({ text }) => !known.some((other) => other.text === text)));
    },
    (error) => {
      throw signal.reason instanceof LinealError ? signal.reason : LinealError.from(error);
    },
  );
  model.loaded = loaded;
  return loaded.catch(() => {}).finally(() => signal.removeEventListener('abort', abort));
}

/** @type {typeof import('./index.d.ts').explain} */
export function explain(source, options = {}) {
  return withBackend(source, options, (backend, ...args) => backend.explain(...args), false);
}

/** @type {typeof import('./index.d.ts').inspect} */
export function inspect(source, options = {}) {
  return withBackend(source, options, (backend, ...args) => backend.inspect(...args), false);
}

/** @type {typeof import('./index.d.ts').open} */
export function open(source, options = {}) {
  return withBackend(
    source,
    options,
    async (backend, ...args) => {
      const { info, explanation } = await backend.open(...args);
      return /** @type {import('./index.d.ts').Model} */ (new Model(backend, info, explanation));
    },
    true,
  );
}

/** @type {typeof import('./index.d.ts').openTokenizer} */
export function openTokenizer(source, options = {}) {
  return withBackend(
    source,
    options,
    async (backend, ...args) => {
      const info = await backend.openTokenizer(...args);
      return new Tokenizer(backend, info.vocabSize);
    },
    true,
  );
}

/** @type {typeof import('./index.d.ts').probeHost} */
export async function probeHost() {
  const host = await probeCapabilities();
  // A page opens models in a worker, which may wait.
  return { ...host, canWait: host.canWait || isPage, module: await chooseModule('auto') };
}
