// Curves over steps, by uPlot, with marks of what happened at a step. The canvas has a text for those who do not see it: the
// latest value of every curve, and the marks.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import type { Mark } from '../curve';
import * as format from '../format';
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
  marks?: Mark[];
}

const HEIGHT = 190;
const GAP = 8;
const HALF_A_TICK = 24; // of the widest number below the axis: it must not be cut off at the right end
const BINARY = Array.from({ length: 50 }, (_, i) => 2 ** i);

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// `latest`: the marks and values are drawn as they are by then.
function optionsOf(props: Props, width: number, latest: { current: Props }): uPlot.Options {
  const grid = { stroke: colour('--line'), width: 1 };
  const axis = { stroke: colour('--text-faint'), grid, ticks: grid, font: '11px system-ui, sans-serif' };
  return {
    width,
    height: HEIGHT,
    padding: [GAP, HALF_A_TICK, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    scales: {
      x: { time: false },
      y: { range: (_plot, low, high) => rangeOf(low, high, props.fromZero ?? false) },
    },
    axes: [
      {
        ...axis, size: 28, space: 60,
        incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6],
      },
      {
        ...axis, size: 64, space: 34,
        values: (_plot, ticks) => ticks.map((value) => props.tick?.(value) ?? format.tick(props.show(value))),
        ...(props.binary ? { incrs: BINARY } : {}),
      },
    ],
    legend: { live: true },
    hooks: {
      init: [addTip],
      setCursor: [(plot) => showTip(plot, latest.current)],
      draw: [(plot) => drawMarks(plot, latest.current.marks ?? [])],
    },
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

function addTip(plot: uPlot): void {
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  plot.over.append(tip);
}

// Beside the cursor: the step, the values there, and what happened there.
function showTip(plot: uPlot, props: Props): void {
  const tip = plot.over.querySelector<HTMLElement>('.tip');
  const { idx, left = 0 } = plot.cursor;
  if (!tip) return;
  tip.hidden = idx === null || idx === undefined;
  if (idx === null || idx === undefined) return showLatest(plot);
  const step = props.steps[idx];
  const values = props.curves.filter((curve) => curve.values[idx] !== null && curve.values[idx] !== undefined)
    .map((curve) => `${curve.label} ${props.show(curve.values[idx])}`);
  const marks = (props.marks ?? []).filter((mark) => mark.step === step).map((mark) => mark.text);
  tip.textContent = [`step ${format.count(step)}`, ...values, ...marks].join('\n');
  const width = plot.over.clientWidth;
  tip.style.left = left < width / 2 ? `${left + 12}px` : 'auto';
  tip.style.right = left < width / 2 ? 'auto' : `${width - left + 12}px`;
}

// Restarts are dashed lines over the whole height, checkpoints triangles at the axis.
function drawMarks(plot: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = plot;
  const pixel = uPlot.pxRatio;
  const bottom = bbox.top + bbox.height;
  ctx.save();
  ctx.lineWidth = 1.5 * pixel;
  for (const mark of marks) {
    const x = Math.max(bbox.left, plot.valToPos(mark.step, 'x', true));
    if (x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = colour(mark.kind === 'restart' ? '--warn' : '--good');
    ctx.beginPath();
    if (mark.kind === 'restart') {
      ctx.setLineDash([4 * pixel, 3 * pixel]);
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bottom);
      ctx.stroke();
    } else {
      ctx.moveTo(x, bottom - 9 * pixel);
      ctx.lineTo(x - 5 * pixel, bottom);
      ctx.lineTo(x + 5 * pixel, bottom);
      ctx.fill();
    }
  }
  ctx.restore();
}

function rangeOf(low: number | null, high: number | null, fromZero: boolean): [number, number] {
  if (low === null || high === null) return [0, 1];
  const bottom = fromZero ? 0 : low;
  const margin = (high - bottom) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [fromZero ? 0 : bottom - margin, high + margin];
}

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const now = useRef(props);
  now.current = props;
  const plot = useRef<uPlot | null>(null);
  const data = [props.steps, ...props.curves.map((curve) => curve.values)] as uPlot.AlignedData;
  const shape = props.curves.map((curve) => curve.label).join('|');
  useEffect(() => {
    const element = box.current!;
    plot.current = new uPlot(optionsOf(props, element.clientWidth, now), data, element);
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
    if (plot.current) showTip(plot.current, props);
  }, [props.steps, ...props.curves.map((curve) => curve.values), props.marks]);
  const latest = props.curves.map((curve) => `${curve.label} ${props.show(lastOf(curve.values))}`).join(', ');
  const marks = props.marks ?? [];
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <div ref={box} class="chart-box" role="img"
        aria-label={`${props.title} over steps; latest: ${latest}${marksText(marks)}`} />
      {marks.length > 0 && <MarksLegend marks={marks} />}
    </figure>
  );
}

function marksText(marks: Mark[]): string {
  return marks.map((mark) => `; ${mark.kind === 'restart' ? mark.text : `${mark.text} at step ${mark.step}`}`).join('');
}

const MARKS = { restart: 'restart from that step', checkpoint: 'committed checkpoint' };

function MarksLegend({ marks }: { marks: Mark[] }) {
  const kinds = (['restart', 'checkpoint'] as const).filter((kind) => marks.some((mark) => mark.kind === kind));
  return <ul class="marks">{kinds.map((kind) => <li key={kind}><span class={`mark mark-${kind}`} />{MARKS[kind]}</li>)}</ul>;
}

function lastOf(values: (number | null)[]): number | null {
  for (let i = values.length - 1; i >= 0; --i) {
    if (values[i] !== null) return values[i];
  }
  return null;
}
