// What a plan says about memory beside what the model took. Imports nothing: pages load this file too.

/** The lines that must be the same to the byte. */
export const EXACT = ['weights', 'kv', 'slab', 'scratch', 'window', 'tables'];
/** How far the whole and the peak while loading may be from the plan. */
export const WITHIN = 0.02;

/**
 * Plans, opens, generates, and closes. `whileOpen`, if given, looks at the process or the tab meanwhile.
 * Sizes in bytes; peak: the largest that linear memory has been until the model was open.
 */
export async function planAndMeasure({ explain, open }, source, options, { ids = [1, 5, 9, 23], tokens = 4, whileOpen } = {}) {
  const plan = await explain(source, options);
  const model = await open(source, options);
  try {
    const opened = await model.memory();
    const generation = model.info.vocabSize > Math.max(...ids) ? model.generate(ids, { maxTokens: tokens, ignoreEos: true }) : undefined;
    const result = await generation?.done;
    const used = await model.memory();
    return {
      context: plan.context,
      kvType: plan.kv_type,
      threads: model.info.threads,
      module: model.info.module,
      planned: Object.fromEntries(plan.memory.map(({ name, bytes }) => [name, bytes])),
      table: opened.planned,
      measured: opened.measured,
      peak: Math.max(opened.hostBytes, ...model.info.loadPhases.map(({ memoryBytes }) => memoryBytes)),
      after: used.measured,
      growsLater: used.growCalls - opened.growCalls,
      allocations: result?.decodeAllocations ?? 0,
      outside: await whileOpen?.(),
    };
  } finally {
    await model.close();
  }
}

/** What is wrong with it: nothing, or texts. */
export function planFaults({ planned, table, measured, peak, after, growsLater, allocations }) {
  const faults = [];
  const check = (holds, text) => { if (!holds) faults.push(text); };
  for (const line of EXACT) check(measured[line] === table[line], `${line}: planned ${table[line]}, measured ${measured[line]}`);
  const explained = { ...planned, scratch: planned.scratch + planned.staging, tables: planned.header + planned.tables };
  for (const line of EXACT) check(explained[line] === table[line], `${line}: explain ${explained[line]}, open ${table[line]}`);
  check(planned.total === table.total, 'the totals of explain and of open');
  check(Math.abs(measured.total / planned.total - 1) <= WITHIN, `total: planned ${planned.total}, measured ${measured.total}`);
  check(Math.abs(peak / planned.total - 1) <= WITHIN, `peak while loading: planned ${planned.total}, measured ${peak}`);
  check(JSON.stringify(after) === JSON.stringify(measured), 'after a generation');
  check(growsLater === 0 && allocations === 0, `grew ${growsLater} times, ${allocations} allocations`);
  return faults;
}
