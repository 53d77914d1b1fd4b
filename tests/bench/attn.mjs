// Single-thread speed of attention over each cache type in this engine, as one
// layer of one decoded token sees it:
//   node tests/bench/attn.mjs [--json] [--dir dist/test] [--shape 32/8x64] [--keys 64,1024,3900]
// Microseconds a layer: the best and the median of many calls. As many layers
// take turns as no cache of the processor holds, so that each comes from memory
// as it does in a model. Compare within one run only; on a machine that does
// other things, only the best counts.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

import { chooseModule } from '../../js-glue/caps.js';
import { MODULES, ROOT } from '../lib/fixtures.mjs';

const KV_TYPES = ['f32', 'f16', 'q8_0', 'q4_0'];
const LAYER_BYTES = 160 * 2 ** 20;

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean' },
    dir: { type: 'string', default: path.join(ROOT, 'dist/test') },
    shape: { type: 'string', default: '32/8x64' },
    keys: { type: 'string', default: '64,1024,3900' },
  },
});
const [heads, kvHeads, size] = (/^(\d+)\/(\d+)x(\d+)$/.exec(options.shape) ?? []).slice(1).map(Number);
const keyCounts = options.keys.split(',').map(Number);
const context = Math.max(...keyCounts);

function benchModule(name) {
  const file = path.join(options.dir, `kernels-${name}.wasm`);
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(file)));
  const take = (bytes) => exports.memory.grow(Math.ceil(bytes / 65536)) * 65536;
  const row = take(kvHeads * size * 4);
  const query = take(heads * size * 4);
  const out = take(heads * size * 4);
  const scratch = take(exports.attn_scratch(size, size));
  let seed = 1;
  const random = () => (seed = (seed * 1103515245 + 12345) >>> 0) / 2 ** 31 - 1;
  const fill = (at, count) => new Float32Array(exports.memory.buffer, at, count).forEach((_, i, all) => (all[i] = 2 * random()));
  fill(query, heads * size);
  const rows = [];
  for (const [kv, type] of KV_TYPES.entries()) {
    const bytes = exports.attn_kv_size(kv, context, kvHeads, size);
    const count = Math.ceil(LAYER_BYTES / (2 * bytes));
    const parts = [0, 1].map(() => Array.from({ length: count }, () => take(bytes)));
    for (let position = 0; position < context; position++) {
      fill(row, kvHeads * size);
      for (const part of [0, 1]) exports.attn_kv_put(parts[part][0], kv, part, context, kvHeads, size, position, row);
    }
    for (const layers of parts) {
      const memory = new Uint8Array(exports.memory.buffer);
      for (const layer of layers.slice(1)) memory.copyWithin(layer, layers[0], layers[0] + bytes);
    }
    for (const keys of keyCounts) {
      const seconds = [];
      const calls = Math.max(160, Math.round(4e5 / keys));
      for (let i = -calls / 4; i < calls; i++) {
        const layer = (i + calls) % count;
        const start = performance.now();
        exports.kernel_attn(query, parts[0][layer], parts[1][layer], out, scratch, heads, kvHeads, size, keys, context, kv);
        if (i >= 0) seconds.push((performance.now() - start) * 1000);
      }
      seconds.sort((a, b) => a - b);
      rows.push({ module: name, kv: type, keys, best_us: seconds[0], median_us: seconds[seconds.length >> 1], layer_bytes: 2 * bytes });
    }
  }
  return rows;
}

await chooseModule('relaxed'); // refuses where the engine cannot
const rows = MODULES.flatMap(benchModule);
if (options.json) {
  console.log(JSON.stringify({ engine: process.versions.v8, shape: options.shape, load: os.loadavg()[0], rows }));
} else {
  console.log(`V8 ${process.versions.v8}, ${os.cpus()[0].model}, heads ${options.shape}, us a layer: best, median`);
  for (const row of rows)
    console.log(
      `${row.module.padEnd(8)} ${row.kv.padEnd(5)} ${String(row.keys).padStart(5)} keys ` +
        `${row.best_us.toFixed(0).padStart(7)} ${row.median_us.toFixed(0).padStart(7)}`,
    );
}
