// Keys of the recipe that are given, and not the planner's to choose.
import { useId } from 'preact/hooks';
import { DECIDED, type Constraint } from '../plan_form';

export function Constraints({ list, change }: { list: Constraint[]; change: (list: Constraint[]) => void }) {
  const keys = useId();
  const set = (i: number, part: Partial<Constraint>) => change(list.map((one, at) => (at === i ? { ...one, ...part } : one)));
  return (
    <fieldset class="constraints">
      <legend>Constraints: keys of the recipe that all candidates share</legend>
      <datalist id={keys}>{Object.keys(DECIDED).map((key) => <option key={key} value={key} />)}</datalist>
      {list.map((one, i) => (
        <div class="constraint" key={i}>
          <input aria-label={`Key of constraint ${i + 1}`} list={keys} placeholder="parallelism.tensor_parallel_degree"
            value={one.key} onInput={(event) => set(i, { key: event.currentTarget.value.trim() })} />
          <span aria-hidden="true">=</span>
          <input aria-label={`Value of constraint ${i + 1}`} list={`${keys}-${i}`} value={one.value}
            onInput={(event) => set(i, { value: event.currentTarget.value.trim() })} />
          <datalist id={`${keys}-${i}`}>{(DECIDED[one.key] ?? []).map((value) => <option key={value} value={value} />)}</datalist>
          <button type="button" class="quiet" aria-label={`Remove constraint ${i + 1}`}
            onClick={() => change(list.filter((_, at) => at !== i))}>×</button>
        </div>
      ))}
      <button type="button" onClick={() => change([...list, { key: '', value: '' }])}>Add a constraint</button>
    </fieldset>
  );
}
