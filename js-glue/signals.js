// AbortSignals of the user, which may outlive the work and are not ours to keep.

/**
 * A controller that fires with the user's signal, and can be fired from here.
 * @param {AbortSignal | undefined} signal
 */
export function linkedController(signal) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort, { once: true });
  return { controller, unlink: () => signal?.removeEventListener('abort', abort) };
}
