// A local HTTP server for tests: serves folders, files and buffers, counts
// what leaves it, and misbehaves on request.
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import zlib from 'node:zlib';

const MEDIA = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.mjs': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8', '.wasm': 'application/wasm', '.json': 'application/json', '.svg': 'image/svg+xml',
};

export const ISOLATED = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
};
export const STRICT_CSP = {
  'Content-Security-Policy':
    "default-src 'self'; worker-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; object-src 'none'",
};

/**
 * What one path may do wrong (all optional):
 *   status: number          answer with this status and `body`
 *   body, type              this text or buffer, with this Content-Type
 *   noRange: true           ignore Range: always 200 and the whole file
 *   noLength: true          chunked transfer, no Content-Length
 *   noHead: true            405 for HEAD
 *   contentRange: text      this Content-Range in place of the right one
 *   cutAt: n                close the connection once n bytes of the body were sent (in each answer)
 *   dieAt: n                once n bytes of the path were sent in all answers, close each, and all later ones at once
 *   truncateAt: n           the file itself ends at n: smaller Content-Length, too
 *   lieAbout: n             truncateAt with the full file's size in Content-Range
 *   chunk, delay            send in pieces of `chunk` bytes, `delay` ms apart
 *   drop: true              close the connection before any answer
 *   stallAt: n              stop sending once n bytes of the body were sent, and keep the connection open
 *   redirect: url           302 with this Location
 *   gzip: true              the whole file compressed, whatever was asked for; 'range': parts of the compressed file
 *   promise: n              Content-Length says n more (or less) than is sent
 *   headers: {}             added, last
 *   etag: text              ETag header, and If-Range is honoured
 * A function (request, attempt) => faults may stand in its place; attempt counts from 0.
 */

/**
 * mounts: {'/prefix/': folder | Buffer | file path}; the longest prefix wins. A Buffer or a file answers
 * its exact path only. Options: headers (added to every answer), faults: {'/path': faults}.
 * rate: bytes a second of all bodies together whose path begins with `rated`; 0: no limit. May be changed: server.rate.
 * Returns {url, port, stats(path), reset(), faults, rate, close()};
 * stats: {requests, bytes, most (answers under way at once), ranges: [{method, range, headers, status, sent}]}.
 */
export async function startServer(mounts, { headers = {}, faults = {}, rate = 0, rated = '/' } = {}) {
  let freeAt = 0; // when the line is free again
  /** Resolves when so many bytes have had their time on the line. */
  const pass = async (bytes) => {
    if (!(api.rate > 0)) return;
    freeAt = Math.max(freeAt, performance.now()) + (bytes / api.rate) * 1000;
    const ms = freeAt - performance.now();
    if (ms > 2) await new Promise((resolve) => { setTimeout(resolve, ms); });
  };
  const api = { rate };
  const log = new Map();
  const attempts = new Map();
  const server = http.createServer((request, response) => {
    answer(request, response).catch((error) => response.destroy(error));
  });

  function find(name) {
    const prefix = Object.keys(mounts).filter((p) => (p.endsWith('/') ? name.startsWith(p) : name === p))
      .sort((a, b) => b.length - a.length)[0];
    if (prefix === undefined) return null;
    const target = mounts[prefix];
    if (typeof target !== 'string') return { buffer: target, size: target.length };
    const file = prefix.endsWith('/') ? path.join(target, path.posix.normalize('/' + name.slice(prefix.length))) : target;
    try {
      const stat = fs.statSync(file);
      return stat.isFile() ? { file, size: stat.size } : null;
    } catch {
      return null;
    }
  }

  async function answer(request, response) {
    let name = decodeURIComponent(new URL(request.url, 'http://x').pathname);
    if (name.endsWith('/')) name += 'index.html';
    const attempt = attempts.get(name) ?? 0;
    attempts.set(name, attempt + 1);
    const fault = typeof faults[name] === 'function' ? faults[name](request, attempt) ?? {} : faults[name] ?? {};
    const entry = { method: request.method, range: request.headers.range, headers: request.headers, status: 0, sent: 0, open: true };
    if (!log.has(name)) log.set(name, []);
    log.get(name).push(entry);
    entry.most = log.get(name).filter(({ open }) => open).length;
    response.on('close', () => { entry.open = false; });
    const send = async (status, fields, size, read) => {
      entry.status = status;
      const all = { 'Cache-Control': 'no-store', ...headers, ...fields, ...(fault.headers ?? {}) };
      if (!fault.noLength && size !== undefined) all['Content-Length'] = size + (fault.promise ?? 0);
      response.writeHead(status, all);
      if (request.method === 'HEAD') { response.end(); return; }
      const slow = api.rate > 0 && name.startsWith(rated);
      const step = fault.chunk ?? (slow ? Math.min(Math.max(1 << 14, Math.ceil(api.rate / 200)), 1 << 18) : 1 << 18);
      for (let at = 0; at < size; at += step) {
        let piece = await read(at, Math.min(step, size - at));
        if (fault.cutAt !== undefined && entry.sent + piece.length >= fault.cutAt) {
          piece = piece.subarray(0, fault.cutAt - entry.sent);
          entry.sent += piece.length;
          response.write(piece, () => response.destroy());
          return;
        }
        if (fault.dieAt !== undefined && api.stats(name).bytes + piece.length >= fault.dieAt) {
          piece = piece.subarray(0, Math.max(fault.dieAt - api.stats(name).bytes, 0));
          entry.sent += piece.length;
          response.write(piece, () => response.destroy());
          return;
        }
        if (fault.stallAt !== undefined && entry.sent + piece.length >= fault.stallAt) {
          piece = piece.subarray(0, fault.stallAt - entry.sent);
          entry.sent += piece.length;
          if (piece.length > 0) response.write(piece);
          else response.flushHeaders();
          return;
        }
        if (slow) await pass(piece.length);
        if (response.destroyed) return;
        entry.sent += piece.length;
        if (!response.write(piece)) {
          await new Promise((resolve) => {
            const go = () => {
              response.off('drain', go).off('close', go);
              resolve();
            };
            response.on('drain', go).on('close', go);
          });
        }
        if (fault.delay) await new Promise((resolve) => { setTimeout(resolve, fault.delay); });
        if (response.destroyed) return;
      }
      // What was promised and does not come: the connection ends.
      response.end(() => { if (fault.promise > 0) request.socket.destroy(); });
    };
    const sendBody = (status, body, type) => {
      const data = Buffer.from(body);
      return send(status, { 'Content-Type': type }, data.length, async (at, n) => data.subarray(at, at + n));
    };

    if (fault.drop || (fault.dieAt !== undefined && api.stats(name).bytes >= fault.dieAt)) { request.socket.destroy(); return; }
    if (fault.redirect) {
      await send(302, { Location: fault.redirect }, 0, async () => Buffer.alloc(0));
      return;
    }
    if (fault.status !== undefined || fault.body !== undefined) {
      await sendBody(fault.status ?? 200, fault.body ?? `status ${fault.status}`, fault.type ?? 'text/html');
      return;
    }
    if (fault.noHead && request.method === 'HEAD') { await sendBody(405, '', 'text/plain'); return; }
    const found = find(name);
    if (!found) { await sendBody(404, '<!doctype html><title>404</title><p>Not found.', 'text/html'); return; }
    if (fault.gzip) {
      const packed = zlib.gzipSync(found.buffer ?? fs.readFileSync(found.file), { level: 1 });
      const asked = fault.gzip === 'range' && /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
      const from = asked ? Number(asked[1]) : 0;
      const to = asked && asked[2] !== '' ? Math.min(Number(asked[2]) + 1, packed.length) : packed.length;
      const range = asked ? { 'Content-Range': `bytes ${from}-${to - 1}/${packed.length}` } : {};
      await send(asked ? 206 : 200, { 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'gzip', ...range },
        to - from, async (at, n) => packed.subarray(from + at, from + at + n));
      return;
    }
    const real = found.size;
    const size = Math.min(real, fault.truncateAt ?? fault.lieAbout ?? real);
    const told = fault.lieAbout !== undefined ? real : size;
    const fields = { 'Content-Type': MEDIA[path.extname(name)] ?? 'application/octet-stream' };
    if (!fault.noRange) fields['Accept-Ranges'] = 'bytes';
    if (fault.etag) fields.ETag = fault.etag;
    const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    const ifRange = request.headers['if-range'];
    const useRange = match && !fault.noRange && !(ifRange && ifRange !== fault.etag);
    let begin = 0, end = size;
    if (useRange) {
      begin = Number(match[1]);
      if (match[2] !== '') end = Math.min(end, Number(match[2]) + 1);
      if (begin >= size) {
        await send(416, { 'Content-Range': `bytes */${told}` }, 0, async () => Buffer.alloc(0));
        return;
      }
      fields['Content-Range'] = fault.contentRange ?? `bytes ${begin}-${end - 1}/${told}`;
    }
    const handle = found.file && request.method !== 'HEAD' ? await fs.promises.open(found.file) : null;
    try {
      await send(useRange ? 206 : 200, fields, end - begin, async (at, n) => {
        if (!handle) return found.buffer.subarray(begin + at, begin + at + n);
        const buffer = Buffer.allocUnsafe(n);
        const { bytesRead } = await handle.read(buffer, 0, n, begin + at);
        return buffer.subarray(0, bytesRead);
      });
    } finally {
      await handle?.close();
    }
  }

  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const { port } = server.address();
  Object.assign(api, {
    url: `http://127.0.0.1:${port}`,
    port,
    faults,
    mounts,
    stats(name) {
      const ranges = log.get(name) ?? [];
      const most = ranges.reduce((a, r) => Math.max(a, r.most), 0);
      return { requests: ranges.length, bytes: ranges.reduce((a, r) => a + r.sent, 0), most, ranges };
    },
    reset() { log.clear(); attempts.clear(); },
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => { server.close(() => resolve()); });
    },
  });
  return api;
}
