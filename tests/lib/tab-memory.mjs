// What the browser and the system say that a tab takes, beside what its models say.
import fs from 'node:fs';

import { startChromium } from './chromium.mjs';
import { ISOLATED } from './http-server.mjs';
import { inPage, openBlank, startSite } from './site.mjs';

// Without it the page's own measurement waits for an idle moment, up to 20 s.
const EAGER_MEASURE = ['--enable-blink-features=ForceEagerMeasureMemory'];

/**
 * A browser with one page that is cross-origin isolated, on a server with the modules and these mounts.
 * Returns {page, server, inPage(work, argument), rendererBytes(), tabBytes(), close()}; work gets the module
 * lineal and the argument, and must need nothing else from outside.
 */
export async function startPage(mounts) {
  const server = await startSite(mounts, { headers: ISOLATED });
  const browser = await startChromium({ args: EAGER_MEASURE });
  const page = await openBlank(browser, server);
  return {
    page,
    server,
    inPage: (work, argument) => inPage(page, work, argument),
    /** Of the page's process, without files that are mapped; undefined where the system does not tell. */
    async rendererBytes() {
      const session = await browser.context.browser()?.newBrowserCDPSession();
      if (!session) return undefined;
      const { processInfo } = await session.send('SystemInfo.getProcessInfo');
      await session.detach();
      const sizes = processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => anonymousBytes(id));
      return sizes.includes(undefined) ? undefined : Math.max(...sizes);
    },
    /**
     * Of the page and its workers, by the browser's own count. Memory that is not shared is not in it
     * (Chromium 156), and a worker that waits for work makes it last a minute.
     */
    tabBytes: () => page.evaluate(async () => (await performance.measureUserAgentSpecificMemory()).bytes),
    async close() {
      await browser.close();
      await server.close();
    },
  };
}

/**
 * What a process holds in memory, without files that are mapped; undefined where the system does not tell.
 * @param {number | 'self'} pid
 */
export function anonymousBytes(pid) {
  try {
    const found = /^RssAnon:\s+(\d+) kB/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
    return found ? Number(found[1]) * 1024 : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The same without regions of `least` bytes and more, as linear memory is one; undefined where the system does not tell.
 * @param {number | 'self'} pid
 * @param {number} least
 */
export function besideBytes(pid, least) {
  let text;
  try {
    text = fs.readFileSync(`/proc/${pid}/smaps`, 'latin1');
  } catch {
    return undefined;
  }
  let sum = 0;
  for (const [, size, anonymous] of text.matchAll(/^Size: +(\d+) kB$[^]*?^Anonymous: +(\d+) kB$/gm)) {
    if (Number(size) * 1024 < least) sum += Number(anonymous) * 1024;
  }
  return sum > 0 ? sum : undefined;
}
