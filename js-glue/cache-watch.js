// Whether it is worth waiting for the tab or process that downloads a model:
// one that hangs, or whose id another process has by now, writes nothing.

/** Who looks less often does not know what happened between. */
const AWAY_MS = 3000;

export class Watch {
  #entry;
  #patienceMs;
  #pulse = '';
  #since = 0;
  #looked = -Infinity;
  #rests = false;

  /**
   * @param {import('./store.js').StoreEntry} entry
   * @param {number} patienceMs
   */
  constructor(entry, patienceMs) {
    this.#entry = entry;
    this.#patienceMs = patienceMs;
  }

  get seconds() {
    return this.#patienceMs / 1000;
  }

  /** Whether nothing has been written for so long, as far as we looked. To be asked again and again. */
  async rests() {
    const pulse = await this.#entry.pulse().catch(() => '');
    const now = performance.now();
    // Where nothing has changed since we gave up, it does not matter how long ago that was.
    if (pulse !== this.#pulse || (!this.#rests && now - this.#looked > AWAY_MS)) {
      this.#pulse = pulse;
      this.#since = now;
    }
    this.#looked = now;
    this.#rests = now - this.#since >= this.#patienceMs;
    return this.#rests;
  }

  /** Whoever has the lock next is given time anew. */
  reset() {
    this.#rests = false;
  }
}
