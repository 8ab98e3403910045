// Where the time of a step and the memory go, of the best recipes beside each other and on one scale.
import { parts } from '../curve';
import * as format from '../format';
import { parallelismText } from '../recipe';
import type { RankedRecipe } from '../types';
import { Card, colourOf } from './basic';

const SHOWN = 10;

export function PlanBars({ ranked }: { ranked: RankedRecipe[] }) {
  const list = ranked.slice(0, SHOWN);
  return (
    <div class="columns">
      <Bars title="Where the time goes" list={list} show={format.seconds} parts={(r) => r.breakdown} whole={(r) => r.step_time_seconds} />
      <Bars title="Where the memory goes" list={list} show={format.bytes} parts={(r) => r.memory} whole={(r) => r.peak_memory_bytes} />
    </div>
  );
}

function Bars({ title, list, show, parts: partsOf, whole }: {
  title: string; list: RankedRecipe[]; show: (value: number) => string;
  parts: (ranked: RankedRecipe) => object | null; whole: (ranked: RankedRecipe) => number;
}) {
  const sums = list.map((r) => parts(partsOf(r) ?? {}).reduce((sum, part) => sum + part.value, 0));
  const largest = Math.max(...sums, 0);
  const keys = [...new Set(list.flatMap((r) => parts(partsOf(r) ?? {}).filter((p) => p.share >= 0.01).map((p) => p.key)))];
  return (
    <Card title={title} aside={<span class="faint">the first {list.length}, on one scale</span>}>
      <ol class="bars">
        {list.map((r, i) => {
          const own = parts(partsOf(r) ?? {});
          const text = own.map((p) => `${format.words(p.key.replace(/_seconds$/, ''))} ${show(p.value)}`).join(', ');
          return (
            <li key={r.rank}>
              <span class="number bar-rank" title={parallelismText(r.recipe)}>{r.rank}</span>
              <div class="bar-track">
                <div class="stack" role="img" aria-label={`Rank ${r.rank}: ${text || 'nothing known'}`}
                  style={{ width: `${largest > 0 ? (100 * sums[i]) / largest : 0}%` }}>
                  {keys.map((key) => own.find((p) => p.key === key)).filter((p) => p !== undefined).map((p) => (
                    <div key={p.key} class={`stack-part ${colourOf(p.key)}`} style={{ flexGrow: 100 * p.share }}
                      title={`${format.words(p.key.replace(/_seconds$/, ''))}: ${show(p.value)} (${format.percent(p.share)})`} />
                  ))}
                </div>
              </div>
              <span class="number">{show(whole(r))}</span>
            </li>
          );
        })}
      </ol>
      <ul class="marks">
        {keys.map((key) => (
          <li key={key}><span class={`swatch ${colourOf(key)}`} />{format.words(key.replace(/_seconds$/, ''))}</li>
        ))}
      </ul>
    </Card>
  );
}
