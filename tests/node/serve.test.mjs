// The server of the demo page: what it serves, and what it must not.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { startDemoSite } from '../lib/demo-site.mjs';

let site, port;
before(async () => {
  site = await startDemoSite();
  ({ port } = site);
});
after(() => site?.close());

/** As written: fetch would tidy the path up first. */
const get = (path) =>
  new Promise((resolve, reject) => {
    http
      .get({ host: '127.0.0.1', port, path, agent: false }, (response) => {
        let body = '';
        response.setEncoding('latin1').on('data', (data) => {
          body += data;
        });
        response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body }));
      })
      .on('error', reject);
  });

test('the page, its modules and its model, isolated', async () => {
  assert.equal((await get('/')).headers.location, '/web/');
  for (const path of ['/web/', '/web/app.js?v=1', '/web/x/../app.js', '/js-glue/index.js', '/dist/lineal-base.wasm']) {
    const { status, headers, body } = await get(path);
    assert.equal(status, 200, path);
    assert.equal(headers['cross-origin-opener-policy'], 'same-origin');
    assert.equal(headers['cross-origin-embedder-policy'], 'require-corp');
    assert.ok(body.length > 100);
  }
});

test('nothing else: no way up, no hidden file, in any spelling', async () => {
  for (const path of [
    '/package.json',
    '/web/../package.json',
    '/web/%2e%2e/package.json',
    '/web/%2E./package.json',
    '/web/..%2fpackage.json',
    '/web/%2e%2e%2fpackage.json',
    '/web/..%5cpackage.json',
    '/web//../../package.json',
    '//package.json',
    '/dist/../.git/HEAD',
    '/.git/HEAD',
    '/web/.git/HEAD',
    '/web/%2ehidden',
    '/src/lineal.h',
    '/web/%00',
    '/web/%',
    '/web/%ff',
    '/webx/',
  ]) {
    const { status, body } = await get(path);
    assert.equal(status, 404, path);
    assert.equal(body, 'not found\n', path);
  }
});
