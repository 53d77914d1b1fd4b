// Memory of a page and its workers, as the DevTools protocol tells it.

const PATIENCE_MS = 300; // a thread that has just begun or ended does not answer

/** A target of the protocol, and the workers that it starts. */
class Target {
  #post;
  #next = 1;
  #waiting = new Map();
  children = new Map();

  constructor(post) {
    this.#post = post;
  }

  /** The answer; undefined from one that has ended. */
  ask(method, params = {}) {
    const id = this.#next++;
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(undefined), PATIENCE_MS);
      this.#waiting.set(id, (result) => {
        clearTimeout(timer);
        resolve(result);
      });
      this.#post(JSON.stringify({ id, method, params })).catch(() => {});
    });
  }

  receive(text) {
    const { id, result, method, params } = JSON.parse(text);
    if (id !== undefined) this.#waiting.get(id)?.(result);
    else this.event(method, params);
  }

  event(method, { sessionId, message }) {
    if (method === 'Target.attachedToTarget') {
      const child = new Target((text) => this.ask('Target.sendMessageToTarget', { sessionId, message: text }));
      this.children.set(sessionId, child);
      child.attach();
    } else if (method === 'Target.detachedFromTarget') {
      this.children.delete(sessionId);
    } else if (method === 'Target.receivedMessageFromTarget') {
      this.children.get(sessionId)?.receive(message);
    }
  }

  attach() {
    return this.ask('Target.setAutoAttach', { autoAttach: true, waitForDebuggerOnStart: false, flatten: false });
  }

  /** Objects of JavaScript and of the DOM and contents of buffers, here and below. */
  async bytes() {
    const [own, ...others] = await Promise.all([
      this.ask('Runtime.getHeapUsage'), ...[...this.children.values()].map((child) => child.bytes()),
    ]);
    const { usedSize: objects, embedderHeapUsedSize: embedder, backingStorageSize: buffers } =
      own ?? { usedSize: 0, embedderHeapUsedSize: 0, backingStorageSize: 0 };
    const sum = { objects, embedder, buffers, threads: own ? 1 : 0 };
    for (const other of others) for (const key of Object.keys(sum)) sum[key] += other[key];
    return { ...sum, bytes: sum.objects + sum.embedder + sum.buffers };
  }
}

/**
 * Watches a page of Playwright's: { now() }: { bytes (the sum), objects, embedder, buffers, threads } of the page and its workers. Memory that
 * several threads share, a WebAssembly.Memory, is in none of them.
 */
export async function watchHeap(page) {
  const session = await page.context().newCDPSession(page);
  const root = new Target(async (text) => {
    const { id, method, params } = JSON.parse(text);
    root.receive(JSON.stringify({ id, result: await session.send(method, params) }));
  });
  for (const method of ['Target.attachedToTarget', 'Target.detachedFromTarget', 'Target.receivedMessageFromTarget'])
    session.on(method, (params) => root.event(method, params));
  await root.attach();
  return { now: () => root.bytes() };
}
