// Asks llama.cpp in a process of its own: it aborts on some bad files. One request at a time, over IPC:
// {kind: 'logprobs', path, ids, context} -> {rows: Float64Array [ids, n_vocab], vocab},
// {kind: 'embedding', path, text} -> {vector, ids}.
import { loadOracle, oracleEmbedding, oracleLogprobs } from '../lib/oracle.mjs';

const oracle = await loadOracle();

async function answer(request) {
  if (request.kind === 'embedding') return oracleEmbedding(oracle, request.path, request.text);
  const rows = await oracleLogprobs(oracle, request.path, request.ids, { context: request.context });
  const vocab = rows[0].length;
  const flat = new Float64Array(rows.length * vocab);
  rows.forEach((row, i) => flat.set(row, i * vocab));
  return { rows: flat, vocab };
}

process.on('message', async (request) => {
  try {
    process.send({ value: await answer(request) });
  } catch (error) {
    process.send({ error: String(error?.message ?? error) });
  }
});
process.send({ ready: Boolean(oracle) });
