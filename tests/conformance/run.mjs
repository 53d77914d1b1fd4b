// npm run conformance: every architecture and variant of the table against llama.cpp.
//   --write     put the matrix into docs/models.md
//   --strict    what our engine declines counts as a failure, too
//   --core      one variant an architecture
//   --only RE   cases whose 'architecture: variant' matches
//   --json FILE all results
// Exit code 1 where anything differs, or llama.cpp can't run a file.
import fs from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { open } from '../../js-glue/index.js';
import { ROOT } from '../lib/fixtures.mjs';
import { OracleProcess } from './oracle-process.mjs';
import { comparePerplexity, sampledTexts, wideTypes } from './perplexity.mjs';
import { matrix, withMatrix } from './report.mjs';
import { architectureCases, embeddingCases, quantisedCases, runCase, runEmbedding } from './suite.mjs';

const { values: options } = parseArgs({
  options: {
    write: { type: 'boolean' }, strict: { type: 'boolean' }, core: { type: 'boolean' },
    only: { type: 'string' }, json: { type: 'string' },
  },
});
if (options.write && (options.only || options.core)) throw new Error('--write needs all cases');

const oracle = new OracleProcess();
if (!await oracle.available()) {
  console.error('node-llama-cpp is not installed for this machine');
  process.exit(1);
}

const DETAILS = 3;
const only = new RegExp(options.only ?? '');
const counts = {};

function line(kind, { architecture, variant }, result) {
  const numbers = result.greedy
    ? `  NMSE ${result.nmse.toExponential(1)}, log-probability ${result.worst.toExponential(1)}, `
      + `greedy ${result.greedy.equal} equal, ${result.greedy.close} too close, ${result.greedy.differ} differ`
      + (result.caches ? `, caches ${Object.values(result.caches).map((v) => v.toExponential(0)).join(' ')}` : '')
      + (result.own === undefined ? '' : `, median ${result.median.toExponential(1)} to ${result.own.toExponential(1)}`)
    : result.cosine !== undefined ? `  1 - cosine ${(1 - result.cosine).toExponential(1)}`
      : result.theirs !== undefined ? `  ${JSON.stringify(result.ours)}, llama.cpp ${result.theirs}` : '';
  console.log(`${result.status.padEnd(11)} ${kind} ${architecture}: ${variant}${numbers}`);
  const details = result.failures.length ? result.failures : result.status === 'same' ? [] : [result.message];
  for (const text of details.slice(0, DETAILS)) console.log(`            ${text}`);
  if (details.length > DETAILS) console.log(`            and ${details.length - DETAILS} more`);
}

async function runAll(kind, cases, run) {
  const results = [];
  for (const entry of cases.filter((c) => only.test(`${c.architecture}: ${c.variant}`))) {
    const result = await run(entry);
    counts[result.status] = (counts[result.status] ?? 0) + 1;
    line(kind, entry, result);
    results.push({ ...entry, ...result });
  }
  return results;
}

const distributions = ({ description }) => runCase({ open, oracle, description, thorough: true });
const embedding = ({ description }) => runEmbedding({ open, oracle, description });
let texts;
const perplexity = async ({ variant }) => {
  texts ??= await sampledTexts(open);
  return comparePerplexity({ open, oracle, type: variant, texts });
};
const wide = wideTypes().map((variant) => ({ architecture: 'perplexity', variant }));

const results = {
  architectures: await runAll('', architectureCases(options), distributions),
  embeddings: await runAll('embedding', embeddingCases(options), embedding),
  quantised: await runAll('quantised', quantisedCases(), distributions),
  perplexities: await runAll('', options.core ? [] : wide, perplexity),
};
await oracle.close();

if (options.json) fs.writeFileSync(options.json, JSON.stringify(results, null, 1));
if (options.write) {
  const file = path.join(ROOT, 'docs/models.md');
  fs.writeFileSync(file, withMatrix(fs.readFileSync(file, 'utf8'), matrix(results)));
}
console.log(Object.entries(counts).map(([status, n]) => `${n} ${status}`).join(', ')
  + (oracle.crashes ? `; llama.cpp died ${oracle.crashes} times` : ''));
const { differs = 0, refused = 0, oracle: failing = 0, unsupported = 0 } = counts;
process.exitCode = differs + refused + failing + (options.strict ? unsupported : 0) ? 1 : 0;
