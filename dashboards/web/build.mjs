// Builds the page into dist/ (names in assets/ hold a hash of their content), or with --tests its tests into build/tests/.
import { build } from 'esbuild';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';

const common = {
  bundle: true,
  format: 'esm',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  logLevel: 'warning',
  target: 'es2022'
};

async function buildTests() {
  const tests = readdirSync('src').filter((name) => name.endsWith('.test.ts')).map((name) => `src/${name}`);
  rmSync('build/tests', { recursive: true, force: true });
  await build({ ...common, entryPoints: tests, outdir: 'build/tests', platform: 'node', outExtension: { '.js': '.mjs' } });
}

async function buildPage() {
  rmSync('dist', { recursive: true, force: true });
  mkdirSync('dist', { recursive: true });
  const result = await build({
    ...common, entryPoints: ['src/main.tsx'], outdir: 'dist/assets', entryNames: '[name]-[hash]', minify: true, metafile: true,
    legalComments: 'eof', define: { 'process.env.NODE_ENV': '"production"' },
  });
  const outputs = Object.keys(result.metafile.outputs).map((path) => basename(path));
  const html = readFileSync('index.html', 'utf8')
    .replace('SCRIPT', `/assets/${outputs.find((name) => name.endsWith('.js'))}`)
    .replace('STYLE', `/assets/${outputs.find((name) => name.endsWith('.css'))}`);
  writeFileSync('dist/index.html', html);
  cpSync('public', 'dist', { recursive: true });
}

await (process.argv.includes('--tests') ? buildTests() : buildPage());
