// The job's curves with what the reader sets: smoothing, axes, zoom, other runs laid over.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { getJob, listCheckpoints, listJobs, queryMetrics } from '../api';
import { align, csv, marksOf, placeOf, places, positive, smooth, type Axis } from '../curve';
import { download, fileName } from '../download';
import * as format from '../format';
import { navigate } from '../navigation';
import { projectOf } from '../project';
import type { Attempt, Checkpoint, Job, StepMetrics } from '../types';
import { jobAddress, MOST_OTHERS } from '../url';
import { Failure } from './basic';
import { Chart, type Curve, type Zoom } from './chart';

interface Run {
  label: string;
  points: StepMetrics[];
}

interface Look {
  axis: Axis;
  logarithmic: boolean;
  smoothing: number; // 0 to below 1
}

// One chart: of a run its `fields`, the first of which is drawn of other runs too; levels are straight lines.
interface Picture {
  title: string;
  show: (value: number | null) => string;
  fields: { field: keyof StepMetrics; label: string; dots?: boolean; smoothed?: boolean }[];
  levels?: { label: string; value: number | null | undefined }[];
  tick?: (value: number) => string;
  fromZero?: boolean;
  binary?: boolean;
  logarithmic?: boolean; // where the reader wants it
  marked?: boolean;
}

const scientific = (value: number | null) => (value === null ? '–' : value === 0 ? '0' : value.toExponential(2));
const plain = (value: number | null) => (value === null ? '–' : value.toPrecision(3));

function picturesOf(job: Job, attempt: Attempt | null): Picture[] {
  return [
    {
      title: 'Loss (nats per token)', show: format.loss, tick: (v) => String(Number(v.toFixed(3))), logarithmic: true, marked: true,
      fields: [{ field: 'loss', label: 'train', smoothed: true }, { field: 'validation_loss', label: 'held-out', dots: true }],
      levels: [{ label: 'unigram entropy', value: job.unigram_entropy }],
    },
    {
      title: 'Gradient norm', show: plain, tick: (v) => String(Number(v.toPrecision(3))), logarithmic: true,
      fields: [{ field: 'grad_norm', label: 'norm', smoothed: true }],
    },
    {
      title: 'Learning rate', show: scientific, tick: (v) => (v === 0 ? '0' : v.toExponential()), logarithmic: true,
      fields: [{ field: 'learning_rate', label: 'rate' }],
    },
    {
      title: 'FLOPs utilization of the model (MFU) and the hardware (HFU)', show: format.percent, fromZero: true,
      fields: [{ field: 'mfu', label: 'MFU', smoothed: true }, { field: 'hfu', label: 'HFU', smoothed: true }], levels: [{ label: 'predicted', value: job.chosen?.mfu || null }],
    },
    {
      title: 'Throughput (tokens per second)', show: format.large, fromZero: true,
      fields: [{ field: 'tokens_per_second', label: 'tokens/s', smoothed: true }],
    },
    {
      title: 'Time of a step', show: format.seconds, fromZero: true,
      fields: [{ field: 'step_seconds', label: 'step', smoothed: true }, { field: 'data_seconds', label: 'data' }],
      levels: [{ label: 'predicted', value: attempt?.predicted_step_seconds }],
    },
    {
      title: 'Peak memory of a rank', show: format.bytes, fromZero: true, binary: true,
      fields: [{ field: 'peak_memory_bytes', label: 'measured' }],
      levels: [{ label: 'predicted', value: attempt?.predicted_peak_memory_bytes }],
    },
  ];
}

const OTHER_COLOURS = ['--p5', '--p7', '--p10', '--p8', '--p11'];

function curvesOf(picture: Picture, run: Run, others: Run[], look: Look): { x: number[]; curves: Curve[] } {
  const logarithmic = look.logarithmic && picture.logarithmic;
  const weight = (smoothed: boolean | undefined) => (smoothed ? look.smoothing : 0);
  const column = (of: Run, field: keyof StepMetrics) => {
    const values = of.points.map((p) => p[field] as number | null);
    return logarithmic ? positive(values) : values;
  };
  const x = places(run.points, look.axis);
  const rows: { curve: Omit<Curve, 'values'>; x: number[]; values: (number | null)[] }[] = [];
  picture.fields.forEach(({ field, label, dots, smoothed }, i) => {
    const values = column(run, field);
    if (i > 0 && values.every((value) => value === null)) return;
    const colour = `--curve-${i + 1}`;
    if (weight(smoothed) > 0) rows.push({ curve: { label: `${label}, as reported`, colour, faint: true }, x, values });
    rows.push({ curve: { label, colour, dots }, x, values: smooth(values, weight(smoothed)) });
  });
  for (const { label, value } of picture.levels ?? []) {
    if (value === null || value === undefined || (logarithmic && value <= 0)) continue;
    rows.push({ curve: { label, colour: '--curve-3', dashed: true }, x, values: x.map(() => value) });
  }
  others.forEach((other, i) => {
    const { field, smoothed } = picture.fields[0];
    const values = smooth(column(other, field), weight(smoothed));
    if (values.every((value) => value === null)) return;
    rows.push({ curve: { label: other.label, colour: OTHER_COLOURS[i] }, x: places(other.points, look.axis), values });
  });
  const aligned = align(rows);
  return { x: aligned.x, curves: rows.map((row, i) => ({ ...row.curve, values: aligned.values[i] })) };
}

// Those that are on disk, asked for again when another one is committed.
function useCheckpoints(job: Job): Checkpoint[] {
  const [checkpoints, setCheckpoints] = useState<Checkpoint[]>([]);
  useEffect(() => {
    // What is wrong the curves' own call tells.
    if (job.committed_step !== null) listCheckpoints(job.name).then(setCheckpoints, () => {});
  }, [job.name, job.committed_step, job.epoch]);
  return checkpoints;
}

// The runs of these ids in one project, as they were when they were asked for.
function useOthers(project: string, ids: string[]): { runs: Run[]; error: unknown } {
  const [runs, setRuns] = useState<Run[]>([]);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let gone = false;
    const one = async (id: string): Promise<Run> => {
      const name = `projects/${project}/jobs/${id}`;
      const [job, metrics] = await Promise.all([getJob(name), queryMetrics(name, 0)]);
      return { label: job.spec?.display_name || id, points: metrics.points };
    };
    Promise.all(ids.map(one)).then(
      (got) => { if (!gone) { setRuns(distinct(got)); setError(null); } }, (caught) => { if (!gone) setError(caught); });
    return () => { gone = true; };
  }, [project, ids.join()]);
  return { runs, error };
}

// Two runs of one name are told apart.
function distinct(runs: Run[]): Run[] {
  return runs.map((run, i) => {
    const before = runs.slice(0, i).filter((other) => other.label === run.label).length;
    return before ? { ...run, label: `${run.label} (${before + 1})` } : run;
  });
}

interface Props {
  job: Job;
  points: StepMetrics[];
  attempts: Attempt[];
  theme: string;
  others: string[];
}

export function Curves({ job, points, attempts, theme, others }: Props) {
  const attempt = attempts.length ? attempts[attempts.length - 1] : null;
  const [look, setLook] = useState<Look>({ axis: 'step', logarithmic: false, smoothing: 0 });
  const [zoom, setZoom] = useState<Zoom>(null);
  const checkpoints = useCheckpoints(job);
  const { runs, error } = useOthers(projectOf(job.name), others);
  const marks = useMemo(
    () => marksOf(attempts, checkpoints).flatMap((mark) => {
      const place = placeOf(mark.step, points, look.axis);
      return place === null ? [] : [{ ...mark, place }];
    }), [attempts, checkpoints, points, look.axis]);
  const predicted = [attempt?.predicted_step_seconds, attempt?.predicted_peak_memory_bytes, job.chosen?.mfu, job.unigram_entropy];
  const pictures = useMemo(
    () => picturesOf(job, attempt)
      .filter((picture) => picture.fields.some(({ field }) => points.some((p) => p[field] !== null)))
      .map((picture) => ({ picture, ...curvesOf(picture, { label: '', points }, runs, look) })),
    [points, runs, look, ...predicted]);
  const setAxis = (axis: Axis) => { setLook({ ...look, axis }); setZoom(null); };
  return (
    <section aria-label="Curves">
      <Controls look={look} setLook={setLook} setAxis={setAxis} zoom={zoom} setZoom={setZoom} job={job} others={others}
        labels={runs.map((run) => run.label)} last={places(points, look.axis).at(-1) ?? 0} points={points} />
      {error !== null && <Failure error={error} />}
      <div class="charts">
        {pictures.map(({ picture, x, curves }) => (
          <Chart key={picture.title} title={picture.title} x={x} axis={look.axis} theme={theme} show={picture.show}
            tick={picture.tick} fromZero={picture.fromZero} binary={picture.binary} curves={curves}
            logarithmic={look.logarithmic && picture.logarithmic} marks={picture.marked ? marks : undefined}
            zoom={zoom} onZoom={setZoom} />
        ))}
      </div>
    </section>
  );
}

const SHARES: [string, number][] = [['last half', 0.5], ['last tenth', 0.9]];

function Controls({ look, setLook, setAxis, zoom, setZoom, job, others, labels, last, points }: {
  look: Look; setLook: (look: Look) => void; setAxis: (axis: Axis) => void; zoom: Zoom; setZoom: (zoom: Zoom) => void; job: Job;
  others: string[]; labels: string[]; last: number; points: StepMetrics[];
}) {
  return (
    <div class="controls">
      <label>Smoothing
        <input type="range" min="0" max="0.99" step="0.01" value={look.smoothing}
          onInput={(event) => setLook({ ...look, smoothing: Number(event.currentTarget.value) })} />
        <span class="number setting">{look.smoothing.toFixed(2)}</span>
      </label>
      <label><input type="checkbox" checked={look.logarithmic}
        onChange={(event) => setLook({ ...look, logarithmic: event.currentTarget.checked })} /> logarithmic</label>
      <label>over <select value={look.axis} onChange={(event) => setAxis(event.currentTarget.value as Axis)}>
        <option value="step">steps</option><option value="time">time</option>
      </select></label>
      <label>Zoom <select value={zoom === null ? 'all' : 'part'} title="or drag over a chart; a double click shows all again"
        onChange={(event) => {
          const share = SHARES.find(([name]) => name === event.currentTarget.value)?.[1];
          setZoom(share === undefined ? null : [share * last, last]);
        }}>
        <option value="all">all</option>
        {zoom !== null && <option value="part">a part</option>}
        {SHARES.map(([name]) => <option key={name} value={name}>{name}</option>)}
      </select></label>
      <Others job={job} others={others} labels={labels} />
      <span class="spacer" />
      <button type="button" class="download" title="as the charts have them: of long runs the server gives a selection of 1,000 steps"
        onClick={() => download(fileName(job, 'metrics.csv'), 'text/csv', csv(points))}>Metrics (CSV) ↓</button>
    </div>
  );
}

// Which runs are laid over, and a choice of further ones. It is in the address.
function Others({ job, others, labels }: { job: Job; others: string[]; labels: string[] }) {
  const [jobs, setJobs] = useState<Job[]>([]);
  const load = () => {
    if (jobs.length === 0) listJobs(projectOf(job.name), '', 200, '').then((page) => setJobs(page.jobs), () => {});
  };
  const go = (list: string[]) => navigate(jobAddress(job.name, 'overview', null, list), true);
  const free = jobs.filter((one) => one.name !== job.name && (one.progress?.step ?? 0) > 0 &&
    !others.includes(format.lastSegment(one.name)));
  return (
    <>
      {others.length < MOST_OTHERS && (
        <label>Lay over <select value="" onFocus={load} onPointerDown={load} aria-label="Lay another run over"
          onChange={(event) => event.currentTarget.value && go([...others, event.currentTarget.value])}>
          <option value="">another run …</option>
          {free.map((one) => (
            <option key={one.name} value={format.lastSegment(one.name)}>
              {one.spec?.display_name || format.lastSegment(one.name)} ({one.state})
            </option>
          ))}
        </select></label>
      )}
      {others.map((id, i) => (
        <button key={id} type="button" class="chip" aria-label={`Take ${labels[i] ?? id} away`}
          onClick={() => go(others.filter((other) => other !== id))}>{labels[i] ?? `…${id.slice(-6)}`} ×</button>
      ))}
    </>
  );
}
