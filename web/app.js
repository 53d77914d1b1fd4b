// The demo page: public API only. One source, one plan, one open model at a
// time; whatever fails ends in the error panel, and the page stays usable.
import { explain, open, probeHost, LinealError } from '../js-glue/index.js';

/** @typedef {import('../js-glue/index.js').Explanation} Explanation */
/** @typedef {import('../js-glue/index.js').Model} Model */
/** @typedef {import('../js-glue/index.js').TensorPlacement} TensorPlacement */
/** @typedef {import('../js-glue/index.js').GenerationResult} GenerationResult */
/** @typedef {{ name: string, source: string | File[] }} Chosen */
/** @typedef {{ label: string, kind: string, bytes: number, text: string }} Line */

const BUNDLED = new URL('models/kjv-2.6m-Q4_K_M.gguf', import.meta.url).href;
const ROW_HEIGHT = 33; // of the tensor table, until a row has been measured

/**
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @returns {T}
 */
const $ = (id) => /** @type {T} */ (document.getElementById(id));
const input = (/** @type {string} */ id) => /** @type {HTMLInputElement} */ ($(id));
const button = (/** @type {string} */ id) => /** @type {HTMLButtonElement} */ ($(id));

// --- state ----------------------------------------------------------------------

/** @type {Chosen} */
let chosen = { name: 'kjv-2.6m-Q4_K_M.gguf (bundled)', source: BUNDLED };
/** @type {Explanation | null} */
let plan = null;
/** @type {Model | null} */
let model = null;
/** What the open model was made from. @type {Chosen | null} */
let opened = null;
/** @type {AbortController | null} */
let planning = null;
/** @type {AbortController | null} */
let loading = null;
/** @type {AbortController | null} */
let generating = null;

/** Shows the page's state and enables what makes sense in it. */
function refresh() {
  const state = generating ? 'generating' : loading ? 'loading' : planning ? 'planning' : model ? 'ready' : plan ? 'planned' : 'idle';
  document.body.dataset.state = state;
  button('load').disabled = Boolean(loading || planning || generating || !plan || !plan.fits);
  button('load').textContent = model && opened === chosen ? 'Load again' : 'Load the model';
  button('cancel-load').hidden = !loading;
  $('load-progress').hidden = !loading;
  button('generate').disabled = !model || Boolean(generating);
  button('stop').disabled = !generating;
  $('caret').hidden = !generating;
  $('plan').setAttribute('aria-busy', String(Boolean(planning)));
  $('ready-note').textContent = model && loading
    ? 'Ask already: the prompt passes each layer as soon as it has arrived.'
    : model
    ? `Ready: context ${count(model.info.context)}, ${model.info.module} build, loaded in ${duration(model.info.loadMs)}.`
    : 'Load a model first.';
}

// --- text -------------------------------------------------------------------------

const count = (/** @type {number} */ n) => n.toLocaleString('en-US');

function size(/** @type {number} */ bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let n = bytes;
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit++; }
  return `${unit === 0 ? n : n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0)} ${units[unit]}`;
}

const duration = (/** @type {number} */ ms) => (ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(2)} s`);

/**
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(string | Node)} children
 */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// --- errors -------------------------------------------------------------------------

/** @param {unknown} error @param {string} title */
function showError(error, title) {
  const e = LinealError.from(error);
  $('error-title').textContent = title;
  $('error-code').textContent = e.code;
  $('error-message').textContent = e.message;
  $('error-remedy').textContent = e.remedy;
  $('error').hidden = false;
  $('error').scrollIntoView({ block: 'nearest' });
}

function clearError() {
  $('error').hidden = true;
  for (const part of ['error-code', 'error-message', 'error-remedy']) $(part).textContent = '';
}

// --- planning -----------------------------------------------------------------------

/** The options of the form, for explain and open alike. */
function planOptions() {
  const context = input('context').value.trim();
  const memory = input('memory').value.trim();
  return {
    ...(context ? { context: Number(context) } : {}),
    ...(memory ? { memory } : {}),
    module: /** @type {'auto' | 'base' | 'relaxed'} */ (input('module').value),
    overlap: true,
  };
}

async function makePlan() {
  planning?.abort();
  const controller = new AbortController();
  planning = controller;
  plan = null;
  clearError();
  showVerdict('none', 'Reading the header…');
  refresh();
  try {
    const result = await explain(chosen.source, { ...planOptions(), signal: controller.signal });
    if (planning !== controller) return;
    plan = result;
    showPlan(result);
  } catch (error) {
    if (planning !== controller) return;
    $('plan-body').hidden = true;
    $('plan-empty').hidden = false;
    showVerdict('none', 'No plan');
    showError(error, 'This model cannot be planned.');
  } finally {
    if (planning === controller) {
      planning = null;
      refresh();
    }
  }
}

/** @param {'none' | 'fits' | 'no'} verdict @param {string} text */
function showVerdict(verdict, text) {
  $('verdict').dataset.verdict = verdict;
  $('verdict').textContent = text;
}

/** @type {Record<string, string>} */
const LABELS = {
  weights: 'Weights', weights_mapped: 'Weights, mapped', kv: 'KV cache', slab: 'Step slab', scratch: 'Scratch', header: 'Header',
  tables: 'Tables', module: 'Module and stack',
};

/** The lines of the memory table, without the total. @param {Explanation} explanation @returns {Line[]} */
function memoryLines(explanation) {
  return explanation.memory.filter((line) => line.name !== 'total').map(({ name, bytes, text }) => ({
    label: LABELS[name] ?? name, kind: name in LABELS ? name : 'other', bytes, text,
  }));
}

/** @param {Explanation} explanation */
function showPlan(explanation) {
  const lines = memoryLines(explanation);
  const total = explanation.total_bytes;
  showVerdict(explanation.fits ? 'fits' : 'no', explanation.fits ? 'Fits' : 'Does not fit');
  $('plan-empty').hidden = true;
  $('plan-body').hidden = false;
  $('plan-name').textContent = chosen.name;

  const stored = explanation.tensors.reduce((sum, t) => sum + t.stored_bytes, 0);
  const types = [...new Set(explanation.tensors.map((t) => t.type))].join(', ');
  const facts = [
    ['Peak memory', size(total)],
    ...(input('memory').value && explanation.limit_bytes !== null ? [['Allowed', size(explanation.limit_bytes)]] : []),
    ['To fetch', size(stored)], ['Context', `${count(explanation.context)} tokens`],
    ['Tensors', `${count(explanation.tensors.length)}`], ['Types', types], ['Build', explanation.module],
    ['Threads', `${explanation.threads}`],
  ];
  $('facts').replaceChildren(...facts.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));

  const shown = lines.filter((line) => line.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const sum = shown.reduce((all, line) => all + line.bytes, 0);
  $('bar').replaceChildren(...shown.map((line) => {
    const part = element('i', { 'data-kind': line.kind, title: `${line.label}: ${size(line.bytes)}` });
    part.style.flexGrow = String(line.bytes / sum);
    return part;
  }));
  $('bar').setAttribute('aria-label', `Memory: ${shown.map((line) => `${line.label} ${size(line.bytes)}`).join(', ')}`);
  $('legend').replaceChildren(...shown.map((line) => element('li', {}, element('i', { 'data-kind': line.kind }), line.label, ' ',
    element('b', {}, size(line.bytes)))));

  const body = /** @type {HTMLElement} */ ($('memory-table').querySelector('tbody'));
  const row = (/** @type {string} */ label, /** @type {number} */ bytes, /** @type {string} */ text, className = '') =>
    element('tr', { class: className }, element('td', {}, label), element('td', { class: 'number' }, count(bytes)),
      element('td', { class: 'number' }, size(bytes)), element('td', { class: 'why' }, text));
  body.replaceChildren(...lines.map((line) => row(line.label, line.bytes, line.text)),
    row('Total', total, 'also the peak while loading: weights are read straight into place', 'total'));

  list('suggestions', explanation.suggestions.map((s) => {
    const saving = s.saves_bytes > 0 ? `saves ${size(s.saves_bytes)}, ` : '';
    return `${s.text} (${saving}${s.sufficient ? 'enough' : 'not enough alone'})`;
  }));
  showWarnings(explanation);

  $('tensor-count').textContent = `(${count(explanation.tensors.length)})`;
  $('plan-text').textContent = explanation.text;
  showTensors();
}

/** @param {Explanation} explanation */
function showWarnings({ warnings, threads_reason: reason }) {
  const isHttp = reason.code === 'NOT_ISOLATED' && !isSecureContext;
  list('warnings', warnings.map(({ code, text }) =>
    (code === 'ONE_THREAD' && isHttp ? `${text}: that takes https, or the name localhost` : text)));
}

/** @param {string} id @param {string[]} texts */
function list(id, texts) {
  $(id).replaceChildren(...texts.map((text) => element('li', {}, text)));
  $(`${id}-box`).hidden = texts.length === 0;
}

// --- the tensor table: only the rows in view exist --------------------------------------

/** @type {TensorPlacement[]} */
let rows = [];
let rowHeight = ROW_HEIGHT;

function showTensors() {
  if (!plan || !(/** @type {HTMLDetailsElement} */ ($('tensor-details')).open)) return;
  const words = input('tensor-filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  rows = plan.tensors.filter((t) => {
    const text = `${t.name} ${t.type} ${t.kernel} ${t.domain} ${t.form}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  $('tensor-shown').textContent = words.length ? `${count(rows.length)} of ${count(plan.tensors.length)} shown` : '';
  $('tensor-scroll').scrollTop = 0;
  drawTensors();
}

function drawTensors() {
  const box = $('tensor-scroll');
  const body = /** @type {HTMLElement} */ ($('tensor-table').querySelector('tbody'));
  const first = Math.max(0, Math.floor(box.scrollTop / rowHeight) - 10);
  const last = Math.min(rows.length, first + Math.ceil(box.clientHeight / rowHeight) + 20);
  const gap = (/** @type {number} */ n) => {
    const cell = element('td', { colspan: '9', 'aria-hidden': 'true' });
    cell.style.height = `${n * rowHeight}px`;
    cell.style.padding = '0';
    return element('tr', {}, cell);
  };
  const drawn = rows.slice(first, last).map((t) => element('tr', {},
    element('td', { class: 'name' }, t.name), element('td', { class: 'code' }, t.type),
    element('td', { class: 'code' }, t.shape.join(' × ')), element('td', { class: 'code' }, `${t.domain}, ${t.scope}`),
    element('td', { class: 'code' }, t.form), element('td', { class: 'number' }, size(t.stored_bytes)),
    element('td', { class: 'number' }, size(t.resident_bytes)), element('td', { class: 'code' }, t.kernel),
    element('td', { class: 'why' }, t.reasons.map((r) => r.text).join('; '))));
  body.replaceChildren(...(first > 0 ? [gap(first)] : []), ...drawn, ...(last < rows.length ? [gap(rows.length - last)] : []));
  if (drawn.length) rowHeight = Math.max(20, drawn.reduce((sum, row) => sum + row.offsetHeight, 0) / drawn.length) || ROW_HEIGHT;
}

// --- loading -----------------------------------------------------------------------------

async function load() {
  const controller = new AbortController();
  loading = controller;
  clearError();
  showProgress({ phase: 'compile', loaded: 0, total: undefined });
  $('load-status').textContent = '';
  const previous = model;
  const wanted = chosen;
  model = null;
  opened = wanted;
  refresh();
  try {
    await previous?.close();
    model = await open(wanted.source, { ...planOptions(), signal: controller.signal, onProgress: showProgress });
    refresh();
    await model.loaded;
    $('load-status').textContent = `Loaded ${wanted.name}`;
    showWarnings(model.explanation);
  } catch (error) {
    const failed = model;
    model = null;
    await failed?.close();
    if (LinealError.from(error).code === 'ABORTED') $('load-status').textContent = 'Loading cancelled.';
    else showError(error, 'This model could not be loaded.');
  } finally {
    loading = null;
    refresh();
    if (model) {
      $('announce').textContent = 'The model is loaded.';
      if (document.activeElement === document.body) $('prompt').focus({ preventScroll: true });
    }
  }
}

const PHASES = { compile: 'Compiling the engine', header: 'Reading the header', weights: 'Weights' };

/** @param {import('../js-glue/index.js').Progress} progress */
function showProgress({ phase, loaded, total, from, bytesPerSecond, remainingMs }) {
  const bar = /** @type {HTMLProgressElement} */ ($('progress'));
  if (phase !== 'weights' || !total) {
    bar.removeAttribute('value');
    $('progress-text').textContent = `${PHASES[phase]}…`;
    return;
  }
  bar.value = loaded / total;
  const parts = [`${Math.floor((100 * loaded) / total)} % of ${size(total)}`];
  if (from === 'cache') parts.push('from the cache');
  if (bytesPerSecond) parts.push(`${size(bytesPerSecond)}/s`);
  if (remainingMs) parts.push(remainingMs < 1000 ? 'less than a second left' : `${Math.ceil(remainingMs / 1000)} s left`);
  $('progress-text').textContent = parts.join(', ');
}

// --- generating ----------------------------------------------------------------------------

async function generate() {
  if (!model || generating) return;
  const controller = new AbortController();
  generating = controller;
  clearError();
  const prompt = /** @type {HTMLTextAreaElement} */ ($('prompt')).value;
  $('output-empty').hidden = true;
  $('output-prompt').textContent = prompt;
  $('output-text').textContent = '';
  for (const id of ['speed', 'first', 'tokens', 'finish', 'allocations']) $(`stat-${id}`).textContent = '–';
  $('prompt-ids').textContent = '';
  $('token-ids').textContent = '';
  refresh();

  const text = document.createTextNode('');
  $('output-text').replaceChildren(text);
  const box = $('output-box');
  let tokens = 0;
  const begin = performance.now();
  let first = 0;
  try {
    const generation = model.generate(prompt, {
      maxTokens: Number(input('max-tokens').value) || 128,
      temperature: Number(input('temperature').value) || 0,
      seed: Number(input('seed').value) || 0,
      signal: controller.signal,
      onProgress: ({ loaded, total }) => {
        if (tokens === 0 && loaded < total) $('stat-first').textContent = `prompt: ${count(loaded)} of ${count(total)}`;
      },
      onToken: () => {
        tokens++;
        const now = performance.now();
        if (tokens === 1) {
          first = now;
          $('stat-first').textContent = duration(now - begin);
        }
        $('stat-tokens').textContent = count(tokens);
        if (now > first) $('stat-speed').textContent = `${(((tokens - 1) * 1000) / (now - first)).toFixed(1)} tokens/s`;
      },
    });
    for await (const piece of generation) {
      const follow = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
      text.appendData(piece);
      if (follow) box.scrollTop = box.scrollHeight;
    }
    showResult(await generation.done);
  } catch (error) {
    // Whoever cancels the load knows.
    const cancelled = LinealError.from(error).code === 'ABORTED' || !model;
    if (!cancelled) showError(error, 'The generation failed.');
    $('stat-finish').textContent = cancelled ? FINISH.aborted : 'error';
  } finally {
    generating = null;
    refresh();
  }
}

const FINISH = { eos: 'end of text', length: 'token limit', stop: 'stop text', aborted: 'stopped', context_full: 'context full' };

/** @param {GenerationResult} result */
function showResult(result) {
  const { timings } = result;
  $('stat-first').textContent = duration(timings.firstTokenMs);
  $('stat-tokens').textContent = `${count(result.promptTokens.length)} + ${count(result.tokens.length)}`;
  if (result.tokens.length > 1) $('stat-speed').textContent = `${timings.decodeTps.toFixed(1)} tokens/s`;
  $('stat-finish').textContent = FINISH[result.finishReason];
  $('stat-finish').dataset.reason = result.finishReason;
  $('stat-allocations').textContent = count(result.decodeAllocations);
  $('prompt-ids').textContent = result.promptTokens.join(' ');
  $('token-ids').textContent = result.tokens.join(' ');
  $('announce').textContent = `${count(result.tokens.length)} tokens generated.`;
}

// --- what the user does ------------------------------------------------------------------------

/** @param {Chosen} next @param {'use-bundled' | 'file-drop' | 'url'} from */
function choose(next, from) {
  chosen = next;
  $('use-bundled').setAttribute('aria-pressed', String(from === 'use-bundled'));
  $('file-drop').classList.toggle('chosen', from === 'file-drop');
  /** @type {HTMLElement} */ ($('url').closest('.source')).classList.toggle('chosen', from === 'url');
  makePlan();
}

/** @param {FileList | null | undefined} files */
function chooseFiles(files) {
  if (!files?.length) return;
  const names = [...files].map((file) => file.name).join(', ');
  $('file-name').textContent = names;
  choose({ name: `${names} (${size([...files].reduce((sum, file) => sum + file.size, 0))})`, source: [...files] }, 'file-drop');
}

function listen() {
  $('source-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const url = input('url').value.trim();
    if (url) choose({ name: url, source: url }, 'url');
    else makePlan();
  });
  $('use-bundled').addEventListener('click', () => choose({ name: 'kjv-2.6m-Q4_K_M.gguf (bundled)', source: BUNDLED }, 'use-bundled'));
  $('file').addEventListener('change', () => chooseFiles(input('file').files));
  for (const id of ['context', 'memory', 'module']) $(id).addEventListener('change', makePlan);
  $('error-close').addEventListener('click', clearError);
  $('load').addEventListener('click', load);
  $('cancel-load').addEventListener('click', () => loading?.abort());
  $('generate-form').addEventListener('submit', (event) => {
    event.preventDefault();
    generate();
  });
  $('stop').addEventListener('click', () => generating?.abort());
  $('prompt').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) generate();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') generating?.abort();
  });
  $('tensor-details').addEventListener('toggle', showTensors);
  $('tensor-filter').addEventListener('input', showTensors);
  $('tensor-scroll').addEventListener('scroll', drawTensors, { passive: true });

  let depth = 0; // of nested elements that the dragged file is over
  const veil = (/** @type {number} */ by) => {
    depth = Math.max(0, depth + by);
    $('drop-veil').hidden = depth === 0;
  };
  addEventListener('dragenter', (event) => { event.preventDefault(); veil(1); });
  addEventListener('dragleave', () => veil(-1));
  addEventListener('dragover', (event) => event.preventDefault());
  addEventListener('drop', (event) => {
    event.preventDefault();
    depth = 0;
    veil(0);
    chooseFiles(event.dataTransfer?.files);
  });
}

async function showHost() {
  try {
    const host = await probeHost();
    const cores = `${host.threads} ${host.threads === 1 ? 'core' : 'cores'}`;
    $('host').textContent = `${host.module} build · ${cores}${host.isolated ? '' : ', not isolated: 1 thread'}`;
    $('host').hidden = false;
  } catch {
    // the plan that follows says what is wrong
  }
}

listen();
showHost();
makePlan();
