// Curves of the job, and what was predicted beside what was measured.
import { useEffect, useState } from 'preact/hooks';
import { listWorkers } from '../api';
import { measuredSoFar, predictionError, whyOff } from '../curve';
import { download, fileName } from '../download';
import * as format from '../format';
import { notPlanned, recipeFacts } from '../recipe';
import type { Attempt, Job, StepMetrics, Worker } from '../types';
import { Card, Empty, Failure, StackedBar } from './basic';
import { Curves } from './curves';

interface Props {
  job: Job;
  points: StepMetrics[];
  attempts: Attempt[];
  theme: string;
  error: unknown;
  others: string[];
}

export function Overview({ job, points, attempts, theme, error, others }: Props) {
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
        : <Curves job={job} points={points} attempts={attempts} theme={theme} others={others} />}
      <div class="columns">
        <div>
          <Card title="Predicted beside measured"><Compared attempt={attempt} job={job} points={points} /></Card>
          <Card title="Recipe" aside={job.chosen === null
            ? <span class="faint">{notPlanned(job)}; what was asked for:</span> : <RecipeDownload job={job} />}>
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

// How often it is asked what is in use of the workers while a job runs.
const USE_MS = 10_000;

function Compared({ attempt, job, points }: { attempt: Attempt | null; job: Job; points: StepMetrics[] }) {
  const soFar = attempt ? measuredSoFar(points, attempt.attempt) : null;
  const predictedStep = (attempt ? attempt.predicted_step_seconds : job.chosen?.step_time_seconds) ?? null;
  const predictedPeak = attempt?.predicted_peak_memory_bytes ?? job.chosen?.peak_memory_bytes ?? null;
  const [workers, setWorkers] = useState<Worker[] | null>(null);
  const running = job.state === 'running';
  useEffect(() => {
    const load = () => {
      if (!document.hidden) listWorkers().then(setWorkers, () => setWorkers(null));
    };
    load();
    if (!running) return undefined;
    const timer = window.setInterval(load, USE_MS);
    return () => window.clearInterval(timer);
  }, [running, job.epoch]);
  const measuredStep = attempt?.measured_step_seconds ?? soFar?.stepSeconds ?? null;
  const why = whyOff(predictedStep, measuredStep, points, attempt, job.name, workers);
  const rows = [
    {
      what: 'step time', predicted: predictedStep, show: format.seconds,
      measured: measuredStep,
    },
    {
      what: 'peak memory', predicted: predictedPeak, show: format.bytes,
      measured: attempt?.measured_peak_memory_bytes ?? soFar?.peakBytes ?? null,
    },
  ];
  return (
    <>
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
      {why && <p class="sub note">{why}</p>}
    </>
  );
}

function RecipeDownload({ job }: { job: Job }) {
  const toml = job.chosen?.recipe_toml;
  if (!toml) return null;
  return (
    <button type="button" class="download"
      onClick={() => download(fileName(job, 'recipe.toml'), 'application/toml', toml)}>recipe.toml ↓</button>
  );
}

function RecipeFacts({ job }: { job: Job }) {
  const facts = recipeFacts(job);
  if (job.committed_step !== null) facts.push(['last checkpoint', `step ${format.count(job.committed_step)}`]);
  if (job.hf_directory) facts.push(['exported model', job.hf_directory]);
  return <dl class="facts">{facts.map(([key, value]) => <div key={key}><dt>{key}</dt><dd>{value}</dd></div>)}</dl>;
}
