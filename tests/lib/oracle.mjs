// llama.cpp as a reference, through the prebuilt binaries of node-llama-cpp:
// the whole next-token distribution after each token of a sequence.

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
 * Natural log-probabilities, Float64Array [n_vocab], after each of the ids.
 * f32 KV cache, no flash attention, one token batch: the plainest arithmetic.
 */
export async function oracleLogprobs(oracle, path, ids, { context = 128 } = {}) {
  const model = await oracle.llama.loadModel({
    modelPath: path, gpuLayers: 0, useMmap: false, ignoreMemorySafetyChecks: true, checkTensors: false,
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
export async function oracleEmbedding(oracle, path, text) {
  const model = await oracle.llama.loadModel({
    modelPath: path, gpuLayers: 0, useMmap: false, ignoreMemorySafetyChecks: true, checkTensors: false,
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
 * Compares our tokenizer with llama.cpp's on one file: calls check({ compare, specials, model, ours }) and closes
 * both. compare(text, parseSpecial) is false where the ids differ; specials are texts of special tokens.
 */
export async function withTokenizers(oracle, file, openTokenizer, check) {
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
    await check({ compare, specials: specials.length ? specials : ['<s>'], model, ours });
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
