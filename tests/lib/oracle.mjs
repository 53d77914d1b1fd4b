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
