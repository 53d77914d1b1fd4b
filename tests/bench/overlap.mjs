// First token after a download of so many seconds: `open` with overlap beside
// loading first, and the download by itself. The server runs in a thread of its
// own and shares its rate among all connections.
//
//   node tests/bench/overlap.mjs [--model 135M] [--quant Q4_0] [--seconds 10] [--tokens 64] [--threads N] [--rounds 3]
//
// Prints a table, and on its last line the figures as JSON. Exits with 1 when
// the first token comes later than the download's own time plus 5 % plus one
// decode step (medians).
import fs from 'node:fs';
import { parseArgs } from 'node:util';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';

import { open } from '../../js-glue/index.js';
import { startServer } from '../lib/http-server.mjs';
import { modelFile, promptIds } from './models.mjs';

const PATH = '/m.gguf';

async function serve({ file, rate }) {
  const server = await startServer({ [PATH]: file }, { rate });
  parentPort.on('message', () => {
    const { bytes, requests } = server.stats(PATH);
    server.reset();
    parentPort.postMessage({ bytes, requests });
  });
  parentPort.postMessage({ url: server.url + PATH });
}

/** Milliseconds of reading all of it and doing nothing with it. */
async function download(url) {
  const start = performance.now();
  for await (const _ of (await fetch(url)).body);
  return performance.now() - start;
}

/** Milliseconds from `open` to the first token and of the steps after it. */
async function firstToken(url, ids, options) {
  const start = performance.now();
  const model = await open(url, { context: 256, ...options });
  try {
    const times = [];
    const onToken = () => times.push(performance.now());
    const { tokens, timings } = await model.generate(ids, { maxTokens: 9, ignoreEos: true, onToken }).done;
    const steps = times.slice(1).map((at, i) => at - times[i]).sort((a, b) => a - b);
    return { ms: times[0] - start, stepMs: steps[steps.length >> 1], prefillMs: timings.prefillMs, tokens, threads: model.info.threads };
  } finally {
    await model.close();
  }
}

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

async function main() {
  const { values } = parseArgs({
    options: {
      model: { type: 'string', default: '135M' },
      quant: { type: 'string', default: 'Q4_0' },
      seconds: { type: 'string', default: '10' },
      tokens: { type: 'string', default: '64' },
      threads: { type: 'string' },
      rounds: { type: 'string', default: '3' },
    },
  });
  const file = modelFile(values.model, values.quant, (text) => process.stderr.write(`${text}\n`));
  const size = fs.statSync(file).size;
  const rate = size / Number(values.seconds);
  const server = new Worker(new URL(import.meta.url), { workerData: { file, rate } });
  const next = () => new Promise((resolve) => { server.once('message', resolve); });
  const { url } = await next();
  const counted = () => {
    const answer = next();
    server.postMessage('count');
    return answer;
  };
  const ids = promptIds(Number(values.tokens));
  const threads = values.threads ? { threads: Number(values.threads) } : {};
  const runs = [];
  for (let round = 0; round < Number(values.rounds); round++) {
    const alone = await download(url);
    await counted();
    const before = await firstToken(url, ids, threads);
    const plain = await counted();
    const overlapped = await firstToken(url, ids, { ...threads, overlap: true });
    const { bytes, requests } = await counted();
    if (String(overlapped.tokens) !== String(before.tokens)) throw new Error('the two gave other tokens');
    runs.push({ alone, before, overlapped, bytes, requests, plain });
    process.stderr.write(`round ${round + 1}: download ${Math.round(alone)}, load first ${Math.round(before.ms)}, overlap ${Math.round(overlapped.ms)} ms\n`);
  }
  await server.terminate();
  const of = (pick) => median(runs.map(pick));
  const alone = of((r) => r.alone), stepMs = of((r) => r.overlapped.stepMs);
  const result = {
    model: `${values.model} ${values.quant}`, bytes: size, bytesPerSecond: Math.round(rate), promptTokens: ids.length,
    threads: runs[0].overlapped.threads, downloadMs: alone, loadFirstMs: of((r) => r.before.ms), overlapMs: of((r) => r.overlapped.ms),
    stepMs, prefillMs: of((r) => r.before.prefillMs), allowedMs: alone * 1.05 + stepMs,
    sent: { loadFirst: runs[0].plain, overlap: { bytes: runs[0].bytes, requests: runs[0].requests } },
  };
  const ms = (n) => `${(n / 1000).toFixed(2)} s`;
  process.stdout.write(`
${result.model}, ${(size / 1e6).toFixed(0)} MB at ${(rate / 1e6).toFixed(1)} MB/s, ${ids.length} tokens, ${result.threads} threads
the download alone          ${ms(result.downloadMs)}
load, then prefill          ${ms(result.loadFirstMs)}   (prefill ${ms(result.prefillMs)})
overlapped                  ${ms(result.overlapMs)}   (allowed: ${ms(result.allowedMs)}; a decode step takes ${ms(stepMs)})
bytes sent, overlapped      ${result.sent.overlap.bytes} of ${size} in ${result.sent.overlap.requests} requests

${JSON.stringify(result)}
`);
  process.exitCode = result.overlapMs <= result.allowedMs ? 0 : 1;
}

await (isMainThread ? main() : serve(workerData));
