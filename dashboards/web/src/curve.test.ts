import assert from 'node:assert/strict';
import { test } from 'node:test';
import { beganAgain, doneShare, marksOf, measuredSoFar, mergePoints, parts, predictionError, secondsLeft } from './curve';
import { flightRows } from './flight';
import type { Attempt, Checkpoint, FlightRecord, Job, StepMetrics } from './types';

const point = (attempt: number, step: number) => ({ attempt, step }) as StepMetrics;
const steps = (points: StepMetrics[]) => points.map((p) => `${p.attempt}:${p.step}`).join(' ');

test('newer points follow, and replace what a restart does again', () => {
  const known = [point(1, 1), point(1, 2), point(1, 3)];
  assert.equal(steps(mergePoints(known, [])), '1:1 1:2 1:3');
  assert.equal(steps(mergePoints(known, [point(1, 4)])), '1:1 1:2 1:3 1:4');
  assert.equal(steps(mergePoints(known, [point(2, 2), point(2, 3)])), '1:1 2:2 2:3');
  assert.equal(steps(mergePoints([], known)), '1:1 1:2 1:3');
  assert.equal(beganAgain(known, 2), true);
  assert.equal(beganAgain(known, 3), false);
  assert.equal(beganAgain([], 0), false);
});

const job = (state: string, progress: object | null) => ({ state, progress }) as Job;

test('progress of a job', () => {
  assert.equal(doneShare(job('running', { step: 30, steps: 120 })), 0.25);
  assert.equal(doneShare(job('succeeded', null)), 1);
  assert.equal(doneShare(job('queued', null)), null);
  assert.equal(secondsLeft(job('running', { step: 30, steps: 120, step_seconds: 0.5 })), 45);
  assert.equal(secondsLeft(job('failed', { step: 30, steps: 120, step_seconds: 0.5 })), null);
  assert.equal(secondsLeft(job('running', { step: 0, steps: 120, step_seconds: null })), null);
});

test('prediction errors are shares of what was measured', () => {
  assert.equal(predictionError(1.1, 1) !== null && Math.abs(predictionError(1.1, 1)! - 0.1) < 1e-12, true);
  assert.equal(predictionError(null, 1), null);
  assert.equal(predictionError(1, 0), null);
});

test('what an attempt took so far leaves out its first step and other attempts', () => {
  const points = [[1, 9, 50], [2, 7, 10], [2, 1, 12], [2, 3, 11], [2, 2, 12]]
    .map(([attempt, step_seconds, peak_memory_bytes]) => ({ attempt, step_seconds, peak_memory_bytes }) as StepMetrics);
  assert.deepEqual(measuredSoFar(points, 2), { stepSeconds: 2, peakBytes: 12 });
  assert.deepEqual(measuredSoFar(points.slice(0, 4), 2), { stepSeconds: 2, peakBytes: 12 });
  assert.deepEqual(measuredSoFar(points, 3), { stepSeconds: null, peakBytes: null });
});

test('marks are where attempts began again, and the checkpoints', () => {
  const attempts =
    [{ attempt: 1, resume_step: null }, { attempt: 2, resume_step: 50 }, { attempt: 3, resume_step: null }] as Attempt[];
  const marks = marksOf(attempts, [{ step: 50 }, { step: 100 }] as Checkpoint[]);
  assert.deepEqual(marks.map((mark) => `${mark.step} ${mark.kind}: ${mark.text}`), [
    '0 restart: attempt 3 goes on from step 0', '50 restart: attempt 2 goes on from step 50',
    '50 checkpoint: committed checkpoint', '100 checkpoint: committed checkpoint'
  ]);
});

test('parts of a whole add up and come in order', () => {
  const list = parts({ a: 1, b: 0, c: 3 });
  assert.deepEqual(list, [{ key: 'c', value: 3, share: 0.75 }, { key: 'a', value: 1, share: 0.25 }]);
  assert.deepEqual(parts({}), []);
});

test('a flight record by rank says who is behind', () => {
  const entry = (seq: number, state: string) =>
    ({ process_group: 'dp', collective_seq_id: seq, profiling_name: 'gloo:all_gather', state });
  const record = {
    analysis: { culprits: [1], ranks_without_dump: [2] },
    dumps: [
      { rank: 1, reason: 'timeout', entries: [entry(15, 'completed')] },
      { rank: 0, reason: 'timeout', entries: [entry(16, 'completed'), entry(17, 'started')] },
    ],
  } as unknown as FlightRecord;
  const rows = flightRows(record);
  assert.deepEqual(rows.map((row) => [row.rank, row.behind, row.culprit, row.last?.state]),
    [[0, 0, false, 'started'], [1, 2, true, 'completed'], [2, 0, false, undefined]]);
});
