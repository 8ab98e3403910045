// Recipes beside each other: which of them nothing beats, where they differ, and what the differences cost.
import type { RankedRecipe, Recipe } from './types';

// Those to which no other is both faster and smaller; by ascending memory. Estimates, whose memory is a bound, are no part of it.
export function paretoFront(ranked: RankedRecipe[]): RankedRecipe[] {
  const sorted = ranked.filter((r) => !r.estimated)
    .sort((x, y) => x.peak_memory_bytes - y.peak_memory_bytes || x.step_time_seconds - y.step_time_seconds);
  const front: RankedRecipe[] = [];
  for (const one of sorted) {
    if (front.length === 0 || one.step_time_seconds < front[front.length - 1].step_time_seconds) front.push(one);
  }
  return front;
}

// "parallelism.tensor_parallel_degree" -> "2"; what is unset is not there.
export function flatten(recipe: Recipe | null): Map<string, string> {
  const flat = new Map<string, string>();
  const add = (path: string, value: unknown) => {
    if (value === null || value === undefined) return;
    if (typeof value === 'object') for (const [key, part] of Object.entries(value)) add(path ? `${path}.${key}` : key, part);
    else flat.set(path, String(value));
  };
  add('', recipe);
  return flat;
}

export interface KeyDifference {
  key: string;
  a: string | null; // null: unset
  b: string | null;
}

export function keyDifferences(a: Recipe | null, b: Recipe | null): KeyDifference[] {
  const [first, second] = [flatten(a), flatten(b)];
  return [...new Set([...first.keys(), ...second.keys()])]
    .map((key) => ({ key, a: first.get(key) ?? null, b: second.get(key) ?? null }))
    .filter((one) => one.a !== one.b);
}

export interface PartDifference {
  key: string; // "compute_seconds"
  a: number;
  b: number;
}

// The parts that either has; the largest difference first.
export function partDifferences(a: object | null, b: object | null): PartDifference[] {
  const [first, second] = [(a ?? {}) as Record<string, number>, (b ?? {}) as Record<string, number>];
  return [...new Set([...Object.keys(first), ...Object.keys(second)])]
    .map((key) => ({ key, a: first[key] ?? 0, b: second[key] ?? 0 }))
    .filter((part) => part.a !== 0 || part.b !== 0)
    .sort((x, y) => Math.abs(y.b - y.a) - Math.abs(x.b - x.a));
}

// Ticks of an axis from `low` to `high`: multiples of 1, 2 or 5 times a power of `base` 10, or of a power of two.
export function ticks(low: number, high: number, most: number, base: 2 | 10 = 10): number[] {
  if (!(high > low)) return [low];
  const least = (high - low) / most;
  let step = base === 2 ? 2 ** Math.ceil(Math.log2(least)) : 10 ** Math.floor(Math.log10(least));
  if (base === 10) step *= [1, 2, 5, 10].find((factor) => factor * step >= least * 0.9999)!;
  const list: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) list.push(i * step + 0); // no "-0"
  return list;
}
