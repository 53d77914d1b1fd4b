// wllama in a page.
import { Wllama } from '/wllama/esm/index.js';
import { serve } from '/bench/pages/page.js';

async function start(url, { context, threads }, useCache) {
  const quiet = { debug() {}, log() {}, warn() {}, error() {} };
  const engine = new Wllama({ default: '/wllama/esm/wasm/wllama.wasm' }, { logger: quiet });
  await engine.loadModelFromUrl(url, { n_threads: threads, n_gpu_layers: 0, n_ctx: context, n_batch: 512, useCache });
  return {
    info: { threads: engine.isMultithread() ? engine.getNumThreads() : 1 },
    async generate(prompt, maxTokens, onToken) {
      let timings;
      await engine.createCompletion({
        prompt: prompt.text, max_tokens: maxTokens, temperature: 0, top_k: 1, ignore_eos: true, cache_prompt: false, stream: true,
        onData(chunk) {
          timings = chunk.timings ?? timings;
          if (chunk.choices?.[0] && chunk.choices[0].finish_reason == null) onToken();
        },
      });
      return { prefillMs: timings?.prompt_ms, promptTokens: timings?.prompt_n };
    },
    close: () => engine.exit(),
  };
}

serve({
  forget: () => new Wllama({ default: '/wllama/esm/wasm/wllama.wasm' }).modelManager.clear(),
  open: (url, options) => start(url, options, false),
  store: async (url) => {
    await new Wllama({ default: '/wllama/esm/wasm/wllama.wasm' }).modelManager.downloadModel(url);
    return true;
  },
  openStored: (url, options) => start(url, options, true),
});
