// The page in a headless Chromium, against the service's HTTP over a real store (demo_server). Arguments by the environment:
// SERVER, PAGE (dashboards/web). Waits are for conditions; nothing asserts a time.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { openPage, startBrowser, startServer } from './browser.mjs';

const { SERVER, PAGE } = process.env;
const dist = path.join(PAGE, 'dist');
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

// Answers 404 are part of the service (no plan yet), and 400 for what cannot be a job's name; the browser reports each as an
// error.
const unexpected = (errors) => errors.filter((error) => !/status of 40[04]/.test(error));

async function withPage(work, options) {
  const { page, errors, close } = await openPage(browser, options);
  await work(page);
  assert.deepEqual(unexpected(errors), []);
  await close();
}

// Keys that mean something together count within a second only: both in one go, whatever the machine is busy with.
const pressTogether = (page, keys) => page.evaluate((all) => {
  for (const key of all) document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
}, [...keys]);

async function jobNamed(text) {
  const filter = encodeURIComponent(`display_name : "${text}"`);
  return (await (await fetch(`${base}/v1/projects/default/jobs?filter=${filter}`)).json()).jobs[0].name;
}

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

  await page.selectOption('select', 'failed');
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
  assert.equal(new URL(page.url()).pathname, '/');  // a click on the id selects it; one on the row opens the job
}));

// Changes are shown at most once a second; what the reader asks for is shown at once. The page's clock stands still here.
test('the reader waits for no pause', () => withPage(async (page) => {
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
  assert.equal(await page.locator('.chart canvas').count(), 4);
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
  await page.waitForSelector('text=has not been heard of for 10 s');
  await page.waitForSelector('text=checkpoints/step-150');
  assert.match(await page.locator('tr', { hasText: 'shard 4' }).first().innerText(), /50 → \d/);
  assert.ok(await page.locator('.timeline li').count() >= 9);

  await page.keyboard.press('4');
  await page.waitForSelector('.log');
  const line = (await page.locator('.log').last().innerText()).trim();
  await page.waitForFunction((old) => [...document.querySelectorAll('.log')].at(-1).innerText.trim() !== old, line);
  await page.selectOption('select', '2');
  await page.waitForFunction(() => {
    const shown = [...document.querySelectorAll('.log-rank')];
    return shown.length > 0 && shown.every((rank) => rank.textContent === '2');
  });
  assert.match(page.url(), /tab=logs&rank=2/);
}));

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

test('workers are drained and taken back, after a question', () => withPage(async (page) => {
  await page.goto(`${base}/workers`);
  const row = page.locator('tr', { hasText: 'node-2' });
  await row.getByRole('button', { name: 'Drain', exact: true }).click();
  await page.locator('dialog[open]').getByText('Back').click();
  assert.match(await row.innerText(), /ready/);
  await row.getByRole('button', { name: 'Drain', exact: true }).click();
  await page.locator('dialog[open] button.primary').click();
  await row.locator('.badge', { hasText: 'draining' }).waitFor();
  await row.getByRole('button', { name: 'Undrain', exact: true }).click();
  await page.locator('dialog[open] button.primary').click();
  await row.locator('.badge', { hasText: 'ready' }).waitFor();
}));

test('the keyboard reaches everything', () => withPage(async (page) => {
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

test('the theme follows the system, and a choice is kept', () => withPage(async (page) => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.goto(base);
  const dark = await background();
  await page.click('[aria-label="Use the light theme"]');
  const light = await background();
  assert.notEqual(light, dark);
  await page.reload();
  assert.equal(await background(), light);
}, { colorScheme: 'dark' }));

test('nothing is wider than the window, and everything has a name', async () => {
  const failed = await jobNamed('llama-hang');
  const places = ['/', '/workers', `/${server.running}`, `/${server.running}?tab=plan`, `/${server.running}?tab=history`,
    `/${server.running}?tab=logs`, `/${failed}?tab=flight`, '/?q=nobody'];
  for (const width of [390, 1280]) {
    await withPage(async (page) => {
      for (const place of places) {
        await page.goto(base + place);
        await page.waitForSelector('main h1');
        await page.waitForFunction(() => !document.querySelector('.skeleton'));
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
}));

test('a cancelled job is shown as such, on its page and in the list', () => withPage(async (page) => {
  await page.goto(`${base}/${server.running}`);
  await page.click('button:has-text("Cancel")');
  await page.waitForSelector('dialog[open] >> text=Cancel llama-bible?');
  await page.click('dialog[open] button.filled');
  await page.waitForSelector('.page-head .badge:has-text("cancelled")');
  await page.waitForSelector('button:has-text("Retry")');
  assert.equal(await page.locator('.notice').count(), 0);
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
