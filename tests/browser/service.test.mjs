// The page against the whole service with a real job: submitted by `lego`, planned, trained by real trainers on one agent.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { openPage, startBrowser } from './browser.mjs';
import { startService, writeTinyJob } from './service.mjs';

const { PAGE, PROGRAMS } = process.env;
const [server, agent, trainer, sim, lego] = PROGRAMS.split(':');
const MINUTES = 60_000;
let folder;
let service;
let browser;

before(async () => {
  folder = mkdtempSync(path.join(process.env.TEST_TMPDIR ?? os.tmpdir(), 'service-'));
  service = await startService({ server, agent, trainer, sim, lego }, folder, path.join(PAGE, 'dist'), 2);
  browser = await startBrowser(PAGE);
});
after(async () => {
  await browser?.close();
  const codes = await service?.end();
  rmSync(folder, { recursive: true, force: true });
  assert.deepEqual(codes, [0, 0]);
});

async function withPage(work) {
  const { page, errors, close } = await openPage(browser);
  page.setDefaultTimeout(3 * MINUTES);
  try {
    await work(page);
  } catch (error) {
    console.error(await page.evaluate(() => document.body.innerText), service.logs());
    throw error;
  }
  // A job has no plan and no flight record at first: 404.
  assert.deepEqual(errors.filter((error) => !/status of 404/.test(error)), []);
  await close();
}

test('a job from its submission to its end', () => withPage(async (page) => {
  await page.goto(service.base);
  await page.waitForSelector('text=No jobs yet');
  const [job] = /projects\/\S+/.exec(await service.lego('submit', writeTinyJob(folder, 'tiny', 100), '--name=tiny-fox'));
  await page.getByRole('link', { name: 'tiny-fox' }).click();  // it appears without a reload
  await page.waitForSelector('.page-head .badge:has-text("succeeded")');
  await page.waitForFunction(() => document.querySelectorAll('.chart canvas').length === 4);
  assert.match(await page.locator('.stat', { hasText: 'Step' }).first().innerText(), /100\s*\/ 100/);
  // The curves follow the job at a distance: the legend says how far they are.
  await page.waitForFunction(() => document.querySelector('.chart .u-legend .u-value')?.textContent === '100');
  const label = await page.locator('[role=img][aria-label^="Loss"]').getAttribute('aria-label');
  const [, loss, heldOut, entropy] = /train ([\d.]+), held-out ([\d.]+), unigram entropy ([\d.]+)/.exec(label);
  assert.ok(Number(loss) < Math.log(256) && Number(heldOut) < Math.log(256) && Number(entropy) > 2, label);
  const compared = () => page.locator('section', { hasText: 'Predicted beside measured' }).innerText();
  await page.waitForFunction(() => document.querySelectorAll('.plain td:last-child')[1]?.textContent.includes('%'));
  assert.match(await compared(), /step time\s+[\d.]+ (us|ms|s)\s+[\d.]+ (us|ms|s)\s+[+−±]/);
  assert.match(await compared(), /peak memory\s+[\d.,]+ (KiB|MiB)\s+[\d.,]+ (KiB|MiB)\s+[+−±]/);

  const memory = await page.locator('[role=img][aria-label^="Memory by category"]').getAttribute('aria-label');
  for (const category of ['activation', 'optimizer state', 'parameter'])
    assert.match(memory, new RegExp(`${category} [\\d.,]+ [KMG]iB`));

  await page.keyboard.press('2');
  await page.waitForSelector('.badge:has-text("chosen")');
  assert.match(
    await page.locator('.explanation').innerText(), /^The fastest recipe that fits is .+ s a step, of which \d+ % compute/);
  const plan = await (await fetch(`${service.base}/v1/${job}/plan`)).json();
  assert.ok(plan.ranked.length >= 1 && plan.space > plan.ranked.length);
  const rows = (header) => page.locator('table', { has: page.locator('th', { hasText: header }) }).locator('tbody tr').count();
  assert.deepEqual([await rows('MFU'), await rows('Why')], [plan.ranked.length, plan.rejected.length]);
  await page.keyboard.press('3');
  await page.waitForSelector('text=step-100');
  for (const state of ['submitted', 'planning', 'queued', 'leased', 'running', 'succeeded']) {
    assert.ok(await page.locator('.timeline .badge', { hasText: state }).count() >= 1, state);
  }
  await page.keyboard.press('4');
  await page.waitForSelector('.log:has-text("is committed")');
  await page.keyboard.press('5');
  await page.waitForSelector('text=No flight record');
}));

test('a running job is cancelled on its page', () => withPage(async (page) => {
  await service.lego('submit', writeTinyJob(folder, 'long', 100000), '--name=tiny-long');
  await page.goto(service.base);
  await page.getByRole('link', { name: 'tiny-long' }).click();
  await page.waitForFunction(
    () => Number.parseInt(document.querySelector('.stat-value')?.textContent.replaceAll(',', '') ?? '', 10) >= 5);
  await page.goto(`${service.base}/workers`);
  await page.waitForSelector('text=2 of 2 used');
  await page.goBack();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.click('dialog[open] button.filled');
  await page.waitForSelector('.page-head .badge:has-text("cancelled")');
  await page.goto(`${service.base}/workers`);
  await page.waitForSelector('text=0 of 2 used');
}));

test('what the server counts', async () => {
  const text = await (await fetch(`${service.base}/metrics`)).text();
  assert.match(text, /^legoai_jobs\{state="succeeded"\} 1$/m);
  assert.match(text, /^legoai_workers\{state="ready"\} 1$/m);
  assert.match(text, /^legoai_leases_total 2$/m);
  assert.equal(await (await fetch(`${service.base}/healthz`)).text(), 'ok\n');
});
