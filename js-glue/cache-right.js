// The right to write a copy: of all tabs and processes one has it, while bytes come, and lets it go when none have
// come for a while.

/** Who fetches nothing for so long lets others. */
const IDLE_MS = 3000;

/**
 * @typedef {object} Hooks
 * @property {() => Promise<void>} taken it is ours now
 * @property {(error: unknown) => Promise<void>} failed it could not be taken, or `taken` threw
 * @property {() => Promise<void>} idle time to let it go
 */

export class WriteRight {
  #entry;
  #hooks;
  /** @type {(() => Promise<void>) | undefined} */ #unlock;
  /** @type {Promise<boolean> | undefined} */ #taking;
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #timer;

  /** @param {import('./store.js').StoreEntry} entry @param {Hooks} hooks */
  constructor(entry, hooks) {
    this.#entry = entry;
    this.#hooks = hooks;
  }

  get ours() {
    return this.#unlock !== undefined;
  }

  /** Whether we have it; of several who ask at once, for all. */
  take() {
    this.#taking ??= (async () => {
      this.keep();
      try {
        if (this.ours) return true;
        if (await this.takeAsItIs()) await this.#hooks.taken();
      } catch (error) {
        await this.#hooks.failed(error);
      }
      return this.ours;
    })().finally(() => {
      this.#taking = undefined;
      this.letGoWhenIdle();
    });
    return this.#taking;
  }

  /** The same, whatever others have written meanwhile. */
  async takeAsItIs() {
    this.#unlock ??= await this.#entry.lock();
    return this.ours;
  }

  /** It is used: the time until it is let go begins anew. */
  keep() {
    clearTimeout(this.#timer);
  }

  letGoWhenIdle() {
    this.keep();
    if (!this.ours) return;
    this.#timer = setTimeout(() => this.#hooks.idle().catch(() => {}), IDLE_MS);
    /** @type {any} */ (this.#timer).unref?.();
  }

  async letGo() {
    const unlock = this.#unlock;
    this.#unlock = undefined;
    await unlock?.();
  }
}
