// lineal in a page.
import { modelCache, open } from '/lineal/js-glue/index.js';
import { linealPeer } from '/bench/speak.js';
import { serve, storedFile } from '/bench/pages/page.js';

serve({
  forget: () => modelCache.clear(),
  open: (url, options) => linealPeer(open, url, options),
  // A returning visitor's file lies in the origin's private file system.
  store: (url) => storedFile(url).then(() => true),
  openStored: async (url, options) => linealPeer(open, await storedFile(url), options),
});
