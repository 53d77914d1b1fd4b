// One line on stderr that rewrites itself while a person watches: how far a
// load is, as a bar.

/** @typedef {import('./index.d.ts').Progress | import('./index.d.ts').PrefillProgress} Progress */

/** How long the bar may be; where it is narrow the numbers count more. */
const BARS = [24, 16, 8, 4];
const LABEL_CELLS = 8;

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** @param {number} bytes */
function unitOf(bytes) {
  let unit = 0;
  for (; bytes >= 1024 && unit < UNITS.length - 1; unit++) bytes /= 1024;
  return unit;
}

/** Without the unit. @param {number} bytes @param {number} unit */
const inUnit = (bytes, unit) => (bytes / 1024 ** unit).toFixed([0, 1, 1, 2, 2][unit]);

/** @param {number} bytes */
function size(bytes) {
  const unit = unitOf(bytes);
  return `${inUnit(bytes, unit)} ${UNITS[unit]}`;
}

/** @param {number} part bytes @param {number} whole */
const sizeOf = (part, whole) => `${inUnit(part, unitOf(whole))} of ${size(whole)}`;

/** @param {number} ms */
function duration(ms) {
  const s = Math.ceil(ms / 1000);
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m} min ${s % 60} s`;
  const h = Math.floor(m / 60);
  return h < 24 ? `${h} h ${m % 60} min` : `${Math.floor(h / 24)} d ${h % 24} h`;
}

/** @param {number} share 0 to 1 @param {number} cells */
function bar(share, cells) {
  const full = Math.floor(share * cells);
  return `[${'#'.repeat(full)}${'.'.repeat(cells - full)}]`;
}

/**
 * What may be told beside the bar: all there is to tell, then less and less of it.
 * @param {Progress} progress
 * @returns {string[]}
 */
function tellings(progress) {
  const { phase, loaded, total } = progress;
  if (phase === 'prefill') return [`${loaded} of ${total} tokens`, ''];
  const { from, bytesPerSecond, remainingMs } = progress;
  const amount = loaded > 0 ? (total ? sizeOf(loaded, total) : size(loaded)) : '';
  const origin = from === 'cache' ? 'from the cache' : '';
  const rate = bytesPerSecond ? `${size(Math.round(bytesPerSecond))}/s` : '';
  const left = remainingMs ? `${duration(remainingMs)} left` : '';
  return [[amount, origin, rate, left], [amount, rate, left], [amount, left], [left || amount], []].map((parts) =>
    parts.filter(Boolean).join(', '),
  );
}

/**
 * A load as one line of at most so many characters.
 * @param {Progress} progress
 * @param {number} columns
 */
export function progressText(progress, columns) {
  const { phase, loaded, total } = progress;
  const label = phase.padEnd(LABEL_CELLS);
  const share = total ? loaded / total : undefined;
  const percent = share === undefined ? '' : `${String(Math.floor(share * 100)).padStart(3)} %`;
  for (const told of tellings(progress)) {
    const lines =
      share === undefined
        ? [`${label} ${told}`]
        : BARS.map((cells) => `${label} ${bar(share, cells)} ${percent}  ${told}`);
    const fits = lines.find((line) => line.trimEnd().length <= columns);
    if (fits !== undefined) return fits.trimEnd();
  }
  return `${label} ${percent}`.slice(0, Math.max(columns, 0)).trimEnd();
}

/**
 * The line; it stays empty unless a person watches.
 * @param {{ quiet?: boolean }} values
 * @param {{ isTTY?: boolean, columns?: number, write: (text: string) => unknown }} stream
 */
export function progressLine(values, stream = process.stderr) {
  const shown = stream.isTTY === true && !values.quiet;
  let width = 0;
  let over = false;
  // The last column is left free: some terminals go on in the next line.
  const room = () => Math.max((stream.columns || 80) - 1, 0);
  /** @param {string} text */
  const show = (text) => {
    if (!shown || over) return;
    const line = text.slice(0, room());
    // What is wiped of the line before is no more than there is room for now.
    stream.write(`\r${line.padEnd(Math.min(width, room()))}`);
    width = line.length;
  };
  return {
    show,
    /** @param {Progress} progress */
    update(progress) {
      show(progressText(progress, room()));
    },
    clear() {
      if (width > 0) stream.write(`\r${' '.repeat(Math.min(width, room()))}\r`);
      width = 0;
    },
    /** As clear; nothing is shown any more. */
    end() {
      this.clear();
      over = true;
    },
  };
}
