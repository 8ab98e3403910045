// The time of steps in columns over the run, divided by what the first rank did.
import { useEffect, useRef, useState } from 'preact/hooks';
import { columns, PHASES, type Column, type Phase } from '../breakdown';
import { ticks } from '../compare';
import * as format from '../format';
import type { StepMetrics } from '../types';
import { Card, Empty } from './basic';

const HEIGHT = 230;
const LEFT = 70, RIGHT = 8, TOP = 10, BOTTOM = 34;
const MOST_COLUMNS = 60;
const STACK: Phase[] = [...PHASES, 'rest_seconds'];
const COLOURS: Record<Phase, number> = {
  data_seconds: 10, forward_seconds: 1, backward_seconds: 5, optimizer_seconds: 7, rest_seconds: 13,
};

const nameOf = (phase: Phase) => phase.replace('_seconds', '');
const stepsOf = ({ first, last }: Column) =>
  (first === last ? `step ${format.count(first)}` : `steps ${format.count(first)}–${format.count(last)}`);

function textOf(column: Column): string {
  const phases = STACK.filter((phase) => column.phases[phase] > 0)
    .map((phase) => `${nameOf(phase)} ${format.seconds(column.phases[phase])}`);
  return `${stepsOf(column)}: ${format.seconds(column.step)}: ${phases.join(', ')}; exposed communication ${
    format.seconds(column.exposed)} (${format.percent(column.step > 0 ? column.exposed / column.step : 0)})`;
}

export function useWidth<T extends Element>(least: number) {
  const box = useRef<T>(null);
  const [width, setWidth] = useState(720);
  useEffect(() => {
    if (box.current === null) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(least, entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return { box, width };
}

export function Breakdown({ points }: { points: StepMetrics[] }) {
  const list = columns(points, MOST_COLUMNS);
  if (list.length === 0) {
    return (
      <Card title="Where the time of a step goes">
        <Empty title="Nothing is known of it yet">
          {points.length === 0 ? 'Columns are drawn as soon as the job reports steps.' : 'The reports of this job do not say it.'}
        </Empty>
      </Card>
    );
  }
  return (
    <Card title="Where the time of a step goes" aside={<span class="faint">rank 0, as measured</span>}><Columns list={list} /></Card>
  );
}

function Columns({ list }: { list: Column[] }) {
  const { box, width } = useWidth<SVGSVGElement>(280);
  const [shown, setShown] = useState<number | null>(null);
  const most = Math.max(...list.map((column) => column.step)) * 1.04 || 1;
  const y = (seconds: number) => HEIGHT - BOTTOM - (seconds / most) * (HEIGHT - BOTTOM - TOP);
  const room = (width - LEFT - RIGHT) / list.length;
  const bar = Math.max(1, Math.min(40, room - (room > 6 ? 2 : 0.5)));
  const told = list[shown ?? list.length - 1] ?? list[list.length - 1];
  const every = Math.ceil(list.length / (width < 500 ? 4 : 10));
  return (
    <>
      <svg ref={box} class="scatter" height={HEIGHT} role="img"
        aria-label={`Time of ${format.plural(list.length, 'column')} of steps. The latest, ${textOf(list[list.length - 1])}`}>
        {ticks(0, most, 5).map((value) => (
          <g key={value}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} />
            <text class="tick" x={LEFT - 8} y={y(value) + 4} text-anchor="end">{format.tick(format.seconds(value))}</text>
          </g>
        ))}
        {list.map((column, i) => {
          const x = LEFT + i * room + (room - bar) / 2;
          let sum = 0;
          return (
            <g key={column.first} class={shown === i ? 'column shown' : 'column'} onPointerEnter={() => setShown(i)}
              onPointerLeave={() => setShown(null)}>
              <rect x={LEFT + i * room} y={TOP} width={room} height={HEIGHT - BOTTOM - TOP} class="column-room" />
              {STACK.map((phase) => {
                const from = y(sum);
                sum += column.phases[phase];
                const height = Math.max(0, from - y(sum));
                return <rect key={phase} x={x} y={y(sum)} width={bar} height={height} class={`fill-${COLOURS[phase]}`} />;
              })}
              <rect x={x + bar * 0.3} y={y(column.exposed)} width={bar * 0.4} height={y(0) - y(column.exposed)} class="fill-exposed" />
              {i % every === 0 && (
                <text class="tick" x={x + bar / 2} y={HEIGHT - BOTTOM + 16} text-anchor="middle">{format.count(column.last)}</text>
              )}
            </g>
          );
        })}
        <text class="tick" x={(LEFT + width - RIGHT) / 2} y={HEIGHT - 3} text-anchor="middle">step</text>
      </svg>
      <ul class="marks">
        {STACK.map((phase) => <li key={phase}><span class={`swatch colour-${COLOURS[phase]}`} />{nameOf(phase)}</li>)}
        <li><span class="swatch swatch-exposed" />exposed communication: of all these, while nothing was computed</li>
      </ul>
      <p class="sub told">{textOf(told)}</p>
    </>
  );
}
