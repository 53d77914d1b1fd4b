// The command line as a black box: output, exit codes, and one line of JSON.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import { availableParallelism } from 'node:os';
import { after, before, test } from 'node:test';
import { version } from '../../js-glue/index.js';
import { BUNDLED, CLI, ROOT, fixture, fixturesMissing, temporary } from '../lib/fixtures.mjs';
import { startServer } from '../lib/http-server.mjs';

const skip = fixturesMissing();

/** Runs `lineal ...args`; {code, signal, out, err}. */
function lineal(args, { onData, node = [], stdout = 'pipe' } = {}) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [...node, CLI, ...args], { stdio: ['ignore', stdout, 'pipe'] });
    let out = '',
      err = '';
    child.stdout?.on('data', (data) => {
      out += data;
      onData?.(child, out);
    });
    child.stderr.on('data', (data) => {
      err += data;
    });
    child.on('close', (code, signal) => resolve({ code, signal, out, err }));
  });
}

/** As lineal with --json: the object, after checking that it is all of stdout. */
async function json(args, expected = 0) {
  const { code, out, err } = await lineal([...args, '--json']);
  assert.equal(code, expected, `exit code of ${args.join(' ')}: ${out} ${err}`);
  assert.match(out, /^[^\n]+\n$/, 'one line');
  assert.equal(err, '', 'nothing on stderr without a terminal');
  return JSON.parse(out);
}

test('generate --json: every promised key, in bytes, milliseconds and ids', async () => {
  const result = await json([
    'generate',
    BUNDLED,
    '--prompt',
    'In the beginning',
    '--max-tokens',
    '12',
    '--logprobs',
  ]);
  assert.deepEqual(result.prompt_tokens, [1, 299, 972, 261, 803, 267, 972, 294]);
  assert.equal(result.tokens.length, 12);
  assert.equal(result.text, ' of the LORD, and repented him: he');
  assert.equal(result.finish_reason, 'length');
  assert.deepEqual(Object.keys(result.timings), [
    'load_ms',
    'prefill_ms',
    'first_token_ms',
    'decode_ms',
    'prefill_tps',
    'decode_tps',
  ]);
  for (const [name, value] of Object.entries(result.timings)) assert.ok(value > 0, `${name} ${value}`);
  const { planned, measured } = result.memory;
  assert.deepEqual(Object.keys(planned), ['weights', 'kv', 'slab', 'scratch', 'window', 'tables', 'total']);
  assert.deepEqual(
    [measured.weights, measured.kv, measured.slab],
    [planned.weights, planned.kv, planned.slab],
  );
  assert.equal(result.decode_allocations, 0);
  assert.equal(result.memory_grows, 0);
  assert.equal(result.logprobs.length, 12);
  assert.ok(result.logprobs.every((p) => p <= 0));
});

test('generate as text: the continuation on stdout, stats on stderr', async () => {
  const { code, out, err } = await lineal([
    'generate',
    BUNDLED,
    '-p',
    'In the beginning',
    '-n',
    '5',
    '--stats',
  ]);
  assert.equal(code, 0);
  assert.equal(out, ' of the LORD, and\n');
  assert.match(err, /decode {7}5 tokens/);
  assert.match(err, /weights +\d+ +\d+/);
});

test('generate: stop texts, a cap on the context, ids, and a seed that repeats', async () => {
  const base = ['generate', BUNDLED, '--prompt', 'In the beginning'];
  const stopped = await json([...base, '--stop', 'and rep', '--stop', 'nothing']);
  assert.equal(stopped.text, ' of the LORD, ');
  assert.equal(stopped.finish_reason, 'stop');
  const full = await json([...base, '--context', '12', '--max-tokens', '50']);
  assert.equal(full.finish_reason, 'context_full');
  const byIds = await json(['generate', BUNDLED, '--ids', '1,299,972,261,803,267,972,294', '-n', '3']);
  assert.deepEqual(byIds.tokens, stopped.tokens.slice(0, 3));
  const sampled = [
    ...base,
    '-n',
    '12',
    '--temperature',
    '1.5',
    '--top-k',
    '0',
    '--top-p',
    '1',
    '--min-p',
    '0',
    '--seed',
  ];
  const [a, b, c] = [
    await json([...sampled, '7']),
    await json([...sampled, '7']),
    await json([...sampled, '8']),
  ];
  assert.deepEqual(a.tokens, b.tokens);
  assert.notDeepEqual(a.tokens, c.tokens);
});

test('both builds say the same; kv f16 is obeyed', async () => {
  const args = ['generate', BUNDLED, '-p', 'And God said', '-n', '10'];
  const [base, relaxed] = [
    await json([...args, '--module', 'base']),
    await json([...args, '--module', 'relaxed']),
  ];
  assert.deepEqual([base.module, relaxed.module], ['base', 'relaxed']);
  assert.deepEqual(base.tokens, relaxed.tokens);
  const [f32, f16] = [
    await json(['explain', BUNDLED, '--kv', 'f32']),
    await json(['explain', BUNDLED, '--kv', 'f16']),
  ];
  const kv = ({ memory }) => memory.find((line) => line.name === 'kv').bytes;
  assert.ok(kv(f16) < 0.6 * kv(f32));
});

test('explain: the keys of the issue, and exit code 2 with suggestions when it does not fit', async () => {
  const plan = await json(['explain', BUNDLED]);
  for (const key of ['fits', 'context', 'host', 'module', 'memory', 'tensors', 'suggestions', 'warnings'])
    assert.ok(key in plan, key);
  for (const key of [
    'name',
    'type',
    'shape',
    'domain',
    'scope',
    'form',
    'stored_bytes',
    'resident_bytes',
    'kernel',
    'decided_by',
    'reasons',
  ]) {
    assert.ok(key in plan.tensors[0], key);
  }
  assert.equal(plan.fits, true);
  assert.ok(plan.source.bytes_read <= 262_144);
  const small = await json(['explain', BUNDLED, '--memory', '1MB'], 2);
  assert.equal(small.fits, false);
  assert.ok(small.suggestions.length >= 2);
  const text = await lineal(['explain', BUNDLED, '--memory', '1MB']);
  assert.equal(text.code, 2);
  assert.match(text.out, /DOES NOT FIT/);
  const refused = await json(['generate', BUNDLED, '-p', 'x', '--memory', '1MB'], 2);
  assert.equal(refused.error.code, 'DOES_NOT_FIT');
  assert.ok(refused.error.detail.needed_bytes > refused.error.detail.budget_bytes);
});

test('tokenize, with and without BOS; inspect', async () => {
  const { tokens, pieces } = await json(['tokenize', BUNDLED, '--text', 'In the beginning']);
  assert.deepEqual(tokens, [1, 299, 972, 261, 803, 267, 972, 294]);
  assert.equal(pieces.slice(1).join(''), ' In the beginning');
  assert.deepEqual(
    (await json(['tokenize', BUNDLED, '--text', 'In the beginning', '--no-bos'])).tokens,
    tokens.slice(1),
  );
  const plain = await json(['tokenize', BUNDLED, '--text', '</s>', '--no-bos']);
  assert.ok(plain.tokens.length > 1 && !plain.tokens.includes(2));
  assert.ok(
    (await json(['tokenize', BUNDLED, '--text', '</s>', '--no-bos', '--parse-special'])).tokens.includes(2),
  );
  const dashes = await json(['tokenize', BUNDLED, '--text=--json -x']);
  assert.equal(dashes.pieces.slice(1).join(''), ' --json -x');
  const file = await json(['inspect', BUNDLED]);
  assert.equal(file.metadata.find((entry) => entry.key === 'general.architecture').value, 'llama');
  assert.ok(file.tensors.some((tensor) => tensor.name === 'token_embd.weight'));
});

test('logits: float32 rows in a file; nothing is left of a failed one', async () => {
  const out = temporary('rows.f32');
  const result = await json(['logits', BUNDLED, '--tokens', '1,5,9,23', '--out', out]);
  assert.deepEqual([result.n_tok, result.n_vocab], [4, 1024]);
  assert.equal(fs.statSync(out).size, 4 * 1024 * 4);
  const bad = temporary('bad.f32');
  assert.equal(
    (await json(['logits', BUNDLED, '--tokens', '1,99999', '--out', bad], 1)).error.code,
    'BAD_TOKEN',
  );
  assert.ok(!fs.existsSync(bad));
  assert.equal(
    (await json(['logits', BUNDLED, '--tokens', '1', '--out', temporary('no/such/x')], 1)).error.code,
    'BAD_ARGUMENT',
  );
});

test('logits: what --out held stays until the new file is whole', async () => {
  const folder = temporary('outputs');
  fs.mkdirSync(folder);
  const out = `${folder}/rows.f32`;
  const link = `${folder}/link.f32`;
  fs.writeFileSync(out, 'precious', { mode: 0o640 });
  fs.symlinkSync(out, link);
  for (const tokens of ['1,99999', '1,'.repeat(3000)]) {
    await json(['logits', BUNDLED, '--tokens', tokens, '--out', link, '--context', '64'], 1);
    assert.equal(fs.readFileSync(out, 'utf8'), 'precious');
  }
  await json(['logits', temporary('none.gguf'), '--tokens', '1', '--out', out], 1);
  assert.equal(fs.readFileSync(out, 'utf8'), 'precious');
  await json(['logits', BUNDLED, '--tokens', '1,5', '--out', link]);
  assert.equal(fs.statSync(out).size, 2 * 1024 * 4);
  assert.equal(fs.statSync(out).mode & 0o777, 0o640);
  assert.ok(fs.lstatSync(link).isSymbolicLink());
  assert.deepEqual(fs.readdirSync(folder).sort(), ['link.f32', 'rows.f32'], 'nothing is left over');
  assert.equal((await json(['logits', BUNDLED, '--tokens', '1', '--out', folder], 1)).error.code, 'BAD_ARGUMENT');
});

test('logits: never over the model, by whatever name', async () => {
  const folder = temporary('models');
  fs.mkdirSync(folder);
  const model = `${folder}/m-00001-of-00002.gguf`;
  const part = `${folder}/m-00002-of-00002.gguf`;
  for (const path of [model, part]) fs.copyFileSync(BUNDLED, path);
  fs.symlinkSync(model, `${folder}/soft`);
  fs.linkSync(model, `${folder}/hard`);
  for (const [source, out] of [
    [model, model],
    [model, `${folder}/../models/m-00001-of-00002.gguf`],
    [model, `${folder}/soft`],
    [`${folder}/soft`, model],
    [model, `${folder}/hard`],
    [`file://${model}`, model],
    [model, part],
    [part, model],
  ]) {
    const { error } = await json(['logits', source, '--tokens', '1', '--out', out], 1);
    assert.equal(error.code, 'BAD_ARGUMENT');
    assert.match(error.message, /is the model itself/);
  }
  for (const path of [model, part]) assert.deepEqual(fs.readFileSync(path), fs.readFileSync(BUNDLED));
});

const noFull = fs.existsSync('/dev/full') ? false : 'no /dev/full';

test('devices are written and not replaced; a full one is OUTPUT_FAILED', { skip: noFull }, async () => {
  const before = ['/dev/null', '/dev/full'].map((path) => fs.statSync(path).ino);
  await json(['logits', BUNDLED, '--tokens', '1,5', '--out', '/dev/null']);
  const { error } = await json(['logits', BUNDLED, '--tokens', '1,5', '--out', '/dev/full'], 1);
  assert.equal(error.code, 'OUTPUT_FAILED');
  assert.match(error.message, /ENOSPC/);
  const after = ['/dev/null', '/dev/full'].map((path) => fs.statSync(path));
  assert.deepEqual(
    after.map(({ ino }) => ino),
    before,
  );
  assert.ok(after.every((stat) => stat.isCharacterDevice()));
});

test('a standard output that takes nothing: a typed error, exit code 1', { skip: noFull }, async () => {
  for (const args of [['explain', BUNDLED], ['explain', BUNDLED, '--json'], ['--help'], ['generate', BUNDLED, '-p', 'And']]) {
    const full = fs.openSync('/dev/full', 'w');
    const { code, err } = await lineal(args, { stdout: full });
    fs.closeSync(full);
    assert.equal(code, 1, args.join(' '));
    assert.match(err, /^lineal: OUTPUT_FAILED: .*ENOSPC.*\n.*\n$/);
  }
});

test(
  'perplexity follows the protocol: f32 within 0.05 % of llama.cpp, and what is scored',
  { skip },
  async () => {
    const result = await json([
      'perplexity',
      fixture('kjv/kjv-2.6m-f32.gguf'),
      '--file',
      fixture('kjv/val.txt'),
      '--context',
      '256',
    ]);
    assert.ok(Math.abs(result.perplexity / 12.7415 - 1) < 5e-4, `${result.perplexity}`);
    assert.equal(result.scored, Math.floor(result.tokens / 256) * 127);
  },
);

test('perplexity of a text that is too short is refused', async () => {
  const text = temporary('short.txt');
  fs.writeFileSync(text, 'In the beginning');
  assert.equal((await json(['perplexity', BUNDLED, '--file', text], 1)).error.code, 'BAD_ARGUMENT');
  assert.equal(
    (await json(['perplexity', BUNDLED, '--file', temporary('none.txt')], 1)).error.code,
    'SOURCE_NOT_FOUND',
  );
  const { error } = await json(['perplexity', BUNDLED, '--file', ROOT], 1);
  assert.equal(error.code, 'SOURCE_UNREADABLE');
  assert.match(error.message, /is a folder/);
});

test('bench: its keys; more threads than there are is a warning', async () => {
  const result = await json(['bench', BUNDLED, '-p', '32', '-n', '8', '--threads', '999']);
  for (const key of ['prefill_tps', 'decode_tps', 'load_ms', 'peak_bytes']) assert.ok(result[key] > 0, key);
  assert.equal(result.threads, Math.min(availableParallelism(), 16));
  assert.deepEqual([result.prompt_tokens, result.tokens], [32, 8]);
  assert.equal(result.warnings.length, 1);
});

test('usage errors: code, remedy, exit code 1, in JSON too', async () => {
  const cases = [
    [['generate', BUNDLED], /--prompt or --ids/],
    [['generate', '--prompt', 'x'], /needs a model/],
    [['generate', BUNDLED, '--prompt', 'x', '--frobnicate'], /frobnicate/],
    [['generate', BUNDLED, '--prompt', 'x', '--max-tokens', 'many'], /--max-tokens .*'many'/],
    [['generate', BUNDLED, '--prompt', 'x', '--max-tokens=-1'], /^--max-tokens is/],
    [['generate', BUNDLED, '--prompt', 'x', '--temperature', 'hot'], /--temperature/],
    [['explain', BUNDLED, '--memory', 'lots'], /--memory is a number of bytes, .*, not 'lots'/],
    [['explain', BUNDLED, '--context', '0'], /--context/],
    [['explain', BUNDLED, '--kv', 'f8'], /^--kv is 'f32', .* or 'auto', not 'f8'/],
    [['explain', BUNDLED, '--kv', 'f16', '--kv-k', 'auto'], /^--kv-k is/],
    [['explain', BUNDLED, '--hold', 'q4'], /^--hold is/],
    [['explain', BUNDLED, '--tensor', '*=q4'], /^--tensor\['\*'\] is/],
    [['explain', BUNDLED, '--host-profile', 'moon'], /^--host-profile is/],
    [['explain', BUNDLED, '--stream', 'on'], /^--stream is/],
    [['explain', BUNDLED, '--module', 'fast'], /^--module is/],
    [['explain', BUNDLED, '--threads', '99999'], /^--threads is/],
    [['explain', 'http://h/m.gguf', '--sha256', 'ab'], /^--sha256 is/],
    [['explain', 'http://h/m.gguf', '--cache', ''], /^--cache takes a folder/],
    [['cache', 'list', '--cache', ''], /^--cache takes a folder/],
    ...[['--sha256', 'a'.repeat(64)], ['--verify'], ['--cache', 'x']].map((more) =>
      [['explain', 'http://h/m.gguf', '--no-cache', ...more], new RegExp(`^${more[0]} and --no-cache do not go together`)]),
    [['explain', BUNDLED, 'two'], /'two'/],
    [['logits', BUNDLED, '--tokens', '1,x', '--out', 'y'], /--tokens .*'x'/],
    [['tokenize', BUNDLED], /--text/],
    [['paint', BUNDLED], /no command 'paint'/],
    [['constructor', BUNDLED], /no command 'constructor'/],
    [['help', 'constructor'], /no command 'constructor'/],
    [['explain', BUNDLED, '--timeout=-1'], /--timeout/],
    [['explain', 'http://me:secret@h/m.gguf'], /user name or a password/],
    [['explain', 'http://h/m.gguf', '--header', 'bad name: x'], /bad name/],
    // Before any model is looked for.
    [['generate', 'none.gguf', '--prompt', 'x', '--top-p', '2'], /^--top-p is/],
    [['generate', 'none.gguf', '--prompt', 'x', '--top-p', '0'], /^--top-p is/],
    [['generate', 'none.gguf', '--prompt', 'x', '--seed=-1'], /^--seed is/],
    [['generate', 'none.gguf', '--prompt', 'x', '--max-tokens=-1'], /^--max-tokens is/],
    [['generate', 'none.gguf', '--prompt', 'x', '--repeat-penalty=-1'], /^--repeat-penalty is/],
    [['generate', 'none.gguf', '--prompt', 'x', '--stop', ''], /^--stop holds/],
    [['perplexity', 'none.gguf', '--file', CLI, '--context', '3'], /--context 3/],
    [['bench', 'none.gguf', '--bench-tokens=-1'], /--bench-tokens/],
  ];
  for (const [args, message] of cases) {
    const { error } = await json(args, 1);
    assert.doesNotMatch(JSON.stringify(error), /secret/);
    assert.equal(error.code, 'BAD_ARGUMENT', args.join(' '));
    assert.match(error.message, message);
    assert.notEqual(error.remedy, '', args.join(' '));
  }
  const text = await lineal(['generate', BUNDLED]);
  assert.equal(text.code, 1);
  assert.equal(text.out, '');
  assert.match(text.err, /BAD_ARGUMENT.*\n.*--help/);
});

test('errors of the model: typed, with exit code 1', async () => {
  assert.equal((await json(['explain', temporary('none.gguf')], 1)).error.code, 'SOURCE_NOT_FOUND');
  assert.equal((await json(['generate', BUNDLED, '--prompt', ''], 1)).error.code, 'EMPTY_PROMPT');
  assert.equal(
    (await json(['generate', BUNDLED, '--prompt', 'a b c d e f g h i j k l', '--context', '4'], 1)).error
      .code,
    'PROMPT_TOO_LONG',
  );
  assert.equal((await json(['explain', BUNDLED, '--context', '999999'], 1)).error.code, 'CONTEXT_TOO_LONG');
  assert.equal((await json(['explain', CLI], 1)).error.code, 'NOT_GGUF');
});

test('help of everything, and the version', async () => {
  for (const args of [
    ['--help'],
    ['help'],
    ['help', 'explain'],
    ...['explain', 'generate', 'tokenize', 'inspect', 'logits', 'perplexity', 'bench'].map((c) => [
      c,
      '--help',
    ]),
  ]) {
    const { code, out } = await lineal(args);
    assert.equal(code, 0);
    assert.match(out, /lineal/);
  }
  assert.match((await lineal(['generate', '--help'])).out, /--repeat-penalty X/);
  assert.match((await lineal(['explain', '--help'])).out, /^lineal explain MODEL \[--context N\|max\][^]*-c, --context N\|max /m);
  assert.equal((await lineal([])).code, 1);
  assert.equal((await lineal(['--version'])).out, `${version}\n`);
  assert.equal(version, JSON.parse(fs.readFileSync(`${ROOT}/package.json`, 'utf8')).version);
});

test('a reader that goes away ends it quietly; an interrupt ends it cleanly', async () => {
  const long = ['generate', BUNDLED, '-p', 'And', '-n', '250', '--ignore-eos', '--context', '256'];
  const gone = await lineal(long, { onData: (child) => child.stdout.destroy() });
  assert.equal(gone.err, '');
  assert.equal(gone.signal, null);
  let sent = false;
  const interrupted = await lineal(long, {
    onData: (child) => {
      if (!sent) {
        sent = true;
        child.kill('SIGINT');
      }
    },
  });
  // On a fast machine all tokens may be out before the signal arrives.
  assert.ok([0, 130].includes(interrupted.code), `${interrupted.code} ${interrupted.signal}`);
  assert.match(interrupted.out, /\n$/);
  assert.equal(interrupted.err, '');
});

let server;
before(async () => {
  server = await startServer({ '/kjv.gguf': BUNDLED });
});
after(() => server.close());

test('a URL works as a file does, and explain fetches the header only', async () => {
  const url = `${server.url}/kjv.gguf`;
  server.reset();
  await json(['explain', url]);
  assert.equal(server.stats('/kjv.gguf').bytes, 262_144);
  const { text } = await json(['generate', url, '-p', 'In the beginning', '-n', '5']);
  assert.equal(text, ' of the LORD, and');
  assert.equal((await json(['explain', `${server.url}/none.gguf`], 1)).error.code, 'SOURCE_NOT_FOUND');
});

test('--timeout ends a URL that sends nothing', async () => {
  server.faults['/kjv.gguf'] = { chunk: 1000, delay: 3000 };
  const start = Date.now();
  const { error } = await json(['explain', `${server.url}/kjv.gguf`, '--timeout', '0.1', '--no-cache'], 1);
  delete server.faults['/kjv.gguf'];
  assert.equal(error.code, 'NETWORK_TIMEOUT');
  assert.ok(Date.now() - start < 10_000);
});
