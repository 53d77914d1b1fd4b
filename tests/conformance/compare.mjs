// One model of the table on both sides, and how far apart they are.
//
// What is compared. node-llama-cpp gives the next-token distribution of llama.cpp after each token
// as 32-bit probabilities, so logits are known up to a constant, and both sides are brought to
// natural log-probabilities. A float's own spacing makes those exact to 1e-7, and its sum over the
// vocabulary, added up in one float, to about 1e-6 (a constant of the row); probabilities below
// 1e-35 would lose digits, and are left out. The models here stay above e^-60.
//
// What f32 allows. Both sides compute in f32 and add in different orders. A matrix product over k
// terms is off by about 2^-24 sqrt(k) of its size, some 5e-7 at k = 50; softmax of scores that
// spread over several units, gates and norms multiply that by a few in each layer, and rotations
// that llama.cpp gets by multiplying up in f32 add 1e-7 times the position. Measured over all
// variants: 1e-5 to 1e-4 in logits that spread over 3. A wrong angle, mask, head or scale moves
// log-probabilities by 0.01 to 10.
//
// GELU. llama.cpp looks GELU up in a table of halves: argument and result are off by up to 2^-12
// of their size (both together about 2e-4, root mean square), and so is what each feed-forward
// block adds. That is 1e-3 of the logits after a few layers and the attention between them, the
// largest of some 25,000 values ten times that; squared and relative, 1e-6 (measured: up to 4e-6
// in seven layers). The variants with hardly any feed-forward part keep the bounds of f32.
import { logSoftmax, rowsOf } from '../lib/fixtures.mjs';

/**
 * nmse: of every position, over the vocabulary. worst: of a single log-probability. margin: between
 * the reference's two likeliest tokens, for a greedy step to count: what both could be off.
 */
export const TOLERANCES = {
  exact: { nmse: 1e-9, worst: 3e-4, margin: 6e-4 },
  half: { nmse: 1e-5, worst: 5e-2, margin: 5e-2 },
  // errors: see QUANTISED_RATIO. Likely tokens are off by less than the unlikely.
  quantised: { nmse: Infinity, margin: 0.4 },
};
/**
 * Quantised matrices. The exact result is that of f32 on the values that the blocks stand for.
 * llama.cpp itself rounds activations to 8 bits to multiply quantised matrices, and so do we; how
 * far that carries is the model's matter (here: attention over scores that spread widely). So
 * llama.cpp on the quantised file is the measure: our error may be at most so many times
 * its own: that of the median position (an expert that is just not chosen any more changes others
 * altogether), and the worst value, which depends on luck.
 */
export const QUANTISED_RATIO = { median: 2, worst: 4 };
/** Cosine of an embedding with the reference's. */
export const COSINE = 0.9999;

export const PROMPT = 24;
export const GENERATED = 64;
const CONTEXT = 128;
const CHUNK = 7; // prompts are cut where no window, convolution or tile of a kernel ends
const LOWEST = Math.log(1e-35);

/**
 * Normalised mean squared error of log-probabilities: of the worst position, and the median of all;
 * and the worst single difference, and where it is. ours: logits (or log-probabilities).
 */
export function compareRows(ours, reference) {
  const result = { nmse: 0, median: 0, worst: 0, position: 0 };
  const errors = [];
  if (ours.length !== reference.length) throw new Error(`${ours.length} rows, not ${reference.length}`);
  reference.forEach((theirs, position) => {
    const mine = logSoftmax(ours[position]);
    if (mine.length !== theirs.length) throw new Error(`rows of ${mine.length} logits, not ${theirs.length}`);
    let mean = 0, count = 0;
    for (const v of theirs) if (v > LOWEST) { mean += v; count++; }
    mean /= count;
    let error = 0, norm = 0;
    for (let id = 0; id < theirs.length; id++) {
      if (!(theirs[id] > LOWEST)) continue;
      const difference = Math.abs(mine[id] - theirs[id]);
      // NaN is the worst of all
      if (!(difference <= result.worst)) { result.worst = difference; result.position = position; }
      error += difference * difference;
      norm += (theirs[id] - mean) ** 2;
    }
    if (!(error / norm <= result.nmse)) result.nmse = error / norm;
    errors.push(error / norm);
  });
  result.median = errors.sort((a, b) => a - b)[errors.length >> 1];
  return result;
}

/** The two likeliest of a row. */
function topTwo(row) {
  let best = 0, second = -1;
  for (let id = 1; id < row.length; id++) {
    if (row[id] > row[best]) { second = best; best = id; } else if (second < 0 || row[id] > row[second]) second = id;
  }
  return { best, gap: row[best] - row[second] };
}

/**
 * Greedy tokens against the reference's distribution at each step, given the same text before it.
 * A step counts only where the reference's two likeliest are further apart than both could be off.
 */
export function compareGreedy(tokens, logprobs, reference, from, margin) {
  const greedy = { equal: 0, close: 0, differ: 0, worst: 0 };
  tokens.forEach((token, step) => {
    const row = reference[from + step];
    const { best, gap } = topTwo(row);
    const off = Math.abs(logprobs[step] - row[token]);
    if (!(off <= greedy.worst)) greedy.worst = off;
    if (gap <= margin) greedy.close++;
    else if (token === best) greedy.equal++;
    else greedy.differ++;
  });
  return greedy;
}

/**
 * Caches of other types, in thorough runs: K and V off by 2^-12, 1/254 and 1/16 of the largest of
 * 32. Bounds of the median position's error, ten times what is measured (twice for q4_0), experts that
 * change included; each type has kernels of its own, and a mask or sink that one of them forgets is
 * off by 0.3 to 3.
 */
export const CACHE_BOUNDS = { f16: 3e-4, q8_0: 5e-3, q4_0: 0.25 };

/** All logits of a sequence, by one build of the engine. */
async function evaluated(open, bytes, ids, options) {
  const model = await open(bytes, { context: CONTEXT, allLogits: true, kvType: 'f32', ...options });
  try {
    return await rowsOf(model, ids);
  } finally {
    await model.close();
  }
}

async function generated(open, bytes, prompt, options) {
  const model = await open(bytes, { context: CONTEXT, kvType: 'f32', ...options });
  try {
    const result = await model.generate(prompt, { maxTokens: GENERATED, ignoreEos: true, logprobs: true }).done;
    if (result.tokens.length !== GENERATED) throw new Error(`${result.tokens.length} tokens instead of ${GENERATED}`);
    return result;
  } finally {
    await model.close();
  }
}

/**
 * Our engine generates GENERATED tokens greedily from the prompt (decode); the whole text is then
 * evaluated by both sides (prefill, in one piece and in pieces of CHUNK).
 * reference(ids) gives the reference's log-probabilities; rounded(ids), of quantised models, those
 * of llama.cpp on the quantised file. Returns {nmse, median, worst, greedy, failures: [text],
 * own?, caches?} where own is llama.cpp's own median error, and caches those of ours by cache type.
 */
export async function compareModel({ open, bytes, prompt, reference, rounded, tolerance, modules, thorough = false }) {
  const { tokens, logprobs } = await generated(open, bytes, prompt, { module: modules[0] });
  const ids = [...prompt, ...tokens];
  const theirs = await reference(ids);
  const bound = { ...tolerance, median: Infinity };
  let own;
  if (rounded) {
    own = compareRows(await rounded(ids), theirs);
    for (const [measure, ratio] of Object.entries(QUANTISED_RATIO)) bound[measure] = ratio * own[measure];
  }
  const greedy = compareGreedy(tokens, logprobs, theirs, prompt.length - 1, tolerance.margin);
  const total = { nmse: 0, median: 0, worst: 0, own: own?.median, greedy, failures: [] };
  if (greedy.differ) total.failures.push(`${greedy.differ} of ${GENERATED} greedy tokens differ`);
  if (!(greedy.worst < bound.worst)) total.failures.push(`decode is off by ${greedy.worst}`);

  const runs = modules.flatMap((module, i) => (thorough ? [{ module }, { module, chunk: CHUNK }]
    : [i === 0 ? { module, chunk: CHUNK } : { module }]));
  for (const options of runs) {
    const found = compareRows(await evaluated(open, bytes, ids, options), theirs);
    const where = `${options.module}${options.chunk ? `, chunks of ${options.chunk}` : ''}, position ${found.position}`;
    for (const measure of ['nmse', 'median', 'worst']) {
      if (!(found[measure] < bound[measure])) total.failures.push(`${where}: ${measure} ${found[measure].toExponential(2)}`);
      if (!(found[measure] <= total[measure])) total[measure] = found[measure];
    }
  }
  if (!thorough || rounded) return total;
  total.caches = {};
  for (const [kvType, limit] of Object.entries(CACHE_BOUNDS)) {
    for (const module of modules) {
      const { median } = compareRows(await evaluated(open, bytes, ids, { module, kvType, chunk: CHUNK }), theirs);
      if (!(median < limit)) total.failures.push(`${module}, ${kvType} cache: median ${median.toExponential(2)}`);
      if (!(median <= (total.caches[kvType] ?? 0))) total.caches[kvType] = median;
    }
  }
  return total;
}

/** Cosine of two vectors. */
export function cosine(a, b) {
  if (a.length !== b.length) throw new Error(`a vector of ${a.length} numbers, not ${b.length}`);
  let ab = 0, aa = 0, bb = 0;
  for (let i = 0; i < a.length; i++) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return ab / Math.sqrt(aa * bb);
}
