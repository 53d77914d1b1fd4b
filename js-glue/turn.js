// A turn for timers, messages and signals of this thread, at the lowest cost.

/** @type {(() => Promise<void>) | undefined} */
let turn;

/** Resolves once others had their turn. */
export function nextTurn() {
  turn ??= makeTurn();
  return turn();
}

/** @returns {() => Promise<void>} */
function makeTurn() {
  if (typeof setImmediate === 'function')
    return () =>
      new Promise((resolve) => {
        setImmediate(resolve);
      });
  // Browsers clamp nested timers to 4 ms; a message costs microseconds.
  const { port1, port2 } = new MessageChannel();
  /** @type {(() => void)[]} */ const waiting = [];
  port1.onmessage = () => waiting.shift()?.();
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      port2.postMessage(0);
    });
}
