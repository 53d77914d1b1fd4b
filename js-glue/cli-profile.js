// How the command line shows a profile, and writes a trace.
import { chromeTrace } from './index.js';

/** @typedef {import('./index.d.ts').GenerationResult} GenerationResult */
/** @typedef {import('./index.d.ts').Timings} Timings */
/** @typedef {import('./index.d.ts').ModelInfo} ModelInfo */
/** @typedef {import('./index.d.ts').ProfileStats} ProfileStats */

const PHASES = /** @type {const} */ (['prefill', 'decode']);
const WRITE_CHARS = 1 << 24;

/** camelCase to snake_case, numbers to 6 decimals, in depth. @param {any} value @returns {any} */
function plain(value) {
  if (typeof value === 'number') return Math.round(value * 1e6) / 1e6;
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      plain(item),
    ]),
  );
}

/**
 * How much longer the profiled run took, in per cent.
 * @param {GenerationResult} profiled
 * @param {Timings} timings of the same run without
 */
function overhead({ timings: slow }, timings) {
  const more = (/** @type {number} */ a, /** @type {number} */ b) => (b > 0 ? (a / b - 1) * 100 : 0);
  return {
    prefill: more(slow.prefillMs, timings.prefillMs),
    decode: more(slow.decodeMs, timings.decodeMs),
  };
}

/** @param {GenerationResult} result */
const statsOf = ({ stats }) => /** @type {ProfileStats} */ (stats);

/** @param {GenerationResult} profiled @param {Timings} timings @param {ModelInfo} info */
export function profileJson(profiled, timings, info) {
  const { phases, ops, kernels, steps } = statsOf(profiled);
  return plain({ overhead: overhead(profiled, timings), load: info.loadPhases, phases, ops, kernels, steps });
}

/** @param {number} n @param {number} decimals @param {number} width */
const padded = (n, decimals, width) => n.toFixed(decimals).padStart(width);

/** Blank where there is nothing to say. @param {number} n @param {number} decimals @param {number} width */
const rateText = (n, decimals, width) => (n > 0 ? padded(n, decimals, width) : ' '.repeat(width));

/** @param {number} more per cent of time */
const versus = (more) => `${Math.abs(more).toFixed(1)} % ${more < 0 ? 'faster' : 'slower'} than untimed`;

/** @param {GenerationResult} profiled @param {Timings} timings @param {ModelInfo} info */
export function profileText(profiled, timings, info) {
  const { phases, kernels } = statsOf(profiled);
  const more = overhead(profiled, timings);
  const load = info.loadPhases.map(({ name, ms }) => `${name} ${ms.toFixed(1)}`).join(', ');
  const tables = PHASES.filter((name) => phases[name].passes > 0).map((name) => {
    const { ms, stepMs, sampleMs, tokens, passes } = phases[name];
    const rows = kernels.filter(({ phase }) => phase === name);
    const lines = rows.map(({ op, type, form, share, ms: time, calls, gbPerS, gops }) =>
      `  ${padded(share, 1, 5)} %${padded(time, 2, 11)}${padded((time / calls) * 1000, 1, 10)}${String(calls).padStart(8)}` +
      `${rateText(gbPerS, 1, 8)}${rateText(gops, 1, 8)}  ${op.padEnd(14)} ${(type ?? '').padEnd(8)}${form ?? ''}`.trimEnd(),
    );
    return `
${name}: ${tokens} tokens in ${passes} passes, ${ms.toFixed(1)} ms: steps ${stepMs.toFixed(1)}, sampling ${sampleMs.toFixed(1)}, \
outside ${(ms - stepMs - sampleMs).toFixed(1)}; ${versus(more[name])}
  share          ms   us/call   calls    GB/s    GOPS  op             type    form
${lines.join('\n')}
`;
  });
  return `\nload, in ms: ${load}\n${tables.join('')}`;
}

/**
 * Writes the trace and puts the file in place.
 * @param {import('./cli-output.js').OutputFile} file
 * @param {Parameters<typeof chromeTrace>[0]} model
 * @param {GenerationResult} result
 */
export function writeTrace(file, model, result) {
  const { traceEvents, ...rest } = chromeTrace(model, [result]);
  let text = `${JSON.stringify(rest).slice(0, -1)},"traceEvents":[`;
  traceEvents.forEach((event, i) => {
    text += `${i > 0 ? ',' : ''}\n${JSON.stringify(event)}`;
    if (text.length < WRITE_CHARS) return;
    file.write(Buffer.from(text));
    text = '';
  });
  file.write(Buffer.from(`${text}\n]}\n`));
  file.commit();
  return { file: file.path, events: traceEvents.length };
}
