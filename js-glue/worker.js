// The worker's side: a LocalBackend behind Rpc. Runs as a browser's module
// worker and in Node's worker_threads.
import { LocalBackend } from './backend.js';
import { LinealError } from './errors.js';
import { Rpc, Transfer, portOf } from './rpc.js';
import { threadsThere } from './threads.js';

/** @param {any} target */
function serve(target) {
  const backend = new LocalBackend();
  /** @type {Map<number, { next: () => Promise<any>, end: () => Promise<any>, controller: AbortController }>} */
  const streams = new Map();
  let nextStream = 1;

  const threads = threadsThere(() => rpc);

  /** @param {{ parts: any, options: any, progress: boolean }} args @param {AbortSignal} signal */
  const opening = ({ parts, options, progress }, signal) =>
    /** @type {const} */ ([
      parts,
      options,
      {
        signal,
        startThread: threads.startThread,
        onProgress: progress ? (/** @type {unknown} */ p) => rpc.notify('progress', p) : undefined,
        remoteRead: (/** @type {number} */ id, /** @type {number} */ offset, /** @type {number} */ length) =>
          rpc.call('read', { id, offset, length }, signal),
      },
    ]);

  /**
   * Works one step ahead of the reader, so that the messages cost no time.
   * @param {AsyncGenerator<any>} iterator
   * @param {AbortController} controller
   * @param {() => unknown} result
   */
  const streamOf = (iterator, controller, result) => {
    let ahead = iterator.next();
    ahead.catch(() => {});
    return {
      controller,
      async next() {
        const { value, done } = await ahead;
        if (done) return { done, result: result() };
        ahead = iterator.next();
        ahead.catch(() => {});
        return { value, done: false };
      },
      async end() {
        controller.abort();
        await iterator.return(undefined);
        return { result: result() };
      },
    };
  };

  const find = (/** @type {number} */ id) => {
    const stream = streams.get(id);
    if (!stream) throw new LinealError('INTERNAL', 'this stream has ended');
    return stream;
  };

  const rpc = new Rpc(portOf(target), {
    ...threads.handlers,
    explain: (args, signal) => backend.explain(...opening(args, signal)),
    inspect: (args, signal) => backend.inspect(...opening(args, signal)),
    openTokenizer: (args, signal) => backend.openTokenizer(...opening(args, signal)),
    open: (args, signal) => backend.open(...opening(args, signal)),
    tokenize: ({ text, options }) => backend.tokenize(text, options),
    detokenize: ({ ids, showSpecial }) => backend.detokenize(ids, showSpecial),
    pieces: ({ ids }) => backend.pieces(ids),
    memory: () => backend.memory(),
    explainPlan: () => backend.explainPlan(),
    weights: () => backend.weights(),
    abortLoad: (error) => backend.abortLoad(LinealError.fromJSON(error)),
    close: () => backend.close(),
    embed: async ({ input }, signal) => {
      const out = await backend.embed(input, signal);
      return new Transfer(out, [out.buffer]);
    },
    score: async ({ ids, from }, signal) => {
      const out = await backend.score(ids, from, signal);
      return new Transfer(out, [out.buffer]);
    },
    streamStart: ({ kind, args }) => {
      const controller = new AbortController();
      /** @type {unknown} */ let result;
      const iterator =
        kind === 'generate'
          ? backend.generate(args.prompt, args.settings, controller.signal, (r) => {
              result = r;
            })
          : backend.evaluate(args.ids, controller.signal);
      streams.set(
        nextStream,
        streamOf(iterator, controller, () => result),
      );
      return nextStream++;
    },
    streamNext: async ({ stream }) => {
      try {
        const next = await find(stream).next();
        if (next.done) streams.delete(stream);
        const logits = next.value?.logits;
        return logits ? new Transfer(next, [logits.buffer]) : next;
      } catch (error) {
        streams.delete(stream);
        throw error;
      }
    },
    streamReturn: async ({ stream }) => {
      const { end } = find(stream);
      streams.delete(stream);
      return end();
    },
    streamAbort: ({ stream }) => {
      streams.get(stream)?.controller.abort();
    },
  });
}

const scope = /** @type {any} */ (globalThis);
if (typeof scope.WorkerGlobalScope === 'function' && scope instanceof scope.WorkerGlobalScope) {
  // At once, not after an await: messages may be waiting.
  serve(scope);
} else {
  import('node:worker_threads').then(({ parentPort }) => serve(parentPort));
}
