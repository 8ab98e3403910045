// Curves of the job, and what was predicted beside what was measured.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { listCheckpoints } from '../api';
import { columns, marksOf, measuredSoFar, predictionError } from '../curve';
import * as format from '../format';
import { notPlanned, recipeFacts } from '../recipe';
import type { Attempt, Checkpoint, Job, StepMetrics } from '../types';
import { Card, Empty, Failure, StackedBar } from './basic';
import { Chart } from './chart';

interface Props {
  job: Job;
  points: StepMetrics[];
  attempts: Attempt[];
  theme: string;
  error: unknown;
}

export function Overview({ job, points, attempts, theme, error }: Props) {
  const attempt = attempts.length ? attempts[attempts.length - 1] : null;
  const memory = attempt?.predicted_memory ?? job.chosen?.memory ?? null;
  return (
    <>
      {error !== null && <Failure error={error} />}
      {points.length === 0
        ? (
          <Card title="Curves">
            <Empty title="No step is done yet">Curves are drawn as soon as the job reports steps.</Empty>
          </Card>
        )
        : <Curves job={job} points={points} attempts={attempts} theme={theme} />}
      <div class="columns">
        <div>
          <Card title="Predicted beside measured"><Compared attempt={attempt} job={job} points={points} /></Card>
          <Card title="Recipe" aside={job.chosen === null && <span class="faint">{notPlanned(job)}; what was asked for:</span>}>
            <RecipeFacts job={job} />
          </Card>
        </div>
        <div>
          <Card title="One step, predicted">
            {job.chosen?.breakdown
              ? <StackedBar values={job.chosen.breakdown} show={format.seconds} label="Step time" />
              : <Empty title={notPlanned(job)} />}
          </Card>
          <Card title="Memory at its peak, predicted">
            {memory
              ? <StackedBar values={memory} show={format.bytes} label="Memory by category" />
              : <Empty title={notPlanned(job)} />}
          </Card>
        </div>
      </div>
    </>
  );
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

function Curves({ job, points, attempts, theme }: { job: Job; points: StepMetrics[]; attempts: Attempt[]; theme: string }) {
  const attempt = attempts.length ? attempts[attempts.length - 1] : null;
  const checkpoints = useCheckpoints(job);
  const marks = useMemo(() => marksOf(attempts, checkpoints), [attempts, checkpoints]);
  const data = useMemo(
    () => columns(points, [
      'loss', 'validation_loss', 'tokens_per_second', 'peak_memory_bytes', 'step_seconds', 'data_seconds',
    ]), [points]);
  const [steps, loss, heldOut, rate, memory, stepSeconds, dataSeconds] = data;
  const entropy = job.unigram_entropy;
  const level = (value: number | null | undefined) => useMemo(() => points.map(() => value ?? null), [points, value]);
  const entropyLevel = level(entropy);
  const memoryLevel = level(attempt?.predicted_peak_memory_bytes);
  const stepLevel = level(attempt?.predicted_step_seconds);
  const common = { steps, theme };
  return (
    <div class="charts">
      <Chart {...common} title="Loss (nats per token)" show={format.loss} tick={(v) => String(Number(v.toFixed(3)))} marks={marks}
        curves={[
        { label: 'train', colour: '--curve-1', values: loss },
        { label: 'held-out', colour: '--curve-2', values: heldOut, dots: true },
        ...(entropy !== null ? [{ label: 'unigram entropy', colour: '--curve-3', values: entropyLevel, dashed: true }] : []),
      ]} />
      <Chart {...common} title="Throughput (tokens per second)" fromZero show={format.large} curves={[
        { label: 'tokens/s', colour: '--curve-1', values: rate },
      ]} />
      <Chart {...common} title="Time of a step" fromZero show={format.seconds} curves={[
        { label: 'step', colour: '--curve-1', values: stepSeconds },
        { label: 'data', colour: '--curve-2', values: dataSeconds },
        ...(attempt?.predicted_step_seconds
          ? [{ label: 'predicted', colour: '--curve-3', values: stepLevel, dashed: true }] : []),
      ]} />
      <Chart {...common} title="Peak memory of a rank" fromZero binary show={format.bytes} curves={[
        { label: 'measured', colour: '--curve-1', values: memory },
        ...(attempt?.predicted_peak_memory_bytes
          ? [{ label: 'predicted', colour: '--curve-3', values: memoryLevel, dashed: true }] : []),
      ]} />
    </div>
  );
}

function Compared({ attempt, job, points }: { attempt: Attempt | null; job: Job; points: StepMetrics[] }) {
  const soFar = attempt ? measuredSoFar(points, attempt.attempt) : null;
  const predictedStep = attempt?.predicted_step_seconds ?? job.chosen?.step_time_seconds ?? null;
  const predictedPeak = attempt?.predicted_peak_memory_bytes ?? job.chosen?.peak_memory_bytes ?? null;
  const rows = [
    {
      what: 'step time', predicted: predictedStep, show: format.seconds,
      measured: attempt?.measured_step_seconds ?? soFar?.stepSeconds ?? null,
    },
    {
      what: 'peak memory', predicted: predictedPeak, show: format.bytes,
      measured: attempt?.measured_peak_memory_bytes ?? soFar?.peakBytes ?? null,
    },
  ];
  return (
    <table class="plain">
      <thead>
        <tr><th scope="col"><span class="hidden">Quantity</span></th><th scope="col" class="number">predicted</th>
          <th scope="col" class="number">measured</th><th scope="col" class="number">off by</th></tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.what}>
            <th scope="row">{row.what}</th>
            <td class="number">{row.show(row.predicted)}</td>
            <td class="number">{row.show(row.measured)}</td>
            <td class="number">{format.signedPercent(predictionError(row.predicted, row.measured))}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function RecipeFacts({ job }: { job: Job }) {
  const facts = recipeFacts(job);
  if (job.committed_step !== null) facts.push(['last checkpoint', `step ${format.count(job.committed_step)}`]);
  if (job.hf_directory) facts.push(['exported model', job.hf_directory]);
  return <dl class="facts">{facts.map(([key, value]) => <div key={key}><dt>{key}</dt><dd>{value}</dd></div>)}</dl>;
}
