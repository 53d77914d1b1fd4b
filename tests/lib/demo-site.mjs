// The demo page's own server, as `npm run web` starts it.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from './fixtures.mjs';

/** Starts it on a free port: { port, url (as it prints it), close() }. */
export async function startDemoSite(host = '127.0.0.1') {
  const { scripts } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
  const [node, ...script] = scripts.web.split(' ');
  if (node !== 'node') throw new Error(`npm run web is '${scripts.web}'`);
  const child = spawn(process.execPath, [...script, '--port', '0', '--host', host], { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  const url = await new Promise((resolve, reject) => {
    let out = '';
    child.stdout.on('data', (data) => {
      out += data;
      const match = /http:\S+\/web\//.exec(out);
      if (match) resolve(match[0]);
    });
    child.on('exit', (code) => reject(new Error(`it ended with code ${code}`)));
  });
  return { url, port: Number(new URL(url).port), close: () => child.kill() };
}
