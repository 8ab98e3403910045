// Where the time of steps went, as reports of ranks say it: columns over the run, rows of ranks, sums of collectives.
import type { RankMetrics, StepMetrics } from './types';

// Parts of a step that follow each other; the rest is what lies between them.
export const PHASES = ['data_seconds', 'forward_seconds', 'backward_seconds', 'optimizer_seconds'] as const;
export type Phase = (typeof PHASES)[number] | 'rest_seconds';

export interface Column {
  first: number; // the steps of its reports
  last: number;
  phases: Record<Phase, number>; // seconds, means of its reports
  step: number;
  exposed: number; // communication, while nothing was computed: a part of the phases
}

function phasesOf(row: RankMetrics): Record<Phase, number> {
  const [data, forward, backward, optimizer] = PHASES.map((phase) => row[phase]);
  const rest = Math.max(0, row.step_seconds - data - forward - backward - optimizer);
  return { data_seconds: data, forward_seconds: forward, backward_seconds: backward, optimizer_seconds: optimizer, rest_seconds: rest };
}

// Reports of rank 0, those that follow each other together where there are more than `most`.
export function columns(points: StepMetrics[], most: number): Column[] {
  const told = points.filter((point) => point.ranks[0]?.rank === 0);
  const count = Math.min(most, told.length);
  const list: Column[] = [];
  for (let i = 0; i < count; ++i) {
    const part = told.slice(Math.floor((i * told.length) / count), Math.floor(((i + 1) * told.length) / count));
    const mean = (of: (row: RankMetrics) => number) => part.reduce((sum, point) => sum + of(point.ranks[0]), 0) / part.length;
    const phases = Object.fromEntries(
      [...PHASES, 'rest_seconds' as const].map((phase) => [phase, mean((row) => phasesOf(row)[phase])])) as Record<Phase, number>;
    list.push({
      first: part[0].step, last: part[part.length - 1].step, phases, step: mean((row) => row.step_seconds),
      exposed: mean((row) => row.exposed_communication_seconds),
    });
  }
  return list;
}

// What a table of ranks shows; null: it was not told.
export const MEASURES = [
  ['step_seconds', 'step'], ['data_seconds', 'data'], ['forward_seconds', 'forward'], ['backward_seconds', 'backward'],
  ['optimizer_seconds', 'optimizer'], ['exposed_communication_seconds', 'exposed communication'],
  ['peak_memory_bytes', 'peak memory'],
] as const;
export type Measure = (typeof MEASURES)[number][0];

// Where a value lies between the least and the most of its kind, from 0 to 1. Values that hardly differ, by less than a
// hundredth, are all 0: noise is no pattern.
export function heat(value: number | null, all: (number | null)[]): number {
  const known = all.filter((one) => one !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  if (value === null || !(most - least > 0.01 * Math.abs(most))) return 0;
  return (value - least) / (most - least);
}

// The rank that is furthest above the mean of the others; null: none stands out by a hundredth.
export function outlier(rows: RankMetrics[], measure: Measure): { rank: number; over: number } | null {
  const known = rows.filter((row) => row[measure] !== null);
  if (known.length < 2) return null;
  const worst = known.reduce((a, b) => ((b[measure] as number) > (a[measure] as number) ? b : a));
  const others = known.filter((row) => row !== worst);
  const mean = others.reduce((sum, row) => sum + (row[measure] as number), 0) / others.length;
  const over = mean > 0 ? (worst[measure] as number) / mean - 1 : 0;
  return over >= 0.01 ? { rank: worst.rank, over } : null;
}

export interface CollectiveSum {
  collective: string;
  group: string;
  count: number; // of a step
  seconds: number; // of a step, the mean of the ranks in it
  exposed: number;
  share: number; // exposed of seconds
  mostExposed: { rank: number; seconds: number };
}

// The most exposed first.
export function collectiveSums(rows: RankMetrics[]): CollectiveSum[] {
  const sums = new Map<string, CollectiveSum & { ranks: number }>();
  for (const row of rows) {
    for (const one of row.collectives) {
      const key = `${one.collective} of ${one.group}`;
      const sum = sums.get(key) ?? {
        collective: one.collective, group: one.group, count: 0, seconds: 0, exposed: 0, share: 0, ranks: 0,
        mostExposed: { rank: row.rank, seconds: -1 },
      };
      sum.ranks += 1;
      sum.count = Math.max(sum.count, one.count);
      sum.seconds += one.seconds;
      sum.exposed += one.exposed_seconds;
      if (one.exposed_seconds > sum.mostExposed.seconds) sum.mostExposed = { rank: row.rank, seconds: one.exposed_seconds };
      sums.set(key, sum);
    }
  }
  return [...sums.values()].map(({ ranks, ...sum }) => ({
    ...sum, seconds: sum.seconds / ranks, exposed: sum.exposed / ranks, share: sum.seconds > 0 ? sum.exposed / sum.seconds : 0,
  })).sort((a, b) => b.exposed - a.exposed);
}
