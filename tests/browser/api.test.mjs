// The public API inside a real page, under a strict Content-Security-Policy and
// without cross-origin isolation: worker by default, every kind of source, and
// errors that arrive whole.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { open } from '../../js-glue/index.js';
import { chromiumMissing, startChromium } from '../lib/chromium.mjs';
import { BUNDLED, generate } from '../lib/fixtures.mjs';
import { STRICT_CSP, startServer } from '../lib/http-server.mjs';
import { inPage as inPageOf, openBlank, startSite } from '../lib/site.mjs';

const skip = await chromiumMissing();
let site, loose, other, browser, page, loosePage, expected;

before(async () => {
  if (skip) return;
  const model = await open(BUNDLED, { context: 128 });
  expected = (await generate(model, 'In the beginning', { maxTokens: 16 })).result;
  await model.close();
  const mounts = { '/model.gguf': BUNDLED };
  site = await startSite(mounts, { headers: STRICT_CSP });
  loose = await startSite(mounts); // its policy lets requests to other sites out
  other = await startServer({ '/model.gguf': BUNDLED });
  browser = await startChromium();
  page = await openBlank(browser, site);
  loosePage = await openBlank(browser, loose);
});
after(async () => {
  await browser?.close();
  await site?.close();
  await loose?.close();
  await other?.close();
});

/** Runs work(lineal, url of the model, argument) in the page. */
const inPage = (work, argument, where = page) => inPageOf(where, work, new URL('/model.gguf', where.url()).href, argument);

test('URL, Blob, bytes and custom source: the same tokens as Node, in a worker', { skip }, async () => {
  const out = await inPage(async ({ open: openModel }, url) => {
    const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
    const sources = {
      url,
      relative: '/model.gguf',
      blob: new Blob([bytes]),
      file: new File([bytes], 'm.gguf'),
      bytes,
      custom: { size: bytes.length, read: async (offset, length) => bytes.subarray(offset, offset + length) },
    };
    const out = {};
    for (const [name, source] of Object.entries(sources)) {
      const phases = new Set();
      const model = await openModel(source, { context: 128, onProgress: (p) => phases.add(p.phase) });
      const pieces = [];
      const generation = model.generate('In the beginning', { maxTokens: 16 });
      for await (const piece of generation) pieces.push(piece);
      out[name] = {
        tokens: generation.result.tokens,
        text: pieces.join(''),
        streamed: pieces.length > 5,
        phases: [...phases],
        module: model.info.module,
      };
      await model.close();
    }
    return out;
  });
  for (const [name, { tokens, text, streamed, phases, module }] of Object.entries(out)) {
    assert.deepEqual(tokens, expected.tokens, name);
    assert.equal(text, expected.text, name);
    assert.ok(streamed, name);
    assert.deepEqual(phases, ['compile', 'header', 'weights'], name);
    assert.equal(module, 'relaxed', name);
  }
});

test('the page stays alive while a worker generates; worker: false works too', { skip }, async () => {
  const out = await inPage(async ({ open: openModel }, url) => {
    const out = {};
    for (const worker of [true, false]) {
      const model = await openModel(url, { context: 256, worker });
      let beats = 0;
      const timer = setInterval(() => {
        beats++;
      }, 1);
      const { result } = await model
        .generate('And', { maxTokens: 200, ignoreEos: true })
        .done.then((r) => ({ result: r }));
      clearInterval(timer);
      out[worker] = { beats, tokens: result.tokens.length };
      await model.close();
    }
    return out;
  });
  assert.equal(out.true.tokens, 200);
  assert.equal(out.false.tokens, 200);
  assert.ok(out.true.beats > 3, `${out.true.beats} beats`);
  assert.ok(out.false.beats > 3, `${out.false.beats} beats`);
});

test('what the user does wrong: typed, with its cause, and nothing left behind', { skip }, async () => {
  const out = await inPage(async ({ open: openModel }, url) => {
    const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
    const codeOf = async (promise) => {
      try {
        await promise;
        return 'none';
      } catch (error) {
        return `${error.code} ${error.cause?.message ?? ''}`.trim();
      }
    };
    let closed = 0;
    const custom = (read) => ({ size: bytes.length, read, close: () => closed++ });
    const good = (offset, length) => bytes.subarray(offset, offset + length);
    const fail = () => {
      throw new Error('mine');
    };
    const codes = {
      read: await codeOf(openModel(custom(fail), { context: 128 })),
      progress: await codeOf(openModel(custom(good), { context: 128, onProgress: fail })),
      host: await codeOf(openModel(custom(good), { host: { threads: () => 4 } })),
      option: await codeOf(openModel(url, { contxt: 128 })),
      signal: await codeOf(openModel(url, { signal: {} })),
    };
    const model = await openModel(custom(good), { context: 128, allLogits: true });
    const beforeClose = closed;
    codes.token = await codeOf(model.generate('And', { onToken: fail }).done);
    codes.stop = await codeOf(model.generate('And', { stop: 5 }).done);
    codes.score = await codeOf(model.score('abc'));
    const { tokens } = await model.generate('And', { maxTokens: 2 }).done;
    const scored = (await model.score([1, 2, 3])).length; // at once: not BUSY
    const generation = model.generate('And', { maxTokens: 4 });
    await generation[Symbol.asyncIterator]().next();
    const rest = (await generation.done).tokens.length;
    await model.close();
    return { codes, beforeClose, closed, tokens: tokens.length, scored, rest };
  });
  assert.deepEqual(out.codes, {
    read: 'SOURCE_READ mine',
    progress: 'CALLBACK_FAILED mine',
    host: 'BAD_ARGUMENT',
    option: 'BAD_ARGUMENT',
    signal: 'BAD_ARGUMENT',
    token: 'CALLBACK_FAILED mine',
    stop: 'BAD_ARGUMENT',
    score: 'BAD_ARGUMENT',
  });
  // Refused arguments never were sources.
  assert.deepEqual([out.beforeClose, out.closed], [2, 3]);
  assert.deepEqual([out.tokens, out.scored, out.rest], [2, 2, 4]);
});

test('an abort ends within one token, and the model goes on', { skip }, async () => {
  const { finish, tokens, again } = await inPage(async ({ open: openModel }, url) => {
    const model = await openModel(url, { context: 256 });
    const controller = new AbortController();
    let count = 0;
    const generation = model.generate('And', {
      maxTokens: 200,
      ignoreEos: true,
      signal: controller.signal,
      onToken: () => {
        if (++count === 5) controller.abort();
      },
    });
    for await (const piece of generation) void piece;
    const again = await model.generate('And', { maxTokens: 3 }).done;
    await model.close();
    return {
      finish: generation.result.finishReason,
      tokens: generation.result.tokens.length,
      again: again.tokens.length,
    };
  });
  assert.equal(finish, 'aborted');
  assert.ok(tokens >= 5 && tokens <= 7, `${tokens} tokens`);
  assert.equal(again, 3);
});

test('errors arrive whole: HTML, 404, a module that is not there', { skip }, async () => {
  const out = await inPage(async ({ open: openModel, explain: explainModel }, url) => {
    const failure = async (promise) =>
      promise.then(
        () => ({ code: 'NONE' }),
        (error) => ({ name: error.name, ...error.toJSON() }),
      );
    return {
      html: await failure(openModel('/blank.html')),
      missing: await failure(openModel('/none.gguf')),
      module: await failure(openModel(url, { wasmBaseUrl: '/nowhere/' })),
      fits: await failure(openModel(url, { memory: '1MB' })),
      after: (await explainModel(url)).fits,
    };
  });
  assert.equal(out.html.code, 'NOT_GGUF');
  assert.equal(out.missing.code, 'SOURCE_NOT_FOUND');
  assert.equal(out.module.code, 'WASM_UNAVAILABLE');
  assert.equal(out.fits.code, 'DOES_NOT_FIT');
  assert.ok(out.fits.detail.suggestions.length >= 2);
  for (const [name, error] of Object.entries(out)) {
    if (name === 'after') continue;
    assert.equal(error.name, 'LinealError', name);
    assert.notEqual(error.remedy, '', name);
  }
  assert.equal(out.after, true);
});

test('a worker script that cannot be loaded: WORKER_FAILED', { skip }, async () => {
  site.faults['/js-glue/worker.js'] = { status: 404 };
  const fresh = await openBlank(browser, site);
  const code = await fresh.evaluate(async () => {
    const { open: openModel } = await import('/js-glue/index.js');
    return openModel('/model.gguf').then(
      () => 'NONE',
      (error) => error.code,
    );
  });
  delete site.faults['/js-glue/worker.js'];
  assert.equal(code, 'WORKER_FAILED');
  await fresh.close();
});

test('another site: without its permission NETWORK, which speaks of CORS', { skip }, async () => {
  const error = await inPage(
    ({ explain: explainModel }, _url, foreign) =>
      explainModel(foreign).then(
        () => ({}),
        (e) => e.toJSON(),
      ),
    `${other.url}/model.gguf`,
    loosePage,
  );
  assert.equal(error.code, 'NETWORK');
  assert.match(error.message, /CORS/);
  assert.match(error.remedy, /Access-Control-Allow-Origin/);
});

test(
  'a site that allows others: read by Range, the size from HEAD where Content-Range is hidden',
  { skip },
  async () => {
    other.faults['/model.gguf'] = { headers: { 'Access-Control-Allow-Origin': '*' } };
    // Range with one value is a simple header: no preflight, so no further permission is needed.
    const out = await inPage(
      async ({ explain: explainModel }, _url, foreign) => {
        const { fits, source, host } = await explainModel(foreign);
        return { fits, source, range: host.range_read };
      },
      `${other.url}/model.gguf`,
      loosePage,
    );
    assert.equal(out.fits, true);
    assert.equal(out.range, true);
    assert.equal(out.source.bytes_read, 262_144);
    delete other.faults['/model.gguf'];
  },
);

test('nothing of this broke the policy', { skip }, async () => {
  assert.deepEqual(page.failures, []);
  assert.deepEqual(
    page.messages.filter(({ text }) => /Content.Security.Policy/i.test(text)),
    [],
  );
  assert.ok(fs.existsSync(BUNDLED));
});
