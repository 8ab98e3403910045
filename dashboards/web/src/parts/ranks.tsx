// The ranks beside each other: a table whose colours show who stands out, the last reports as a map, collectives.
import { useState } from 'preact/hooks';
import { collectiveSums, heat, MEASURES, outlier, type Measure } from '../breakdown';
import * as format from '../format';
import type { RankMetrics, StepMetrics } from '../types';
import { Card, Empty } from './basic';
import { useWidth } from './breakdown';
import { Scroll } from './scroll';

const showOf = (measure: Measure) => (measure === 'peak_memory_bytes' ? format.bytes : format.seconds);
const told = (measure: Measure) => MEASURES.find(([known]) => known === measure)![1];

// At most so much of the colour, that letters on it stay legible.
const tint = (share: number) =>
  ({ background: share > 0 ? `color-mix(in srgb, var(--heat) ${Math.round(42 * share)}%, transparent)` : '' });

export function RankTable({ report }: { report: StepMetrics }) {
  const rows = report.ranks;
  const measures = MEASURES.filter(([measure]) => rows.some((row) => row[measure] !== null));
  const slow = outlier(rows, 'step_seconds') ?? outlier(rows, 'backward_seconds');
  const all = new Map(measures.map(([measure]) => [measure, rows.map((row) => row[measure])]));
  return (
    <Card title="Ranks" aside={<span class="faint">report of step {format.count(report.step)}; the darker, the more of its column</span>}>
      {slow !== null && <p>Rank {slow.rank} takes {format.percent(slow.over)} longer than the mean of the others.</p>}
      <Scroll label="Ranks">
        <div class="tall" role="region" aria-label="Rows of the ranks" tabIndex={0}>
          <table class="list dense heat">
            <thead><tr><th scope="col">Rank</th>
              {measures.map(([measure, name]) => <th key={measure} scope="col" class="number">{name}</th>)}</tr></thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.rank}>
                  <th scope="row" class="nowrap">rank {row.rank}</th>
                  {measures.map(([measure]) => (
                    <td key={measure} class="number" style={tint(heat(row[measure], all.get(measure)!))}>
                      {showOf(measure)(row[measure])}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Scroll>
    </Card>
  );
}

const LEFT = 62, TOP = 4, BOTTOM = 34;

export function RankHistory({ reports }: { reports: StepMetrics[] }) {
  const [measure, setMeasure] = useState<Measure>('step_seconds');
  const [shown, setShown] = useState<{ step: number; row: RankMetrics } | null>(null);
  const { box, width } = useWidth<SVGSVGElement>(240);
  const ranks = [...new Set(reports.flatMap((report) => report.ranks.map((row) => row.rank)))].sort((a, b) => a - b);
  const row = Math.max(3, Math.min(22, 420 / ranks.length)); // pixels
  const column = (width - LEFT) / reports.length;
  const all = reports.flatMap((report) => report.ranks.map((one) => one[measure]));
  const known = all.filter((value) => value !== null);
  const place = new Map(ranks.map((rank, i) => [rank, i]));
  const every = Math.ceil(14 / row);
  const height = TOP + ranks.length * row + BOTTOM;
  const at = shown ?? { step: reports[reports.length - 1].step, row: reports[reports.length - 1].ranks[0] };
  return (
    <Card title="Ranks over the last reports" aside={(
      <label>of <select value={measure} onChange={(event) => setMeasure(event.currentTarget.value as Measure)}>
        {MEASURES.map(([one, name]) => <option key={one} value={one}>{name}</option>)}
      </select></label>
    )}>
      {known.length === 0 ? <Empty title="The reports do not say it" /> : (
        <>
          <svg ref={box} class="scatter" height={height} role="img"
            aria-label={`${told(measure)} of ${format.plural(ranks.length, 'rank')} in ${format.plural(reports.length, 'report')}: from ${
              showOf(measure)(Math.min(...known))} to ${showOf(measure)(Math.max(...known))}`}>
            {ranks.map((rank, i) => i % every === 0 && (
              <text key={rank} class="tick" x={LEFT - 8} y={TOP + i * row + row / 2 + 4} text-anchor="end">rank {rank}</text>
            ))}
            {reports.map((report, i) => (
              <g key={`${report.attempt}/${report.step}`}>
                {report.ranks.map((one) => one[measure] !== null && (
                  <rect key={one.rank} class="heat-cell" x={LEFT + i * column} y={TOP + place.get(one.rank)! * row}
                    width={Math.max(1, column - 1)} height={Math.max(1, row - (row > 6 ? 1 : 0))}
                    fill-opacity={0.08 + 0.92 * heat(one[measure], all)}
                    onPointerEnter={() => setShown({ step: report.step, row: one })} onPointerLeave={() => setShown(null)} />
                ))}
                {(i === 0 || i === reports.length - 1 || column > 60) && (
                  <text class="tick" x={LEFT + (i + 0.5) * column} y={TOP + ranks.length * row + 15} text-anchor="middle">
                    {format.count(report.step)}</text>
                )}
              </g>
            ))}
            <text class="tick" x={(LEFT + width) / 2} y={height - 4} text-anchor="middle">step</text>
          </svg>
          <p class="sub told">Rank {at.row.rank} in the report of step {format.count(at.step)}: {told(measure)}{' '}
            {showOf(measure)(at.row[measure])}; of all {showOf(measure)(Math.min(...known))} to {showOf(measure)(Math.max(...known))}</p>
        </>
      )}
    </Card>
  );
}

export function Collectives({ report }: { report: StepMetrics }) {
  const sums = collectiveSums(report.ranks);
  return (
    <Card title="Collectives" aside={<span class="faint">of a step, the mean of the ranks in it</span>}>
      {sums.length === 0 ? <Empty title="These ranks do not communicate" /> : (
        <Scroll label="Collectives">
          <table class="list dense">
            <thead><tr><th scope="col">Collective</th><th scope="col">Group</th><th scope="col" class="number">A step</th>
              <th scope="col" class="number">Takes</th><th scope="col" class="number">Exposed</th><th scope="col">Share</th>
              <th scope="col">Most exposed</th></tr></thead>
            <tbody>
              {sums.map((sum) => (
                <tr key={`${sum.collective} ${sum.group}`}>
                  <td class="nowrap">{format.words(sum.collective)}</td><td>{sum.group}</td>
                  <td class="number">{format.count(sum.count)}</td><td class="number">{format.seconds(sum.seconds)}</td>
                  <td class="number">{format.seconds(sum.exposed)}</td>
                  <td class="share" title={`${format.percent(sum.share)} of its time nothing was computed`}>
                    <span class="share-bar"><span style={{ width: `${100 * Math.min(1, sum.share)}%` }} /></span>{' '}
                    <span class="number">{format.percent(sum.share)}</span>
                  </td>
                  <td class="nowrap">rank {sum.mostExposed.rank}, {format.seconds(sum.mostExposed.seconds)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Card>
  );
}
