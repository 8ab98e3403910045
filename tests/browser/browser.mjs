// Starts a server and a headless Chromium for tests and pictures of the page.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import path from 'node:path';

// The page's packages lie where tools/build_web has linked them.
export function loadPlaywright(pageFolder) {
  return createRequire(path.resolve(pageFolder, 'package.json'))('playwright-core');
}

// The server's first line of output is JSON with its port. `end` closes its standard input, which ends it.
export async function startServer(binary, args) {
  const child = spawn(binary, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  process.once('exit', () => child.kill('SIGKILL'));
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([
    new Promise((resolve) => lines.once('line', resolve)),
    ended.then((code) => { throw new Error(`${binary} ended with ${code} before it listened`); }),
  ]);
  return {
    ...JSON.parse(first),
    end: async () => {
      child.stdin.end();
      return ended;
    },
    kill: async () => {
      child.kill('SIGKILL');
      return ended;
    },
  };
}

// Ways in which the page is hard or impossible to use for some people, as axe finds them; those that it calls serious or critical.
export async function seriousFaults(page, pageFolder) {
  const axe = createRequire(path.resolve(pageFolder, 'package.json')).resolve('axe-core/axe.min.js');
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(readFileSync(axe, 'utf8'));
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${
      node.any.map((check) => check.message).join(' ')}`).join(' | ')}`);
}

export async function startBrowser(pageFolder) {
  const { chromium } = loadPlaywright(pageFolder);
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync'
    ],
  });
}

// A page whose errors, whatever their kind, are kept.
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && errors.push(`${message.text()} (${message.location().url})`));
  return { page, errors, close: () => context.close() };
}

// `work` on a page that has no errors. The browser reports every request that is refused as one; `allowed`: those that a test
// provokes.
export async function withSoundPage(browser, work, { allowed = null, ...options } = {}) {
  const { page, errors, close } = await openPage(browser, options);
  await work(page);
  assert.deepEqual(errors.filter((error) => !allowed?.test(error)), []);
  await close();
}

// The name of the one that is shown as `text`. `base`: the server's address.
export async function findJob(base, text) {
  const filter = encodeURIComponent(`display_name : "${text}"`);
  return (await (await fetch(`${base}/v1/projects/default/jobs?filter=${filter}`)).json()).jobs[0].name;
}
