// All kinds of sources in Node against the one suite that pages run too.
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import * as lineal from '../../js-glue/index.js';
import { countingSource, temporary } from '../lib/fixtures.mjs';
import { startServer } from '../lib/http-server.mjs';
import { allFiles, sourceModels } from '../lib/source-models.mjs';
import { checkSource } from '../lib/source-suite.mjs';

const folder = temporary('sources');
const hub = '/an.owner/a-repo/resolve/main';
let model, server;
before(async () => {
  model = await sourceModels();
  fs.mkdirSync(folder, { recursive: true });
  const mounts = {};
  for (const { name, bytes } of allFiles(model)) {
    fs.writeFileSync(path.join(folder, name), bytes);
    mounts[`/${name}`] = bytes;
    mounts[`${hub}/${name}`] = bytes;
  }
  server = await startServer(mounts);
});
after(() => server.close());

const each = (work) => (files) => {
  const list = files.map(work);
  return list.length === 1 ? list[0] : list;
};
const copy = (bytes) => new Uint8Array(bytes);

function streamOf(bytes, step = 70_000) {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      controller.enqueue(copy(bytes.subarray(at, at + step)));
      at += step;
      if (at >= bytes.length) controller.close();
    },
  });
}

for (const [name, kind] of Object.entries({
  'a path': { make: each((f) => path.join(folder, f.name)), byName: true },
  'a file: address': { make: each((f) => pathToFileURL(path.join(folder, f.name))), byName: true },
  'an address': { make: each((f) => `${server.url}/${f.name}`), byName: true },
  'an address, kept in the cache': {
    make: each((f) => new URL(`${server.url}/${f.name}`)), byName: true,
    options: { cache: { directory: temporary('sources-cache') } },
  },
  'an address, kept in the cache and checked': {
    make: each((f) => new URL(`${server.url}/${f.name}`)), byName: true,
    options: { cache: { directory: temporary('sources-checked'), verify: true } },
  },
  'an hf: address': { make: each((f) => `hf:an.owner/a-repo/${f.name}`), byName: true, hub: true },
  'a Blob': { make: each((f) => new Blob([f.bytes])) },
  'a File': { make: each((f) => new File([f.bytes], f.name)) },
  'a Uint8Array': { make: each((f) => copy(f.bytes)) },
  'an ArrayBuffer': { make: each((f) => copy(f.bytes).buffer) },
  'a ReadableStream': { make: each((f) => streamOf(f.bytes)) },
  'a custom source': { make: each((f) => countingSource(f.bytes, { step: 90_000 })) },
  'a custom source of unknown size': { make: each((f) => countingSource(f.bytes, { known: false })) },
})) {
  test(`${name} is a source`, async () => {
    await checkSource(lineal, { ...kind, options: { ...kind.options, ...(kind.hub ? { hub: server.url } : {}) } }, model);
  });
}
