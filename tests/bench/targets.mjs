// The figures that the project asks of itself, and how each follows from the records.
import { ratio, readShare } from './report.mjs';

const QUANTS = ['Q4_0', 'Q8_0', 'Q4_K_M'];

/** Ratios of tokens a second: [figure, quantity, our peer, threads, other peer, threads or 'best', {shape: targets by QUANTS}]. */
const RATIOS = [
  ['decode against wllama', 'decode', 'lineal-chromium', 1, 'wllama', 1, { '135M': [20, 8, 10], '1B': [15, 6, 5] }],
  ['prefill against wllama', 'prefill', 'lineal-chromium', 1, 'wllama', 1, { '135M': [25, 12, 12], '1B': [25, 12, 8] }],
  ['decode in Node against native', 'decode', 'lineal-node', 1, 'native', 1, { '135M': [1.3, 1.4, 1.4], '1B': [1.2, 1.4, 1.4] }],
  ['decode in Node, 2 threads, against the better of native', 'decode', 'lineal-node', 2, 'native', 'best', { '135M': [1.8, 1.8, 1.8], '1B': [1.3, 1.3, 1.3] }],
  ['prefill in Node against native', 'prefill', 'lineal-node', 1, 'native', 1, { '135M': [0.65, 1.2, 0.8], '1B': [0.65, 1.2, 0.8] }],
  ['2 threads against 1, decode', 'decode', 'lineal-chromium', 2, 'lineal-chromium', 1, { '1B': [1.5, 1.5, 1.5] }],
  ['2 threads against 1, prefill', 'prefill', 'lineal-chromium', 2, 'lineal-chromium', 1, { '1B': [1.8, 1.8, 1.8] }],
  ['relaxed against base, decode', 'decode', 'lineal-chromium', 1, 'lineal-chromium-base', 1, {}],
  ['relaxed against base, prefill', 'prefill', 'lineal-chromium', 1, 'lineal-chromium-base', 1, {}],
];
const READ_SHARE = { '1B': [0.75, 0.75, 0.75] };
const SLOWER_LATE = { f16: 1.8, q8_0: 1.35 };

/** Lines {figure, model, quant, target, result: {value, min?, max?, noisy?, percent?}, lower?} of what the records can tell. */
export function table(records) {
  const lines = [];
  const speeds = records.filter((r) => r.kind === 'speed');
  const find = (model, quant, peer, threads) =>
    speeds.find((r) => r.model === model && r.quant === quant && r.peer === peer && r.threads === threads);
  const models = [...new Set(records.map((r) => r.model))].filter(Boolean);
  for (const [figure, quantity, peer, threads, other, otherThreads, targets] of RATIOS) {
    for (const model of models) {
      QUANTS.forEach((quant, i) => {
        const ours = find(model, quant, peer, threads)?.[quantity];
        const theirs = (otherThreads === 'best' ? [1, 2] : [otherThreads]).map((n) => find(model, quant, other, n)?.[quantity]);
        const results = theirs.map((samples) => ratio(ours, samples)).filter(Boolean);
        if (results.length === 0) return;
        const result = results.reduce((a, b) => (b.value < a.value ? b : a));
        lines.push({ figure, model, quant, target: targets[model]?.[i], result });
      });
    }
  }
  for (const r of speeds.filter((s) => s.threads === 1 && s.read?.length)) {
    const share = readShare(r);
    lines.push({
      figure: `read loop's share, decode, ${r.peer === 'lineal-node' ? 'Node' : 'Chromium'}`, model: r.model, quant: r.quant,
      target: READ_SHARE[r.model]?.[QUANTS.indexOf(r.quant)], result: { value: share.share, percent: true, noisy: share.read.noisy },
    });
  }
  for (const r of records.filter((p) => p.kind === 'position')) {
    lines.push({
      figure: `position 64 against 3900, ${r.kv} KV`, model: r.model, quant: r.quant, lower: true,
      target: r.model === '1B' ? SLOWER_LATE[r.kv] : undefined, result: ratio(r.positions[64], r.positions[3900]),
    });
  }
  const starts = records.filter((r) => r.kind === 'start');
  for (const ours of starts.filter((r) => r.peer === 'lineal-chromium')) {
    const theirs = starts.find((r) => r.peer === 'wllama' && r.model === ours.model && r.quant === ours.quant);
    if (!theirs) continue;
    const { model, quant } = ours;
    const sampled = (list) => list.map((bytes, round) => ({ tps: bytes, others: 0, round }));
    lines.push({ figure: 'open to first token, of wllama\'s', model, quant, lower: true, target: 1 / 3, result: ratio(ours.first, theirs.first) });
    lines.push({ figure: 'memory of the tab, of wllama\'s', model, quant, lower: true, target: 0.5, result: ratio(sampled(ours.memory), sampled(theirs.memory)) });
    lines.push({ figure: 'peak of the tab\'s process over empty, of wllama\'s', model, quant, lower: true, result: ratio(sampled(ours.peak), sampled(theirs.peak)) });
  }
  return lines;
}
