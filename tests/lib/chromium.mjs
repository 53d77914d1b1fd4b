// Headless Chromium for browser tests, through playwright-core.
import { spawn } from 'node:child_process';
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
    profile,
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

/**
 * A browser that can be killed: a process of its own with this profile. Returns {newPage(), close(), kill()};
 * kill ends it at once, as a crash would.
 */
export async function startKillable(profile) {
  const { chromium } = await import('playwright-core');
  const portFile = path.join(profile, 'DevToolsActivePort');
  fs.rmSync(portFile, { force: true });
  for (const name of ['SingletonLock', 'SingletonCookie', 'SingletonSocket']) fs.rmSync(path.join(profile, name), { force: true });
  const child = spawn(findChromium(), [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--remote-debugging-port=0', `--user-data-dir=${profile}`, 'about:blank',
  ], { stdio: 'ignore', detached: true });
  const ended = new Promise((resolve) => { child.on('close', resolve); });
  const kill = async () => {
    try {
      process.kill(-child.pid, 'SIGKILL'); // its own group: the browser and its renderers
    } catch {
      // it has ended
    }
    await ended;
  };
  const ready = () => fs.existsSync(portFile) && fs.readFileSync(portFile, 'utf8').includes('\n');
  for (let i = 0; i < 600 && !ready(); i++) await new Promise((resolve) => { setTimeout(resolve, 50); });
  if (!ready()) {
    await kill();
    throw new Error('Chromium did not start');
  }
  const [port] = fs.readFileSync(portFile, 'utf8').split('\n');
  const browser = await chromium.connectOverCDP(`http://127.0.0.1:${port}`);
  return { newPage: () => browser.contexts()[0].newPage(), close: kill, kill };
}
