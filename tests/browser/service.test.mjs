// The page against the whole service with a real job: submitted by `lego`, planned, trained by real trainers on one agent.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
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
  assert.deepEqual(errors, []);
  await close();
}

test('a job from its submission to its end', () => withPage(async (page) => {
  await page.goto(service.base);
  await page.waitForSelector('text=No jobs yet');
  const [job] = /projects\/\S+/.exec(await service.lego('submit', writeTinyJob(folder, 'tiny', 100, 'trace_steps = [90]'), '--name=tiny-fox'));
  await page.getByRole('link', { name: 'tiny-fox' }).click();  // it appears without a reload
  await page.waitForSelector('.page-head .badge:has-text("succeeded")');
  await page.waitForFunction(() => document.querySelectorAll('.chart canvas').length >= 6);
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
  const ranks = page.locator('section', { has: page.getByRole('heading', { name: 'Ranks', exact: true }) });
  await ranks.locator('tbody tr').nth(1).waitFor();
  const traces = page.locator('section', { has: page.getByRole('heading', { name: 'One step, predicted and traced' }) });
  await traces.getByRole('button', { name: 'Draw both' }).click();
  await traces.locator('canvas').waitFor();
  assert.match(
    await traces.locator('canvas').getAttribute('aria-label'),
    /predicted, stage \d.*: [\d.]+ [mu]?s; traced, step 90, rank \d, attempt 1: [\d.]+ [mu]?s/);
  // Where the numbers of calls differ both are shown, "8 / 9": what is trained is what was simulated.
  const partings = await traces.locator('table.partings').innerText();
  assert.match(partings, /aten::[\w.]+\s+\d+\s/);
  assert.doesNotMatch(partings, /\d+ \/ \d+/);
  await page.keyboard.press('4');
  await page.waitForSelector('text=step-100');
  for (const state of ['submitted', 'planning', 'queued', 'leased', 'running', 'succeeded']) {
    assert.ok(await page.locator('.timeline .badge', { hasText: state }).count() >= 1, state);
  }
  await page.keyboard.press('5');
  await page.waitForSelector('.log:has-text("is committed")');
  await page.keyboard.press('6');
  await page.waitForSelector('text=No flight record');
}));

test('a plan of a config.json that is dropped, and the job that it becomes', () => withPage(async (page) => {
  await page.goto(`${service.base}/plan`);
  await page.setInputFiles('input[type=file]', path.join(folder, 'tiny', 'config.json'));
  await page.waitForSelector('.config-name');
  await page.getByRole('combobox', { name: 'Device', exact: true }).selectOption('cpu');
  for (const [label, value] of [['Devices per node', 2], ['Global batch, sequences', 4], ['Sequence, tokens', 32]])
    await page.getByLabel(label).fill(String(value));
  await page.getByRole('button', { name: 'Plan', exact: true }).click();
  await page.waitForSelector('section.compare');
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('text=plan.json')]);
  const [best] = JSON.parse(readFileSync(await file.path(), 'utf8')).ranked;
  await page.click('[aria-label="Details of rank 1"]');
  await page.click('text=Submit this');
  await page.getByLabel(/Text, an absolute path/).fill(path.join(folder, 'text.txt'));
  await page.getByLabel('Steps').fill('20');
  await page.locator('dialog[open] button.primary').click();
  await page.waitForSelector('.page-head .badge:has-text("succeeded")');
  const job = await (await fetch(`${service.base}/v1${new URL(page.url()).pathname}`)).json();
  const decided = ({ parallelism, activation_checkpoint: { mode }, training }) =>
    ({ ...parallelism, mode, local: training.local_batch_size, precision: training.mixed_precision_param });
  assert.deepEqual(decided(job.chosen.recipe), decided(best.recipe));
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
  assert.match(text, /^legoai_jobs\{state="succeeded"\} 2$/m);
  assert.match(text, /^legoai_workers\{state="ready"\} 1$/m);
  assert.match(text, /^legoai_leases_total 3$/m);
  assert.equal(await (await fetch(`${service.base}/healthz`)).text(), 'ok\n');
});
