// The flight record: which collective stands still, and who is missing in it.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, getFlightRecord } from '../api';
import { flightRows } from '../flight';
import * as format from '../format';
import type { FlightRecord, Job } from '../types';
import { Card, Empty, Failure, Skeleton, Time } from './basic';

export function Flight({ job, now }: { job: Job; now: number }) {
  const [record, setRecord] = useState<FlightRecord | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    getFlightRecord(job.name).then((got) => { setRecord(got); setError(null); }, setError);
  }, [job.name, job.state, job.epoch]);
  if (record === null) {
    if (error instanceof ApiError && error.code === 404) {
      return (
        <Card title="Flight record">
          <Empty title="No flight record">One is taken when a job makes no progress, or when a trainer is lost.</Empty>
        </Card>
      );
    }
    return error !== null ? <Failure error={error} /> : <Skeleton rows={4} label="Loading the flight record" />;
  }
  return (
    <>
      <Verdict record={record} now={now} />
      {record.analysis && record.analysis.findings.length > 0 && <Findings record={record} />}
      <RankTable record={record} />
    </>
  );
}

function Verdict({ record, now }: { record: FlightRecord; now: number }) {
  const analysis = record.analysis;
  const fine = analysis?.verdict === 'fully_matched';
  return (
    <Card title="Verdict" aside={<span class="faint">attempt {record.attempt}, <Time us={record.time_us} now={now} />: {record.reason}</span>}>
      <p class="verdict">
        <span class={`badge tone-${fine ? 'calm' : 'bad'}`}>{format.words(analysis?.verdict ?? 'undecided')}</span>{' '}
        {analysis?.text}
      </p>
      <dl class="facts">
        <div><dt>culprits</dt><dd>{analysis && analysis.culprits.length ? `rank ${format.ranks(analysis.culprits)}` : 'none'}</dd></div>
        <div><dt>matched collectives</dt><dd>{format.count(analysis?.matched)}</dd></div>
        {analysis && analysis.ranks_without_dump.length > 0 && (
          <div><dt>ranks without a dump</dt><dd>{format.ranks(analysis.ranks_without_dump)}</dd></div>
        )}
      </dl>
    </Card>
  );
}

function Findings({ record }: { record: FlightRecord }) {
  return (
    <Card title="Findings">
      <div class="scroll">
        <table class="list dense">
          <thead><tr><th scope="col">Group</th><th scope="col">Collective</th><th scope="col" class="number">Number</th><th scope="col">Verdict</th>
            <th scope="col">Missing</th><th scope="col">Blamed</th><th scope="col">What</th></tr></thead>
          <tbody>
            {record.analysis!.findings.map((f, i) => (
              <tr key={i}>
                <td>{f.process_group}</td><td><code>{f.profiling_name}</code></td><td class="number">{f.sequence}</td><td>{format.words(f.verdict)}</td>
                <td>{format.ranks(f.missing_ranks) || '–'}</td><td>{format.ranks(f.culprits) || '–'}</td><td class="prose">{f.text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function RankTable({ record }: { record: FlightRecord }) {
  const rows = flightRows(record);
  return (
    <Card title="Where every rank stands">
      <div class="scroll">
        <table class="list dense">
          <thead><tr><th scope="col" class="number tight">Rank</th><th scope="col">Group</th><th scope="col">Last collective</th><th scope="col" class="number">Number</th>
            <th scope="col">State</th><th scope="col" class="number">Behind</th><th scope="col" class="number">Recorded</th><th scope="col">Dump taken for</th></tr></thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.rank} class={row.culprit ? 'blamed' : ''}>
                <td class="number">{row.culprit && <span class="badge tone-bad">blamed</span>} {row.rank}</td>
                {row.last === null
                  ? <td colSpan={7} class="faint">no dump</td>
                  : (
                    <>
                      <td>{row.last.process_group}</td><td><code>{row.last.profiling_name}</code></td>
                      <td class="number">{row.last.collective_seq_id}</td><td>{row.last.state}</td>
                      <td class="number">{row.behind === 0 ? '–' : format.count(row.behind)}</td>
                      <td class="number">{format.count(row.entries)}</td><td>{row.reason}</td>
                    </>
                  )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
