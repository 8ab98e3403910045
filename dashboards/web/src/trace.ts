// Chrome traces of a step, measured and predicted: read, put on one axis, compared.
import type { StepTraceInfo } from './types';

export interface Slice {
  name: string;
  start: number; // microseconds since the step began
  end: number;
  kind: string; // what gives it its colour
  isOperator: boolean; // an operator or a collective, not a phase or a module that is made of them
  depth: number; // in how many other slices of its track it lies
  args: Record<string, unknown>;
}

export interface Track {
  name: string; // the stream
  slices: Slice[]; // by start
  busy: number; // microseconds in which one runs
}

// A rank: of a predicted step one for each pipeline stage.
export interface TracedRank {
  name: string; // "stage 0 (rank 0)"
  tracks: Track[];
  length: number; // microseconds from the first slice to the end of the last
}

// Of the latest step that was traced, the first rank; null: there is none. They ascend by attempt, step and rank.
export function latestTrace(traces: StepTraceInfo[]): StepTraceInfo | null {
  const last = traces.at(-1);
  return traces.find((one) => one.attempt === last?.attempt && one.step === last.step) ?? null;
}

interface TraceEvent {
  ph: string;
  name: string;
  pid?: number;
  tid?: number;
  ts?: number;
  dur?: number;
  cat?: string;
  args?: Record<string, unknown>;
}

export const MOST_TRACE_BYTES = 256 * 1024 * 1024; // of text: beyond it a browser's tab is no place to draw it

export class TraceError extends Error {}

// The content of a file that gzip has compressed.
export async function readTrace(response: Response): Promise<TracedRank[]> {
  const reader = response.body!.pipeThrough(new DecompressionStream('gzip') as ReadableWritablePair<Uint8Array, Uint8Array>).getReader();
  const decoder = new TextDecoder();
  const parts: string[] = [];
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(() => { throw new TraceError('the trace is no file that gzip has compressed'); });
    if (done) break;
    bytes += value.length;
    if (bytes > MOST_TRACE_BYTES) {
      await reader.cancel();
      throw new TraceError('the trace is too large to be drawn here: download it for ui.perfetto.dev');
    }
    parts.push(decoder.decode(value, { stream: true }));
  }
  return parseTrace(parts.join('') + decoder.decode());
}

export function parseTrace(text: string): TracedRank[] {
  let events: TraceEvent[];
  try {
    const trace = JSON.parse(text);
    events = Array.isArray(trace) ? trace : trace.traceEvents;
    if (!Array.isArray(events)) throw new Error();
  } catch {
    throw new TraceError('the trace is no Chrome trace in JSON');
  }
  const named = (kind: string, field: string) => new Map(events.filter((e) => e.ph === 'M' && e.name === kind)
    .map((e) => [`${e.pid}/${kind.startsWith('process') ? '' : e.tid}`, e.args?.[field]]));
  const processes = named('process_name', 'name');
  const threads = named('thread_name', 'name');
  const order = named('thread_sort_index', 'sort_index');
  const ranks = new Map<number, Map<number, Slice[]>>();
  for (const event of events) {
    if (event.ph !== 'X' || typeof event.ts !== 'number' || typeof event.dur !== 'number') continue;
    const tracks = ranks.get(event.pid!) ?? new Map<number, Slice[]>();
    ranks.set(event.pid!, tracks);
    const slices = tracks.get(event.tid!) ?? [];
    tracks.set(event.tid!, slices);
    slices.push({ name: event.name, start: event.ts, end: event.ts + event.dur, kind: kindOf(event),
      isOperator: event.cat === 'compute' || event.cat === 'communication', depth: 0, args: event.args ?? {} });
  }
  return [...ranks].sort(([a], [b]) => a - b).map(([pid, tracks]) => {
    const place = (tid: number) => Number(order.get(`${pid}/${tid}`) ?? tid);
    return rankOf(
      String(processes.get(`${pid}/`) ?? `process ${pid}`),
      [...tracks].sort(([a], [b]) => place(a) - place(b))
        .map(([tid, slices]) => trackOf(String(threads.get(`${pid}/${tid}`) ?? `thread ${tid}`), slices)));
  });
}

// Communication is told from computation, and of computation the phase.
function kindOf(event: TraceEvent): string {
  if (event.cat === 'communication') return 'communication';
  const phase = event.args?.phase;
  return typeof phase === 'string' ? phase : 'other';
}

// Microseconds: files have nanoseconds, rounded, so that a slice may seem to end a little after the next one has begun.
const ROUNDING = 0.001;

function trackOf(name: string, slices: Slice[]): Track {
  slices.sort((a, b) => a.start - b.start || b.end - a.end);
  const open: Slice[] = [];
  let busy = 0;
  let until = -Infinity;
  for (const slice of slices) {
    while (open.length > 0 && open[open.length - 1].end <= slice.start + ROUNDING) open.pop();
    slice.depth = open.length;
    open.push(slice);
    busy += Math.max(0, slice.end - Math.max(until, slice.start));
    until = Math.max(until, slice.end);
  }
  return { name, slices, busy };
}

function rankOf(name: string, tracks: Track[]): TracedRank {
  const first = Math.min(...tracks.map((track) => track.slices[0].start));
  let last = first;
  for (const track of tracks) {
    for (const slice of track.slices) {
      slice.start -= first;
      slice.end -= first;
      last = Math.max(last, slice.end + first);
    }
  }
  return { name, tracks, length: last - first };
}

// Of a predicted step, which has the first rank of each stage alone, the one that stands for a measured rank: the one of that
// number, or else the last before it.
export function standsFor(ranks: TracedRank[], rank: number): TracedRank | null {
  const numberOf = (one: TracedRank) => Number(/rank (\d+)/.exec(one.name)?.[1] ?? 0);
  return [...ranks].reverse().find((one) => numberOf(one) <= rank) ?? ranks[0] ?? null;
}

export interface StreamRow {
  stream: string;
  predicted: number | null; // busy microseconds; null: the stream is not used
  measured: number | null;
}

export function streamRows(predicted: TracedRank | null, measured: TracedRank | null): StreamRow[] {
  const names = [...new Set([...(predicted?.tracks ?? []), ...(measured?.tracks ?? [])].map((track) => track.name))];
  const busy = (rank: TracedRank | null, name: string) => rank?.tracks.find((track) => track.name === name)?.busy ?? null;
  return names.map((stream) => ({ stream, predicted: busy(predicted, stream), measured: busy(measured, stream) }));
}

export interface NameRow {
  name: string;
  predicted: number; // microseconds of all slices of this name
  measured: number;
  calls: [number, number];
}

// Operators and collectives by how far prediction and measurement are apart, the furthest first.
export function partings(predicted: TracedRank, measured: TracedRank): NameRow[] {
  const rows = new Map<string, NameRow>();
  [predicted, measured].forEach((rank, side) => {
    for (const track of rank.tracks) {
      for (const slice of track.slices) {
        if (!slice.isOperator) continue;
        const row = rows.get(slice.name) ?? { name: slice.name, predicted: 0, measured: 0, calls: [0, 0] };
        row[side === 0 ? 'predicted' : 'measured'] += slice.end - slice.start;
        row.calls[side] += 1;
        rows.set(slice.name, row);
      }
    }
  });
  return [...rows.values()].sort((a, b) => Math.abs(b.measured - b.predicted) - Math.abs(a.measured - a.predicted));
}

// The slice of a track at a time, the innermost that is no deeper than `depth`; null: nothing runs.
export function sliceAt(track: Track, at: number, depth: number): Slice | null {
  let [low, high] = [0, track.slices.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (track.slices[middle].start <= at) low = middle + 1; else high = middle;
  }
  for (let i = low - 1; i >= 0; --i) {
    const slice = track.slices[i];
    if (slice.depth <= depth && slice.end >= at) return slice;
    if (slice.depth === 0) return null;
  }
  return null;
}

// Part of the axis that is shown.
export type Span = [number, number];

// About the place `at`, within the whole; `factor` below 1 shows less of it.
export function zoomed([from, to]: Span, whole: number, at: number, factor: number): Span {
  const length = Math.min(whole, Math.max((to - from) * factor, Math.min(whole, 1)));
  const share = to > from ? (at - from) / (to - from) : 0.5;
  const start = Math.min(Math.max(0, at - share * length), whole - length);
  return [start, start + length];
}

export function moved([from, to]: Span, whole: number, share: number): Span {
  const by = Math.min(Math.max(-from, share * (to - from)), whole - to);
  return [from + by, to + by];
}
