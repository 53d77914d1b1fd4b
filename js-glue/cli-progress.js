// One line on stderr that rewrites itself while a person watches: how far a
// load is, as a bar.

/** @typedef {import('./index.d.ts').Progress | import('./index.d.ts').PrefillProgress} Progress */

const BAR_CELLS = 24;
const LABEL_CELLS = 8;

/** @param {number} bytes */
function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit++) bytes /= 1024;
  return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
}

/** @param {number} ms */
function duration(ms) {
  const s = Math.ceil(ms / 1000);
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  return m < 60 ? `${m} min ${s % 60} s` : `${Math.floor(m / 60)} h ${m % 60} min`;
}

/** @param {number} share 0 to 1 */
function bar(share) {
  const full = Math.floor(share * BAR_CELLS);
  return `[${'#'.repeat(full)}${'.'.repeat(BAR_CELLS - full)}] ${String(Math.floor(share * 100)).padStart(3)} %`;
}

/**
 * A load as one line of at most so many characters.
 * @param {Progress} progress
 * @param {number} columns
 */
export function progressText(progress, columns) {
  const { phase, loaded, total } = progress;
  const label = phase.padEnd(LABEL_CELLS);
  const parts = [];
  if (progress.phase === 'prefill') {
    parts.push(`${loaded} of ${total} tokens`);
  } else {
    if (loaded > 0) parts.push(total ? `${size(loaded)} of ${size(total)}` : size(loaded));
    if (progress.from === 'cache') parts.push('from the cache');
    if (progress.bytesPerSecond) parts.push(`${size(Math.round(progress.bytesPerSecond))}/s`);
    if (progress.remainingMs) parts.push(`${duration(progress.remainingMs)} left`);
  }
  const text = parts.join(', ');
  const whole = total ? `${label} ${bar(loaded / total)}  ${text}` : `${label} ${text}`;
  // Where it is narrow the numbers count more than the picture.
  const fits = whole.length <= columns ? whole : `${label} ${text}`;
  return fits.slice(0, Math.max(columns, 0)).trimEnd();
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
  /** @param {string} text */
  const show = (text) => {
    if (!shown || over) return;
    stream.write(`\r${text.padEnd(width)}`);
    width = text.length;
  };
  return {
    show,
    /** @param {Progress} progress */
    update(progress) {
      // The last column is left free: some terminals go on in the next line.
      show(progressText(progress, (stream.columns || 80) - 1));
    },
    clear() {
      if (width > 0) stream.write(`\r${' '.repeat(width)}\r`);
      width = 0;
    },
    /** As clear; nothing is shown any more. */
    end() {
      this.clear();
      over = true;
    },
  };
}
