// Runs dist/lineal-wasi.wasm under node:wasi: wasi-run.mjs FOLDER [ARGUMENT ...].
// FOLDER is preopened as /model.
import fs from 'node:fs';
import { WASI } from 'node:wasi';

const [folder, ...args] = process.argv.slice(2);
const wasi = new WASI({
  version: 'preview1',
  args: ['lineal', ...args],
  preopens: { '/model': folder },
  returnOnExit: true,
});
const module = await WebAssembly.compile(fs.readFileSync(new URL('../../dist/lineal-wasi.wasm', import.meta.url)));
process.exitCode = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
