// The page's side of a browser peer: what the benchmark calls through the driver.
import { startReadLoop } from '/bench/read-loop.js';
import { timeGeneration, warmUp } from '/bench/speak.js';

/** The file at a URL, kept in the origin's private file system. */
export async function storedFile(url) {
  const name = new URL(url, location.href).pathname.split('/').at(-1);
  const folder = await navigator.storage.getDirectory();
  try {
    return await (await folder.getFileHandle(name)).getFile();
  } catch {
    const handle = await folder.getFileHandle(name, { create: true });
    await (await fetch(url)).body.pipeTo(await handle.createWritable());
    return handle.getFile();
  }
}

/** how: {open(url, options), store(url), openStored(url, options)}, the latter two for the start-up section. */
export function serve(how) {
  let peer, loop;
  globalThis.peer = {
    async open(url, options) {
      peer = await how.open(url, options);
      return peer.info;
    },
    warmUp: (prompt, ms) => warmUp(peer.generate, prompt, ms),
    speed: (prompt, n) => timeGeneration(peer.generate, prompt, n),
    speedOn: (prompt, n) => timeGeneration((...args) => peer.generate(...args, true), prompt, n),
    async readLoop(bytes, threads) {
      loop ??= await startReadLoop(await WebAssembly.compileStreaming(fetch('/read-loop.wasm')), bytes, threads);
      return loop.run();
    },
    store: how.store,
    /** Milliseconds of reading all of it and doing nothing with it. */
    async download(url) {
      const start = performance.now();
      const reader = (await fetch(url)).body.getReader();
      while (!(await reader.read()).done);
      return performance.now() - start;
    },
    /** Nothing is stored: milliseconds from the call of open to the first token, and of the median step after it. */
    async firstVisit(url, options, prompt) {
      await how.forget?.();
      const start = performance.now();
      peer = await how.open(url, options);
      const opened = performance.now() - start;
      const times = [];
      await peer.generate(prompt, 9, () => { times.push(performance.now()); });
      const steps = times.slice(1).map((at, i) => at - times[i]).sort((a, b) => a - b);
      await peer.close();
      return { first: times[0] - start, opened, stepMs: steps[steps.length >> 1] };
    },
    /** Milliseconds from the call of open to the first token. */
    async firstToken(url, options, prompt) {
      const start = performance.now();
      peer = await how.openStored(url, options);
      const opened = performance.now() - start;
      let first;
      await peer.generate(prompt, 1, () => { first ??= performance.now() - start; });
      return { first, opened };
    },
    /** Bytes of the page and its workers; Chromium leaves some workers' linear memory out, which is added then. */
    async memory() {
      const { bytes, breakdown } = await performance.measureUserAgentSpecificMemory();
      const linear = (await peer.memory?.())?.hostBytes ?? 0;
      const by = {};
      for (const part of breakdown) by[part.types.join('+') || 'other'] = (by[part.types.join('+') || 'other'] ?? 0) + part.bytes;
      return { bytes: bytes < linear ? bytes + linear : bytes, by, linear };
    },
  };
}
