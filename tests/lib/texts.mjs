// Texts for comparing tokenizers, made from a seed.

/** Numbers in [0, n), the same ones on every run. @param {number} seed */
export function randomSource(seed) {
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

/**
 * A text of some tens of characters: words of many scripts, numbers, code, emoji, lone surrogates, runs of one
 * character, special tokens whole and broken.
 * @param {(n: number) => number} random @param {string[]} specials
 */
export function randomText(random, specials) {
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
