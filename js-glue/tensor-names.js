// What was meant by a glob that the name of no tensor follows.
import { LinealError } from './errors.js';
import { distance, isNear } from './nearest.js';

/** As find_rules of src/resolve.c says it. */
const NO_SUCH_NAME = /^no tensor's name is like '(.*)'$/s;
const SHOWN = 3;

/** All layers in one. @param {string} name */
const ofAnyLayer = (name) => name.replace(/\.\d+(?=[.*]|$)/g, '.*');

/** What tells it from other names: without the layer, and what nearly all end with. @param {string} glob */
const lettersOf = (glob) => glob.replace(/^blk\.\*?/, '').replace(/[.*](weight|bias)$/, '').replace(/[*?.]/g, '').length;

/**
 * Globs of names that there are and that are like a glob, the nearest first; none where none is.
 * @param {string} glob
 * @param {readonly string[]} names
 */
export function nearestNames(glob, names) {
  const wanted = ofAnyLayer(glob).replace(/^\*+|\*+$/g, '');
  if (!/[a-z]/i.test(wanted)) return []; // it is like any
  const letters = lettersOf(wanted);
  return [...new Set(names.map(ofAnyLayer))]
    .map((name) => ({ name, off: distance(wanted, name, true) }))
    .filter(({ off }) => isNear(off, letters))
    .sort((a, b) => a.off - b.off || a.name.length - b.name.length)
    .slice(0, SHOWN)
    .map(({ name }) => name);
}

/**
 * The error with a remedy that says which names there are, if that is what it is about.
 * @param {unknown} error that planning threw
 * @param {() => string[]} names of the tensors
 */
export function withNearestNames(error, names) {
  const glob = error instanceof LinealError ? NO_SUCH_NAME.exec(error.message)?.[1] : undefined;
  if (glob === undefined) return error;
  const { code, message, detail } = LinealError.from(error);
  const nearest = nearestNames(glob, names());
  const wildcards = '* stands for any characters and ? for one; inspect lists all names';
  const found = nearest.map((name) => `'${name}'`).join(', ');
  return new LinealError(code, message, {
    remedy: found === '' ? wildcards : `the nearest ${nearest.length > 1 ? 'are' : 'is'} ${found}, where ${wildcards}`,
    detail: { ...detail, glob, nearest },
  });
}
