// A worker that reads a file of the origin's own file system straight into shared
// 64-bit memory, beyond 4 GiB, as cached models are read.
const BYTES = 2 ** 20;
const FAR = 5 * 2 ** 30;

const root = await navigator.storage.getDirectory();
const file = await root.getFileHandle('far.bin', { create: true });
const handle = await file.createSyncAccessHandle();
handle.write(Uint8Array.from({ length: BYTES }, (_, i) => (i * 31) % 251), { at: 0 });
const memory = new WebAssembly.Memory({ initial: 8n, maximum: 262144n, address: 'i64', shared: true });
memory.grow(BigInt(FAR / 65536 + 32));
const count = handle.read(new Uint8Array(memory.buffer, FAR + 64, BYTES), { at: 0 });
handle.close();
await root.removeEntry('far.bin');
const seen = new Uint8Array(memory.buffer, FAR, BYTES + 128);
let wrong = seen[63] + seen[BYTES + 64];
for (let i = 0; i < BYTES; i++) if (seen[64 + i] !== (i * 31) % 251) wrong++;
postMessage({ count, wrong });
