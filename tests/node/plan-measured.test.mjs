// The plan against what was taken, on every fixture: weights, cache, slab, scratch and tables to the
// byte, the whole and the peak while loading within 2 %. The browser's share is in
// browser/plan-measured.test.mjs, models of real size in large/plan-measured.test.mjs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as lineal from '../../js-glue/index.js';
import { BUNDLED, MODULES, fixture, fixturesMissing, modelFixtures } from '../lib/fixtures.mjs';
import { EXACT, planAndMeasure, planFaults } from '../lib/plan-measured.mjs';

const skip = fixturesMissing();
const sources = [BUNDLED, ...(skip ? [] : modelFixtures().map((name) => fixture(name)))];
if (!skip) test('the fixtures are there', () => assert.ok(sources.length >= 35, `${sources.length}`));

for (const source of sources) {
  test(`the plan is what is taken: ${source.split('/').slice(-2).join('/')}`, async () => {
    for (const module of MODULES) {
      for (const options of [{}, { kvType: 'q8_0', context: 96, chunk: 5, threads: 1 }, { placement: { hold: 'stored' } }]) {
        const got = await planAndMeasure(lineal, source, { module, ...options });
        assert.deepEqual(planFaults(got), [], `${module} ${JSON.stringify(options)}`);
      }
    }
  });
}

test('faults are seen: each line that is off by a byte, a whole that is off by 3 %', async () => {
  const good = await planAndMeasure(lineal, BUNDLED, { context: 64 });
  assert.deepEqual(planFaults(good), []);
  for (const line of EXACT) {
    const measured = { ...good.measured, [line]: good.measured[line] + 1 };
    assert.match(planFaults({ ...good, measured, after: measured }).join(), new RegExp(`^${line}`));
  }
  for (const by of [0.97, 1.03]) assert.match(planFaults({ ...good, peak: Math.round(good.peak * by) }).join(), /^peak/);
  assert.equal(planFaults({ ...good, growsLater: 1 }).length, 1);
});
