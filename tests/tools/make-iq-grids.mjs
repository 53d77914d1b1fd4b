// Writes src/forms/iq_grids.c, the grids of the IQ types:
//   node tests/tools/make-iq-grids.mjs path/to/llama.cpp/ggml/src/ggml-common.h
// The grids are facts of the formats: what llama.cpp stores as 8 (or 4) bytes an
// entry has few different values, so an entry fits into 16 bits.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** name there, name here, values an entry, the values that occur. */
const GRIDS = [
  ['iq2xxs_grid', 'iq2_xxs_grid', 8, [8, 25, 43]],
  ['iq2xs_grid', 'iq2_xs_grid', 8, [8, 25, 43]],
  ['iq2s_grid', 'iq2_s_grid', 8, [8, 25, 43]],
  ['iq1s_grid', 'iq1_grid', 8, [255, 0, 1]],
  ['iq3xxs_grid', 'iq3_xxs_grid', 4, [4, 12, 20, 28, 36, 44, 52, 62]],
  ['iq3s_grid', 'iq3_s_grid', 4, [1, 3, 5, 7, 9, 11, 13, 15]],
];

const [source] = process.argv.slice(2);
if (!source) throw new Error('usage: make-iq-grids.mjs path/to/ggml-common.h');
const text = fs.readFileSync(source, 'utf8');

const tables = GRIDS.map(([theirs, ours, count, levels]) => {
  const body = new RegExp(`GGML_TABLE_BEGIN\\(uint\\d+_t, ${theirs}, \\w+\\)([^G]*)GGML_TABLE_END`).exec(text);
  if (!body) throw new Error(`${theirs} is not in ${source}`);
  const entries = [...body[1].matchAll(/0x([0-9a-f]+)/g)].map(([, hex]) => {
    let value = BigInt(`0x${hex}`);
    let entry = 0;
    for (let i = 0; i < count; i++, value >>= 8n) {
      const level = levels.indexOf(Number(value & 255n));
      if (level < 0) throw new Error(`${theirs} has the value ${value & 255n}`);
      entry |= level << (i * (16 / count));
    }
    return entry;
  });
  const lines = [];
  for (let i = 0; i < entries.length; i += 16) lines.push(`    ${entries.slice(i, i + 16).join(', ')},`);
  return `const uint16_t ${ours}[${entries.length}] = {\n${lines.join('\n')}\n};\n`;
});

const target = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../src/forms/iq_grids.c');
fs.writeFileSync(
  target,
  `/* Written by tests/tools/make-iq-grids.mjs. An entry: 8 codes of 2 bits (4 of 4
 * bits for iq3), the first in the lowest bits; what they mean: iq_grid.h. */
#include "iq_grid.h"

/* clang-format off */
${tables.join('\n')}/* clang-format on */
`,
);
