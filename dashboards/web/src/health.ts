// What is wrong with a worker's slots, and what the check of its machine found, in words.
import * as format from './format';
import type { CheckResult, Worker } from './types';

// Slots that get nothing new for their faults; all where the whole worker has one.
export function faultySlots(worker: Worker): number {
  const { health } = worker;
  if (!health || !worker.connected) return 0;
  return health.fault ? worker.slots : new Set(health.slot_faults.map((fault) => fault.slot)).size;
}

// Why, a line for each fault.
export function faultLines(worker: Worker): string[] {
  const { health } = worker;
  if (!health || !worker.connected) return [];
  const lines = health.fault ? [health.fault] : [];
  return [...lines, ...health.slot_faults.map((fault) => `slot ${fault.slot}: ${fault.reason}`)];
}

// "device of slot 0: passed in 1.2 s, 64 GB/s to it, ...".
export function resultLine(result: CheckResult): string {
  const rate = (value: number | null, what: string) => value !== null && `${format.rate(value, 'B/s')} ${what}`;
  const parts = [
    `${result.passed ? 'passed' : 'failed'} in ${result.seconds.toFixed(1)} s`,
    rate(result.write_bytes_per_second, 'written'),
    rate(result.read_bytes_per_second, 'read'),
    result.free_bytes !== null && `${format.bytes(result.free_bytes)} free`,
    rate(result.to_device_bytes_per_second, 'to it'),
    rate(result.from_device_bytes_per_second, 'from it'),
    result.flops_per_second !== null && format.rate(result.flops_per_second, 'FLOP/s'),
    rate(result.received_bytes_per_second, 'received'),
  ].filter(Boolean);
  const of = result.slots.length === 0 ? '' : ` of slot${result.slots.length > 1 ? 's' : ''} ${result.slots.join(' and ')}`;
  return `${result.kind}${of}: ${parts.join(', ')}${result.text ? `: ${result.text}` : ''}`;
}

// Failures, then what is of no pair, then of pairs that passed how many and the slowest.
export function checkLines(results: CheckResult[]): string[] {
  const failed = results.filter((result) => !result.passed);
  const single = results.filter((result) => result.passed && result.slots.length < 2);
  const pairs = results.filter((result) => result.passed && result.slots.length === 2)
    .sort((a, b) => (a.received_bytes_per_second ?? 0) - (b.received_bytes_per_second ?? 0));
  const lines = [...failed, ...single].map(resultLine);
  const slowest = pairs.length > 0 ? resultLine(pairs[0]) : '';
  if (pairs.length > 0) lines.push(pairs.length === 1 ? slowest : `${pairs.length} pairs passed, the slowest: ${slowest}`);
  return lines;
}
