// Pages that load a model through the cache, in a browser that can be killed.
import fs from 'node:fs';
import path from 'node:path';
import { open } from '../../js-glue/index.js';
import { startKillable } from './chromium.mjs';
import { ROOT, generate, temporary } from './fixtures.mjs';
import { ggufBytes, tinyLlama } from './gguf-write.mjs';
import { STRICT_CSP } from './http-server.mjs';
import { inPage, openBlank, startSite } from './site.mjs';

/**
 * Returns { site, bytes, expected, page, start(), kill(), close(), visit(), inPage(), openInPage(), sent() }.
 * name: of the profile. prelude: script that the worker runs before it opens anything.
 */
export async function startCachePages(name, { prelude = '' } = {}) {
  const shape = { n_ctx: 256, d_model: 256, n_head: 4, d_ff: 1024, n_layer: 5, n_vocab: 288 };
  const bytes = Buffer.from(ggufBytes(tinyLlama(shape)));
  const model = await open(bytes, { context: 64 });
  const expected = (await generate(model, 'the rest', { maxTokens: 6 })).result.tokens;
  await model.close();
  const profile = temporary(name);
  fs.mkdirSync(profile, { recursive: true });
  const worker = Buffer.from(`${prelude};\n${fs.readFileSync(path.join(ROOT, 'js-glue/worker.js'), 'utf8')}`);
  const site = await startSite(
    { ...(prelude ? { '/js-glue/worker.js': worker } : {}), '/m.gguf': bytes },
    { headers: STRICT_CSP },
  );
  const pages = {
    site,
    bytes,
    expected,
    browser: undefined,
    page: undefined,
    async start() {
      pages.browser = await startKillable(profile);
      pages.page = await pages.visit();
    },
    visit: () => openBlank(pages.browser, site),
    kill: () => pages.browser.kill(),
    async close() {
      await pages.browser?.close();
      await site.close();
    },
    sent: () => site.stats('/m.gguf').bytes,
    /** Runs work(lineal, url, argument) in the page. */
    inPage: (work, argument, where = pages.page) => inPage(where, work, `${site.url}/m.gguf`, argument),
    /** Opens the model: { tokens, from, warnings, syncRead, ms }, or { error }. */
    openInPage: (options = {}, where = pages.page, file = '/m.gguf') =>
      pages.inPage(async ({ open: openModel }, _url, [address, more]) => {
        const from = new Set();
        const start = performance.now();
        let opened;
        try {
          const onProgress = (p) => {
            if (p.loaded) from.add(p.from);
          };
          opened = await openModel(new URL(address, location.href), { context: 64, ...more, onProgress });
          const ms = performance.now() - start;
          const { tokens } = await opened.generate('the rest', { maxTokens: 6 }).done;
          const warnings = opened.explanation.warnings.filter(({ code }) => code.startsWith('CACHE'));
          const syncRead = opened.explanation.host.sync_read;
          return { tokens, from: [...from], warnings, syncRead, ms };
        } catch (error) {
          return { error: error.toJSON?.() ?? String(error) };
        } finally {
          await opened?.close();
        }
      }, [file, options], where),
    /**
     * Opens the model while the browser's storage gets full: { full: what that gave, have: bytes kept,
     * again: what the next load gave, with room, fetched: what it fetched }.
     */
    async fillUp(options = {}) {
      await pages.inPage(({ modelCache }) => modelCache.clear());
      site.reset();
      site.faults['/m.gguf'] = { chunk: 1 << 16, delay: 4 };
      const session = await pages.page.context().newCDPSession(pages.page);
      const quota = (quotaSize) => session.send('Storage.overrideQuotaForOrigin', { origin: site.url, quotaSize });
      const opening = pages.openInPage(options);
      while (pages.sent() < 9 * 2 ** 20) await new Promise((resolve) => { setTimeout(resolve, 1); });
      await quota(2 ** 20);
      const full = await opening;
      const info = await pages.inPage(({ modelCache }, url) => modelCache.info(url));
      await quota(undefined);
      delete site.faults['/m.gguf'];
      site.reset();
      const again = await pages.openInPage(options);
      return { full, have: info?.cachedBytes ?? 0, again, fetched: pages.sent() };
    },
  };
  await pages.start();
  return pages;
}
