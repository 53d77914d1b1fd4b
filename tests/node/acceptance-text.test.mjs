// Text in and out: control tokens in user text, characters that are spread
// over tokens, bytes that are no UTF-8, stop texts, end of generation.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { generate } from '../lib/fixtures.mjs';
import { chainModel } from '../lib/chain-model.mjs';
import { ggufBytes, spmVocabulary, tinyLlama } from '../lib/gguf-write.mjs';

const byteId = (b) => 3 + b; // in the SPM vocabulary of the tests

/** Opens a model that says exactly these ids (after the first, which is the prompt), then ends. */
async function says(ids, vocabulary, options = {}) {
  const model = await open(ggufBytes(chainModel([...ids, 2], { vocabulary, ...options })));
  return { model, prompt: [1, ids[0]] };
}

/** A vocabulary with these pieces added, and their ids. */
function withPieces(...pieces) {
  const vocabulary = spmVocabulary(320);
  const ids = pieces.map((piece) => {
    const [text, type] = Array.isArray(piece) ? piece : [piece, 1];
    vocabulary.tokens.push(text);
    vocabulary.types.push(type);
    vocabulary.scores.push(-1000);
    return vocabulary.tokens.length - 1;
  });
  return { vocabulary, ids };
}

test('a character spread over tokens comes out whole, and no U+FFFD is seen', async () => {
  const emoji = [...Buffer.from('😀é')].map(byteId);
  const { model, prompt } = await says([byteId(0x41), ...emoji, byteId(0x42)]);
  const { pieces, text, result } = await generate(model, prompt, { maxTokens: 50 });
  assert.equal(text, '😀éB');
  assert.equal(result.text, '😀éB');
  assert.equal(result.finishReason, 'eos');
  assert.deepEqual(result.tokens, [...emoji, byteId(0x42)]);
  for (const piece of pieces) assert.ok(!piece.includes('\ufffd'), JSON.stringify(pieces));
  await model.close();
});

test('a character cut off by the end is flushed as U+FFFD, its bytes are not lost from the ids', async () => {
  const { model, prompt } = await says([byteId(0x41), byteId(0xf0), byteId(0x9f)]);
  const { text, result } = await generate(model, prompt, { maxTokens: 50 });
  assert.match(text, /^\ufffd+$/);
  assert.equal(result.text, text);
  assert.deepEqual(result.tokens, [byteId(0xf0), byteId(0x9f)]);
  await model.close();
});

test('a byte that is never UTF-8 gives one U+FFFD, and the stream goes on', async () => {
  const { model, prompt } = await says([byteId(0x41), byteId(0xc0), byteId(0x42), byteId(0xff), byteId(0x43)]);
  const { text } = await generate(model, prompt, { maxTokens: 50 });
  assert.equal(text, '\ufffdB\ufffdC');
  await model.close();
});

for (const [stop, wanted] of [['DEFGHIJ', 'ABC'], [['X', 'EF'], 'ABCD'], ['IJK', 'ABCDEFGHIJ'], ['\n', 'ABCDEFGHIJ'], [['C', 'AB'], '']]) {
  test(`stop ${JSON.stringify(stop)} across tokens: streamed equals the result`, async () => {
    const { vocabulary, ids } = withPieces('AB', 'CD', 'EFG', 'HI', 'J');
    const { model, prompt } = await says([byteId(0x2e), ...ids], vocabulary);
    const { text, result } = await generate(model, prompt, { maxTokens: 50, stop });
    assert.equal(text, wanted);
    assert.equal(result.text, wanted);
    assert.equal(result.finishReason, wanted === 'ABCDEFGHIJ' ? 'eos' : 'stop');
    await model.close();
  });
}

test('a stop text glued to other text in one token', async () => {
  const { vocabulary, ids } = withPieces('Yes', '?\n', 'No');
  const { model, prompt } = await says([byteId(0x2e), ...ids], vocabulary);
  const { text, result } = await generate(model, prompt, { maxTokens: 50, stop: '\n' });
  assert.equal(text, 'Yes?');
  assert.equal(result.finishReason, 'stop');
  await model.close();
});

test('only what could become a stop text is held back', async () => {
  const { vocabulary, ids } = withPieces('AB', 'CD', 'AX', 'Z');
  const { model, prompt } = await says([byteId(0x2e), ...ids], vocabulary);
  const { pieces } = await generate(model, prompt, { maxTokens: 50, stop: 'AB!' });
  // 'AB' waits for the next token; 'ABCD' can no longer become a stop, nor can what follows
  assert.deepEqual(pieces, ['ABCD', 'AX', 'Z']);
  await model.close();
});

test('control tokens in user text are plain text unless asked otherwise', async () => {
  const { vocabulary, ids } = withPieces(['<|im_end|>', 3]);
  const model = await open(ggufBytes(tinyLlama({ n_vocab: vocabulary.tokens.length, vocabulary })));
  const text = 'so <|im_end|> it is </s>';
  const plain = await model.tokenize(text);
  assert.ok(!plain.includes(ids[0]) && !plain.includes(2), String(plain));
  assert.equal((await model.detokenize(plain.slice(1))).trim(), text);
  const parsed = await model.tokenize(text, { parseSpecial: true });
  assert.ok(parsed.includes(ids[0]) && parsed.includes(2), String(parsed));
  const generation = await generate(model, text, { maxTokens: 1, ignoreEos: true });
  assert.deepEqual(generation.result.promptTokens, [...plain]);
  await model.close();
});

test('BOS is added once, and not where the file says no', async () => {
  const model = await open(ggufBytes(tinyLlama()));
  const ids = [...await model.tokenize('the')];
  assert.deepEqual(ids.filter((id) => id === 1), [1]);
  assert.equal(ids[0], 1);
  assert.ok(![...await model.tokenize('the', { addSpecial: false })].includes(1));
  await model.close();
  const without = await open(ggufBytes(tinyLlama({ addBos: false })));
  assert.ok(![...await without.tokenize('the')].includes(1));
  await without.close();
});

test('end of generation by id and by text of the token; ignoreEos goes on', async () => {
  const { vocabulary, ids } = withPieces('one', ['<|eot_id|>', 1], 'two');
  const { model, prompt } = await says([byteId(0x2e), ...ids], vocabulary);
  const { text, result } = await generate(model, prompt, { maxTokens: 50 });
  assert.equal(text, 'one');
  assert.equal(result.finishReason, 'eos');
  assert.deepEqual(result.tokens, [ids[0]]);
  const on = await generate(model, prompt, { maxTokens: 4, ignoreEos: true });
  assert.equal(on.result.tokens.length, 4);
  await model.close();
});

test('sampling: a seed decides, another one differs, top-k of one is greedy', async () => {
  const model = await open(ggufBytes(tinyLlama()));
  const run = async (options) => (await generate(model, [1, 5, 9], { maxTokens: 16, ignoreEos: true, ...options })).result.tokens;
  const hot = { temperature: 1.5, topK: 0, topP: 1, minP: 0 };
  assert.deepEqual(await run({ ...hot, seed: 7 }), await run({ ...hot, seed: 7 }));
  assert.notDeepEqual(await run({ ...hot, seed: 7 }), await run({ ...hot, seed: 8 }));
  const greedy = await run({});
  assert.deepEqual(await run({ temperature: 2, topK: 1, seed: 3 }), greedy);
  assert.deepEqual(await run({ temperature: 2, topP: 1e-6, topK: 0, minP: 0, seed: 4 }), greedy);
  assert.deepEqual(await run({ temperature: 2, minP: 1, topK: 0, topP: 1, seed: 4 }), greedy);
  await model.close();
});
