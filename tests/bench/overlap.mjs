// The first token of a first visit: a model comes at so many bytes a second,
// and a prompt waits for it. lineal with overlap, without and with its cache,
// lineal that loads first, wllama, and the download by itself, in turns, each
// on a fresh page of one browser.
import { fork } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { modelFile } from './models.mjs';
import { PagePeer, promptOf } from './peers.mjs';

const SERVER = fileURLToPath(new URL('throttled.mjs', import.meta.url));
const PROMPT_TOKENS = 64;
const CONTEXT = 256;

const VARIANTS = {
  overlap: { page: 'lineal', text: 'lineal, overlapped', options: { overlap: true, cache: false } },
  cached: { page: 'lineal', text: 'lineal, overlapped and kept in its cache', options: { overlap: true, cache: true } },
  load: { page: 'lineal', text: 'lineal, load and then prefill', options: { cache: false } },
  wllama: { page: 'wllama', text: 'wllama', options: {} },
};

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

/** The site in a process of its own: { url, sent(path), close() }. */
async function startThrottled(folder, rate) {
  const child = fork(SERVER, [folder, String(rate)]);
  const ended = new Promise((_, reject) => {
    child.once('exit', (code) => reject(new Error(`the server ended with code ${code}`)));
  });
  ended.catch(() => {});
  const next = () => Promise.race([new Promise((resolve) => { child.once('message', resolve); }), ended]);
  const { url } = await next();
  return {
    url,
    sent(name) {
      const answer = next();
      child.send({ path: name });
      return answer;
    },
    close: () => child.kill(),
  };
}

/** One record: milliseconds of each variant, of the download alone, and of lineal's decode steps. */
export async function overlap(bench, model, quant) {
  const { options, log, emit } = bench;
  const record = { kind: 'overlap', model, quant, promptTokens: PROMPT_TOKENS };
  const file = modelFile(model, quant, log);
  record.bytes = fs.statSync(file).size;
  record.rate = Math.round(record.bytes / options.seconds);
  record.threads = options.threads[0];
  const wanted = Object.keys(VARIANTS).filter((key) => bench.peers.includes(key === 'wllama' ? key : 'chromium'));
  const site = await startThrottled(bench.folder, record.rate);
  const name = `/models/${path.basename(file)}`;
  const peer = new PagePeer('lineal-chromium', 'lineal', site, {});
  const samples = { alone: [], step: [], sent: {}, ...Object.fromEntries(wanted.map((key) => [key, []])) };
  /** peer[method] on a fresh page. */
  const onPage = async (page, ...call) => {
    peer.name = page;
    await peer.openPage();
    try {
      return await peer.call(...call);
    } finally {
      await peer.page.close();
    }
  };
  try {
    await peer.startBrowser();
    await onPage('lineal', 'firstVisit', `${site.url}/bundled.gguf`, { cache: false }, promptOf(4)); // a browser that just started is slow
    for (let round = 0; round < options.runs; round++) {
      samples.alone.push(await onPage('lineal', 'download', site.url + name));
      const order = wanted.map((_, i) => wanted[(i + round) % wanted.length]);
      for (const key of order) {
        const { page, options: more } = VARIANTS[key];
        await site.sent(name);
        const how = { context: CONTEXT, threads: record.threads, ...more };
        const { first, stepMs } = await onPage(page, 'firstVisit', site.url + name, how, promptOf(PROMPT_TOKENS));
        samples.sent[key] = await site.sent(name);
        samples[key].push(first);
        if (key === 'overlap') samples.step.push(stepMs);
      }
      log(`${model} ${quant}: download ${Math.round(samples.alone.at(-1))}` +
        wanted.map((key) => `, ${key} ${Math.round(samples[key].at(-1))}`).join('') + ' ms to the first token');
    }
    emit({ ...record, samples });
  } catch (error) {
    emit({ kind: 'skip', section: 'overlap', model, quant, reason: String(error.message) });
  } finally {
    await peer.close();
    site.close();
  }
}

/** Rows for the report: { model, quant, rate, rows: [{ text, ms, min, max, over, met }] }. */
export function overlapRows({ samples, ...record }) {
  const alone = median(samples.alone), step = median(samples.step ?? [0]);
  const allowed = alone * 1.05 + step;
  return {
    ...record, alone, step, allowed,
    rows: Object.keys(VARIANTS).filter((key) => samples[key]?.length).map((key) => ({
      key, text: VARIANTS[key].text, ms: median(samples[key]), min: Math.min(...samples[key]), max: Math.max(...samples[key]),
      over: median(samples[key]) / alone, met: median(samples[key]) <= allowed, sent: samples.sent[key],
    })),
  };
}
