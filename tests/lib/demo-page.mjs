// What a user does on the demo page.

/** For a page of playwright: { state, text, settled, load, run }. */
export function drive(page) {
  const text = (selector) => page.locator(selector).innerText();
  const leaves = (...names) => page.waitForFunction((list) => !list.includes(document.body.dataset.state), names);
  const idsOf = async (selector) => (await page.locator(selector).textContent()).split(' ').filter(Boolean).map(Number);
  return {
    text,
    /** Resolves once the page is in that state. */
    state: (name, timeout = 30_000) =>
      page.waitForFunction((wanted) => document.body.dataset.state === wanted, name, { timeout }),
    /** Resolves once there is a plan, or a reason why not. */
    settled: () => leaves('starting', 'planning'),
    async load() {
      await page.click('#load');
      await leaves('loading');
    },
    /** Generates: { ids, prompt, text, finish }. */
    async run({ prompt = 'In the beginning', maxTokens = 24 } = {}) {
      await page.fill('#prompt', prompt);
      await page.fill('#max-tokens', String(maxTokens));
      await page.click('#generate');
      await page.waitForFunction(() => document.body.dataset.state === 'ready' && document.querySelector('#stat-finish').dataset.reason);
      return {
        ids: await idsOf('#token-ids'), prompt: await idsOf('#prompt-ids'),
        text: await page.locator('#output-text').textContent(),
        finish: await page.locator('#stat-finish').getAttribute('data-reason'),
      };
    },
  };
}
