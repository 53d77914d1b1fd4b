#!/usr/bin/env node
/**
 * Times tokenizers: node tests/bench/tokenize.mjs [vocabulary.gguf ...]
 * Without arguments: vocabularies of llama.cpp's test suite. For each: opening
 * it (header and tables), and encoding and decoding a megabyte of English.
 * Milliseconds, the best of several.
 */
import fs from 'node:fs';
import { openTokenizer } from '../../js-glue/index.js';
import { fixture } from '../lib/fixtures.mjs';
import { llamaVocabularies } from '../lib/llama-sources.mjs';

const NAMES = ['llama-bpe', 'qwen2', 'qwen35', 'gemma-4', 'llama-spm', 'bert-bge', 'nomic-bert-moe', 'deepseek-llm'];
const ROUNDS = 5;
const BYTES = 1 << 20;

const english = fs.readFileSync(fixture('kjv', 'val.txt'), 'utf8');
const text = english.repeat(Math.ceil(BYTES / english.length)).slice(0, BYTES);
const files = process.argv.length > 2
  ? process.argv.slice(2).map((file) => ({ name: file, file }))
  : llamaVocabularies().filter(({ name }) => NAMES.includes(name));

console.log(`Node ${process.versions.node}; 1 MiB of English`);
for (const { name, file } of files) {
  const best = { open: Infinity, encode: Infinity, decode: Infinity };
  const timed = async (what, work) => {
    const start = performance.now();
    const result = await work();
    best[what] = Math.min(best[what], performance.now() - start);
    return result;
  };
  let counts = '';
  for (let round = 0; round < ROUNDS; round++) {
    const tokenizer = await timed('open', () => openTokenizer(file, { worker: false }));
    const ids = await timed('encode', () => tokenizer.encode(text, { addSpecial: false }));
    await timed('decode', () => tokenizer.decode(ids));
    counts = `${tokenizer.vocabSize} tokens in the vocabulary, ${ids.length} in the text`;
    await tokenizer.close();
  }
  const shown = Object.entries(best).map(([what, ms]) => `${what} ${ms.toFixed(0)} ms`).join(', ');
  console.log(`${name}: ${shown}; ${counts}`);
}
