// llama.cpp behind a process border: a crash fails one request, names the file, and the next
// request gets a new process.
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const CHILD = fileURLToPath(new URL('./oracle-child.mjs', import.meta.url));
const TIMEOUT_MS = 60000;
const STDERR_LINES = 4;

export class OracleProcess {
  #child;
  #waiting;
  #stderr = '';
  /** How often llama.cpp died. */
  crashes = 0;

  #start() {
    const child = fork(CHILD, { serialization: 'advanced', stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
    this.#child = child;
    this.#stderr = '';
    child.stderr.setEncoding('utf8');
    child.stderr.on('data', (text) => { this.#stderr = (this.#stderr + text).slice(-4000); });
    child.on('message', (message) => this.#settle(message));
    child.on('error', (error) => this.#settle({ error: error.message }));
    child.on('close', (code, signal) => {
      if (this.#child === child) this.#child = undefined;
      if (!this.#waiting) return;
      this.crashes++;
      this.#settle({ error: `llama.cpp ended with ${signal ?? `exit code ${code}`}`, crashed: true });
    });
    return new Promise((resolve, reject) => { this.#waiting = { resolve, reject }; });
  }

  #settle(message) {
    const waiting = this.#waiting;
    if (!waiting) return;
    this.#waiting = undefined;
    clearTimeout(waiting.timer);
    if (message.error === undefined) return void waiting.resolve(message);
    const tail = this.#stderr.trim().split('\n').slice(-STDERR_LINES).join(' | ');
    waiting.reject(Object.assign(new Error(tail ? `${message.error} (${tail})` : message.error), { crashed: message.crashed }));
  }

  /** Whether node-llama-cpp is there and runs on this machine. */
  async available() {
    if (this.#child) return true;
    return (await this.#start()).ready;
  }

  async #ask(request) {
    if (!await this.available()) throw new Error('node-llama-cpp is not installed for this machine');
    this.#stderr = '';
    const { value } = await new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#child?.kill('SIGKILL'), TIMEOUT_MS);
      this.#waiting = { resolve, reject, timer };
      this.#child.send(request);
    });
    return value;
  }

  /** Natural log-probabilities after each of the ids, an array of Float64Array [n_vocab]. */
  async logprobs(path, ids, context = 128) {
    const { rows, vocab } = await this.#ask({ kind: 'logprobs', path, ids: [...ids], context });
    return Array.from(ids, (_, i) => rows.subarray(i * vocab, (i + 1) * vocab));
  }

  /** {vector, ids}: the pooled embedding of a text, not normalised, and the tokens it is of. */
  embedding(path, text) {
    return this.#ask({ kind: 'embedding', path, text });
  }

  async close() {
    const child = this.#child;
    if (!child) return;
    this.#child = undefined;
    const closed = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await closed;
  }
}
