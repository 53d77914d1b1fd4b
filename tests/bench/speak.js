// What every peer does alike, in a page and in Node: one generation, timed where
// the tokens arrive. A peer gives generate(prompt, maxTokens, onToken), which
// resolves with {prefillMs?, promptTokens?} as its engine tells them.

/**
 * One generation: tokens a second of the prompt, until its first new token can
 * be given, and from the arrival of that in the caller's code to that of the last.
 */
export async function timeGeneration(generate, prompt, maxTokens) {
  const start = performance.now();
  const arrivals = [];
  const told = await generate(prompt, maxTokens, () => arrivals.push(performance.now()));
  const { length } = prompt.ids;
  if (told.promptTokens !== undefined && told.promptTokens !== length) {
    throw new Error(`the prompt has ${length} tokens, the peer evaluated ${told.promptTokens}`);
  }
  if (arrivals.length !== maxTokens) throw new Error(`${maxTokens} tokens asked for, ${arrivals.length} came`);
  return {
    prefill: length / ((told.prefillMs ?? arrivals[0] - start) / 1000),
    decode: (maxTokens - 1) / ((arrivals.at(-1) - arrivals[0]) / 1000),
  };
}

/** Short generations for so long, and at least one: the engine's compilers are done then. */
export async function warmUp(generate, prompt, milliseconds) {
  const start = performance.now();
  do await generate(prompt, 12, () => {}); while (performance.now() - start < milliseconds);
}

/** lineal as a peer: `open` is its open. */
export async function linealPeer(open, source, options) {
  const model = await open(source, options);
  const { info, explanation } = model;
  return {
    info: {
      module: info.module, threads: info.threads, loadMs: info.loadMs, kv: explanation.kv_type, chunk: info.chunk,
      forms: formsOf(explanation.tensors), warnings: (explanation.warnings ?? []).map((w) => w.text),
    },
    async generate(prompt, maxTokens, onToken, reuse = false) {
      const generation = model.generate(prompt.ids, { maxTokens, onToken, ignoreEos: true, reuse });
      const result = await generation.done;
      return { promptTokens: reuse ? undefined : result.promptTokens.length - result.reusedTokens };
    },
    memory: () => model.memory(),
    close: () => model.close(),
  };
}

/** Resident bytes by form: what the engine made of the stored types. */
function formsOf(tensors) {
  const forms = {};
  for (const t of tensors) forms[t.form] = (forms[t.form] ?? 0) + t.resident_bytes;
  return forms;
}
