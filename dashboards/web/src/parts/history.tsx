// What happened to the job: attempts, states, checkpoints.
import { useEffect, useState } from 'preact/hooks';
import { listCheckpoints, listTransitions } from '../api';
import * as format from '../format';
import { useThrottled } from '../live';
import { parallelismText } from '../recipe';
import type { Attempt, Checkpoint, Job, Transition } from '../types';
import { Badge, Card, Empty, Failure, Skeleton, Time } from './basic';
import { Scroll } from './scroll';

const SHOWN = 20;

// Which ranks a worker has, where there are others elsewhere.
function ranksOf(attempt: Attempt, placement: Attempt['placements'][number]): string {
  if (attempt.placements.length < 2) return '';
  const last = placement.first_rank + placement.slots - 1;
  return last === placement.first_rank ? ` (rank ${last})` : ` (ranks ${placement.first_rank}–${last})`;
}

export function History({ job, attempts, now }: { job: Job; attempts: Attempt[]; now: number }) {
  const [transitions, setTransitions] = useState<Transition[] | null>(null);
  const [checkpoints, setCheckpoints] = useState<Checkpoint[]>([]);
  const [error, setError] = useState<unknown>(null);
  const refresh = useThrottled(async () => {
    try {
      const [changes, saved] = await Promise.all([listTransitions(job.name), listCheckpoints(job.name)]);
      setTransitions(changes);
      setCheckpoints(saved);
      setError(null);
    } catch (caught) {
      setError(caught);
    }
  }, 2000);
  useEffect(refresh, [job.state, job.committed_step, job.epoch]);
  if (error !== null) return <Failure error={error} retry={refresh.now} />;
  if (transitions === null) return <Skeleton rows={5} label="Loading the history" />;
  return (
    <>
      <Card title="Attempts">
        {attempts.length ? <Attempts list={attempts} job={job} now={now} /> : <Empty title="No attempt yet" />}
      </Card>
      <div class="columns">
        <Card title="States">
          {transitions.length ? <States list={transitions} now={now} /> : <Empty title="Nothing happened yet" />}
        </Card>
        <Card title="Checkpoints">
          {checkpoints.length ? <Checkpoints list={checkpoints} now={now} /> : <Empty title="No checkpoint committed" />}
        </Card>
      </div>
    </>
  );
}

// The step of the attempt that runs; null of one that has ended.
function stepNow(attempt: Attempt, job: Job): number | null | undefined {
  return attempt.end_time_us === null && attempt.attempt === job.attempts ? job.progress?.step : null;
}

function Attempts({ list, job, now }: { list: Attempt[]; job: Job; now: number }) {
  return (
    <Scroll label="Attempts">
      <table class="list dense">
        <thead>
          <tr>
            <th scope="col" class="number">No.</th><th scope="col">State</th><th scope="col">Where</th>
            <th scope="col">Parallelism</th>
            <th scope="col" class="number">Steps</th><th scope="col" class="number">Began</th>
            <th scope="col" class="number">Took</th>
            <th scope="col" class="number">Epoch</th><th scope="col">Ended with</th>
          </tr>
        </thead>
        <tbody>
          {[...list].reverse().map((a) => (
            <tr key={a.attempt}>
              <td class="number">{a.attempt}</td>
              <td><Badge state={a.state} /></td>
              <td>
                {a.placements.map((p) => `${format.lastSegment(p.worker)} ×${p.slots}${ranksOf(a, p)}`).join(', ') || '–'}
              </td>
              <td>{parallelismText(a.recipe)}</td>
              <td class="number">{format.count(a.resume_step ?? 0)} → {format.count(a.last_step ?? stepNow(a, job))}</td>
              <td class="number"><Time us={a.start_time_us} now={now} /></td>
              <td class="number">{format.duration((a.end_time_us ?? now * 1000) / 1e6 - a.start_time_us / 1e6)}</td>
              <td class="number">{a.epoch}</td>
              <td class="prose">{a.error?.message ?? ''}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function States({ list, now }: { list: Transition[]; now: number }) {
  return (
    <ol class="timeline">
      {[...list].reverse().map((t) => (
        <li key={t.version}>
          <Badge state={t.to} /> <span class="faint"><Time us={t.time_us} now={now} /></span>
          {t.reason && <div class="sub">{t.reason}</div>}
        </li>
      ))}
    </ol>
  );
}

// Those that are still on disk, the latest first.
function Checkpoints({ list, now }: { list: Checkpoint[]; now: number }) {
  const latest = list.slice(-SHOWN).reverse();
  return (
    <>
      <table class="plain spaced">
        <thead><tr><th scope="col" class="number">Step</th><th scope="col" class="number">Attempt</th><th scope="col">Where</th>
          <th scope="col" class="number">Committed</th></tr></thead>
        <tbody>
          {latest.map((c) => (
            <tr key={`${c.name} ${c.epoch}`}>
              <td class="number">{format.count(c.step)}</td><td class="number">{c.attempt}</td>
              <td class="path">{c.directory}/step-{c.step}{c.damage && <div class="sub">damaged: {c.damage}</div>}</td>
              <td class="number"><Time us={c.time_us} now={now} /></td>
            </tr>
          ))}
        </tbody>
      </table>
      {list.length > SHOWN && <p class="faint">and {format.plural(list.length - SHOWN, 'earlier one')}</p>}
    </>
  );
}
