// The numbers of wasm/abi.h and what they are called here.

export const STATUS = /** @type {const} */ ({ OK: 0, NEED_BYTES: 1, MORE: 2, CANCELLED: 3, CONTEXT_FULL: 4 });
export const TEXT = /** @type {const} */ ({
  EXPLAIN_JSON: 0,
  EXPLAIN: 1,
  INSPECT_JSON: 2,
  INSPECT: 3,
  MEMORY_JSON: 4,
  PLAN_JSON: 5,
});
// In the order of the NUM_ enumeration.
const NUMBER_NAMES = /** @type {const} */ ([
  'fits',
  'nCtx',
  'nCtxTrain',
  'nVocab',
  'nPast',
  'bos',
  'eos',
  'hasTokenizer',
  'allocCalls',
  'growCalls',
  'liveBytes',
  'highWaterBytes',
  'hostBytes',
  'chunk',
  'weightBytes',
  'loadedBytes',
  'addsBos',
  'liveBlocks',
  'headerBytes',
  'maxPieceBytes',
  'nEmbd',
  'streamedBytes',
  'expertHits',
  'expertMisses',
  'chunkDecodes',
]);
/** @typedef {typeof NUMBER_NAMES[number]} NumberName */
export const NUMBER = /** @type {Record<NumberName, number>} */ (
  Object.fromEntries(NUMBER_NAMES.map((name, index) => [name, index]))
);

export const HOST_KIND = { browser: 0, node: 1, wasi: 2, native: 3 };
export const KV_TYPE = { auto: 0, f32: 1, f16: 2, q8_0: 3, q4_0: 4 };
export const PROFILE = { auto: 0, browser: 1, phone: 2, node: 3, native: 4 };
export const HOLD = { auto: 0, stored: 1, x8: 2, f32: 3, f16: 4 };
