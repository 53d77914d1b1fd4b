// The matrix of docs/models.md, from the results of a run.
import { COSINE, QUANTISED_RATIO } from './compare.mjs';
import { PERPLEXITY_BOUND } from './perplexity.mjs';
import { boundsOf } from './suite.mjs';

const number = (value) => (value === 0 ? '0' : value.toExponential(0).replace('e+0', ''));
const most = (results, key) => results.reduce((a, r) => Math.max(a, r[key] ?? 0), 0);

function grouped(results) {
  const groups = new Map();
  for (const result of results) {
    if (!groups.has(result.architecture)) groups.set(result.architecture, []);
    groups.get(result.architecture).push(result);
  }
  return [...groups];
}

/** 'as it comes, tied; 3 seeds' of the variants that were compared. */
function variantNames(results) {
  const names = results.filter((r) => r.variant !== 'base' && !r.variant.startsWith('seed ')).map((r) => r.variant);
  const seeds = 1 + results.filter((r) => r.variant.startsWith('seed ')).length;
  return `${names.join('; ')}${names.length ? '; ' : ''}${seeds} seed${seeds > 1 ? 's' : ''}`;
}

const WORDS = { unsupported: 'not supported', refused: 'FAILS', differs: 'DIFFERS', oracle: 'llama.cpp fails' };

/** What did not compare, by status: 'not supported: yarn'. */
function gaps(results) {
  return Object.entries(WORDS).flatMap(([status, words]) => {
    const found = results.filter((r) => r.status === status);
    if (!found.length) return [];
    if (found.length === results.length) return [words];
    return [`${words}: ${found.map((r) => r.variant).join('; ')}`];
  });
}

function greedyCell(results) {
  const sum = (key) => results.reduce((a, r) => a + r.greedy[key], 0);
  const close = sum('close');
  return `${sum('equal')} of ${sum('equal') + sum('differ')}${close ? `, ${close} too close` : ''}`;
}

/** Errors of the median position with a cache of f16, q8_0 and q4_0. */
const cacheCell = (results) => {
  const caches = results.map((r) => r.caches).filter(Boolean);
  return caches.length ? Object.keys(caches[0]).map((type) => number(most(caches, type))).join(', ') : '';
};

const table = (head, rows) => [
  `| ${head.join(' | ')} |`, `|${head.map(() => '---').join('|')}|`, ...rows.map((row) => `| ${row.join(' | ')} |`),
].join('\n');

function architectureTable(results) {
  return table(
    ['architecture', 'compared', 'worst NMSE', 'worst log-probability', 'greedy tokens equal', 'caches', 'not as it should'],
    grouped(results).map(([architecture, all]) => {
      const same = all.filter((r) => r.greedy);
      if (!same.length) return [architecture, '', '', '', '', '', gaps(all).join('. ')];
      const bounds = boundsOf(same[0].description);
      return [
        architecture, variantNames(same), `${number(most(same, 'nmse'))} (< ${number(bounds.nmse)})`,
        `${number(most(same, 'worst'))} (< ${number(bounds.worst)})`, greedyCell(same), cacheCell(same), gaps(all).join('. '),
      ];
    }),
  );
}

function embeddingTable(results) {
  return table(['architecture', 'compared', '1 - lowest cosine', 'not as it should'], grouped(results).map(([architecture, all]) => {
    const same = all.filter((r) => r.cosine !== undefined);
    if (!same.length) return [architecture, '', '', gaps(all).join('. ')];
    const lowest = Math.min(...same.map((r) => r.cosine));
    return [architecture, variantNames(same), `${number(1 - lowest)} (< ${number(1 - COSINE)})`, gaps(all).join('. ')];
  }));
}

function quantisedTable(results) {
  return table(['type', 'architecture', 'median NMSE', "llama.cpp's own", 'greedy tokens equal'], results.map((r) => {
    if (!r.greedy) return [r.variant, r.architecture, WORDS[r.status], '', ''];
    const own = r.own === undefined ? 'exact' : `${number(r.own)}`;
    return [r.variant, r.architecture, `${number(r.median)}${r.status === 'same' ? '' : ' DIFFERS'}`, own, greedyCell([r])];
  }));
}

function perplexityTable(results) {
  return table(['file', 'llama.cpp', 'base', 'relaxed', 'furthest'], results.map((r) => {
    if (r.theirs === undefined) return [`wide-${r.variant}`, WORDS[r.status], '', '', ''];
    const values = [r.theirs, r.ours.base, r.ours.relaxed].map((v) => v.toFixed(4));
    return [`wide-${r.variant}`, ...values, `${(100 * r.worst).toFixed(2)} %${r.status === 'same' ? '' : ' DIFFERS'}`];
  }));
}

/** Markdown of all results: {architectures, embeddings, quantised, perplexities}, each a list of cases with results. */
export function matrix({ architectures, embeddings, quantised, perplexities }) {
  return [
    '### Architectures', '', architectureTable(architectures), '',
    '### Embeddings', '', embeddingTable(embeddings), '',
    `### Quantised matrices, at most ${QUANTISED_RATIO.median} times as far from exact as llama.cpp`, '', quantisedTable(quantised), '',
    `### Perplexity of 2,000 tokens of stories, within ${100 * PERPLEXITY_BOUND} % of llama.cpp`, '', perplexityTable(perplexities),
  ].join('\n');
}

export const BEGIN = '<!-- conformance: begin (written by npm run conformance -- --write) -->';
export const END = '<!-- conformance: end -->';

/** The document with what lies between the markers replaced. */
export function withMatrix(document, text) {
  const begin = document.indexOf(BEGIN), end = document.indexOf(END);
  if (begin < 0 || end < begin) throw new Error('docs/models.md has lost its markers');
  return `${document.slice(0, begin + BEGIN.length)}\n\n${text}\n\n${document.slice(end)}`;
}
