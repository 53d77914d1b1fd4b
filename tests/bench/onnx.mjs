#!/usr/bin/env node
// Prefill beside onnxruntime-web on the bare matrices of the same shape (MatMulInteger, int8): an
// upper bound for any real model there. Both in Chromium, one thread, taking turns.
//   node tests/bench/onnx.mjs [--model 135M] [--quant Q4_0] [--pp 512] [--runs 5] [--boost]
import fs from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';

import { raisePriority } from './machine.mjs';
import { modelFile, tensorsOf } from './models.mjs';
import { PagePeer, installEngines, snapshotLineal, startSite } from './peers.mjs';

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: '135M' }, quant: { type: 'string', default: 'Q4_0' },
    pp: { type: 'string', default: '512' }, runs: { type: 'string', default: '5' }, boost: { type: 'boolean', default: false },
  },
});
const rows = Number(values.pp), runs = Number(values.runs);

/** The matrices that each token of a prompt goes through, equal shapes together; the output layer sees the last only. */
function matricesOf(model, quant) {
  const counts = new Map();
  for (const { name, shape } of tensorsOf(model, quant)) {
    if (!name.startsWith('blk.') || shape.length < 2) continue;
    const key = shape.join('x');
    counts.set(key, { k: shape[0], n: shape[1], count: (counts.get(key)?.count ?? 0) + 1 });
  }
  return [...counts.values()];
}

const log = (text) => process.stderr.write(`${text}\n`);
const file = modelFile(values.model, values.quant, log);
const version = JSON.parse(fs.readFileSync(path.join(installEngines(), 'onnxruntime-web/package.json'), 'utf8')).version;
const site = await startSite(snapshotLineal(), undefined);
const ours = new PagePeer('lineal-chromium', 'lineal', site, { threads: 1, module: 'relaxed' });
const theirs = new PagePeer('onnx', 'onnx', site, {});
try {
  await ours.start(path.basename(file));
  await theirs.startBrowser();
  await theirs.openPage();
  await ours.warmUp(3000);
  const matrices = matricesOf(values.model, values.quant);
  const samples = [];
  for (let run = 0; run < runs; run++) {
    for (const peer of [ours, theirs]) if (values.boost) raisePriority(peer.pid);
    const times = await theirs.page.evaluate(([list, m]) => globalThis.peer.matrices(list, m, 3), [matrices, rows]);
    const bare = (rows / times.reduce((sum, ms, i) => sum + ms * matrices[i].count, 0)) * 1000;
    const { prefill: tps } = await ours.speed(rows, 1);
    samples.push({ tps, bare });
    log(`round ${run + 1}: lineal ${tps.toFixed(0)}, onnxruntime-web's matrices alone ${bare.toFixed(0)} tokens/s`);
  }
  const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
  const ratios = samples.map((s) => s.tps / s.bare);
  const ratio = median(samples.map((s) => s.tps)) / median(samples.map((s) => s.bare));
  console.log(
    `prefill of ${rows} tokens, ${values.model} ${values.quant}, against the bare matrices in onnxruntime-web ${version}: ` +
    `${ratio.toFixed(2)}x (${Math.min(...ratios).toFixed(2)}x to ${Math.max(...ratios).toFixed(2)}x)`,
  );
} finally {
  await ours.close();
  await theirs.close();
  await site.close();
}
