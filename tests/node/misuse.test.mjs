// Wrong arguments, functions of the user that throw, and calls in an awkward
// order: typed errors, the same in process and in a worker, and a model that
// works afterwards.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { LinealError, explain, inspect, open, openTokenizer } from '../../js-glue/index.js';
import { BUNDLED, countingSource, generate, rowsOf } from '../lib/fixtures.mjs';

const bytes = fs.readFileSync(BUNDLED);

/** A check for assert.rejects: this code, and each text in the message. */
const typed =
  (code, ...texts) =>
  (error) => {
    assert.ok(error instanceof LinealError, `${error}`);
    assert.equal(error.code, code, error.message);
    for (const text of texts) assert.ok(error.message.includes(text), `'${text}' in: ${error.message}`);
    assert.notEqual(error.remedy, '');
    return true;
  };

/** Fails instead of hanging. */
function soon(promise, ms = 20_000) {
  let timer;
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('it hangs')), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

for (const worker of [false, true]) {
  const where = worker ? 'in a worker' : 'in process';

  test(`the model is free as soon as \`done\` resolves, ${where}`, async () => {
    const model = await open(BUNDLED, { context: 128, allLogits: true, worker });
    try {
      const ids = [1, 5, 9, 23];
      for (let round = 0; round < 5; round++) {
        assert.equal((await model.generate(ids, { maxTokens: 2 }).done).tokens.length, 2);
        assert.equal((await model.score(ids)).length, 3);
        await model.generate(ids, { maxTokens: 1 }).done;
        assert.equal((await rowsOf(model, ids)).length, 4);
        const aborted = model.generate(ids, { signal: AbortSignal.abort() });
        assert.equal((await aborted.done).finishReason, 'aborted');
        const left = model.generate(ids, { maxTokens: 50 });
        for await (const _ of left) break;
        await left.done;
        await assert.rejects(model.generate([99_999]).done, typed('BAD_TOKEN'));
      }
      const last = model.generate(ids, { maxTokens: 1 });
      const { done } = last;
      for await (const _ of last);
      assert.equal(last.result, await done);
      await model.generate(ids, { maxTokens: 1 }).done;
    } finally {
      await model.close();
    }
  });

  test(`close() ends a generation that nobody reads, and its \`done\`, ${where}`, async () => {
    const model = await open(BUNDLED, { context: 128, worker });
    const generation = model.generate('And', { maxTokens: 100 });
    const { done } = generation;
    const reader = generation[Symbol.asyncIterator]();
    await reader.next();
    await model.close();
    assert.equal((await soon(done)).finishReason, 'aborted');
  });

  test(`\`done\` after some pieces were read by hand runs to the end, ${where}`, async () => {
    const model = await open(BUNDLED, { context: 128, worker });
    try {
      const options = { maxTokens: 12 };
      const { text } = (await generate(model, 'In the beginning', options)).result;
      const generation = model.generate('In the beginning', options);
      const reader = generation[Symbol.asyncIterator]();
      const pieces = [(await reader.next()).value];
      const result = await soon(generation.done);
      assert.equal(result.text, text);
      // What nobody read yet waits, in order.
      for (let next = await reader.next(); !next.done; next = await reader.next()) pieces.push(next.value);
      assert.equal(pieces.join(''), text);
      // A reader beside it loses nothing either.
      const both = model.generate('In the beginning', options);
      const seen = [];
      for await (const piece of both) {
        seen.push(piece);
        both.done.catch(() => {});
      }
      assert.equal(seen.join(''), text);
    } finally {
      await model.close();
    }
  });

  test(`ids: only arrays of whole numbers, copied when the call is made, ${where}`, async () => {
    const model = await open(BUNDLED, { context: 64, allLogits: true, worker });
    try {
      const good = [1, 5, 9, 23];
      const want = await model.score(good);
      for (const ids of ['abc', 5, null, undefined, {}, { length: 1e10 }, { length: 3 }, BigInt64Array.of(1n, 2n),
        new DataView(new ArrayBuffer(8)), new Set([1]), Array(2 ** 27)]) {
        for (const call of [
          () => rowsOf(model, ids),
          () => model.score(ids),
          () => model.pieces(ids),
          () => model.detokenize(ids),
          () => (typeof ids === 'string' ? Promise.reject(new LinealError('BAD_ARGUMENT', '')) : model.generate(ids).done),
        ]) {
          await assert.rejects(call(), (error) => error instanceof LinealError && error.code === 'BAD_ARGUMENT');
        }
      }
      for (const ids of [[1.5], ['1'], [1n], Float64Array.of(NaN), [1, , 3]]) // eslint-disable-line no-sparse-arrays
        await assert.rejects(model.score(ids), typed('BAD_TOKEN'));
      for (const ids of [[], new Int32Array(0)]) await assert.rejects(model.score(ids), typed('EMPTY_PROMPT'));
      const long = Array(65).fill(5);
      for (const call of [() => rowsOf(model, long), () => model.score(long), () => model.generate(long).done])
        await assert.rejects(call(), typed('PROMPT_TOO_LONG', '65', '64'));
      for (const ids of [Int32Array.from(good), Uint16Array.from(good), Float32Array.from(good), [...good]]) {
        const scoring = model.score(ids);
        ids.fill(7);
        assert.deepEqual(await scoring, want);
      }
      const changing = Int32Array.from(good);
      const rows = model.evaluate(changing);
      const generation = model.generate(changing, { maxTokens: 1 });
      changing.fill(7);
      const first = [];
      for await (const { index, logits } of rows) first[index] = logits;
      assert.deepEqual(first, await rowsOf(model, good));
      assert.deepEqual((await generation.done).promptTokens, good);
    } finally {
      await model.close();
    }
  });

  test(`bad options are BAD_ARGUMENT and name the option, ${where}`, async () => {
    const model = await open(BUNDLED, { context: 64, allLogits: true, worker });
    try {
      for (const [options, ...texts] of [
        [null, 'options'],
        [5, 'options'],
        [[], 'options'],
        [{ stop: 5 }, 'stop'],
        [{ stop: null }, 'stop'],
        [{ stop: {} }, 'stop'],
        [{ stop: Symbol('x') }, 'stop'],
        [{ signal: {} }, 'signal'],
        [{ signal: 5 }, 'signal'],
        [{ signal: new AbortController() }, 'signal', 'AbortController'],
        [{ onToken: 'x' }, 'onToken'],
        [{ seed: 1n }, 'seed'],
        [{ temperature: Symbol('x') }, 'temperature'],
        [{ topP: 0 }, 'topP'],
        [{ reuse: 'no' }, 'reuse'],
        [{ maxToken: 3 }, 'maxToken', "'maxTokens'"],
        [{ max_tokens: 3 }, 'max_tokens', "'maxTokens'"],
        [{ temprature: 1 }, 'temprature', "'temperature'"],
      ]) {
        const generation = model.generate('And', options); // itself it never throws
        await assert.rejects(generation.done, typed('BAD_ARGUMENT', ...texts));
        await assert.rejects(generation[Symbol.asyncIterator]().next(), typed('BAD_ARGUMENT', ...texts));
      }
      const ids = [1, 2];
      for (const options of [null, 5, 'x', { nothing: 1 }]) {
        for (const call of [
          () => model.tokenize('x', options),
          () => model.detokenize(ids, options),
          () => rowsOf({ evaluate: (given) => model.evaluate(given, options) }, ids),
          () => model.score(ids, options),
        ])
          await assert.rejects(call(), typed('BAD_ARGUMENT', options?.nothing ? 'nothing' : 'options'));
      }
      for (const call of [
        () => model.score(ids, { signal: {} }),
        () => rowsOf({ evaluate: (given) => model.evaluate(given, { signal: 5 }) }, ids),
        () => model.score(ids, { from: -1 }),
        () => model.tokenize(5),
        () => model.tokenize('x', { addSpecial: 'no' }),
      ])
        await assert.rejects(call(), typed('BAD_ARGUMENT'));
      assert.equal((await model.generate('And', { maxTokens: 1 }).done).tokens.length, 1);
    } finally {
      await model.close();
    }
    for (const call of [explain, open, inspect, openTokenizer]) {
      for (const [options, text] of [
        [{ signal: {} }, 'signal'],
        [{ signal: 5 }, 'signal'],
        [{ onProgress: 5 }, 'onProgress'],
        [{ contxt: 5 }, "'context'"],
        [{ host: { threads: () => 5 } }, 'host.threads'],
        [{ host: { thread: 5 } }, 'host.thread'],
        [{ host: { kind: { a() {} } } }, 'host.kind'],
        [{ fetch: null }, 'fetch'],
        [{ fetch: { header: {} } }, 'fetch.headers'],
        [{ fetch: { headers: { 'bad name': 'hidden' } } }, 'bad name'],
        [{ fetch: { headers: { Authorization: 'hid\nden' } } }, 'Authorization'],
        [{ fetch: { headers: { Authorization: () => 'x' } } }, 'Authorization'],
        [{ fetch: { credentials: 'all' } }, 'fetch.credentials'],
        [{ fetch: { timeoutMs: -1 } }, 'fetch.timeoutMs'],
        [{ worker: 'yes' }, 'worker'],
      ]) {
        await assert.rejects(call(BUNDLED, { worker, ...options }), (error) => {
          assert.doesNotMatch(JSON.stringify(error), /hid/);
          return typed('BAD_ARGUMENT', text)(error);
        });
      }
    }
  });

  test(`a read that throws: SOURCE_READ with its message and cause, ${where}`, async () => {
    const cause = new TypeError('the disk is wet');
    for (const at of [0, 1_000_000]) {
      const source = countingSource(bytes, { name: 'wet.gguf' });
      const { read } = source;
      source.read = function wet(offset, length) {
        if (offset + length > at) throw cause;
        return read.call(this, offset, length);
      };
      await assert.rejects(open(source, { worker, context: 64 }), (error) => {
        assert.equal(error.cause, cause);
        return typed('SOURCE_READ', 'wet.gguf', 'the disk is wet')(error);
      });
      assert.equal(source.closed, 1);
    }
    for (const wrong of [5, null, undefined, [1], 'GGUF', () => {}]) {
      await assert.rejects(open({ size: 100, read: () => wrong }, { worker }), typed('BAD_ARGUMENT', 'Uint8Array'));
    }
  });

  test(`a callback that throws: CALLBACK_FAILED with its cause, and nothing left behind, ${where}`, async () => {
    const cause = new Error('my own fault');
    for (const phase of ['header', 'weights']) {
      const source = countingSource(bytes);
      const onProgress = (progress) => {
        if (progress.phase === phase) throw cause;
      };
      await assert.rejects(open(source, { worker, context: 64, onProgress }), (error) => {
        assert.equal(error.cause, cause);
        return typed('CALLBACK_FAILED', 'onProgress', 'my own fault')(error);
      });
      assert.equal(source.closed, 1, phase);
    }
    const model = await open(BUNDLED, { worker, context: 64 });
    try {
      const onToken = ({ index }) => {
        if (index === 2) throw cause;
      };
      await assert.rejects(soon(model.generate('And', { onToken }).done), (error) => {
        assert.equal(error.cause, cause);
        return typed('CALLBACK_FAILED', 'onToken')(error);
      });
      await assert.rejects(generate(model, 'And', { onToken }), typed('CALLBACK_FAILED'));
      assert.equal((await model.generate('And', { maxTokens: 3 }).done).tokens.length, 3);
    } finally {
      await model.close();
    }
  });

  test(`a custom source is closed once, whatever happened, ${where}`, async () => {
    const used = async (work) => {
      const source = countingSource(bytes);
      await work(source);
      assert.equal(source.closed, 1);
    };
    await used((source) => explain(source, { worker }));
    await used((source) => inspect(source, { worker }));
    await used(async (source) => {
      const model = await open(source, { worker, context: 64 });
      assert.equal(source.closed, 0);
      await model.close();
      await model.close();
    });
    await used(async (source) => (await openTokenizer(source, { worker })).close());
    await used((source) => assert.rejects(open(source, { worker, memory: '1MB' }), typed('DOES_NOT_FIT')));
    await used((source) => assert.rejects(open([source, new Blob([])], { worker }), LinealError));
    await used((source) => assert.rejects(open([new Blob([]), source], { worker }), LinealError));
    const failing = {
      size: bytes.length,
      read: (offset, length) => bytes.subarray(offset, offset + length),
      close() {
        throw new Error('stuck');
      },
    };
    await assert.rejects(explain(failing, { worker }), typed('CALLBACK_FAILED', 'stuck'));
    await assert.rejects(open(failing, { worker, memory: '1MB' }), typed('DOES_NOT_FIT'));
  });

  test(`bytes whose buffer was transferred away are missed with a typed error, ${where}`, async () => {
    const gone = new Uint8Array(bytes);
    structuredClone(gone, { transfer: [gone.buffer] });
    await assert.rejects(open(gone, { worker }), typed('BAD_ARGUMENT', 'transferred'));
    await assert.rejects(open(gone.buffer, { worker }), typed('BAD_ARGUMENT', 'transferred'));
    const going = new Uint8Array(bytes);
    let given = false;
    const onProgress = () => {
      if (!given) structuredClone(going, { transfer: [going.buffer] });
      given = true;
    };
    await assert.rejects(open(going, { worker, onProgress }), (error) =>
      ['SOURCE_CHANGED', 'GGUF_TRUNCATED'].includes(error.code),
    );
  });

  test(`large texts: what they took is used again, and what cannot fit is refused before, ${where}`, async () => {
    const model = await open(BUNDLED, { worker, context: 64 });
    try {
      const text = 'In the beginning God created the heaven and the earth. '.repeat(4000);
      await model.memory(); // its own text stays
      const clean = await model.memory();
      const tokens = await model.tokenize(text);
      assert.ok(tokens.length > 10_000);
      const after = await model.memory();
      for (let round = 0; round < 5; round++) await model.tokenize(text);
      const later = await model.memory();
      assert.equal(later.hostBytes, after.hostBytes);
      assert.equal(later.liveBytes, after.liveBytes);
      const few = 1024; // the memory's own text may be longer now
      assert.ok(after.liveBytes <= clean.liveBytes + few, 'nothing of the text stays');
      await assert.rejects(model.score(tokens), typed('PROMPT_TOO_LONG'));
      assert.ok((await model.memory()).liveBytes <= clean.liveBytes + few, 'nor of its ids');
      const before = (await model.memory()).hostBytes;
      await assert.rejects(model.generate('a'.repeat(2 ** 25)).done, typed('PROMPT_TOO_LONG', '33554432'));
      await assert.rejects(model.generate(tokens).done, typed('PROMPT_TOO_LONG'));
      assert.equal((await model.memory()).hostBytes, before);
      assert.equal((await model.tokenize('', { addSpecial: false })).length, 0);
      assert.deepEqual([...(await model.tokenize(''))], [1]);
      assert.equal((await model.generate('And', { maxTokens: 2 }).done).tokens.length, 2);
    } finally {
      await model.close();
    }
  });

  test(`the info and the explanation name the same threads, ${where}`, async () => {
    for (const threads of ['auto', 1, 2, 999]) {
      const model = await open(BUNDLED, { worker, context: 64, threads });
      assert.equal(model.info.threads, model.explanation.threads);
      await model.close();
    }
  });
}
