import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as format from './format';

// The numbers of server/cli/output_test.cc, as the command line writes them.
test('bytes have binary units and three digits', () => {
  assert.equal(format.bytes(0), '0 B');
  assert.equal(format.bytes(1023), '1023 B');
  assert.equal(format.bytes(1024), '1.00 KiB');
  assert.equal(format.bytes(1.5 * 2 ** 30), '1.50 GiB');
  assert.equal(format.bytes(80 * 2 ** 30), '80.0 GiB');
  assert.equal(format.bytes(123.4 * 2 ** 20), '123 MiB');
  assert.equal(format.bytes(null), '–');
});

test('rates have decimal prefixes', () => {
  assert.equal(format.rate(12345, 'B/s'), '12.3 KB/s');
  assert.equal(format.rate(989e12, 'FLOP/s'), '989 TFLOP/s');
  assert.equal(format.rate(7, 'B/s'), '7 B/s');
  assert.equal(format.rate(undefined, 'B/s'), '–');
  assert.equal(format.large(1283), '1.28 K');
  assert.equal(format.large(577), '577');
});

test('seconds keep their unit at every size', () => {
  assert.equal(format.seconds(0.0000023), '2.30 us');
  assert.equal(format.seconds(0.01234), '12.3 ms');
  assert.equal(format.seconds(0.4726), '473 ms');
  assert.equal(format.seconds(3.5), '3.500 s');
  assert.equal(format.seconds(34.5), '34.50 s');
  assert.equal(format.seconds(100), '100.0 s');
  assert.equal(format.seconds(NaN), '–');
});

test('ticks say no zeros behind the point', () => {
  assert.deepEqual(['1.50 GiB', '80.0 GiB', '500 ms', '1.00 K', '0 us', '0', '2.000 s', '10.05', '100'].map(format.tick),
    ['1.5 GiB', '80 GiB', '500 ms', '1 K', '0', '0', '2 s', '10.05', '100']);
});

test('durations have two units at most', () => {
  assert.equal(format.duration(0.2), '0 s');
  assert.equal(format.duration(59.6), '1 min');
  assert.equal(format.duration(3725), '1 h 2 min');
  assert.equal(format.duration(86400 * 4 + 3600 * 3 + 59), '4 d 3 h');
  assert.equal(format.duration(86400 + 59), '1 d');
  assert.equal(format.duration(3725, 1), '1 h');
});

test('ages are of one unit, and never negative', () => {
  const now = 1_700_000_000_000;
  const at = (seconds: number) => (now / 1000 - seconds) * 1e6;
  assert.equal(format.age(at(0.5), now), 'now');
  assert.equal(format.age(at(-30), now), 'now');
  assert.equal(format.ago(at(59), now), '59 s ago');
  assert.equal(format.ago(at(3600), now), '1 h ago');
  assert.equal(format.age(at(86400 * 12), now), '12 d');
  assert.equal(format.ago(0, now), '–');
});

test('percents and their signs', () => {
  assert.equal(format.percent(0.4567), '45.7 %');
  assert.equal(format.percent(0.0456), '4.6 %');
  assert.equal(format.signedPercent(-0.031), '−3.1 %');
  assert.equal(format.signedPercent(0.2), '+20.0 %');
});

test('ranks are listed in runs', () => {
  assert.equal(format.ranks([]), '');
  assert.equal(format.ranks([3]), 'rank 3');
  assert.equal(format.ranks([3, 3]), 'rank 3');
  assert.equal(format.ranks([7, 5, 6, 1, 5]), 'ranks 1, 5–7');
  assert.equal(format.ranks([0, 1, 3, 4, 5, 9]), 'ranks 0, 1, 3–5, 9');
});

test('counts are plural where they are', () => {
  assert.equal(format.plural(1, 'job'), '1 job');
  assert.equal(format.plural(100000, 'job'), '100,000 jobs');
});

test('slower by what can be told, and as a factor where it is many times', () => {
  assert.equal(format.slower(1, 1), '–');
  assert.equal(format.slower(1.0001, 1), '–'); // not "+0.0 %"
  assert.equal(format.slower(1.13, 1), '+13.0 %');
  assert.equal(format.slower(2.44, 1), '2.4 ×');
  assert.equal(format.slower(13.07, 1), '13 ×'); // not "+1,207 %"
  assert.equal(format.slower(1, 0), '–');
});

test('of several servers the page says which leads', () => {
  const info = { build_version: '1', start_time_us: 0, store: 'postgresql', schema_version: 3, leads: false, address: 'b:1' };
  const a = { address: 'a:1', holder: 'process 7 on a', term: 2 };
  assert.equal(format.leader({ ...info, leader: a }), 'a:1 leads');
  assert.equal(format.leader({ ...info, leader: { ...a, address: '' } }), 'process 7 on a leads');
  assert.equal(format.leader({ ...info, leads: true, leader: { ...a, address: 'b:1' } }), 'leads');
  assert.equal(format.leader(info), 'no server leads');
  assert.equal(format.leader({ ...info, store: 'sqlite', leads: true }), '', 'one that is alone');
});
