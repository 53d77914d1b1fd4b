// Bad input: a LinealError with a code, a message that names the thing and a
// remedy, before any weight byte is fetched wherever the header shows the fault.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { LinealError, explain, inspect, open, openTokenizer } from '../../js-glue/index.js';
import { BUNDLED, countingSource, fixture, fixtureJson, fixturesMissing, generate, temporary } from '../lib/fixtures.mjs';
import {
  dropKey, dropTensor, edited, ggufBytes, layout, setKey, setTensor, tinyLlama, writeSparse,
} from '../lib/gguf-write.mjs';

const MiB = 1 << 20;
const skip = fixturesMissing();

function assertTyped(error, code, ...patterns) {
  assert.ok(error instanceof LinealError, `${error?.constructor?.name}: ${error}`);
  const codes = [code].flat();
  assert.ok(codes.includes(error.code), `${error.code}: ${error.message} (expected ${codes})`);
  for (const pattern of patterns) assert.match(error.message, pattern);
  assert.ok(error.remedy.length > 5, `a remedy: '${error.remedy}'`);
  return true;
}

// --- (h) the malformed files of shared/fixtures/gguf-cases --------------------------------

// Where llama.cpp says OK and we refuse, or the other way round, with the reason.
const DIFFERENT = {};

const cases = skip ? {} : fixtureJson('gguf-cases/manifest.json');
const TIME_LIMIT_MS = 50;
test('all 65 GGUF cases: accepted or refused as the manifest says, each within 50 ms', { skip }, async (t) => {
  assert.equal(Object.keys(cases).length, 65);
  await inspect(fixture('gguf-cases/ok_min.gguf')); // warm-up: the module is compiled once
  for (const [name, { llama_cpp: verdict }] of Object.entries(cases)) {
    await t.test(name, async () => {
      const file = fixture('gguf-cases', `${name}.gguf`);
      const accept = DIFFERENT[name]?.accept ?? verdict === 'OK';
      const attempt = async () => {
        const begin = performance.now();
        const error = await inspect(file).then(() => null, (e) => e);
        return { error, ms: performance.now() - begin };
      };
      let { error, ms } = await attempt();
      if (ms >= TIME_LIMIT_MS) ({ error, ms } = await attempt()); // once more: another process may have had the core
      if (accept) assert.equal(error, null, error?.message);
      else {
        assert.notEqual(error, null, 'it was accepted');
        assertTyped(error, error.code);
        assert.ok(/^(NOT_GGUF|GGUF_|UNSUPPORTED_TYPE|SOURCE_)/.test(error.code), `${error.code}: ${error.message}`);
      }
      assert.ok(ms < TIME_LIMIT_MS, `${ms} ms`);
    });
  }
});

// --- (i) models that can't run: refused by the header alone ---------------------------------

// 24 MiB of weights, so that reading any would show
const roomy = { n_layer: 4, d_model: 256, n_head: 8, n_kv_head: 4, d_ff: 1024, n_vocab: 1024, n_ctx: 512, zeroLayers: [0, 1, 2, 3] };
const sound = tinyLlama(roomy);
const sparse = (model, name) => {
  const path = temporary(`${name}.gguf`);
  return { path, ...writeSparse(path, model) };
};

const refused = {
  'an unknown architecture': [setKey('general.architecture', 'string', 'lxxma'), 'UNSUPPORTED_ARCHITECTURE', /lxxma/],
  'no architecture': [dropKey('general.architecture'), 'MISSING_KEY', /general\.architecture/],
  'an unsupported tensor type': [setTensor('blk.1.ffn_up.weight', { type: 'F64', values: undefined }), 'UNSUPPORTED_TYPE', /blk\.1\.ffn_up\.weight/, /F64/i],
  'a missing key': [dropKey('llama.attention.head_count'), 'MISSING_KEY', /llama\.attention\.head_count/],
  'a key of the wrong type': [setKey('llama.block_count', 'string', 'four'), 'MISSING_KEY', /llama\.block_count/],
  'no epsilon': [dropKey('llama.attention.layer_norm_rms_epsilon'), 'MISSING_KEY', /layer_norm_rms_epsilon/],
  'a missing tensor': [dropTensor('blk.2.attn_v.weight'), 'MISSING_TENSOR', /blk\.2\.attn_v\.weight/],
  'no output norm': [dropTensor('output_norm.weight'), 'MISSING_TENSOR', /output_norm\.weight/],
  'a tensor of the wrong shape': [setTensor('blk.0.attn_q.weight', { shape: [256, 320] }), 'BAD_SHAPE', /blk\.0\.attn_q\.weight/, /320/],
  'a tensor with a dimension too many': [setTensor('blk.0.ffn_norm.weight', { shape: [256, 2] }), 'BAD_SHAPE', /blk\.0\.ffn_norm\.weight/],
  'an embedding narrower than the vocabulary': [setTensor('token_embd.weight', { shape: [256, 1000], values: undefined }), ['BAD_SHAPE', 'BAD_VOCABULARY'], /token_embd\.weight|1000/],
  'a tensor that llama does not use': [(m) => m.tensors.push({ name: 'blk.0.mystery.weight', type: 'F32', shape: [8] }), 'UNEXPECTED_TENSOR', /blk\.0\.mystery\.weight/],
  'zero heads': [setKey('llama.attention.head_count', 'u32', 0), 'GGUF_LIMIT', /head_count/],
  'heads that do not share KV heads evenly': [setKey('llama.attention.head_count_kv', 'u32', 3), 'UNSUPPORTED_FEATURE', /8 .*3 /],
  'a billion layers': [setKey('llama.block_count', 'u32', 1_000_000_000), ['UNSUPPORTED_FEATURE', 'MISSING_TENSOR', 'GGUF_LIMIT', 'BAD_SHAPE'], /layer|block|blk/],
  'an unknown tokenizer': [setKey('tokenizer.ggml.model', 'string', 'sentencechunk'), 'UNSUPPORTED_TOKENIZER', /sentencechunk/],
  'scores stored as bytes': [setKey('tokenizer.ggml.scores', '[u8]', Array(1024).fill(0)), ['BAD_VOCABULARY', 'MISSING_KEY'], /scores/],
  'fewer scores than tokens': [setKey('tokenizer.ggml.scores', '[f32]', [0, 0, 0]), 'BAD_VOCABULARY', /scores|3/],
  'tokens that are numbers': [setKey('tokenizer.ggml.tokens', '[u32]', [1, 2, 3]), ['BAD_VOCABULARY', 'MISSING_KEY'], /tokens/],
  'an unsupported rope scaling': [setKey('llama.rope.scaling.type', 'string', 'spiral'), 'UNSUPPORTED_FEATURE', /spiral/],
  'experts without their number': [setKey('llama.expert_count', 'u32', 8), 'MISSING_KEY', /expert_used_count/],
};
for (const [name, [edit, code, ...patterns]] of Object.entries(refused)) {
  test(`${name}: refused before any weight is fetched`, async () => {
    const file = sparse(edited(sound, edit), 'refused');
    assert.ok(file.fileBytes > 16 * MiB);
    for (const call of [explain, open]) {
      const source = countingSource(file.path);
      await assert.rejects(call(source), (error) => assertTyped(error, code, ...patterns));
      assert.ok(source.end <= file.headerBytes + MiB, `${source.end} bytes were reached, the header has ${file.headerBytes}`);
      assert.ok(source.closed >= 1, 'the source was closed');
    }
  });
}

test('a context longer than the model was trained for: both numbers, before any weight', async () => {
  const file = sparse(sound, 'sound');
  const source = countingSource(file.path);
  await assert.rejects(open(source, { context: 4096 }), (error) => assertTyped(error, 'CONTEXT_TOO_LONG', /4096/, /512/));
  assert.ok(source.end <= file.headerBytes + MiB);
});

test('row lengths that are no whole blocks are refused in the header', async () => {
  for (const [type, k] of [['Q4_0', 48], ['Q4_K', 128], ['Q6_K', 128], ['Q8_0', 40]]) {
    const model = edited(tinyLlama({ d_model: k, n_head: 2, d_ff: 256 }), (m) => {
      // stored as if the blocks ran across rows, which the format forbids
      Object.assign(m.tensors.find((t) => t.name === 'blk.0.attn_q.weight'), { type, values: undefined, storedBytes: 4 * k * k });
    });
    await assert.rejects(open(ggufBytes(model)), (error) => assertTyped(error, ['GGUF_CORRUPT', 'BAD_SHAPE', 'UNSUPPORTED_TYPE'], /blk\.0\.attn_q\.weight/));
  }
});

test('a file named after one type that holds others loads, and explain shows the real ones', async () => {
  const types = { 'blk.0.attn_v.weight': 'Q6_K', 'blk.1.ffn_down.weight': 'Q8_0', 'token_embd.weight': 'Q4_0', 'output.weight': 'BF16' };
  const model = tinyLlama({ d_model: 256, d_ff: 256, type: (name) => types[name] ?? 'Q4_K' });
  const explanation = await explain(ggufBytes(model));
  for (const [name, type] of Object.entries(types)) assert.equal(explanation.tensors.find((t) => t.name === name).type, type);
  const opened = await open(ggufBytes(model));
  assert.equal((await generate(opened, [1, 5], { maxTokens: 2, ignoreEos: true })).result.tokens.length, 2);
  await opened.close();
});

test('an unknown pre-tokenizer: BPE is refused by name, SPM ignores it', async () => {
  const file = sparse(tinyLlama({ ...roomy, tokenizer: 'bpe', pre: 'martian' }), 'bpe-martian');
  for (const call of [explain, open]) {
    const source = countingSource(file.path);
    await assert.rejects(call(source), (error) => assertTyped(error, 'UNSUPPORTED_TOKENIZER', /martian/));
    assert.ok(source.end <= file.headerBytes + MiB);
  }
  const spm = await open(ggufBytes(tinyLlama({ pre: 'martian' })));
  assert.ok((await spm.tokenize('the')).length > 0);
  await spm.close();
  const bpe = await open(ggufBytes(tinyLlama({ tokenizer: 'bpe' })));
  assert.equal(await bpe.detokenize(await bpe.tokenize('the thin hen')), 'the thin hen');
  await bpe.close();
});

test('a vocabulary-only file tokenizes, and is refused as a model with NO_WEIGHTS', async () => {
  const bytes = ggufBytes({ ...sound, tensors: [] });
  await assert.rejects(open(bytes), (error) => assertTyped(error, 'NO_WEIGHTS'));
  const tokenizer = await openTokenizer(bytes);
  assert.equal(tokenizer.vocabSize, 1024);
  assert.equal(await tokenizer.decode(await tokenizer.encode('the rest', { addSpecial: false })), 'the rest');
  await tokenizer.close();
});

test('a model without a tokenizer takes ids, and says so for text', async () => {
  for (const tokenizer of ['none', 'absent']) {
    const model = await open(ggufBytes(tinyLlama({ tokenizer })));
    assert.equal(model.info.hasTokenizer, false);
    assert.equal((await generate(model, [1, 2, 3], { maxTokens: 3, ignoreEos: true })).result.tokens.length, 3);
    await assert.rejects(generate(model, 'text'), (error) => assertTyped(error, 'NO_TOKENIZER'));
    await model.close();
    await assert.rejects(openTokenizer(ggufBytes(tinyLlama({ tokenizer }))), (error) => assertTyped(error, 'NO_TOKENIZER'));
  }
});

// --- requests: the model stays usable -------------------------------------------------------

test('bad requests are typed, and the model goes on working', async () => {
  const model = await open(BUNDLED, { context: 64 });
  const bad = [
    [[], {}, 'EMPTY_PROMPT'],
    ['', { addSpecial: false }, 'EMPTY_PROMPT'],
    [Array(65).fill(270), {}, 'PROMPT_TOO_LONG', /65/, /64/],
    ['and the '.repeat(200), {}, 'PROMPT_TOO_LONG', /64/],
    [[1, 1024], {}, 'BAD_TOKEN', /1024/],
    [[1, -1], {}, 'BAD_TOKEN', /-1/],
    ['And', { maxTokens: -1 }, 'BAD_ARGUMENT', /maxTokens/],
    ['And', { temperature: NaN }, 'BAD_ARGUMENT', /temperature/],
    ['And', { temperature: 1, topP: 2 }, 'BAD_ARGUMENT', /topP/],
    ['And', { seed: -4 }, 'BAD_ARGUMENT', /seed/],
  ];
  const expected = (await generate(model, 'And', { maxTokens: 3 })).text;
  for (const [prompt, options, code, ...patterns] of bad) {
    await assert.rejects(generate(model, prompt, options), (error) => assertTyped(error, code, ...patterns), JSON.stringify(options));
    assert.equal((await generate(model, 'And', { maxTokens: 3 })).text, expected);
  }
  await model.close();
});

test('bad arguments of open and explain are typed', async () => {
  for (const [options, pattern] of [
    [{ context: -1 }, /context/], [{ context: 1.5 }, /context/], [{ memory: 'lots' }, /lots/], [{ chunk: -3 }, /chunk/],
    [{ kvType: 'q1' }, /kvType|q1/], [{ module: 'turbo' }, /turbo|module/],
  ]) {
    for (const call of [explain, open]) {
      await assert.rejects(call(BUNDLED, options), (error) => assertTyped(error, 'BAD_ARGUMENT', pattern));
    }
  }
  await assert.rejects(open(temporary('nothing-here.gguf')), (error) => assertTyped(error, 'SOURCE_NOT_FOUND', /nothing-here/));
  await assert.rejects(open(temporary('.')), (error) => assertTyped(error, ['SOURCE_UNREADABLE', 'SOURCE_NOT_FOUND', 'SOURCE_NOT_A_MODEL']));
  await assert.rejects(open(42), (error) => assertTyped(error, 'BAD_ARGUMENT'));
});

test('prompt and context full: a prompt that fills the context is evaluated, and generation ends by itself', async () => {
  const model = await open(BUNDLED, { context: 16 });
  const { result } = await generate(model, Array(14).fill(270), { maxTokens: 50, ignoreEos: true });
  assert.equal(result.finishReason, 'context_full');
  assert.ok(result.tokens.length >= 2 && result.tokens.length <= 3, `${result.tokens.length} tokens`);
  await model.close();
});

test('after each refusal a good model opens', async () => {
  const good = fs.readFileSync(BUNDLED);
  const version99 = Buffer.from(good);
  version99.writeUInt32LE(99, 4);
  const huge = Buffer.from(good);
  huge.writeBigUInt64LE(1n << 60n, 8);
  for (const [bytes, codes] of [
    [version99, ['GGUF_VERSION']], [huge, ['GGUF_CORRUPT', 'GGUF_LIMIT', 'GGUF_TRUNCATED']], [good.subarray(0, 20_000), ['GGUF_TRUNCATED']],
    [Buffer.from('this is no model\n'.repeat(500)), ['NOT_GGUF', 'SOURCE_NOT_A_MODEL']], [Buffer.alloc(0), ['NOT_GGUF', 'SOURCE_NOT_A_MODEL']],
  ]) {
    await assert.rejects(open(bytes), (error) => assertTyped(error, codes));
    const model = await open(good);
    assert.deepEqual((await generate(model, 'In the beginning', { maxTokens: 2 })).result.tokens, [271, 261]);
    await model.close();
  }
});

test('a big-endian file is refused as such', { skip }, async () => {
  await assert.rejects(open(fixture('stories260k/stories260K-be.gguf')), (error) => assertTyped(error, ['GGUF_VERSION', 'NOT_GGUF'], /endian|version/i));
});

test('GGUF version 2 is read', async () => {
  const run = async (version) => {
    const model = await open(ggufBytes(tinyLlama({ version })));
    const { result } = await generate(model, [1, 5, 9], { maxTokens: 8, ignoreEos: true });
    await model.close();
    return result.tokens;
  };
  assert.deepEqual(await run(2), await run(3));
});

test('threads asked for where memory cannot be shared: one is used, and explain says so', async () => {
  const explanation = await explain(BUNDLED, { host: { kind: 'browser', threads: 2, isolated: false } });
  const warning = explanation.warnings.map((w) => JSON.stringify(w)).join('\n');
  assert.match(warning, /thread/i);
});

test('the alignment key is honoured', async () => {
  const run = async (alignment) => {
    const model = tinyLlama({ alignment });
    assert.equal(layout(model).dataOffset % alignment, 0);
    const opened = await open(ggufBytes(model));
    const { result } = await generate(opened, [1, 5, 9], { maxTokens: 8, ignoreEos: true });
    await opened.close();
    return result.tokens;
  };
  const usual = await run(32);
  for (const alignment of [8, 64, 4096]) assert.deepEqual(await run(alignment), usual, `alignment ${alignment}`);
});
