// A peer in a process of its own: lineal in Node, or llama.cpp through
// node-llama-cpp. Started by peers.mjs with an IPC channel: {id, method, args}.
import process from 'node:process';

import { startReadLoop } from './read-loop.js';
import { linealPeer, timeGeneration, warmUp } from './speak.js';

const [, , kind, libraryUrl] = process.argv;

async function openLineal(file, options) {
  const { open } = await import(libraryUrl);
  return linealPeer(open, file, options);
}

async function openNative(file, { context, threads }) {
  const { LlamaLogLevel, getLlama } = await import('node-llama-cpp');
  const llama = await getLlama({
    gpu: false, build: 'never', skipDownload: true, maxThreads: 0, progressLogs: false, logLevel: LlamaLogLevel.error,
  });
  const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
  const session = await model.createContext({ contextSize: context, batchSize: 512, threads, sequences: 1 });
  const sequence = session.getSequence();
  return {
    info: { threads: session.currentThreads, release: llama.llamaCppRelease?.release, system: llama.systemInfo },
    async generate(prompt, maxTokens, onToken) {
      await sequence.clearHistory();
      let count = 0;
      for await (const token of sequence.evaluate(prompt.ids, { temperature: 0, yieldEogToken: true })) {
        onToken(token);
        if (++count === maxTokens) break;
      }
      return {};
    },
    close: () => llama.dispose(),
  };
}

let peer, loop;
const methods = {
  async open(file, options) {
    peer = await (kind === 'native' ? openNative : openLineal)(file, options);
    return peer.info;
  },
  warmUp: (prompt, ms) => warmUp(peer.generate, prompt, ms),
  speed: (prompt, n) => timeGeneration(peer.generate, prompt, n),
  async readLoop(bytes, threads, wasm) {
    loop ??= await startReadLoop(await WebAssembly.compile(Buffer.from(wasm, 'base64')), bytes, threads);
    return loop.run();
  },
};

process.on('message', async ({ id, method, args }) => {
  try {
    process.send({ id, result: await methods[method](...args) });
  } catch (error) {
    process.send({ id, error: { message: String(error?.message ?? error), code: error?.code } });
  }
});
process.on('disconnect', () => process.exit());
