// Tokenizers against llama.cpp, id by id: every vocabulary of its test suite
// whose family we have, its own test texts, and generated texts with a fixed
// seed. Skipped where node-llama-cpp (or git, which unpacks its sources) is not
// there; with CI set both must be.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { after, test } from 'node:test';
import { openTokenizer } from '../../js-glue/index.js';
import { BUNDLED, temporary } from '../lib/fixtures.mjs';
import { disposeOracle, loadOracle } from '../lib/oracle.mjs';

const TEXTS_PER_VOCABULARY = 400;
const VOCABULARIES = [
  'llama-spm', 'phi-3', 'baichuan', 'llama-bpe', 'qwen2', 'qwen35', 'gpt-2', 'starcoder', 'refact', 'command-r',
  'mpt', 'aquila', 'gpt-neox', // the last two name no `pre`: "default"
];

const oracle = await loadOracle();
let skip = oracle ? false : 'node-llama-cpp is not installed for this machine';
let models;
if (!skip) {
  try {
    models = unpackModels();
  } catch (error) {
    skip = `llama.cpp's sources cannot be unpacked: ${error.message.split('\n')[0]}`;
  }
}
if (skip && process.env.CI) throw new Error(skip);
after(disposeOracle);

/** The models folder of the sources that node-llama-cpp ships as a git bundle. */
function unpackModels() {
  const entry = createRequire(import.meta.url).resolve('node-llama-cpp');
  const root = path.join(entry.slice(0, entry.lastIndexOf('node-llama-cpp')), 'node-llama-cpp');
  const folder = temporary('llama.cpp');
  const quiet = { stdio: ['ignore', 'ignore', 'pipe'] };
  execFileSync('git', ['clone', '--quiet', '--no-checkout', path.join(root, 'llama/gitRelease.bundle'), folder], quiet);
  execFileSync('git', ['-C', folder, 'checkout', '--quiet', 'HEAD', '--', 'models'], quiet);
  return path.join(folder, 'models');
}

// --- texts ---------------------------------------------------------------------

/** Numbers in [0, n), the same ones on every run. @param {number} seed */
function randomSource(seed) {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

const WORDS = [
  ...('the quick Brown fox I\'ll WE\'RE don\'t DON\'T you\'Ve they\'D he\'s HE\'S it\'M \'tis o\'clock rock\'n\'roll'
    + ' naïve café Übermaß straße Привет мир Ελλάδα 你好世界 こんにちは 東京タワー 한국어 مرحبا שלום नमस्ते สวัสดี'
    + ' tiếng Việt 🚀 👩‍👩‍👧‍👦 👨🏽‍💻 🏳️‍🌈 🇩🇪 e\u0301\u0302 a\u0316 ∑∞≠ 𝔘𝔫𝔦 ½ ² ٣٤٥ 二三 Ⅷ x86_64 foo_bar() {return 0;} <html> </html>'
    + ' // TODO: #include <stdio.h> a->b ++i && || == != <= >= 0x1F 3.14159 1,234,567.89 1e-9 $100 €50 50% @user'
    + ' #tag http://example.com/?q=1&r=2 \\n ... --- ___ *** ▁ ſ İ ı ﬁ Ǆ <0x41> [PAD] <|im_end|> </s> <s> <unk>').split(' '),
  '\u00a0', '\u2003', '\u3000', '\u0085', '\u200b', '\ufeff', '\u00ad', '\ud83d', '\udc00', '\u0000', '\u0001',
];
const SEPARATORS = [
  ' ', ' ', ' ', '  ', '   ', '        ', '\n', '\n\n', '\r\n', '\t', '\t\t', ' \n ', ' \t', '\n \n', '\v', '\f', '', '',
  '\u00a0', '\u3000', '.', ',', '\'', '"', '-',
];
const RUNS = [' ', '\n', '\t', 'a', '=', '-', '\r', '▁', '0', '9', '😀', '\'', '.', '\u0301', '<', '|'];
const ALPHABETS = ['ab ', ' \n\ta', '\'sStTrReElLvVdDmM ', '01 a.', '<|>a ', '._-/ \n'];
/** Blocks whose characters have been in Unicode for long: tables of any recent version agree. */
const BLOCKS = [[0x20, 0x7e], [0xa1, 0x17f], [0x300, 0x362], [0x391, 0x3a1], [0x400, 0x481], [0x5d0, 0x5ea], [0x620, 0x65f],
  [0x904, 0x939], [0xe01, 0xe3a], [0x1100, 0x11ff], [0x2010, 0x2027], [0x2070, 0x2071], [0x20a0, 0x20b5],
  [0x2150, 0x2188], [0x2190, 0x23e7], [0x2460, 0x24ff], [0x3041, 0x3096], [0x30a1, 0x30fa], [0x4e00, 0x9fa5],
  [0xac00, 0xd7a3], [0xff01, 0xff5e], [0x1d400, 0x1d454], [0x1f300, 0x1f320], [0x1f600, 0x1f64f], [0x20000, 0x2a6d6]];

/** @param {(n: number) => number} random @param {string[]} specials */
function randomText(random, specials) {
  /** @template T @param {T[] | string} list */
  const pick = (list) => list[random(list.length)];
  const repeat = (n, make) => Array.from({ length: n }, make).join('');
  const length = pick([1, 2, 3, 5, 8, 13, 30]);
  const kind = random(10);
  if (kind < 5) {
    return repeat(length, () => pick(WORDS) + pick(SEPARATORS)
      + (random(10) === 0 ? pick(specials) + pick(['', ' ', '\n', '  x']) : '')
      + (random(20) === 0 ? String(random(10 ** (1 + random(9)))) : ''));
  }
  if (kind === 5) return pick(['', 'x']) + pick(RUNS).repeat(1 + random(200)) + pick(['', 'x', ' x', '\n']);
  if (kind < 8) {
    return repeat(3 * length, () => {
      const [first, last] = pick(BLOCKS);
      return String.fromCodePoint(first + random(last - first + 1));
    });
  }
  if (kind === 8) { // whole and broken special tokens
    return repeat(length, () => {
      const text = pick(specials);
      const from = random(3) ? 0 : random(text.length);
      return text.slice(from, random(3) ? undefined : from + random(text.length)) + pick(['', ' ', 'a', '\n', '<', '|', '  ']);
    });
  }
  const alphabet = pick(ALPHABETS);
  return repeat(4 * length, () => pick(alphabet));
}

// --- comparison ------------------------------------------------------------------

/** Both sides on one file; check(compare, specials) does the comparing. */
async function withVocabulary(file, check) {
  const model = await oracle.llama.loadModel({ modelPath: file, vocabOnly: true });
  const ours = await openTokenizer(file, { worker: false });
  try {
    const specials = [];
    for (let id = 0; id < ours.vocabSize && specials.length < 400; id++) {
      const text = model.isSpecialToken(id) ? model.detokenize([id], true) : '';
      if (text) specials.push(text);
    }
    let compared = 0;
    const compare = async (text) => {
      for (const parseSpecial of [false, true]) {
        const wanted = [...model.tokenize(text, parseSpecial)];
        const got = [...await ours.encode(text, { addSpecial: false, parseSpecial })];
        assert.deepEqual(got, wanted, `${JSON.stringify(text)}, parseSpecial ${parseSpecial}`);
        compared++;
      }
    };
    await check(compare, specials.length ? specials : ['<s>'], model, ours);
    assert.ok(compared >= TEXTS_PER_VOCABULARY);
  } finally {
    await ours.close();
    await model.dispose();
  }
}

async function compareGenerated(compare, specials, seed) {
  const random = randomSource(seed);
  for (let i = 0; i < TEXTS_PER_VOCABULARY; i++) await compare(randomText(random, specials));
}

/** The texts of a .inp file with the ids of its .out file. */
function recorded(file) {
  if (!fs.existsSync(`${file}.inp`)) return [];
  const ids = fs.readFileSync(`${file}.out`, 'utf8').split('\n').slice(0, -1);
  const texts = fs.readFileSync(`${file}.inp`, 'utf8').split('\n__ggml_vocab_test__\n').slice(0, ids.length);
  assert.ok(texts.length > 40);
  return texts.map((text, i) => ({ text, ids: ids[i].split(' ').filter(Boolean).map(Number) }));
}

test('the bundled model: generated texts', { skip }, async () => {
  await withVocabulary(BUNDLED, (compare, specials) => compareGenerated(compare, specials, 1));
});

for (const [index, name] of VOCABULARIES.entries()) {
  test(`${name}: recorded and generated texts`, { skip }, async () => {
    const file = path.join(models, `ggml-vocab-${name}.gguf`);
    await withVocabulary(file, async (compare, specials, model, ours) => {
      for (const { text, ids } of recorded(file)) {
        assert.deepEqual([...await ours.encode(text, { addSpecial: false })], ids, JSON.stringify(text));
        await compare(text);
      }
      await compareGenerated(compare, specials, 100 + index);
      const bos = model.tokens.shouldPrependBosToken ? [model.tokens.bos] : [];
      const eos = model.tokens.shouldAppendEosToken ? [model.tokens.eos] : [];
      assert.deepEqual([...await ours.encode('a b')], [...bos, ...model.tokenize('a b'), ...eos]);
    });
  });
}

test('long texts, the worst ones among them', { skip }, async () => {
  const size = 1 << 18;
  const english = fs.readFileSync(path.join(models, 'ggml-vocab-gpt-2.gguf.inp'), 'utf8');
  const texts = [english.repeat(size / english.length + 1).slice(0, size), 'a'.repeat(size), ' '.repeat(size), '\n'.repeat(size)];
  for (const name of ['llama-spm', 'llama-bpe']) {
    const ours = await openTokenizer(path.join(models, `ggml-vocab-${name}.gguf`), { worker: false });
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
