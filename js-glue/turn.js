// A turn for timers, messages and signals of this thread, at the lowest cost; and
// waiting with an end.

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

/** Resolves with the promise, or after so long. @param {Promise<unknown>} promise @param {number} ms */
export async function atMost(promise, ms) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */ let timer;
  const patience = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([promise, patience]);
  clearTimeout(timer);
}
