// A job's curves as the page keeps them between looks at the server.
import type { Attempt, Checkpoint, Job, StepMetrics, Worker } from './types';

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

export type Axis = 'step' | 'time';

// Where the points lie on the horizontal axis: at their steps, or at seconds since the first report.
export function places(points: StepMetrics[], axis: Axis): number[] {
  return points.map((p) => (axis === 'step' ? p.step : p.time_unix_seconds - points[0].time_unix_seconds));
}

// Where a step lies: at the first report that has it behind it; null: later than all.
export function placeOf(step: number, points: StepMetrics[], axis: Axis): number | null {
  if (axis === 'step') return step;
  const at = points.find((p) => p.step >= step);
  return at ? at.time_unix_seconds - points[0].time_unix_seconds : null;
}

// The exponential mean of what was so far, each earlier value counting `weight` times as much as the next; without the pull of
// a first value that TensorBoard removes too. Gaps stay gaps.
export function smooth(values: (number | null)[], weight: number): (number | null)[] {
  if (weight <= 0) return values;
  let sum = 0;
  let norm = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

// Curves with horizontal axes of their own, put on one that has every place of all of them, ascending.
export function align(curves: { x: number[]; values: (number | null)[] }[]): { x: number[]; values: (number | null)[][] } {
  const x = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
  const index = new Map(x.map((place, i) => [place, i]));
  const values = curves.map((curve) => {
    const row: (number | null)[] = new Array(x.length).fill(null);
    curve.x.forEach((place, i) => { row[index.get(place)!] = curve.values[i]; });
    return row;
  });
  return { x, values };
}

// A logarithmic axis has no place for zero and less.
export function positive(values: (number | null)[]): (number | null)[] {
  return values.map((value) => (value !== null && value > 0 ? value : null));
}

// The curves as a table for other programs.
export function csv(points: StepMetrics[]): string {
  const fields: (keyof StepMetrics)[] = [
    'attempt', 'step', 'time_unix_seconds', 'loss', 'validation_loss', 'grad_norm', 'learning_rate', 'step_seconds', 'data_seconds',
    'tokens_per_second', 'mfu', 'hfu', 'exposed_communication_share', 'peak_memory_bytes',
  ];
  return [fields.join(','), ...points.map((p) => fields.map((field) => p[field] ?? '').join(','))].join('\n') + '\n';
}

// The latest attempt that came to grief; null: none did.
export function failedAttempt(attempts: Attempt[]): Attempt | null {
  const bad = attempts.filter((a) => a.state === 'failed' || a.state === 'lost');
  return bad.length ? bad[bad.length - 1] : null;
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

// From how far on a prediction is called off.
const OFF = 0.1;

// Above this share of the processors that others took while a device was measured, its figures are too low to go by.
const BUSY = 0.05;

// What is known of the figures that predictions for these workers go by; empty: nothing is wrong with them.
function measuredBusy(workers: Worker[]): string {
  const share = Math.max(0, ...workers.map((worker) => worker.device?.measured_while_busy ?? 0));
  return share > BUSY ? `its host's figures were measured while others took ${Math.round(100 * share)} % of the processors, and are too low`
    : '';
}

// Whether other programs are at work on these hosts now. A slot of a processor keeps a core busy: what is in use beyond the slots
// that jobs hold, of all workers of the host, is others' work. Where they hold all cores that cannot be told.
function othersNow(hosts: Worker[], all: Worker[]): string {
  for (const worker of hosts) {
    const share = worker.connected ? worker.use?.processor_share ?? null : null;
    if (share === null || worker.device?.kind !== 'cpu' || worker.host_cores <= 0) continue;
    const here = all.filter((other) => other === worker || (other.host !== '' && other.host === worker.host));
    const held = here.flatMap((other) => other.used).reduce((sum, use) => sum + use.slots, 0) / worker.host_cores;
    if (held < 1 && share > held + OFF) {
      return `${Math.round(100 * share)} % of its host's processors are in use now, and jobs hold ${Math.round(100 * held)} % of the ` +
        'cores: something else is at work there';
    }
  }
  return '';
}

function sentences(said: string[]): string {
  const text = said.filter(Boolean).join('; ');
  return text && ` ${text[0].toUpperCase()}${text.slice(1)}.`;
}

// What the records say about a step that took another time than predicted; empty where it did not. `workers`: those of now.
export function whyOff(
  predicted: number | null, measured: number | null, points: StepMetrics[], attempt: Attempt | null, job: string,
  workers: Worker[] | null): string {
  const off = predictionError(predicted, measured);
  if (off === null || attempt === null || Math.abs(off) < OFF) return '';
  const names = new Set(attempt.placements.map((place) => place.worker));
  const hosts = (workers ?? []).filter((worker) => names.has(worker.name));
  // Of an attempt that has ended the figures may have been others.
  const low = attempt.end_time_us === null ? measuredBusy(hosts) : '';
  if (off > 0) {
    return `Steps are faster than predicted${low ? `.${sentences([low])}` : ': the device does more than its figures say.'}`;
  }
  const said = [];
  const own = points.filter((p) => p.attempt === attempt.attempt);
  const total = own.reduce((sum, p) => sum + p.step_seconds, 0);
  const data = own.reduce((sum, p) => sum + p.data_seconds, 0);
  if (total > 0 && data / total >= 0.02) said.push(`fetching data takes ${Math.round((100 * data) / total)} % of a step`);
  const slots = hosts.flatMap((worker) => worker.used).filter((use) => use.job !== job).reduce((sum, use) => sum + use.slots, 0);
  const running = attempt.end_time_us === null && workers !== null;
  if (slots > 0 && running) said.push(`other jobs of this service hold ${slots} ${slots === 1 ? 'slot' : 'slots'} of its host now`);
  else if (running) said.push('no other job of this service is on its host');
  const others = running ? othersNow(hosts, workers) : '';
  const rest = others ? '' : ' Work of other programs on the host is not recorded.';
  return `Steps are slower than predicted.${sentences([...said, others])}${rest}`;
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
