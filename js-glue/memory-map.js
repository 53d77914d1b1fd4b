// A readable picture of linear memory, as planned or as it is.
import { badArgument } from './errors.js';

/** @typedef {import('./index.d.ts').MemoryRegion} MemoryRegion */

const BAR = 24;

const none = () => ({ bytes: 0, high_water_bytes: 0 });

/**
 * What regions take, by scope and by domain.
 * @param {readonly MemoryRegion[]} regions
 */
export function sums(regions) {
  const scopes = { model: none(), session: none(), step: none(), scratch: none() };
  const domains = { HEAP: none(), MAPPED: none() };
  for (const region of regions) {
    if (region.domain === 'STREAMED') continue;
    add(domains[region.domain], region);
    if (region.domain === 'HEAP') add(scopes[region.scope], region);
  }
  return { scopes, domains };
}

/**
 * @param {import('./index.d.ts').MemorySum} sum
 * @param {import('./index.d.ts').MemorySum} more
 */
function add(sum, more) {
  sum.bytes += more.bytes;
  sum.high_water_bytes += more.high_water_bytes;
}

/** @param {number} bytes */
function size(bytes) {
  const unit = bytes < 1024 ? 0 : Math.min(Math.floor(Math.log2(bytes) / 10), 4);
  return `${unit ? (bytes / 1024 ** unit).toFixed(1) : bytes} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

/** @param {number} bytes @param {number} total */
function bar(bytes, total) {
  return '#'.repeat(bytes > 0 ? Math.max(Math.round((bytes / total) * BAR), 1) : 0);
}

/**
 * @param {number} total
 * @param {{ scope: string, name: string, bytes: number, address: number | null }} region
 */
function line(total, { scope, name, bytes, address }) {
  const at = address === null ? '' : `0x${address.toString(16).padStart(8, '0')}`;
  return `  ${at.padEnd(12)}${size(bytes).padStart(11)}  ${scope.padEnd(8)} ${name.padEnd(8)} ${bar(bytes, total)}`.trimEnd();
}

/**
 * What is drawn: the rows of linear memory, and what is not in it.
 * @param {Parameters<typeof import('./index.d.ts').memoryMap>[0]} of
 */
export function memoryRows(of) {
  const total = 'hostBytes' in of ? of.hostBytes : of.total_bytes;
  const taken = of.regions.filter(({ bytes }) => bytes > 0);
  const heap = taken.filter(({ domain }) => domain === 'HEAP');
  const rest = total - heap.reduce((sum, { bytes }) => sum + bytes, 0);
  return {
    total_bytes: total,
    // Addresses come with the memory; until then the order is that in which it will be taken.
    regions: heap.sort((a, b) => (a.address ?? 0) - (b.address ?? 0)),
    /** The module's own data, its stack, rounding, what is free. */
    other_bytes: Math.max(rest, 0),
    outside: taken.filter(({ domain }) => domain !== 'HEAP'),
    ...sums(of.regions),
  };
}

/** @type {typeof import('./index.d.ts').memoryMap} */
export function memoryMap(of) {
  if (!Array.isArray(of?.regions)) throw badArgument('memoryMap takes an explanation, or what memory() gives');
  const { total_bytes: total, regions, other_bytes: other, outside, scopes } = memoryRows(of);
  const how = 'hostBytes' in of ? 'as it is' : 'as planned';
  const out = [
    `linear memory, ${how}: ${size(total)} (${total} bytes)`,
    ...regions.map((region) => line(total, region)),
    line(total, { scope: '', name: 'other', bytes: other, address: null }),
    '  (other: the module\'s own data, its stack, rounding, what is free)',
    ...outside.map(({ bytes, domain }) => `  not in linear memory: ${size(bytes)} ${domain}`),
    ...Object.entries(scopes).map(([name, { bytes }]) => `  scope ${name.padEnd(8)} ${size(bytes).padStart(11)}`),
  ];
  return `${out.join('\n')}\n`;
}
