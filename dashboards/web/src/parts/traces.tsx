// Traces of steps: what there is, to download; the predicted step above the traced one, on one axis; where they part.
import { useEffect, useState } from 'preact/hooks';
import { fetchTrace, listStepTraces, traceAddress } from '../api';
import { isFinal } from '../curve';
import * as format from '../format';
import { useThrottled } from '../live';
import { notPlanned } from '../recipe';
import { latestTrace, partings, readTrace, standsFor, streamRows, type TracedRank } from '../trace';
import type { Job, StepTraceInfo } from '../types';
import { Card, Empty, Failure, Skeleton, Time } from './basic';
import { Scroll } from './scroll';
import { Timeline } from './timeline';

function useTraces(job: Job) {
  const [traces, setTraces] = useState<StepTraceInfo[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const refresh = useThrottled(async () => {
    try {
      setTraces(await listStepTraces(job.name));
      setError(null);
    } catch (caught) {
      setError(caught);
    }
  }, 5000);
  useEffect(() => (isFinal(job.state) ? refresh.now : refresh)(), [job.version]);
  return { traces, error };
}

interface Loaded {
  ranks: TracedRank[] | null;
  error: unknown;
  busy: boolean;
}
const NOTHING: Loaded = { ranks: null, error: null, busy: false };

// `name`: of a trace; null: none is wanted.
function useTrace(name: string | null): Loaded {
  const [loaded, setLoaded] = useState<Loaded>(NOTHING);
  useEffect(() => {
    if (name === null) {
      setLoaded(NOTHING);
      return undefined;
    }
    let gone = false;
    setLoaded({ ...NOTHING, busy: true });
    fetchTrace(name).then(readTrace).then(
      (ranks) => { if (!gone) setLoaded({ ...NOTHING, ranks }); },
      (error) => { if (!gone) setLoaded({ ...NOTHING, error }); });
    return () => { gone = true; };
  }, [name]);
  return loaded;
}

const titleOf = (trace: StepTraceInfo) => `step ${format.count(trace.step)}, rank ${trace.rank}, attempt ${trace.attempt}`;

export function Traces({ job, now, theme }: { job: Job; now: number; theme: string }) {
  const { traces, error } = useTraces(job);
  const [picked, setPicked] = useState<string | null>(null);
  const [drawn, setDrawn] = useState(false);
  const chosen = traces?.find((one) => one.name === picked) ?? latestTrace(traces ?? []);
  const planned = job.chosen !== null;
  const predictedName = `${job.name}/predictedTrace`;
  const measured = useTrace(drawn && chosen !== null ? chosen.name : null);
  const predicted = useTrace(drawn && planned ? predictedName : null);
  const first = predicted.ranks && (chosen ? standsFor(predicted.ranks, chosen.rank) : predicted.ranks[0]);
  const second = measured.ranks && chosen ? standsFor(measured.ranks, chosen.rank) : null;
  return (
    <Card title="One step, predicted and traced" aside={traces !== null && traces.length > 1 && (
      <label>traced <select value={chosen?.name} onChange={(event) => setPicked(event.currentTarget.value)}>
        {[...traces].reverse().map((one) => <option key={one.name} value={one.name}>{titleOf(one)}</option>)}
      </select></label>
    )}>
      {error !== null && <Failure error={error} />}
      {traces === null && error === null && <Skeleton rows={2} label="Loading the list of traces" />}
      {traces?.length === 0 && (
        <Empty title="No step of this job was traced">
          The recipe’s <code>metrics.trace_steps</code> names the steps to trace, <code>metrics.trace_ranks</code> the ranks.
        </Empty>
      )}
      <div class="row-actions">
        {!drawn && (planned || chosen !== null) && (
          <button type="button" class="primary" onClick={() => setDrawn(true)}>
            {chosen === null ? 'Draw the predicted step' : planned ? 'Draw both' : 'Draw it'}</button>
        )}
        {planned
          ? <a class="button" href={traceAddress(predictedName)} download>predicted.json.gz ↓</a>
          : <span class="faint">{notPlanned(job)}: there is no predicted step</span>}
        {chosen !== null && (
          <a class="button" href={traceAddress(chosen.name)} download
            title={`${titleOf(chosen)}: ${format.bytes(chosen.bytes)}`}>traced.json.gz ↓</a>
        )}
        {chosen !== null && <span class="faint">{titleOf(chosen)}, <Time us={chosen.time_us} now={now} /></span>}
        <span class="faint">for <a href="https://ui.perfetto.dev" target="_blank" rel="noreferrer">ui.perfetto.dev</a></span>
      </div>
      {predicted.error !== null && <Failure error={predicted.error} />}
      {measured.error !== null && <Failure error={measured.error} />}
      {predicted.busy && <Skeleton rows={2} label="The server simulates the step" />}
      {measured.busy && <Skeleton rows={2} label="Loading the trace" />}
      {!predicted.busy && !measured.busy && (first || second) && (
        <>
          <Timeline theme={theme} rows={[
            ...(first ? [{ title: `predicted, ${first.name}`, rank: first }] : []),
            ...(second ? [{ title: `traced, ${chosen ? titleOf(chosen) : ''}`, rank: second }] : []),
          ]} />
          <Streams predicted={first ?? null} measured={second} />
          {first && second && <Partings predicted={first} measured={second} />}
        </>
      )}
    </Card>
  );
}

const time = (microseconds: number | null) => format.seconds(microseconds === null ? null : microseconds / 1e6);

function Streams({ predicted, measured }: { predicted: TracedRank | null; measured: TracedRank | null }) {
  return (
    <Scroll label="How long each stream is busy">
      <table class="list dense streams">
        <thead><tr><th scope="col">Busy in the step</th><th scope="col" class="number">predicted</th>
          <th scope="col" class="number">traced</th><th scope="col" class="number">off by</th></tr></thead>
        <tbody>
          <tr><td>the whole step</td><td class="number">{time(predicted?.length ?? null)}</td>
            <td class="number">{time(measured?.length ?? null)}</td>
            <td class="number">{off(predicted?.length ?? null, measured?.length ?? null)}</td></tr>
          {streamRows(predicted, measured).map((row) => (
            <tr key={row.stream}><td>{row.stream}</td><td class="number">{time(row.predicted)}</td>
              <td class="number">{time(row.measured)}</td><td class="number">{off(row.predicted, row.measured)}</td></tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

const off = (predicted: number | null, measured: number | null) =>
  format.signedPercent(predicted === null || !measured ? null : predicted / measured - 1);

const PARTINGS = 8;

function Partings({ predicted, measured }: { predicted: TracedRank; measured: TracedRank }) {
  const rows = partings(predicted, measured).slice(0, PARTINGS);
  return (
    <>
      <h3 class="spaced">Where they part most, in all calls together</h3>
      <Scroll label="Where they part most">
        <table class="list dense partings">
          <thead><tr><th scope="col">Operator</th><th scope="col" class="number">calls</th><th scope="col" class="number">predicted</th>
            <th scope="col" class="number">traced</th><th scope="col" class="number">traced less predicted</th></tr></thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.name}>
                <td><code>{row.name}</code></td>
                <td class="number">{row.calls[0] === row.calls[1] ? format.count(row.calls[0])
                  : `${format.count(row.calls[0])} / ${format.count(row.calls[1])}`}</td>
                <td class="number">{time(row.predicted)}</td><td class="number">{time(row.measured)}</td>
                <td class="number">{row.measured < row.predicted ? '−' : '+'}{time(Math.abs(row.measured - row.predicted))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </>
  );
}
