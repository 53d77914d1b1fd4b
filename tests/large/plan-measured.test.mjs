// The plan against what was taken, at the shapes of Qwen2.5-0.5B and Llama-3.2-1B, in Node and in
// Chromium; beside it what the browser and the system count. The figures are in docs/memory.md.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import * as lineal from '../../js-glue/index.js';
import { modelFile } from '../bench/models.mjs';
import { chromiumMissing } from '../lib/chromium.mjs';
import { planAndMeasure, planFaults } from '../lib/plan-measured.mjs';
import { anonymousBytes, startPage } from '../lib/tab-memory.mjs';

const skip = await chromiumMissing();
const MiB = 1 << 20;
const CASES = [['0.5B', 'Q4_K_M'], ['1B', 'Q4_0'], ['1B', 'Q4_K_M'], ['1B', 'Q8_0']];
const OPTIONS = [{ context: 2048 }, { context: 8192, kvType: 'q8_0', threads: 1 }];
const ROOM = 192 * MiB; // of an engine: code that it compiled, buffers that it has read and not collected

let place, blank;
before(async () => {
  if (!skip) place = await startPage(Object.fromEntries(CASES.map(([shape, quant]) => [`/${shape}-${quant}.gguf`, modelFile(shape, quant)])));
  blank = await place?.rendererBytes(); // once: what a model before leaves goes when it goes
});
after(() => place?.close());

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');
/** Memories of models before go when their objects do. */
async function collect() {
  for (let i = 0; i < 3; i++) {
    await new Promise((resolve) => { setTimeout(resolve, 50); });
    gc();
  }
}

const mib = (bytes) => (bytes === undefined ? '' : (bytes / MiB).toFixed(1));

/** The figures for the table; fails where they differ from the plan. */
function check(t, where, got, gained, counted) {
  assert.deepEqual(planFaults(got), []);
  const { planned, measured, peak, context, kvType, threads } = got;
  t.diagnostic(`| ${where} | ${context} ${kvType} | ${threads} | ${planned.weights} | ${planned.kv} | ${planned.slab} | ${mib(planned.total)} `
    + `| ${mib(measured.total)} | ${mib(peak)} | ${mib(gained)} | ${mib(counted)} |`);
  if (gained === undefined) return;
  // Pages that nothing was written to, of the cache most of all, take nothing.
  assert.ok(gained > planned.weights * 0.95, `the system counts ${gained} bytes`);
  assert.ok(gained < planned.total + ROOM, `the system counts ${gained} bytes`);
}

for (const [shape, quant] of CASES) {
  for (const options of OPTIONS) {
    const name = `${shape} ${quant}, ${JSON.stringify(options)}`;
    test(`${name}, Node`, { timeout: 600_000 }, async (t) => {
      await collect();
      const atFirst = anonymousBytes('self');
      const got = await planAndMeasure(lineal, modelFile(shape, quant), { module: 'base', ...options }, {
        whileOpen: () => anonymousBytes('self'),
      });
      check(t, `${shape} ${quant}, Node`, got, atFirst === undefined ? undefined : got.outside - atFirst);
    });

    test(`${name}, Chromium`, { skip, timeout: 600_000 }, async (t) => {
      let open, counted;
      await place.page.exposeFunction(`look_${shape}_${quant}_${options.context}`.replace('.', '_'), async () => {
        open = await place.rendererBytes();
        // Only what is shared is in the browser's count.
        if (options.threads !== 1) counted = await place.tabBytes();
      });
      const got = await place.inPage(async (lib, { url, options: chosen, look }) => {
        const { planAndMeasure: measure } = await import('/tests/lib/plan-measured.mjs');
        return measure(lib, url, { cache: false, ...chosen }, { whileOpen: globalThis[look] });
      }, { url: `/${shape}-${quant}.gguf`, options, look: `look_${shape}_${quant}_${options.context}`.replace('.', '_') });
      check(t, `${shape} ${quant}, Chromium`, got, open === undefined ? undefined : open - blank, counted);
      if (counted !== undefined) {
        assert.ok(Math.abs(counted / got.measured.total - 1) < 0.05, `the browser counts ${counted} bytes`);
      }
    });
  }
}
