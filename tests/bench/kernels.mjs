// Single-thread speed of each form's matrix product in this engine:
//   node tests/bench/kernels.mjs [--json] [--dir dist/test] [FORM ...]
// Decode: one token, the weights streamed from memory (far more of them than the
// caches hold), GB/s of weight bytes. Prefill: 64 tokens, GOPS (two operations a
// multiply-add). The median and the best call; compare within one run only. On a
// machine that does other things, too, only the best says something.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

import { chooseModule } from '../../js-glue/caps.js';
import { MODULES, ROOT } from '../lib/fixtures.mjs';

const K = 2048;
const ROWS = 2048;
// Rows a call: short enough that the best call is one that nothing interrupted.
const DECODE_ROWS = 256;
const PREFILL_ROWS = 64;
const TOKENS = 64;
const STREAM_BYTES = 192 * 2 ** 20;

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: 'boolean' }, dir: { type: 'string', default: path.join(ROOT, 'dist/test') } },
});

/** Median and least of the seconds that `run(i)` takes, half of the rounds to warm up. */
function measure(run, rounds) {
  for (let i = 0; i < rounds / 2; i++) run(i);
  const seconds = [];
  for (let i = 0; i < rounds; i++) {
    const start = performance.now();
    run(i);
    seconds.push((performance.now() - start) / 1000);
  }
  seconds.sort((a, b) => a - b);
  return { median: seconds[seconds.length >> 1], best: seconds[0] };
}

function benchModule(name) {
  const file = path.join(options.dir, `kernels-${name}.wasm`);
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(file)));
  const text = (at) => {
    const bytes = new Uint8Array(exports.memory.buffer);
    return new TextDecoder().decode(bytes.subarray(at, bytes.indexOf(0, at)));
  };
  const take = (bytes) => exports.memory.grow(Math.ceil(bytes / 65536)) * 65536;
  const weights = take(STREAM_BYTES);
  const x = take(K * TOKENS * 4);
  const y = take(ROWS * TOKENS * 4);
  const scratch = take(K * TOKENS * 4);
  let seed = 1;
  const random = () => (seed = (seed * 1103515245 + 12345) >>> 0);
  const rows = [];
  new Float32Array(exports.memory.buffer, x, K * TOKENS).forEach((_, i, all) => (all[i] = random() / 2 ** 31 - 1));
  for (let form = 0; form < exports.form_count(); form++) {
    const title = text(exports.form_name(form));
    if (positionals.length > 0 && !positionals.includes(title)) continue;
    // Random codes; whichever 16 bits are a scale are a finite, normal half.
    const words = new Uint32Array(exports.memory.buffer, weights, STREAM_BYTES / 4);
    for (let i = 0; i < words.length; i++) words[i] = (random() & 0xbbffbbff) | 0x20002000;
    const rowBytes = exports.form_bytes(form, K);
    const streamRows = Math.floor(STREAM_BYTES / rowBytes);
    const call = (first, count, tokens) =>
      exports.form_matmul(form, weights + first * rowBytes, scratch, y, K, ROWS, tokens, 0, count);
    exports.form_activate(form, scratch, x, K, 1);
    const decodeCalls = Math.floor(streamRows / DECODE_ROWS);
    const decode = measure((i) => call((i % decodeCalls) * DECODE_ROWS, DECODE_ROWS, 1), 2 * decodeCalls);
    exports.form_activate(form, scratch, x, K, TOKENS);
    const prefillCalls = Math.floor(streamRows / PREFILL_ROWS);
    const prefill = measure((i) => call((i % prefillCalls) * PREFILL_ROWS, PREFILL_ROWS, TOKENS), 300);
    rows.push({
      module: name,
      form: title,
      decode_gbps: (rowBytes * DECODE_ROWS) / decode.median / 1e9,
      decode_best_gbps: (rowBytes * DECODE_ROWS) / decode.best / 1e9,
      prefill_gops: (2 * K * PREFILL_ROWS * TOKENS) / prefill.median / 1e9,
      prefill_best_gops: (2 * K * PREFILL_ROWS * TOKENS) / prefill.best / 1e9,
    });
  }
  return rows;
}

const load = os.loadavg()[0];
await chooseModule('relaxed'); // refuses where the engine cannot
const rows = MODULES.flatMap(benchModule);
if (options.json) {
  console.log(JSON.stringify({ engine: process.versions.v8, load, rows }));
} else {
  console.log(`V8 ${process.versions.v8}, ${os.cpus()[0].model}, load average ${load.toFixed(2)} before the run`);
  const number = (value) => value.toFixed(1).padStart(7);
  console.log('                decode GB/s: median, best   prefill GOPS: median, best');
  for (const row of rows) {
    console.log(
      `${row.module.padEnd(8)} ${row.form.padEnd(6)} ${number(row.decode_gbps)} ${number(row.decode_best_gbps)}` +
        `      ${number(row.prefill_gops)} ${number(row.prefill_best_gops)}`,
    );
  }
}
