// The Emscripten build: an ES module of the same core, driven through the same
// exports, says and generates the same as the package's own modules.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';

import { explain, open } from '../../js-glue/index.js';
import { BUNDLED, FIXTURES, ROOT, fixtureFloats, fixturesMissing } from '../lib/fixtures.mjs';

const GLUE = path.join(ROOT, 'dist/emscripten/lineal.mjs');
const NEED_BYTES = 1, MORE = 2;
const create = async () => (await import(GLUE)).default();

/** The host's loops over the exports of wasm/abi.h, for one file in memory. */
class Core {
  constructor(module, file) {
    this.m = module;
    this.file = file;
    this.e = module._lnl_abi_open(1, 2 | 8 | 16, 1, 1, 0);
  }

  string(pointer, bytes = this.m.HEAPU8.indexOf(0, pointer) - pointer) {
    return new TextDecoder().decode(this.m.HEAPU8.slice(pointer, pointer + bytes));
  }

  ok(status) {
    if (status >= 0) return status;
    throw new Error(`${this.string(this.m._lnl_abi_status_name(status))}: ${this.string(this.m._lnl_abi_error(this.e))}`);
  }

  plan(allLogits = 0) {
    this.ok(this.m._lnl_abi_header_begin(this.e, 0, this.file.length));
    for (let at = 0, status = NEED_BYTES; status === NEED_BYTES; at += 4096) {
      const piece = this.file.subarray(at, at + 4096);
      this.m.HEAPU8.set(piece, this.m._lnl_abi_header_reserve(this.e, piece.length) >>> 0);
      status = this.ok(this.m._lnl_abi_header_push(this.e, piece.length));
    }
    this.ok(this.m._lnl_abi_plan(this.e, 0, 0, 0, 0, allLogits));
  }

  feed() {
    const offset = this.m._lnl_abi_need_offset(this.e), bytes = this.m._lnl_abi_need_bytes(this.e);
    this.m.HEAPU8.set(this.file.subarray(offset, offset + bytes), this.m._lnl_abi_need_pointer(this.e) >>> 0);
    this.ok(this.m._lnl_abi_load_fed(this.e, bytes));
  }

  load() {
    this.ok(this.m._lnl_abi_bind(this.e));
    while (this.ok(this.m._lnl_abi_load_next(this.e)) === NEED_BYTES) this.feed();
  }

  prompt(ids) {
    const pointer = this.m._lnl_abi_input(this.e, ids.length * 4) >>> 0;
    new Int32Array(this.m.HEAPU8.buffer, pointer, ids.length).set(ids);
    this.ok(this.m._lnl_abi_prompt(this.e, ids.length, 0));
  }

  tokenize(text) {
    const bytes = new TextEncoder().encode(text);
    this.m.HEAPU8.set(bytes, this.m._lnl_abi_input(this.e, bytes.length) >>> 0);
    const count = this.ok(this.m._lnl_abi_tokenize(this.e, bytes.length, 1));
    return [...new Int32Array(this.m.HEAPU8.buffer, this.m._lnl_abi_tokens(this.e) >>> 0, count)];
  }

  close() {
    this.m._lnl_abi_close(this.e);
  }
}

test('explain and 32 greedy tokens of the bundled model', async () => {
  const module = await create();
  const core = new Core(module, fs.readFileSync(BUNDLED));
  core.plan();
  const explained = JSON.parse(core.string(module._lnl_abi_text(core.e, 0), module._lnl_abi_text_bytes(core.e)));
  const want = await explain(BUNDLED, { module: 'base', threads: 1 });
  assert.deepEqual(explained.tensors, want.tensors);
  assert.equal(explained.context, want.context);

  core.load();
  const model = await open(BUNDLED, { module: 'base', threads: 1 });
  const reference = await model.generate('In the beginning', { maxTokens: 32 }).done;
  await model.close();
  const ids = core.tokenize('In the beginning');
  assert.deepEqual(ids, [...reference.promptTokens]);
  core.prompt(ids);
  const tokens = [];
  while (tokens.length < 32) {
    while (core.ok(module._lnl_abi_eval(core.e)) === MORE);
    tokens.push(core.ok(module._lnl_abi_sample(core.e)));
  }
  assert.deepEqual(tokens, [...reference.tokens]);
  core.close();
});

test('logits of the llama fixture', { skip: fixturesMissing() }, async () => {
  const module = await create();
  const core = new Core(module, fs.readFileSync(path.join(FIXTURES, 'arch/llama-dense.gguf')));
  core.plan(1);
  core.load();
  const ids = fs.readFileSync(path.join(FIXTURES, 'arch/prompt.txt'), 'utf8').trim().slice(4).split(',').map(Number);
  core.prompt(ids);
  const want = fixtureFloats('arch/llama-dense.logits.f32');
  const n = want.length / ids.length;
  let row = 0;
  for (let status = MORE; status === MORE;) {
    status = core.ok(module._lnl_abi_eval(core.e));
    const rows = module._lnl_abi_logits_rows(core.e);
    const got = new Float32Array(module.HEAPU8.buffer, module._lnl_abi_logits(core.e) >>> 0, rows * n);
    for (let r = 0; r < rows; r++, row++) {
      let error = 0, size = 0;
      for (let i = 0; i < n; i++) {
        error += (got[r * n + i] - want[row * n + i]) ** 2;
        size += want[row * n + i] ** 2;
      }
      assert.ok(error / size < 1e-7, `position ${row}: ${error / size}`);
    }
  }
  assert.equal(row, ids.length);
  core.close();
});
