// Curves over steps or time, by uPlot, with marks of what happened. Dragging zooms all charts of a page, a double click shows all
// again. The canvas has a text for those who do not see it: the latest value of every curve, and the marks.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import type { Axis, Mark } from '../curve';
import * as format from '../format';
import 'uplot/dist/uPlot.min.css';

export interface Curve {
  label: string;
  colour: string; // name of a custom property: "--curve-1"
  values: (number | null)[];
  dashed?: boolean;
  dots?: boolean; // for few points
  faint?: boolean; // behind the others, and without a line of its own in tips
}

export type Zoom = [number, number] | null; // null: all

interface Props {
  title: string;
  x: number[]; // steps or seconds, ascending
  axis: Axis;
  curves: Curve[];
  show: (value: number | null) => string;
  tick?: (value: number) => string; // at the axis; `show` if there is none
  binary?: boolean; // ticks at powers of two
  theme: string;
  fromZero?: boolean;
  logarithmic?: boolean;
  marks?: (Mark & { place: number })[];
  zoom: Zoom;
  onZoom: (zoom: Zoom) => void;
}

const HEIGHT = 190;
const GAP = 8;
const HALF_A_TICK = 24; // of the widest number below the axis: it must not be cut off at the right end
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];
const MINUTE = 60, HOUR = 3600, DAY = 86400;
const SECONDS = [
  1, 2, 5, 10, 20, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 5 * HOUR, 12 * HOUR,
  DAY, 2 * DAY, 7 * DAY, 14 * DAY,
];
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
    cursor: {
      y: false, points: { size: 6 }, drag: { x: true, y: false, setScale: false, dist: 5 },
      bind: {
        dblclick: () => () => {
          latest.current.onZoom(null);
          return null;
        },
      },
    },
    scales: {
      x: { time: false, auto: false },
      y: props.logarithmic
        ? { distr: 3, log: 10, range: (_plot, low, high) => (low > 0 && high > 0 ? [low / 1.1, high * 1.1] : [1, 10]) }
        : { range: (_plot, low, high) => rangeOf(low, high, props.fromZero ?? false) },
    },
    axes: [
      {
        ...axis, size: 28, space: 60, incrs: props.axis === 'step' ? STEPS : SECONDS,
        ...(props.axis === 'time' ? { values: (_plot, ticks) => ticks.map((value) => format.duration(value)) } : {}),
      },
      {
        ...axis, size: 64, space: 34,
        values: (_plot, ticks) => ticks.map(
          (value) => (value === null ? '' : props.tick?.(value) ?? format.tick(props.show(value)))),
        ...(props.binary ? { incrs: BINARY } : {}),
      },
    ],
    legend: { live: true },
    hooks: {
      init: [addTip],
      setCursor: [(plot) => showTip(plot, latest.current)],
      draw: [(plot) => drawMarks(plot, latest.current.marks ?? [])],
      setSelect: [(plot) => zoomTo(plot, latest.current)],
    },
    series: [
      { label: props.axis, value: (_plot, value) => (value === null ? '–' : placeText(value, props.axis)) },
      ...props.curves.map((curve) => ({
        label: curve.label,
        stroke: curve.faint ? `${colour(curve.colour)}4d` : colour(curve.colour),
        width: curve.faint ? 1 : 1.5,
        dash: curve.dashed ? [5, 4] : undefined,
        spanGaps: true,
        points: { show: curve.dots ?? false, size: 5 },
        value: (_plot: uPlot, value: number | null) => props.show(value),
      })),
    ],
  };
}

function placeText(place: number, axis: Axis): string {
  return axis === 'step' ? format.count(place) : format.duration(place);
}

// What was dragged over becomes all that is shown.
function zoomTo(plot: uPlot, props: Props): void {
  const { left, width } = plot.select;
  if (width <= 0) return;
  props.onZoom([plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')]);
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

function rangeOfX(x: number[], zoom: Zoom): { min: number; max: number } {
  const [min, max] = zoom ?? [x[0] ?? 0, x[x.length - 1] ?? 1];
  return max > min ? { min, max } : { min: min - 0.5, max: min + 0.5 };
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
  const place = props.x[idx];
  const values = props.curves.filter((curve) => !curve.faint && curve.values[idx] !== null && curve.values[idx] !== undefined)
    .map((curve) => `${curve.label} ${props.show(curve.values[idx])}`);
  const marks = (props.marks ?? []).filter((mark) => mark.place === place).map((mark) => mark.text);
  tip.textContent = [`${props.axis} ${placeText(place, props.axis)}`, ...values, ...marks].join('\n');
  const width = plot.over.clientWidth;
  tip.style.left = left < width / 2 ? `${left + 12}px` : 'auto';
  tip.style.right = left < width / 2 ? 'auto' : `${width - left + 12}px`;
}

// Restarts are dashed lines over the whole height, checkpoints triangles at the axis.
function drawMarks(plot: uPlot, marks: { kind: Mark['kind']; place: number }[]): void {
  const { ctx, bbox } = plot;
  const pixel = uPlot.pxRatio;
  const bottom = bbox.top + bbox.height;
  ctx.save();
  ctx.lineWidth = 1.5 * pixel;
  for (const mark of marks) {
    const exact = plot.valToPos(mark.place, 'x', true);
    const x = mark.place <= plot.data[0][0] ? Math.max(bbox.left, exact) : exact;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
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
  const data = [props.x, ...props.curves.map((curve) => curve.values)] as uPlot.AlignedData;
  const shape = [props.axis, props.logarithmic, ...props.curves.map((curve) => curve.label)].join('|');
  useEffect(() => {
    const element = box.current!;
    plot.current = new uPlot(optionsOf(props, element.clientWidth, now), data, element);
    plot.current.setScale('x', rangeOfX(props.x, props.zoom));
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
    if (!plot.current) return;
    plot.current.setData(data, false);
    plot.current.setScale('x', rangeOfX(props.x, props.zoom));
    showTip(plot.current, props);
  }, [props.x, ...props.curves.map((curve) => curve.values), props.marks, props.zoom]);
  const latest = props.curves.filter((curve) => !curve.faint).map((curve) => `${curve.label} ${props.show(lastOf(curve.values))}`).join(', ');
  const marks = props.marks ?? [];
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <div ref={box} class="chart-box" role="img"
        aria-label={`${props.title} over ${props.axis === 'step' ? 'steps' : 'time'}; latest: ${latest}${marksText(marks)}`} />
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
