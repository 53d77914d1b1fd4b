// What was meant by a glob that the name of no tensor follows.
import { LinealError } from './errors.js';
import { distance } from './options.js';

/** As check_rules of src/engine.c says it. */
const NO_SUCH_NAME = /^no tensor's name is like '(.*)'$/s;
const SHOWN = 3;

/** All layers in one. @param {string} name */
const ofAnyLayer = (name) => name.replace(/\.\d+(?=\.)/g, '.*');

/**
 * Globs of names that there are, the nearest to a glob first.
 * @param {string} glob
 * @param {readonly string[]} names
 */
export function nearestNames(glob, names) {
  const wanted = ofAnyLayer(glob);
  return [...new Set(names.map(ofAnyLayer))]
    .map((name) => ({ name, off: distance(wanted, name, true) }))
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
  return new LinealError(code, message, {
    remedy: `the nearest are ${nearest.map((name) => `'${name}'`).join(', ')}, where * stands for any characters and ? for one; inspect lists all names`,
    detail: { ...detail, glob, nearest },
  });
}
