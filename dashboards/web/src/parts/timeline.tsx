// Traced ranks above each other on one axis of time, a row for each stream. Dragging over it shows a part; so do the buttons.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ticks } from '../compare';
import * as format from '../format';
import { moved, sliceAt, zoomed, type Slice, type Span, type TracedRank, type Track } from '../trace';
import { useWidth } from './breakdown';

interface Section {
  title: string;
  rank: TracedRank;
}

interface Lane {
  track: Track;
  depth: number; // of the slices that this row shows; deeper ones are left to ui.perfetto.dev
  y: number;
}

interface Layout {
  titles: { text: string; y: number }[];
  lanes: Lane[];
  height: number;
}

const LEFT = 132, AXIS = 22, TITLE = 22, ROW = 19, DEPTHS = 2;

const KINDS: [string, string, string][] = [
  ['forward', 'forward', '--p1'], ['backward', 'backward', '--p5'], ['recompute', 'recomputation', '--p8'],
  ['optimizer', 'optimizer', '--p7'], ['communication', 'communication', '--p3'],
];
const colourOf = (kind: string) => KINDS.find(([known]) => known === kind)?.[2] ?? '--p12';

function layoutOf(sections: Section[]): Layout {
  const layout: Layout = { titles: [], lanes: [], height: AXIS };
  for (const section of sections) {
    layout.titles.push({ text: `${section.title}: ${format.seconds(section.rank.length / 1e6)}`, y: layout.height });
    layout.height += TITLE;
    for (const track of section.rank.tracks) {
      const depths = Math.min(DEPTHS, 1 + track.slices.reduce((most, slice) => Math.max(most, slice.depth), 0));
      for (let depth = 0; depth < depths; ++depth, layout.height += ROW) layout.lanes.push({ track, depth, y: layout.height });
    }
    layout.height += 6;
  }
  return layout;
}

// What is narrower than a pixel is drawn together with its neighbours of the same colour.
function drawLane(context: CanvasRenderingContext2D, lane: Lane, span: Span, scale: number, colour: (name: string) => string,
  width: number): void {
  let drawn = -Infinity;
  let before = '';
  for (const slice of lane.track.slices) {
    if (slice.start > span[1]) break;
    if (slice.depth !== lane.depth || slice.end < span[0]) continue;
    const from = LEFT + Math.max(0, (slice.start - span[0]) * scale);
    const to = Math.min(width, Math.max(from + 0.6, LEFT + (slice.end - span[0]) * scale));
    const fill = colour(colourOf(slice.kind));
    if (to - drawn < 0.5 && fill === before) continue;
    context.fillStyle = fill;
    context.fillRect(from, lane.y + 1, to - from > 3 ? to - from - 0.5 : to - from, ROW - 3);
    drawn = to;
    before = fill;
    if (to - from < 34) continue;
    context.save();
    context.beginPath();
    context.rect(from, lane.y, to - from - 3, ROW);
    context.clip();
    context.fillStyle = colour('--surface');
    context.fillText(slice.name, from + 4, lane.y + 13);
    context.restore();
  }
}

function draw(canvas: HTMLCanvasElement, layout: Layout, span: Span, width: number, selection: Span | null): void {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(layout.height * ratio);
  const context = canvas.getContext('2d')!;
  const style = getComputedStyle(canvas);
  const colours = new Map<string, string>();
  const colour = (name: string) => {
    if (!colours.has(name)) colours.set(name, style.getPropertyValue(name).trim());
    return colours.get(name)!;
  };
  const scale = (width - LEFT) / (span[1] - span[0]);
  context.scale(ratio, ratio);
  context.font = `11px ${style.fontFamily}`;
  for (const at of ticks(span[0], span[1], width < 600 ? 4 : 9)) {
    const x = LEFT + (at - span[0]) * scale;
    context.fillStyle = colour('--line');
    context.fillRect(x, AXIS - 4, 1, layout.height - AXIS);
    context.fillStyle = colour('--text-faint');
    context.textAlign = x > width - 30 ? 'right' : x < LEFT + 20 ? 'left' : 'center';
    context.fillText(format.tick(format.seconds(at / 1e6)), x, 12);
  }
  context.textAlign = 'left';
  for (const title of layout.titles) {
    context.fillStyle = colour('--text');
    context.font = `600 12px ${style.fontFamily}`;
    context.fillText(title.text, 0, title.y + 15);
  }
  context.font = `11px ${style.fontFamily}`;
  for (const lane of layout.lanes) {
    if (lane.depth === 0) {
      context.fillStyle = colour('--text-soft');
      context.fillText(lane.track.name, 0, lane.y + 13, LEFT - 8);
    }
    drawLane(context, lane, span, scale, colour, width);
  }
  if (selection === null) return;
  context.fillStyle = colour('--accent');
  context.globalAlpha = 0.18;
  context.fillRect(Math.min(...selection), AXIS, Math.abs(selection[1] - selection[0]), layout.height - AXIS);
  context.globalAlpha = 1;
}

// "compute: aten::mm, 1.20 ms from 14.0 ms on; backward, layers.3.mlp, microbatch 0; float32[8,8] -> float32[8]".
export function sliceText(track: Track, slice: Slice): string {
  const { phase, module, microbatch, shapes, bound } = slice.args;
  const place = [phase, module, microbatch !== undefined && `microbatch ${microbatch}`].filter(Boolean).join(', ');
  return [
    `${track.name}: ${slice.name}, ${format.seconds((slice.end - slice.start) / 1e6)} from ${format.seconds(slice.start / 1e6)} on`,
    place, shapes, bound && `bound by ${bound}`,
  ].filter(Boolean).join('; ');
}

export function Timeline({ rows, theme }: { rows: Section[]; theme: string }) {
  const { box, width } = useWidth<HTMLDivElement>(320);
  const canvas = useRef<HTMLCanvasElement>(null);
  const whole = Math.max(...rows.map((row) => row.rank.length)) || 1;
  const [span, setSpan] = useState<Span>([0, whole]);
  const [told, setTold] = useState('');
  const [selection, setSelection] = useState<Span | null>(null); // pixels, while the reader drags
  const layout = useMemo(() => layoutOf(rows), [rows.map((row) => row.title).join(), whole]);
  useEffect(() => setSpan([0, whole]), [whole]);
  useEffect(() => draw(canvas.current!, layout, span, width, selection), [layout, span, width, theme, selection]);
  const timeAt = (x: number) => span[0] + ((x - LEFT) / (width - LEFT)) * (span[1] - span[0]);
  const place = (event: PointerEvent): [number, number] => {
    const frame = canvas.current!.getBoundingClientRect();
    return [Math.max(LEFT, event.clientX - frame.left), event.clientY - frame.top];
  };
  const onMove = (event: PointerEvent) => {
    const [x, y] = place(event);
    if (selection !== null) return setSelection([selection[0], x]);
    const lane = layout.lanes.find((one) => y >= one.y && y < one.y + ROW);
    const slice = lane ? sliceAt(lane.track, timeAt(x), lane.depth) : null;
    setTold(lane && slice ? sliceText(lane.track, slice) : '');
  };
  const onUp = () => {
    if (selection === null) return;
    const [from, to] = [Math.min(...selection), Math.max(...selection)];
    setSelection(null);
    if (to - from > 4) setSpan([timeAt(from), Math.min(whole, timeAt(to))]);
  };
  const middle = (span[0] + span[1]) / 2;
  const all = span[0] === 0 && span[1] === whole;
  return (
    <div class="timeline-box" ref={box}>
      <div class="controls">
        <button type="button" onClick={() => setSpan(zoomed(span, whole, middle, 0.5))}>Zoom in</button>
        <button type="button" disabled={all} onClick={() => setSpan(zoomed(span, whole, middle, 2))}>Zoom out</button>
        <button type="button" disabled={span[0] <= 0} onClick={() => setSpan(moved(span, whole, -0.5))}>← Earlier</button>
        <button type="button" disabled={span[1] >= whole} onClick={() => setSpan(moved(span, whole, 0.5))}>Later →</button>
        <button type="button" disabled={all} onClick={() => setSpan([0, whole])}>All</button>
        <span class="faint">or drag over a part; a double click shows all</span>
      </div>
      <canvas ref={canvas} role="img" style={{ height: `${layout.height}px`, width: `${width}px` }}
        aria-label={`Streams over the time of a step: ${layout.titles.map((title) => title.text).join('; ')}`}
        onPointerMove={onMove} onPointerLeave={() => setTold('')} onPointerUp={onUp} onDblClick={() => setSpan([0, whole])}
        onPointerDown={(event) => {
          canvas.current!.setPointerCapture(event.pointerId);
          const [x] = place(event);
          setSelection([x, x]);
        }} />
      <p class="sub told" aria-live="off">{told || 'Point at a slice to see what it is.'}</p>
      <ul class="marks">
        {KINDS.map(([kind, name, colour]) => <li key={kind}><span class="swatch" style={{ background: `var(${colour})` }} />{name}</li>)}
      </ul>
    </div>
  );
}
