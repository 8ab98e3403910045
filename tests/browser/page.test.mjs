// The page in a headless Chromium, against the service's HTTP over a real store (demo_server). Arguments by the environment:
// SERVER, PAGE (dashboards/web). Waits are for conditions; nothing asserts a time.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { findJob, openPage, seriousFaults, startBrowser, startServer, withSoundPage } from './browser.mjs';

const { SERVER, PAGE } = process.env;
const dist = path.join(PAGE, 'dist');
// What does not depend on the store is looked at over SQLite alone (page_postgres_test is this over PostgreSQL).
const testOfPageAlone = process.env.LEGOAI_TEST_STORE === 'postgresql' ? test.skip : test;
let server;
let browser;
let base;

before(async () => {
  server = await startServer(SERVER, ['--web', dist, '--jobs', '120']);
  base = `http://localhost:${server.port}`;
  browser = await startBrowser(PAGE);
});
after(async () => {
  await browser?.close();
  assert.equal(await server?.end(), 0);
});

const withPage = (work, options) => withSoundPage(browser, work, options);
const jobNamed = (text) => findJob(base, text);

// Keys that mean something together count within a second only: both in one go, whatever the machine is busy with.
const pressTogether = (page, keys) => page.evaluate((all) => {
  for (const key of all) document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
}, [...keys]);

test('jobs: state with its reason, progress, filters and pages in the address', () => withPage(async (page) => {
  await page.goto(base);
  await page.waitForSelector('text=llama-bible');
  assert.equal(await page.locator('.jobs tbody tr').count(), 50);
  assert.match(await page.locator('.pager').innerText(), /1–50 of 124 jobs/);
  const queued = page.locator('tr', { hasText: 'llama-large-batch' });
  assert.match(await queued.innerText(), /queued[\s\S]*no. 1[\s\S]*waits for 16 slots[\s\S]*01[0-9A-Z]{24}\s/);

  await page.getByRole('button', { name: 'Next', exact: true }).click();
  await page.waitForSelector('text=51–100 of 124 jobs');
  assert.match(page.url(), /page=2&token=/);
  const second = await page.locator('.jobs tbody tr').first().innerText();
  await page.reload();
  await page.waitForSelector('text=51–100 of 124 jobs');
  assert.equal(await page.locator('.jobs tbody tr').first().innerText(), second);
  await page.getByRole('button', { name: 'Next', exact: true }).click();
  await page.waitForSelector('text=101–124 of 124 jobs');
  assert.equal(await page.locator('button', { hasText: 'Next' }).isDisabled(), true);
  await page.getByRole('button', { name: 'Previous', exact: true }).click();
  await page.waitForSelector('text=51–100 of 124 jobs');
  await page.getByRole('button', { name: 'First', exact: true }).click();
  await page.waitForSelector('text=1–50 of 124 jobs');

  await page.selectOption('.filters select', 'failed');
  await page.waitForFunction(
    () => [...document.querySelectorAll('.jobs tbody .badge')].every((badge) => badge.textContent === 'failed'));
  assert.match(page.url(), /state=failed/);
  await page.keyboard.press('/');
  await page.keyboard.type('-hang');  // no part of an id
  await page.waitForURL(/q=-hang/);
  await page.waitForFunction(() => document.querySelectorAll('.jobs tbody tr').length === 1);
  await page.fill('input[type=search]', 'nobody');
  await page.waitForSelector('text=No job matches');
}));

test('jobs are found by their id, or a part of it, as it is copied from lego or a log', () => withPage(async (page) => {
  const name = server.running;
  const id = name.split('/').at(-1);
  await page.goto(base);
  for (const text of [id, name, id.slice(-8).toLowerCase(), ` ${id.slice(0, 20)}${id.slice(20)} `]) {
    await page.fill('input[type=search]', text);
    await page.waitForFunction((n) => document.querySelectorAll('.jobs tbody tr').length === n, 1);
    assert.match(await page.locator('.jobs tbody tr').innerText(), new RegExp(`llama-bible[\\s\\S]*${id}`));
    await page.fill('input[type=search]', '');
    await page.waitForSelector('text=1–50 of 124 jobs');
  }
  await page.locator('.jobs code', { hasText: id }).click();
  assert.equal(await page.evaluate(() => String(getSelection()).trim()), id);
  // A click on the id selects it; one on the row opens the job.
  assert.equal(new URL(page.url()).pathname, '/projects/default/jobs');
}));

// Changes are shown at most once a second; what the reader asks for is shown at once. The page's clock stands still here.
testOfPageAlone('the reader waits for no pause', () => withPage(async (page) => {
  await page.clock.install();
  await page.goto(base);
  await page.waitForSelector('text=1–50 of 124 jobs');
  await page.clock.pauseAt(Date.now() + 60_000);
  for (const range of ['51–100', '101–124']) {
    await page.getByRole('button', { name: 'Next', exact: true }).click();
    await page.clock.runFor(200); // of effects and timers without delay
    // An answer that is under way when the reader clicks ends first; then the clock must tick once more, and not a second.
    const shown = page.locator(`text=${range} of 124 jobs`);
    for (let i = 0; i < 400 && !(await shown.isVisible()); ++i) {
      await page.clock.runFor(1);
      await page.waitForTimeout(150);
    }
    assert.ok(await shown.isVisible(), range);
  }
}));

test('projects: a choice in the head, in the address, kept, and followed by lists, links and events', () => withPage(async (page) => {
  const choice = page.getByRole('combobox', { name: 'Project', exact: true });
  const rows = (n) => page.waitForFunction((count) => document.querySelectorAll('.jobs tbody tr').length === count, n);
  await page.goto(base);
  await page.waitForURL(/\/projects\/default\/jobs$/);
  await rows(50);
  assert.deepEqual(await choice.locator('option').allTextContents(), ['default', 'speech']);
  await page.selectOption('.filters select', 'failed');
  await choice.selectOption('speech');
  await page.waitForURL(/\/projects\/speech\/jobs\?state=failed$/);
  await rows(1);
  assert.match(await page.locator('.jobs tbody').innerText(), /whisper-2/);
  await page.selectOption('.filters select', '');
  await rows(3);

  // Of what happens in another project nothing is asked for.
  const stepOf = async () => (await (await fetch(`${base}/v1/${server.running}`)).json()).progress.step;
  const steps = async (n) => {
    for (const end = await stepOf() + n; await stepOf() < end;) await new Promise((resolve) => setTimeout(resolve, 100));
  };
  let asked = 0;
  page.on('request', (request) => { asked += /\/v1\/projects\/[^/]+\/jobs/.test(request.url()) ? 1 : 0; });
  // What is asked for when the stream of events opens may come late.
  for (let looks = 0; looks === 0 || (asked > 0 && looks < 10); looks++) {
    asked = 0;
    await steps(6);
  }
  assert.equal(asked, 0);
  const retried = (await (await fetch(`${base}/v1/projects/speech/jobs`)).json()).jobs.find((job) => job.state === 'failed');
  const again = await fetch(`${base}/v1/${retried.name}:retry`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ request_id: 'retried-once' }),
  });
  assert.equal(again.status, 200);
  await rows(4);

  // Links, and a page that names no project.
  await page.getByRole('link', { name: 'whisper-0' }).click();
  await page.waitForSelector('h1:has-text("whisper-0")');
  await page.locator('.crumbs').getByRole('link', { name: 'Jobs' }).click();
  await page.waitForURL(/\/projects\/speech\/jobs$/);
  await page.goto(base);
  await page.waitForURL(/\/projects\/speech\/jobs$/);
  await rows(4);
  await page.goto(`${base}/workers`);
  await choice.waitFor();
  assert.equal(await choice.inputValue(), 'speech');
  await page.getByRole('link', { name: 'Plan', exact: true }).click();
  await page.waitForURL(/\/projects\/speech\/plan$/);

  // A short address is of the reader's own project: here the one that was shown last.
  await page.goto(`${base}/jobs/${retried.name.split('/').at(-1)}?tab=history`);
  await page.waitForURL((url) => url.pathname === `/${retried.name}` && url.search === '?tab=history');
  await page.waitForSelector('h1:has-text("whisper-2")');

  // A job of one project is none of another, and its page shows its own.
  const id = server.running.split('/').at(-1);
  await page.goto(`${base}/projects/speech/jobs/${id}`);
  await page.waitForSelector('text=There is no such job');
  await page.goto(`${base}/${server.running}`);
  await page.waitForSelector('h1:has-text("llama-bible")');
  assert.equal(await choice.inputValue(), 'default');
  await choice.selectOption('speech');
  await page.waitForURL(/\/projects\/speech\/jobs$/);

  // One project alone is no choice, and the address stays short.
  await page.route('**/v1/projects', (route) => route.fulfill({ json: { projects: [{ name: 'projects/default' }] } }));
  await page.goto(base);
  await rows(50);
  assert.equal(await choice.count(), 0);
  assert.equal(new URL(page.url()).pathname, '/');
  // Nobody is asked of a project that its reader has no rights in, though it was the last that was shown to somebody here.
  await page.route('**/v1/projects', (route) => route.fulfill({ json: { projects: [{ name: 'projects/speech' }] } }));
  await page.evaluate(() => localStorage.setItem('project', 'default'));
  await page.goto(`${base}/jobs/${retried.name.split('/').at(-1)}`);
  await page.waitForSelector('h1:has-text("whisper-2")');
  assert.equal(new URL(page.url()).pathname, `/${retried.name}`);
  await page.goto(`${base}/projects/nobody/jobs`);
  await page.waitForSelector('text=No jobs yet');
  assert.equal(await choice.inputValue(), 'nobody');
}, { allowed: /status of 404/ }));

test('a hundred thousand jobs', async () => {
  const large = await startServer(SERVER, ['--web', dist, '--jobs', '100000']);
  await withPage(async (page) => {
    await page.goto(`http://localhost:${large.port}/`);
    await page.waitForSelector('text=1–50 of 100,004 jobs');
    await page.getByRole('button', { name: 'Next', exact: true }).click();
    await page.waitForSelector('text=51–100 of 100,004 jobs');
    await page.selectOption('.filters select', 'failed');
    await page.waitForSelector('text=1–50 of 20,001 jobs');
    await page.selectOption('.filters select', '');
    await page.fill('input[type=search]', 'sweep-54321');
    await page.waitForSelector('text=1–1 of 1 job');
    await page.fill('input[type=search]', '');
    await page.waitForSelector('text=1–50 of 100,004 jobs');
    const progress = page.locator('tr', { hasText: 'llama-bible' }).locator('td:nth-child(4) .sub');
    const before = await progress.innerText();
    await page.waitForFunction((old) => [...document.querySelectorAll('.jobs tbody tr')]
      .find((row) => row.innerText.includes('llama-bible')).querySelector('td:nth-child(4) .sub').innerText !== old, before);
  });
  assert.equal(await large.end(), 0);
});

test('a job: live, with charts, plan, history, logs', () => withPage(async (page) => {
  await page.goto(`${base}/${server.running}`);
  await page.waitForSelector('.chart canvas');
  assert.equal(await page.locator('.chart canvas').count(), 7);
  const step = () => page.locator('.stat-value').first().innerText().then((text) => Number.parseInt(text, 10));
  const first = await step();
  await page.waitForFunction((from) => Number.parseInt(document.querySelector('.stat-value').textContent, 10) > from, first);
  // The checkpoints have a call of their own, made once there are curves.
  await page.waitForSelector('[role=img][aria-label^="Loss"][aria-label*="checkpoint at step 150"]');
  assert.match(
    await page.locator('[role=img][aria-label^="Loss"]').getAttribute('aria-label'),
    /train \d.*held-out \d.*unigram entropy 4\.31.*attempt 2 goes on from step 50.*checkpoint at step 150/);
  assert.match(
    await page.locator('section', { hasText: 'Predicted beside measured' }).innerText(),
    /step time\s+420 ms\s+433 ms\s+−3.0 %/);
  assert.match(await page.locator('section', { hasText: 'Memory at its peak' }).innerText(), /optimizer state\s+36\.0 MiB/);
  assert.match(
    await page.locator('section', { hasText: 'Recipe' }).innerText(),
    /parallelism\s+shard 4\s+local batch\s+2 accumulated 2 times/);
  const loss = page.locator('.chart', { hasText: 'Loss' });
  assert.match(await loss.locator('.marks').innerText(), /restart[\s\S]*committed checkpoint/);
  const box = await loss.locator('.u-over').boundingBox();
  await page.mouse.move(box.x + 0.6 * box.width, box.y + box.height / 2);
  await page.waitForSelector('.tip:not([hidden])');
  assert.match(await loss.locator('.tip').innerText(), /^step \d+\ntrain \d\.\d{4}/);
  await page.mouse.move(1, 1);
  await page.waitForFunction(() => [...document.querySelectorAll('.tip')].every((tip) => tip.hidden));

  await page.keyboard.press('2');
  await page.waitForSelector('text=Why this recipe');
  assert.equal(await page.locator('section', { hasText: 'Ranking' }).locator('tbody tr').count(), 4);
  assert.match(await page.locator('tr', { hasText: 'chosen' }).innerText(), /shard 4\s+chosen\s+2\s+2\s+none\s+float32\s+420 ms/);
  await page.click('[aria-label="Details of rank 2"]');
  await page.waitForSelector('text=recipe.toml');
  await page.waitForSelector('text=does not divide the model\'s 4 key-value heads');

  await page.keyboard.press('3');
  await page.waitForSelector('#tab-step[aria-selected=true]');
  await page.waitForSelector('text=Where the time of a step goes');

  await page.keyboard.press('4');
  await page.waitForSelector('text=has not been heard of for 10 s');
  await page.waitForSelector('text=checkpoints/step-150');
  assert.match(await page.locator('tr', { hasText: 'shard 4' }).first().innerText(), /50 → \d/);
  assert.ok(await page.locator('.timeline li').count() >= 9);

  await page.keyboard.press('5');
  await page.waitForSelector('.log');
  const line = (await page.locator('.log').last().innerText()).trim();
  await page.waitForFunction((old) => [...document.querySelectorAll('.log')].at(-1).innerText.trim() !== old, line);
  await page.selectOption('main select', '2');
  await page.waitForFunction(() => {
    const shown = [...document.querySelectorAll('.log-rank')];
    return shown.length > 0 && shown.every((rank) => rank.textContent === '2');
  });
  assert.match(page.url(), /tab=logs&rank=2/);
}));

test('a step: where its time goes, rank by rank, predicted above traced', () => withPage(async (page) => {
  await page.goto(`${base}/${server.running}?tab=step`);
  const section = (title) => page.locator('section', { has: page.getByRole('heading', { name: title, exact: true }) });
  const breakdown = section('Where the time of a step goes');
  await breakdown.locator('svg .column').first().waitFor();
  const latest = await breakdown.locator('.told').innerText();
  assert.match(latest, /^steps? [\d,–]+: 4\d\d ms: data [\d.]+ ms, forward 1\d\d ms, backward 2\d\d ms, optimizer [\d.]+ ms/);
  assert.match(latest, /exposed communication [\d.]+ ms \(11\.\d %\)$/);
  await breakdown.locator('svg .column').first().hover();
  assert.match(await breakdown.locator('.told').innerText(), /^steps 1–\d/);
  assert.match(
    await page.locator('.stats', { hasText: 'HFU' }).innerText(), /MFU\s+4\d\.\d %\s+predicted 47\.0 %\s+HFU\s+[56]\d\.\d %/);
  assert.match(await page.locator('.stats', { hasText: 'HFU' }).innerText(), /Exposed\s+9\.\d %\s+the mean of all ranks/i);

  const ranks = section('Ranks');
  assert.equal(await ranks.locator('tbody tr').count(), 4);
  assert.match(await ranks.innerText(), /Rank 2 takes [67]\.\d % longer than the mean of the others/);
  assert.match(await ranks.locator('tbody tr').nth(2).innerText(), /^rank 2\s+4\d\d ms.*132 MiB/s);
  const tint = (row) =>
    ranks.locator('tbody tr').nth(row).locator('td').first().evaluate((cell) => getComputedStyle(cell).backgroundColor);
  assert.notEqual(await tint(2), await tint(0));
  const history = section('Ranks over the last reports');
  assert.equal(await history.locator('svg .heat-cell').count(), 64);
  await history.locator('select').selectOption('exposed_communication_seconds');
  assert.match(
    await history.locator('svg').getAttribute('aria-label'),
    /^exposed communication of 4 ranks in 16 reports: from 1\d\.\d ms to 4\d\.\d ms/);
  const collectives = section('Collectives');
  assert.match(
    await collectives.locator('tbody tr').first().innerText(),
    /^reduce scatter\s+dp_shard\s+13\s+.*48\.6 %\s+rank \d, 3\d\.\d ms/s);

  const traces = section('One step, predicted and traced');
  assert.equal(await traces.locator('select option').count(), 4);
  assert.match(await traces.innerText(), /step 120, rank 0, attempt 2/);
  for (const link of ['predicted.json.gz', 'traced.json.gz']) {
    const [download] = await Promise.all([page.waitForEvent('download'), traces.getByRole('link', { name: link }).click()]);
    assert.match(download.suggestedFilename(), /^(01[0-9A-Z]{24}-predicted|step-120-rank-0)\.json\.gz$/);
    const content = JSON.parse(gunzipSync(readFileSync(await download.path())).toString());
    assert.ok(content.traceEvents.some((event) => event.name === 'aten::mm'));
  }
  await traces.getByRole('button', { name: 'Draw both' }).click();
  const canvas = traces.locator('canvas');
  await canvas.waitFor();
  assert.match(
    await canvas.getAttribute('aria-label'),
    /predicted, stage 0 \(rank 0\): [\d.]+ [mu]s; traced, step 120, rank 0, attempt 2: [\d.]+ [mu]s/);
  const busy = await traces.locator('table.streams').innerText();
  assert.match(busy, /the whole step\s+[\d.]+ [mu]s\s+[\d.]+ [mu]s\s+−\d+\.\d %/);
  for (const stream of ['phases and modules', 'compute', 'all_gather', 'reduce_scatter']) assert.match(busy, new RegExp(stream));
  assert.match(await traces.locator('table.partings').innerText(), /aten::mm\s+36\s+/);
  // A slice says what it is; dragging shows a part, and the buttons all again.
  const told = () => traces.locator('.told').innerText();
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  await page.mouse.move(box.x + 160, box.y + 22 + 22 + 2.5 * 19);
  await page.waitForFunction(() => document.querySelector('.timeline-box .told').textContent.startsWith('compute: aten::'));
  assert.match(await told(), /^compute: aten::\w+.*, [\d.]+ us from [\d.]+ [mu]s on; \w+, .*microbatch \d; bfloat16/);
  const all = traces.getByRole('button', { name: 'All', exact: true });
  assert.equal(await all.isDisabled(), true);
  await page.mouse.down();
  await page.mouse.move(box.x + 420, box.y + 80, { steps: 4 });
  await page.mouse.up();
  await page.waitForFunction(
    () => [...document.querySelectorAll('.timeline-box button')]
      .some((button) => button.textContent === 'All' && !button.disabled));
  await traces.getByRole('button', { name: 'Later →' }).click();
  await traces.getByRole('button', { name: 'Zoom in' }).click();
  await all.click();
  assert.equal(await all.isDisabled(), true);
  // Another trace, of the other stage of the pipeline: the prediction that stands for it comes along.
  await traces.locator('select').selectOption({ index: 0 });
  await page.waitForFunction(
    () => document.querySelector('.timeline-box canvas')?.getAttribute('aria-label').includes('stage 1 (rank 2)'));
}));

test('where no step was traced the page says what to ask for', async () => {
  const failed = await jobNamed('llama-hang');
  await withPage(async (page) => {
    await page.goto(`${base}/${failed}?tab=step`);
    await page.waitForSelector('text=No step of this job was traced');
    assert.match(await page.locator('.empty').last().innerText(), /metrics\.trace_steps names the steps to trace/);
    // It has a recipe, and no plan that says for what: the refusal has a reason.
    await page.getByRole('button', { name: 'Draw the predicted step' }).click();
    await page.waitForSelector('text=has no recipe whose step could be predicted');
  }, { allowed: /404/ });
  await withPage(async (page) => {
    await page.goto(`${base}/${await jobNamed('llama-large-batch')}?tab=step`);
    await page.waitForSelector('text=there is no predicted step');
    await page.waitForSelector('text=Nothing is known of it yet');
    await page.waitForSelector('text=No report says how the ranks spent their time');
  });
});

test('a flight record names the rank and the collective', async () => {
  const failed = await jobNamed('llama-hang');
  await withPage(async (page) => {
    await page.goto(`${base}/${failed}?tab=flight`);
    await page.waitForSelector('text=Rank 1 is blamed, at all_gather 17 of dp_shard');
    await page.waitForSelector('text=collective state mismatch');
    const finding = await page.locator('section', { hasText: 'Findings' }).locator('tbody tr').innerText();
    assert.match(finding, /^rank 1\s+all_gather 17 of dp_shard\s+rank 1\s+collective state mismatch/);
    assert.match(
      await page.locator('section', { hasText: 'Verdict' }).first().innerText(), /rank 1 has not entered all_gather 17/);
    assert.match(
      await page.locator('tr.blamed').innerText(),
      /rank 1\s+blamed\s+gloo:all_gather\s+16\s+dp_shard\s+completed\s+1 collective/);
  });
});

test('planning shows how far it is', async () => {
  const planning = await jobNamed('gpt2-owt');
  await withPage(async (page) => {
    await page.goto(`${base}/${planning}`);
    await page.waitForSelector('text=61 of 208 candidates simulated');
    const recipe = await page.locator('section', { hasText: 'Recipe' }).innerText();
    assert.match(
      recipe, /Not planned yet; what was asked for:[\s\S]*global batch\s+\d+ sequences of \d+ tokens[\s\S]*constraints\s+none/);
    assert.doesNotMatch(recipe, /local batch|parallelism|precision/); // the planner's to say
  });
});

test('workers show how much of their machines is in use', () => withPage(async (page) => {
  await page.goto(`${base}/workers`);
  const row = page.locator('tr', { hasText: 'node-1' });
  await row.waitFor();
  assert.match(await row.innerText(), /Processor: 87\.5 %/);
  assert.match(await row.innerText(), /Memory: 16\.0 GiB of 64\.0 GiB/);
  assert.equal(await row.getByRole('progressbar', { name: 'Processor of node-1 in use' }).getAttribute('aria-valuenow'), '88');
  assert.doesNotMatch(await page.locator('tr', { hasText: 'node-4' }).innerText(), /Processor/, 'it is lost');
}));

test('what is wrong with a worker, and what its check found', () => withPage(async (page) => {
  await page.goto(`${base}/workers`);
  const row = page.locator('tr', { hasText: 'node-2' });
  await row.waitFor();
  assert.match(await row.innerText(), /1 faulty, given nothing new/);
  assert.match(await row.innerText(), /slot 5: its driver told of Xid 79/);
  assert.doesNotMatch(await row.innerText(), /disk: passed/, 'it is folded');
  await row.getByText('check passed').click();
  await row.getByText('disk: passed').waitFor();
  assert.match(await row.innerText(), /disk: passed in 1\.5 s, 500 MB\/s written/);
  assert.match(await row.innerText(), /all_gather of slots 0 and 1: passed in 1\.5 s, 200 GB\/s received/);
  await row.getByRole('button', { name: 'Check', exact: true }).click();
  await page.locator('dialog[open] button.primary').click();
  await page.locator('dialog[open]').waitFor({ state: 'detached' });
}));

test('workers are drained and taken back, after a question', () => withPage(async (page) => {
  await page.goto(`${base}/workers`);
  const row = page.locator('tr', { hasText: 'node-2' });
  await row.getByRole('button', { name: 'Drain', exact: true }).click();
  await page.locator('dialog[open]').getByRole('button', { name: 'Back' }).click();
  assert.match(await row.innerText(), /ready/);
  await row.getByRole('button', { name: 'Drain', exact: true }).click();
  await page.locator('dialog[open] button.primary').click();
  await row.locator('.badge', { hasText: 'draining' }).waitFor();
  await row.getByRole('button', { name: 'Undrain', exact: true }).click();
  await page.locator('dialog[open] button.primary').click();
  await row.locator('.badge', { hasText: 'ready' }).waitFor();
}));

testOfPageAlone('the keyboard reaches everything', () => withPage(async (page) => {
  await page.goto(base);
  await page.waitForSelector('.jobs tbody tr');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  assert.match(await page.locator('tr.selected').innerText(), /llama-bible/);
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:has-text("llama-bible")');
  await page.focus('#tab-overview');
  await page.keyboard.press('ArrowRight');
  await page.waitForSelector('#tab-plan[aria-selected=true]:focus');
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  await page.waitForSelector('#tab-flight[aria-selected=true]:focus');
  await pressTogether(page, 'gw');
  await page.waitForSelector('h1:has-text("Workers")');
  await page.keyboard.press('?');
  await page.waitForSelector('dialog[open] >> text=next, previous row');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => !document.querySelector('dialog[open]'));  // keys are the dialog's as long as it is open
  await pressTogether(page, 'gj');
  await page.waitForSelector('h1:has-text("Jobs")');
  await page.goBack();
  await page.waitForSelector('h1:has-text("Workers")');
}));

testOfPageAlone('the theme follows the system, and a choice is kept', () => withPage(async (page) => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.goto(base);
  const dark = await background();
  await page.click('[aria-label="Use the light theme"]');
  const light = await background();
  assert.notEqual(light, dark);
  await page.reload();
  assert.equal(await background(), light);
}, { colorScheme: 'dark' }));

testOfPageAlone('nothing is wider than the window, and everything has a name', async () => {
  const failed = await jobNamed('llama-hang');
  const places = ['/', '/workers', `/${server.running}`, `/${server.running}?tab=plan`, `/${server.running}?tab=history`,
    `/${server.running}?tab=step`, `/${failed}?tab=step`, `/${server.running}?tab=logs`, `/${failed}?tab=flight`, '/?q=nobody',
    '/plan?model=llama3-8b&c=parallelism.tensor_parallel_degree%3D2'];
  for (const width of [390, 1280]) {
    await withPage(async (page) => {
      for (const place of places) {
        await page.goto(base + place);
        await page.waitForSelector('main h1');
        await page.waitForFunction(() => !document.querySelector('.skeleton'));
        if (place.startsWith('/plan')) await page.waitForSelector('section.compare');
        if (place === `/${server.running}`) await page.waitForSelector('.marks');  // the curves, and the checkpoints
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, `${place} at ${width}`);
        const nameless = await page.evaluate(
          () => [...document.querySelectorAll('button, a, input, select, [role=img], [role=progressbar]')]
                  .filter(
                    (e) =>
                      !(e.getAttribute('aria-label') || e.textContent.trim() || e.title ||
                        e.closest('label')?.textContent.trim() || e.querySelector('img[alt]')))
                  .map((e) => e.outerHTML.slice(0, 120)));
        assert.deepEqual(nameless, [], place);
      }
    }, { viewport: { width, height: 800 } });
  }
});

test('places that are not there', () => withPage(async (page) => {
  for (const id of ['01ARZ3NDEKTSV4RRFFQ69G5FAV', server.running.split('/').at(-1).slice(0, 20), 'llama']) {
    await page.goto(`${base}/projects/default/jobs/${id}?tab=logs`);
    await page.waitForSelector('text=There is no such job');
    assert.equal(await page.locator('main').innerText().then((text) => text.split(id).length - 1), 1);
    assert.equal(await page.locator('.notice').count(), 0);
  }
  await page.getByRole('link', { name: 'Search for it' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.jobs tbody tr').length > 1);
  assert.match(page.url(), /q=llama$/);
  await page.goBack();
  await page.getByRole('link', { name: 'All jobs' }).click();
  await page.waitForSelector('h1:has-text("Jobs")');
  await page.goto(`${base}/nowhere`);
  await page.waitForSelector('text=There is no such page');
}, { allowed: /status of 40[04]/ }));

test('short addresses of jobs, and what the server says of its own', () => withPage(async (page) => {
  await page.goto(`${base}/jobs/${server.running.split('/').at(-1)}?tab=history`);
  await page.waitForSelector('h1:has-text("llama-bible")');
  await page.waitForSelector('#tab-history[aria-selected=true]');
  for (const place of ['/v1', '/v1/', '/v1/nothing']) {
    const answer = await fetch(base + place);
    assert.equal(answer.status, 404, place);
    assert.equal((await answer.json()).error.status, 'NOT_FOUND', place);
  }
  for (const icon of ['/favicon.ico', '/favicon.svg']) assert.equal((await fetch(base + icon)).status, 200, icon);
}));

testOfPageAlone('of several servers the page says which leads', () => withPage(async (page) => {
  const info = { build_version: '1', start_time_us: 1, store: 'postgresql', schema_version: 3, leads: false, address: 'b:7420' };
  const leader = { address: 'a:7420', holder: 'process 7 on a', term: 2, since_us: 1 };
  await page.route('**/v1/server', (route) => route.fulfill({ json: { ...info, leader } }));
  await page.goto(base);
  await page.waitForSelector('header .leader:has-text("a:7420 leads")');
  await page.unroute('**/v1/server');
  await page.goto(base);
  await page.waitForSelector('header .version');
  assert.equal(await page.locator('header .leader').count(), 0, 'one that is alone');
  // The first question may meet a server that is being replaced.
  let asked = 0;
  await page.route('**/v1/server', (route) =>
    (asked++ === 0 ? route.fulfill({ status: 503, json: { error: { code: 503, message: 'away' } } })
      : route.fulfill({ json: { ...info, leader } })));
  await page.goto(base);
  await page.waitForSelector('header .leader:has-text("a:7420 leads")');
}, { allowed: /503.*v1\/server/ }));

test('an attempt that failed is told at the top, with the way to its flight record', async () => {
  const failed = await jobNamed('llama-hang');
  await withPage(async (page) => {
    await page.goto(`${base}/${failed}?tab=logs`);
    await page.waitForSelector('.banner >> text=Attempt 1: rank 1 has not entered all_gather 17');
    await page.locator('.banner').getByRole('link', { name: 'flight record' }).click();
    await page.waitForSelector('#tab-flight[aria-selected=true]');
    await page.goto(`${base}/${server.running}`);
    await page.waitForSelector('.banner >> text=Attempt 1: worker node-3 has not been heard of for 10 s');
    assert.equal(await page.locator('.banner').getByRole('link', { name: 'flight record' }).count(), 0);
    await page.locator('.banner').getByRole('link', { name: 'history' }).click();
    await page.waitForSelector('#tab-history[aria-selected=true]');
  });
});

testOfPageAlone('curves: smoothing, a logarithmic axis, time, zoom, another run, and a table', () => withPage(async (page) => {
  const other = await jobNamed('llama-hang');
  await page.goto(`${base}/${server.running}?with=${other.split('/').at(-1)}`);
  await page.waitForSelector('.chart canvas');
  await page.waitForSelector('button[aria-label="Take llama-hang away"]');
  const loss = page.locator('.chart', { hasText: 'Loss' });
  const over = loss.locator('.u-over');
  // A chart that is being drawn anew is not seen for a moment.
  const boxOfChart = async () => {
    await over.waitFor();
    return (await over.boundingBox()) ?? boxOfChart();
  };
  const tipAt = async (share) => {
    const box = await boxOfChart();
    await page.mouse.move(box.x + share * box.width, box.y + box.height / 2);
    await loss.locator('.tip:not([hidden])').waitFor();
    return loss.locator('.tip').innerText();
  };
  await page.locator('.controls input[type=range]').fill('0.9');
  await loss.locator('.u-legend >> text=train, as reported').waitFor();
  assert.match(await tipAt(0.5), /^step \d+\ntrain \d\.\d{4}/);
  const stepOf = (text) => Number(/^step ([\d,]+)/.exec(text)[1].replaceAll(',', ''));
  const box = await boxOfChart();
  await page.mouse.move(box.x + 0.1 * box.width, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + 0.2 * box.width, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await page.waitForFunction(() => document.querySelector('.controls select option[value=part]'));
  const shown = () => page.locator('.stat-value').first().innerText()
    .then((text) => Number.parseInt(text.replaceAll(',', ''), 10));
  assert.ok(stepOf(await tipAt(0.95)) < 0.3 * await shown(), 'a tenth to a fifth of all steps');
  await page.getByRole('combobox', { name: 'Zoom', exact: true }).selectOption('all');
  await page.waitForFunction(() => !document.querySelector('.controls select option[value=part]'));
  assert.ok(stepOf(await tipAt(0.95)) > 0.7 * await shown());
  await page.getByLabel('logarithmic').check();
  await page.getByRole('combobox', { name: 'over', exact: true }).selectOption('time');
  await page.waitForSelector('[role=img][aria-label^="Loss"][aria-label*="over time"]');
  assert.match(await tipAt(0.5), /^time (\d+ min|(\d+ min )?\d+ s)\n/);
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('text=Metrics (CSV)')]);
  assert.equal(file.suggestedFilename(), 'llama-bible-metrics.csv');
  assert.match(readFileSync(await file.path(), 'utf8'), /^attempt,step,.*\n1,1,/);
  await page.click('button[aria-label="Take llama-hang away"]');
  await page.waitForFunction(() => !location.search.includes('with='));
}));

testOfPageAlone('axe finds nothing serious', async () => {
  const failed = await jobNamed('llama-hang');
  const question = '/plan?model=llama3-8b&device=h100-sxm-80&gpus=8&nodes=1&batch=64&seq=8192';
  const places = ['/', '/workers', `/${server.running}`, `/${server.running}?tab=plan`, `/${server.running}?tab=history`,
    `/${server.running}?tab=step`, `/${server.running}?tab=logs`, `/${failed}?tab=flight`, '/?q=nobody', question];
  for (const look of [{ colorScheme: 'light' }, { colorScheme: 'dark', viewport: { width: 390, height: 844 } }]) {
    await withPage(async (page) => {
      for (const place of places) {
        await page.goto(base + place);
        await page.waitForSelector('main h1');
        if (place === question) await page.waitForSelector('section.compare');
        await page.waitForFunction(() => !document.querySelector('.skeleton'));
        if (place.endsWith('tab=step')) {
          await page.click('text=Draw both');
          await page.waitForSelector('.timeline-box canvas');
        }
        // A box that has become too wide can be scrolled by the keyboard once it has been looked at.
        await page.waitForFunction(() => [...document.querySelectorAll('.scroll')].every(
          (box) => box.scrollWidth <= box.clientWidth + 1 || box.tabIndex === 0));
        // The job goes on: a table may grow while it is looked at. What is a fault stays one.
        let faults = await seriousFaults(page, PAGE);
        for (let tries = 0; faults.length > 0 && tries < 5; ++tries) {
          await page.waitForTimeout(300);
          faults = await seriousFaults(page, PAGE);
        }
        assert.deepEqual(faults, [], `${place} ${look.colorScheme}`);
      }
    }, look);
  }
});

test('a cancelled job is shown as such, on its page and in the list', () => withPage(async (page) => {
  await page.goto(`${base}/${server.running}`);
  await page.getByRole('button', { name: 'Save and cancel', exact: true }).click();
  await page.waitForSelector('dialog[open] >> text=Save and cancel llama-bible?');
  await page.locator('dialog[open]').getByRole('button', { name: 'Back' }).click();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.waitForSelector('dialog[open] >> text=Cancel llama-bible?');
  await page.click('dialog[open] button.filled');
  await page.waitForSelector('.page-head .badge:has-text("cancelled")');
  await page.waitForSelector('button:has-text("Retry")');
  assert.equal(await page.locator('.notice:not(.banner)').count(), 0);
  await page.click('button:has-text("Retry")');
  await page.click('dialog[open] button.primary');
  await page.waitForSelector('.page-head .badge:has-text("submitted")');
  await page.goto(base);
  await page.waitForSelector('tr:has-text("llama-bible") .badge:has-text("cancelled")');
}));

// Somebody else may hold the port for a moment.
async function startAgain(args) {
  for (let tries = 0; ; ++tries) {
    try {
      return await startServer(SERVER, args);
    } catch (error) {
      if (tries === 50) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

test('a server that goes away and comes back', async () => {
  let second = await startServer(SERVER, ['--web', dist, '--jobs', '3']);
  const { page, close } = await openPage(browser);
  await page.goto(`http://localhost:${second.port}/`);
  await page.waitForSelector('text=llama-bible');
  await second.kill();
  await page.waitForSelector('text=The connection to the server is lost');
  second = await startAgain(['--web', dist, '--jobs', '3', '--port', String(second.port)]);
  await page.waitForFunction(() => !document.body.innerText.includes('The connection to the server is lost'));
  await close();
  assert.equal(await second.end(), 0);
});
