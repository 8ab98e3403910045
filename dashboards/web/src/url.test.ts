import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  jobAddress, jobsAddress, jobsFilter, parseView, wholeAddress, type JobsView, type JobView, type ShortView,
} from './url';

function parse(address: string) {
  const url = new URL(address, 'http://localhost');
  return parseView(url.pathname, url.search);
}

test('the view of jobs survives its address', () => {
  for (const state of ['', 'active', 'running', 'failed']) {
    for (const text of ['', 'llama', 'a "quoted" & odd\\name', '100%']) {
      for (const [page, token] of [[1, ''], [3, 'abc+/=']] as [number, string][]) {
        for (const project of ['', 'default', 'a.b']) {
          const view: JobsView = { kind: 'jobs', project, state, text, size: 100, page, token };
          assert.deepEqual(parse(jobsAddress(view)), view);
        }
      }
    }
  }
});

test('what an address cannot mean is left out', () => {
  const first = { kind: 'jobs', project: '', state: '', text: '', size: 50, page: 1, token: '' };
  assert.deepEqual(parse('/?state=sleeping&size=17&page=4'), first);
  assert.deepEqual(parse('/jobs'), first);
  assert.deepEqual(parse('/projects/other/jobs'), { ...first, project: 'other' });
  assert.deepEqual(parse('/projects/other'), { kind: 'unknown', path: '/projects/other' });
  assert.deepEqual(parse('/projects/100%/jobs'), { kind: 'unknown', path: '/projects/100%/jobs' });
  assert.deepEqual(parse('/nowhere/at/all'), { kind: 'unknown', path: '/nowhere/at/all' });
  assert.deepEqual(parse('/projects/default/jobs/100%'), { kind: 'unknown', path: '/projects/default/jobs/100%' });
});

test('the view of a job survives its address', () => {
  const name = 'projects/default/jobs/01JD0000000000000000000000';
  for (const view of [
    { kind: 'job', name, tab: 'overview', rank: null, others: [] }, { kind: 'job', name, tab: 'logs', rank: 0, others: [] },
    { kind: 'job', name, tab: 'plan', rank: null, others: [] },
    { kind: 'job', name, tab: 'overview', rank: null, others: ['01JA', '01JB'] },
  ] as JobView[]) {
    assert.deepEqual(parse(jobAddress(view.name, view.tab, view.rank, view.others)), view);
  }
  const short = parse('/jobs/01JD0000000000000000000000?tab=logs') as ShortView;
  assert.equal(short.kind, 'short');
  assert.equal(wholeAddress(short, 'default'), jobAddress(name, 'logs'));
  assert.equal(wholeAddress(short, 'a b'), '/projects/a%20b/jobs/01JD0000000000000000000000?tab=logs');
  assert.deepEqual(parse('/jobs/100%'), { kind: 'unknown', path: '/jobs/100%' });
  assert.equal((parse(`/${name}?tab=nonsense&rank=-1`) as JobView).tab, 'overview');
});

test('filters are what ListJobs takes', () => {
  assert.equal(jobsFilter('', ''), '');
  assert.equal(jobsFilter('running', ''), 'state = running');
  assert.equal(jobsFilter('active', ' llama '), 'state = active AND text : "llama"');
  assert.equal(jobsFilter('', 'a"b\\c'), 'text : "a\\"b\\\\c"');
  assert.equal(jobsFilter('', ' projects/default/jobs/01JD0000000000000000000000 '), 'text : "01JD0000000000000000000000"');
});
