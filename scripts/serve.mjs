#!/usr/bin/env node
// Serves the demo page: web/, js-glue/ and dist/ with the headers that make a
// page cross-origin isolated, and with byte ranges.
//   node scripts/serve.mjs [--port N] [--host NAME]
import { createServer } from 'node:http';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import sirv from 'sirv';

const PUBLIC = ['web', 'js-glue', 'dist'];
const root = fileURLToPath(new URL('..', import.meta.url));
const { values } = parseArgs({
  options: {
    port: { type: 'string', default: process.env.PORT ?? '8080' },
    host: { type: 'string', default: 'localhost' },
  },
});

if (!existsSync(new URL('../dist/lineal-base.wasm', import.meta.url))) {
  console.error('dist/ has no modules yet: run `npm run build` first');
  process.exit(1);
}

const files = sirv(root, {
  dev: true, // a rebuilt module shows up without a restart
  setHeaders(response, path) {
    if (path.endsWith('.gguf')) response.setHeader('Content-Type', 'application/octet-stream');
    response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
    response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
    response.setHeader('Cross-Origin-Resource-Policy', 'same-origin');
    response.setHeader('Accept-Ranges', 'bytes');
    response.setHeader('Cache-Control', 'no-cache');
  },
});

/**
 * The path of a request as it will be looked up, without .. and escapes;
 * undefined where it names what is not for the page.
 * @param {string} url
 */
function publicPath(url) {
  try {
    const path = decodeURIComponent(new URL(`http://localhost${url}`).pathname);
    if (path === '/' || path === '/web') return path;
    const names = path.split('/').slice(1);
    const hidden = names.some((name) => name.startsWith('.') || /[\\\0]/.test(name));
    return PUBLIC.includes(names[0]) && names.length > 1 && !hidden ? path : undefined;
  } catch {
    return undefined;
  }
}

const server = createServer((request, response) => {
  const notFound = () => {
    response.writeHead(404).end('not found\n');
  };
  const path = publicPath(request.url ?? '/');
  if (path === '/' || path === '/web') {
    response.writeHead(302, { location: '/web/' }).end();
  } else if (path !== undefined) {
    request.url = encodeURI(path).replace(/[?#]/g, encodeURIComponent); // what was checked is what is served
    files(request, response, notFound);
  } else {
    notFound();
  }
});

let port = Number(values.port);
server.on('error', (/** @type {NodeJS.ErrnoException} */ error) => {
  if (error.code === 'EADDRINUSE' && port !== 0 && port < Number(values.port) + 20) {
    server.listen(++port, values.host);
  } else {
    console.error(error.message);
    process.exit(1);
  }
});
server.on('listening', () => {
  const address = server.address();
  const used = typeof address === 'object' && address !== null ? address.port : port;
  console.log(`lineal: http://${values.host}:${used}/web/   (Ctrl+C ends it)`);
});
server.listen(port, values.host);
