import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkLines, faultLines, faultySlots, resultLine } from './health';
import type { CheckResult, Worker } from './types';

const none = {
  text: '', write_bytes_per_second: null, read_bytes_per_second: null, free_bytes: null, flops_per_second: null,
  to_device_bytes_per_second: null, from_device_bytes_per_second: null, received_bytes_per_second: null,
};
const result = (more: Partial<CheckResult>): CheckResult => (
  { kind: 'device', slots: [0], passed: true, seconds: 1, ...none, ...more });

test('a result in one line', () => {
  const line = resultLine(result({ seconds: 1.24, to_device_bytes_per_second: 64e9, flops_per_second: 5e13 }));
  assert.match(line, /^device of slot 0: passed in 1\.2 s, 64.* to it, 50.*FLOP\/s$/);
  assert.equal(resultLine(result({ kind: 'disk', slots: [], passed: false, seconds: 0, text: 'the disk is full' })),
    'disk: failed in 0.0 s: the disk is full');
});

test('failures come first, and pairs that passed are one line with the slowest', () => {
  const pair = (a: number, b: number, rate: number) => (
    result({ kind: 'all_gather', slots: [a, b], received_bytes_per_second: rate }));
  const lines = checkLines([result({ kind: 'disk', slots: [] }), pair(0, 1, 3e9), pair(1, 2, 1e9),
    result({ kind: 'all_gather', slots: [0, 2], passed: false, text: 'timed out' })]);
  assert.equal(lines.length, 3);
  assert.match(lines[0], /^all_gather of slots 0 and 2: failed/);
  assert.match(lines[1], /^disk: passed/);
  assert.match(lines[2], /^2 pairs passed, the slowest: all_gather of slots 1 and 2/);
});

test('faulty slots are counted once, and all where the worker has a fault', () => {
  const fault = (slot: number, cause: string) => ({ slot, cause, reason: `of ${cause}`, time_us: 1 });
  const health = { checking: false, fault: '', check: null, slot_faults: [fault(1, 'gpu_memory'), fault(1, 'gpu_xid')] };
  const worker = { slots: 4, connected: true, health } as unknown as Worker;
  assert.equal(faultySlots(worker), 1);
  assert.deepEqual(faultLines(worker), ['slot 1: of gpu_memory', 'slot 1: of gpu_xid']);
  assert.equal(faultySlots({ ...worker, health: { ...health, fault: 'the disk' } }), 4);
  assert.equal(faultySlots({ ...worker, connected: false }), 0);
  assert.equal(faultySlots({ ...worker, health: undefined }), 0);
});
