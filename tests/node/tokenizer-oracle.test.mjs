// Tokenizers against llama.cpp, id by id: every vocabulary of its test suite,
// its own test texts, and ten thousand generated ones for each (a hundredth of
// that with LINEAL_QUICK=1). Skipped where node-llama-cpp (or git, which unpacks
// its sources) is not there; with CI set both must be.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, test } from 'node:test';
import { openTokenizer } from '../../js-glue/index.js';
import { BUNDLED, temporary } from '../lib/fixtures.mjs';
import { rewriteVocabulary } from '../lib/gguf-edit.mjs';
import { llamaVocabularies, recorded } from '../lib/llama-sources.mjs';
import { disposeOracle, oracleAndSources, withTokenizers } from '../lib/oracle.mjs';
import { randomSource, randomText } from '../lib/texts.mjs';

const TEXTS_PER_VOCABULARY = process.env.LINEAL_QUICK ? 100 : 10_000;
/** Those whose recorded ids come with the sources: none may get lost. */
const RECORDED = [
  'bert-bge', 'command-r', 'deepseek-coder', 'deepseek-llm', 'falcon', 'gemma-4', 'gpt-2', 'llama-bpe', 'llama-spm',
  'mpt', 'phi-3', 'qwen2', 'qwen35', 'refact', 'starcoder',
];

const { oracle, found: vocabularies, skip } = await oracleAndSources(llamaVocabularies);
after(disposeOracle);

async function checkGenerated({ check, specials }, seed, count = TEXTS_PER_VOCABULARY) {
  const random = randomSource(seed);
  for (let i = 0; i < count; i++) await check(randomText(random, specials), i % 2 === 1);
}

test('the bundled model: generated texts', { skip }, async () => {
  await withTokenizers(oracle, BUNDLED, openTokenizer, (sides) => checkGenerated(sides, 1));
});

test('all recorded sets are there', { skip }, () => {
  const names = vocabularies.filter(({ file }) => recorded(file).length > 40).map(({ name }) => name);
  assert.deepEqual(names.sort(), RECORDED);
});

for (const [index, { name, file }] of vocabularies.entries()) {
  test(`${name}: recorded and generated texts`, { skip }, async () => {
    await withTokenizers(oracle, file, openTokenizer, async (sides) => {
      const { check, bos, model, ours } = sides;
      for (const { text, ids } of recorded(file)) {
        assert.deepEqual([...await ours.encode(text, { addSpecial: false })], ids, JSON.stringify(text));
        await check(text, true);
      }
      await checkGenerated(sides, 100 + index);
      const last = name === 'bert-bge' ? model.tokens.sep : model.tokens.shouldAppendEosToken ? model.tokens.eos : null;
      assert.deepEqual([...await ours.encode('a b')], [...bos, ...model.tokenize('a b'), last].filter((id) => id !== null));
    });
  });
}

/** What no file of the suite has: other options of WordPiece and Unigram. 20,000 tokens are enough. */
const VARIANTS = [
  ['bert-bge', { 'tokenizer.ggml.normalizer.lowercase': false }],
  ['bert-bge', { 'tokenizer.ggml.normalizer.strip_accents': false }],
  ['bert-bge', { 'tokenizer.ggml.normalizer.lowercase': false, 'tokenizer.ggml.normalizer.strip_accents': true }],
  ['bert-bge', { 'general.name': 'Modern-BERT' }],
  ['nomic-bert-moe', { 'tokenizer.ggml.precompiled_charsmap': null, 'tokenizer.ggml.remove_extra_whitespaces': false }],
  ['nomic-bert-moe', { 'tokenizer.ggml.add_space_prefix': false, 'general.architecture': 'bert' }],
  ['nomic-bert-moe', { 'tokenizer.ggml.add_space_prefix': true, 'tokenizer.ggml.remove_extra_whitespaces': false }],
  ['llama-spm', { 'tokenizer.ggml.add_space_prefix': false }],
];
for (const [index, [name, keys]] of VARIANTS.entries()) {
  const shown = Object.entries(keys).map(([key, value]) => `${key.replace('tokenizer.ggml.', '')} ${value}`).join(', ');
  test(`${name} with ${shown}`, { skip }, async () => {
    const file = temporary(`variant-${index}.gguf`);
    rewriteVocabulary(vocabularies.find((vocabulary) => vocabulary.name === name).file, file, keys, 20_000);
    await withTokenizers(oracle, file, openTokenizer, (sides) => checkGenerated(sides, 200 + index, TEXTS_PER_VOCABULARY / 10));
    fs.rmSync(file);
  });
}

test('long texts, the worst ones among them', { skip }, async () => {
  const size = 1 << 18;
  const files = Object.fromEntries(vocabularies.map(({ name, file }) => [name, file]));
  const english = fs.readFileSync(`${files['gpt-2']}.inp`, 'utf8');
  const texts = [english.repeat(size / english.length + 1).slice(0, size), 'a'.repeat(size), ' '.repeat(size), '\n'.repeat(size)];
  for (const name of ['llama-spm', 'llama-bpe', 'gemma-4']) {
    const ours = await openTokenizer(files[name], { worker: false });
    for (const text of texts) {
      const start = performance.now();
      const ids = await ours.encode(text, { addSpecial: false });
      // Tenths of a second are usual; anything quadratic takes minutes.
      assert.ok(performance.now() - start < 30000, `${name}, ${JSON.stringify(text.slice(0, 8))}...`);
      const back = await ours.decode(ids, { showSpecial: true });
      assert.equal(back.trimStart(), text.trimStart());
    }
    await ours.close();
  }
});
