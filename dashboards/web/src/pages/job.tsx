// One job, live: what it does, how it was planned, what happened to it, what it says.
import { useEffect, useState } from 'preact/hooks';
import {
  ApiError, cancelJob, getFlightRecord, getJob, listAttempts, newRequestId, queryMetrics, retryJob,
} from '../api';
import { beganAgain, doneShare, failedAttempt, isFinal, mergePoints, secondsLeft, slotsText, whyOf } from '../curve';
import * as format from '../format';
import { useKeys } from '../keyboard';
import { useEvents, useNow, useThrottled } from '../live';
import { navigate } from '../navigation';
import { Badge, ConfirmButton, Empty, Failure, LostConnection, Meter, Skeleton, Stat, Time, useTitle } from '../parts/basic';
import { Flight } from '../parts/flight';
import { History } from '../parts/history';
import { Logs } from '../parts/logs';
import { Overview } from '../parts/overview';
import { Plan } from '../parts/plan';
import { Step } from '../parts/step';
import { SubmitDialog } from '../parts/submit';
import { draftOfJob } from '../submission';
import { projectOf } from '../project';
import type { Attempt, FlightRecord, Job, PlanningProgress, StepMetrics, WatchJobResponse } from '../types';
import { beginningOf } from '../retry';
import { JOB_TABS, jobAddress, jobsAddress, type JobTab, type JobView } from '../url';

const TAB_TITLES: Record<JobTab, string> = {
  overview: 'Overview', plan: 'Plan', step: 'Step', history: 'History', logs: 'Logs', flight: 'Flight record',
};

// Points of the curves and the attempts, fetched again when the job has changed, but not more than every two seconds; at once
// when it has ended.
function useCurves(name: string, job: Job | null) {
  const [points, setPoints] = useState<StepMetrics[]>([]);
  const [attempts, setAttempts] = useState<Attempt[]>([]);
  const [error, setError] = useState<unknown>(null);
  const refresh = useThrottled(async () => {
    try {
      const again = beganAgain(points, job?.progress?.step ?? Infinity) || points.length > 4000;
      const known = again ? [] : points;
      const [got, list] = await Promise.all([
        queryMetrics(name, known.length ? known[known.length - 1].step : 0), listAttempts(name)]);
      setPoints(mergePoints(known, got.points));
      setAttempts(list);
      setError(null);
    } catch (caught) {
      setError(caught);
    }
  }, 2000);
  useEffect(() => {
    if (job !== null) (isFinal(job.state) ? refresh.now : refresh)();
  }, [job?.version]);
  return { points, attempts, error, refresh };
}

export function JobPage({ view, theme }: { view: JobView; theme: string }) {
  const now = useNow();
  const [job, setJob] = useState<Job | null>(null);
  const [planning, setPlanning] = useState<PlanningProgress | null>(null);
  const [error, setError] = useState<unknown>(null);
  const code = error instanceof ApiError ? error.code : null;
  const missing = code === 404 || code === 400; // 400: it cannot be the name of a job
  const connection = useEvents(missing ? null : `/v1/${view.name}:watch`, {
    job: (data) => {
      const news = JSON.parse(data) as WatchJobResponse;
      setJob(news.job);
      setPlanning(news.planning);
      setError(null);
    },
    failure: (data) => {
      const failure = JSON.parse(data).error;
      setError(new ApiError(failure.code, failure.message, failure.details));
    },
  });
  // EventSource keeps the reason of a refusal to itself: a plain call tells.
  useEffect(() => {
    if (connection === 'lost' && job === null) getJob(view.name).then(setJob, setError);
  }, [connection]);
  const curves = useCurves(view.name, job);
  const show = (tab: JobTab) => navigate(jobAddress(view.name, tab), true);
  const onTabKey = (event: KeyboardEvent) => {
    const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? JOB_TABS.length - 1 : 0;
    if (by === 0) return;
    const tab = JOB_TABS[(JOB_TABS.indexOf(view.tab) + by) % JOB_TABS.length];
    show(tab);
    document.getElementById(`tab-${tab}`)?.focus();
  };
  useKeys(Object.fromEntries(JOB_TABS.map((tab, i) => [String(i + 1), () => show(tab)])));
  useTitle(missing ? 'No such job' : job?.spec?.display_name || format.lastSegment(view.name));

  if (missing) return <NoSuchJob name={view.name} />;
  const unreachable = code === 0;
  return (
    <main id="main">
      <LostConnection connection={job === null ? (unreachable ? 'lost' : 'open') : isFinal(job.state) ? 'open' : connection} />
      {error !== null && !unreachable && <Failure error={error} />}
      {job === null ? (error === null || unreachable) && <Skeleton rows={6} label="Loading the job" /> : (
        <>
          <Head job={job} planning={planning} now={now} />
          <FailedAttempt job={job} attempts={curves.attempts} />
          <div class="tabs" role="tablist" aria-label="Parts of the job" onKeyDown={onTabKey}>
            {JOB_TABS.map((tab) => (
              <button key={tab} type="button" role="tab" id={`tab-${tab}`} aria-controls="panel" aria-selected={view.tab === tab}
                tabIndex={view.tab === tab ? 0 : -1}
                onClick={() => show(tab)}>{TAB_TITLES[tab]}</button>
            ))}
          </div>
          <div id="panel" role="tabpanel" aria-labelledby={`tab-${view.tab}`}>
            {view.tab === 'overview' && (
              <Overview job={job} points={curves.points} attempts={curves.attempts} theme={theme} error={curves.error}
                others={view.others} />
            )}
            {view.tab === 'plan' && <Plan job={job} />}
            {view.tab === 'step' && <Step job={job} points={curves.points} now={now} theme={theme} />}
            {view.tab === 'history' && <History job={job} attempts={curves.attempts} now={now} />}
            {view.tab === 'logs' && <Logs job={job} rank={view.rank} />}
            {view.tab === 'flight' && <Flight job={job} now={now} />}
          </div>
        </>
      )}
    </main>
  );
}

function NoSuchJob({ name }: { name: string }) {
  const id = format.lastSegment(name);
  const project = projectOf(name);
  return (
    <main id="main">
      <Empty title="There is no such job">
        <p>No job of the project {project} has the id <code>{id}</code>.</p>
        <p>
          <a href={jobsAddress({ project, text: id })}>Search for it</a> · <a href={jobsAddress({ project })}>All jobs</a>
        </p>
      </Empty>
    </main>
  );
}

function Head({ job, planning, now }: { job: Job; planning: PlanningProgress | null; now: number }) {
  const name = job.spec?.display_name || format.lastSegment(job.name);
  return (
    <>
      <nav class="crumbs" aria-label="Place">
        <a href={jobsAddress({ project: projectOf(job.name) })}>Jobs</a> / <span>{format.lastSegment(job.name)}</span>
      </nav>
      <div class="page-head">
        <h1>{name}</h1>
        <Badge state={job.state} />
        <span class="spacer" />
        <Actions job={job} name={name} />
      </div>
      <p class="reason" aria-live="polite">{whyOf(job) || ' '}</p>
      {job.state === 'planning' && <Planning planning={planning} />}
      <Stats job={job} now={now} />
    </>
  );
}

// That an attempt came to grief is said wherever the reader is on the job's page, with the way to what is known of it.
function FailedAttempt({ job, attempts }: { job: Job; attempts: Attempt[] }) {
  const failed = failedAttempt(attempts);
  const [record, setRecord] = useState<FlightRecord | null>(null);
  useEffect(() => {
    // Without one the banner says the rest.
    if (failed !== null) getFlightRecord(job.name).then(setRecord, () => setRecord(null));
  }, [job.name, job.state, failed?.attempt]);
  if (failed === null) return null;
  const earlier = attempts.filter((a) => a.attempt < failed.attempt && (a.state === 'failed' || a.state === 'lost')).length;
  const ofIt = record?.attempt === failed.attempt;
  const why = (ofIt && record.analysis?.text) || failed.error?.message || `it was ${failed.state}`;
  return (
    <div class={`notice banner tone-${job.state === 'failed' ? 'bad' : 'warn'}`} role="status">
      <div><strong>Attempt {failed.attempt}:</strong> {why}</div>
      <span class="links">
        {record !== null && (
          <a href={jobAddress(job.name, 'flight')}>flight record{ofIt ? '' : ` of attempt ${record.attempt}`}</a>
        )}
        <a href={jobAddress(job.name, 'history')}>{earlier > 0 ? `${earlier} earlier and the history` : 'history'}</a>
      </span>
    </div>
  );
}

// The dialog needs the whole spec, and a watch sends a model's config.json only once.
function Clone({ job, name }: { job: Job; name: string }) {
  const [whole, setWhole] = useState<Job | null>(null);
  const [error, setError] = useState<unknown>(null);
  const open = () => getJob(job.name).then((got) => { setWhole(got); setError(null); }, setError);
  return (
    <>
      {error !== null && <Failure error={error} />}
      <button type="button" onClick={open}>Clone …</button>
      {whole?.spec && (
        <SubmitDialog title={`Submit another like ${name}`} base={whole.spec} draft={draftOfJob(whole)} close={() => setWhole(null)}
          note="Everything that is not shown here stays as it was submitted. It begins anew; Retry goes on from a checkpoint." />
      )}
    </>
  );
}

function Actions({ job, name }: { job: Job; name: string }) {
  return <><Clone job={job} name={name} /><StateAction job={job} name={name} /></>;
}

function StateAction({ job, name }: { job: Job; name: string }) {
  if (!isFinal(job.state)) {
    const saves = job.state === 'cancelling' && job.stop?.save === true;
    if (job.state === 'cancelling' && !saves) return null;
    const runs = job.state === 'leased' || job.state === 'starting' || job.state === 'running';
    return (
      <>
        {runs && (
          <ConfirmButton label="Save and cancel" question={`Save and cancel ${name}?`} confirm="Save and cancel"
            detail="Its trainers save the step at which they stop, which may take a minute; then its slots are given back."
            action={async () => { await cancelJob(job.name, true); }} />
        )}
        <ConfirmButton danger label="Cancel" question={`Cancel ${name}?`}
          confirm={saves ? 'End it without saving' : 'Cancel the job'}
          detail="Its trainers are stopped and its slots are given back. Committed checkpoints stay."
          action={async () => { await cancelJob(job.name, false); }} />
      </>
    );
  }
  if (job.state === 'succeeded') return null;
  const beginning = beginningOf(job);
  return (
    <ConfirmButton label="Retry" question={`Try ${name} again?`} confirm={beginning.fresh ? 'Begin anew' : 'Retry'}
      detail={`A new job is made with what this one was submitted with. ${beginning.text}`}
      action={async () => navigate(jobAddress((await retryJob(job.name, newRequestId(), beginning.fresh)).name))} />
  );
}

function Planning({ planning }: { planning: PlanningProgress | null }) {
  const share = planning && planning.to_capture > 0 ? planning.captured / planning.to_capture : null;
  return (
    <div class="planning">
      <Meter share={share} label="Planning" tone="info" />
      <p class="sub">
        {planning === null ? 'planning begins' : (
          <>
            {format.count(planning.captured)} of {format.count(planning.to_capture)} candidates simulated,{' '}
            {format.count(planning.space)} in the space, {format.duration(planning.elapsed_seconds)}
            {planning.best_step_seconds !== null && `, best so far ${format.seconds(planning.best_step_seconds)} a step`}
          </>
        )}
      </p>
    </div>
  );
}

function Stats({ job, now }: { job: Job; now: number }) {
  const progress = job.progress;
  const left = secondsLeft(job);
  const ran = job.start_time_us === null ? null : (job.end_time_us ?? now * 1000) / 1e6 - job.start_time_us / 1e6;
  const share = doneShare(job);
  return (
    <div class="stats">
      <Stat label="Step"
        value={progress && progress.steps > 0
          ? <>{format.count(progress.step)} <span class="faint">/ {format.count(progress.steps)}</span></> : '–'}
        note={<Meter share={share} label="Progress"
          tone={job.state === 'succeeded' ? 'good' : job.state === 'failed' ? 'bad' : 'run'} />} />
      <Stat label={isFinal(job.state) ? 'Took' : 'Time left'}
        value={isFinal(job.state) ? format.duration(ran) : format.duration(left)}
        note={job.start_time_us === null ? 'not started' : isFinal(job.state)
          ? <>ended <Time us={job.end_time_us} now={now} /></> : `running for ${format.duration(ran)}`} />
      <Stat label="Loss" value={format.loss(progress?.loss)} note={`held-out ${format.loss(progress?.validation_loss)}`}
        title="nats per token" />
      <Stat label="Tokens/s" value={format.large(progress?.tokens_per_second)}
        note={`${format.seconds(progress?.step_seconds)} a step`} />
      <Stat label="Peak memory" value={format.bytes(progress?.peak_memory_bytes)} note="largest of all ranks" />
      <Stat label="Slots" value={slotsText(job)}
        note={`${format.plural(job.attempts, 'attempt')}, ${format.plural(job.restarts, 'restart')}`} />
      <Stat label="Submitted" value={<Time us={job.create_time_us} now={now} />} note={job.spec?.model?.name ?? ''} />
    </div>
  );
}
