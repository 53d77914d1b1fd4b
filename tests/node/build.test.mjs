// What the build must have produced: modules that import nothing (those for
// threads: only their shared memory) and export what wasm/abi.h declares, the
// base ones free of relaxed SIMD; and the files of the npm package.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

import { temporary } from '../lib/fixtures.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const MAX_MODULE_BYTES = 400_000;
const MIB = 2 ** 20;
const MODULES = [
  'lineal-base.wasm',
  'lineal-base-mt.wasm',
  'lineal-relaxed.wasm',
  'lineal-relaxed-mt.wasm',
  'lineal-relaxed-mt-64.wasm',
];
const isThreaded = (name) => name.includes('-mt');
/** With 64-bit addresses; its mathematics has a small memory of its own. */
const isWide = (name) => name.endsWith('-64.wasm');
const isRelaxed = (name) => name.startsWith('lineal-relaxed');
/** What a further thread needs of its instance. */
const THREAD_EXPORTS = [
  'global __stack_pointer',
  'global __tls_align',
  'global __tls_size',
  'func __wasm_init_tls',
];

const bytesOf = (name) => readFileSync(join(root, 'dist', name));

/** The instruction mnemonics of a module, each with how often it occurs. */
function opcodes(name) {
  const text = execFileSync(
    process.execPath,
    [join(root, 'node_modules/binaryen/bin/wasm-dis'), '--all-features', join(root, 'dist', name)],
    { encoding: 'utf8', maxBuffer: 256 * MIB },
  );
  const counts = new Map();
  // In folded text an instruction is what follows an opening parenthesis;
  // strings (names of exports) are taken out first.
  for (const [, op] of text.replaceAll(/"(?:[^"\\]|\\.)*"/g, '""').matchAll(/\(([a-z][a-z0-9_.]*)/g)) {
    counts.set(op, (counts.get(op) ?? 0) + 1);
  }
  return counts;
}

const relaxedOf = (counts) => [...counts].filter(([op]) => /(^|[._])relaxed_/.test(op));

/** LEB128 at `at`: [value, next]. Plain numbers: sizes and indices only. */
function leb(bytes, at) {
  let value = 0;
  for (let scale = 1; ; scale *= 128) {
    const byte = bytes[at++];
    value += (byte & 127) * scale;
    if (byte < 128) return [value, at];
  }
}

/** Sections of a module by id, read from the bytes: Node 20 cannot compile the relaxed one without a flag. */
function sections(bytes) {
  assert.equal(bytes.subarray(0, 8).toString('hex'), '0061736d01000000');
  const found = new Map();
  for (let at = 8; at < bytes.length; ) {
    const id = bytes[at];
    const [size, start] = leb(bytes, at + 1);
    found.set(id, bytes.subarray(start, start + size));
    at = start + size;
  }
  return found;
}

const KINDS = ['func', 'table', 'memory', 'global', 'tag'];
const SECTION_IMPORT = 2;
const SECTION_MEMORY = 5;
const SECTION_EXPORT = 7;
const SECTION_START = 8;

function exportsOf(bytes) {
  const section = sections(bytes).get(SECTION_EXPORT);
  const list = [];
  let [count, at] = leb(section, 0);
  for (; count > 0; count--) {
    const [length, start] = leb(section, at);
    const name = section.toString('utf8', start, start + length);
    const kind = KINDS[section[start + length]];
    [, at] = leb(section, start + length + 1);
    list.push(`${kind} ${name}`);
  }
  return list.sort();
}

function declaredFunctions() {
  const header = readFileSync(join(root, 'wasm/abi.h'), 'utf8').replaceAll(/\/\*[^]*?\*\//g, ' ');
  const names = new Set([...header.matchAll(/\b(lnl_abi_\w+)\s*\(/g)].map((match) => match[1]));
  assert.ok(names.size > 10, 'wasm/abi.h declares the functions of the module');
  return [...names].map((name) => `func ${name}`).sort();
}

/** The only memory of a module: {module, name, flags, maximum}; the first two when it is imported. */
function memoryOf(name) {
  const found = sections(bytesOf(name));
  const section = found.get(isThreaded(name) ? SECTION_IMPORT : SECTION_MEMORY);
  let [count, at] = leb(section, 0);
  assert.equal(count, 1);
  const names = [];
  if (isThreaded(name)) {
    for (let i = 0; i < 2; i++) {
      const [length, start] = leb(section, at);
      names.push(section.toString('utf8', start, start + length));
      at = start + length;
    }
    assert.equal(KINDS[section[at++]], 'memory');
  }
  const flags = section[at];
  const [, second] = leb(section, at + 1); // over the initial size
  return { module: names[0], name: names[1], flags, maximum: leb(section, second)[0] };
}

for (const name of MODULES) {
  test(`${name} has SIMD, and relaxed instructions exactly if it is named so`, () => {
    const counts = opcodes(name);
    assert.ok((counts.get('v128.load') ?? 0) > 0, 'the disassembly shows SIMD loads');
    if (isRelaxed(name)) assert.notDeepEqual(relaxedOf(counts), []);
    else assert.deepEqual(relaxedOf(counts), []);
  });

  test(`${name} imports ${isThreaded(name) ? 'only its memory, which is shared' : 'nothing'}; at most ${isWide(name) ? 16 : 4} GiB`, () => {
    const memory = memoryOf(name);
    const [imports] = leb(sections(bytesOf(name)).get(SECTION_IMPORT) ?? Buffer.of(0), 0);
    assert.equal(imports, isThreaded(name) ? 1 : 0);
    // bit 0: it has a maximum; bit 1: shared; bit 2: 64-bit
    assert.equal(memory.flags, (isThreaded(name) ? 3 : 1) + (isWide(name) ? 4 : 0));
    assert.equal(memory.maximum, isWide(name) ? 262144 : 65536);
    // The second memory: one page for good, with a 32-bit address.
    if (isWide(name)) assert.deepEqual([...sections(bytesOf(name)).get(SECTION_MEMORY)], [1, 1, 1, 1]);
    else assert.equal(sections(bytesOf(name)).has(SECTION_MEMORY), !isThreaded(name));
    // The start function of a threaded module sets up its data, once for all threads.
    if (!isThreaded(name)) assert.equal(sections(bytesOf(name)).has(SECTION_START), false);
  });

  test(`${name} exports exactly the functions of wasm/abi.h and its memory or what threads need`, () => {
    const more = isThreaded(name) ? THREAD_EXPORTS : ['memory memory'];
    assert.deepEqual(exportsOf(bytesOf(name)), [...declaredFunctions(), ...more].sort());
  });

  test(`${name} is below ${MAX_MODULE_BYTES} bytes`, () => {
    const bytes = statSync(join(root, 'dist', name)).size;
    assert.ok(bytes < MAX_MODULE_BYTES, `${bytes} bytes`);
  });
}

test('the base modules compile on an engine without relaxed SIMD', () => {
  // A fresh process: another test may have switched relaxed SIMD on in this one.
  for (const name of MODULES.filter((module) => !isRelaxed(module))) {
    const script = `process.exitCode = WebAssembly.validate(require('node:fs').readFileSync('dist/${name}')) ? 0 : 1`;
    execFileSync(process.execPath, ['-e', script], { cwd: root, stdio: 'inherit' });
  }
});

test('the WASI command imports WASI alone', () => {
  const module = new WebAssembly.Module(bytesOf('lineal-wasi.wasm'));
  const sources = new Set(WebAssembly.Module.imports(module).map((entry) => entry.module));
  assert.deepEqual([...sources], ['wasi_snapshot_preview1']);
  assert.deepEqual(WebAssembly.Module.exports(module).map((entry) => entry.name).sort(), ['_start', 'memory']);
});

test('the Emscripten module loads in Node and is the same core', async () => {
  const { default: create } = await import('../../dist/emscripten/lineal.mjs');
  const other = await create();
  const functions = Object.keys(other).filter((name) => name.startsWith('_lnl_abi_')).map((name) => `func ${name.slice(1)}`);
  assert.deepEqual(functions.sort(), declaredFunctions());
  const { exports: base } = new WebAssembly.Instance(new WebAssembly.Module(bytesOf('lineal-base.wasm')));
  assert.equal(other._lnl_abi_version(), base.lnl_abi_version());
  assert.equal(other._lnl_abi_isa(), base.lnl_abi_isa());
  const engine = other._lnl_abi_open(1, 2 + 8 + 16, 1, 0);
  assert.notEqual(engine, 0);
  // A header that is no GGUF is refused: parser, allocator and messages work.
  other._lnl_abi_header_begin(engine, 0, 16);
  const at = other._lnl_abi_header_reserve(engine, 16);
  assert.notEqual(at, 0);
  other.HEAPU8.fill(65, at, at + 16);
  const status = other._lnl_abi_header_push(engine, 16);
  const name = other._lnl_abi_status_name(status);
  assert.equal(Buffer.from(other.HEAPU8.subarray(name, other.HEAPU8.indexOf(0, name))).toString(), 'NOT_GGUF');
  other._lnl_abi_close(engine);
});

/** The files that `file` reaches through relative imports, itself included. */
function reach(file, seen = new Set()) {
  if (seen.has(file)) return seen;
  seen.add(file);
  const text = readFileSync(file, 'utf8');
  const patterns = [
    /\b(?:import|export)\b[^'";]*?\bfrom\s*['"](\.[^'"]+)['"]/g,
    /\bimport\s*\(?\s*['"](\.[^'"]+)['"]/g,
    /\bnew URL\(\s*['"](\.{1,2}\/[^'"]+\.js)['"]\s*,\s*import\.meta\.url/g,
  ];
  for (const pattern of patterns) {
    for (const [, name] of text.matchAll(pattern)) {
      const next = join(dirname(file), name);
      assert.ok(existsSync(next), `${relative(root, file)} names ${name}`);
      reach(next, seen);
    }
  }
  return seen;
}

test('npm pack carries the glue, the modules, and nothing else', () => {
  const out = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: root, encoding: 'utf8' });
  const packed = JSON.parse(out)[0].files.map((file) => file.path).sort();
  const glue = readdirSync(join(root, 'js-glue')).filter((name) => /\.(js|d\.ts)$/.test(name));
  assert.deepEqual(
    packed,
    [
      'LICENSE',
      'README.md',
      'package.json',
      ...[...MODULES, 'lineal-sha256.wasm'].map((name) => `dist/${name}`),
      ...glue.map((name) => `js-glue/${name}`),
    ].sort(),
  );
  for (const entry of ['js-glue/index.js', 'js-glue/cli.js']) {
    const reached = [...reach(join(root, entry))].map((file) => relative(root, file));
    assert.deepEqual(reached.filter((file) => !packed.includes(file)), [], `${entry} needs only what is packed`);
  }
});

test('package.json offers what it carries and depends on nothing', () => {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  assert.equal(manifest.type, 'module');
  assert.equal(manifest.sideEffects, false);
  assert.deepEqual(Object.keys(manifest.dependencies ?? {}), []);
  const named = [manifest.types, manifest.bin.lineal, ...Object.values(manifest.exports['.'])];
  for (const path of named) assert.ok(existsSync(join(root, path)), path);
  assert.match(readFileSync(join(root, manifest.bin.lineal), 'utf8'), /^#!\/usr\/bin\/env node\n/);
});

test('a copied clone is configured anew, one that stays where it is is not', () => {
  for (const [home, configures] of [['/nowhere/at/all', true], [dirname(temporary('other')), true], [undefined, false]]) {
    const folder = temporary(`clone-${home ? 'copied' : 'own'}`);
    const at = (...names) => join(folder, ...names);
    for (const name of ['scripts', 'build/wasm', 'bin']) mkdirSync(at(name), { recursive: true });
    copyFileSync(join(root, 'scripts/build.sh'), at('scripts/build.sh'));
    writeFileSync(at('build/wasm/CMakeCache.txt'), `A:STRING=1\nCMAKE_HOME_DIRECTORY:INTERNAL=${home ?? folder}\n`);
    writeFileSync(at('build/wasm/build.ninja'), '');
    // Tells what it was asked to do.
    writeFileSync(at('bin/cmake'), '#!/bin/sh\n[ "$1" = --build ] && ls build\n[ "$1" = --preset ] && echo configured > configured\nexit 0\n', { mode: 0o755 });
    execFileSync('bash', [at('scripts/build.sh'), 'wasm'], { env: { ...process.env, PATH: `${at('bin')}:${process.env.PATH}` }, stdio: 'pipe' });
    assert.equal(existsSync(at('configured')), configures, String(home));
    assert.equal(existsSync(at('build/wasm/build.ninja')), !configures, String(home));
    rmSync(folder, { recursive: true });
  }
});
