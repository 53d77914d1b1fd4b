// hf:owner/repo/file.gguf[@revision]: a file of a repository on the model hub, or on a mirror of it.
import { badArgument } from './errors.js';

/** Where hf: addresses are looked up unless `hub` says otherwise. */
export const DEFAULT_HUB = 'https://huggingface.co';
const DEFAULT_REVISION = 'main';

const FORM = 'hf:owner/repo/path/file.gguf, or with @revision at its end';
const SCHEME = /^hf:(?:\/\/)?/i;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

/** @param {string} text */
export function isHubAddress(text) {
  return SCHEME.test(text);
}

/**
 * Where such a file is fetched.
 * @param {string} text hf:...
 * @param {string} hub as hubOption gave it
 * @returns {URL}
 */
export function hubUrl(text, hub) {
  // A revision may hold slashes (refs/pr/1), a file name no @.
  const [, path, revision = DEFAULT_REVISION] = /^([^@]*)(?:@(.+))?$/s.exec(text.replace(SCHEME, '')) ?? [];
  const [owner, repo, ...file] = (path ?? '').split('/');
  const whole = file.length > 0 && file.every((part) => part !== '' && part !== '.' && part !== '..');
  if (!NAME.test(owner) || !NAME.test(repo ?? '') || !whole || /[?#\\\s]|^\.|\.\./.test(revision))
    throw badArgument(`the address of a file on the hub is written ${FORM}`, { form: FORM });
  const encoded = [owner, repo, 'resolve', revision, ...file].map(encodeURIComponent).join('/');
  return new URL(`${hub}/${encoded}`);
}

/**
 * The base of hf: addresses, checked: without a slash at its end.
 * @param {string | URL} [hub]
 * @returns {string}
 */
export function hubOption(hub = DEFAULT_HUB) {
  let url;
  try {
    url = new URL(hub);
  } catch {
    url = undefined;
  }
  // A token belongs into fetch.headers: an address ends up in logs.
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash)
    throw badArgument('hub is the http or https address of a hub, without user, password or query', {
      option: 'hub',
    });
  return url.href.replace(/\/+$/, '');
}
