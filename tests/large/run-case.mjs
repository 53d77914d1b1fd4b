// One case of big-model.mjs in this Node: JSON on the output. Started by memory64.test.mjs.
import * as lineal from '../../js-glue/index.js';
import { runCase } from './big-model.mjs';

const [name, options] = process.argv.slice(2);
const out = await runCase(lineal, name, JSON.parse(options));
out.residentBytes = process.resourceUsage().maxRSS * 1024;
process.stdout.write(JSON.stringify(out));
