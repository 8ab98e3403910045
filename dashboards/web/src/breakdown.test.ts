import assert from 'node:assert/strict';
import { test } from 'node:test';
import { collectiveSums, columns, heat, outlier } from './breakdown';
import type { CollectiveTime, RankMetrics, StepMetrics } from './types';

const row = (rank: number, of: Partial<RankMetrics> = {}): RankMetrics => ({
  rank, step_seconds: 1, data_seconds: 0.1, forward_seconds: 0.3, backward_seconds: 0.4, optimizer_seconds: 0.1,
  exposed_communication_seconds: 0.2, collectives: [], peak_memory_bytes: null, ...of,
});
const point = (step: number, ranks: RankMetrics[]) => ({ attempt: 1, step, ranks }) as StepMetrics;

test('columns are rank 0’s; what no phase has is the rest', () => {
  const list = columns([point(1, []), point(2, [row(0), row(1, { step_seconds: 9 })]), point(3, [row(1)])], 60);
  assert.equal(list.length, 1);
  assert.deepEqual([list[0].first, list[0].last, list[0].step, list[0].exposed], [2, 2, 1, 0.2]);
  assert.ok(Math.abs(list[0].phases.rest_seconds - 0.1) < 1e-12);
  assert.equal(list[0].phases.backward_seconds, 0.4);
  assert.deepEqual(columns([], 60), []);
});

test('of many reports, those that follow each other stand together, each once', () => {
  const points = Array.from({ length: 137 }, (_, i) => point(i + 1, [row(0, { step_seconds: i })]));
  const list = columns(points, 60);
  assert.equal(list.length, 60);
  assert.equal(list[0].first, 1);
  assert.equal(list[59].last, 137);
  for (let i = 1; i < 60; ++i) assert.equal(list[i].first, list[i - 1].last + 1);
  for (const one of list) assert.ok(Math.abs(one.step - ((one.first + one.last) / 2 - 1)) < 1e-9); // the mean of i = step - 1
});

test('a measured time that is shorter than its phases has no negative rest', () => {
  assert.equal(columns([point(1, [row(0, { step_seconds: 0.5 })])], 9)[0].phases.rest_seconds, 0);
});

test('heat is between the least and the most, and none where all are alike', () => {
  assert.deepEqual([1, 2, 3].map((value) => heat(value, [1, 2, 3, null])), [0, 0.5, 1]);
  assert.deepEqual([100, 100.5].map((value) => heat(value, [100, 100.5])), [0, 0]);
  assert.equal(heat(null, [1, 2]), 0);
  assert.equal(heat(5, []), 0);
});

test('a rank that stands out is named with how far', () => {
  const rows = [row(0), row(1, { step_seconds: 1.5 }), row(2), row(3)];
  assert.deepEqual(outlier(rows, 'step_seconds'), { rank: 1, over: 0.5 });
  assert.equal(outlier(rows, 'data_seconds'), null);
  assert.equal(outlier(rows, 'peak_memory_bytes'), null);
  assert.equal(outlier([row(0)], 'step_seconds'), null);
});

test('collectives are means over the ranks that are in them, the most exposed first', () => {
  const one = (collective: string, group: string, seconds: number, exposed_seconds: number): CollectiveTime =>
    ({ collective, group, count: 4, seconds, exposed_seconds });
  const sums = collectiveSums([
    row(0, { collectives: [one('all_gather', 'dp_shard', 0.2, 0.02), one('send', 'pp', 0.1, 0.1)] }),
    row(1, { collectives: [one('all_gather', 'dp_shard', 0.4, 0.1)] }),
  ]);
  assert.deepEqual(sums.map((sum) => `${sum.collective} of ${sum.group}`), ['send of pp', 'all_gather of dp_shard']);
  assert.equal(sums[0].share, 1);
  assert.ok(Math.abs(sums[1].seconds - 0.3) < 1e-12);
  assert.ok(Math.abs(sums[1].share - 0.2) < 1e-12);
  assert.deepEqual(sums[1].mostExposed, { rank: 1, seconds: 0.1 });
});
