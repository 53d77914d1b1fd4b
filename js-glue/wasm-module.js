// A module is fetched and compiled, and memory is asked of the engine for it.
import { Core } from './abi.js';
import { WIDE_MODULE, held, physicalBytes, threadsPossible } from './caps.js';
import { LinealError, messageOf } from './errors.js';

/** @typedef {import('./index.d.ts').HostCapabilities} HostCapabilities */

// What the -mt modules import: LNL_THREADS_LINK of cmake/WasmModule.cmake.
const SHARED_PAGES = 8;
// An engine may refuse to set aside as much as there could be.
const SHARED_MAX_PAGES = [65536, 49152, 32768, 24576, 16384, 12288, 8192, 4096];
// The same of the module with 64-bit addresses.
const WIDE_MAX_PAGES = [262144, 196608, 131072, 98304];
const PAGE_BYTES = 65536;
// Every engine gives so much.
const TRIED_FROM_BYTES = 64 * 2 ** 20;
const TRIED_STEPS = 16;
/** What 32-bit addresses reach. */
export const NARROW_BYTES = 2 ** 32;

/** @type {Map<string, Promise<WebAssembly.Module>>} */
const modules = new Map();

/**
 * Compiles once per URL; a failure is not remembered.
 * @param {URL} url
 * @returns {Promise<WebAssembly.Module>}
 */
export function compileModule(url) {
  const known = modules.get(url.href);
  if (known) return known;
  const compiled = compile(url);
  modules.set(url.href, compiled);
  compiled.catch(() => modules.delete(url.href));
  return compiled;
}

/** @param {URL} url */
async function compile(url) {
  let bytes;
  try {
    if (url.protocol === 'file:') {
      const { readFile } = await import('node:fs/promises');
      bytes = await readFile(url);
    } else {
      const response = await fetch(url, { credentials: 'same-origin' });
      if (!response.ok) throw new Error(`HTTP status ${response.status}`);
      const type = response.headers.get('content-type') ?? '';
      // compileStreaming insists on this type; other servers cost one copy of a small file.
      if (type.split(';')[0].trim() === 'application/wasm' && WebAssembly.compileStreaming) {
        return await WebAssembly.compileStreaming(response);
      }
      bytes = await response.arrayBuffer();
    }
  } catch (error) {
    const code = error instanceof WebAssembly.CompileError ? 'WASM_UNSUPPORTED' : 'WASM_UNAVAILABLE';
    throw new LinealError(code, `the module ${url.href} could not be loaded: ${messageOf(error)}`, {
      detail: { url: url.href },
      cause: error,
    });
  }
  try {
    return await held(WebAssembly.compile(bytes));
  } catch (error) {
    throw new LinealError('WASM_UNSUPPORTED', `the engine refused the module ${url.href}: ${messageOf(error)}`, {
      detail: { url: url.href },
      cause: error,
    });
  }
}

/**
 * @typedef {object} MemoryKind
 * @property {boolean} shared for a module with threads
 * @property {boolean} [wide] for the module with 64-bit addresses
 */

/**
 * Throws where the engine does not give it.
 * @param {number} initial pages @param {number} maximum @param {MemoryKind} kind
 */
function newMemory(initial, maximum, { shared, wide }) {
  const sharing = shared ? { shared } : {};
  const limits = wide
    ? { initial: BigInt(initial), maximum: BigInt(maximum), address: 'i64', ...sharing }
    : { initial, maximum, ...sharing };
  return new WebAssembly.Memory(/** @type {WebAssembly.MemoryDescriptor} */ (limits));
}

/**
 * A memory for a module with threads, as large as the engine allows; undefined where it allows none.
 * @param {boolean} [wide] for the module with 64-bit addresses
 * @returns {{ memory: WebAssembly.Memory, maxBytes: number } | undefined} maxBytes 0: the whole address space
 */
export function sharedMemory(wide = false) {
  const most = wide ? WIDE_MAX_PAGES : SHARED_MAX_PAGES;
  for (const maximum of most) {
    try {
      const memory = newMemory(SHARED_PAGES, maximum, { shared: true, wide });
      return { memory, maxBytes: maximum === most[0] ? 0 : maximum * PAGE_BYTES };
    } catch {
      // Try a smaller one.
    }
  }
  return undefined;
}

/**
 * How much memory the engine gives of the bytes asked for: all of them, or, stepping down by
 * sixteenths, what it gives first. Nothing is written to it, so that it takes no room but in the
 * address space, and it is let go at once.
 * @param {number} bytes a whole number of pages
 * @param {MemoryKind} kind
 */
export function memoryGiven(bytes, kind) {
  if (bytes < TRIED_FROM_BYTES) return bytes;
  for (let step = TRIED_STEPS; step > 0; step--) {
    const pages = Math.floor((bytes / PAGE_BYTES) * (step / TRIED_STEPS));
    try {
      newMemory(pages, pages, kind);
      return pages * PAGE_BYTES;
    } catch {
      // Step down.
    }
  }
  return TRIED_FROM_BYTES;
}

/**
 * Fetches and compiles the module; what it gives makes a core of it.
 * @param {import('./options.js').ModuleName} name @param {HostCapabilities} host
 * @param {import('./options.js').PlanOptions} options
 * @returns {Promise<(capabilities: HostCapabilities) => Promise<Core>>}
 */
export async function startModule(name, host, options) {
  const wide = name === WIDE_MODULE;
  const shared = wide || threadsPossible(host, options.threads) ? sharedMemory(wide) : undefined;
  if (wide && !shared) {
    throw new LinealError('OUT_OF_MEMORY', 'this engine gives no memory with 64-bit addresses at present', {
      remedy: 'close other models or pages, or set a memory budget below 4 GiB',
    });
  }
  const file = `lineal-${name}${shared && !wide ? '-mt' : ''}.wasm`;
  const module = await compileModule(new URL(file, options.wasmBaseUrl));
  const physical = await physicalBytes();
  return async (capabilities) => {
    const core = await Core.create(module, capabilities, options.threads, shared?.memory);
    if (shared?.maxBytes) core.setCeiling(shared.maxBytes);
    // What there is of it counts where there can be more than 32-bit addresses reach.
    if (physical > 0 && (wide || capabilities.memory64))
      core.setCeiling(wide ? physical : Math.max(physical, NARROW_BYTES));
    return core;
  };
}
