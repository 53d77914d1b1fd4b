// A page whose memory is its own. Playwright asks for the events of the network, and the browser then keeps up to 200 MB
// of the answers for it, in the page's process; here nothing is asked for but the result of a script.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { findChromium } from './chromium.mjs';
import { ISOLATED } from './http-server.mjs';
import { startSite } from './site.mjs';
import { anonymousBytes, besideBytes } from './tab-memory.mjs';

/** The DevTools protocol over a pipe: { send(method, params, sessionId), close() }. */
function startBrowser() {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'lineal-chromium-'));
  const child = spawn(findChromium(), [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--remote-debugging-pipe', `--user-data-dir=${profile}`, 'about:blank',
  ], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'], detached: true });
  const ended = new Promise((resolve) => { child.on('close', resolve); });
  const [, , , to, from] = child.stdio;
  const waiting = new Map();
  let next = 1, text = '';
  from.setEncoding('utf8').on('data', (piece) => {
    const messages = (text + piece).split('\0');
    text = messages.pop();
    for (const { id, result, error } of messages.map((message) => JSON.parse(message))) {
      const { resolve, reject } = waiting.get(id) ?? {};
      waiting.delete(id);
      if (error) reject?.(new Error(error.message));
      else resolve?.(result);
    }
  });
  ended.then(() => {
    for (const { reject } of waiting.values()) reject(new Error('the browser has ended'));
  });
  return {
    send: (method, params = {}, sessionId = undefined) => new Promise((resolve, reject) => {
      waiting.set(next, { resolve, reject });
      to.write(`${JSON.stringify({ id: next++, method, params, sessionId })}\0`);
    }),
    async close() {
      try {
        process.kill(-child.pid, 'SIGKILL'); // its own group: the browser and its renderers
      } catch {
        // it has ended
      }
      await ended;
      fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    },
  };
}

/** Which of the browser's processes has the page, as the browser does not say; undefined where the system does not tell. */
async function processOf(browser, sessionId, evaluate) {
  const { processInfo } = await browser.send('SystemInfo.getProcessInfo');
  const ids = processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => id);
  const sizes = () => ids.map(anonymousBytes);
  const before = sizes();
  await evaluate('globalThis.mark = new Uint8Array(64 << 20).fill(1); 0');
  const gains = sizes().map((bytes, i) => bytes - before[i]);
  await evaluate('delete globalThis.mark');
  await browser.send('HeapProfiler.collectGarbage', {}, sessionId);
  return ids.find((_, i) => gains[i] > 48 << 20);
}

/**
 * A page that is cross-origin isolated, on a server with the modules and these mounts:
 * { server, inPage(work, argument), watchBeside(least, ms), close() }; work gets the module lineal and the argument, and
 * must need nothing else from outside.
 */
export async function startUnwatched(mounts) {
  const server = await startSite(mounts, { headers: ISOLATED });
  const browser = startBrowser();
  const { targetId } = await browser.send('Target.createTarget', { url: `${server.url}/blank.html` });
  const { sessionId } = await browser.send('Target.attachToTarget', { targetId, flatten: true });
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await browser.send(
      'Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true }, sessionId,
    );
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  const ready = () => evaluate('document.readyState === "complete" && location.protocol === "http:"').catch(() => false);
  while (!(await ready())) {
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
  const pid = await processOf(browser, sessionId, evaluate);
  return {
    server,
    inPage: (work, argument) =>
      evaluate(`(async () => (${work})(await import('/js-glue/index.js'), ${JSON.stringify(argument)}))()`),
    /**
     * Looks from now on, every few milliseconds, at what the page's process holds beside linear memory: what lies in
     * regions of less than `least` bytes, without files that are mapped. Returns a function that ends it and gives the
     * most that was seen, and in how many looks; undefined where the system does not tell.
     */
    watchBeside(least, ms) {
      let most = pid && besideBytes(pid, least);
      if (most === undefined) return undefined;
      let looks = 1;
      const look = () => {
        most = Math.max(most, besideBytes(pid, least) ?? 0);
        looks++;
      };
      const timer = setInterval(look, ms);
      return () => {
        clearInterval(timer);
        look();
        return { most, looks };
      };
    },
    async close() {
      await browser.close();
      await server.close();
    },
  };
}

/**
 * Opens a model in the page, generates a token and closes it: { most, looks } of watchBeside until then, and linear: the
 * bytes of its memory.
 */
export async function watchOpening(place, url, options, { least, ms }) {
  const stop = place.watchBeside(least, ms);
  const linear = await place.inPage(async ({ open }, { url: address, options: chosen }) => {
    const model = await open(address, { context: 64, ...chosen });
    await model.generate([1, 5, 9], { maxTokens: 1, ignoreEos: true }).done;
    const { hostBytes } = await model.memory();
    await model.close();
    return hostBytes;
  }, { url, options });
  return { ...stop?.(), linear };
}
