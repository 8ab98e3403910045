import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flatten, keyDifferences, paretoFront, partDifferences, ticks } from './compare';
import type { RankedRecipe, Recipe } from './types';

const ranked = (rank: number, memory: number, seconds: number, estimated = false) =>
  ({ rank, peak_memory_bytes: memory, step_time_seconds: seconds, estimated }) as RankedRecipe;

// xorshift32: the same numbers in every run.
function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

test('the front is what nothing beats, by brute force', () => {
  const random = randomNumbers(20261123);
  for (let round = 0; round < 300; ++round) {
    const list = Array.from({ length: 1 + random(12) }, (_, i) => ranked(i + 1, 1 + random(6), 1 + random(6), random(5) === 0));
    const real = list.filter((r) => !r.estimated);
    const beaten = (r: RankedRecipe) => real.some((o) => o.peak_memory_bytes <= r.peak_memory_bytes &&
      o.step_time_seconds <= r.step_time_seconds &&
      (o.peak_memory_bytes < r.peak_memory_bytes || o.step_time_seconds < r.step_time_seconds));
    const place = (r: RankedRecipe) => `${r.peak_memory_bytes} ${r.step_time_seconds}`;
    const wanted = [...new Set(real.filter((r) => !beaten(r)).map(place))].sort();
    assert.deepEqual(paretoFront(list).map(place).sort(), wanted, `round ${round} from seed 20261123`);
  }
});

test('recipes differ in the keys that are set otherwise', () => {
  const a = { parallelism: { tensor_parallel_degree: 2, pipeline_parallel_degree: null }, training: null } as unknown as Recipe;
  const b = { parallelism: { tensor_parallel_degree: 4 }, activation_checkpoint: { mode: 'full' } } as unknown as Recipe;
  assert.deepEqual([...flatten(a)], [['parallelism.tensor_parallel_degree', '2']]);
  assert.deepEqual(keyDifferences(a, b), [
    { key: 'parallelism.tensor_parallel_degree', a: '2', b: '4' }, { key: 'activation_checkpoint.mode', a: null, b: 'full' },
  ]);
  assert.deepEqual(keyDifferences(a, a), []);
  assert.deepEqual(keyDifferences(null, null), []);
});

test('parts stand by the size of their difference', () => {
  assert.deepEqual(partDifferences({ x: 1, y: 5, z: 0 }, { x: 4, y: 4.5, w: 2 }), [
    { key: 'x', a: 1, b: 4 }, { key: 'w', a: 0, b: 2 }, { key: 'y', a: 5, b: 4.5 },
  ]);
  assert.deepEqual(partDifferences(null, null), []);
});

test('ticks are round, inside and not too many', () => {
  assert.deepEqual(ticks(0.31, 0.92, 6).map((v) => v.toFixed(6)), ['0.400000', '0.600000', '0.800000']);
  assert.deepEqual(ticks(0, 100, 5), [0, 20, 40, 60, 80, 100]);
  assert.deepEqual(ticks(5, 5, 5), [5]);
  const gib = 2 ** 30;
  assert.deepEqual(ticks(10 * gib, 70 * gib, 7, 2), [16, 32, 48, 64].map((n) => n * gib));
  for (const [low, high] of [[1e-4, 3e-4], [1, 1.001], [3, 4e9]]) {
    const list = ticks(low, high, 6);
    assert.ok(list.length >= 2 && list.length <= 8, `${low} ${high}: ${list}`);
    assert.ok(list.every((v) => v >= low * 0.999999 && v <= high * 1.000001));
  }
});
