// All kinds of sources in a page against the one suite that Node runs too.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { STRICT_CSP } from '../lib/http-server.mjs';
import { openBlank, startSite } from '../lib/site.mjs';
import { allFiles, sourceModels } from '../lib/source-models.mjs';

const skip = await chromiumMissing();
const hub = '/hub/an.owner/a-repo/resolve/main';
let site, browser, page;

/** Each kind, in the page: work(files, each) gives { make, byName, options, workers }. */
const KINDS = {
  'an address': ({ each }) => ({ make: each((f) => `/models/${f.name}`), byName: true, options: { cache: false }, workers: [false, true] }),
  'an address, kept in the cache': ({ each }) => ({ make: each((f) => `/models/${f.name}`), byName: true, workers: [false, true] }),
  'an address, kept and checked': ({ each }) => ({
    make: each((f) => new URL(`/models/${f.name}?once=more`, location.href)), byName: true, options: { cache: { verify: true } },
  }),
  'an hf: address': ({ each }) => ({
    make: each((f) => `hf:an.owner/a-repo/${f.name}`), byName: true, options: { hub: `${location.origin}/hub`, cache: false },
  }),
  'a Blob': ({ each }) => ({ make: each((f) => new Blob([f.bytes])) }),
  'a File': ({ each }) => ({ make: each((f) => new File([f.bytes], f.name)), workers: [false, true] }),
  'dropped files': () => ({
    make: (files) => {
      const dropped = new DataTransfer();
      for (const f of files) dropped.items.add(new File([f.bytes], f.name));
      return dropped.files;
    },
  }),
  'a handle in the private file system': () => ({
    make: async (files) => {
      const root = await navigator.storage.getDirectory();
      const handles = await Promise.all(files.map(async (f) => {
        const handle = await root.getFileHandle(f.name, { create: true });
        const writable = await handle.createWritable();
        await writable.write(f.bytes);
        await writable.close();
        return handle;
      }));
      return handles.length === 1 ? handles[0] : handles;
    },
  }),
  'a Uint8Array': ({ each }) => ({ make: each((f) => f.bytes.slice()) }),
  'a ReadableStream': ({ each }) => ({ make: each((f) => new Blob([f.bytes]).stream()) }),
  'an answer of fetch': ({ fetched }) => ({ make: fetched }),
  'a custom source': ({ each }) => ({
    make: each((f) => ({ size: f.bytes.length, name: f.name, read: async (at, length) => f.bytes.slice(at, at + length) })),
  }),
};

before(async () => {
  if (skip) return;
  const model = await sourceModels();
  const mounts = Object.fromEntries(allFiles(model).flatMap(({ name, bytes }) => [[`/models/${name}`, bytes], [`${hub}/${name}`, bytes]]));
  site = await startSite(mounts, { headers: STRICT_CSP });
  browser = await startChromium();
  page = await openBlank(browser, site);
  page.setDefaultTimeout(0);
  const names = ({ file, parts, cut, page: html, empty }) => (
    { file: file.name, parts: parts.map(({ name }) => name), cut: cut.name, page: html.name, empty: empty.name });
  await page.evaluate(async ({ ids, tokens, file, parts, cut, page: html, empty }) => {
    const load = async (name) => ({ name, bytes: new Uint8Array(await (await fetch(`/models/${name}`)).arrayBuffer()) });
    globalThis.model = {
      ids, tokens, file: await load(file), parts: await Promise.all(parts.map(load)), cut: await load(cut), page: await load(html),
      empty: await load(empty),
    };
    globalThis.tools = {
      each: (work) => (files) => (files.length === 1 ? work(files[0]) : files.map(work)),
      fetched: async (files) => {
        const streams = await Promise.all(files.map(async (f) => (await fetch(`/models/${f.name}`)).body));
        return streams.length === 1 ? streams[0] : streams;
      },
    };
  }, { ids: model.ids, tokens: model.tokens, ...names(model) });
});
after(async () => {
  await browser?.close();
  await site?.close();
});

for (const [name, kind] of Object.entries(KINDS)) {
  test(`${name} is a source in a page`, { skip }, async () => {
    const failure = await page.evaluate(`(async () => {
      const lineal = await import('/js-glue/index.js');
      const { checkSource } = await import('/tests/lib/source-suite.mjs');
      try {
        await checkSource(lineal, { workers: [true], ...(${kind})(globalThis.tools) }, globalThis.model);
        return '';
      } catch (error) {
        return String(error?.message ?? error);
      }
    })()`);
    assert.equal(failure, '');
  });
}
