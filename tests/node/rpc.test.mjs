// Calls across a border: values, errors, aborts, and the end of the other side.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MessageChannel } from 'node:worker_threads';
import { LinealError, open } from '../../js-glue/index.js';
import { WorkerBackend } from '../../js-glue/backend.js';
import { Rpc, Transfer, portOf } from '../../js-glue/rpc.js';
import { BUNDLED, countingSource, generate } from '../lib/fixtures.mjs';

/** Two ends of one channel. */
function pair(t, handlers) {
  const { port1, port2 } = new MessageChannel();
  t.after(() => {
    port1.close();
    port2.close();
  });
  const there = new Rpc(portOf(port2), handlers);
  return { here: new Rpc(portOf(port1), { double: (n) => 2 * n }), there, port1 };
}

test('values and buffers cross; calls may cross each other and go both ways', async (t) => {
  const { here, there } = pair(t, {
    slow: async (ms) => {
      await new Promise((resolve) => {
        setTimeout(resolve, ms);
      });
      return ms;
    },
    bytes: () => {
      const bytes = new Uint8Array(3);
      return new Transfer(bytes, [bytes.buffer]);
    },
  });
  assert.deepEqual(await Promise.all([here.call('slow', 30), here.call('slow', 1)]), [30, 1]);
  assert.deepEqual(await here.call('bytes'), new Uint8Array(3));
  assert.equal(await there.call('double', 21), 42);
});

test('errors cross whole, foreign ones and a missing method too', async (t) => {
  const { here } = pair(t, {
    own: () => {
      throw new LinealError('DOES_NOT_FIT', 'm', { remedy: 'r', detail: { needed_bytes: 5 } });
    },
    foreign: () => {
      throw new TypeError('odd');
    },
  });
  await assert.rejects(here.call('own'), (error) => {
    assert.ok(error instanceof LinealError);
    assert.deepEqual(error.toJSON(), {
      code: 'DOES_NOT_FIT',
      message: 'm',
      remedy: 'r',
      detail: { needed_bytes: 5 },
    });
    return true;
  });
  await assert.rejects(here.call('foreign'), { code: 'INTERNAL', message: 'TypeError: odd' });
  await assert.rejects(here.call('none'), { code: 'INTERNAL' });
  await assert.rejects(
    here.call('own', () => {}),
    { code: 'INTERNAL' },
    'an argument that cannot be cloned',
  );
});

test('an abort fires the signal at the other end, also when it came first', async (t) => {
  const { here } = pair(t, {
    wait: (_args, signal) =>
      new Promise((resolve, reject) => {
        signal.addEventListener('abort', () => reject(new LinealError('ABORTED', 'seen')));
      }),
  });
  const controller = new AbortController();
  const waiting = here.call('wait', null, controller.signal);
  controller.abort();
  await assert.rejects(waiting, { code: 'ABORTED', message: 'seen' });
  await assert.rejects(here.call('wait', null, AbortSignal.abort()), { code: 'ABORTED' });
});

test('when the other end is gone every call fails with the cause', async (t) => {
  const { here } = pair(t, { never: () => new Promise(() => {}) });
  const waiting = [here.call('never'), here.call('never')];
  here.fail(new LinealError('WORKER_FAILED', 'gone'));
  for (const call of [...waiting, here.call('never')]) await assert.rejects(call, { code: 'WORKER_FAILED' });
});

// --- the whole engine behind it ---------------------------------------------------------

test('a model in a worker says the same, streams, aborts, ends early and closes', async () => {
  const local = await open(BUNDLED, { context: 128 });
  const { result: expected } = await generate(local, 'In the beginning', { maxTokens: 20, logprobs: true });
  await local.close();

  const seen = [];
  const source = countingSource(BUNDLED);
  const model = await open(source, { context: 128, worker: true, onProgress: (p) => seen.push(p) });
  try {
    assert.equal(seen.at(-1).loaded, seen.at(-1).total);
    const ids = [];
    const { pieces, result } = await generate(model, 'In the beginning', {
      maxTokens: 20,
      logprobs: true,
      onToken: ({ id }) => ids.push(id),
    });
    assert.deepEqual(result.tokens, expected.tokens);
    assert.deepEqual(result.logprobs, expected.logprobs);
    assert.deepEqual(ids, expected.tokens);
    assert.equal(pieces.join(''), expected.text);
    assert.ok(pieces.length > 5, 'it streams');
    assert.deepEqual(result.memory, expected.memory);

    const controller = new AbortController();
    let count = 0;
    const aborted = model.generate('And the', { maxTokens: 100, signal: controller.signal });
    for await (const piece of aborted) if (piece && ++count === 3) controller.abort();
    assert.equal(aborted.result.finishReason, 'aborted');
    assert.ok(aborted.result.tokens.length <= 6, `${aborted.result.tokens.length} tokens`);

    const early = model.generate('And the', { maxTokens: 100 });
    const iterator = early[Symbol.asyncIterator]();
    await iterator.next();
    await iterator.return();
    assert.equal((await early.done).finishReason, 'aborted');
    await assert.rejects(model.generate('x', { maxTokens: 1, stop: [''] }).done, { code: 'BAD_ARGUMENT' });
    await assert.rejects(model.generate([5000]).done, { code: 'BAD_TOKEN' });
    assert.equal(await model.detokenize(await model.tokenize('Hello you')), 'Hello you');
  } finally {
    await model.close();
  }
  await model.close();
  await assert.rejects(model.tokenize('x'), { code: 'CLOSED' });
});

test('errors of a worker arrive whole, and an abort of open stops it', async () => {
  await assert.rejects(
    open(new Uint8Array(100), { worker: true }),
    (error) => error instanceof LinealError && error.code === 'NOT_GGUF' && error.remedy !== '',
  );
  await assert.rejects(open(BUNDLED, { worker: true, memory: '1MB' }), (error) => {
    assert.equal(error.code, 'DOES_NOT_FIT');
    assert.ok(error.detail.needed_bytes > error.detail.budget_bytes);
    assert.ok(error.detail.suggestions.length >= 2);
    return true;
  });
  const controller = new AbortController();
  const slow = {
    size: 2 ** 20,
    read: () => {
      setTimeout(() => controller.abort(), 5);
      return new Promise(() => {});
    },
  };
  const opening = open(slow, { worker: true, signal: controller.signal });
  await assert.rejects(
    Promise.race([
      opening,
      new Promise((resolve) => {
        setTimeout(resolve, 5000);
      }),
    ]),
    { code: 'ABORTED' },
  );
});

test('a worker that dies fails what waits with WORKER_FAILED', async () => {
  const backend = await WorkerBackend.start();
  const waiting = backend.tokenize('x', { addSpecial: true, parseSpecial: false });
  backend.fail('it was killed');
  await assert.rejects(waiting, { code: 'WORKER_FAILED' });
  await backend.close();
});
