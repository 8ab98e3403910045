// Memory against step time: every recipe a point, and a line through those that no other beats in both.
import { useEffect, useRef, useState } from 'preact/hooks';
import { paretoFront, ticks } from '../compare';
import * as format from '../format';
import { recipeText } from '../recipe';
import type { RankedRecipe } from '../types';
import { Card } from './basic';

const HEIGHT = 320;
const LEFT = 78, RIGHT = 16, TOP = 14, BOTTOM = 44;

interface Axis {
  low: number;
  high: number;
  place: (value: number) => number;
}

// With a margin, so that no point lies on the frame; never below zero.
function axisOf(values: number[], from: number, to: number): Axis {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const margin = (most - least) * 0.07 || most * 0.1 || 1;
  const [low, high] = [Math.max(0, least - margin), most + margin];
  return { low, high, place: (value) => from + ((value - low) / (high - low)) * (to - from) };
}

export function Scatter({ ranked, a, b, pick }: {
  ranked: RankedRecipe[]; a: number; b: number; pick?: (rank: number) => void;
}) {
  const [shown, setShown] = useState<number | null>(null); // a rank: the ranking may change meanwhile
  const [width, setWidth] = useState(720); // in pixels, so that letters keep their size
  const box = useRef<SVGSVGElement>(null);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(280, entry.contentRect.width)));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const front = paretoFront(ranked);
  const x = axisOf(ranked.map((r) => r.peak_memory_bytes), LEFT, width - RIGHT);
  const y = axisOf(ranked.map((r) => r.step_time_seconds), HEIGHT - BOTTOM, TOP);
  const onFront = new Set(front.map((r) => r.rank));
  const line = front.map((r) => `${x.place(r.peak_memory_bytes)},${y.place(r.step_time_seconds)}`).join(' ');
  const summary = front.map((r) => `rank ${r.rank}: ${format.bytes(r.peak_memory_bytes)}, ${format.seconds(r.step_time_seconds)}`);
  const told = ranked.find((r) => r.rank === shown) ?? ranked.find((r) => r.rank === b) ?? ranked[0];
  return (
    <Card title="Memory against step time" aside={pick && <span class="faint">a click compares with rank {a}</span>}>
      <svg ref={box} class="scatter" height={HEIGHT} role="img"
        aria-label={`Peak memory against step time of ${format.plural(ranked.length, 'recipe')}. Pareto front: ${summary.join('; ')}`}>
        {ticks(y.low, y.high, 6).map((value) => (
          <g key={value}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y.place(value)} y2={y.place(value)} />
            <text class="tick" x={LEFT - 8} y={y.place(value) + 4} text-anchor="end">{format.tick(format.seconds(value))}</text>
          </g>
        ))}
        {ticks(x.low, x.high, width < 500 ? 3 : 7, 2).map((value) => (
          <g key={value}>
            <line class="grid" y1={TOP} y2={HEIGHT - BOTTOM} x1={x.place(value)} x2={x.place(value)} />
            <text class="tick" y={HEIGHT - BOTTOM + 17} x={x.place(value)} text-anchor="middle">
              {format.tick(format.bytes(value))}</text>
          </g>
        ))}
        <text class="tick" x={(LEFT + width - RIGHT) / 2} y={HEIGHT - 6} text-anchor="middle">peak memory of the fullest device</text>
        <text class="tick" transform={`translate(13 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`} text-anchor="middle">step time</text>
        <polyline class="front" points={line} />
        {[...ranked].reverse().map((r) => (
          <circle key={r.rank} data-rank={r.rank} cx={x.place(r.peak_memory_bytes)} cy={y.place(r.step_time_seconds)}
            r={r.rank === a || r.rank === b ? 7 : 5}
            class={`point${r.estimated ? ' estimated' : ''}${onFront.has(r.rank) ? ' on-front' : ''}${
              r.rank === a ? ' is-a' : r.rank === b ? ' is-b' : ''}`}
            onPointerEnter={() => setShown(r.rank)} onPointerLeave={() => setShown(null)} onClick={() => pick?.(r.rank)} />
        ))}
      </svg>
      <ul class="marks">
        <li><svg width="22" height="12" aria-hidden="true"><line class="front" x1="0" x2="22" y1="6" y2="6" />
          <circle class="point on-front" cx="11" cy="6" r="4.5" /></svg>Pareto front: no other is both faster and smaller</li>
        <li><svg width="12" height="12" aria-hidden="true"><circle class="point is-a" cx="6" cy="6" r="5" /></svg>rank {a}</li>
        <li><svg width="12" height="12" aria-hidden="true"><circle class="point is-b" cx="6" cy="6" r="5" /></svg>rank {b}</li>
        {ranked.some((r) => r.estimated) && (
          <li><svg width="12" height="12" aria-hidden="true"><circle class="point estimated" cx="6" cy="6" r="4.5" /></svg>
            estimated, not simulated</li>
        )}
      </ul>
      <p class="sub told">Rank {told.rank}: {recipeText(told.recipe)}: {format.seconds(told.step_time_seconds)},{' '}
        {format.bytes(told.peak_memory_bytes)}</p>
    </Card>
  );
}
