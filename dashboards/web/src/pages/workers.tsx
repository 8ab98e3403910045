// The machines that train: what they have, what of it is used, and by whom.
import { useEffect, useState } from 'preact/hooks';
import { checkWorker, drainWorker, getWorker, listWorkers } from '../api';
import * as format from '../format';
import { checkLines, faultLines, faultySlots } from '../health';
import { useEvents, useNow, useThrottled, type Refresh } from '../live';
import { Badge, ConfirmButton, Empty, Failure, LostConnection, Meter, Skeleton, Stat, Time, useTitle } from '../parts/basic';
import type { CheckResult, MachineCheck, Worker } from '../types';
import { jobAddress } from '../url';
import { useBars } from '../use';

const USE_MILLISECONDS = 5000;

function usedSlots(worker: Worker): number {
  return worker.used.reduce((sum, use) => sum + use.slots, 0);
}

export function WorkersPage() {
  useTitle('Workers');
  const now = useNow();
  const [workers, setWorkers] = useState<Worker[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const refresh = useThrottled(async () => {
    try {
      setWorkers(await listWorkers());
      setError(null);
    } catch (caught) {
      setError(caught);
    }
  }, 1000);
  useEffect(refresh, []);
  // How much is in use changes without an event.
  useEffect(() => {
    const timer = window.setInterval(() => document.hidden || refresh(), USE_MILLISECONDS);
    return () => window.clearInterval(timer);
  }, []);
  const connection = useEvents('/v1/events', { jobs: refresh, workers: refresh }, refresh);
  return (
    <main id="main">
      <div class="page-head"><h1>Workers</h1></div>
      <LostConnection connection={connection} />
      {error !== null && <Failure error={error} retry={refresh.now} />}
      {workers === null ? error === null && <Skeleton rows={4} label="Loading workers" /> : workers.length === 0
        ? (
          <Empty title="No workers">
            <p>Start an agent on a machine that shall train: <code>legoai-agent</code>. Jobs wait until there is one.</p>
          </Empty>
        )
        : <Fleet workers={workers} now={now} refresh={refresh} />}
    </main>
  );
}

function Fleet({ workers, now, refresh }: { workers: Worker[]; now: number; refresh: Refresh }) {
  const ready = workers.filter((worker) => worker.state === 'ready');
  const slots = ready.reduce((sum, worker) => sum + worker.slots, 0);
  const used = ready.reduce((sum, worker) => sum + usedSlots(worker), 0);
  return (
    <>
      <div class="stats">
        <Stat label="Workers ready" value={`${format.count(ready.length)} of ${format.count(workers.length)}`} />
        <Stat label="Slots used" value={`${format.count(used)} of ${format.count(slots)}`}
          note={format.percent(slots ? used / slots : 0)} />
        <Stat label="Slots faulty" value={format.count(workers.reduce((sum, worker) => sum + faultySlots(worker), 0))} />
        <Stat label="Lost" value={format.count(workers.filter((worker) => worker.state === 'lost').length)} />
      </div>
      <table class="list workers" aria-label="Workers by name">
        <thead>
          <tr>
            <th scope="col">State</th><th scope="col">Worker</th><th scope="col">Slots</th><th scope="col">Jobs</th>
            <th scope="col" title="by whomever, not by jobs alone">In use</th><th scope="col">Device</th><th scope="col" class="number">Seen</th>
            <th scope="col"><span class="hidden">Actions</span></th>
          </tr>
        </thead>
        <tbody>{workers.map((worker) => <Row key={worker.name} worker={worker} now={now} refresh={refresh} />)}</tbody>
      </table>
    </>
  );
}

function Row({ worker, now, refresh }: { worker: Worker; now: number; refresh: Refresh }) {
  const used = usedSlots(worker);
  const name = format.lastSegment(worker.name);
  return (
    <tr>
      <td data-label="State">
        <Badge state={worker.state ?? 'lost'} />
        {!worker.connected && worker.state !== 'lost' && <div class="why">no connection</div>}
        {worker.connected && worker.health?.checking && <div class="why">checks its machine</div>}
      </td>
      <td data-label="Worker">
        <span class="name">{name}</span>
        <div class="sub">{worker.host}</div>
        <div class="sub">pool {worker.pool || 'default'}</div>
        {Object.keys(worker.labels).length > 0 && (
          <div class="sub">{Object.entries(worker.labels).map(([key, value]) => `${key}=${value}`).join(' ')}</div>
        )}
      </td>
      <td data-label="Slots">
        <Meter share={worker.slots ? used / worker.slots : 0} label={`Slots of ${name} in use`} />
        <div class="sub">{used} of {worker.slots} used</div>
        {faultySlots(worker) > 0 && <div class="why">{faultySlots(worker)} faulty, given nothing new</div>}
      </td>
      <td data-label="Jobs">
        {worker.used.length === 0 ? <span class="faint">idle</span> : worker.used.map((use, i) => (
          <div key={use.job || i}>
            {use.job ? <a href={jobAddress(use.job)} title={use.job}>…{use.job.slice(-8)}</a> : 'of another project'}{' '}
            <span class="faint">×{use.slots}</span>
          </div>
        ))}
      </td>
      <td data-label="In use"><UseFacts worker={worker} name={name} /></td>
      <td data-label="Device">
        <DeviceFacts worker={worker} />
        <HealthFacts worker={worker} now={now} />
      </td>
      <td data-label="Seen" class="number">
        <Time us={worker.last_seen_time_us} now={now} />
        {worker.dropped_metrics > 0 && <div class="why">{format.plural(worker.dropped_metrics, 'metric')} dropped</div>}
      </td>
      <td class="actions">
        {worker.connected && !worker.health?.checking && (
          <ConfirmButton label="Check" question={`Check ${name}?`} confirm="Check"
            detail="Its agent checks the disk of its runs, free slots' devices, and what connects these. It gets no new jobs
              meanwhile; what passes gets jobs again."
            action={async () => { await checkWorker(worker.name); refresh.now(); }} />
        )}
        {worker.state === 'ready' && (
          <ConfirmButton label="Drain" question={`Drain ${name}?`} confirm="Drain"
            detail="What runs there saves, and goes on from there on other workers; it gets no further jobs until this is undone."
            action={async () => { await drainWorker(worker.name, false); refresh.now(); }} />
        )}
        {worker.state === 'draining' && (
          <ConfirmButton label="Undrain" question={`Take ${name} back?`} confirm="Undrain" detail="It gets jobs again."
            action={async () => { await drainWorker(worker.name, true); refresh.now(); }} />
        )}
      </td>
    </tr>
  );
}

function UseFacts({ worker, name }: { worker: Worker; name: string }) {
  const bars = useBars(worker);
  if (bars.length === 0) return <span class="faint">–</span>;
  return (
    <>
      {bars.map((bar) => (
        <div key={bar.what}>
          <Meter share={bar.share} label={`${bar.what} of ${name} in use`} tone="info" />
          <div class="sub">{bar.what}: {bar.text}{bar.note && `, ${bar.note}`}</div>
        </div>
      ))}
    </>
  );
}

function HealthFacts({ worker, now }: { worker: Worker; now: number }) {
  const faults = faultLines(worker);
  const check = worker.connected ? worker.health?.check : null;
  return (
    <>
      {faults.map((line) => <div class="why" key={line}>{line}</div>)}
      {check && <CheckFacts worker={worker.name} check={check} now={now} />}
    </>
  );
}

// What has passed is in no list: it is asked for when the reader unfolds it, and anew where the machine was checked again.
function CheckFacts({ worker, check, now }: { worker: string; check: MachineCheck; now: number }) {
  const [open, setOpen] = useState(false);
  const [all, setAll] = useState<CheckResult[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    setAll(null);
    setError(null);
    if (!open) return undefined;
    let gone = false;
    getWorker(worker).then(
      (got) => { if (!gone) setAll(got.health?.check?.results ?? []); }, (caught) => { if (!gone) setError(caught); });
    return () => { gone = true; };
  }, [open, worker, check.start_time_us]);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {check.results.every((result) => result.passed) ? 'check passed' : 'check failed'},{' '}
        <Time us={check.start_time_us} now={now} />
      </summary>
      {error !== null && <Failure error={error} />}
      {checkLines(all ?? check.results).map((line) => <div class="sub" key={line}>{line}</div>)}
    </details>
  );
}

function DeviceFacts({ worker }: { worker: Worker }) {
  const device = worker.device;
  if (!device) return <span class="faint">–</span>;
  const peak = device.peak_flops.reduce<{ dtype: string | null; flops_per_second: number } | null>(
    (best, one) => (best === null || one.flops_per_second > best.flops_per_second ? one : best), null);
  const facts = [];
  if (device.memory_bytes > 0) facts.push(`${format.bytes(device.memory_bytes)} per slot`);
  if (device.memory_bandwidth_bytes_per_second > 0) facts.push(format.rate(device.memory_bandwidth_bytes_per_second, 'B/s'));
  if (peak) facts.push(`${format.rate(peak.flops_per_second, 'FLOP/s')}${peak.dtype ? ` ${peak.dtype}` : ''}`);
  return (
    <>
      <span>{device.type || device.kind}</span>
      <div class="sub">
        {facts.join(', ')}
      </div>
      {(worker.slot_devices ?? []).map((gpu) => <div class="sub" key={gpu.uuid}>GPU {gpu.index}: {gpu.name}, {gpu.uuid}</div>)}
      <div class="sub">
        host: {format.plural(worker.host_cores, 'core')}, {format.bytes(worker.host_memory_bytes)}, build{' '}
        {worker.build_version || '–'}
      </div>
    </>
  );
}
