// What the build must have produced: modules without imports, exporting what
// wasm/abi.h declares, the base one free of relaxed SIMD; and the files of the
// npm package.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const MAX_MODULE_BYTES = 400_000;
const MIB = 2 ** 20;

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

function declaredExports() {
  const header = readFileSync(join(root, 'wasm/abi.h'), 'utf8').replaceAll(/\/\*[^]*?\*\//g, ' ');
  const names = new Set([...header.matchAll(/\b(lnl_abi_\w+)\s*\(/g)].map((match) => match[1]));
  assert.ok(names.size > 10, 'wasm/abi.h declares the functions of the module');
  return ['memory memory', ...[...names].map((name) => `func ${name}`)].sort();
}

test('the base module has SIMD but no relaxed instruction', () => {
  const counts = opcodes('lineal-base.wasm');
  assert.ok((counts.get('v128.load') ?? 0) > 0, 'the disassembly shows SIMD loads');
  assert.deepEqual(relaxedOf(counts), []);
});

test('the relaxed module has relaxed instructions', () => {
  assert.notDeepEqual(relaxedOf(opcodes('lineal-relaxed.wasm')), []);
});

for (const name of ['lineal-base.wasm', 'lineal-relaxed.wasm']) {
  test(`${name} imports nothing and starts nothing`, () => {
    const found = sections(bytesOf(name));
    const imports = found.get(SECTION_IMPORT);
    assert.equal(imports === undefined ? 0 : leb(imports, 0)[0], 0);
    assert.equal(found.has(SECTION_START), false);
  });

  test(`${name} exports its memory and exactly the functions of wasm/abi.h`, () => {
    assert.deepEqual(exportsOf(bytesOf(name)), declaredExports());
  });

  test(`${name} may grow its memory to 4 GiB`, () => {
    const section = sections(bytesOf(name)).get(SECTION_MEMORY);
    const [count, at] = leb(section, 0);
    const [, initial] = leb(section, at); // flags, then the two sizes in pages
    const [, maximum] = leb(section, initial);
    assert.equal(count, 1);
    assert.equal(section[at], 1, 'one memory with a maximum, 32-bit, not shared');
    assert.equal(leb(section, maximum)[0], 65536);
  });

  test(`${name} is below ${MAX_MODULE_BYTES} bytes`, () => {
    const bytes = statSync(join(root, 'dist', name)).size;
    assert.ok(bytes < MAX_MODULE_BYTES, `${bytes} bytes`);
  });
}

test('the base module compiles on an engine without relaxed SIMD', () => {
  // A fresh process: another test may have switched relaxed SIMD on in this one.
  const script = `process.exitCode = WebAssembly.validate(require('node:fs').readFileSync('dist/lineal-base.wasm')) ? 0 : 1`;
  execFileSync(process.execPath, ['-e', script], { cwd: root, stdio: 'inherit' });
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
  assert.deepEqual(['memory memory', ...functions].sort(), declaredExports());
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

test('npm pack carries the glue, the two modules, and nothing else', () => {
  const out = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: root, encoding: 'utf8' });
  const packed = JSON.parse(out)[0].files.map((file) => file.path).sort();
  const glue = readdirSync(join(root, 'js-glue')).filter((name) => /\.(js|d\.ts)$/.test(name));
  assert.deepEqual(
    packed,
    [
      'LICENSE',
      'README.md',
      'package.json',
      'dist/lineal-base.wasm',
      'dist/lineal-relaxed.wasm',
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
