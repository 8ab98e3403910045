// The pictures of docs/images, of the whole service with the example job: run by
//   PAGE=dashboards/web PROGRAMS=SERVER:AGENT:TRAINER:SIM:LEGO node tests/browser/docs_pictures.mjs OUT JOB.toml TEXT STEPS
// where OUT takes the pictures, TEXT is what the job trains on (examples/make_text.sh TEXT), and it is cut to STEPS steps.
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { openPage, startBrowser } from './browser.mjs';
import { startService } from './service.mjs';

const [out, job, text, steps] = process.argv.slice(2);
const [server, agent, trainer, sim, lego] = process.env.PROGRAMS.split(':').map((program) => path.resolve(program));
const pageFolder = path.resolve(process.env.PAGE);
const folder = mkdtempSync(path.join(os.tmpdir(), 'pictures-'));
mkdirSync(out, { recursive: true });
const data = path.join(folder, 'king_james.txt'); // in the agent's folder, from which jobs may read
copyFileSync(text, data);
const service = await startService({ server, agent, trainer, sim, lego }, folder, path.join(pageFolder, 'dist'), 2);
const browser = await startBrowser(pageFolder);

async function picture(name, colorScheme, height, address, ready) {
  const { page, close } = await openPage(browser, { colorScheme, viewport: { width: 1280, height } });
  page.setDefaultTimeout(600_000);
  await page.goto(service.base + address);
  await ready(page);
  await page.waitForTimeout(500);
  await page.screenshot({ path: path.join(out, `${name}.png`) });
  await close();
  console.log(name);
}

const submit = (name, ...more) =>
  service.lego('submit', job, `--name=${name}`, `--training.dataset_path=${data}`, `--training.steps=${steps}`, '--validation.freq=10', ...more);
const named = async (name) =>
  (await (await fetch(`${service.base}/v1/projects/default/jobs`)).json()).jobs.find((j) => j.spec.display_name === name).name;
const stepOf = (page, least) =>
  page.waitForFunction(
    (n) => Number.parseInt(document.querySelector('.stat-value')?.textContent.replaceAll(',', '') ?? '', 10) >= n, least);

await submit('king-james');
await submit('king-james-seed-7', '--training.seed=7');
await submit('king-james-lr-1e-3', '--optimizer.lr=1e-3');
const first = await named('king-james');
await picture('overview', 'dark', 600, `/${first}`, (page) => stepOf(page, steps / 2));
await picture('jobs', 'light', 400, '/', (page) => page.waitForSelector('.badge:has-text("running")'));
await picture('workers', 'dark', 350, '/workers', (page) => page.waitForSelector('text=node-1'));
await picture('plan', 'light', 1100, `/${first}?tab=plan`, async (page) => {
  await page.waitForSelector('.badge:has-text("chosen")');
  await page.click('tbody tr button');
});
await picture('planning', 'light', 1240, '/plan?model=llama3-8b&device=h100-sxm-80&gpus=8&nodes=1&batch=64&seq=8192', async (page) => {
  await page.waitForSelector('section.compare');
});
for (const name of ['king-james-lr-1e-3', 'king-james-seed-7', 'king-james']) await service.lego('cancel', await named(name));

// The trainer of rank 1 of a job of this service: who writes that log.
function trainerOf(job) {
  const log = path.join(folder, 'runs', path.basename(job), 'epoch-1/logs/rank-1.log');
  return readdirSync('/proc').map(Number).find((pid) => {
    try {
      return pid > 0 && readlinkSync(`/proc/${pid}/fd/1`) === log;
    } catch {
      return false; // of somebody else, or gone
    }
  });
}

// A rank that stands still, as a machine that hangs would make it.
await submit('king-james-hangs', '--comm.train_timeout_seconds=30', '--policy.max_restarts=0',
  '--planning.constraints=parallelism.data_parallel_shard_degree=2');
const hanging = await named('king-james-hangs');
await picture('flight', 'light', 860, `/${hanging}?tab=flight`, async (page) => {
  await stepOf(page, 5);
  process.kill(trainerOf(hanging), 'SIGSTOP');
  await page.waitForSelector('text=Where every rank stands');
  await page.waitForSelector('.page-head .badge:has-text("failed")');
});
await browser.close();
console.log(await service.end());
rmSync(folder, { recursive: true, force: true });
