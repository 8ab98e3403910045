import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import {
  latestTrace, moved, parseTrace, partings, readTrace, sliceAt, standsFor, streamRows, TraceError, zoomed, type Span,
} from './trace';
import type { StepTraceInfo } from './types';

const meta = (name: string, pid: number, tid: number, args: object) => ({ ph: 'M', name, pid, tid, args });
const slice = (name: string, cat: string, pid: number, tid: number, ts: number, dur: number, args: object = {}) =>
  ({ ph: 'X', name, cat, pid, tid, ts, dur, args });

// Two stages, as the simulator writes them (simulator/engine/chrome_trace.cc).
const EVENTS = [
  meta('process_name', 1, 0, { name: 'stage 0 (rank 0)' }), meta('process_name', 2, 0, { name: 'stage 1 (rank 4)' }),
  meta('thread_name', 1, 1002, { name: 'compute' }), meta('thread_sort_index', 1, 1002, { sort_index: 2 }),
  meta('thread_name', 1, 1003, { name: 'all_gather' }), meta('thread_sort_index', 1, 1003, { sort_index: 3 }),
  meta('thread_name', 1, 1001, { name: 'phases and modules' }), meta('thread_sort_index', 1, 1001, { sort_index: 1 }),
  meta('thread_name', 2, 2002, { name: 'compute' }),
  slice('lego::all_gather_into', 'communication', 1, 1003, 105, 40, { phase: 'forward' }),
  slice('aten::mm', 'compute', 1, 1002, 100, 10, { phase: 'forward', module: 'layers.0' }),
  slice('aten::mm', 'compute', 1, 1002, 110, 30, { phase: 'backward' }),
  slice('forward of microbatch 0', 'module', 1, 1001, 100, 50, { phase: 'forward' }),
  slice('model', 'module', 1, 1001, 100, 20, { phase: 'forward' }),
  slice('layers.0', 'module', 1, 1001, 105, 10, { phase: 'forward' }),
  { ph: 'C', name: 'live memory', pid: 1, ts: 3, args: { bytes: 1 } },
  { ph: 's', name: 'wait', cat: 'flow', pid: 1, tid: 1003, ts: 140, id: 1 },
  slice('aten::mm', 'compute', 2, 2002, 120, 12, { phase: 'forward' }),
];
const TEXT = JSON.stringify({ traceEvents: EVENTS, displayTimeUnit: 'ms', otherData: {} });

test('a trace is ranks with streams in their order, from the step’s begin', () => {
  const [first, second] = parseTrace(TEXT);
  assert.equal(first.name, 'stage 0 (rank 0)');
  assert.deepEqual(first.tracks.map((track) => track.name), ['phases and modules', 'compute', 'all_gather']);
  assert.equal(first.length, 50);
  assert.deepEqual(first.tracks[1].slices.map((one) => [one.start, one.end, one.kind, one.isOperator]),
    [[0, 10, 'forward', true], [10, 40, 'backward', true]]);
  assert.equal(first.tracks[2].slices[0].kind, 'communication');
  assert.deepEqual(first.tracks[0].slices.map((one) => one.depth), [0, 1, 2]);
  assert.deepEqual(first.tracks.map((track) => track.busy), [50, 40, 40]); // what is nested counts once
  assert.equal(second.length, 12);
  assert.deepEqual(parseTrace(JSON.stringify(EVENTS)).length, 2); // Chrome's other form: the list alone
});

// The simulator's numbers are so.
test('slices that seem to overlap by less than a nanosecond follow each other', () => {
  const [rank] = parseTrace(JSON.stringify([
    slice('aten::zeros', 'compute', 1, 1, 0.0001, 4.0001), slice('aten::copy_', 'compute', 1, 1, 4.0001, 49.3601),
    slice('aten::mm', 'compute', 1, 1, 53.3601, 2)]));
  assert.deepEqual(rank.tracks[0].slices.map((one) => one.depth), [0, 0, 0]);
  assert.ok(Math.abs(rank.tracks[0].busy - 55.36) < 0.001);
});

test('what is no trace is said', () => {
  for (const text of ['', '{', '[1', '{"traceEvents": 5}', 'null', '{}']) assert.throws(() => parseTrace(text), TraceError, text);
  assert.deepEqual(parseTrace('{"traceEvents": []}'), []);
});

test('a file is unpacked, and one that is none is refused', async () => {
  assert.equal((await readTrace(new Response(new Uint8Array(gzipSync(TEXT))))).length, 2);
  await assert.rejects(readTrace(new Response(TEXT)), TraceError);
  await assert.rejects(readTrace(new Response(new Uint8Array(gzipSync(TEXT).subarray(0, 80)))), TraceError);
});

test('a predicted stage stands for the ranks up to the next one', () => {
  const ranks = parseTrace(TEXT);
  assert.deepEqual([0, 3, 4, 7].map((rank) => standsFor(ranks, rank)!.name.slice(6, 7)), ['0', '0', '1', '1']);
  assert.equal(standsFor([], 0), null);
});

test('streams and operators beside each other', () => {
  const [first, second] = parseTrace(TEXT);
  assert.deepEqual(streamRows(first, second), [
    { stream: 'phases and modules', predicted: 50, measured: null }, { stream: 'compute', predicted: 40, measured: 12 },
    { stream: 'all_gather', predicted: 40, measured: null },
  ]);
  assert.deepEqual(streamRows(null, second), [{ stream: 'compute', predicted: null, measured: 12 }]);
  assert.deepEqual(partings(first, second), [
    { name: 'lego::all_gather_into', predicted: 40, measured: 0, calls: [1, 0] },
    { name: 'aten::mm', predicted: 40, measured: 12, calls: [2, 1] },
  ]);
});

test('what is at a time is found, of nested ones that of the row', () => {
  const [modules, compute] = parseTrace(TEXT)[0].tracks;
  assert.equal(sliceAt(compute, 5, 0)!.end, 10);
  assert.equal(sliceAt(compute, 39, 0)!.start, 10);
  assert.equal(sliceAt(compute, 45, 0), null);
  assert.equal(sliceAt(modules, 7, 0)!.name, 'forward of microbatch 0');
  assert.equal(sliceAt(modules, 7, 1)!.name, 'model');
  assert.equal(sliceAt(modules, 7, 2)!.name, 'layers.0');
  assert.equal(sliceAt(modules, -1, 2), null);
  // Against a search from the beginning, over slices that lie side by side.
  for (let at = 0; at <= 50; ++at) {
    const plain = compute.slices.filter((one) => one.start <= at && one.end >= at).at(-1) ?? null;
    assert.equal(sliceAt(compute, at, 0), plain, `at ${at}`);
  }
});

test('a part of the axis stays within it', () => {
  let span: Span = [0, 100];
  for (const [at, factor] of [[50, 0.5], [30, 0.5], [99, 0.1], [0, 3], [50, 100]] as [number, number][]) {
    span = zoomed(span, 100, at, factor);
    assert.ok(span[0] >= 0 && span[1] <= 100 + 1e-9 && span[1] > span[0], String(span));
  }
  assert.deepEqual(span, [0, 100]);
  assert.deepEqual(zoomed([0, 100], 100, 50, 0.5), [25, 75]);
  assert.deepEqual(moved([25, 75], 100, 0.5), [50, 100]);
  assert.deepEqual(moved([25, 75], 100, -3), [0, 50]);
});

test('the latest step’s first rank is shown first', () => {
  const info = (attempt: number, step: number, rank: number) =>
    ({ name: `${attempt}-${step}-${rank}`, attempt, step, rank }) as StepTraceInfo;
  assert.equal(latestTrace([info(1, 50, 0), info(1, 90, 0), info(2, 60, 1), info(2, 60, 3)])!.name, '2-60-1');
  assert.equal(latestTrace([]), null);
});
