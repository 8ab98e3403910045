// The flight record: which collective stands still, and who is missing in it.
import { useEffect, useState } from 'preact/hooks';
import { getFlightRecord } from '../api';
import { flightRows } from '../flight';
import * as format from '../format';
import type { FlightFinding, FlightRecord, Job } from '../types';
import { Card, Empty, Failure, Skeleton, Time } from './basic';
import { Scroll } from './scroll';

export function Flight({ job, now }: { job: Job; now: number }) {
  const [record, setRecord] = useState<FlightRecord | null | undefined>(undefined); // null: there is none
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    getFlightRecord(job.name).then((got) => { setRecord(got); setError(null); }, setError);
  }, [job.name, job.state, job.epoch]);
  if (record === null) {
    return (
      <Card title="Flight record">
        <Empty title="No flight record">One is taken when a job makes no progress, or when a trainer is lost.</Empty>
      </Card>
    );
  }
  if (record === undefined) {
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

// "all_gather 17 of dp_shard": the collective without the name of its back end.
function collectiveText(finding: FlightFinding): string {
  return `${finding.profiling_name.replace(/^[a-z]+:/, '')} ${finding.sequence} of ${finding.process_group}`;
}

// Who and where, before any table.
function headline(record: FlightRecord): string {
  const blamed = format.ranks(record.analysis?.culprits ?? []);
  const finding = record.analysis?.findings[0];
  const where = finding ? `, at ${collectiveText(finding)}` : '';
  if (!blamed) return finding ? `No rank is blamed${where}` : 'No rank is blamed';
  return `${blamed[0].toUpperCase()}${blamed.slice(1)} ${blamed.startsWith('ranks') ? 'are' : 'is'} blamed${where}`;
}

function Verdict({ record, now }: { record: FlightRecord; now: number }) {
  const analysis = record.analysis;
  const fine = analysis?.verdict === 'fully_matched';
  return (
    <Card title="Verdict"
      aside={<span class="faint">attempt {record.attempt}, <Time us={record.time_us} now={now} />: {record.reason}</span>}>
      <p class="headline">{headline(record)}</p>
      <p class="verdict">
        <span class={`badge tone-${fine ? 'calm' : 'bad'}`}>{format.words(analysis?.verdict ?? 'undecided')}</span>{' '}
        {analysis?.text}
      </p>
      <dl class="facts">
        <div><dt>matched before that</dt><dd>{format.plural(analysis?.matched ?? 0, 'collective')}</dd></div>
        {analysis && analysis.ranks_without_dump.length > 0 && (
          <div><dt>without a dump</dt><dd>{format.ranks(analysis.ranks_without_dump)}</dd></div>
        )}
      </dl>
    </Card>
  );
}

function Findings({ record }: { record: FlightRecord }) {
  return (
    <Card title="Findings">
      <Scroll label="Findings">
        <table class="list dense">
          <thead><tr><th scope="col">Blamed</th><th scope="col">Collective</th><th scope="col">Not in it</th>
            <th scope="col">Verdict</th>
            <th scope="col">What</th></tr></thead>
          <tbody>
            {record.analysis!.findings.map((f, i) => (
              <tr key={i}>
                <td class="nowrap">{format.ranks(f.culprits) || 'no rank'}</td><td>{collectiveText(f)}</td>
                <td>{format.ranks(f.missing_ranks) || 'no rank'}</td><td>{format.words(f.verdict)}</td>
                <td class="prose">{f.text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}

function RankTable({ record }: { record: FlightRecord }) {
  const rows = flightRows(record);
  return (
    <Card title="Where every rank stands">
      <Scroll label="Where every rank stands">
        <table class="list dense">
          <thead><tr><th scope="col">Rank</th><th scope="col">Last collective</th><th scope="col" class="number">Number</th>
            <th scope="col">Group</th>
            <th scope="col">State</th><th scope="col" class="number">Behind by</th><th scope="col" class="number">Recorded</th>
            <th scope="col">Dump taken for</th></tr></thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.rank} class={row.culprit ? 'blamed' : ''}>
                <td class="nowrap">rank {row.rank} {row.culprit && <span class="badge tone-bad">blamed</span>}</td>
                {row.last === null
                  ? <td colSpan={7} class="faint">no dump</td>
                  : (
                    <>
                      <td><code>{row.last.profiling_name}</code></td><td class="number">{row.last.collective_seq_id}</td>
                      <td>{row.last.process_group}</td><td>{row.last.state}</td>
                      <td class="number">{row.behind === 0 ? '–' : format.plural(row.behind, 'collective')}</td>
                      <td class="number">{format.count(row.entries)}</td><td>{row.reason}</td>
                    </>
                  )}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}
