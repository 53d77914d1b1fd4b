// The cases of the table and how each is run. run.mjs and tests/node/conformance.test.mjs use it.
import fs from 'node:fs';
import { MODULES, temporary } from '../lib/fixtures.mjs';
import { WRITABLE, dequantised, ggufBytes } from '../lib/gguf-write.mjs';
import { ARCHITECTURES, EMBEDDED_TEXTS, EMBEDDINGS, QUANTISED, QUANTISED_EXPERTS } from './architectures.mjs';
import { COSINE, PROMPT, TOLERANCES, compareModel, cosine } from './compare.mjs';
import { DEFAULTS, describedModel, promptIds } from './generator.mjs';
import { fixtureTypeCases, modelOfBlocks } from './quantised.mjs';

/** Cases of a table: {architecture, variant, description}. `core`: only the first of each row. */
function tableCases(table, core) {
  const cases = [];
  for (const [architecture, { variants, ...row }] of Object.entries(table)) {
    for (const [variant, overrides] of Object.entries(core ? { base: {} } : { base: {}, ...variants })) {
      cases.push({ architecture, variant, description: { ...row, ...overrides } });
    }
  }
  return cases;
}

export const architectureCases = ({ core = false } = {}) => tableCases(ARCHITECTURES, core);
export const embeddingCases = ({ core = false } = {}) => tableCases(EMBEDDINGS, core);

/** A llama with matrices of each type that the writer encodes, and gpt-oss with experts of MXFP4. */
export function quantisedCases() {
  const exact = new Set(['F16', 'BF16']);
  const cases = WRITABLE.filter((type) => type !== 'F32').map((type) => ({
    architecture: 'llama',
    variant: type,
    description: { ...QUANTISED, type, quantised: !exact.has(type) },
  }));
  cases.push(...fixtureTypeCases());
  const type = (name) => (name.includes('_exps.') ? 'MXFP4' : 'F32');
  return [...cases, {
    architecture: 'gpt-oss',
    variant: 'MXFP4 experts',
    description: { ...QUANTISED_EXPERTS, type, quantised: true },
  }];
}

/** The model for our engine, and the one in f32 that gives the exact result. */
function bothModels(description) {
  if (description.blocksOf) return modelOfBlocks(description);
  const model = describedModel(description);
  return { quantised: model, exact: dequantised(model) };
}

export const boundsOf = ({ quantised, half }) => TOLERANCES[quantised ? 'quantised' : half ? 'half' : 'exact'];

/** What our engine threw, as a result: declined by name, or a failure. */
function thrown(error) {
  if (error.oracle) return { status: 'oracle', message: error.message, failures: [`llama.cpp: ${error.message}`] };
  const { code, message } = error;
  if (code?.startsWith('UNSUPPORTED_')) return { status: 'unsupported', code, message, failures: [] };
  return { status: 'refused', code, message, failures: [`${code ?? error.name}: ${message}`] };
}

const fromOracle = (promise) => promise.catch((error) => { throw Object.assign(error, { oracle: true }); });

/**
 * Runs a case. Returns {status, failures: [text], ...} where status is 'same' (within the bounds;
 * with nmse, worst, greedy), 'differs', 'unsupported' (our engine declines it by name: code,
 * message), 'refused' (our engine throws anything else) or 'oracle' (llama.cpp can't).
 */
export async function runCase({ open, oracle, description, thorough = false, modules = MODULES }) {
  const { quantised, exact } = bothModels(description);
  const path = temporary('conformance.gguf');
  fs.writeFileSync(path, ggufBytes(exact));
  const prompt = promptIds(description.promptLength ?? PROMPT, description.vocab ?? DEFAULTS.vocab, description.seed ?? 1);
  const tolerance = boundsOf(description);
  const reference = (ids) => fromOracle(oracle.logprobs(path, ids));
  const bytes = ggufBytes(quantised);
  const rounded = description.quantised && ((ids) => {
    fs.writeFileSync(path, bytes);
    return fromOracle(oracle.logprobs(path, ids));
  });
  try {
    const found = await compareModel({ open, bytes, prompt, reference, rounded, tolerance, modules, thorough });
    return { status: found.failures.length ? 'differs' : 'same', ...found };
  } catch (error) {
    return thrown(error);
  }
}

/** Whether the JS layer opens models for vectors already: the option is refused as unknown before. */
const knowsEmbeddings = (error) => !(error.code === 'BAD_ARGUMENT' && error.message.includes('embed'));

/** As runCase, for embeddings: {status, failures, cosine: the lowest of all texts}. */
export async function runEmbedding({ open, oracle, description, modules = MODULES }) {
  const bytes = ggufBytes(describedModel(description));
  const path = temporary('conformance.gguf');
  fs.writeFileSync(path, bytes);
  const total = { cosine: 1, failures: [] };
  try {
    for (const module of modules) {
      const model = await open(bytes, { module, embeddings: true });
      try {
        for (const text of EMBEDDED_TEXTS) {
          const theirs = await fromOracle(oracle.embedding(path, text));
          const ids = [...await model.tokenize(text)];
          if (String(ids) !== String(theirs.ids)) total.failures.push(`${module}: ids ${ids}, not ${theirs.ids}`);
          const found = cosine(await model.embed(text), theirs.vector);
          if (!(found > COSINE)) total.failures.push(`${module}: cosine ${found} of '${text.slice(0, 20)}'`);
          if (!(found >= total.cosine)) total.cosine = found;
        }
      } finally {
        await model.close();
      }
    }
    return { status: total.failures.length ? 'differs' : 'same', ...total };
  } catch (error) {
    if (!knowsEmbeddings(error)) return { status: 'unsupported', code: error.code, message: error.message, failures: [] };
    return thrown(error);
  }
}
