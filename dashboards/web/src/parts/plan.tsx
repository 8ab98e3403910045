// How the recipe of a job was found.
import { useEffect, useState } from 'preact/hooks';
import { getPlan } from '../api';
import { download, fileName } from '../download';
import { notPlanned } from '../recipe';
import type { Job, PlanResult } from '../types';
import { Card, Empty, Failure, Skeleton } from './basic';
import { Explanation, LeftOut, Ranking } from './ranking';

export function Plan({ job }: { job: Job }) {
  const [plan, setPlan] = useState<PlanResult | null | undefined>(undefined); // null: there is none
  const [error, setError] = useState<unknown>(null);
  const planned = job.chosen !== null;
  useEffect(() => {
    getPlan(job.name).then((got) => { setPlan(got); setError(null); }, setError);
  }, [job.name, planned, job.epoch]);
  if (plan === null) return <Card title="Plan"><Empty title={notPlanned(job)} /></Card>;
  if (plan === undefined) return error !== null ? <Failure error={error} /> : <Skeleton rows={5} label="Loading the plan" />;
  const save = () => download(fileName(job, 'plan.json'), 'application/json', JSON.stringify(plan, null, 2));
  return (
    <>
      {plan.explanation && (
        <Card title="Why this recipe" aside={<button type="button" class="download" onClick={save}>plan.json ↓</button>}>
          <Explanation text={plan.explanation} />
        </Card>
      )}
      <Ranking plan={plan} chosen={job.chosen} />
      <LeftOut plan={plan} />
    </>
  );
}
