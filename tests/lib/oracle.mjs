// llama.cpp as a reference, through the prebuilt binaries of node-llama-cpp:
// the whole next-token distribution after each token of a sequence.
import assert from 'node:assert/strict';
import path from 'node:path';

let llamaPromise;

/** The llama.cpp instance, or null where the package or its binary is absent. */
export async function loadOracle() {
  let library;
  try {
    library = await import('node-llama-cpp');
  } catch {
    return null;
  }
  llamaPromise ??= library.getLlama({
    gpu: false, build: 'never', skipDownload: true, progressLogs: false, logLevel: library.LlamaLogLevel.error,
  }).catch(() => null);
  const llama = await llamaPromise;
  return llama && { llama, library };
}

/** Frees the native threads, so that the test process can end. */
export async function disposeOracle() {
  const llama = await llamaPromise;
  await llama?.dispose();
  llamaPromise = undefined;
}

/**
 * The oracle, and what `read` finds in llama.cpp's sources: { oracle, found, skip }. skip: why the two cannot be
 * had, or false; with CI set they must be there.
 * @template T @param {() => T[]} read
 */
export async function oracleAndSources(read) {
  const oracle = await loadOracle();
  let skip = oracle ? false : 'node-llama-cpp is not installed for this machine';
  /** @type {T[]} */ let found = [];
  try {
    found = read();
  } catch (error) {
    skip ||= `llama.cpp's sources cannot be unpacked: ${error.message.split('\n')[0]}`;
  }
  if (skip && process.env.CI) throw new Error(skip);
  return { oracle, found, skip };
}

/**
 * Natural log-probabilities, Float64Array [n_vocab], after each of the ids.
 * f32 KV cache, no flash attention, one token batch: the plainest arithmetic.
 */
export async function oracleLogprobs(oracle, modelPath, ids, { context = 128 } = {}) {
  const model = await oracle.llama.loadModel({
    modelPath, gpuLayers: 0, useMmap: false, ignoreMemorySafetyChecks: true, checkTensors: false,
  });
  try {
    const ctx = await model.createContext({
      contextSize: context, batchSize: context, flashAttention: false, threads: 1, ignoreMemorySafetyChecks: true,
      experimentalKvCacheKeyType: 'F32', experimentalKvCacheValueType: 'F32',
    });
    const sequence = ctx.getSequence();
    const ask = { generateNext: { probabilities: true, options: { temperature: 0 } } };
    const outputs = await sequence.controlledEvaluate([...ids].map((id) => [id, ask]));
    return outputs.map((output) => {
      const row = new Float64Array(output.next.probabilities.size).fill(NaN);
      for (const [id, p] of output.next.probabilities) row[id] = Math.log(p);
      return row;
    });
  } finally {
    await model.dispose();
  }
}

/**
 * {vector, ids}: the pooled embedding of a text as llama.cpp gives it (not normalised),
 * and the tokens that it is of.
 */
export async function oracleEmbedding(oracle, modelPath, text) {
  const model = await oracle.llama.loadModel({
    modelPath, gpuLayers: 0, useMmap: false, ignoreMemorySafetyChecks: true, checkTensors: false,
  });
  try {
    const ctx = await model.createEmbeddingContext({ contextSize: 256, batchSize: 256, threads: 1, ignoreMemorySafetyChecks: true });
    const ids = model.tokenize(text);
    ctx._prepareInput(ids); // adds what begins and ends a text, as getEmbeddingFor does
    const { vector } = await ctx.getEmbeddingFor(ids);
    return { vector: Float64Array.from(vector), ids: [...ids] };
  } finally {
    await model.dispose();
  }
}

/**
 * Compares our tokenizer with llama.cpp's on one file: calls work({ check, specials, bos, model, ours }) and closes
 * both. check(text, parseSpecial) fails with the shortest part of the text whose ids differ; specials are texts of
 * special tokens, bos is what begins every text.
 */
export async function withTokenizers(oracle, file, openTokenizer, work) {
  const model = await oracle.llama.loadModel({ modelPath: file, vocabOnly: true });
  const ours = await openTokenizer(file, { worker: false });
  try {
    const specials = [];
    for (let id = 0; id < ours.vocabSize && specials.length < 400; id++) {
      const text = model.isSpecialToken(id) ? model.detokenize([id], true) : '';
      if (text) specials.push(text);
    }
    const compare = async (text, parseSpecial) => {
      const wanted = model.tokenize(text, parseSpecial);
      const got = await ours.encode(text, { addSpecial: false, parseSpecial });
      return got.length === wanted.length && wanted.every((id, i) => id === got[i]);
    };
    const check = async (text, parseSpecial) => {
      if (await compare(text, parseSpecial)) return;
      const least = await shrink(text, async (part) => !await compare(part, parseSpecial));
      assert.fail(`${path.basename(file)}: ${JSON.stringify(least)} (of ${JSON.stringify(text)}), parseSpecial ${parseSpecial}`);
    };
    const bos = model.tokens.shouldPrependBosToken ? [model.tokens.bos] : [];
    await work({ check, specials: specials.length ? specials : ['<s>'], bos, model, ours });
  } finally {
    await ours.close();
    await model.dispose();
  }
}

/** The shortest text that removing parts of a bad one leaves bad. */
export async function shrink(text, isBad) {
  let units = [...text];
  for (let size = Math.ceil(units.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < units.length;) {
      const fewer = [...units.slice(0, at), ...units.slice(at + size)];
      if (await isBad(fewer.join(''))) units = fewer;
      else at += size;
    }
  }
  return units.join('');
}
