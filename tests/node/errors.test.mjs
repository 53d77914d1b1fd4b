// LinealError is data: whole after JSON and after a structured clone.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LinealError } from '../../js-glue/index.js';
import { abortError, throwIfAborted } from '../../js-glue/errors.js';

test('an error is whole after JSON and after a structured clone', () => {
  const error = new LinealError('DOES_NOT_FIT', 'it needs 5 bytes', {
    remedy: 'less',
    detail: { needed_bytes: 2 ** 40, suggestions: [{ text: 'a', sufficient: true }] },
  });
  for (const copy of [JSON.parse(JSON.stringify(error)), structuredClone(error.toJSON())]) {
    const back = LinealError.fromJSON(copy);
    assert.ok(back instanceof LinealError && back instanceof Error);
    assert.equal(back.name, 'LinealError');
    assert.equal(back.message, 'it needs 5 bytes');
    assert.deepEqual(back.toJSON(), error.toJSON());
  }
});

test('codes of this layer bring their remedy; an empty remedy stays empty', () => {
  assert.match(new LinealError('BUSY', 'x').remedy, /wait/);
  assert.equal(new LinealError('NO_SUCH_CODE', 'x').remedy, '');
  assert.equal(LinealError.fromJSON({ code: 'BUSY', message: 'x', remedy: '' }).remedy, '');
});

test('from: any thrown value becomes one, and one stays itself', () => {
  const own = new LinealError('CLOSED', 'x');
  assert.equal(LinealError.from(own), own);
  const cause = new TypeError('odd');
  const wrapped = LinealError.from(cause);
  assert.equal(wrapped.code, 'INTERNAL');
  assert.match(wrapped.message, /odd/);
  assert.equal(wrapped.cause, cause);
  assert.equal(LinealError.from('text').message, 'text');
  assert.equal(LinealError.from(new DOMException('stop', 'AbortError')).code, 'ABORTED');
  assert.equal(LinealError.fromJSON(undefined).code, 'INTERNAL');
});

test('throwIfAborted', () => {
  throwIfAborted(undefined);
  throwIfAborted(new AbortController().signal);
  assert.throws(() => throwIfAborted(AbortSignal.abort()), { code: 'ABORTED' });
  assert.ok(abortError().remedy);
});
