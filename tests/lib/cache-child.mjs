// A process of its own that downloads through the cache, to be killed or raced:
// node cache-child.mjs URL FOLDER. Prints how far it is after each read, then the
// SHA-256 of what it read.
import { createHash } from 'node:crypto';
import { cacheOptions, fetchOptions } from '../../js-glue/options.js';
import { describeSource, openSource } from '../../js-glue/source.js';

const [url, folder] = process.argv.slice(2);
const [part] = describeSource(url, { ...fetchOptions(), cache: cacheOptions(folder) });
const source = await openSource(part);
const hash = createHash('sha256');
let at = 0;
for (;;) {
  const length = 256 * 1024;
  let bytes;
  if (source.readSync) {
    bytes = new Uint8Array(length);
    bytes = bytes.subarray(0, source.readSync(at, bytes));
  } else {
    bytes = await (at === 0 ? source.read(at, length) : source.readForward(at, length));
  }
  if (bytes.length === 0) break;
  hash.update(bytes);
  if (at === 0) await source.confirm?.();
  at += bytes.length;
  console.log(at);
}
await source.finish?.();
await source.close();
console.log(JSON.stringify({ sha256: hash.digest('hex'), stats: source.stats, warnings: source.warnings }));
