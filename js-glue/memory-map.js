// A readable picture of linear memory, as planned or as it is.

/** @typedef {import('./index.d.ts').MemoryRegion} MemoryRegion */

const BAR = 24;

/**
 * What regions take, by scope and by domain.
 * @param {readonly MemoryRegion[]} regions
 */
export function sums(regions) {
  /** @type {Record<string, import('./index.d.ts').MemorySum>} */ const scopes = {};
  /** @type {Record<string, import('./index.d.ts').MemorySum>} */ const domains = {};
  for (const region of regions) {
    add(domains, region.domain, region);
    if (region.domain === 'HEAP') add(scopes, region.scope, region);
  }
  return { scopes, domains };
}

/**
 * @param {Record<string, import('./index.d.ts').MemorySum>} table
 * @param {string} name
 * @param {import('./index.d.ts').MemorySum} more
 */
function add(table, name, more) {
  table[name] ??= { bytes: 0, high_water_bytes: 0 };
  table[name].bytes += more.bytes;
  table[name].high_water_bytes += more.high_water_bytes;
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
 * @param {Pick<MemoryRegion, 'scope' | 'name' | 'bytes' | 'address'>} region
 */
function line(total, { scope, name, bytes, address }) {
  const at = address === null ? '' : `0x${address.toString(16).padStart(8, '0')}`;
  return `  ${at.padEnd(12)}${size(bytes).padStart(11)}  ${scope.padEnd(8)} ${name.padEnd(8)} ${bar(bytes, total)}`.trimEnd();
}

/** @type {typeof import('./index.d.ts').memoryMap} */
export function memoryMap(of) {
  const known = 'hostBytes' in of;
  const total = known ? of.hostBytes : of.total_bytes;
  const heap = of.regions.filter((r) => r.domain === 'HEAP' && r.bytes > 0);
  const rest = total - heap.reduce((sum, r) => sum + r.bytes, 0);
  // Addresses come with the memory; until then the order is that in which it will be taken.
  const rows = [...heap].sort((a, b) => (a.address ?? 0) - (b.address ?? 0));
  const out = [
    `linear memory, ${known ? 'as it is' : 'as planned'}: ${size(total)} (${total} bytes)`,
    ...rows.map((region) => line(total, region)),
    line(total, { scope: '', name: 'other', bytes: Math.max(rest, 0), address: null }),
    '  (other: the module\'s own data, its stack, rounding, what is free)',
  ];
  for (const r of of.regions) {
    if (r.domain !== 'HEAP' && r.bytes > 0) out.push(`  not in linear memory: ${size(r.bytes)} ${r.domain}`);
  }
  for (const [name, { bytes }] of Object.entries(sums(of.regions).scopes))
    out.push(`  scope ${name.padEnd(8)} ${size(bytes).padStart(11)}`);
  return `${out.join('\n')}\n`;
}
