// The WASI command: the same core says and generates the same as the package.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { test } from 'node:test';

import { explain, open } from '../../js-glue/index.js';
import { BUNDLED, FIXTURES, ROOT, fixturesMissing } from '../lib/fixtures.mjs';

const MODEL = '/model/kjv-2.6m-Q4_K_M.gguf';
const RUN = path.join(ROOT, 'tests/lib/wasi-run.mjs');

function wasi(args, folder = path.dirname(BUNDLED)) {
  const run = spawnSync(process.execPath, ['--no-warnings', RUN, folder, ...args], { encoding: 'utf8' });
  return { code: run.status, out: run.stdout, err: run.stderr };
}

function json(run) {
  assert.equal(run.out.split('\n').length, 2, `one line and its end, not ${run.out}`);
  return JSON.parse(run.out);
}

test('explain: the record is that of the package, but for the host', async () => {
  const run = wasi(['explain', MODEL, '--json', '--context', '100']);
  assert.equal(run.code, 0);
  const got = json(run);
  const want = await explain(BUNDLED, { context: 100, module: 'base', threads: 1 });
  for (const key of ['fits', 'context', 'max_context', 'kv_type', 'chunk', 'model', 'tensors', 'suggestions']) {
    assert.deepEqual(got[key], want[key], key);
  }
  assert.equal(got.host.kind, 'wasi');
  assert.match(wasi(['explain', MODEL]).out, /FITS/);
});

test('generate: the same ids and text, greedy and sampled; planned equals measured', async () => {
  const model = await open(BUNDLED, { module: 'base', threads: 1 });
  for (const [flags, options] of [
    [[], {}],
    [['--temperature=0.9', '--seed', '7'], { temperature: 0.9, seed: 7 }],
    [['--temperature', '1', '--top-k', '5', '--top-p', '1', '--min-p', '0'], { temperature: 1, topK: 5, topP: 1, minP: 0 }],
  ]) {
    const want = await model.generate('In the beginning', { maxTokens: 24, ...options }).done;
    const run = wasi(['generate', MODEL, '--prompt', 'In the beginning', '--max-tokens', '24', '--json', ...flags]);
    assert.equal(run.code, 0, run.out);
    const got = json(run);
    assert.deepEqual(got.tokens, [...want.tokens]);
    assert.deepEqual(got.prompt_tokens, [...want.promptTokens]);
    assert.equal(got.text, want.text);
    assert.equal(got.finish_reason, want.finishReason);
    for (const key of ['weights', 'kv', 'slab', 'scratch', 'tables']) {
      assert.equal(got.memory.measured[key], got.memory.planned[key], key);
    }
    assert.equal(got.decode_allocations, 0);
    const text = wasi(['generate', MODEL, '--prompt=In the beginning', '--max-tokens=24', ...flags]);
    assert.equal(text.out, `${want.text}\n`);
  }
  await model.close();
});

test('a split model', { skip: fixturesMissing() }, () => {
  const folder = path.join(FIXTURES, 'stories260k');
  const flags = ['--prompt', 'Once upon a time', '--max-tokens', '20', '--json'];
  const split = json(wasi(['generate', '/model/stories260K-split-00001-of-00003.gguf', ...flags], folder));
  const whole = json(wasi(['generate', '/model/stories260K.gguf', ...flags], folder));
  assert.deepEqual(split.tokens, whole.tokens);
});

test('errors: typed, with a remedy, and the exit codes of the command line', () => {
  for (const [args, code, name, message] of [
    [['generate', MODEL, '--prompt', ''], 1, 'EMPTY_PROMPT', /empty/],
    [['generate', MODEL, '--prompt', 'a', '--max-tokens', 'x'], 1, 'BAD_ARGUMENT', /'x'.*--max-tokens/],
    [['generate', MODEL, '--promt', 'a'], 1, 'BAD_ARGUMENT', /--promt/],
    [['generate', MODEL, '--prompt'], 1, 'BAD_ARGUMENT', /--prompt needs a value/],
    [['generate', MODEL, '--prompt', 'a', '--temperature', '-1'], 1, 'BAD_ARGUMENT', /temperature/],
    [['explain', '/model/none.gguf'], 1, 'BAD_ARGUMENT', /none\.gguf/],
    [['explain', '/model'], 1, 'BAD_ARGUMENT', /folder/],
    [['explain', MODEL, '--context', '257'], 1, 'CONTEXT_TOO_LONG', /257.*256/],
    [['generate', MODEL, '--prompt', 'a', '--memory', '1MiB'], 2, 'DOES_NOT_FIT', /needs \d+ bytes/],
    [['generate', MODEL, '--prompt', 'word '.repeat(300)], 1, 'PROMPT_TOO_LONG', /256/],
  ]) {
    const run = wasi(['--json', ...args]);
    assert.equal(run.code, code, run.out);
    const { error } = json(run);
    assert.equal(error.code, name);
    assert.match(error.message, message);
    assert.ok(error.remedy.length > 5);
  }
  const small = wasi(['explain', MODEL, '--memory', '1MiB', '--json']);
  assert.equal(small.code, 2);
  assert.ok(json(small).suggestions.length >= 2);
  assert.equal(wasi(['--help']).code, 0);
  // counts that would overflow 32 bits
  const huge = json(wasi(['generate', MODEL, '--prompt', 'a', '--max-tokens', '4294967295', '--context', '16', '--json']));
  assert.equal(huge.finish_reason, 'context_full');
});
