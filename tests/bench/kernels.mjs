// Single-thread speed of each form's matrix product in this engine:
//   node tests/bench/kernels.mjs [--json] [--k 2048] [--dir dist/test] [FORM ...]
// --k: the length of a row (long ones, as of a feed-forward network's down matrix,
// are another case: their prepared activations take more of the cache).
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

const ROWS = 2048;
// Rows a call: short enough that the best call is one that nothing interrupted.
const DECODE_ROWS = 256;
const PREFILL_ROWS = 64;
const TOKENS = 64;
// Packing is timed as of a streamed weight: out of the window, into a buffer in the L2 cache.
const PACK_ROWS = 128;
const WINDOW_BYTES = 4 * 2 ** 20;
const STREAM_BYTES = 192 * 2 ** 20;

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean' },
    k: { type: 'string', default: '2048' },
    dir: { type: 'string', default: path.join(ROOT, 'dist/test') },
  },
});
const K = Number(options.k);

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
  // Random codes; whichever 16 bits are a scale are a finite, normal half.
  const words = new Uint32Array(exports.memory.buffer, weights, STREAM_BYTES / 4);
  for (let i = 0; i < words.length; i++) words[i] = (random() & 0xbbffbbff) | 0x20002000;
  // The ceiling of decoding: the same memory, read and added up.
  const readBytes = 2 ** 19;
  const readPieces = STREAM_BYTES / readBytes;
  const read = measure((i) => exports.read_loop(weights + (i % readPieces) * readBytes, readBytes), 1500);
  rows.push({
    module: name,
    form: 'read loop',
    decode_gbps: readBytes / read.median / 1e9,
    decode_best_gbps: readBytes / read.best / 1e9,
  });
  for (let form = 0; form < exports.form_count(); form++) {
    const title = text(exports.form_name(form));
    if (positionals.length > 0 && !positionals.includes(title)) continue;
    const rowBytes = exports.form_bytes(form, K);
    const kinds = [{ form: title, call: exports.form_matmul, bytes: rowBytes }];
    const groupBytes = exports.packing_bytes(form, K);
    if (groupBytes > 0) kinds.push({ form: `${title} x8`, call: exports.packing_matmul, bytes: groupBytes / 8 });
    // The two alternate, so that both see the machine in the same state.
    // They go through the memory far apart: what one has read is in no cache when the next comes to it.
    const calls = kinds.flatMap(({ call, bytes }, kind) =>
      [1, TOKENS].map((tokens, batch) => {
        const count = tokens === 1 ? DECODE_ROWS : PREFILL_ROWS;
        const pieces = Math.floor(STREAM_BYTES / (bytes * count));
        const first = Math.floor((pieces * (2 * kind + batch)) / 4);
        return (i) => call(form, weights + ((first + i) % pieces) * count * bytes, scratch, y, K, ROWS, tokens, 0, count);
      }),
    );
    const seconds = calls.map(() => []);
    for (let round = 0; round < 40; round++) {
      calls.forEach((call, index) => {
        exports.form_activate(form, scratch, x, K, index % 2 ? TOKENS : 1);
        const count = index % 2 ? 15 : 30;
        for (let i = 0; i < count; i++) {
          const start = performance.now();
          call(round * count + i);
          if (round > 9) seconds[index].push((performance.now() - start) / 1000);
        }
      });
    }
    const time = seconds.map((all) => {
      all.sort((a, b) => a - b);
      return { median: all[all.length >> 1], best: all[0] };
    });
    kinds.forEach((kind, index) => {
      const [decode, prefill] = time.slice(2 * index);
      const bytes = kind.bytes * DECODE_ROWS;
      const operations = 2 * K * PREFILL_ROWS * TOKENS;
      rows.push({
        module: name,
        form: kind.form,
        decode_gbps: bytes / decode.median / 1e9,
        decode_best_gbps: bytes / decode.best / 1e9,
        prefill_gops: operations / prefill.median / 1e9,
        prefill_best_gops: operations / prefill.best / 1e9,
      });
    });
    if (groupBytes > 0) {
      const packed = take((groupBytes * PACK_ROWS) / 8);
      const bytes = rowBytes * PACK_ROWS;
      const pieces = Math.floor(WINDOW_BYTES / bytes);
      const pack = measure((i) => exports.packing_pack(form, weights + (i % pieces) * bytes, PACK_ROWS, packed, K), 1000);
      rows.at(-1).pack_best_gbps = bytes / pack.best / 1e9;
    }
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
  const number = (value) => (value === undefined ? '' : value.toFixed(1)).padStart(7);
  console.log('                   decode GB/s: median, best   prefill GOPS: median, best   pack GB/s: best');
  for (const row of rows) {
    console.log(
      `${row.module.padEnd(8)} ${row.form.padEnd(9)} ${number(row.decode_gbps)} ${number(row.decode_best_gbps)}` +
        `      ${number(row.prefill_gops)} ${number(row.prefill_best_gops)}     ${number(row.pack_best_gbps)}`,
    );
  }
}
