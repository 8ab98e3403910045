// Curves over steps, by uPlot. The canvas has a text for those who do not see it: the latest value of every curve.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

export interface Curve {
  label: string;
  colour: string; // name of a custom property: "--curve-1"
  values: (number | null)[];
  dashed?: boolean;
  dots?: boolean; // for few points
}

interface Props {
  title: string;
  steps: (number | null)[];
  curves: Curve[];
  show: (value: number | null) => string;
  tick?: (value: number) => string; // at the axis; `show` if there is none
  binary?: boolean; // ticks at powers of two
  theme: string;
  fromZero?: boolean;
}

const HEIGHT = 190;
const GAP = 8;
const BINARY = Array.from({ length: 50 }, (_, i) => 2 ** i);

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function optionsOf(props: Props, width: number): uPlot.Options {
  const grid = { stroke: colour('--line'), width: 1 };
  const axis = { stroke: colour('--text-faint'), grid, ticks: grid, font: '11px system-ui, sans-serif' };
  return {
    width,
    height: HEIGHT,
    padding: [GAP, GAP, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    scales: {
      x: { time: false },
      y: { range: (_plot, low, high) => rangeOf(low, high, props.fromZero ?? false) },
    },
    axes: [
      { ...axis, size: 28, space: 60, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6] },
      {
        ...axis, size: 64, space: 34, values: (_plot, ticks) => ticks.map((tick) => (props.tick ?? props.show)(tick)),
        ...(props.binary ? { incrs: BINARY } : {}),
      },
    ],
    legend: { live: true },
    hooks: { setCursor: [(plot) => plot.cursor.idx === null && showLatest(plot)] },
    series: [
      { label: 'step', value: (_plot, value) => (value === null ? '–' : String(value)) },
      ...props.curves.map((curve) => ({
        label: curve.label,
        stroke: colour(curve.colour),
        width: 1.5,
        dash: curve.dashed ? [5, 4] : undefined,
        spanGaps: true,
        points: { show: curve.dots ?? false, size: 5 },
        value: (_plot: uPlot, value: number | null) => props.show(value),
      })),
    ],
  };
}

// Without a cursor the legend says the latest values: of each curve its own last one.
function showLatest(plot: uPlot): void {
  const last = plot.data[0].length - 1;
  if (last < 0) return;
  const idxs = plot.data.map((values) => {
    let i = last;
    while (i > 0 && (values[i] === null || values[i] === undefined)) --i;
    return i;
  });
  plot.setLegend({ idx: last, idxs }, false);
}

function rangeOf(low: number | null, high: number | null, fromZero: boolean): [number, number] {
  if (low === null || high === null) return [0, 1];
  const bottom = fromZero ? 0 : low;
  const margin = (high - bottom) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [fromZero ? 0 : bottom - margin, high + margin];
}

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data = [props.steps, ...props.curves.map((curve) => curve.values)] as uPlot.AlignedData;
  const shape = props.curves.map((curve) => curve.label).join('|');
  useEffect(() => {
    const element = box.current!;
    plot.current = new uPlot(optionsOf(props, element.clientWidth), data, element);
    showLatest(plot.current);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, props.theme]);
  useEffect(() => {
    plot.current?.setData(data);
    if (plot.current && plot.current.cursor.idx === null) showLatest(plot.current);
  }, [props.steps, ...props.curves.map((curve) => curve.values)]);
  const latest = props.curves.map((curve) => `${curve.label} ${props.show(lastOf(curve.values))}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <div ref={box} class="chart-box" role="img" aria-label={`${props.title} over steps; latest: ${latest}`} />
    </figure>
  );
}

function lastOf(values: (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; --i) {
    if (values[i] !== null) return values[i];
  }
  return null;
}
