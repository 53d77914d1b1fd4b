// The bare matrices of a model in onnxruntime-web: MatMulInteger, uint8 by int8, one thread.
import * as ort from '/ort/ort.wasm.min.mjs';

ort.env.wasm.wasmPaths = '/ort/';
ort.env.wasm.numThreads = 1;

// --- as much of ONNX's protobuf as one node takes (onnx.proto of the ONNX repository) --------------

const varint = (n) => {
  const out = [];
  for (; n > 127; n = Math.floor(n / 128)) out.push((n % 128) | 128);
  return [...out, n];
};
const number = (field, n) => [...varint(field * 8), ...varint(n)];
const bytes = (field, data) => [...varint(field * 8 + 2), ...varint(data.length), ...data];
const text = (field, s) => bytes(field, new TextEncoder().encode(s));
const TYPE = { uint8: 2, int8: 3, int32: 6 };

const valueInfo = (name, type, shape) => [
  ...text(1, name),
  ...bytes(2, bytes(1, [...number(1, TYPE[type]), ...bytes(2, shape.flatMap((d) => bytes(1, number(1, d))))])),
];

/** y [m, n] = a [m, k] B, with B [k, n] of random int8. */
function matrixModel(m, k, n) {
  const weights = new Uint8Array(k * n);
  for (let at = 0; at < weights.length; at += 65536) crypto.getRandomValues(weights.subarray(at, at + 65536));
  const head = [...number(1, k), ...number(1, n), ...number(2, TYPE.int8), ...text(8, 'B'), ...varint(9 * 8 + 2), ...varint(weights.length)];
  const before = [
    ...bytes(1, [...text(1, 'a'), ...text(1, 'B'), ...text(2, 'y'), ...text(4, 'MatMulInteger')]), ...text(2, 'g'),
    ...varint(5 * 8 + 2), ...varint(head.length + weights.length), ...head,
  ];
  const after = [...bytes(11, valueInfo('a', 'uint8', [m, k])), ...bytes(12, valueInfo('y', 'int32', [m, n]))];
  const opening = [
    ...number(1, 8), ...bytes(8, number(2, 13)), ...varint(7 * 8 + 2), ...varint(before.length + weights.length + after.length), ...before,
  ];
  const out = new Uint8Array(opening.length + weights.length + after.length);
  out.set(opening);
  out.set(weights, opening.length);
  out.set(after, opening.length + weights.length);
  return out;
}

const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];

globalThis.peer = {
  /** Milliseconds of each distinct matrix [{k, n}] times m rows, medians of `runs`. */
  async matrices(list, m, runs) {
    const out = [];
    for (const { k, n } of list) {
      const session = await ort.InferenceSession.create(matrixModel(m, k, n), { executionProviders: ['wasm'] });
      const a = new ort.Tensor('uint8', Uint8Array.from({ length: m * k }, (_, i) => (i * 7919) % 251), [m, k]);
      const times = [];
      for (let i = 0; i < runs + 2; i++) {
        const start = performance.now();
        await session.run({ a });
        if (i > 1) times.push(performance.now() - start);
      }
      await session.release();
      out.push(median(times));
    }
    return out;
  },
};
