// What trainers, agents and the server say of the job; follows the end unless the reader has scrolled away.
import { useEffect, useRef, useState } from 'preact/hooks';
import { listLogs } from '../api';
import { isFinal } from '../curve';
import * as format from '../format';
import { useThrottled } from '../live';
import { navigate } from '../navigation';
import type { Job, LogLine } from '../types';
import { jobAddress } from '../url';
import { Empty, Failure, Skeleton } from './basic';

const KEPT = 5000;

export function Logs({ job, rank }: { job: Job; rank: number | null }) {
  const [lines, setLines] = useState<LogLine[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [follow, setFollow] = useState(true);
  const box = useRef<HTMLDivElement>(null);
  const last = useRef<{ rank: number | null; sequence: number } | null>(null);
  const refresh = useThrottled(async () => {
    const from = last.current?.rank === rank ? last.current : null;
    try {
      const got = from === null ? await listLogs(job.name, { page_size: 1000, tail: true, rank })
        : await listLogs(job.name, { page_size: 1000, after_sequence: from.sequence, rank });
      last.current = { rank, sequence: got.last_sequence };
      setLines((known) => (from === null ? got.lines : [...(known ?? []), ...got.lines].slice(-KEPT)));
      setError(null);
    } catch (caught) {
      setError(caught);
    }
  }, 1000);
  useEffect(refresh.now, [rank]);
  useEffect(refresh, [job.version]);
  useEffect(() => {
    if (isFinal(job.state)) return undefined;
    const timer = window.setInterval(refresh, 2000);
    return () => window.clearInterval(timer);
  }, [job.state]);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follow]);
  const onScroll = () => {
    const b = box.current!;
    setFollow(b.scrollHeight - b.scrollTop - b.clientHeight < 24);
  };
  return (
    <section class="card" aria-label="Logs">
      <header class="card-head">
        <h2>Logs</h2>
        <span class="spacer" />
        <label>
          rank{' '}
          <select value={rank === null ? '' : String(rank)}
            onChange={({ currentTarget: { value } }) => navigate(
              jobAddress(job.name, 'logs', value === '' ? null : Number(value)), true)}>
            <option value="">all</option>
            {Array.from({ length: job.world_size ?? 0 }, (_, i) => <option key={i} value={i}>{i}</option>)}
          </select>
        </label>
        <label><input type="checkbox" checked={follow}
          onChange={(event) => setFollow(event.currentTarget.checked)} /> follow</label>
      </header>
      {error !== null && <Failure error={error} retry={refresh.now} />}
      {lines === null ? error === null && <Skeleton rows={6} label="Loading logs" /> : lines.length === 0
        ? <Empty title={rank === null ? 'Nothing was said yet' : `Rank ${rank} has said nothing`} />
        : (
          <div class="logs" ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-label="Log lines">
            {lines.map((line) => (
              <div key={line.sequence} class={`log log-${line.level}`}>
                <time title={format.absolute(line.time_us)}>{format.clock(line.time_us)}</time>
                <span class="log-rank"
                  title={line.rank === null ? line.worker || 'agent or server' : `rank ${line.rank}, attempt ${line.attempt}`}>
                  {line.rank === null ? '·' : line.rank}
                </span>
                <span class="log-text">{line.level !== 'info' && <b>{line.level} </b>}{line.text}</span>
              </div>
            ))}
          </div>
        )}
    </section>
  );
}
