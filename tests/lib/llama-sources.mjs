// llama.cpp's sources, which node-llama-cpp ships as a git bundle: unpacked once
// into build/llama.cpp.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { ROOT } from './fixtures.mjs';

const PATHS = ['models', 'src/llama-vocab.cpp'];

/** The folder with `models` and `src/llama-vocab.cpp`. Throws where node-llama-cpp or git is absent. */
export function llamaSources() {
  const entry = createRequire(import.meta.url).resolve('node-llama-cpp');
  const root = path.join(entry.slice(0, entry.lastIndexOf('node-llama-cpp')), 'node-llama-cpp');
  const bundle = path.join(root, 'llama/gitRelease.bundle');
  const { version } = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'));
  const folder = path.join(ROOT, 'build', `llama.cpp-${version}`);
  if (fs.existsSync(folder)) return folder;
  // Unpacked beside and renamed: test files run at the same time.
  const draft = `${folder}.${process.pid}`;
  const quiet = { stdio: ['ignore', 'ignore', 'pipe'] };
  try {
    execFileSync('git', ['clone', '--quiet', '--no-checkout', bundle, draft], quiet);
    execFileSync('git', ['-C', draft, 'checkout', '--quiet', 'HEAD', '--', ...PATHS], quiet);
    fs.rmSync(path.join(draft, '.git'), { recursive: true });
    fs.renameSync(draft, folder);
  } catch (error) {
    if (!fs.existsSync(folder)) throw error;
  } finally {
    fs.rmSync(draft, { recursive: true, force: true });
  }
  return folder;
}

/** The vocabulary files of its test suite: [{ name, file }], by name. */
export function llamaVocabularies() {
  const models = path.join(llamaSources(), 'models');
  return fs.readdirSync(models).map((name) => /^ggml-vocab-(.*)\.gguf$/.exec(name)).filter(Boolean)
    .map(([name, short]) => ({ name: short, file: path.join(models, name) }));
}

/** The texts of a vocabulary's .inp file with the ids of its .out file; none where there are no such files. */
export function recorded(file) {
  if (!fs.existsSync(`${file}.inp`)) return [];
  const ids = fs.readFileSync(`${file}.out`, 'utf8').split('\n').slice(0, -1);
  const texts = fs.readFileSync(`${file}.inp`, 'utf8').split('\n__ggml_vocab_test__\n').slice(0, ids.length);
  return texts.map((text, i) => ({ text, ids: ids[i].split(' ').filter(Boolean).map(Number) }));
}

/** Every name of `tokenizer.ggml.pre` that it knows. */
export function llamaPreNames() {
  const source = fs.readFileSync(path.join(llamaSources(), 'src/llama-vocab.cpp'), 'utf8');
  return [...new Set([...source.matchAll(/tokenizer_pre == "([^"]+)"/g)].map((match) => match[1]))];
}
