// Token bytes to text: the stream equals the whole, however it is divided.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TextStream } from '../../js-glue/text.js';
import { random } from '../lib/gguf-write.mjs';

const bytesOf = (text) => new TextEncoder().encode(text);

/** All of it, in pieces of the given lengths (the last repeats). */
function run(bytes, lengths, stops = []) {
  const stream = new TextStream(stops);
  const pieces = [];
  for (let at = 0, i = 0; at < bytes.length && !stream.stopped; i++) {
    const n = lengths[Math.min(i, lengths.length - 1)];
    pieces.push(stream.push(bytes.subarray(at, at + n)));
    at += n;
  }
  pieces.push(stream.finish());
  return { pieces, text: pieces.join(''), stopped: stream.stopped };
}

test('an emoji over several tokens comes out whole, and a byte order mark is text', () => {
  const text = 'a🙂é中\uFEFFb🏳️‍🌈';
  for (const n of [1, 2, 3, 4, 5, 100]) {
    const { pieces, text: out } = run(bytesOf(text), [n]);
    assert.equal(out, text);
    assert.ok(pieces.every((piece) => !piece.includes('\uFFFD')));
  }
  assert.deepEqual(run(bytesOf('🙂'), [1]).pieces, ['', '', '', '🙂', '']);
});

test('an invalid byte costs one U+FFFD, an unfinished character one at the end', () => {
  assert.equal(run(new Uint8Array([0x61, 0xc0, 0x62, 0xff, 0x63]), [1]).text, 'a\uFFFDb\uFFFDc');
  assert.equal(run(bytesOf('x🙂').subarray(0, 4), [1]).text, 'x\uFFFD');
});

test('only what may still become a stop text is held back', () => {
  const { pieces, stopped } = run(bytesOf('abDEFgDEFGHIJz'), [1], ['DEFGHIJ']);
  assert.deepEqual(pieces.slice(0, 6), ['a', 'b', '', '', '', 'DEFg']);
  assert.ok(stopped);
  assert.equal(pieces.join(''), 'abDEFg');
});

test('held text comes out at the end when it did not become a stop text', () => {
  assert.deepEqual(run(bytesOf('abDE'), [1], ['DEF']).pieces, ['a', 'b', '', '', 'DE']);
});

test('the stop text that is complete first counts, and of those the longest', () => {
  for (const n of [1, 2, 3, 4]) {
    assert.equal(run(bytesOf('abcd'), [n], ['bcd', 'c']).text, 'ab');
    assert.equal(run(bytesOf('xabc'), [n], ['c', 'abc']).text, 'x');
  }
});

test('a stop text that overlaps itself, or begins again inside itself', () => {
  for (const n of [1, 2, 3, 9]) {
    assert.equal(run(bytesOf('aaab'), [n], ['aab']).text, 'a');
    assert.equal(run(bytesOf('ababac'), [n], ['abac']).text, 'ab');
  }
});

test('2,000 random texts, divisions and stop texts: streamed equals whole', () => {
  const rng = random(7);
  const alphabet = ['a', 'b', 'ab', 'é', '🙂', '\n'];
  const word = (most) =>
    Array.from({ length: 1 + (rng.next() % most) }, () => alphabet[rng.next() % alphabet.length]).join('');
  for (let i = 0; i < 2000; i++) {
    const bytes = bytesOf(word(14));
    const stops = Array.from({ length: rng.next() % 3 }, () => word(3));
    const lengths = Array.from({ length: 20 }, () => 1 + (rng.next() % 5));
    const whole = run(bytes, [1000], stops);
    const cut = run(bytes, lengths, stops);
    assert.deepEqual(
      { text: cut.text, stopped: cut.stopped },
      { text: whole.text, stopped: whole.stopped },
      JSON.stringify({ text: new TextDecoder().decode(bytes), stops, lengths }),
    );
  }
});
