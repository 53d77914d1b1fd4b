// The site of the pages in a process of its own, which sends models at a rate that all connections share:
//   node throttled.mjs FOLDER_OF_LINEAL BYTES_A_SECOND
// Says { url } to its parent, and answers each message { path } with what was sent of it since the last.
import { startSite } from './peers.mjs';

const [, , folder, rate] = process.argv;
const site = await startSite(folder, undefined, { cacheable: true, rate: Number(rate) });
process.on('message', ({ path }) => {
  const { bytes, requests } = site.stats(path);
  site.reset();
  process.send({ bytes, requests });
});
process.on('disconnect', () => process.exit());
process.send({ url: site.url });
