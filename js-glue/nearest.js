// Which of the words that there are was meant, if any is like the one given.

/** So many letters at most, and no more than one in three, may be others. */
const MOST_OFF = 3;
const LETTERS_FOR_ONE = 3;

/**
 * How many letters are to be put in, taken out or changed; case does not count.
 * @param {string} a
 * @param {string} b
 * @param {boolean} [glob] it is enough that a part of b is like a, in which * stands for any characters and ? for one
 */
export function distance(a, b, glob = false) {
  const [from, to] = [a.toLowerCase(), b.toLowerCase()];
  let row = Array.from({ length: to.length + 1 }, (_, i) => (glob ? 0 : i));
  for (const letter of from) {
    const [cost, same] = [glob && letter === '*' ? 0 : 1, glob && '*?'.includes(letter)];
    const next = [row[0] + cost];
    for (let j = 1; j <= to.length; j++) {
      const changed = row[j - 1] + (same || letter === to[j - 1] ? 0 : 1);
      next[j] = Math.min(changed, row[j] + cost, next[j - 1] + cost);
    }
    row = next;
  }
  return glob ? Math.min(...row) : row[to.length];
}

/**
 * Whether words so far from each other are still alike: what is nearest may be like nothing.
 * @param {number} off as distance gives it
 * @param {number} letters of the word
 */
export function isNear(off, letters) {
  return off <= Math.min(MOST_OFF, letters / LETTERS_FOR_ONE);
}

/** How many letters two words begin with together. @param {string} a @param {string} b */
function begins(a, b) {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  return i;
}

/**
 * The nearest, if it is near; of those equally far the one that begins like it.
 * @param {string} word
 * @param {readonly string[]} known
 */
export function nearest(word, known) {
  const [found] = known
    .map((name) => ({ name, off: distance(word, name) }))
    .filter(({ name, off }) => isNear(off, Math.max(name.length, word.length)))
    .sort((a, b) => a.off - b.off || begins(word, b.name) - begins(word, a.name));
  return found?.name;
}
