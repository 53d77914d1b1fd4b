// Files in Node, read straight into the memory that the core lends. Loaded
// only where there is a file system.
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { LinealError } from './errors.js';

export class FileSource {
  rangeRead = true;
  stats = { bytesRead: 0, requests: 0 };
  #fd = -1;

  /** @param {string} path */
  constructor(path) {
    this.name = path;
    try {
      // Without this a named pipe would hold the process until somebody writes to it.
      this.#fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    } catch (error) {
      const code = /** @type {NodeJS.ErrnoException} */ (error).code ?? '';
      const missing = code === 'ENOENT' || code === 'ENOTDIR';
      throw new LinealError(
        missing ? 'SOURCE_NOT_FOUND' : 'SOURCE_UNREADABLE',
        missing ? `there is no file '${path}'` : `the file '${path}' cannot be opened (${code})`,
        { detail: { source: path, system_code: code }, cause: error },
      );
    }
    const stat = fstatSync(this.#fd);
    if (!stat.isFile()) {
      this.close();
      throw new LinealError(
        'SOURCE_UNREADABLE',
        `'${path}' is ${stat.isDirectory() ? 'a folder' : 'not a regular file'}`,
        { detail: { source: path } },
      );
    }
    this.size = stat.size;
  }

  /**
   * @param {number} offset
   * @param {Uint8Array} target
   */
  readSync(offset, target) {
    let count;
    try {
      count = readSync(this.#fd, target, 0, target.length, offset);
    } catch (error) {
      const code = /** @type {NodeJS.ErrnoException} */ (error).code ?? '';
      throw new LinealError(
        'SOURCE_UNREADABLE',
        `reading '${this.name}' at byte ${offset} failed (${code})`,
        {
          detail: { source: this.name, offset, system_code: code },
          cause: error,
        },
      );
    }
    this.stats.requests++;
    this.stats.bytesRead += count;
    return count;
  }

  /** @param {number} offset @param {number} length */
  async read(offset, length) {
    const target = new Uint8Array(length);
    return target.subarray(0, this.readSync(offset, target));
  }

  close() {
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
  }
}
