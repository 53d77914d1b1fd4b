// emcc 3.1.6 writes Node code that expects a CommonJS module, and fetches the
// module file even where fetch takes no file paths.
const lnlNode = typeof process === 'object' && process.versions?.node
  ? { module: await import('node:module'), url: await import('node:url') } : undefined;
const require = lnlNode?.module.createRequire(import.meta.url);
const __dirname = lnlNode?.url.fileURLToPath(new URL('.', import.meta.url)).slice(0, -1);
const fetch = lnlNode ? undefined : globalThis.fetch?.bind(globalThis);
