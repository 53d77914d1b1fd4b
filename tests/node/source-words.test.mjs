// A source that is empty, or no model: what is said of it fits its kind.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { explain, inspect, open, openTokenizer } from '../../js-glue/index.js';
import { BUNDLED, CLI, temporary } from '../lib/fixtures.mjs';
import { startServer } from '../lib/http-server.mjs';
import { sourceModels } from '../lib/source-models.mjs';

const HUB = '/an.owner/a-repo/resolve/main';
const TEXT = Buffer.from('this is a text and no model. '.repeat(20));
const files = { empty: temporary('empty.gguf'), text: temporary('text.gguf') };
let server;
before(async () => {
  fs.writeFileSync(files.empty, '');
  fs.writeFileSync(files.text, TEXT);
  const mounts = { empty: Buffer.alloc(0), text: TEXT };
  server = await startServer(Object.fromEntries(
    Object.entries(mounts).flatMap(([name, bytes]) => [[`/${name}.gguf`, bytes], [`${HUB}/${name}.gguf`, bytes]]),
  ));
});
after(() => server.close());

const bytesOf = (name) => new Uint8Array(name === 'empty' ? Buffer.alloc(0) : TEXT);
const streamOf = (bytes) => new Blob([bytes]).stream();
const slice = (bytes) => (offset, length) => bytes.slice(offset, offset + length);

/** How each kind is made of 'empty' or 'text'; what is said of an empty one, what to do, and what to do about the text. */
const FILE = [/^the file '.*empty.gguf' is empty$/, /copy or download the file again/, /choose a GGUF file/];
const ADDRESS = [/empty.gguf is empty: what lies there has 0 bytes$/, /check the address, or use another mirror/, /check the .*address/];
const MADE = [/make the address anew, of the bytes of a whole GGUF file/, /^make the address of the bytes of a GGUF file$/];
const CUSTOM = /check (size and )?read of the source: read\(0, length\)/;
const KINDS = {
  'a path': [(name) => files[name], {}, ...FILE],
  'a file: address': [(name) => pathToFileURL(files[name]), {}, ...FILE],
  'a File': [(name) => new File([bytesOf(name)], `${name}.gguf`), {}, FILE[0], /choose the file again once it is written/, FILE[2]],
  'a Blob': [(name) => new Blob([bytesOf(name)]), {}, /^the Blob is empty$/, /make the Blob of the bytes of a GGUF file/, FILE[2]],
  'an address': [(name) => `${server.url}/${name}.gguf`, {}, ...ADDRESS],
  'an address, kept': [(name) => `${server.url}/${name}.gguf`, { cache: temporary('words-cache') }, ...ADDRESS],
  'an hf: address': [(name) => `hf:an.owner/a-repo/${name}.gguf`, { hub: true }, ...ADDRESS],
  'a data: address': [(name) => `data:application/octet-stream,${encodeURIComponent(Buffer.from(bytesOf(name)))}`, {},
    /^data: address is empty: it stands for 0 bytes$/, ...MADE],
  'a Uint8Array': [bytesOf, {}, /^the bytes given are none: their length is 0$/, /bytes of a whole GGUF file/, /the bytes of a GGUF file, from its first on/],
  'an ArrayBuffer': [(name) => bytesOf(name).buffer, {}, /^the bytes given are none/, /bytes of a whole GGUF file/, /the bytes of a GGUF file/],
  'a ReadableStream': [(name) => streamOf(bytesOf(name)), {}, /^the stream ended before its first byte$/, /that nobody has read/, /give a stream of a GGUF file/],
  'a custom source with its size': [(name) => ({ name: 'mine', size: bytesOf(name).length, read: slice(bytesOf(name)) }), {},
    /^the source 'mine' is empty: its size is 0$/, CUSTOM, CUSTOM],
  'a custom source without': [(name) => ({ name: 'mine', read: slice(bytesOf(name)) }), {},
    /^the source 'mine' is empty: its read gave no byte at offset 0$/, CUSTOM, CUSTOM],
};

for (const [kind, [make, more, empty, fill, other]] of Object.entries(KINDS)) {
  test(`${kind}: what is said when it is empty, or no model, fits it`, async () => {
    for (const worker of [false, true]) {
      const options = { worker, ...more, ...(more.hub ? { hub: server.url } : {}) };
      for (const call of [explain, open, inspect, openTokenizer]) {
        await assert.rejects(call(make('empty'), options), (error) => {
          assert.equal(error.code, 'NOT_GGUF', error.message);
          assert.match(error.message, empty);
          assert.match(error.remedy, fill);
          assert.equal(error.detail.bytes, 0);
          assert.ok(typeof error.detail.source === 'string' && error.detail.source !== '');
          return true;
        });
      }
      await assert.rejects(open(make('text'), options), (error) => {
        assert.equal(error.code, 'NOT_GGUF', error.message);
        assert.match(error.message, /'this' \(74 68 69 73\), not with 'GGUF'/);
        assert.match(error.remedy, other);
        if (other !== ADDRESS[2]) assert.doesNotMatch(error.remedy, other === MADE[1] ? /HTML|server|mirror/ : /address|HTML|server/);
        return true;
      });
    }
  });
}

test('a source that has a size and gives nothing; an empty part of a split model', async () => {
  const silent = { name: 'silent', size: 100, read: () => new Uint8Array(0) };
  await assert.rejects(open(silent), (error) => {
    assert.deepEqual([error.code, error.message], ['GGUF_TRUNCATED', "'silent' should have 100 bytes, and gave none of them"]);
    assert.match(error.remedy, CUSTOM);
    return true;
  });
  const { parts } = await sourceModels();
  for (const worker of [false, true]) {
    const sources = parts.map(({ bytes, name }, i) => new File([i === 1 ? '' : bytes], name));
    await assert.rejects(open(sources, { worker }), { code: 'NOT_GGUF', message: /^the file 'm-00002-of-00003.gguf' is empty$/ });
  }
});

test('on the command line, and a named pipe that nobody writes to is refused at once', { skip: process.platform === 'win32' }, () => {
  const lineal = (...args) => spawnSync(process.execPath, [CLI, ...args, '--json'], { encoding: 'utf8', timeout: 20_000 });
  const { status, stdout } = lineal('generate', files.empty, '-p', 'And');
  assert.equal(status, 1);
  assert.deepEqual(JSON.parse(stdout).error.code, 'NOT_GGUF');
  assert.match(JSON.parse(stdout).error.message, FILE[0]);
  const pipe = temporary('pipe.gguf');
  execFileSync('mkfifo', [pipe]);
  const refused = lineal('explain', pipe);
  assert.equal(refused.status, 1, 'it does not wait');
  assert.equal(JSON.parse(refused.stdout).error.code, 'SOURCE_UNREADABLE');
  assert.equal(lineal('explain', BUNDLED).status, 0);
});
