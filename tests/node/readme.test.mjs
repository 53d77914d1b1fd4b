// What README.md says can be done as it says: its samples compile and run, its commands, options, scripts and
// links exist, and the licences are those of the things themselves.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { COMMANDS } from '../../js-glue/cli-commands.js';
import { OPTIONS } from '../../js-glue/cli-options.js';
import { inspect } from '../../js-glue/index.js';
import { typeFaults } from '../lib/declared.mjs';
import { BUNDLED, ROOT } from '../lib/fixtures.mjs';
import { startServer } from '../lib/http-server.mjs';

const read = (name) => fs.readFileSync(path.join(ROOT, name), 'utf8');
const README = read('README.md');
const MANUAL = read('js-glue/index.d.ts');
const blocksOf = (text, kind) => [...text.matchAll(new RegExp(`^\`\`\`${kind}\\n([^]*?)^\`\`\`$`, 'gm'))].map(([, code]) => code);
/** Each sample, and what it prints. */
const SAMPLES = [
  ...blocksOf(README, 'js'),
  ...blocksOf(MANUAL.slice(0, MANUAL.indexOf('*/')).replace(/^ \* ?/gm, ''), 'js'),
];
const PRINTED = [
  /^true [^]*of the LORD[^]*length\n$/,
  /^ of the LORD/,
  /^ of the LORD/,
  /FITS[^]*decided by tensor[^]*linear memory, as planned/,
  /^-?[01]\.\d+\n$/,
  /'matmul'/,
  /FITS[^]* of the LORD/,
];

let server;
before(async () => {
  server = await startServer({ '/model.gguf': BUNDLED });
});
after(() => server.close());

function run(command, args, options) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'], ...options });
    let out = '', err = '';
    child.stdout.on('data', (data) => { out += data; });
    child.stderr.on('data', (data) => { err += data; });
    child.on('close', (code) => resolve({ code, out, err }));
  });
}

test('every sample compiles under strict checks', () => {
  assert.equal(SAMPLES.length, PRINTED.length, 'a sample without a line in PRINTED');
  const files = Object.fromEntries(SAMPLES.map((code, i) => [`sample-${i}.js`, `${code}\nexport {};\n`]));
  files['without-import.js'] = SAMPLES[3].replace('import { explain, memoryMap }', 'import { explain }');
  assert.deepEqual(typeFaults(files), ["without-import.js:9: Cannot find name 'memoryMap'."]);
});

for (const [i, code] of SAMPLES.entries()) {
  test(`sample ${i} runs: ${code.split('\n').find((line) => /^(const|for)/.test(line))}`, async () => {
    const page = 'globalThis.document = { body: { append: (text) => process.stdout.write(text) } };\n';
    const here = code.replaceAll('https://example.org', server.url).replaceAll("'model.gguf'", JSON.stringify(BUNDLED));
    const { code: status, out, err } = await run(process.execPath, ['--no-warnings', '--input-type=module', '--eval', page + here]);
    assert.deepEqual([status, err], [0, ''], out);
    assert.match(out, PRINTED[i]);
  });
}

test('commands that are written out run', async () => {
  const lines = blocksOf(README, '').flatMap((block) => [...block.matchAll(/^\$ (.*)$/gm)].map(([, line]) => line));
  assert.ok(lines.length >= 2);
  for (const line of lines) {
    const { code, out, err } = await run('bash', ['-c', line.replace(/^node/, JSON.stringify(process.execPath))]);
    assert.deepEqual([code, err], [0, ''], line);
    assert.ok(out.length > 20, line);
  }
});

test('commands, options, scripts and files that are named exist', () => {
  const usages = blocksOf(README, '').flatMap((block) => [...block.matchAll(/^lineal (\w+) (.*)$/gm)]);
  assert.deepEqual(usages.map(([, name]) => name).sort(), Object.keys(COMMANDS).sort());
  for (const [line, name, rest] of usages) {
    const options = COMMANDS[name].options;
    for (const [, long] of rest.matchAll(/--([\w-]+)/g)) assert.ok(options.includes(long), line);
    for (const [, short] of rest.matchAll(/[[ ]-(\w)\b/g)) assert.ok(options.some((option) => OPTIONS[option].short === short), line);
  }
  const mentioned = [...README.matchAll(/[ `(]--([a-z][\w-]*)/g)].map(([, name]) => name);
  assert.ok(mentioned.length > 15);
  for (const name of mentioned) assert.ok(name in OPTIONS, `--${name}`);
  const { scripts } = JSON.parse(read('package.json'));
  for (const file of ['README.md', 'NOTES.md', 'tests/README.md', 'docs/memory.md', 'docs/models.md', 'docs/benchmarks.md', 'docs/tokenizers.md']) {
    const text = read(file);
    for (const [, name] of text.matchAll(/npm run ([\w:-]+)/g)) assert.ok(name in scripts, `${file}: npm run ${name}`);
    for (const [, link] of text.matchAll(/\]\((?!https?:)([^)#]+)\)/g))
      assert.ok(fs.existsSync(path.join(ROOT, path.dirname(file), link)), `${file}: ${link}`);
  }
});

function takes(parse, name, word) {
  try {
    return parse?.(word, name) === word;
  } catch {
    return false;
  }
}

test('help says of each option what it takes', () => {
  for (const [name, { type, value, parse }] of Object.entries(OPTIONS)) {
    assert.equal(value !== undefined, type === 'string', name);
    for (const word of ['max', 'auto'])
      if (takes(parse, name, word) && !takes(parse, name, 'anything')) assert.ok(value.split('|').includes(word), `--${name} ${value} takes ${word}`);
  }
  for (const [name, { usage, options }] of Object.entries(COMMANDS))
    for (const [, option, value] of usage.matchAll(/--([\w-]+) ([^\]\s]+)/g)) {
      assert.ok(options.includes(option), `${name}: ${usage}`);
      if (/^[A-Z]/.test(value)) assert.equal(value, OPTIONS[option].value, `${name}: ${usage}`);
    }
});

test('licences: of the code, and of the model, as each says itself', async () => {
  const { license } = JSON.parse(read('package.json'));
  assert.match(read('LICENSE'), new RegExp(`^${license} License`));
  assert.match(README, new RegExp(`\\[${license} licence\\]\\(LICENSE\\)`));
  const { metadata } = await inspect(BUNDLED);
  const { value } = metadata.find(({ key }) => key === 'general.license');
  const [, told] = /^SPDX-License-Identifier: (.*)$/m.exec(read('web/models/README.md'));
  assert.equal(told.toLowerCase(), value);
  assert.match(README, new RegExp(`its\\s+licence\\s+is\\s+${told},`));
});
