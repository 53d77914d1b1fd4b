// What each kind of source must do, the same checks for all, in Node and in a
// page: so this file imports nothing.

/** A failed check. @param {boolean} holds @param {string} what */
function check(holds, what) {
  if (!holds) throw new Error(what);
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** The code that the work rejects with, or what it gave. */
async function codeOf(work) {
  try {
    return { result: await work() };
  } catch (error) {
    return { code: error.code, message: String(error.message), remedy: error.remedy };
  }
}

/** Watches progress: phases in order, numbers that never fall and never pass the total. */
function watchProgress() {
  const order = ['compile', 'header', 'weights', 'prefill'];
  const last = {};
  const seen = [];
  const told = [];
  return {
    told,
    phases: seen,
    report({ phase, loaded, total, bytesPerSecond, remainingMs, from }) {
      told.push({ phase, loaded, total });
      if (!seen.includes(phase)) seen.push(phase);
      check(order.includes(phase), `phase ${phase}`);
      check(loaded >= (last[phase] ?? 0), `${phase} went back from ${last[phase]} to ${loaded}`);
      check(total === undefined || loaded <= total, `${phase} is at ${loaded} of ${total}`);
      check(bytesPerSecond === undefined || bytesPerSecond >= 0, `rate ${bytesPerSecond}`);
      check(remainingMs === undefined || remainingMs >= 0, `remaining ${remainingMs}`);
      check([undefined, 'cache', 'network'].includes(from), `from ${from}`);
      last[phase] = loaded;
    },
  };
}

/**
 * Throws an error that says what a kind of source does wrong.
 * lineal: the module. kind: { make(files): source, of files [{ name, bytes }], one or the parts of one model;
 *   options; byName: whether the first part leads to the others; workers: false, true, both by default }.
 * model: { ids, tokens, file, parts, cut (a file that ends early), page (no model), empty (no byte) }, files as above.
 */
export async function checkSource({ open, openTokenizer, explain, inspect, LinealError }, { make, options = {}, byName = false, workers = [false, true] }, model) {
  const { ids, tokens, file, parts } = model;
  const run = async (source, more = {}) => {
    const progress = watchProgress();
    const opened = await open(source, { context: 64, ...options, ...more, onProgress: progress.report });
    try {
      const generation = opened.generate(ids, { maxTokens: tokens.length, ignoreEos: true, onProgress: progress.report });
      const result = await generation.done;
      await opened.loaded;
      const { planned, measured } = await opened.memory();
      check(same(planned, measured), 'memory is not as planned');
      return { tokens: result.tokens, progress };
    } finally {
      await opened.close();
      await opened.close();
    }
  };
  const gives = async (what, source, more) => {
    const got = await codeOf(() => run(source, more));
    check(same(got.result?.tokens, tokens), `${what}: ${JSON.stringify(got)}`);
    return got.result.progress;
  };
  const refuses = async (what, codes, work) => {
    const got = await codeOf(work);
    check(codes.includes(got.code), `${what}: ${JSON.stringify(got)}`);
    check(got.message.length > 10 && got.remedy.length > 5, `${what}: message and remedy: ${JSON.stringify(got)}`);
    return got;
  };

  for (const worker of workers) {
    for (const overlap of [false, true]) {
      const where = `worker ${worker}, overlap ${overlap}`;
      const how = { worker, overlap };
      const { phases, told } = await gives(`the whole, ${where}`, await make([file]), how);
      const wanted = ['compile', 'header', 'weights', 'prefill'];
      check(wanted.every((phase) => phases.includes(phase)), `${where}: phases ${phases}`);
      if (!overlap) check(same(phases, wanted), `${where}: phases in the order ${phases}`);
      for (const phase of ['weights', 'prefill']) {
        const end = told.findLast((p) => p.phase === phase);
        check(end.loaded === end.total && end.total > 0, `${where}: ${phase} ended at ${end.loaded} of ${end.total}`);
      }
      await gives(`parts, ${where}`, await make(parts), how);
      if (byName) await gives(`the first part, ${where}`, (await make(parts))[0], how);
      await refuses(`a file that ends early, ${where}`, ['GGUF_TRUNCATED', 'SOURCE_TRUNCATED'], async () => run(await make([model.cut]), how));
      await refuses(`no model, ${where}`, ['NOT_GGUF'], async () => run(await make([model.page]), how));
      const nothing = await refuses(`nothing, ${where}`, ['NOT_GGUF'], async () => run(await make([model.empty]), how));
      check(/ is empty|are none|before its first/.test(nothing.message) && !/HTML/.test(nothing.remedy), JSON.stringify(nothing));
      await refuses(`a part too few, ${where}`, ['SPLIT_MISMATCH'], async () => run(await make(parts.slice(0, 2)), how));
      const controller = new AbortController();
      await refuses(`an abort, ${where}`, ['ABORTED'], async () => {
        const opened = await open(await make([file]), {
          context: 64, ...options, ...how, signal: controller.signal,
          onProgress: ({ phase }) => { if (phase === 'header') controller.abort(); },
        });
        await opened.loaded.finally(() => opened.close());
      });
      await gives(`the whole after all that, ${where}`, await make([file]), how);
    }
  }
  const plan = await explain(await make([file]), { context: 64, ...options });
  check(plan.fits && plan.tensors.length > 0, 'explain');
  const { tensors } = await inspect(await make([file]), options);
  check(tensors.length === plan.tensors.length, 'inspect');
  const encoded = async (source) => {
    const tokenizer = await openTokenizer(source, options);
    try {
      return Array.from(await tokenizer.encode('hello you'));
    } finally {
      await tokenizer.close();
    }
  };
  const words = await encoded(await make([file]));
  check(words.length > 2, 'openTokenizer');
  check(same(await encoded(await make(parts)), words), 'openTokenizer of parts');
  if (byName) check(same(await encoded((await make(parts))[0]), words), 'openTokenizer of the first part');
  check(LinealError.prototype instanceof Error, 'errors are errors');
}
