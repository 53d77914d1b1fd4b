// What is measured. Every timed section runs alone: sessions that wait are idle.
// A sample is {tps, others, round}: cores that other processes used meanwhile.
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { availableMemory, raisePriority, rendererPeak, watchOthers } from './machine.mjs';
import { bytesPerToken, modelFile } from './models.mjs';
import { PagePeer, ProcessPeer, promptOf, startSite } from './peers.mjs';
import { QUIET } from './report.mjs';

const MOST_READ_BYTES = 512 * 2 ** 20; // far beyond the caches
const LEAST_RUNS = 3;
const LONGEST_MS = 20 * 60000;

/** Why lineal cannot run this model, or undefined. */
async function refusal(bench, file) {
  const { explain } = await import(pathToFileURL(path.join(bench.folder, 'js-glue/index.js')).href);
  try {
    await explain(file, { context: 1024 });
    return undefined;
  } catch (error) {
    return `${error.code}: ${error.message}`;
  }
}

async function within(milliseconds, promise) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer for ${milliseconds / 60000} minutes`)), milliseconds);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(timer);
  }
}

/** Times `work` and marks what others did. Rejects when it hangs. */
async function timed(bench, peer, work) {
  if (bench.options.boost) raisePriority(peer.pid);
  const watch = watchOthers(peer.pid);
  const result = await within(LONGEST_MS, work());
  return { ...result, others: Number(watch().toFixed(2)) };
}

/** The sessions of one model: each peer with each number of threads. */
function sessionsOf(bench) {
  const { site, folder, readLoop, peers } = bench;
  const list = [];
  for (const threads of bench.options.threads) {
    const page = (key, name, extra) => list.push(new PagePeer(key, name, site, { threads, ...extra }));
    const child = (key, kind) => list.push(new ProcessPeer(key, kind, folder, readLoop, { threads }));
    if (peers.includes('chromium')) {
      page('lineal-chromium', 'lineal', { module: 'relaxed' });
      page('lineal-chromium-base', 'lineal', { module: 'base' });
    }
    if (peers.includes('wllama')) page('wllama', 'wllama');
    if (peers.includes('node')) child('lineal-node', 'node');
    if (peers.includes('native')) child('native', 'native');
  }
  return list;
}

/** Decode and prefill of every peer, the peers alternating; one record for each session. */
export async function speed(bench, model, quant) {
  const { options, log, emit } = bench;
  const file = modelFile(model, quant, log);
  const refused = await refusal(bench, file);
  if (refused) {
    emit({ kind: 'skip', section: 'speed', model, quant, reason: `lineal refuses the model: ${refused}` });
    return;
  }
  const weights = bytesPerToken(model, quant);
  const all = sessionsOf(bench);
  // All at once where they fit, so that drift of the machine meets them alike; else one thread count after another.
  const together = all.length * weights * 1.3 < availableMemory() * 0.8;
  const groups = together ? [all] : options.threads.map((n) => all.filter((s) => s.options.threads === n));
  for (const group of groups) {
    const running = [];
    try {
      for (const session of group) {
        const record = { kind: 'speed', model, quant, peer: session.key, threads: session.options.threads };
        try {
          log(`${model} ${quant}: starting ${session.key}, ${record.threads} thread${record.threads > 1 ? 's' : ''}`);
          running.push(session);
          await within(LONGEST_MS, session.start(file));
          if (session.key.startsWith('lineal') && session.info.threads !== record.threads) {
            throw new Error(`lineal runs on ${session.info.threads} thread here, ${record.threads} were asked for`);
          }
          session.record = { ...record, pp: options.pp, tg: options.tg, info: session.info, weights, prefill: [], decode: [], read: [] };
          await within(LONGEST_MS, session.warmUp(options.warmUpMs));
        } catch (error) {
          session.record = undefined;
          emit({ ...record, kind: 'skip', section: 'speed', reason: String(error.message) });
          await session.close();
        }
      }
      const live = running.filter((session) => session.record);
      for (const { record } of await rounds(bench, live, weights)) emit(record);
    } finally {
      for (const session of running) await session.close();
    }
  }
}

/** Samples of all sessions, one each in turn; those that lasted. */
async function rounds(bench, sessions, weights) {
  const { options, emit } = bench;
  const quiet = ({ record }) => Math.min(...[record.prefill, record.decode].map((samples) =>
    samples.filter((s) => s.others < QUIET).length));
  const spent = new Map(); // seconds that a session took
  const done = (session, round) => (round >= options.runs && quiet(session) >= options.runs) ||
    (round >= LEAST_RUNS && spent.get(session) > options.patience);
  for (let round = 0; round < options.runs + options.extra; round++) {
    // the order changes, so that nobody always comes after the same peer
    const order = sessions.map((_, i) => sessions[(i + round) % sessions.length]);
    for (const session of order) {
      const { record } = session;
      const { model, quant } = record;
      if (session.failed || done(session, round)) continue;
      const start = performance.now();
      try {
        await oneRound(bench, session, round, weights);
      } catch (error) {
        session.failed = true;
        emit({ kind: 'skip', section: 'speed', model, quant, peer: session.key, threads: record.threads, reason: String(error.message) });
        await session.close();
      }
      spent.set(session, (spent.get(session) ?? 0) + (performance.now() - start) / 1000);
    }
  }
  return sessions.filter((session) => !session.failed);
}

async function oneRound(bench, session, round, weights) {
  const { options, log } = bench;
  const { record } = session;
  const { prefill, decode, others } = await timed(bench, session, () => session.speed(options.pp, options.tg));
  record.prefill.push({ tps: prefill, others, round });
  record.decode.push({ tps: decode, others, round });
  if (bench.readLoop && (session.key === 'lineal-chromium' || session.key === 'lineal-node')) {
    const read = await timed(bench, session, async () => ({
      passes: await session.readLoop(Math.min(weights, MOST_READ_BYTES), record.threads),
    }));
    const sorted = [...read.passes].sort((a, b) => a - b);
    record.read.push({ tps: sorted[sorted.length >> 1], others: read.others, round });
  }
  log(`  round ${round + 1}: ${session.key} x${record.threads}: prefill ${prefill.toFixed(1)}, ` +
    `decode ${decode.toFixed(1)} tokens/s, others used ${others} cores`);
}

/** Decode near the start of the context against decode near its end, for each KV type that lineal has. */
export async function position(bench, model, quant) {
  const { options, log, emit, site } = bench;
  if (!bench.peers.includes('chromium')) return;
  const file = modelFile(model, quant, log);
  const context = 4096;
  for (const kv of ['f16', 'q8_0']) {
    const record = { kind: 'position', model, quant, kv, peer: 'lineal-chromium', context, positions: { 64: [], 3900: [] } };
    const sessions = [64, 3900].map((at) => Object.assign(
      new PagePeer('lineal-chromium', 'lineal', site, { context, kvType: kv, threads: 1, module: 'auto' }), { at },
    ));
    try {
      for (const session of sessions) {
        log(`${model} ${quant}: ${kv} KV, filling ${session.at} positions`);
        await session.start(file);
        record.info = session.info;
        await session.warmUp(options.warmUpMs);
        await session.call('speedOn', promptOf(session.at), 8);
      }
      for (let round = 0; round < options.runs; round++) {
        for (const session of sessions) {
          // the prompt's beginning is kept, so only its last token is evaluated again
          const { decode, others } = await timed(bench, session, () => session.call('speedOn', promptOf(session.at), 64));
          record.positions[session.at].push({ tps: decode, others, round });
        }
      }
      emit(record);
    } catch (error) {
      emit({ kind: 'skip', section: 'position', model, quant, kv, peer: 'lineal-chromium', reason: `${kv} KV: ${error.message}` });
    } finally {
      for (const session of sessions) await session.close();
    }
  }
}

/**
 * A returning visitor: from open of a stored model to the first token of a
 * 16-token prompt, on a fresh page each time; then what the tab holds.
 */
export async function startUp(bench, model, quant) {
  const { options, log, emit } = bench;
  const file = modelFile(model, quant, log);
  const refused = await refusal(bench, file);
  if (refused) {
    emit({ kind: 'skip', section: 'start', model, quant, reason: `lineal refuses the model: ${refused}` });
    return;
  }
  const site = await startSite(bench.folder, bench.readLoop, { cacheable: true });
  const peers = [];
  if (bench.peers.includes('chromium')) peers.push(new PagePeer('lineal-chromium', 'lineal', site, { threads: 1 }));
  if (bench.peers.includes('wllama')) peers.push(new PagePeer('wllama', 'wllama', site, { threads: 1 }));
  try {
    for (const peer of peers) {
      peer.record = { kind: 'start', model, quant, peer: peer.key, threads: 1, first: [], opened: [], memory: [], peak: [] };
      await peer.startBrowser();
      await peer.openPage();
      await peer.call('store', peer.urlOf(file));
      await peer.page.close();
    }
    for (let round = 0; round < options.runs; round++) {
      for (const peer of peers) {
        await peer.openPage();
        const empty = rendererPeak(peer.pid);
        const sample = await timed(bench, peer, () => peer.call('firstToken', peer.urlOf(file), peer.options, promptOf(16)));
        peer.record.first.push({ tps: sample.first, others: sample.others, round });
        peer.record.opened.push({ tps: sample.opened, others: sample.others, round });
        const peak = rendererPeak(peer.pid) - empty;
        const memory = await peer.call('memory');
        peer.record.memory.push(memory.bytes);
        peer.record.peak.push(peak);
        Object.assign(peer.record, { by: memory.by, linear: memory.linear });
        log(`${model} ${quant}: ${peer.key}: first token after ${sample.first.toFixed(0)} ms, ` +
          `${(memory.bytes / 2 ** 20).toFixed(0)} MiB held, ${(peak / 2 ** 20).toFixed(0)} MiB more in its process, others used ${sample.others} cores`);
        await peer.page.close();
      }
    }
    for (const { record } of peers) emit(record);
  } catch (error) {
    emit({ kind: 'skip', section: 'start', model, quant, reason: String(error.message) });
  } finally {
    for (const peer of peers) await peer.close();
    await site.close();
  }
}
