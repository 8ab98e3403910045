import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  align, beganAgain, csv, doneShare, failedAttempt, marksOf, measuredSoFar, mergePoints, parts, placeOf, places, positive,
  predictionError, secondsLeft, smooth, whyOff,
} from './curve';
import { flightRows } from './flight';
import type { Attempt, Checkpoint, FlightRecord, Job, StepMetrics, Worker } from './types';

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

test('smoothing is the weighted mean of what was so far, by its definition', () => {
  const values = [4, 1, null, 3, 8, 2];
  for (const weight of [0.3, 0.9, 0.99]) {
    const known: number[] = [];
    const wanted = values.map((value) => {
      if (value === null) return null;
      known.push(value);
      const weights = known.map((_, i) => weight ** (known.length - 1 - i));
      return known.reduce((sum, v, i) => sum + v * weights[i], 0) / weights.reduce((a, b) => a + b, 0);
    });
    smooth(values, weight).forEach((value, i) => {
      if (wanted[i] === null) assert.equal(value, null);
      else assert.ok(Math.abs(value! - wanted[i]!) < 1e-12, `${weight} ${i}`);
    });
  }
  assert.equal(smooth(values, 0), values);
});

test('curves lie at steps or at seconds since the first report, on one axis', () => {
  const points = [[10, 1000], [20, 1005], [30, 1015]].map(
    ([step, time_unix_seconds]) => ({ step, time_unix_seconds }) as StepMetrics);
  assert.deepEqual(places(points, 'step'), [10, 20, 30]);
  assert.deepEqual(places(points, 'time'), [0, 5, 15]);
  assert.equal(placeOf(15, points, 'step'), 15);
  assert.equal(placeOf(15, points, 'time'), 5);
  assert.equal(placeOf(31, points, 'time'), null);
  assert.deepEqual(align([{ x: [1, 3], values: [10, 30] }, { x: [2, 3, 4], values: [5, null, 7] }]), {
    x: [1, 2, 3, 4], values: [[10, null, 30, null], [null, 5, null, 7]],
  });
  assert.deepEqual(positive([1, 0, -2, null, 3]), [1, null, null, null, 3]);
});

test('the table has a line for each step, and nothing where nothing is known', () => {
  const lines = csv([{ attempt: 1, step: 2, loss: 1.5, mfu: null } as StepMetrics]).split('\n');
  assert.equal(lines[0].split(',').length, lines[1].split(',').length);
  assert.match(lines[0], /^attempt,step,time_unix_seconds,loss/);
  assert.match(lines[1], /^1,2,,1.5,,/);
  assert.equal(lines.length, 3);
});

test('the latest attempt that came to grief is told', () => {
  const list = [['failed', 1], ['lost', 2], ['running', 3]].map(([state, attempt]) => ({ state, attempt }) as Attempt);
  assert.equal(failedAttempt(list)?.attempt, 2);
  assert.equal(failedAttempt(list.slice(2)), null);
});

test('why a step takes longer than predicted, as far as the records tell', () => {
  const attempt = { attempt: 1, end_time_us: null, placements: [{ worker: 'workers/a', slots: 2, first_rank: 0 }] } as unknown as Attempt;
  const points = [{ attempt: 1, step_seconds: 2, data_seconds: 0.2 }] as StepMetrics[];
  const workers = [
    { name: 'workers/a', used: [{ job: 'me', slots: 2 }, { job: 'other', slots: 1 }] },
    { name: 'workers/b', used: [{ job: 'third', slots: 4 }] },
  ] as unknown as Worker[];
  assert.equal(whyOff(1, 1.05, points, attempt, 'me', workers), '');
  assert.equal(whyOff(null, 1, points, attempt, 'me', workers), '');
  assert.match(whyOff(2, 1, points, attempt, 'me', workers), /faster than predicted/);
  assert.equal(whyOff(1, 2, points, attempt, 'me', workers), 'Steps are slower than predicted. Fetching data takes 10 % of a step; ' +
    'other jobs of this service hold 1 slot of its host now. Work of other programs on the host is not recorded.');
  assert.match(whyOff(1, 2, [], attempt, 'me', workers.slice(1)), /No other job of this service is on its host\./);
  const ended = { ...attempt, end_time_us: 5 } as Attempt;
  assert.doesNotMatch(whyOff(1, 2, [], ended, 'me', workers), /other job/);

  const host = (share: number | null, held: number, fields: object = {}) => [{
    name: 'workers/a', connected: true, host_cores: 4, device: { kind: 'cpu' }, used: [{ job: 'me', slots: held }],
    use: { processor_share: share }, ...fields,
  }] as unknown as Worker[];
  assert.match(whyOff(1, 2, [], attempt, 'me', host(0.9, 2)),
    /; 90 % of its host's processors are in use now, and jobs hold 50 % of the cores: something else is at work there\.$/);
  for (const quiet of [host(0.55, 2), host(1, 4), host(null, 2), host(0.9, 2, { connected: false }),
    host(0.9, 2, { device: { kind: 'cuda' } }), host(0.9, 2, { name: 'workers/b' })])
    assert.match(whyOff(1, 2, [], attempt, 'me', quiet), /Work of other programs on the host is not recorded\.$/);
  assert.doesNotMatch(whyOff(1, 2, [], ended, 'me', host(0.9, 2)), /in use now/, 'it is over');
  const two = [...host(0.9, 2, { host: 'h' }), ...host(0.9, 2, { host: 'h', name: 'workers/b' })];
  assert.doesNotMatch(whyOff(1, 2, [], attempt, 'me', two), /something else/, 'the other worker of the host holds the rest');

  const measured = (share: number) => host(0.5, 2, { device: { kind: 'cpu', measured_while_busy: share } });
  assert.equal(whyOff(2, 1, [], attempt, 'me', measured(0.43)), 'Steps are faster than predicted. ' +
    "Its host's figures were measured while others took 43 % of the processors, and are too low.");
  assert.match(whyOff(2, 1, [], ended, 'me', measured(0.43)), /does more than its figures say/, 'it may have been measured since');
  assert.match(whyOff(2, 1, [], attempt, 'me', measured(0.04)), /does more than its figures say/);
});
