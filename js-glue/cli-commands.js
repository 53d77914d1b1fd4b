// What each command does. A command prints its result (readable, or one line
// of JSON) and returns the exit code; errors are thrown.
import { readFileSync } from 'node:fs';
import { CACHE_COMMAND } from './cli-cache.js';
import { usage } from './cli-options.js';
import { OutputFile } from './cli-output.js';
import { profileJson, profileText, writeTrace } from './cli-profile.js';
import { progressLine } from './cli-progress.js';
import { LinealError, explain, inspect, memoryMap, open, openTokenizer } from './index.js';
import { memoryRows } from './memory-map.js';
import { checkPrompt, checkSequence, generateSettings } from './options.js';

/** @typedef {Record<string, any>} Values */

/**
 * @typedef {object} Command
 * @property {string} usage
 * @property {string} summary
 * @property {readonly string[]} options
 * @property {readonly string[]} [required]
 * @property {number} [words] that it takes at most; default 1, the model
 * @property {string} [missing] what to say where there is none
 * @property {(source: string, values: Values, signal: AbortSignal, more: string[]) => Promise<number>} run
 */

const COMMON = ['json', 'quiet', 'help'];
const CACHE = ['cache', 'no-cache', 'verify', 'sha256'];
const HEADER = ['module', 'header', 'timeout', 'hub', ...CACHE, ...COMMON];
const PLAN = [
  'context',
  'memory',
  'kv',
  'kv-k',
  'kv-v',
  'host-profile',
  'hold',
  'tensor',
  'chunk',
  'stream',
  'threads',
  ...HEADER,
];
const SAMPLING = ['temperature', 'seed', 'top-k', 'top-p', 'min-p', 'repeat-penalty', 'repeat-last-n'];
const DEFAULT_PERPLEXITY_CONTEXT = 512;
const MIN_PERPLEXITY_CONTEXT = 4;
const DEFAULT_CONTEXT = 2048;

/** @type {Record<string, Command>} */
export const COMMANDS = {
  explain: {
    usage: 'MODEL [--context N|max] [--memory SIZE] [--map]',
    summary: 'Where each byte would live, and whether the model fits; reads the header only.',
    options: ['map', ...PLAN],
    run: runExplain,
  },
  generate: {
    usage: 'MODEL --prompt TEXT [options]',
    summary: 'Continue a text.',
    options: [
      'prompt',
      'ids',
      'max-tokens',
      ...SAMPLING,
      'stop',
      'ignore-eos',
      'parse-special',
      'no-bos',
      'logprobs',
      'stats',
      'trace',
      ...PLAN,
    ],
    run: runGenerate,
  },
  tokenize: {
    usage: 'MODEL --text TEXT',
    summary: 'The token ids of a text and their pieces; a vocabulary-only file will do.',
    options: ['text', 'no-bos', 'parse-special', ...HEADER],
    required: ['text'],
    run: runTokenize,
  },
  inspect: {
    usage: 'MODEL',
    summary: 'The metadata and tensors of a GGUF file.',
    options: HEADER,
    run: runInspect,
  },
  logits: {
    usage: 'MODEL --tokens 1,2,3 --out FILE',
    summary: 'Write the logits after each token as float32 [n_tok, n_vocab].',
    options: ['tokens', 'out', ...PLAN],
    required: ['tokens', 'out'],
    run: runLogits,
  },
  embed: {
    usage: 'MODEL --text TEXT',
    summary: 'The vector of a text, of length 1, as JSON: for embedding models, or any other.',
    options: ['text', ...PLAN],
    required: ['text'],
    run: runEmbed,
  },
  perplexity: {
    usage: 'MODEL --file FILE [--context N|max]',
    summary: 'Perplexity of a text: chunks of N tokens, BOS first, the second half of each scored.',
    options: ['file', ...PLAN],
    required: ['file'],
    run: runPerplexity,
  },
  bench: {
    usage: 'MODEL [-p 512] [-n 128] [--profile] [--trace FILE]',
    summary: 'Speed of prefill and decode, and where the time goes.',
    options: ['bench-prompt', 'bench-tokens', 'profile', 'trace', ...PLAN],
    run: runBench,
  },
  cache: CACHE_COMMAND,
};

/** Codes of explain's warnings that change what a benchmark means. */
const THREAD_WARNINGS = ['ONE_THREAD', 'THREADS_CLAMPED'];

/** @param {import('./index.d.ts').ModelInfo} info */
function threadsText({ threads }) {
  return `${threads} thread${threads === 1 ? '' : 's'}`;
}

/** @param {unknown} value */
function printJson(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** Whether its bytes come over a network. @param {string} source */
function isRemote(source) {
  return /^(https?|hf):/i.test(source);
}

/** @param {Values} values */
function headerOptions(values) {
  const kept = ['cache', 'verify', 'sha256'].find((name) => values[name] !== undefined);
  if (values['no-cache'] && kept) throw usage(`--${kept} and --no-cache do not go together`, `leave out one of them${kept === 'sha256' ? ': what is not kept is not hashed as a whole' : ''}`);
  return {
    module: values.module,
    hub: values.hub ?? (process.env.LINEAL_HUB || undefined),
    fetch: { headers: Object.fromEntries(values.header ?? []), timeoutMs: values.timeout },
    cache: values['no-cache']
      ? false
      : { directory: values.cache, verify: values.verify, sha256: values.sha256 },
  };
}

/** What is not given of a pair is as --kv says. @param {Values} values */
function kvType(values) {
  const { kv, 'kv-k': k = kv, 'kv-v': v = kv } = values;
  if (values['kv-k'] === undefined && values['kv-v'] === undefined) return kv;
  if (k === undefined || v === undefined || k === 'auto' || v === 'auto') throw usage('--kv-k and --kv-v go together, or with a --kv that is not auto');
  return { k, v };
}

/**
 * Of rules for the same glob the first counts, as of those that fit the same tensor.
 * @template Form
 * @param {[string, Form][]} rules
 */
function firstOfEach(rules) {
  return rules.filter(([glob], i) => rules.findIndex(([other]) => other === glob) === i);
}

/**
 * @param {Values} values
 * @param {AbortSignal} signal
 * @returns {import('./index.d.ts').OpenOptions}
 */
function planOptions(values, signal) {
  return {
    ...headerOptions(values),
    context: values.context,
    memory: values.memory,
    kvType: kvType(values),
    placement: {
      profile: values['host-profile'],
      hold: values.hold,
      tensors: Object.fromEntries(firstOfEach(values.tensor ?? [])),
    },
    chunk: values.chunk,
    stream: values.stream,
    threads: values.threads,
    signal,
  };
}

/**
 * @param {string} source
 * @param {Values} values
 * @param {AbortSignal} signal
 * @param {import('./index.d.ts').OpenOptions} [more]
 * @param {ReturnType<typeof progressLine>} [line] given by who ends it
 */
async function openModel(source, values, signal, more = {}, line = progressLine(values)) {
  let model;
  try {
    model = await open(source, { ...planOptions(values, signal), ...more, onProgress: line.update });
  } finally {
    line.clear();
  }
  const { explanation, loaded } = model;
  let told = 0;
  const tell = () => {
    const news = explanation.warnings.slice(told);
    told = explanation.warnings.length;
    if (values.quiet) return;
    for (const { code, text } of news) if (code.startsWith('CACHE_')) process.stderr.write(`warning: ${text}\n`);
  };
  tell();
  loaded.then(tell, () => {}); // while its weights come, more may be said
  return model;
}

/** @type {Command['run']} */
async function runExplain(source, values, signal) {
  const { text, ...explanation } = await explain(source, planOptions(values, signal));
  if (values.json) {
    printJson(values.map ? { ...explanation, map: memoryRows({ ...explanation, text }) } : explanation);
  } else {
    process.stdout.write(text.endsWith('\n') ? text : `${text}\n`);
    if (values.map) process.stdout.write(`\n${memoryMap({ ...explanation, text })}`);
  }
  return explanation.fits ? 0 : 2;
}

/** @type {Command['run']} */
async function runInspect(source, values, signal) {
  const { text, ...inspection } = await inspect(source, { ...headerOptions(values), signal });
  if (values.json) printJson(inspection);
  else process.stdout.write(text.endsWith('\n') ? text : `${text}\n`);
  return 0;
}

/** @type {Command['run']} */
async function runTokenize(source, values, signal) {
  const tokenizer = await openTokenizer(source, { ...headerOptions(values), signal });
  try {
    const tokens = await tokenizer.encode(values.text, {
      addSpecial: !values['no-bos'],
      parseSpecial: values['parse-special'],
    });
    const pieces = await tokenizer.pieces(tokens);
    if (values.json) printJson({ tokens: Array.from(tokens), pieces });
    else
      process.stdout.write(
        pieces.map((piece, i) => `${String(tokens[i]).padStart(8)}  ${JSON.stringify(piece)}\n`).join(''),
      );
  } finally {
    await tokenizer.close();
  }
  return 0;
}

/** @param {number} ms */
const rounded = (ms) => Math.round(ms * 1000) / 1000;

/** @type {Command['run']} */
async function runGenerate(source, values, signal) {
  if ((values.prompt === undefined) === (values.ids === undefined)) {
    throw usage('generate needs either --prompt or --ids', 'see lineal generate --help');
  }
  const prompt = values.prompt ?? values.ids;
  const options = {
    maxTokens: values['max-tokens'],
    temperature: values.temperature,
    topK: values['top-k'],
    topP: values['top-p'],
    minP: values['min-p'],
    repeatPenalty: values['repeat-penalty'],
    repeatLastN: values['repeat-last-n'],
    seed: values.seed,
    stop: values.stop,
    ignoreEos: values['ignore-eos'],
    parseSpecial: values['parse-special'],
    addSpecial: !values['no-bos'],
    logprobs: values.logprobs,
    signal,
    .../** @type {{ profile?: 'trace' }} */ (values.trace === undefined ? {} : { profile: 'trace' }),
  };
  // Before a model is loaded for nothing.
  generateSettings(options);
  checkPrompt(prompt);
  return withTraceFile(source, values, async (trace) => {
    const line = progressLine(values);
    const model = await openModel(source, values, signal, { overlap: isRemote(source) }, line);
    try {
      const generation = model.generate(prompt, { ...options, onProgress: line.update });
      for await (const piece of generation) {
        line.end();
        if (!values.json && !process.stdout.write(piece))
          await new Promise((resolve) => {
            process.stdout.once('drain', resolve);
          });
      }
      const result = await generation.done;
      line.end();
      const written = trace && writeTrace(trace, model, result);
      const timings = {
        load_ms: rounded(result.timings.loadMs),
        prefill_ms: rounded(result.timings.prefillMs),
        first_token_ms: rounded(result.timings.firstTokenMs),
        decode_ms: rounded(result.timings.decodeMs),
        prefill_tps: rounded(result.timings.prefillTps),
        decode_tps: rounded(result.timings.decodeTps),
      };
      if (values.json) {
        printJson({
          prompt_tokens: result.promptTokens,
          tokens: result.tokens,
          text: result.text,
          finish_reason: result.finishReason,
          timings,
          memory: result.memory,
          decode_allocations: result.decodeAllocations,
          memory_grows: result.memoryGrows,
          ...(result.streaming ? { streaming: streamingJson(result.streaming) } : {}),
          module: model.info.module,
          threads: model.info.threads,
          ...(result.logprobs ? { logprobs: result.logprobs } : {}),
          ...(written ? { trace: written } : {}),
        });
      } else {
        process.stdout.write('\n');
      }
      if (values.stats) printStats(result, timings, model.info);
    } finally {
      line.end();
      await model.close();
    }
    return 0;
  });
}

/**
 * With the file of --trace, if it was asked for: it is there only if all went well.
 * @param {string} source
 * @param {Values} values
 * @param {(trace: OutputFile | undefined) => Promise<number>} work
 */
async function withTraceFile(source, values, work) {
  const file = values.trace === undefined ? undefined : new OutputFile(values.trace, source, '--trace');
  try {
    return await work(file);
  } finally {
    file?.discard();
  }
}

/**
 * @param {import('./index.d.ts').GenerationResult} result
 * @param {Record<string, number>} t
 * @param {import('./index.d.ts').ModelInfo} info
 */
function printStats(result, t, info) {
  const { planned, measured } = result.memory;
  const lines = /** @type {(keyof typeof planned)[]} */ (Object.keys(planned)).map(
    (key) => `  ${key.padEnd(8)} ${String(planned[key]).padStart(14)} ${String(measured[key]).padStart(14)}`,
  );
  process.stderr.write(`
finish       ${result.finishReason}
load         ${t.load_ms} ms (module ${info.module}, ${threadsText(info)})
prompt       ${result.promptTokens.length} tokens, ${t.prefill_ms} ms, ${t.prefill_tps} tokens/s
first token  ${t.first_token_ms} ms
decode       ${result.tokens.length} tokens, ${t.decode_ms} ms, ${t.decode_tps} tokens/s
             ${result.decodeAllocations} allocations, ${result.memoryGrows} memory growths${streamingText(result)}
  bytes           planned       measured
${lines.join('\n')}
`);
}

/** @param {NonNullable<import('./index.d.ts').GenerationResult['streaming']>} streaming */
function streamingJson({ bytes, readMs, bytesPerToken, decodeReadMs, experts }) {
  return {
    bytes,
    read_ms: rounded(readMs),
    bytes_per_token: Math.round(bytesPerToken),
    decode_read_ms: rounded(decodeReadMs),
    ...(experts ? { expert_uses: experts.uses, expert_hit_rate: rounded(experts.hitRate) } : {}),
  };
}

/** @param {import('./index.d.ts').GenerationResult} result */
function streamingText({ streaming, tokens, timings }) {
  if (!streaming) return '';
  const { bytesPerToken, decodeReadMs } = streaming;
  const decoded = (tokens.length - 1) * bytesPerToken;
  return `
streamed     ${Math.round(bytesPerToken)} bytes a token, read in ${rounded(decodeReadMs)} of ${rounded(timings.decodeMs)} ms (${rounded(decoded / 1e6 / Math.max(decodeReadMs, 0.001))} GB/s)`;
}

/** @type {Command['run']} */
async function runEmbed(source, values, signal) {
  const model = await openModel(source, values, signal, { embeddings: true });
  try {
    const tokens = await model.tokenize(values.text);
    const vector = Array.from(await model.embed(tokens, { signal }));
    printJson(values.json ? { tokens: tokens.length, embedding: vector } : vector);
  } finally {
    await model.close();
  }
  return 0;
}

/** @type {Command['run']} */
async function runLogits(source, values, signal) {
  const ids = /** @type {number[]} */ (values.tokens);
  checkSequence(ids);
  const context = values.context ?? (ids.length > DEFAULT_CONTEXT ? ids.length : undefined);
  const file = new OutputFile(values.out, source);
  try {
    const model = await openModel(source, values, signal, { allLogits: true, context });
    try {
      let rows = 0;
      for await (const { logits } of model.evaluate(ids, { signal })) {
        file.write(new Uint8Array(logits.buffer, logits.byteOffset, logits.byteLength));
        rows++;
      }
      file.commit();
      const result = {
        n_tok: rows,
        n_vocab: model.info.vocabSize,
        out: values.out,
        bytes: rows * model.info.vocabSize * 4,
      };
      if (values.json) printJson(result);
      else process.stdout.write(`${values.out}: float32 [${result.n_tok}, ${result.n_vocab}]\n`);
    } finally {
      await model.close();
    }
  } finally {
    file.discard();
  }
  return 0;
}

/** @type {Command['run']} */
async function runPerplexity(source, values, signal) {
  if (values.context < MIN_PERPLEXITY_CONTEXT) throw shortContext(values.context);
  const text = readText(values.file);
  const model = await openModel(source, values, signal, { allLogits: true });
  try {
    const asked = values.context === 'max' ? model.info.context : values.context;
    const length = asked ?? Math.min(DEFAULT_PERPLEXITY_CONTEXT, model.info.context);
    const tokens = await model.tokenize(text);
    const chunks = Math.floor(tokens.length / length);
    if (length < MIN_PERPLEXITY_CONTEXT) throw shortContext(length);
    if (chunks === 0) {
      throw usage(
        `'${values.file}' has ${tokens.length} tokens, and one chunk takes ${length}`,
        'give a longer text or a smaller --context',
      );
    }
    const from = Math.floor(length / 2);
    const line = progressLine(values);
    let sum = 0;
    let scored = 0;
    for (let chunk = 0; chunk < chunks; chunk++) {
      const ids = tokens.slice(chunk * length, (chunk + 1) * length);
      if (model.info.addsBos) ids[0] = model.info.bos;
      for (const logprob of await model.score(ids, { from, signal })) {
        sum -= logprob;
        scored++;
      }
      line.show(`chunk ${chunk + 1} of ${chunks}`);
    }
    line.clear();
    const result = {
      perplexity: Math.exp(sum / scored),
      tokens: tokens.length,
      scored,
      chunks,
      context: length,
    };
    if (values.json) printJson(result);
    else
      process.stdout.write(
        `perplexity ${result.perplexity.toFixed(4)} (${scored} of ${tokens.length} tokens scored, ${chunks} chunks of ${length})\n`,
      );
  } finally {
    await model.close();
  }
  return 0;
}

/** @param {number} length */
function shortContext(length) {
  return usage(`--context ${length} is too short to score`, `give at least ${MIN_PERPLEXITY_CONTEXT}`);
}

/** @param {string} path */
function readText(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = String(/** @type {NodeJS.ErrnoException} */ (error).code ?? error);
    const missing = code === 'ENOENT' || code === 'ENOTDIR';
    const what = missing ? 'does not exist' : code === 'EISDIR' ? 'is a folder' : `cannot be read (${code})`;
    throw new LinealError(missing ? 'SOURCE_NOT_FOUND' : 'SOURCE_UNREADABLE', `the text '${path}' ${what}`, {
      remedy: 'give --file a text file that you may read',
      detail: { source: path, system_code: code },
      cause: error,
    });
  }
}

/** @type {Command['run']} */
function runBench(source, values, signal) {
  return withTraceFile(source, values, (trace) => bench(source, values, signal, trace));
}

/** @param {string} source @param {Values} values @param {AbortSignal} signal @param {OutputFile | undefined} trace */
async function bench(source, values, signal, trace) {
  const plan = await explain(
    source,
    planOptions({ ...values, memory: undefined, context: undefined }, signal),
  );
  const trained = Number(plan.model.n_ctx_train);
  const promptTokens = values['bench-prompt'] ?? Math.min(512, Math.max(Math.floor(trained * 0.75), 1));
  const newTokens = values['bench-tokens'] ?? Math.max(Math.min(128, trained - promptTokens), 0);
  const model = await openModel(source, values, signal, {
    context: values.context ?? promptTokens + newTokens,
  });
  try {
    // Any ids do: speed does not depend on them. 7919 is prime, so they spread over the vocabulary.
    const ids = Array.from({ length: promptTokens }, (_, i) => (i * 7919 + 17) % model.info.vocabSize);
    const options = { ignoreEos: true, reuse: false, signal };
    await model.generate(ids, { ...options, maxTokens: Math.min(4, newTokens) }).done; // caches, compiler tiers
    const { timings, tokens, finishReason } = await model.generate(ids, { ...options, maxTokens: newTokens })
      .done;
    const memory = await model.memory();
    const profiled =
      values.profile || trace
        ? await model.generate(ids, { ...options, maxTokens: newTokens, profile: trace ? 'trace' : true }).done
        : undefined;
    const written = trace && profiled && writeTrace(trace, model, profiled);
    const warnings = model.explanation.warnings
      .filter(({ code }) => THREAD_WARNINGS.includes(code))
      .map(({ text }) => text);
    const result = {
      prefill_tps: rounded(timings.prefillTps),
      decode_tps: rounded(timings.decodeTps),
      load_ms: rounded(model.info.loadMs),
      peak_bytes: memory.hostBytes,
      module: model.info.module,
      threads: model.info.threads,
      prompt_tokens: promptTokens,
      tokens: tokens.length,
      finish_reason: finishReason,
      warnings,
      ...(values.profile && profiled ? { profile: profileJson(profiled, timings, model.info) } : {}),
      ...(written ? { trace: written } : {}),
    };
    if (values.json) {
      printJson(result);
    } else {
      for (const warning of warnings) process.stderr.write(`warning: ${warning}\n`);
      process.stdout.write(`prefill  ${result.prefill_tps} tokens/s (${promptTokens} tokens)
decode   ${result.decode_tps} tokens/s (${tokens.length} tokens)
load     ${result.load_ms} ms
memory   ${result.peak_bytes} bytes
module   ${result.module}, ${threadsText(model.info)}
`);
      if (written) process.stdout.write(`trace    ${written.file}, ${written.events} events\n`);
      if (values.profile && profiled) process.stdout.write(profileText(profiled, timings, model.info));
    }
  } finally {
    await model.close();
  }
  return 0;
}
