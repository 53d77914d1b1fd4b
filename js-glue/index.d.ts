/**
 * lineal: run GGUF language models in WebAssembly, with every byte accounted
 * for before it is fetched. This file is the manual of the JavaScript API.
 *
 * ```js
 * import { explain, open } from 'lineal';
 *
 * const plan = await explain('model.gguf', { memory: '1GiB' });
 * console.log(plan.text);                    // where each byte will live
 *
 * const model = await open('model.gguf');
 * for await (const piece of model.generate('In the beginning')) {
 *   process.stdout.write(piece);
 * }
 * await model.close();
 * ```
 *
 * Every failure is a `LinealError` with a code, a message that names the thing
 * at fault, and a remedy. Nothing here prints, exits or reads the environment
 * (but for the place of the user's cache folder, where Node is to use it).
 */

// --- sources -----------------------------------------------------------------

/**
 * Bytes that you provide yourself. `read` is asked for at most 4 MiB at a time,
 * and may return fewer bytes than asked for, but at least one before the end:
 * with a `size`, it is asked again three times within 1.5 seconds.
 * What it throws rejects with SOURCE_READ and is that error's `cause`. In worker
 * mode both functions still run on the thread that called `open`.
 */
export interface CustomSource {
  /** Whole size in bytes; leave it out when it is unknown. 0 is that of an empty source, which holds no model. */
  size?: number;
  /** Shown in messages. Default: 'custom source'. */
  name?: string;
  read(offset: number, length: number): Uint8Array | Promise<Uint8Array>;
  /**
   * Called once, when nothing will be read any more: by `close()` of what was
   * opened, at the end of `explain` and `inspect`, and after a failure. Not when
   * the arguments themselves are refused.
   */
  close?(): void | Promise<void>;
}

/**
 * One file. A string is a URL, in Node also a path, or `hf:owner/repo/file.gguf`:
 * a file of a repository on the model hub (`hf:owner/repo/file.gguf@revision`
 * for another revision than main; see the option `hub`). A file handle is read
 * through its file. A ReadableStream is read once, forwards, and serves one call:
 * give `open` another one than `explain`.
 */
export type SingleSource =
  | string | URL | Blob | ArrayBuffer | Uint8Array | FileSystemFileHandle | ReadableStream<Uint8Array> | CustomSource;

/**
 * Where the model is. For a split model give the first part's path or URL
 * (`name-00001-of-00003.gguf`: the others are found beside it), or an array of
 * all parts, of any kind; `files` of an input or of a drop will do. Parts with
 * such names may come in any order.
 */
export type Source = SingleSource | readonly SingleSource[] | FileList;

/**
 * How URLs are fetched. A cut or stalled connection is taken up again, up to 3
 * times; the answers 408, 429, 500, 502, 503 and 504 too, after what Retry-After
 * says, at most 30 seconds. Before the first answer a server that stays silent
 * is asked twice, and one that cannot be found or refuses connections once.
 * Redirects are followed, and later requests go straight to where they led. An
 * address with a user name or password in it is refused.
 */
export interface FetchOptions {
  /**
   * Added to every request to the address's own origin, for example
   * `{ Authorization: 'Bearer ...' }`. They are in no message. Where a redirect
   * leads to another origin they are left out; in a browser only Authorization
   * is, in the first request, which the browser redirects by itself.
   */
  headers?: Record<string, string>;
  /** Default: 'same-origin'. */
  credentials?: 'omit' | 'same-origin' | 'include';
  /** Milliseconds without one byte after which a connection counts as dead (NETWORK_TIMEOUT). Default: 60000; 0: never. */
  timeoutMs?: number;
}

/** Token ids: whole numbers. They are copied when the call is made. */
export type TokenIds =
  | readonly number[]
  | Int8Array | Uint8Array | Uint8ClampedArray | Int16Array | Uint16Array | Int32Array | Uint32Array
  | Float32Array | Float64Array;

// --- options -----------------------------------------------------------------
// Keys that are not listed here are refused with BAD_ARGUMENT: a misspelt
// option never passes for one left out. So is a number out of its range, before
// anything is read: the error's detail has `option`, `least`, `most` and `given`.
// Counts and sizes begin at 1 unless 0 is said to mean something.

/** What the machine can do. Probed; overridden here to plan for another one. */
export interface HostCapabilities {
  kind: 'browser' | 'node' | 'wasi' | 'native';
  /** It maps files instead of reading them, as native hosts do: for `explain` only. */
  canMap: boolean;
  canGrow: boolean;
  /** There can be more than 4 GiB: the engine runs 'relaxed-mt-64', and the machine has as much, as far as it tells. */
  memory64: boolean;
  syncRead: boolean;
  rangeRead: boolean;
  /** Memory can be shared: always in Node, in a browser on cross-origin isolated pages. */
  isolated: boolean;
  /** The thread that computes may wait for others; the main thread of a page may not. */
  canWait: boolean;
  /** Hardware threads, 1 to 65536. */
  threads: number;
  /** Ceiling of linear memory in bytes; 0: only the address space limits it. */
  maxMemoryBytes: number;
}

/** Bytes, or a text such as '2GiB', '512 MiB', '100kb'. KB, MB, GB and KiB, MiB, GiB are all accepted: K = 1000, Ki = 1024. */
export type ByteSize = number | string;

/**
 * How the KV cache is held: 'auto', one type, or one for keys and one for
 * values. (One of f32 and f16 beside one of q8_0 and q4_0 costs more time than
 * any other pair: what is in blocks is made floats as it is read.) 'auto' is
 * f32 while that takes no more than 32 MiB, else f16. Where that does not fit it
 * is f16, and if the profile allows, q8_0; the explanation's `kv_reason` says
 * which it was.
 */
export type KvType =
  | 'auto' | 'f32' | 'f16' | 'q8_0' | 'q4_0'
  | { k: 'f32' | 'f16' | 'q8_0' | 'q4_0'; v: 'f32' | 'f16' | 'q8_0' | 'q4_0' };

/**
 * What suits a kind of place to run on. 'auto': that of the host.
 *
 * | | KV cache on 'auto' | chunk | forms | refuses | budget without `memory` |
 * |---|---|---|---|---|---|
 * | browser | f32 or f16, q8_0 to fit | 128 | fastest | | the machine's |
 * | phone | f16, q8_0 to fit | 32 | none larger than stored | large matrices without an integer kernel (UNSUPPORTED_TYPE) | 1 GiB |
 * | node, native | f32 or f16 | 128 | fastest | | the machine's |
 */
export type Profile = 'auto' | 'browser' | 'phone' | 'node' | 'native';

/**
 * How a weight is held: 'stored', the file's own blocks; 'x8', eight rows
 * interleaved, which its kernel reads fastest; 'f32' or 'f16', dequantised while
 * it loads. 'auto': the core decides.
 */
export type Hold = 'auto' | 'stored' | 'x8' | 'f32' | 'f16';

/**
 * What is asked for goes before what the core would choose: `tensors` before
 * `hold` before `profile`. What cannot be met (x8 of a type that has no such
 * form, anything but f32 for norms and biases) is passed over, and the tensor's
 * `reasons` say so.
 */
export interface PlacementOptions {
  profile?: Profile;
  /** For all weights. */
  hold?: Hold;
  /**
   * By name: `{ 'blk.*.ffn_down*': 'stored' }`. `*` stands for any characters,
   * `?` for one; the first that matches counts. One that matches no tensor is
   * refused (BAD_ARGUMENT).
   */
  tensors?: Record<string, Exclude<Hold, 'auto'>>;
}

/**
 * How far `open` is. `compile`: fetching and compiling the module, told once;
 * `header`: the description of the model; `weights`: its numbers.
 */
export interface Progress {
  phase: 'compile' | 'header' | 'weights';
  /** Bytes so far. Never falls within a phase and never passes `total`. */
  loaded: number;
  /** Bytes of the phase; `undefined` where not known yet (header). */
  total: number | undefined;
  /** Where the last bytes came from; undefined for files and bytes of your own. */
  from?: 'cache' | 'network';
  /** How fast they came in the last 4 seconds; `undefined` in the first quarter of a second. */
  bytesPerSecond?: number;
  /** How long the rest of the phase takes at that rate; `undefined` where that cannot be said. */
  remainingMs?: number;
}

/** How far `generate` is with the prompt. */
export interface PrefillProgress {
  phase: 'prefill';
  /** Tokens of the prompt that are evaluated, beyond those reused. */
  loaded: number;
  total: number;
}

// --- cache -------------------------------------------------------------------

/**
 * What is kept of models from http and https addresses. Bytes go to disk while
 * they are downloaded, in extents of up to 4 MiB, each with its SHA-256; what
 * ends the process or the tab costs at most the last one of them. Nothing is
 * believed before the header was read and found sound. A model that is whole on
 * disk is opened without a request, offline too, and read straight into linear
 * memory; of one with holes the server is asked for the rest, and where its
 * ETag, Last-Modified or size have changed, the old part is dropped. Several
 * tabs or processes share one download: one fetches, the others read what it has
 * written. Where it writes nothing for 6 seconds, they read from the network and
 * keep nothing (CACHE_BUSY), until it goes on or ends. Where there is no cache,
 * or no room, the model runs without, and `explanation.warnings` says why (codes
 * CACHE_...).
 *
 * In a browser it is the origin's private file system: pages need https or
 * localhost. Where files cannot be written (outside of a worker, older browsers)
 * it is the Cache API, which reads and writes more slowly.
 */
export interface CacheOptions {
  /** Node: the folder. Default: `lineal` in the user's cache folder (XDG_CACHE_HOME, ~/Library/Caches, LOCALAPPDATA). */
  directory?: string;
  /**
   * Check each extent when it is read; a damaged one is fetched again. It costs
   * a SHA-256 of all bytes, by WebCrypto: some seconds a gigabyte. Default: false.
   */
  verify?: boolean;
  /**
   * Ask the server, with one small request, whether a complete model has
   * changed; where it cannot be asked, the copy is used, with the warning
   * CACHE_NOT_REVALIDATED. Default: false: what is whole stays as it is.
   */
  revalidate?: boolean;
  /**
   * SHA-256 of the file in hex; of a split model, of each part. It is computed
   * once the model is whole (in browsers in the model's worker: some seconds a
   * gigabyte), and another one rejects with SOURCE_CHECKSUM.
   * Includes `required`.
   *
   * Where none is given, and the server states one (Repr-Digest, X-Linked-ETag,
   * X-Checksum-Sha256): Node compares it when the download is complete. Browsers
   * do so only with `verify`, because there it costs 5 to 6 seconds a gigabyte:
   * without `verify` or `sha256` a browser does not check what the server states.
   */
  sha256?: string | readonly string[];
  /**
   * For all models together: those used least recently make room for one that is
   * downloaded, but none that is open or being downloaded. A model that is larger,
   * or for which that makes too little room, runs uncached (CACHE_FULL). Above 0;
   * default: no limit but the disk's.
   */
  maxBytes?: ByteSize;
  /**
   * Reject with CACHE_FULL or CACHE_UNAVAILABLE rather than run uncached; one that downloads and writes nothing is
   * waited for for a minute. Default: false.
   */
  required?: boolean;
  /** Browsers: ask that the storage be kept when the disk gets full; some ask the user. Default: false. */
  persist?: boolean;
}

/** A model in the cache; each part of a split one by itself. */
export interface CachedModel {
  key: string;
  /** Its address, without a query. */
  name: string;
  size: number;
  /** How much of it is there, and believed. */
  cachedBytes: number;
  complete: boolean;
  extents: number;
  etag?: string;
  lastModified?: string;
  /** Of the whole, where `sha256` was given once. */
  sha256?: string;
  /** Milliseconds since 1970. */
  created: number;
  lastUsed: number;
}

export interface CachePlace {
  /** As in `CacheOptions`. */
  directory?: string;
}

/** The cache itself. A model is named by its key or its address. */
export const modelCache: {
  /** The last used first. What is in the folder and not of the cache is passed over, here and by `clear`. */
  list(place?: CachePlace): Promise<CachedModel[]>;
  info(model: string | URL, place?: CachePlace): Promise<CachedModel | undefined>;
  /** False: it was not there. Rejects with BUSY while another tab or process uses it. */
  delete(model: string | URL, place?: CachePlace): Promise<boolean>;
  /** Checks what is there; damaged extents are dropped, so that the next load fetches them again. */
  verify(
    model: string | URL,
    place?: CachePlace,
  ): Promise<{ key: string; checkedBytes: number; damaged: { offset: number; bytes: number }[] }>;
  /** Removes all, copies that were only begun too, and returns how many; rejects with BUSY if some had to stay. */
  clear(place?: CachePlace): Promise<number>;
};

// --- options of explain and open ----------------------------------------------

/** Options of `explain`. */
export interface ExplainOptions {
  /**
   * Context length in tokens; 'max': the largest that fits with all weights in
   * memory, at most the model's own, or the default one where even that fits only
   * by streaming (which a longer one would make slower). More than 4 GiB are taken for it only where `memory` (or
   * `host.maxMemoryBytes`) says so, or the model needs more with the default
   * context. Default: the smaller of the model's own and 2048.
   */
  context?: number | 'max';
  /** Memory budget, above 0. Default: none beyond what the machine gives. */
  memory?: ByteSize;
  /** Type of the KV cache. Default: 'auto', the core decides and says why. */
  kvType?: KvType;
  /** In which form each weight is held. Default: the core decides. */
  placement?: PlacementOptions;
  /** Prompt tokens evaluated in one pass, 1 to 1048576. Default: the core decides. */
  chunk?: number;
  /** Keep the logits of every prompt position, for `evaluate`. Default: false. */
  allLogits?: boolean;
  /**
   * Vectors of texts instead of logits, for `embed`. Default: false, and always
   * so for models that have no output (BERT and its kin). The context is then
   * 512 unless given, where a text must be seen as a whole.
   */
  embeddings?: boolean;
  /**
   * What to do with a model larger than the memory allowed. 'auto', the default:
   * weights for which there is no room stay in the source, and pass through a
   * window of memory each time they are needed: once for each token, and once
   * for each chunk of a prompt. The explanation then has `streaming` and the
   * warning STREAMED. The results are those of the same model in enough memory,
   * to the bit. The source must be readable at any offset until `close`; where it
   * fails meanwhile, the call rejects (SOURCE_READ, NETWORK, SOURCE_TRUNCATED ...)
   * and the next one reads again. 'off': such a model does not fit.
   */
  stream?: 'auto' | 'off';
  /**
   * Most bytes of that window, above 0; a few rows of each of those weights always fit. Default: as many as make
   * reading fast.
   */
  streamWindow?: ByteSize;
  /**
   * Which build to run. Default: 'auto', 'relaxed' where the engine has relaxed
   * SIMD switched on. On Node 20, asking for 'relaxed' sets the V8 flags that it
   * needs, which hold for the whole process. 'auto' becomes 'relaxed-mt-64', with
   * 64-bit addresses, only when the plan needs more than 4 GiB (with all weights in
   * memory) and may have it: see `address` of the explanation. Its results are those
   * of 'relaxed' to the bit; it is slower, most in prompts.
   */
  module?: 'auto' | ModuleName;
  /**
   * How many threads compute. Default: 'auto', all of up to 4 hardware threads,
   * at most 8 of more. A number, 1 to 65536, is obeyed up to what the machine has; what was
   * made of it, and why, is in the explanation (`threads`, `threads_reason`,
   * `warnings`). It is 1 where memory cannot be shared: in a page that is not
   * cross-origin isolated, or with `worker: false` on a page's main thread. The
   * results do not depend on it. Should the workers not start within 10
   * seconds, the model runs on 1 thread and its explanation says so; one that
   * dies later makes every call fail with THREAD_LOST.
   */
  threads?: number | 'auto';
  /** Overrides of the probed capabilities. */
  host?: Partial<HostCapabilities>;
  /**
   * Run in a worker. Default: true in a browser page, false elsewhere. In Node the worker keeps the
   * program alive until the model is closed.
   */
  worker?: boolean;
  /** Rejects with the code ABORTED. */
  signal?: AbortSignal;
  /** If it throws, the work ends and rejects with CALLBACK_FAILED; its error is the `cause`. */
  onProgress?: (progress: Progress) => void;
  fetch?: FetchOptions;
  /**
   * Keep models from http and https addresses, and open them from disk. Default:
   * 'auto': in browsers yes, in Node no (but the command line does). A text is
   * the folder, in Node.
   */
  cache?: 'auto' | boolean | (string & {}) | CacheOptions;
  /** Where `hf:` addresses are fetched: a mirror of the model hub. Default: 'https://huggingface.co'. */
  hub?: string | URL;
  /**
   * `open` resolves as soon as memory is taken, while the weights still arrive;
   * `generate` and the like may be called at once, and run the prompt through
   * each layer as soon as that layer is there, so that the first token follows
   * the last byte. The weights are then fetched in the order of the layers
   * (what comes before them first, the output last), a few ranges at a time;
   * from a source that is read forwards only, in the order of the file. What
   * fails meanwhile rejects `loaded` and whatever is called, with the same
   * errors; `signal` ends the loading too, and so does `close`. A prompt
   * overlaps as a whole if it is one chunk: with neither `chunk` nor `memory`
   * given, chunks are up to 512 tokens long if that fits. Results are the same
   * to the bit. Default: false.
   */
  overlap?: boolean;
  /** Where the .wasm files lie, with trailing slash, if not in the package's own dist/. */
  wasmBaseUrl?: string | URL;
}

/** Options of `open`: those of `explain`. A model is planned first and opened only if it fits. */
export type OpenOptions = ExplainOptions;

/** Options of `inspect` and `openTokenizer`. */
export type HeaderOptions = Pick<
  ExplainOptions,
  'module' | 'host' | 'worker' | 'signal' | 'onProgress' | 'fetch' | 'cache' | 'hub' | 'wasmBaseUrl'
>;

// --- explain -----------------------------------------------------------------

export interface Reason {
  code: string;
  text: string;
}

/** In linear memory; in the mapped file (native hosts); or in the source, whenever they are needed. */
export type Domain = 'HEAP' | 'MAPPED' | 'STREAMED';

/** How long something lives. */
export type Scope = 'model' | 'session' | 'step' | 'scratch';

/** A build of the engine, as in the option `module`. */
export type ModuleName = 'base' | 'relaxed' | 'relaxed-mt-64';

/** Where one tensor will live and why: the record that the loader obeys. */
export interface TensorPlacement {
  name: string;
  /** As the file has it: 'Q4_K', 'F32' and so on. */
  type: string;
  /** Innermost dimension first. */
  shape: number[];
  domain: Domain;
  scope: Scope;
  form: Exclude<Hold, 'auto'>;
  stored_bytes: number;
  resident_bytes: number;
  kernel: string;
  /** Who had the last word on the form. */
  decided_by: 'tensor' | 'uniform' | 'profile' | 'resolver';
  /** Each condition that spoke for or against something, in the order in which they were found. */
  reasons: Reason[];
}

/** One way to make the model fit. */
export interface Suggestion {
  code: string;
  text: string;
  saves_bytes: number;
  /** Whether this one alone makes it fit. */
  sufficient: boolean;
}

export interface MemoryLine {
  name:
    | 'weights' | 'weights_mapped' | 'kv' | 'slab' | 'scratch' | 'header' | 'tables' | 'weights_streamed' | 'window'
    | 'staging' | 'module' | 'total';
  bytes: number;
  text: string;
}

/** Weights that stay in the source and pass through a window of memory: tensors with the domain 'STREAMED'. */
export interface Streaming {
  tensors: number;
  stored_bytes: number;
  /** Read again for each token; of a mixture of experts, if no expert is found in memory. */
  bytes_per_token: number;
  /** All of it: slots, and rows on their way into a kernel. */
  window_bytes: number;
  slot_bytes: number;
  slots: number;
  /** How many matrices of experts are kept, those used last, and the bytes of one. */
  expert_places: number;
  expert_bytes: number;
  /** How fast the source was read while the model was opened; null: not known. */
  read_bytes_per_s: number | null;
  /** What that allows if computing costs nothing. */
  expected_tokens_per_s: number | null;
}

/** The host that was planned for: `HostCapabilities` in the core's words. */
export interface ExplainedHost {
  kind: 'browser' | 'node' | 'wasi' | 'native';
  can_map: boolean;
  can_grow: boolean;
  memory64: boolean;
  sync_read: boolean;
  range_read: boolean;
  isolated: boolean;
  can_wait: boolean;
  threads: number;
  max_memory_bytes: number;
}

/** What the header says of the model. */
export interface ExplainedModel {
  name: string;
  architecture: string;
  n_layer: number;
  d_model: number;
  d_ff: number;
  n_head: number;
  n_kv_head: number;
  d_head: number;
  n_vocab: number;
  n_ctx_train: number;
  /** The output layer is the table of embeddings. */
  tied_output: boolean;
  tokenizer: 'none' | 'spm' | 'bpe' | 'wordpiece' | 'unigram';
  /** Files that it consists of. */
  shards: number;
}

/** The plan, as the core made it from the header alone. */
export interface Explanation {
  fits: boolean;
  /** Tokens planned for. */
  context: number;
  /**
   * The largest context that fits in `limit_bytes` this way: with all weights in
   * memory, or, where `streaming` is there, with weights streamed (less for a longer
   * context). So it can be larger under a budget that must stream. 0: none fits.
   */
  max_context: number;
  /** 'f16', or 'q8_0/q4_0' where keys and values differ. */
  kv_type: string;
  kv_reason: Reason;
  profile: Exclude<Profile, 'auto'>;
  chunk: number;
  host: ExplainedHost;
  /** The build that made the plan and would run it; with more than one thread in its `-mt` form. */
  module: ModuleName;
  /**
   * How wide the addresses are, how wide they should be, and why. `code`: FITS_32;
   * NEEDS_64, which `open` follows; NO_MEMORY64, the host has none (weights are then
   * streamed, or the suggestion MEMORY64 is made); NOT_ALLOWED, more than may be used
   * is needed, by the budget or because the engine gave no larger memory; ASKED_FOR,
   * with `module`; NATIVE.
   */
  address: { bits: 32 | 64; chosen_bits: 32 | 64 } & Reason;
  /** How many compute. */
  threads: number;
  /** 0: 'auto'. */
  threads_asked: number;
  threads_reason: Reason;
  model: ExplainedModel;
  total_bytes: number;
  /**
   * The smallest of budget, machine and address space; null: none known. With a budget above 4 GiB the address
   * space is that of 64 bits where the host has it, whatever this plan takes.
   */
  limit_bytes: number | null;
  /**
   * Which of them that is: BUDGET, PROFILE, HOST (`host.maxMemoryBytes`), ADDRESS_SPACE, or PROBED: a plan
   * that fits otherwise, and takes 64 MiB or more, is tried before that is said. Memory of its size is asked
   * of the engine, written to by nobody and let go; where the engine refuses, less and less is asked for, and
   * what it gives first is the limit, under which it is planned again. Planning for another machine, with
   * `host`, tries nothing.
   */
  limit_reason: Reason;
  /** When weights stay in the source. */
  streaming?: Streaming;
  memory: MemoryLine[];
  /** What linear memory will hold, in the order in which it is taken; for `memoryMap`. */
  regions: MemoryRegion[];
  tensors: TensorPlacement[];
  suggestions: Suggestion[];
  warnings: Reason[];
  /** What reading the header cost; `cached_bytes` of `bytes_read` came from the cache. */
  source: { bytes_read: number; requests: number; cached_bytes: number };
  /** The same for people. */
  text: string;
}

/** Metadata and tensors of the file as they stand in it; long arrays are cut. */
export interface Inspection {
  version: number;
  alignment: number;
  data_offset: number;
  shards: number;
  /** A value as it is; of an array how long it is, and its first items. */
  metadata: {
    key: string;
    type: string;
    value?: string | number | boolean | null;
    item_type?: string;
    item_count?: number;
    first_items?: (string | number | boolean | null)[];
  }[];
  tensors: {
    name: string;
    type: string;
    type_id: number;
    shape: number[];
    offset: number;
    bytes: number;
    shard: number;
  }[];
  /** The same for people. */
  text: string;
}

/**
 * Plans without loading: reads the header and at most 1 MiB beyond it.
 * A model that does not fit is no error here: see `fits` and `suggestions`.
 * What could not run with any memory is one: a context longer than the model's
 * own (CONTEXT_TOO_LONG), a vocabulary-only file (NO_WEIGHTS), an architecture
 * or a type that is not supported.
 */
export function explain(source: Source, options?: ExplainOptions): Promise<Explanation>;

/** Reads the header of any sound GGUF, whatever its architecture. */
export function inspect(source: Source, options?: HeaderOptions): Promise<Inspection>;

// --- open and generate -------------------------------------------------------

/**
 * Loads a model. Rejects before any weight is fetched when the header shows
 * that it cannot run; code DOES_NOT_FIT has the detail
 * `{ needed_bytes, budget_bytes, suggestions }`.
 */
export function open(source: Source, options?: OpenOptions): Promise<Model>;

export interface TokenizeOptions {
  /** Add BOS and EOS where the file asks for them. Default: true. */
  addSpecial?: boolean;
  /** Control tokens written in the text become their ids. Default: false: they are plain text. */
  parseSpecial?: boolean;
}

export interface GenerateOptions {
  /** At most this many tokens; 0: only the prompt is evaluated. Default: 128, and never past the context. */
  maxTokens?: number;
  /** 0, the default, is greedy: the same prompt always gives the same text. */
  temperature?: number;
  /** Keep the k likeliest. Default 40; 0: off. Used only with temperature > 0. */
  topK?: number;
  /** Keep the likeliest whose probabilities reach p: above 0, at most 1. Default 0.95; 1: off. Only with temperature > 0. */
  topP?: number;
  /** Drop those below minP times the likeliest. Default 0.05; 0: off. Only with temperature > 0. */
  minP?: number;
  /** Above 1 makes recent tokens less likely. Default 1: off. */
  repeatPenalty?: number;
  /** How many recent tokens that looks at; 0: none. Default 64. */
  repeatLastN?: number;
  /** Integer from 0 to 2^32 - 1. Default 0: sampling too is reproducible unless asked otherwise. */
  seed?: number;
  /** End quietly within one token, or one chunk of the prompt, with finishReason 'aborted': what was generated is kept, nothing is thrown. */
  signal?: AbortSignal;
  /** Called for every token, before its text is given out. If it throws, the generation ends with CALLBACK_FAILED. */
  onToken?: (token: { id: number; index: number; logprob?: number }) => void;
  /** Called while the prompt is evaluated, after each chunk. If it throws, the generation ends with CALLBACK_FAILED. */
  onProgress?: (progress: PrefillProgress) => void;
  /** End before any of these texts; text is held back only while it could still become one of them. */
  stop?: string | readonly string[];
  /** Control tokens in the prompt become their ids. Default: false. */
  parseSpecial?: boolean;
  /** Add BOS to the prompt where the file asks for it. Default: true. Text prompts only. */
  addSpecial?: boolean;
  /** Give out control tokens as text too. Default: false. */
  showSpecial?: boolean;
  /** Go on past end-of-generation tokens. Default: false. */
  ignoreEos?: boolean;
  /** Record the log-probability of each token. Default: false. */
  logprobs?: boolean;
  /** Reuse what the KV cache holds of this prompt's beginning. Default: true. */
  reuse?: boolean;
  /**
   * Time each step of the plan; the result then has `stats`. The tokens are the
   * same; each step costs one or two microseconds more, and several threads meet
   * after each, which can double the time. 'trace' also keeps each event, for `chromeTrace`: 40 bytes each,
   * the first million. Default: false, which costs nothing.
   */
  profile?: boolean | 'trace';
}

export interface Timings {
  /** From `open` to the last weight in place. */
  loadMs: number;
  /** Evaluating the prompt, without waiting for weights (`overlap`). */
  prefillMs: number;
  /** From `generate` to the first token. */
  firstTokenMs: number;
  /** From the first token to the last. */
  decodeMs: number;
  /** Prompt tokens evaluated per second. */
  prefillTps: number;
  /** Tokens per second after the first. */
  decodeTps: number;
}

/**
 * The lines that the plan decides. They do not add up to `total`: that also
 * counts the module's own data and the rounding to pages of 64 KiB.
 */
export interface MemoryTable {
  weights: number;
  kv: number;
  /** Activations of one step. */
  slab: number;
  /** What kernels and threads work in. */
  scratch: number;
  /** Through which streamed weights pass. */
  window: number;
  /** Tokenizer, plan and the like. */
  tables: number;
  /** All of linear memory. */
  total: number;
}

/** Bytes: what the plan said and what was really taken. */
export interface MemoryReport {
  planned: MemoryTable;
  measured: MemoryTable;
}

/** Sums over calls. */
export interface Figures {
  /** Times it ran. */
  calls: number;
  /** Milliseconds in all, with what crossing the border to wasm costs: about a quarter of a microsecond a call. */
  ms: number;
  /** Per cent of the time of all steps of the phase. */
  share: number;
  /**
   * Bytes of weights read, once a call; of the rows looked up (embed); of the
   * keys and values attended to (attn) or written (kv_store), in the cache's
   * own type; of a mixture of experts as many matrices as its tokens can have
   * chosen. Activations are not counted.
   */
  bytes: number;
  /** 10^9 of those bytes a second; what lies in caches may pass the memory's speed. */
  gbPerS: number;
  /** 10^9 multiplications and additions a second, of matrix products; else 0. */
  gops: number;
}

/** One step of the plan. */
export interface StepStats extends Figures {
  /** Evaluating the prompt, or the tokens after it. */
  phase: 'prefill' | 'decode';
  /** Place in the plan. */
  step: number;
  op: string;
  /** Undefined outside of the layers. */
  layer?: number;
  /** Name, type, form and kernel of its weight, as in `TensorPlacement`, if it has one. */
  weight?: string;
  type?: string;
  form?: string;
  kernel?: string;
}

/** The steps of a phase that have an op, or an op and a kind of weight, in common. */
export interface GroupStats extends Figures {
  phase: 'prefill' | 'decode';
  op: string;
  type?: string;
  form?: string;
  kernel?: string;
  /** How many steps of the plan. */
  steps: number;
}

export interface PhaseStats {
  /** As in `Timings`: the steps, sampling, and what lies between. */
  ms: number;
  /** In the steps. */
  stepMs: number;
  /** Choosing tokens. The first token's belongs to neither phase. */
  sampleMs: number;
  /** Tokens evaluated. */
  tokens: number;
  /** Runs of the plan, each over one token or a chunk of the prompt. */
  passes: number;
}

/**
 * Where the time of a generation went. The clock of a page that is not
 * cross-origin isolated has steps of 0.1 ms or more, which is longer than most
 * steps: the sums over many calls are right, single events of a trace are not.
 */
export interface ProfileStats {
  phases: { prefill: PhaseStats; decode: PhaseStats };
  /** Each step that ran, prefill first, in the order of the plan. */
  steps: StepStats[];
  /** Summed by op; prefill first, the longest first. */
  ops: GroupStats[];
  /** Summed by op and by type, form and kernel of the weight. */
  kernels: GroupStats[];
  /** What `chromeTrace` reads, with `profile: 'trace'`. */
  trace?: {
    events: Float64Array;
    dropped: number;
    memoryBytes: number[];
    allocations: number[];
    fetches: Float64Array;
  };
}

/** One event of Chrome's trace format. */
export interface TraceEvent {
  name: string;
  /** 'X': from `ts` on for `dur`; 'i': a moment; 'C': a counter; 'M': a name. */
  ph: 'X' | 'i' | 'C' | 'M';
  pid: number;
  tid: number;
  /** Microseconds since `open`. */
  ts: number;
  dur?: number;
  cat?: string;
  s?: 't';
  args: Record<string, unknown>;
}

/**
 * A file for ui.perfetto.dev or chrome://tracing, as an object to be written as
 * JSON: what opening the model and these generations of it (run with
 * `profile: 'trace'`) did. Tracks: phases and steps; memory, each region as it is taken, each reset of the
 * slab, the size of linear memory and the calls of the allocator; fetch, the bytes that were read: those of
 * opening the model come with the first generation that is traced.
 */
export function chromeTrace(
  model: Pick<Model, 'info' | 'explanation'>,
  results: readonly GenerationResult[],
): { traceEvents: TraceEvent[]; displayTimeUnit: 'ms'; otherData: Record<string, string | number> };

export interface GenerationResult {
  /** The continuation, without the prompt: all pieces joined. */
  text: string;
  /** Generated ids; the id that ended the generation is not among them. */
  tokens: number[];
  promptTokens: number[];
  /** How many of the prompt's tokens were still in the KV cache. */
  reusedTokens: number;
  finishReason: 'eos' | 'length' | 'stop' | 'aborted' | 'context_full';
  timings: Timings;
  memory: MemoryReport;
  /** Calls of the core's allocator while decoding: 0. */
  decodeAllocations: number;
  /** Times that linear memory grew while decoding: 0. */
  memoryGrows: number;
  /**
   * What was read of weights that stay in the source, and the time spent reading
   * (with several threads the others compute meanwhile): of the whole generation,
   * and of the tokens after the first.
   */
  streaming?: {
    bytes: number;
    readMs: number;
    bytesPerToken: number;
    decodeReadMs: number;
    /** Of a mixture of experts: matrices of chosen experts, and the part of them that was still in memory. */
    experts?: { uses: number; hitRate: number };
  };
  /** Natural logarithms, one a token, if asked for. */
  logprobs?: number[];
  /** If asked for with `profile`. */
  stats?: ProfileStats;
}

/**
 * A running generation: iterate it once, for pieces of text as they come.
 * Leaving the loop early ends the generation. It advances only as fast as it
 * is read, by at most one token more. Everything that is wrong, bad options
 * included, is thrown by the iteration and rejects `done`.
 */
export interface Generation extends AsyncIterable<string> {
  [Symbol.asyncIterator](): AsyncIterator<string, undefined>;
  /** Set once the generation has ended and the model takes the next one. */
  readonly result: GenerationResult | undefined;
  /**
   * The result, once the generation has ended and the model takes the next one.
   * Asked for without iterating, or after some pieces were read, it runs the
   * generation to its end; pieces that nobody read yet wait for a reader. Asked
   * for before the first piece is read, it leaves the pace to the reader, who
   * then has to read to the end, or leave.
   */
  readonly done: Promise<GenerationResult>;
}

/** Logits of one position of the sequence given to `evaluate`. */
export interface LogitsRow {
  /** Place in the sequence. */
  index: number;
  /** A copy of your own, `[n_vocab]`. */
  logits: Float32Array;
}

export interface ModelInfo {
  context: number;
  contextTrain: number;
  vocabSize: number;
  bos: number;
  eos: number;
  addsBos: boolean;
  hasTokenizer: boolean;
  chunk: number;
  module: ModuleName;
  threads: number;
  loadMs: number;
  /** What `loadMs` consists of, in order. */
  loadPhases: LoadPhase[];
}

/**
 * One thing that `open` did. `compile`: fetching and compiling the module;
 * `header`: reading the header; `plan`: placing each tensor; `bind`: taking
 * the memory; `weights`: reading them; `threads`: waiting for the other
 * threads, which start while the weights are read.
 */
export interface LoadPhase {
  name: 'compile' | 'header' | 'plan' | 'bind' | 'weights' | 'threads';
  /** Since `open`. */
  startMs: number;
  ms: number;
  /** Size of linear memory at its end. */
  memoryBytes: number;
}

/** A stretch of linear memory, or all that lies in mapped files. */
export interface MemoryRegion {
  name: 'header' | 'plan' | 'tables' | 'weights' | 'staging' | 'window' | 'kv' | 'slab' | 'scratch' | 'mapped';
  scope: Scope;
  domain: Domain;
  bytes: number;
  /** The most of it that was in use; 0 before it is taken. */
  high_water_bytes: number;
  /** null: not taken yet, or in several places. */
  address: number | null;
}

export interface MemorySum {
  bytes: number;
  high_water_bytes: number;
}

/**
 * A picture of linear memory for people: each region with scope, bytes, and once
 * it is taken its address. Of an explanation, or of what `memory()` gives.
 */
export function memoryMap(of: Explanation | MemoryUse): string;

/** One step of a plan, as it runs. */
export interface PlannedStep {
  op: string;
  layer: number;
  /** Indices of values: the result, and what is read. */
  out?: number;
  in0?: number;
  in1?: number;
  /** Name, type and form of its weight, if it has one, the kernel that reads it, and its bytes. */
  weight?: string;
  type?: string;
  form?: string;
  kernel?: string;
  weight_bytes?: number;
  weight_values?: number;
  weight_rows?: number;
  /** Attention that looks back `window` positions only. */
  windowed?: boolean;
  /** Threads meet before it. */
  sync?: boolean;
}

/** An activation, and where in the slab it lies while it is alive. */
export interface PlannedValue {
  name: string;
  kind: 'f32' | 'q8';
  rows: 'tokens' | 'output' | 'routed' | 'one';
  cols: number;
  /** The steps between which it is alive, both included. */
  first: number;
  last: number;
  bytes: number;
  offset: number;
}

export interface StepPlan {
  slab_bytes: number;
  /** The largest sum of bytes alive at once: no slab can be smaller. */
  lower_bound_bytes: number;
  /** Most tokens a run. */
  token_rows: number;
  /** First step that only serves the logits. */
  output_step: number;
  steps: PlannedStep[];
  values: PlannedValue[];
}

/** What `explainPlan` gives. */
export interface StepPlans {
  all_logits: boolean;
  /** Of the K and V of one position of one layer. */
  key_bytes: number;
  window: number;
  experts: number;
  experts_used: number;
  decode: StepPlan;
  prefill: StepPlan;
}

/** Counters of the core's allocator, and what memory holds. */
export interface MemoryUse extends MemoryReport {
  regions: MemoryRegion[];
  /** What lies in linear memory, by scope. */
  scopes: Record<Scope, MemorySum>;
  /** By domain; weights that stay in the source are not in memory. */
  domains: Record<'HEAP' | 'MAPPED', MemorySum>;
  liveBytes: number;
  liveBlocks: number;
  highWaterBytes: number;
  /** Size of linear memory. */
  hostBytes: number;
  allocCalls: number;
  growCalls: number;
}

/**
 * An open model: one timeline of tokens, one generation at a time. `generate`
 * itself never throws: what comes second is told BUSY, and what comes after
 * `close` CLOSED, when it is iterated.
 *
 * Tokenizing a text takes memory beyond the plan while it runs, several times
 * the size of the text; then it is free for the next one. Linear memory that
 * has grown for it does not shrink before `close`. A prompt that is certainly
 * too long for the context is refused before.
 */
export interface Model {
  readonly info: ModelInfo;
  /** What `explain` gives for the same options. */
  readonly explanation: Explanation;
  /**
   * Resolves when all weights are in place: at once, unless opened with `overlap`.
   * Then it may reject as `open` would; nothing happens if nobody looks. What
   * the cache had to tell meanwhile is among `explanation.warnings` by then.
   */
  readonly loaded: Promise<void>;
  /** The prompt is text, or ids to be taken as they are. */
  generate(prompt: string | TokenIds, options?: GenerateOptions): Generation;
  /**
   * Logits after each of these ids, from an empty context. Needs
   * `open(..., { allLogits: true })`; without it, only the last row comes.
   */
  evaluate(ids: TokenIds, options?: { signal?: AbortSignal }): AsyncIterable<LogitsRow>;
  /**
   * Natural log-probability of ids[i + 1] after ids[0..i], for i from `from`
   * (default 0) to the last but one. Needs `allLogits`. The rows stay in the core.
   */
  score(ids: TokenIds, options?: { from?: number; signal?: AbortSignal }): Promise<Float64Array>;
  /**
   * The vector of a text, of length 1: pooled as the file says (mean, first or
   * last token; where it says nothing, the mean for models that look both ways,
   * else the last token), so that a dot product of two is their cosine. The text
   * is tokenized as the file asks, control tokens in it are plain text; ids are
   * taken as they are. Needs a model opened with `embeddings: true` (or one that
   * gives nothing else); `generate`, `evaluate` and `score` of such a model fail
   * with NO_LOGITS.
   */
  embed(input: string | TokenIds, options?: { signal?: AbortSignal }): Promise<Float32Array>;
  tokenize(text: string, options?: TokenizeOptions): Promise<Int32Array>;
  detokenize(ids: TokenIds, options?: { showSpecial?: boolean }): Promise<string>;
  /** The text of each id by itself; control tokens by name. */
  pieces(ids: TokenIds): Promise<string[]>;
  memory(): Promise<MemoryUse>;
  /**
   * The steps of decoding a token and of a chunk of a prompt, and where each value lies. Takes no memory
   * beyond the plan.
   */
  explainPlan(): Promise<StepPlans>;
  /** Ends what runs and gives all memory back. May be called again. */
  close(): Promise<void>;
}

/** The tokenizer of any GGUF that has one, a vocabulary-only file included. */
export interface Tokenizer {
  readonly vocabSize: number;
  encode(text: string, options?: TokenizeOptions): Promise<Int32Array>;
  decode(ids: TokenIds, options?: { showSpecial?: boolean }): Promise<string>;
  pieces(ids: TokenIds): Promise<string[]>;
  close(): Promise<void>;
}

/** Reads the header only. */
export function openTokenizer(source: Source, options?: HeaderOptions): Promise<Tokenizer>;

// --- host and errors ---------------------------------------------------------

/** What this machine can do, as `explain` and `open` see it. */
export function probeHost(): Promise<HostCapabilities & { module: ModuleName }>;

/** '2GiB' -> 2147483648. Throws BAD_ARGUMENT. */
export function parseByteSize(size: ByteSize): number;

/** All codes. Those of the core first, then those of this layer. */
export type LinealErrorCode =
  | 'CANCELLED' | 'CONTEXT_FULL' | 'OUT_OF_MEMORY' | 'DOES_NOT_FIT' | 'INTERNAL' | 'BAD_ARGUMENT' | 'BAD_STATE'
  | 'THREAD_LOST'
  | 'NOT_GGUF' | 'GGUF_VERSION' | 'GGUF_CORRUPT' | 'GGUF_TRUNCATED' | 'GGUF_DUPLICATE' | 'GGUF_LIMIT'
  | 'SPLIT_MISMATCH'
  | 'UNSUPPORTED_ARCHITECTURE' | 'UNSUPPORTED_TYPE' | 'UNSUPPORTED_FEATURE' | 'UNSUPPORTED_TOKENIZER'
  | 'MISSING_KEY' | 'MISSING_TENSOR' | 'BAD_SHAPE' | 'UNEXPECTED_TENSOR' | 'BAD_VOCABULARY'
  | 'CONTEXT_TOO_LONG' | 'PROMPT_TOO_LONG' | 'EMPTY_PROMPT' | 'BAD_TOKEN' | 'NO_TOKENIZER' | 'NO_WEIGHTS'
  | 'NOT_NUMBERS' | 'NO_LOGITS' | 'NO_EMBEDDINGS'
  | 'SOURCE_NOT_FOUND' | 'SOURCE_UNREADABLE' | 'SOURCE_READ' | 'SOURCE_CHANGED' | 'SOURCE_TRUNCATED'
  | 'SOURCE_CHECKSUM' | 'CACHE_UNAVAILABLE' | 'CACHE_FULL'
  | 'HTTP_STATUS' | 'HTTP_RANGE' | 'NETWORK' | 'NETWORK_TIMEOUT' | 'CALLBACK_FAILED' | 'OUTPUT_FAILED' | 'ABORTED' | 'BUSY' | 'CLOSED' | 'WASM_UNSUPPORTED' | 'WASM_UNAVAILABLE'
  | 'WASM_VERSION' | 'WORKER_FAILED';

/** The one error of this package. Crosses worker borders whole. */
export class LinealError extends Error {
  constructor(
    code: LinealErrorCode | (string & {}),
    message: string,
    options?: { remedy?: string; detail?: Record<string, unknown>; cause?: unknown },
  );
  readonly code: LinealErrorCode | (string & {});
  /** What you can do about it; may be ''. */
  readonly remedy: string;
  readonly detail: Record<string, unknown>;
  toJSON(): { code: string; message: string; remedy: string; detail: Record<string, unknown> };
  static fromJSON(json: unknown): LinealError;
  /** Any thrown value as a LinealError; unknown ones get the code INTERNAL. */
  static from(error: unknown): LinealError;
}

/** Version of the package. */
export const version: string;
