// Headless Chromium for browser tests, through playwright-core.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const CANDIDATES = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** The browser's executable, or undefined. */
export function findChromium() {
  return CANDIDATES.find((file) => file && fs.existsSync(file));
}

/** Why browser tests can't run here, or false. With CI set they must run. */
export async function chromiumMissing() {
  let reason = false;
  if (!findChromium()) reason = 'no Chromium: install it or set CHROMIUM to its path';
  else await import('playwright-core').catch(() => { reason = 'playwright-core is not installed: npm install'; });
  if (reason && process.env.CI) throw new Error(reason);
  return reason;
}

/** Starts a browser with an empty profile. Returns {context, newPage(options), close()}.
 *  Each page collects what it prints: page.messages [{type, text}], page.failures [text]. */
export async function startChromium({ args = [], viewport = { width: 1280, height: 900 }, ...options } = {}) {
  const { chromium } = await import('playwright-core');
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'lineal-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: findChromium(),
    headless: true,
    viewport,
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', ...args,
    ],
    ...options,
  });
  return {
    context,
    async newPage() {
      const page = await context.newPage();
      page.messages = [];
      page.failures = [];
      page.on('console', (message) => page.messages.push({ type: message.type(), text: message.text() }));
      page.on('pageerror', (error) => page.failures.push(String(error)));
      return page;
    },
    async close() {
      await context.close().catch(() => {});
      fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    },
  };
}
