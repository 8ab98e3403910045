// What is to be planned: the model, the cluster, the batch, and keys that are given.
import { useRef, useState } from 'preact/hooks';
import type { Catalog } from '../catalog';
import * as format from '../format';
import { configFault, type ConfigFile, type PlanForm } from '../plan_form';
import { Constraints } from './constraints';

interface Props {
  form: PlanForm;
  change: (form: PlanForm) => void;
  config: ConfigFile | null;
  setConfig: (config: ConfigFile | null) => void;
  catalog: Catalog | null;
  busy: boolean;
  submit: () => void;
  stop: () => void;
}

export function PlanFormFields({ form, change, config, setConfig, catalog, busy, submit, stop }: Props) {
  const set = (part: Partial<PlanForm>) => change({ ...form, ...part });
  const number = (label: string, key: 'perNode' | 'nodes' | 'batch' | 'seq') => (
    <label>{label} <input type="number" min="1" required value={form[key]}
      onInput={(event) => Number.isNaN(event.currentTarget.valueAsNumber) || set({ [key]: event.currentTarget.valueAsNumber })} />
    </label>
  );
  const tokens = form.batch * form.seq;
  return (
    <form class="card plan-form" onSubmit={(event) => { event.preventDefault(); submit(); }} aria-label="What is to be planned">
      <div class="fields">
        <ModelField form={form} set={set} config={config} setConfig={setConfig} catalog={catalog} />
        <label>Device <select value={form.device} onChange={(event) => set({ device: event.currentTarget.value })}>
          {!catalog?.devices.some((device) => device.type === form.device) && <option value={form.device}>{form.device}</option>}
          {catalog?.devices.map((device) => (
            <option key={device.type} value={device.type}>
              {device.type}{device.kind === 'cpu' ? ' (ranks of this host)' : `, ${format.bytes(device.memory_bytes)}`}
            </option>
          ))}
        </select></label>
        {number('Devices per node', 'perNode')}
        {number('Nodes', 'nodes')}
        {number('Global batch, sequences', 'batch')}
        {number('Sequence, tokens', 'seq')}
      </div>
      <Constraints list={form.constraints} change={(constraints) => set({ constraints })} />
      <div class="form-end">
        <p class="sub">{format.plural(form.perNode * form.nodes, 'device')}, {format.large(tokens)} tokens a step</p>
        <span class="spacer" />
        {busy && <button type="button" onClick={stop}>Stop</button>}
        <button type="submit" class="primary" disabled={form.model === '' && config === null}>{busy ? 'Plan anew' : 'Plan'}</button>
      </div>
    </form>
  );
}

// A name of the catalog, or a config.json that is dropped on the field or chosen.
function ModelField({ form, set, config, setConfig, catalog }:
  Pick<Props, 'form' | 'config' | 'setConfig' | 'catalog'> & { set: (part: Partial<PlanForm>) => void }) {
  const [over, setOver] = useState(false);
  const [fault, setFault] = useState('');
  const chooser = useRef<HTMLInputElement>(null);
  const take = async (file: File | undefined) => {
    if (!file) return;
    const text = await file.text();
    const wrong = configFault(text);
    setFault(wrong && `${file.name} cannot be used: ${wrong}.`);
    if (!wrong) setConfig({ name: nameOf(file.name, text), text });
  };
  return (
    <div class={`model-field${over ? ' over' : ''}`}
      onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
      onDrop={(event) => { event.preventDefault(); setOver(false); void take(event.dataTransfer?.files[0]); }}>
      {config === null ? (
        <label>Model <select value={form.model} onChange={(event) => set({ model: event.currentTarget.value })}>
          {!catalog?.models.some((model) => model.name === form.model) && (
            <option value={form.model}>{form.model || 'drop its config.json here'}</option>
          )}
          {catalog?.models.map((model) => (
            <option key={model.name} value={model.name}>{model.name}, {format.large(model.parameters)} parameters</option>
          ))}
        </select></label>
      ) : (
        <p class="config-name"><span>Model</span> <b>{config.name}</b> of a config.json{' '}
          <button type="button" class="quiet small" aria-label="Take the config.json away"
            onClick={() => { setConfig(null); if (form.model === '') set({ model: catalog?.models[0]?.name ?? '' }); }}>×</button></p>
      )}
      <p class="sub">or drop a Hugging Face config.json here, or{' '}
        <button type="button" class="link" onClick={() => chooser.current?.click()}>choose one</button></p>
      <input ref={chooser} type="file" accept=".json,application/json" class="hidden" tabIndex={-1} aria-label="config.json"
        onChange={(event) => { void take(event.currentTarget.files?.[0]); event.currentTarget.value = ''; }} />
      {fault && <p class="fault" role="alert">{fault}</p>}
    </div>
  );
}

// Hugging Face's files are all called config.json: what they say of themselves tells more.
function nameOf(file: string, text: string): string {
  const said = String(JSON.parse(text)._name_or_path ?? '').split('/').pop()!;
  const name = said || file.replace(/\.json$/, '');
  return name.replace(/[^\w.-]+/g, '-') || 'config';
}
