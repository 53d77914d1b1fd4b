// The file that a command writes: complete or not there at all. What was there
// before stays until the new one is whole, and is never the model itself.
import {
  accessSync,
  chmodSync,
  closeSync,
  constants,
  lstatSync,
  openSync,
  realpathSync,
  renameSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { LinealError } from './index.js';
import { describeSource, partsByName } from './source.js';

/** @param {unknown} error */
const systemCode = (error) => String(/** @type {NodeJS.ErrnoException} */ (error)?.code ?? error);

/** @param {string} to @param {unknown} cause */
export function outputError(to, cause) {
  return new LinealError('OUTPUT_FAILED', `writing to ${to} failed (${systemCode(cause)})`, {
    detail: { output: to, system_code: systemCode(cause) },
    cause,
  });
}

/** @param {string} path */
function statOf(path) {
  try {
    return statSync(path, { bigint: true });
  } catch {
    return undefined;
  }
}

/**
 * Whether the path is a file of the model, under any name.
 * @param {import('node:fs').BigIntStats} target
 * @param {string} source
 */
function isModel(target, source) {
  return partsByName(describeSource(source)).some((part) => {
    const stat = part.kind === 'path' ? statOf(part.path) : undefined;
    return stat !== undefined && stat.dev === target.dev && stat.ino === target.ino;
  });
}

export class OutputFile {
  #path;
  /** @type {number | undefined} */ #fd;
  /**
   * What is written: a file beside the target, or a target that cannot be replaced, such as a device.
   * @type {string | undefined}
   */
  #written;
  /** @type {string | undefined} where the complete file goes; undefined: it is there already */ #target;

  /**
   * Ready to be written; what is there stays untouched.
   * @param {string} path
   * @param {string} source of the model
   * @param {string} [option] that gave the path
   */
  constructor(path, source, option = '--out') {
    this.#path = path;
    if (path === '') throw new LinealError('BAD_ARGUMENT', `${option} is empty`, { remedy: `give ${option} a file` });
    const existing = statOf(path);
    if (existing && isModel(existing, source)) {
      throw new LinealError('BAD_ARGUMENT', `'${path}' is the model itself`, {
        remedy: `give ${option} another file`,
      });
    }
    try {
      if (existing ? !existing.isFile() : lstatSync(path, { throwIfNoEntry: false })) {
        this.#written = path;
        this.#fd = openSync(path, 'w');
        return;
      }
      if (existing) accessSync(path, constants.W_OK);
      this.#target = existing ? realpathSync(path) : path; // a link stays a link
      const unique = `${process.pid}-${Date.now().toString(36)}`;
      const part = join(dirname(this.#target), `.${basename(this.#target)}.${unique}.part`);
      this.#fd = openSync(part, 'wx');
      this.#written = part;
      if (existing) chmodSync(part, Number(existing.mode & 0o7777n));
    } catch (error) {
      this.discard();
      throw new LinealError('BAD_ARGUMENT', `'${path}' cannot be written (${systemCode(error)})`, {
        remedy: `give ${option} a file in a folder that exists and that you may write`,
        cause: error,
      });
    }
  }

  get path() {
    return this.#path;
  }

  /** @param {Uint8Array} bytes */
  write(bytes) {
    try {
      for (let done = 0; done < bytes.length;) done += writeSync(this.#fd ?? -1, bytes, done);
    } catch (error) {
      throw outputError(`'${this.#path}'`, error);
    }
  }

  /** All is written: it takes its place. */
  commit() {
    try {
      this.#close();
      if (this.#target !== undefined) renameSync(this.#written ?? '', this.#target);
      this.#target = undefined;
    } catch (error) {
      throw outputError(`'${this.#path}'`, error);
    }
  }

  /** Leaves things as they were, unless it took its place. */
  discard() {
    try {
      this.#close();
    } catch {
      // Nothing of it is kept.
    }
    if (this.#target === undefined || this.#written === undefined) return;
    this.#target = undefined;
    try {
      unlinkSync(this.#written);
    } catch {
      // It was never there, or is gone.
    }
  }

  #close() {
    const fd = this.#fd;
    this.#fd = undefined;
    if (fd !== undefined) closeSync(fd);
  }
}
