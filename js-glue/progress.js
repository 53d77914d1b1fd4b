// What is told of a load while it runs: bytes that only rise, how fast they
// come, and how long the rest will take.

/** @typedef {import('./index.d.ts').Progress} Progress */

const INTERVAL_MS = 30;
// The rate is that of the last seconds; before so much time has passed there is none.
const WINDOW_MS = 4000;
const SETTLE_MS = 250;

/** One phase: its bytes as they come, told at most every 30 ms. */
export class ProgressMeter {
  #report;
  #phase;
  #total;
  #from;
  #loaded = 0;
  #told = '';
  #toldAt = -Infinity;
  /** @type {{ at: number, loaded: number }[]} within the window, the oldest first */ #samples;

  /**
   * @param {((progress: Progress) => void) | undefined} report
   * @param {'header' | 'weights'} phase
   * @param {number} [total] bytes, if known
   * @param {number} [loaded] bytes that are there already
   * @param {() => Progress['from']} [from] where the last bytes came from
   */
  constructor(report, phase, total, loaded = 0, from = () => undefined) {
    this.#from = from;
    this.#report = report;
    this.#phase = phase;
    this.#total = total;
    this.#loaded = loaded;
    this.#samples = [{ at: performance.now(), loaded }];
  }

  /** So many more. @param {number} bytes */
  add(bytes) {
    this.#loaded = Math.min(this.#loaded + bytes, this.#total ?? Infinity);
    if (!this.#report) return;
    const now = performance.now();
    if (now - this.#toldAt >= INTERVAL_MS) this.#tell(now);
  }

  /** That was all. */
  end() {
    this.#total ??= this.#loaded;
    this.#loaded = this.#total;
    if (this.#told !== `${this.#loaded} ${this.#total}`) this.#tell(performance.now());
  }

  /** @param {number} now */
  #tell(now) {
    const loaded = this.#loaded;
    this.#told = `${loaded} ${this.#total}`;
    this.#toldAt = now;
    const samples = this.#samples;
    samples.push({ at: now, loaded });
    while (samples.length > 2 && now - samples[1].at >= WINDOW_MS) samples.shift();
    const [first] = samples;
    const ms = now - first.at;
    const total = this.#total;
    const bytesPerSecond = ms >= SETTLE_MS ? ((loaded - first.loaded) / ms) * 1000 : undefined;
    const left = total === undefined ? undefined : total - loaded;
    const remainingMs =
      left === 0 ? 0 : left !== undefined && bytesPerSecond ? (left / bytesPerSecond) * 1000 : undefined;
    this.#report?.({ phase: this.#phase, loaded, total, bytesPerSecond, remainingMs, from: this.#from() });
  }
}
