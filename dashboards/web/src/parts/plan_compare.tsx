// Two recipes of a plan side by side: the keys in which they differ, and what that costs.
import { keyDifferences, partDifferences } from '../compare';
import * as format from '../format';
import { parallelismText } from '../recipe';
import type { RankedRecipe } from '../types';
import { Card } from './basic';
import { Scroll } from './scroll';

interface Props {
  ranked: RankedRecipe[];
  a: number;
  b: number;
  pick: (a: number, b: number) => void;
}

export function PlanCompare({ ranked, a, b, pick }: Props) {
  const one = ranked.find((r) => r.rank === a) ?? ranked[0];
  const other = ranked.find((r) => r.rank === b) ?? ranked[1];
  const choose = (label: string, value: number, set: (rank: number) => void) => (
    <select aria-label={label} value={value} onChange={(event) => set(Number(event.currentTarget.value))}>
      {ranked.map((r) => <option key={r.rank} value={r.rank}>rank {r.rank}: {parallelismText(r.recipe)}</option>)}
    </select>
  );
  return (
    <Card title="Compare two" class="compare" aside={
      <span class="pickers">{choose('First recipe', one.rank, (rank) => pick(rank, other.rank))} with{' '}
        {choose('Second recipe', other.rank, (rank) => pick(one.rank, rank))}</span>}>
      {one.rank === other.rank ? <p class="faint">They are the same.</p> : <Differences one={one} other={other} />}
    </Card>
  );
}

function Differences({ one, other }: { one: RankedRecipe; other: RankedRecipe }) {
  const keys = keyDifferences(one.recipe, other.recipe);
  return (
    <Scroll label="Compare two">
      <table class="list dense">
        <thead>
          <tr><th scope="col"><span class="hidden">What</span></th><th scope="col" class="number">Rank {one.rank}</th>
            <th scope="col" class="number">Rank {other.rank}</th><th scope="col" class="number">Difference</th></tr>
        </thead>
        <tbody>
          <Group title={keys.length ? 'Keys that differ' : 'No key differs'} />
          {keys.map((key) => (
            <tr key={key.key}><th scope="row"><code>{key.key}</code></th><td class="number">{key.a ?? '–'}</td>
              <td class="number">{key.b ?? '–'}</td><td /></tr>
          ))}
          <Group title="Time" />
          <Values what="step time" a={one.step_time_seconds} b={other.step_time_seconds} show={format.seconds} strong />
          {partDifferences(one.breakdown, other.breakdown).map((part) => (
            <Values key={part.key} what={format.words(part.key.replace(/_seconds$/, ''))} a={part.a} b={part.b} show={format.seconds} />
          ))}
          <Values what="tokens/s/device" a={one.tokens_per_second_per_gpu} b={other.tokens_per_second_per_gpu} show={format.count} />
          {one.mfu > 0 && other.mfu > 0 && <Values what="MFU" a={one.mfu} b={other.mfu} show={format.percent} />}
          <Group title="Memory" />
          <Values what="peak" a={one.peak_memory_bytes} b={other.peak_memory_bytes} show={format.bytes} strong />
          <Values what="headroom" a={one.headroom_bytes} b={other.headroom_bytes} show={format.bytes} />
          {partDifferences(one.memory, other.memory).map((part) => (
            <Values key={part.key} what={format.words(part.key)} a={part.a} b={part.b} show={format.bytes} />
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Group({ title }: { title: string }) {
  return <tr class="group"><th scope="rowgroup" colSpan={4}>{title}</th></tr>;
}

function Values({ what, a, b, show, strong = false }: {
  what: string; a: number; b: number; show: (value: number) => string; strong?: boolean;
}) {
  const by = b - a;
  const text = by === 0 ? '–' : `${by > 0 ? '+' : '−'}${show(Math.abs(by))}${a > 0 && strong ? ` (${format.signedPercent(by / a)})` : ''}`;
  return (
    <tr class={strong ? 'strong' : ''}><th scope="row">{what}</th><td class="number">{show(a)}</td><td class="number">{show(b)}</td>
      <td class="number">{text}</td></tr>
  );
}
