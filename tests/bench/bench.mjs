#!/usr/bin/env node
// Speed of lineal beside wllama in the same Chromium and llama.cpp natively, on
// synthetic models at real shapes. See docs/benchmarks.md for the protocol.
import fs from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';

import { ROOT } from '../lib/fixtures.mjs';
import { describeMachine, firstLine, loadAverage } from './machine.mjs';
import { QUANTS, SHAPES } from './models.mjs';
import { overlap } from './overlap.mjs';
import { buildReadLoop, findPeers, snapshotLineal, startSite } from './peers.mjs';
import { newest, ofOneMachine, report } from './report.mjs';
import { position, speed, startUp } from './sections.mjs';

const RESULTS = path.join(ROOT, 'build/bench/results.jsonl');
const DOCUMENT = path.join(ROOT, 'docs/benchmarks.md');
const BEGIN = '<!-- results: npm run bench -- --write -->';
const END = '<!-- end of results -->';

const USAGE = `npm run bench -- [options]
  --quick             135M shape, Q4_0 and Q4_K_M, 1 thread, shorter generations: under 5 minutes
  --models A,B        of ${Object.keys(SHAPES).slice(1).join(', ')} (default: those without experts)
  --quants A,B        of ${Object.keys(QUANTS).join(', ')} (default: all)
  --threads 1,2       (default: 1,2)
  --peers A,B         of chromium, node (lineal in either), wllama, native (default: all)
  --sections A,B      of speed, start, position, overlap (default: all)
  --seconds N         how long the download of the overlap section takes (default 12)
  --runs N            samples of each figure (default 5); --extra N more where others were busy (default 2)
  --patience S        a peer that took S seconds on one model ends with 3 samples (default 600)
  --pp N --tg N       prompt tokens of prefill, new tokens of decode (default 512, 128)
  --lineal FOLDER     another checkout of lineal, built (default: this one)
  --boost             as root: give timed processes a high priority
  --write             put the tables into docs/benchmarks.md
  --report            measure nothing: tables of the newest results in build/bench/results.jsonl
  --help`;

function readOptions() {
  const text = { type: 'string' }, flag = { type: 'boolean', default: false };
  const { values } = parseArgs({
    options: {
      models: text, quants: text, threads: text, peers: text, sections: text, runs: text, extra: text, pp: text, tg: text, lineal: text,
      patience: text, seconds: text,
      quick: flag, boost: flag, write: flag, report: flag, help: flag,
    },
  });
  const list = (value, fallback, known) => {
    const items = value?.split(',').filter(Boolean) ?? fallback;
    for (const item of items) if (!known.includes(item)) throw new Error(`'${item}' is none of ${known.join(', ')}`);
    return items;
  };
  const number = (name, fallback, least) => {
    const n = Number(values[name] ?? fallback);
    if (!Number.isInteger(n) || n < least) throw new Error(`--${name} is a whole number from ${least}`);
    return n;
  };
  const { quick } = values;
  const shapes = Object.keys(SHAPES);
  return {
    ...values,
    models: list(values.models, quick ? ['135M'] : shapes.slice(1).filter((name) => !SHAPES[name].experts), shapes),
    quants: list(values.quants, quick ? ['Q4_0', 'Q4_K_M'] : Object.keys(QUANTS), Object.keys(QUANTS)),
    threads: list(values.threads, quick ? ['1'] : ['1', '2'], ['1', '2', '3', '4', '6', '8', '12', '16']).map(Number),
    peers: list(values.peers, ['chromium', 'node', 'wllama', 'native'], ['chromium', 'node', 'wllama', 'native']),
    sections: list(values.sections, quick ? ['speed', 'start'] : SECTIONS, SECTIONS),
    seconds: number('seconds', 12, 1),
    runs: number('runs', 5, 1),
    extra: number('extra', quick ? 0 : 2, 0),
    pp: number('pp', quick ? 96 : 512, 8),
    tg: number('tg', quick ? 32 : 128, 2),
    patience: number('patience', 600, 0),
    warmUpMs: quick ? 1500 : 3000,
  };
}

const SECTIONS = ['speed', 'start', 'position', 'overlap'];

const log = (text) => process.stderr.write(`${text}\n`);

function readResults() {
  try {
    return fs.readFileSync(RESULTS, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
  } catch {
    return [];
  }
}

function writeDocument(text) {
  const document = fs.readFileSync(DOCUMENT, 'utf8');
  const begin = document.indexOf(BEGIN), end = document.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`${DOCUMENT} has no '${BEGIN}' ... '${END}'`);
  fs.writeFileSync(DOCUMENT, `${document.slice(0, begin + BEGIN.length)}\n\n${text}\n\n${document.slice(end)}`);
  log('docs/benchmarks.md is written');
}

async function measure(options) {
  const { names, versions, missing } = await findPeers(options.peers);
  versions.lineal = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8')).version;
  versions.commit = firstLine('git', ['-C', options.lineal ?? ROOT, 'describe', '--always', '--dirty']);
  const folder = snapshotLineal(options.lineal);
  const run = {
    kind: 'run', date: new Date().toISOString(), machine: describeMachine(), versions, load: loadAverage(),
    options: { pp: options.pp, tg: options.tg, runs: options.runs, boost: options.boost },
    missing,
  };
  const records = [];
  const emit = (record) => {
    const line = { ...record, date: new Date().toISOString() };
    records.push(line);
    fs.appendFileSync(RESULTS, `${JSON.stringify(line)}\n`);
    if (record.kind === 'skip') log(`skipped: ${[record.model, record.quant, record.peer].filter(Boolean).join(' ')}: ${record.reason}`);
  };
  const readLoop = buildReadLoop(log);
  emit(run);
  for (const { peer, reason } of missing) log(`without ${peer}: ${reason}`);
  const site = await startSite(folder, readLoop);
  const bench = { options, log, emit, site, folder, readLoop, peers: names };
  try {
    for (const model of options.models) {
      for (const quant of options.quants) if (options.sections.includes('speed')) await speed(bench, model, quant);
    }
    if (options.sections.includes('start')) await startUp(bench, options.models[0], options.quants[0]);
    if (options.sections.includes('position') && options.models.includes('1B')) await position(bench, '1B', options.quants[0]);
    if (options.sections.includes('overlap')) {
      for (const model of options.models.filter((name) => name !== '1B')) await overlap(bench, model, options.quants[0]);
    }
  } finally {
    await site.close();
  }
  return { run, records };
}

async function main() {
  let options;
  try {
    options = readOptions();
  } catch (error) {
    log(`${error.message}\n\n${USAGE}`);
    return 2;
  }
  if (options.help) {
    console.log(USAGE);
    return 0;
  }
  const start = performance.now();
  let { run, records } = options.report ? {} : await measure(options);
  if (options.report || options.write) {
    const all = ofOneMachine(readResults());
    if (options.report) run = all.findLast((r) => r.kind === 'run');
    if (!run) throw new Error('build/bench/results.jsonl has no run yet');
    if (options.report) records = newest(all);
    // A run that lacked a peer does not know its version.
    if (options.report) run.versions = Object.assign({}, ...all.map(({ versions }) => versions));
  }
  const text = report(run, records);
  console.log(`${text}\n`);
  if (options.write) writeDocument(text);
  if (!options.report) log(`took ${((performance.now() - start) / 60000).toFixed(1)} minutes; records: build/bench/results.jsonl`);
  return 0;
}

// Playwright closes its browsers at these, and keeps the process; whatever we started ends with it.
for (const [signal, number] of [['SIGHUP', 1], ['SIGINT', 2], ['SIGTERM', 15]]) process.once(signal, () => process.exit(128 + number));
process.exitCode = await main();
