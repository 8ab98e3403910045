// pictures.mjs SERVER PAGE_FOLDER OUT [NAME ...]: pictures of every view, light and dark, wide and narrow, for the eyes of
// whoever changes the page. `docs` as NAME makes those of docs/images.
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { openPage, startBrowser, startServer } from './browser.mjs';

const [server, pageFolder, out, ...names] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const running = await startServer(server, ['--web', path.join(pageFolder, 'dist')]);
const browser = await startBrowser(pageFolder);
const base = `http://localhost:${running.port}`;
const hangs = encodeURIComponent('display_name : "hang"');
const failed = (await (await fetch(`${base}/v1/projects/default/jobs?page_size=10&filter=${hangs}`)).json()).jobs[0].name;
const views = {
  jobs: '/', overview: `/${running.running}`, plan: `/${running.running}?tab=plan`, history: `/${running.running}?tab=history`,
  step: `/${running.running}?tab=step`, untraced: `/${failed}?tab=step`, logs: `/${running.running}?tab=logs`, flight: `/${failed}?tab=flight`, workers: '/workers',
  planning: '/plan?model=llama3-8b&device=h100-sxm-80&gpus=8&nodes=1&batch=64&seq=8192&b=3', none: '/?q=nothing-has-this-name',
};
const looks = {
  light: { colorScheme: 'light' }, dark: { colorScheme: 'dark' },
  narrow: { colorScheme: 'light', viewport: { width: 390, height: 844 } },
};
const docs = names.includes('docs');
for (const [look, options] of Object.entries(looks)) {
  if (docs && look === 'narrow') continue;
  const { page, errors, close } = await openPage(browser, options);
  for (const [view, address] of Object.entries(views)) {
    const inTheDark = view === 'overview' || view === 'workers';
    const notInDocs = ['none', 'logs', 'history', 'step', 'untraced'].includes(view);
    if (docs && ((look === 'dark') !== inTheDark || notInDocs)) continue;
    await page.goto(base + address);
    await page.waitForSelector('main');
    await page.waitForTimeout(900);
    if (view === 'plan') await page.click('tbody tr button');
    if (view === 'step') {
      await page.click('text=Draw both');
      await page.waitForSelector('.timeline-box canvas');
      await page.waitForTimeout(300);
    }
    await page.screenshot({ path: path.join(out, docs ? `page-${view}.png` : `${view}-${look}.png`), fullPage: !docs });
  }
  console.log(look, 'errors:', errors);
  await close();
}
await browser.close();
await running.end();
