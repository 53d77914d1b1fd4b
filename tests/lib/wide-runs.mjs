// What the module with 64-bit addresses must share with the one with 32, for Node
// and for pages alike.

export const WIDE = 'relaxed-mt-64';
export const IDS = [1, 5, 9, 7, 30, 31, 32, 33, 34, 2, 11, 110];
/** A context of the model of `reach` whose keys and values take 6 GiB; few are written, so few are real. */
export const FAR_CONTEXT = 6 * 2 ** 20;
export const FAR_MODEL = { n_layer: 2, n_ctx: 2 ** 23 };

/** Generates, then evaluates all of it: the tokens, and the logits after each. */
async function run(lineal, source, options) {
  const model = await lineal.open(source, { context: 64, allLogits: true, kvType: 'f32', ...options });
  try {
    const result = await model.generate(IDS, { maxTokens: 16, ignoreEos: true }).done;
    const rows = [];
    for await (const { logits } of model.evaluate([...IDS, ...result.tokens])) rows.push(logits);
    const { tokens, decodeAllocations, memoryGrows } = result;
    const regions = (await model.memory()).regions;
    return {
      rows, tokens, decodeAllocations, memoryGrows, ...result.memory,
      module: model.info.module, threads: model.info.threads, address: model.explanation.address.code,
      end: Math.max(...regions.map(({ address, bytes }) => (address ?? 0) + bytes)),
    };
  } finally {
    await model.close();
  }
}

/**
 * The same with the module 'relaxed' and with the wide one: what each says, and in how many logits they differ.
 * @param {Record<string, unknown>} options of both
 * @param {Record<string, unknown>} [wide] of the second alone
 */
export async function compare(lineal, source, options, wide = {}) {
  const { rows: want, ...narrow } = await run(lineal, source, { ...options, module: 'relaxed' });
  const { rows, ...got } = await run(lineal, source, { ...options, module: WIDE, ...wide });
  let logits = 0, different = 0;
  for (let r = 0; r < want.length; r++) {
    for (let i = 0; i < want[r].length; i++, logits++) if (!Object.is(want[r][i], rows[r]?.[i])) different++;
  }
  return { narrow, got, logits, different: different + Math.abs(rows.length - want.length) };
}

/** What must be true of compare's answer. */
export function checkSame(assert, { narrow, got, logits, different }, { threads, vocabulary }) {
  assert.equal(different, 0);
  assert.equal(logits, (IDS.length + 16) * vocabulary);
  assert.deepEqual(got.tokens, narrow.tokens);
  assert.deepEqual([narrow.module, got.module], ['relaxed', WIDE]);
  assert.deepEqual([narrow.threads, got.threads], [threads, threads]);
  for (const { decodeAllocations, memoryGrows, planned, measured } of [narrow, got]) {
    assert.deepEqual([decodeAllocations, memoryGrows], [0, 0]);
    assert.deepEqual(measured, planned);
  }
}
