// `npm run demo` says what it is doing, into a pipe and on a terminal.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../lib/fixtures.mjs';

const DEMO = path.join(ROOT, 'scripts/demo.sh');
const PHASES = /^demo: 1 of 3: [^]*^demo: 2 of 3: [^]*^demo: 3 of 3: [^]*of the LORD[^]*npm run web/m;
const run = (command, args) => spawnSync(command, args, { encoding: 'utf8', cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });

test('demo: a line for each phase, then the text', () => {
  const { status, stdout, stderr } = run('bash', [DEMO, '--max-tokens', '8']);
  assert.equal(status, 0, stderr);
  assert.match(stdout, PHASES);
  assert.match(stderr, /decode {7}8 tokens/);
  assert.doesNotMatch(stdout + stderr, /^build: /m);
});

const noTerminal = run('script', ['--version']).status === 0 ? false : 'no script(1)';

test('demo on a terminal: the progress of the build between them', { skip: noTerminal }, () => {
  const { status, stdout } = run('script', ['-qec', `bash '${DEMO}' --max-tokens 8`, '/dev/null']);
  assert.equal(status, 0, stdout);
  const text = stdout.replaceAll('\r', '');
  assert.match(text, PHASES);
  assert.match(text, /^demo: 2 of 3[^]*^build: modules\n[^]*^demo: 3 of 3/m);
});
