// A model larger than its memory: tokens a second, and what part of the source's read bandwidth
// that is. Not part of any test run; takes minutes.
//
//   node tests/bench/stream.mjs [--shape 1B] [--quant Q4_K_M] [--model FILE] [--memory 400MiB]
//                               [--tokens 16] [--prompt 8] [--threads 1,2] [--window 8MiB] [--check] [--json]
//
// The bandwidth is what one thread reads of the very same bytes in pieces of the window's size into
// shared memory, straight before and after the runs: with the file in the system's cache that is a copy,
// not a disk. --check also opens the model resident and compares tokens and log-probabilities.
import fs from 'node:fs';
import { parseArgs } from 'node:util';

import { explain, inspect, open } from '../../js-glue/index.js';
import { modelFile, promptIds } from './models.mjs';

const { values } = parseArgs({
  options: {
    shape: { type: 'string', default: '1B' },
    quant: { type: 'string', default: 'Q4_K_M' },
    model: { type: 'string' },
    memory: { type: 'string', default: '400MiB' },
    context: { type: 'string', default: '512' },
    tokens: { type: 'string', default: '16' },
    prompt: { type: 'string', default: '8' },
    threads: { type: 'string', default: '1,2' },
    window: { type: 'string' },
    check: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});
const log = (text) => process.stderr.write(`${text}\n`);
const file = values.model ?? modelFile(values.shape, values.quant, log);
const options = { context: Number(values.context), memory: values.memory, streamWindow: values.window };
const ids = promptIds(Number(values.prompt));
const generation = { maxTokens: Number(values.tokens), ignoreEos: true, logprobs: true, reuse: false };

/** Bytes a second, reading the streamed tensors as often as given, `piece` bytes at a time. */
function readBandwidth(extents, piece, passes) {
  const fd = fs.openSync(file, 'r');
  const target = new Uint8Array(new SharedArrayBuffer(piece));
  let bytes = 0;
  const start = performance.now();
  for (let pass = 0; pass < passes; pass++) {
    for (const { offset, length } of extents) {
      for (let at = 0; at < length; at += piece) {
        bytes += fs.readSync(fd, target, 0, Math.min(piece, length - at), offset + at);
      }
    }
  }
  fs.closeSync(fd);
  return (bytes / (performance.now() - start)) * 1000;
}

async function run(more) {
  const model = await open(file, { ...options, ...more });
  try {
    await model.generate(ids, { ...generation, maxTokens: 2 }).done; // the compiler's tiers
    const result = await model.generate(ids, generation).done;
    return { result, explanation: model.explanation, memory: await model.memory(), info: model.info };
  } finally {
    await model.close();
  }
}

const results = [];
for (const threads of values.threads.split(',').map(Number)) {
  const plan = await explain(file, { ...options, threads });
  if (!plan.streaming) throw new Error(`with ${values.memory} nothing is streamed (fits: ${plan.fits})`);
  const { tensors } = await inspect(file);
  const streamed = new Set(plan.tensors.filter(({ domain }) => domain === 'STREAMED').map(({ name }) => name));
  const extents = tensors.filter(({ name }) => streamed.has(name)).map(({ offset, bytes }) => ({ offset, length: bytes }));
  const piece = plan.streaming.slot_bytes || plan.streaming.expert_bytes; // only experts may be streamed
  const before = readBandwidth(extents, piece, 3);
  const { result, memory, info } = await run({ threads });
  const after = readBandwidth(extents, piece, 3);
  const bandwidth = (before + after) / 2;
  const possible = bandwidth / result.streaming.bytesPerToken;
  const row = {
    threads: info.threads,
    module: info.module,
    decode_tps: result.timings.decodeTps,
    prefill_tps: result.timings.prefillTps,
    bytes_per_token: result.streaming.bytesPerToken,
    planned_bytes_per_token: plan.streaming.bytes_per_token,
    read_bandwidth: bandwidth,
    share: result.timings.decodeTps / possible,
    reading_share: result.streaming.decodeReadMs / result.timings.decodeMs,
    resident_bytes: plan.memory.find(({ name }) => name === 'weights').bytes,
    window_bytes: memory.measured.window,
    planned_bytes: plan.total_bytes,
    linear_memory: memory.hostBytes,
    limit_bytes: plan.limit_bytes,
    tokens: result.tokens,
    logprobs: result.logprobs,
  };
  results.push(row);
  log(`${row.threads} threads (${row.module}): ${row.decode_tps.toFixed(2)} tokens/s, ${(row.bytes_per_token / 1e6).toFixed(1)} MB a token (planned ${(row.planned_bytes_per_token / 1e6).toFixed(1)}); ` +
    `the source gives ${(bandwidth / 1e9).toFixed(2)} GB/s, so ${possible.toFixed(2)} tokens/s: ${(row.share * 100).toFixed(0)} %; ` +
    `reading ${(row.reading_share * 100).toFixed(0)} % of the time; prefill ${row.prefill_tps.toFixed(1)}; ` +
    `memory ${row.linear_memory} of ${row.limit_bytes}, planned ${row.planned_bytes}, window ${row.window_bytes}`);
}
if (values.check) {
  const model = await open(file, { context: options.context });
  const resident = await model.generate(ids, generation).done;
  await model.close();
  for (const row of results) {
    row.same = JSON.stringify([row.tokens, row.logprobs]) === JSON.stringify([resident.tokens, resident.logprobs]);
    log(`${row.threads} threads: ${row.same ? 'the same tokens and log-probabilities as' : 'DIFFERENT from'} the resident run (${resident.timings.decodeTps.toFixed(2)} tokens/s)`);
  }
  if (results.some(({ same }) => !same)) process.exitCode = 1;
}
if (values.json) process.stdout.write(`${JSON.stringify(results)}\n`);
