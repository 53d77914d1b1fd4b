// Every name of `tokenizer.ggml.pre` that llama.cpp knows, id by id against
// llama.cpp, on a vocabulary in which half of all pairs of bytes are a token:
// almost any other cut between two words gives other ids. Skipped as
// tokenizer-oracle.test.mjs is.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, test } from 'node:test';
import { openTokenizer } from '../../js-glue/index.js';
import { temporary } from '../lib/fixtures.mjs';
import { byteToBpeCharacter, ggufBytes, random } from '../lib/gguf-write.mjs';
import { llamaPreNames } from '../lib/llama-sources.mjs';
import { disposeOracle, oracleAndSources, withTokenizers } from '../lib/oracle.mjs';
import { randomSource, randomText } from '../lib/texts.mjs';

const TEXTS = process.env.LINEAL_QUICK ? 100 : 1000;
/** Known to llama.cpp, refused by us. */
const REFUSED = ['chameleon', 'whitespace', 'youtu'];
/** Names that split in the same way: only the first is compared at length. */
const FAMILIES = [
  'llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe glm4 chatglm-bpe',
  'qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez kormo f2llmv2 grok-2 solar-open', 'bailingmoe bailingmoe2 llada-moe',
  'qwen35', 'gpt-4o llama4 kanana2 talkie minimax-m2', 'tekken',
  'smollm starcoder refact command-r codeshell exaone minerva-7b mellum2', 'deepseek-v3 hunyuan-dense joyai-llm',
  'deepseek-llm', 'deepseek-coder', 'gemma4 granite-embed-multi-311m', 'sarvam-moe',
  'gpt-2 phi-2 modern-bert exaone4 roberta-bpe mpt olmo jais trillion granite-docling a.x-4.0 mellum gigachat jina-es'
  + ' jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code',
  'default', 'falcon', 'bloom poro-chat gpt3-finnish', 'viking', 'seed-coder', 'kimi-k2', 'tiny_aya cohere2moe',
  'exaone-moe', 'minicpm5', 'superbpe', 'granite-embed-multi-97m', 'jais-2', 'afmoe', 'laguna',
].map((names) => names.split(' '));

const { oracle, found: known, skip } = await oracleAndSources(llamaPreNames);
after(disposeOracle);

const isContinuation = (byte) => byte >= 0x80 && byte < 0xc0;
/** Whether the bytes may stand side by side in UTF-8. */
const isPair = (a, b) => (a < 0x80 || isContinuation(a) ? b < 0x80 || (b >= 0xc2 && b < 0xf5) : isContinuation(b))
  || (isContinuation(a) && isContinuation(b));

/** A vocabulary with one of `every` pairs: bytes, pairs in any order, bytes in hexadecimal, U+2581, control and user-defined tokens. */
function vocabulary(every) {
  const characters = byteToBpeCharacter();
  const { next } = random(11);
  const pairs = [];
  for (let a = 0; a < 256; a++) {
    for (let b = 0; b < 256; b++) {
      const plain = a < 0x80 && b < 0x80 && (a < 9 || b < 9 || a === 127 || b === 127);
      if (isPair(a, b) && !plain && next() % every === 0) pairs.push({ a: characters[a], b: characters[b], order: next() });
    }
  }
  pairs.sort((x, y) => x.order - y.order);
  const tokens = [...characters, ...pairs.map(({ a, b }) => a + b)];
  const types = tokens.map(() => 1);
  const add = (type, texts) => texts.forEach((text) => {
    tokens.push(text);
    types.push(type);
  });
  const raw = ['\u2581', '\u2581a', '\u4f60', '\n\n', '\u00e9t'];
  add(6, characters.map((_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`));
  add(1, raw.filter((text) => !tokens.includes(text)));
  add(3, ['<|endoftext|>', '<|im_start|>', '<mask>', '[MASK]']);
  add(4, ['<tool>']);
  return { tokens, types, merges: [...pairs.map(({ a, b }) => `${a} ${b}`), '\u2581 a'] };
}
const LARGE = vocabulary(2);
const SMALL = vocabulary(16);

function write(pre, { tokens, types, merges } = SMALL) {
  const file = temporary(`${pre}.gguf`);
  fs.writeFileSync(file, ggufBytes({
    metadata: [
      ['general.architecture', 'string', 'llama'],
      ['tokenizer.ggml.model', 'string', 'gpt2'],
      ['tokenizer.ggml.pre', 'string', pre],
      ['tokenizer.ggml.tokens', '[string]', tokens],
      ['tokenizer.ggml.token_type', '[i32]', types],
      ['tokenizer.ggml.merges', '[string]', merges],
      ['tokenizer.ggml.bos_token_id', 'u32', tokens.indexOf('<|endoftext|>')],
      ['tokenizer.ggml.eos_token_id', 'u32', tokens.indexOf('<|endoftext|>')],
    ],
    tensors: [],
  }));
  return file;
}

/** Numbers, line breaks and contractions side by side, where the families differ most. */
const PARTS = [
  'a', 'B', 'Cd', 'é', 'É', 'ß', 'ſ', '1', '22', '333', '٤', '½', ' ', '  ', '\t', '\n', '\r\n', '\u00a0', '\u3000', '\'s',
  '\'LL', '\'', '.', ',', '!', '/', '//', '$', '+', '~', '_', '`', '你', '好', 'の', 'カ', '한', 'ไ', 'ก', '\u0301', '\u0903',
  'א', 'क', '。', '，', '…', '「', '€', '∑', '😀', '\u200d', '\u0001', '\ufffd', '\u0378', '𐐀', '𞤀', 'ǅ', 'ʰ', '(', '|', '?',
  '<tool>', '-', '=', '"', ':', '\u0964', '\u060c', '\u2028', '\uf900', 'ꭰ', '㐀', '〇', 'ー', '〜',
];
const mixture = (pick) => Array.from({ length: 1 + pick(24) }, () => PARTS[pick(PARTS.length)].repeat(pick(8) ? 1 : 1 + pick(5))).join('');

test('each name that llama.cpp knows is supported or refused by name', { skip }, async () => {
  assert.deepEqual([...FAMILIES.flat(), ...REFUSED].sort(), known.sort());
  for (const pre of [...REFUSED, 'qwen', 'llama-bpe gpt-2', 'llama']) {
    await assert.rejects(openTokenizer(write(pre), { worker: false }), (error) => {
      assert.equal(error.code, 'UNSUPPORTED_TOKENIZER');
      assert.match(error.message, new RegExp(`"${pre}".*llama-bpe.*qwen2`));
      return true;
    });
  }
});

for (const [index, family] of FAMILIES.entries()) {
  test(`${family[0]}: ${TEXTS} texts`, { skip }, async () => {
    for (const pre of family) {
      const count = pre === family[0] ? TEXTS : 20;
      const file = write(pre, pre === family[0] ? LARGE : SMALL);
      await withTokenizers(oracle, file, openTokenizer, async ({ check, bos, model, ours }) => {
        const pick = randomSource(300 + index);
        for (let i = 0; i < count; i++) {
          await check(i % 3 ? mixture(pick) : randomText(pick, ['<tool>', '<|im_start|>', ' <mask>']), i % 5 === 0);
        }
        assert.deepEqual([...await ours.encode('ab')], [...bos, ...model.tokenize('ab')], pre);
      });
      fs.rmSync(file);
    }
  });
}
