// Jobs that are planned, submitted and cloned on the page: as page.test.mjs, with a server of its own.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { findJob, startBrowser, startServer, withSoundPage } from './browser.mjs';

const { SERVER, PAGE } = process.env;
let server;
let browser;
let base;

before(async () => {
  server = await startServer(SERVER, ['--web', path.join(PAGE, 'dist'), '--jobs', '120']);
  base = `http://localhost:${server.port}`;
  browser = await startBrowser(PAGE);
});
after(async () => {
  await browser?.close();
  assert.equal(await server?.end(), 0);
});

const withPage = (work, options) => withSoundPage(browser, work, options);
const jobNamed = (text) => findJob(base, text);

test('a plan: live, pictures of it, two compared, one submitted', () => withPage(async (page) => {
  await page.goto(base);
  await page.getByRole('link', { name: 'Plan', exact: true }).click();
  await page.waitForSelector('text=Nothing is planned yet');
  await page.waitForSelector('option:has-text("llama3-8b, 8.03 B parameters")', { state: 'attached' });
  await page.getByRole('combobox', { name: 'Model', exact: true }).selectOption('llama3-70b');
  await page.getByRole('combobox', { name: 'Device', exact: true }).selectOption('b200');
  await page.getByRole('spinbutton', { name: 'Nodes', exact: true }).fill('2');
  await page.getByRole('button', { name: 'Add a constraint' }).click();
  await page.getByLabel('Key of constraint 1').fill('training.mixed_precision_param');
  await page.getByLabel('Value of constraint 1').fill('float32');
  await page.getByRole('button', { name: 'Plan', exact: true }).click();
  await page.waitForSelector('text=/simulated [1-8] of 8 recipes that may fit/');
  await page.waitForSelector('h2:has-text("Ranking so far")');
  await page.waitForSelector('.scatter .point[data-rank="2"]');
  assert.equal(await page.locator('text=Submit this').count(), 0, 'there is nothing to submit before the result');
  await page.waitForSelector('h2:has-text("Why this recipe")');
  assert.equal(await page.locator('h2:has-text("Ranking so far")').count(), 0, 'the result has taken its place');
  assert.match(page.url(), /model=llama3-70b&device=b200&gpus=8&nodes=2&batch=64&seq=8192&c=training.mixed_precision_param%3Dfloat32/);
  assert.equal(await page.locator('.explanation li').count(), 2);
  assert.equal(await page.locator('.scatter .point[data-rank]').count(), 4);
  assert.match(await page.locator('svg.scatter').getAttribute('aria-label'), /front: rank 4: 114 MiB, 689 ms; .*rank 1: 147 MiB, 420 ms/);
  assert.match(await page.locator('.bars [role=img]').nth(2).getAttribute('aria-label'), /^Rank 3: compute 271 ms, bubble 114 ms/);
  await page.locator('.scatter .point[data-rank="3"]').click();
  await page.waitForURL(/b=3/);
  const compared = page.locator('section.compare');
  assert.match(await compared.innerText(), /pipeline_parallel_degree\s+1\s+2[\s\S]*step time\s+420 ms\s+542 ms\s+\+122 ms \(\+29\.0 %\)/);
  assert.match(await compared.innerText(), /peak\s+147 MiB\s+125 MiB\s+−22\.0 MiB \(−15\.0 %\)/);
  await page.reload();  // the address is the question
  await page.waitForSelector('text=Rank 3');
  await page.click('[aria-label="Details of rank 2"]');
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('.row-actions >> text=recipe.toml')]);
  assert.match(readFileSync(await file.path(), 'utf8'), /tensor_parallel_degree = 2/);
  await page.click('text=Submit this');
  await page.waitForSelector('dialog[open] >> text=is for 2 nodes');
  assert.equal(await page.getByLabel(/Slots/).inputValue(), '4');
  await page.getByLabel(/Text, an absolute path/).fill('text.txt');
  await page.locator('dialog[open] button.primary').click();
  await page.waitForSelector('dialog[open] [role=alert] >> text=must be an absolute path');
  await page.getByLabel(/Text, an absolute path/).fill('/data/text.txt');
  await page.locator('dialog[open] button.primary').click();
  await page.waitForSelector('.page-head .badge:has-text("submitted")');
  const job = await (await fetch(`${base}/v1${new URL(page.url()).pathname}`)).json();
  assert.equal(job.spec.model.name, 'llama3-70b');
  assert.ok(job.spec.planning.constraints.includes('parallelism.tensor_parallel_degree=2'));
  assert.equal(job.spec.resources.slots, 4);
}, { allowed: /status of 400/ }));

test('what is planned is submitted to the project that is shown', () => withPage(async (page) => {
  await page.goto(`${base}/projects/speech/plan?model=llama3-8b&device=h100-sxm-80&gpus=8&nodes=1&batch=64&seq=8192`);
  await page.waitForSelector('h2:has-text("Why this recipe")');
  await page.click('[aria-label="Details of rank 1"]');
  await page.click('text=Submit this');
  await page.waitForSelector('dialog[open] >> text=In the project speech.');
  await page.getByLabel(/Text, an absolute path/).fill('/data/text.txt');
  await page.locator('dialog[open] button.primary').click();
  await page.waitForSelector('.page-head .badge:has-text("submitted")');
  assert.match(new URL(page.url()).pathname, /^\/projects\/speech\/jobs\/01[0-9A-Z]{24}$/);
}));

test('a config.json is dropped on the Plan page; one that is none is refused', () => withPage(async (page) => {
  await page.goto(`${base}/plan`);
  await page.waitForSelector('.model-field');
  const drop = (name, text) => page.evaluate(([file, content]) => {
    const data = new DataTransfer();
    data.items.add(new File([content], file));
    document.querySelector('.model-field').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  }, [name, text]);
  await drop('notes.txt', 'hello');
  await page.waitForSelector('text=notes.txt cannot be used: it is no JSON');
  await drop('config.json', JSON.stringify({
    architectures: ['LlamaForCausalLM'], model_type: 'llama', _name_or_path: 'me/My Llama', vocab_size: 256, hidden_size: 32,
    intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 8192,
    rms_norm_eps: 1e-5, rope_theta: 10000.0, tie_word_embeddings: false, hidden_act: 'silu',
  }));
  await page.waitForSelector('.config-name >> text=My-Llama');
  await page.getByRole('button', { name: 'Plan', exact: true }).click();
  await page.waitForSelector('text=My-Llama on h100-sxm-80:8x1');
}));

test('a job is cloned with another learning rate', () => withPage(async (page) => {
  await page.goto(`${base}/${await jobNamed('llama-large-batch')}`);
  await page.getByRole('button', { name: 'Clone …' }).click();
  await page.waitForSelector('dialog[open] >> text=Submit another like llama-large-batch');
  await page.getByLabel('Learning rate').fill('0.0005');
  await page.locator('dialog[open] button.primary').click();
  await page.waitForSelector('h1:has-text("llama-large-batch-clone")');
  const job = await (await fetch(`${base}/v1${new URL(page.url()).pathname}`)).json();
  assert.equal(job.spec.recipe.optimizer.lr, 0.0005);
}));
