// Memory of bytes that were used up, given back without waiting for the
// collector: at the rate of a download it would let tens of megabytes gather.
import { isNode } from './caps.js';

/**
 * Nobody looks at these bytes any more, nor at any others of their buffer. Where the engine cannot free them, nothing.
 * @param {Uint8Array} bytes
 */
export function release({ buffer }) {
  // Node hands out parts of pools.
  if (isNode || !(buffer instanceof ArrayBuffer)) return;
  /** @type {{ transfer?: (length: number) => ArrayBuffer }} */ (buffer).transfer?.(0);
}
