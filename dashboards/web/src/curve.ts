// A job's curves as the page keeps them between looks at the server.
import type { Attempt, Checkpoint, Job, StepMetrics } from './types';

// `known` and newer points as one curve, ascending by step. Where a restarted attempt begins again before the end of what is
// known, its steps replace those from there on.
export function mergePoints(known: StepMetrics[], news: StepMetrics[]): StepMetrics[] {
  if (news.length === 0) return known;
  const first = news[0].step;
  let end = known.length;
  while (end > 0 && known[end - 1].step >= first) --end;
  return [...known.slice(0, end), ...news];
}

// Whether what is kept is no longer what the server has: an earlier step is the job's latest.
export function beganAgain(points: StepMetrics[], latestStep: number): boolean {
  return points.length > 0 && latestStep < points[points.length - 1].step;
}

// Columns for a chart: steps, then one per field; null where a point has none.
export function columns(points: StepMetrics[], fields: (keyof StepMetrics)[]): (number | null)[][] {
  return [points.map((p) => p.step), ...fields.map((field) => points.map((p) => p[field] as number | null))];
}

export function isFinal(state: string): boolean {
  return state === 'succeeded' || state === 'failed' || state === 'cancelled';
}

// Share of the steps that are done, from 0 to 1; null: nothing is known.
export function doneShare(job: Job): number | null {
  if (job.state === 'succeeded') return 1;
  const progress = job.progress;
  return progress && progress.steps > 0 ? Math.min(1, progress.step / progress.steps) : null;
}

// Seconds until the last step at the pace of the latest report; null where the job does not run or nothing is known.
export function secondsLeft(job: Job): number | null {
  const progress = job.progress;
  if (job.state !== 'running' || !progress || !progress.step_seconds || progress.steps <= 0) return null;
  return Math.max(0, progress.steps - progress.step) * progress.step_seconds;
}

// Of a job without a recipe yet what it asks for: 0 means as many as the pool has.
export function slotsText(job: Job): string {
  const slots = job.world_size ?? job.spec?.resources?.slots ?? null;
  return slots === null ? '–' : slots === 0 ? 'any' : slots.toLocaleString('en-US');
}

// How far the measured value lies from the predicted one, as a share of the measured one.
export function predictionError(predicted: number | null, measured: number | null): number | null {
  return predicted === null || measured === null || measured === 0 ? null : predicted / measured - 1;
}

// What an attempt took so far: the median of its steps after the first, and the largest peak. The server says it when it has
// ended.
export function measuredSoFar(points: StepMetrics[], attempt: number): { stepSeconds: number | null; peakBytes: number | null } {
  const own = points.filter((point) => point.attempt === attempt);
  const seconds = own.slice(1).map((point) => point.step_seconds).sort((a, b) => a - b);
  const middle = Math.floor(seconds.length / 2);
  const median = seconds.length % 2 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
  const peaks = own.map((point) => point.peak_memory_bytes).filter((peak): peak is number => peak !== null);
  return { stepSeconds: seconds.length ? median : null, peakBytes: peaks.length ? peaks.reduce((a, b) => Math.max(a, b)) : null };
}

// The non-zero parts of a whole, the largest first, with their share.
export function parts(values: object): { key: string; value: number; share: number }[] {
  const list = Object.entries(values as Record<string, number>).filter(([, value]) => value > 0);
  const total = list.reduce((sum, [, value]) => sum + value, 0);
  return list.map(([key, value]) => ({ key, value, share: value / total })).sort((a, b) => b.value - a.value);
}

// What happened at a step of a curve.
export interface Mark {
  kind: 'restart' | 'checkpoint';
  step: number;
  text: string;
}

// Why a job is as it is: for what its trainers wait, where they do.
export function whyOf(job: Job): string {
  return !isFinal(job.state) && job.progress?.waits ? job.progress.waits : job.reason;
}

// Where attempts after the first began, and the checkpoints; ascending by step.
export function marksOf(attempts: Attempt[], checkpoints: Checkpoint[]): Mark[] {
  const restarts = attempts.filter((a) => a.attempt > 1).map((a): Mark => (
    { kind: 'restart', step: a.resume_step ?? 0, text: `attempt ${a.attempt} goes on from step ${a.resume_step ?? 0}` }));
  const saved = checkpoints.map((c): Mark => ({ kind: 'checkpoint', step: c.step, text: 'committed checkpoint' }));
  return [...restarts, ...saved].sort((a, b) => a.step - b.step);
}
