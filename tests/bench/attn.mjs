// Single-thread speed of attention over each cache type in this engine, as one
// layer sees it when one token is decoded, and when a prompt is read:
//   node tests/bench/attn.mjs [--json] [--dir dist/test] [--shape 32/8x64] [--cases 1@64,1@1024,1@3900,512@512,128@4028]
// A case is tokens@keys: so many tokens in a batch, the last of which sees so
// many keys. Microseconds a layer: the best and the median of many calls. As
// many layers take turns as no cache of the processor holds (of single tokens),
// so that each comes from memory as it does in a model; of a batch the query heads of one kv head
// are timed and counted for all, so that a call is short. Times are those of
// the processor, not of the clock: others may be busy on the machine, but
// compare within one run only.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

import { chooseModule } from '../../js-glue/caps.js';
import { MODULES, ROOT } from '../lib/fixtures.mjs';

const KV_TYPES = ['f32', 'f16', 'q8_0', 'q4_0'];
/** Memory that the layers take: a batch computes, so that it matters less where its keys come from. */
const LAYER_BYTES = { token: 160 * 2 ** 20, batch: 16 * 2 ** 20 };

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean' },
    dir: { type: 'string', default: path.join(ROOT, 'dist/test') },
    shape: { type: 'string', default: '32/8x64' },
    cases: { type: 'string', default: '1@64,1@1024,1@3900,512@512,128@4028' },
  },
});
const [allHeads, allKvHeads, size] = (/^(\d+)\/(\d+)x(\d+)$/.exec(options.shape) ?? []).slice(1).map(Number);
const cases = options.cases.split(',').map((text) => text.split('@').map(Number));

/** Processor time of this process in microseconds. */
function processorTime() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

/** One module, cache type and case in an instance of its own: its memory goes with it. */
function benchCase(module, kv, [tokens, keys]) {
  const { exports } = new WebAssembly.Instance(module);
  const shares = tokens > 1 ? allKvHeads : 1;
  const heads = allHeads / shares;
  const kvHeads = allKvHeads / shares;
  const take = (bytes) => exports.memory.grow(Math.ceil(bytes / 65536)) * 65536;
  const row = take(kvHeads * size * 4);
  const query = take(tokens * heads * size * 4);
  const out = take(tokens * heads * size * 4);
  const scratch = take(exports.attn_scratch(size, size));
  let seed = 1;
  const random = () => (seed = (seed * 1103515245 + 12345) >>> 0) / 2 ** 31 - 1;
  const fill = (at, count) => new Float32Array(exports.memory.buffer, at, count).forEach((_, i, all) => (all[i] = 2 * random()));
  fill(query, tokens * heads * size);
  const bytes = exports.attn_kv_size(kv, keys, kvHeads, size);
  const count = Math.ceil(LAYER_BYTES[tokens > 1 ? 'batch' : 'token'] / (2 * bytes));
  const stride = Math.ceil(bytes / 64) * 64;
  const parts = [0, 1].map(() => take(count * stride)).map((at) => Array.from({ length: count }, (_, i) => at + i * stride));
  for (let position = 0; position < keys; position++) {
    fill(row, kvHeads * size);
    for (const part of [0, 1]) exports.attn_kv_put(parts[part][0], kv, part, keys, kvHeads, size, position, row);
  }
  const memory = new Uint8Array(exports.memory.buffer);
  for (const layers of parts) for (const layer of layers.slice(1)) memory.copyWithin(layer, layers[0], layers[0] + bytes);
  const times = [];
  const calls = Math.max(40, Math.round(2e5 / keys / tokens));
  for (let i = -Math.ceil(calls / 4); i < calls; i++) {
    const layer = (i + calls) % count;
    const start = processorTime();
    exports.kernel_attn(query, parts[0][layer], parts[1][layer], out, scratch, heads, kvHeads, size, keys, keys, kv, tokens);
    if (i >= 0) times.push((processorTime() - start) * shares);
  }
  times.sort((a, b) => a - b);
  return { tokens, keys, best_us: times[0], median_us: times[times.length >> 1], layer_bytes: 2 * bytes * shares };
}

function benchModule(name) {
  const module = new WebAssembly.Module(fs.readFileSync(path.join(options.dir, `kernels-${name}.wasm`)));
  return KV_TYPES.flatMap((type, kv) => cases.map((each) => ({ module: name, kv: type, ...benchCase(module, kv, each) })));
}

await chooseModule('relaxed'); // refuses where the engine cannot
const rows = MODULES.flatMap(benchModule);
if (options.json) {
  console.log(JSON.stringify({ engine: process.versions.v8, shape: options.shape, load: os.loadavg()[0], rows }));
} else {
  console.log(`V8 ${process.versions.v8}, ${os.cpus()[0].model}, heads ${options.shape}, us a layer: best, median`);
  for (const row of rows)
    console.log(
      `${row.module.padEnd(8)} ${row.kv.padEnd(5)} ${String(row.tokens).padStart(4)} tokens ${String(row.keys).padStart(5)} keys ` +
        `${row.best_us.toFixed(0).padStart(8)} ${row.median_us.toFixed(0).padStart(8)}`,
    );
}
