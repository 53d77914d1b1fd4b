// A site that has the package on it, and pages that run it.
import path from 'node:path';
import { ROOT } from './fixtures.mjs';
import { ISOLATED, STRICT_CSP, startServer } from './http-server.mjs';

/** startServer with the package, the tests' own modules and an empty page beside these mounts. */
export const startSite = (mounts = {}, options = {}) =>
  startServer({
    '/js-glue/': path.join(ROOT, 'js-glue'),
    '/dist/': path.join(ROOT, 'dist'),
    '/tests/': path.join(ROOT, 'tests'),
    '/blank.html': Buffer.from('<!doctype html><title>blank</title>'),
    ...mounts,
  }, options);

/** The empty page of such a site. */
export async function openBlank(browser, site) {
  const page = await browser.newPage();
  await page.goto(`${site.url}/blank.html`);
  return page;
}

/**
 * The same site twice, cross-origin isolated and not, both with a strict policy, and an empty page of each:
 * { sites, pages: { isolated, plain }, close() }.
 */
export async function startBoth(browser, mounts) {
  const both = { isolated: { ...ISOLATED, ...STRICT_CSP }, plain: STRICT_CSP };
  const sites = {}, pages = {};
  for (const [name, headers] of Object.entries(both)) {
    sites[name] = await startSite(mounts, { headers });
    pages[name] = await openBlank(browser, sites[name]);
  }
  return { sites, pages, close: () => Promise.all(Object.values(sites).map((site) => site.close())) };
}

/** Runs work(lineal, ...args) in the page, where its policy does not hold; work needs nothing from outside. */
export const inPage = (page, work, ...args) =>
  page.evaluate(`(async () => (${work})(await import('/js-glue/index.js')${args.map((a) => `, ${JSON.stringify(a)}`).join('')}))()`);
