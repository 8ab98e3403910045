// The result of a plan: why the winner won, the ranking, what was left out and why.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import * as format from '../format';
import type { Ranked } from '../plan_form';
import { accumulation, explanationParts, parallelismText, recipeText } from '../recipe';
import type { PlanResult, RankedRecipe } from '../types';
import { Card, Empty, StackedBar } from './basic';
import { Scroll } from './scroll';

export function Explanation({ text }: { text: string }) {
  const { head, points } = explanationParts(text);
  return (
    <div class="explanation">
      {head && <p>{head}</p>}
      {points.length > 0 && <ul>{points.map((point) => <li key={point}>{point}</li>)}</ul>}
    </div>
  );
}

interface RankingProps {
  plan: Ranked;
  chosen?: RankedRecipe | null;
  title?: string;
  actions?: (ranked: RankedRecipe) => ComponentChildren; // below the details of a recipe
}

export function Ranking({ plan, chosen = null, title = 'Ranking', actions }: RankingProps) {
  const [open, setOpen] = useState<number | null>(null);
  if (plan.ranked.length === 0) return <Card title={title}><Empty title="No recipe fits" /></Card>;
  const best = plan.ranked[0].step_time_seconds;
  return (
    <Card title={title} aside={<span class="faint">
      {plan.model} on {plan.cluster}, {format.count(plan.global_batch)} × {format.count(plan.seq_len)} tokens
    </span>}>
      <Scroll label={title}>
        <table class="list dense">
          <thead>
            <tr>
              <th scope="col" class="number tight">Rank</th><th scope="col">Parallelism</th>
              <th scope="col" class="number">Local batch</th>
              <th scope="col" class="number" title="passes forward and backward in one step">Accumulated</th>
              <th scope="col">Checkpointing</th>
              <th scope="col">Precision</th><th scope="col" class="number">Step time</th>
              <th scope="col" class="number">Slower</th>
              <th scope="col" class="number">Tokens/s/device</th><th scope="col" class="number">MFU</th>
              <th scope="col" class="number">Peak memory</th>
              <th scope="col" class="number">Headroom</th>
            </tr>
          </thead>
          <tbody>
            {plan.ranked.map((r) => (
              <RankedRow key={r.rank} ranked={r} best={best}
                chosen={chosen?.recipe_toml === r.recipe_toml && r.recipe_toml !== ''} actions={actions}
                open={open === r.rank} toggle={() => setOpen(open === r.rank ? null : r.rank)} />
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}

function RankedRow({ ranked: r, best, chosen, open, toggle, actions }: {
  ranked: RankedRecipe; best: number; chosen: boolean; open: boolean; toggle: () => void;
  actions: RankingProps['actions'];
}) {
  return (
    <>
      <tr class={open ? 'selected' : ''} onClick={toggle}>
        <td class="number">
          <button type="button" class="quiet small" aria-expanded={open}
            aria-label={`Details of rank ${r.rank}`}>{open ? '▾' : '▸'}</button> {r.rank}
        </td>
        <td class="layout">{parallelismText(r.recipe)} {chosen && <span class="badge tone-good">chosen</span>}
          {r.estimated && <span class="badge" title="by closed forms, not simulated: it may not fit">estimated</span>}</td>
        <td class="number">{format.count(r.recipe?.training?.local_batch_size)}</td>
        <td class="number">{format.count(accumulation(r.recipe))}</td>
        <td>{r.recipe?.activation_checkpoint?.mode ?? 'none'}</td>
        <td>{r.recipe?.training?.mixed_precision_param ?? '–'}</td>
        <td class="number">{format.seconds(r.step_time_seconds)}</td>
        <td class="number">{format.slower(r.step_time_seconds, best)}</td>
        <td class="number">{format.count(Math.floor(r.tokens_per_second_per_gpu))}</td>
        <td class="number">{format.percent(r.mfu || null)}</td>
        <td class="number">{r.estimated && '≥ '}{format.bytes(r.peak_memory_bytes)}</td>
        <td class="number">{r.estimated && '≤ '}{format.bytes(r.headroom_bytes)}</td>
      </tr>
      {open && (
        <tr class="detail">
          <td colSpan={12}>
            <div class="columns">
              <div><h3>One step</h3><StackedBar values={r.breakdown ?? {}} show={format.seconds} label="Step time" /></div>
              <div><h3>Memory at the peak</h3><StackedBar values={r.memory ?? {}} show={format.bytes}
                label="Memory by category" /></div>
            </div>
            {actions && <div class="row-actions">{actions(r)}</div>}
            {r.recipe_toml && <details><summary>recipe.toml</summary><pre tabIndex={0}>{r.recipe_toml}</pre></details>}
          </td>
        </tr>
      )}
    </>
  );
}

export function LeftOut({ plan }: { plan: PlanResult }) {
  const pruned = Object.entries(plan.pruned).sort((a, b) => b[1] - a[1]);
  const facts: [string, number, string][] = [
    ['in the space', plan.space, ''],
    ['simulated', plan.captured, `of them ${format.count(plan.captured_unfit)} do not fit`],
    ['against a rule', pruned.reduce((sum, [, n]) => sum + n, 0),
      pruned.map(([rule, n]) => `${rule} ${format.count(n)}`).join(', ')],
    ['too large by a bound', plan.bounded_out, 'the least that they need is more than the device has'],
    ['failed', plan.failed, ''],
    ['not reached', plan.not_reached, 'the time for planning was over'],
  ];
  return (
    <Card title="Left out" aside={<span class="faint">planned in {format.duration(plan.seconds)}</span>}>
      <table class="plain spaced">
        <tbody>
          {facts.filter(([, n], i) => i < 2 || n > 0).map(([what, n, note]) => (
            <tr key={what}><th scope="row">{what}</th><td class="number">{format.count(n)}</td><td class="faint">{note}</td></tr>
          ))}
        </tbody>
      </table>
      {plan.rejected.length > 0 && (
        <Scroll label="Rejected recipes">
          <table class="list dense">
            <thead><tr><th scope="col">Rejected</th><th scope="col">Rule</th><th scope="col" class="number">Memory</th>
              <th scope="col">Why</th></tr></thead>
            <tbody>
              {plan.rejected.map((r, i) => (
                <tr key={i}>
                  <td class="layout">{recipeText(r.recipe)}</td><td><code>{r.rule}</code></td>
                  <td class="number">
                    {r.peak_memory_bytes === null ? '–' : `${r.is_bound ? '≥ ' : ''}${format.bytes(r.peak_memory_bytes)}`}
                  </td>
                  <td class="prose">{r.reason}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Card>
  );
}
