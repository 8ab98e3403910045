// A step of the job, looked at closely: where its time goes, rank by rank, and as it was predicted beside as it was traced.
import { useEffect, useState } from 'preact/hooks';
import { queryRankReports } from '../api';
import { isFinal } from '../curve';
import * as format from '../format';
import { useThrottled } from '../live';
import type { Job, StepMetrics } from '../types';
import { Card, Empty, Failure, Skeleton, Stat } from './basic';
import { Breakdown } from './breakdown';
import { Collectives, RankHistory, RankTable } from './ranks';
import { Traces } from './traces';

const REPORTS = 16; // as many as the server keeps with all their ranks

function useRankReports(job: Job) {
  const [reports, setReports] = useState<StepMetrics[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const refresh = useThrottled(async () => {
    try {
      setReports(await queryRankReports(job.name, REPORTS));
      setError(null);
    } catch (caught) {
      setError(caught);
    }
  }, 2000);
  useEffect(() => (isFinal(job.state) ? refresh.now : refresh)(), [job.version]);
  return { reports, error };
}

export function Step({ job, points, now, theme }: { job: Job; points: StepMetrics[]; now: number; theme: string }) {
  const { reports, error } = useRankReports(job);
  const latest = reports?.at(-1) ?? null;
  return (
    <>
      {error !== null && <Failure error={error} />}
      <Utilization points={points} job={job} />
      <Breakdown points={points} />
      {reports === null && error === null && <Skeleton rows={3} label="Loading the reports of ranks" />}
      {latest !== null && (
        <>
          <RankTable report={latest} />
          <div class="columns">
            <RankHistory reports={reports!} />
            <Collectives report={latest} />
          </div>
        </>
      )}
      {reports !== null && latest === null && (
        <Card title="Ranks">
          <Empty title="No report says how the ranks spent their time">
            They come with the first steps of an attempt, every <code>metrics.log_freq</code> steps.
          </Empty>
        </Card>
      )}
      <Traces job={job} now={now} theme={theme} />
    </>
  );
}

// The latest of each that is known; MFU and HFU over the steps are among the curves.
function Utilization({ points, job }: { points: StepMetrics[]; job: Job }) {
  const last = (field: 'mfu' | 'hfu' | 'exposed_communication_share') =>
    [...points].reverse().find((point) => point[field] !== null)?.[field] ?? null;
  const mfu = last('mfu');
  const hfu = last('hfu');
  const exposed = last('exposed_communication_share');
  if (mfu === null && hfu === null && exposed === null) return null;
  return (
    <div class="stats">
      {mfu !== null && <Stat label="MFU" value={format.percent(mfu)} title="FLOPs of the model, of what the devices can do at most"
        note={job.chosen?.mfu ? `predicted ${format.percent(job.chosen.mfu)}` : 'of the model’s FLOPs'} />}
      {hfu !== null && <Stat label="HFU" value={format.percent(hfu)} title="as MFU, and the FLOPs of recomputation count too"
        note="with recomputation" />}
      {exposed !== null && <Stat label="Exposed" value={format.percent(exposed)}
        title="communication while nothing was computed, of the step" note="the mean of all ranks" />}
    </div>
  );
}
