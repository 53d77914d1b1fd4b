// Perplexity of the models of ../shared/fixtures/stories260k, one function in many types, on a
// text that the f32 one made, beside llama.cpp's for the same file.
import fs from 'node:fs';
import { MODULES, fixture, fixturesMissing } from '../lib/fixtures.mjs';

const SEGMENTS = 8;
const LENGTH = 250; // tokens after BOS; 2,000 in all
const CONTEXT = 256;
const BOS = 1;
/** Ours may be off by this part of llama.cpp's. */
export const PERPLEXITY_BOUND = 0.01;

const wide = (type) => fixture('stories260k', `wide-${type}.gguf`);

/** Types of the files: none where the fixtures are absent. */
export function wideTypes() {
  if (fixturesMissing()) return [];
  const names = fs.readdirSync(fixture('stories260k')).map((n) => /^wide-(.*)\.gguf$/.exec(n)?.[1]);
  return names.filter(Boolean).sort();
}

/** `segments` texts as ids, sampled by the f32 model, the same every time. */
export async function sampledTexts(open, segments = SEGMENTS) {
  const model = await open(wide('F32'), { context: CONTEXT, module: 'base' });
  try {
    const texts = [];
    for (let seed = 1; seed <= segments; seed++) {
      const settings = { maxTokens: LENGTH, temperature: 1, topK: 0, topP: 1, minP: 0, seed, ignoreEos: true };
      const { tokens } = await model.generate([BOS], settings).done;
      texts.push([BOS, ...tokens]);
    }
    return texts;
  } finally {
    await model.close();
  }
}

const perplexity = (logprobs) => Math.exp(-logprobs.reduce((a, v) => a + v, 0) / logprobs.length);

/** {status, theirs, ours: {module: perplexity}, worst: relative, failures} of one type. */
export async function comparePerplexity({ open, oracle, type, texts, modules = MODULES }) {
  const result = { status: 'same', ours: {}, worst: 0, failures: [] };
  try {
    for (const module of modules) {
      const model = await open(wide(type), { context: CONTEXT, allLogits: true, module });
      try {
        const scores = [];
        for (const ids of texts) scores.push(...await model.score(ids));
        result.ours[module] = perplexity(scores);
      } finally {
        await model.close();
      }
    }
  } catch (error) {
    if (!error.code?.startsWith('UNSUPPORTED_')) throw error;
    return { status: 'unsupported', code: error.code, message: error.message, failures: [] };
  }
  const theirs = [];
  for (const ids of texts) {
    const rows = await oracle.logprobs(wide(type), ids, CONTEXT);
    for (let i = 1; i < ids.length; i++) theirs.push(rows[i - 1][ids[i]]);
  }
  result.theirs = perplexity(theirs);
  for (const [module, ours] of Object.entries(result.ours)) {
    const off = Math.abs(ours / result.theirs - 1);
    result.worst = Math.max(result.worst, off);
    if (!(off < PERPLEXITY_BOUND)) result.failures.push(`${module}: perplexity ${ours}, llama.cpp ${result.theirs}`);
  }
  if (result.failures.length) result.status = 'differs';
  return result;
}
