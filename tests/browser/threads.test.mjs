// Threads in a real page: used where the page is cross-origin isolated, under a
// strict Content-Security-Policy too, and explained where they are not.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { BUNDLED, generate } from '../lib/fixtures.mjs';
import { inPage, startBoth } from '../lib/site.mjs';

const skip = await chromiumMissing();
let browser, expected, both, sites, pages;

before(async () => {
  if (skip) return;
  const model = await open(BUNDLED, { context: 128, threads: 1 });
  expected = (await generate(model, 'In the beginning', { maxTokens: 16 })).result;
  await model.close();
  browser = await startChromium();
  both = await startBoth(browser, { '/model.gguf': BUNDLED });
  ({ sites, pages } = both);
});
after(async () => {
  await browser?.close();
  await both?.close();
});

/** How many workers live in the browser that this process started: threads of the system, so Linux only. */
function workerCount() {
  const parentOf = (pid) => Number(fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ')[1]);
  const isOurs = (pid) => pid === process.pid || (pid > 1 && isOurs(parentOf(pid)));
  let count = 0;
  for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (!isOurs(Number(pid))) continue;
      for (const task of fs.readdirSync(`/proc/${pid}/task`)) {
        if (fs.readFileSync(`/proc/${pid}/task/${task}/comm`, 'utf8').startsWith('DedicatedWorker')) count++;
      }
    } catch {
      // it ended while we looked
    }
  }
  return count;
}

/** Opens with the options and generates: what came, and what explain says. */
const openAndRun = async ({ open: openModel }, options) => {
  const model = await openModel('/model.gguf', { context: 128, ...options });
  const { tokens, decodeAllocations } = await model.generate('In the beginning', { maxTokens: 16 }).done;
  const { info, explanation } = model;
  await model.close();
  return {
    tokens,
    decodeAllocations,
    threads: info.threads,
    planned: explanation.threads,
    reason: explanation.threads_reason,
    warnings: explanation.warnings.filter(({ code }) => /THREAD/.test(code)),
    module: info.module,
  };
};

// Whatever this machine has, the page is told of two cores.
const host = { threads: 2 };

test('an isolated page: two threads, the same tokens, under a strict policy', { skip }, async () => {
  for (const module of ['base', 'relaxed']) {
    const out = await inPage(pages.isolated, openAndRun, { host, module });
    assert.deepEqual([out.threads, out.planned, out.reason.code], [2, 2, 'AUTO']);
    assert.deepEqual(out.warnings, []);
    assert.deepEqual(out.tokens, expected.tokens);
    assert.equal(out.decodeAllocations, 0);
    assert.equal(out.module, module);
  }
  assert.deepEqual(pages.isolated.failures, []);
  assert.deepEqual(
    pages.isolated.messages.filter(({ text }) => /Security.Policy|worker/i.test(text)),
    [],
  );
});

test('a page that is not isolated: one thread, and explain says why', { skip }, async () => {
  const out = await inPage(pages.plain, openAndRun, { host, threads: 2 });
  assert.deepEqual([out.threads, out.reason.code], [1, 'NOT_ISOLATED']);
  assert.match(out.reason.text, /not cross-origin isolated/);
  assert.match(out.warnings[0].text, /2 threads were asked for.*not cross-origin isolated/);
  assert.deepEqual(out.tokens, expected.tokens);
  const asked = await inPage(pages.plain, openAndRun, { host, threads: 1 });
  assert.deepEqual([asked.threads, asked.reason.code, asked.warnings], [1, 'ASKED_FOR_ONE', []]);
});

test('the main thread of a page computes alone; it may not wait', { skip }, async () => {
  const out = await inPage(pages.isolated, openAndRun, { host, worker: false });
  assert.deepEqual([out.threads, out.reason.code], [1, 'MAIN_THREAD']);
  assert.deepEqual(out.tokens, expected.tokens);
});

test('a profile and its trace, with the clock of either page', { skip }, async () => {
  const profile = async ({ open: openModel, chromeTrace }, options) => {
    const model = await openModel('/model.gguf', { context: 128, ...options });
    const result = await model.generate('In the beginning', { maxTokens: 16, profile: 'trace' }).done;
    const { traceEvents } = chromeTrace(model, [result]);
    await model.close();
    const { phases, steps } = result.stats;
    return { tokens: result.tokens, threads: model.info.threads, phases, steps, events: traceEvents.length };
  };
  for (const [name, threads] of [['isolated', 2], ['plain', 1]]) {
    const out = await inPage(pages[name], profile, { host });
    assert.deepEqual([out.tokens, out.threads], [expected.tokens, threads]);
    assert.equal(out.phases.decode.passes, 15);
    const decode = out.steps.filter(({ phase }) => phase === 'decode');
    assert.ok(decode.length > 50 && decode.every(({ calls }) => calls === 15));
    const ms = decode.reduce((sum, row) => sum + row.ms, 0);
    assert.ok(ms > 0 && ms <= out.phases.decode.ms, `${ms} of ${out.phases.decode.ms} ms`);
    assert.ok(out.events > 16 * decode.length);
  }
});

test('probeHost: what a page can do through its worker', { skip }, async () => {
  const probe = ({ probeHost }) => probeHost();
  const [isolated, plain] = [await inPage(pages.isolated, probe), await inPage(pages.plain, probe)];
  assert.deepEqual([isolated.isolated, isolated.canWait], [true, true]);
  assert.equal(plain.isolated, false);
  assert.ok(isolated.threads >= 1);
});

test('thread scripts that cannot be loaded: one thread, and explain says so', { skip }, async () => {
  sites.isolated.faults['/js-glue/thread.js'] = { status: 404 };
  const out = await inPage(pages.isolated, openAndRun, { host });
  delete sites.isolated.faults['/js-glue/thread.js'];
  assert.deepEqual([out.threads, out.planned, out.reason.code], [1, 1, 'NOT_STARTED']);
  assert.equal(out.warnings[0].code, 'ONE_THREAD');
  assert.deepEqual(out.tokens, expected.tokens);
});

/** Once those of the tests before have ended: no change for half a second. */
async function settledWorkerCount() {
  let count = workerCount();
  for (let quiet = 0; quiet < 5; quiet++) {
    await new Promise((resolve) => {
      setTimeout(resolve, 100);
    });
    const now = workerCount();
    if (now !== count) quiet = 0;
    count = now;
  }
  return count;
}

test('closed models leave no worker', { skip: skip || (process.platform !== 'linux' && 'needs /proc') }, async () => {
  for (let round = 0; round < 3; round++) {
    const before = await settledWorkerCount();
    await inPage(
      pages.isolated,
      async ({ open: openModel }, options) => {
        const models = [];
        for (let i = 0; i < 3; i++) models.push(await openModel('/model.gguf', options));
        for (const model of models) await model.generate('In', { maxTokens: 2 }).done;
        globalThis.models = models;
      },
      { host },
    );
    assert.equal(workerCount() - before, 6);
    await inPage(pages.isolated, async () => {
      for (const model of globalThis.models) await model.close();
    });
    let left = workerCount() - before;
    for (let i = 0; i < 15 && left > 0; i++) {
      await new Promise((resolve) => {
        setTimeout(resolve, 100); // below the two seconds after which the browser would use force
      });
      left = workerCount() - before;
    }
    assert.equal(left, 0);
  }
});

test('twenty models, one after another and some left open, in one page', { skip }, async () => {
  const out = await inPage(
    pages.isolated,
    async ({ open: openModel }, options) => {
      const counts = [];
      for (let i = 0; i < 20; i++) {
        const model = await openModel('/model.gguf', { context: 64, ...options });
        const { tokens } = await model.generate('In the', { maxTokens: 2 }).done;
        counts.push(model.info.threads + tokens.length);
        if (i % 10 !== 0) await model.close();
      }
      return counts;
    },
    { host },
  );
  assert.deepEqual(out, Array(20).fill(4));
});
