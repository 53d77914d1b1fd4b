// Tables from the records: medians, shares, ratios against what was asked for.
import { overlapRows } from './overlap.mjs';
import { table } from './targets.mjs';

/** A sample counts as quiet when other processes used less than this many cores meanwhile. */
export const QUIET = 0.15;

export const PEERS = {
  'lineal-chromium': 'lineal, Chromium',
  'lineal-chromium-base': 'lineal base, Chromium',
  'lineal-node': 'lineal, Node 26',
  wllama: 'wllama, Chromium',
  native: 'llama.cpp native',
};

/** The quiet samples, or where there are fewer than `least` the quietest of all. */
function chosen(samples, least = 5) {
  const quiet = samples.filter((s) => s.others < QUIET);
  if (quiet.length >= Math.min(least, samples.length)) return quiet;
  return [...samples].sort((a, b) => a.others - b.others).slice(0, least);
}

const medianOf = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};

/** {median, min, max, n, noisy}; undefined without samples. */
export function statistics(samples) {
  if (!samples?.length) return undefined;
  const use = chosen(samples);
  const values = use.map((s) => s.tps);
  return {
    median: medianOf(values), min: Math.min(...values), max: Math.max(...values), n: values.length,
    noisy: use.filter((s) => s.others >= QUIET).length,
  };
}

/** Ratio of medians; its spread is that of the ratios within a round, where both peers have some. */
export function ratio(a, b) {
  const over = statistics(a), under = statistics(b);
  if (!over || !under) return undefined;
  const pairs = [];
  for (const x of chosen(a)) {
    const y = chosen(b).find((s) => s.round === x.round);
    if (y) pairs.push(x.tps / y.tps);
  }
  const [min, max] = pairs.length > 1 ? [Math.min(...pairs), Math.max(...pairs)] : [over.min / under.max, over.max / under.min];
  return { value: over.median / under.median, min, max, noisy: over.noisy + under.noisy };
}

const digits = (v) => (v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2));
const spreadText = (s) => (s
  ? `${digits(s.median)} (${digits(s.min)}-${digits(s.max)}${s.n < 5 ? `, n=${s.n}` : ''})${s.noisy ? '*' : ''}` : '-');
const percent = (v) => `${(100 * v).toFixed(0)} %`;
const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(0)} MiB`;

function markdown(head, rows) {
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** Decode as weight bytes a second (as stored in the file) over the read loop's rate. */
export function readShare(record) {
  const decode = statistics(record.decode), read = statistics(record.read);
  return decode && read && { share: (decode.median * record.weights) / (read.median * 1e9), read };
}

function speedTable(records) {
  const rows = records.filter((r) => r.kind === 'speed').map((r) => {
    const share = readShare(r);
    return [
      r.model, r.quant, String(r.threads), PEERS[r.peer], `${r.pp} / ${r.tg}`, spreadText(statistics(r.prefill)), spreadText(statistics(r.decode)),
      share ? `${percent(share.share)} of ${digits(share.read.median)} GB/s` : '',
    ];
  });
  const rank = (row) => [row[0].padStart(5), row[1], row[2], Object.values(PEERS).indexOf(row[3])].join(' ');
  rows.sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
  return rows.length ? markdown(['shape', 'type', 'threads', 'engine', 'prompt / new', 'prefill tokens/s', 'decode tokens/s', 'share of the read loop'], rows) : '';
}

function startTable(records) {
  const rows = records.filter((r) => r.kind === 'start').map((r) => [
    r.model, r.quant, PEERS[r.peer], spreadText(statistics(r.opened)), spreadText(statistics(r.first)),
    mib(medianOf(r.memory)), mib(medianOf(r.peak)),
  ]);
  return rows.length ? markdown(['shape', 'type', 'engine', 'open, ms', 'first token, ms', 'held by the tab', 'process peak over that of the empty page'], rows) : '';
}

function positionTable(records) {
  const rows = records.filter((r) => r.kind === 'position').map((r) => {
    const slower = ratio(r.positions[64], r.positions[3900]);
    return [
      r.model, r.quant, r.kv, spreadText(statistics(r.positions[64])), spreadText(statistics(r.positions[3900])),
      `${digits(slower.value)}x (${digits(slower.min)}-${digits(slower.max)})`,
    ];
  });
  return rows.length ? markdown(['shape', 'type', 'KV', 'at 64, tokens/s', 'at 3900, tokens/s', 'slower by'], rows) : '';
}

function overlapTable(records) {
  const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;
  const rows = records.filter((r) => r.kind === 'overlap').map(overlapRows).flatMap((r) => [
    ...r.rows.map((row) => [
      r.model, r.quant, `${digits(r.bytes / 1e6)} MB at ${digits(r.rate / 1e6)} MB/s`, row.text,
      `${seconds(row.ms)} (${seconds(row.min)}-${seconds(row.max)})`, `${digits(row.over)}x of ${seconds(r.alone)}`,
      row.key === 'overlap' || row.key === 'cached' ? `${seconds(r.allowed)}: ${row.met ? 'yes' : 'no'}` : '',
    ]),
  ]);
  return rows.length
    ? markdown(['shape', 'type', 'file', 'engine', 'first token after `open`', 'of the download alone', 'at most the download + 5 % + a step'], rows)
    : '';
}

function targetTable(records) {
  const rows = table(records).map(({ figure, model, quant, target, result, lower }) => {
    const met = lower ? result.value <= target : result.value >= target;
    const asked = target !== undefined;
    const unit = (v) => (result.percent ? percent(v) : `${digits(v)}x`);
    const spread = result.min === undefined ? '' : ` (${unit(result.min)} to ${unit(result.max)})`;
    return [
      figure, model, quant, asked ? `${lower ? 'at most ' : ''}${unit(target)}` : '',
      `${unit(result.value)}${spread}${result.noisy ? '*' : ''}`, asked ? (met ? 'yes' : 'no') : '',
    ];
  });
  return rows.length ? markdown(['figure', 'shape', 'type', 'asked for', 'measured', 'reached'], rows) : '';
}

function skipList(run, records) {
  const skips = records.filter((r) => r.kind === 'skip').map((r) => {
    const what = [r.model, r.quant, PEERS[r.peer], r.threads && `${r.threads} threads`, r.section].filter(Boolean);
    return `- ${what.join(', ')}: ${r.reason}`;
  });
  return [...(run.missing ?? []).map(({ peer, reason }) => `- ${peer}: ${reason}`), ...skips].join('\n');
}

/** The commit of the run, and what of the records was measured at another. */
function commitText(run, records) {
  const older = new Map();
  for (const { kind, model, quant, section, commit } of records) {
    if (commit === undefined || commit === run.versions.commit) continue;
    const name = section ?? kind;
    if (!older.has(commit)) older.set(commit, new Set());
    older.get(commit).add(name === 'speed' ? `${model} ${quant}` : name);
  }
  const all = [run.versions.commit, ...[...older].map(([commit, what]) => `at ${commit}: ${[...what].join(', ')}`)];
  return all.filter(Boolean).join('; ');
}

function machineText(run, records) {
  const { machine, versions } = run;
  const commits = commitText(run, records);
  return [
    `- machine: ${machine.cpu}, ${machine.cores} cores, ${(machine.memoryBytes / 2 ** 30).toFixed(0)} GiB, ${machine.system}; ${machine.flags.join(', ')}`,
    `- versions: lineal ${versions.lineal}${commits ? ` (${commits})` : ''}, Chromium ${versions.chromium ?? '-'}, ` +
      `Node ${versions.node ?? '-'}, wllama ${versions.wllama ?? '-'}, node-llama-cpp ${versions.native ?? '-'}`,
    `- ${run.date.slice(0, 16).replace('T', ' ')} UTC; ${run.options.runs} runs each${run.options.boost ? ', raised priority' : ''}; load average ${run.load.toFixed(1)} at the start`,
  ].join('\n');
}

/** The runs on the machine of the last one, and their records, each with the commit of its run. */
export function ofOneMachine(records) {
  const last = records.findLast((r) => r.kind === 'run');
  let run;
  return records.flatMap((r) => {
    if (r.kind === 'run') run = r;
    if (run?.machine.cpu !== last?.machine.cpu) return [];
    return r === run ? r : { ...r, commit: run?.versions.commit };
  });
}

/** The newest record of each thing measured, of all runs given, oldest first. */
export function newest(records) {
  const kept = new Map();
  const about = (r, ...more) => [r.kind === 'skip' ? r.section : r.kind, r.model, r.quant, ...more].join('|');
  for (const r of records) {
    if (r.kind === 'run') continue;
    // what was skipped as a whole gives way to a later measurement of any part of it
    if (r.kind !== 'skip') kept.delete(about(r));
    kept.set(r.peer ? about(r, r.peer, r.threads, r.kv) : about(r), r);
  }
  return [...kept.values()];
}

/** The whole report as Markdown: `run` and the records it speaks of. */
export function report(run, records) {
  const part = (title, text) => (text ? `### ${title}\n\n${text}\n` : '');
  return [
    `${machineText(run, records)}\n`,
    part('What was asked for', targetTable(records)),
    part('Speed', speedTable(records)),
    part('Start', startTable(records)),
    part('Late positions', positionTable(records)),
    part('First visit: a 64-token prompt while the model comes', overlapTable(records)),
    part('Not measured', skipList(run, records)),
    'Medians (least-most); `*`: other processes kept the machine busy during some of the samples.',
  ].filter(Boolean).join('\n');
}
