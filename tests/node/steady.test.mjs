// Ten thousand decoded tokens: nothing is allocated, memory does not grow, the high-water mark does not
// move; in one text, and in texts that each stop at the limit of the context.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { BUNDLED, MODULES, generate } from '../lib/fixtures.mjs';
import { ggufBytes, tinyLlama } from '../lib/gguf-write.mjs';

const STEPS = 10_000;
const PROMPT = [1, 5, 9];

async function marks(model) {
  const { liveBytes, liveBlocks, highWaterBytes, hostBytes, growCalls, allocCalls } = await model.memory();
  return { liveBytes, liveBlocks, highWaterBytes, hostBytes, growCalls, allocCalls };
}

/** Between two looks only these may differ: the looks themselves, and the prompts, allocate. */
const steady = (all) => ({ ...all, allocCalls: undefined });

for (const module of MODULES) {
  test(`one text of ${STEPS} tokens, ${module} build`, { timeout: 120_000 }, async () => {
    const context = STEPS + 100;
    for (const kvType of ['f32', 'q8_0']) {
      const model = await open(ggufBytes(tinyLlama({ n_layer: 1, d_model: 32, n_head: 1, n_kv_head: 1, d_ff: 64, n_ctx: context })), { module, context, kvType, threads: kvType === 'f32' ? 1 : 2 });
      try {
        await generate(model, PROMPT, { maxTokens: 2, ignoreEos: true });
        await marks(model); // its text is the largest that is taken
        const before = await marks(model);
        const { result } = await generate(model, PROMPT, { maxTokens: STEPS + 1, ignoreEos: true, reuse: false });
        const after = await marks(model);
        assert.deepEqual([result.tokens.length, result.finishReason], [STEPS + 1, 'length']);
        assert.deepEqual([result.decodeAllocations, result.memoryGrows], [0, 0]);
        assert.deepEqual(steady(after), steady(before));
        // the prompt's input and ids, and the texts of memory(): the same however long the text is
        assert.ok(after.allocCalls - before.allocCalls < 200, `${after.allocCalls - before.allocCalls} allocations`);
      } finally {
        await model.close();
      }
    }
  });

  test(`${STEPS} tokens in texts that stop at the limit, the bundled model, ${module} build`, { timeout: 240_000 }, async () => {
    const model = await open(BUNDLED, { module, context: 'max', threads: 1 });
    try {
      const { context } = model.info;
      let steps = 0, texts = 0, first;
      for (; steps < STEPS; texts++) {
        const { result } = await generate(model, PROMPT, { maxTokens: STEPS, ignoreEos: true, temperature: 1, seed: texts, reuse: texts % 2 === 1 });
        assert.equal(result.finishReason, 'context_full');
        assert.equal(result.tokens.length, context - PROMPT.length + 1);
        assert.deepEqual([result.decodeAllocations, result.memoryGrows], [0, 0]);
        steps += result.tokens.length - 1;
        const now = await marks(model);
        if (texts === 1) first = now; // the first of these had no text of its own to give back
        if (texts > 1) assert.deepEqual(steady(now), steady(first), `text ${texts}`);
      }
      assert.ok(texts > 30);
    } finally {
      await model.close();
    }
  });
}

test('a test that counts: an allocation in a decode step is seen', async () => {
  const model = await open(ggufBytes(tinyLlama({ n_ctx: 64 })), { context: 64 });
  try {
    const before = await marks(model);
    await model.tokenize('In the beginning');
    const after = await marks(model);
    assert.ok(after.allocCalls > before.allocCalls);
  } finally {
    await model.close();
  }
});
