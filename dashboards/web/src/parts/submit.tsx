// A dialog that submits a job: of a recipe of a plan, or as another job was.
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { createJob, listJobs, newRequestId } from '../api';
import { navigate } from '../navigation';
import { useProject } from '../project';
import { specOf, type Draft } from '../submission';
import type { JobSpec } from '../types';
import { jobAddress } from '../url';
import { Failure } from './basic';
import { Constraints } from './constraints';

interface Props {
  title: string;
  note?: string;
  base: JobSpec;
  draft: Draft;
  close: () => void;
}

export function SubmitDialog({ title, note, base, draft: first, close }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [draft, setDraft] = useState(first);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  // The same answer may be lost and asked for again: it must not make a second job.
  const requestId = useRef({ of: '', id: '' });
  const heading = useId();
  const datasets = useId();
  const project = useProject();
  const known = useKnownDatasets(project);
  useEffect(() => dialog.current?.showModal(), []);
  const set = (change: Partial<Draft>) => setDraft({ ...draft, ...change });
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const spec = specOf(base, draft);
      const of = JSON.stringify(spec);
      if (requestId.current.of !== of) requestId.current = { of, id: newRequestId() };
      navigate(jobAddress((await createJob(project, spec, requestId.current.id)).name));
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} class="wide" aria-labelledby={heading} onClose={close}>
      <form onSubmit={submit}>
        <h2 id={heading}>{title}</h2>
        <p class="sub">In the project <b>{project}</b>.</p>
        {note && <p class="sub">{note}</p>}
        <div class="fields">
          <label>Name <input required value={draft.name} onInput={(e) => set({ name: e.currentTarget.value })} /></label>
          <label class="long">Text, an absolute path on the workers
            <input required list={datasets} placeholder="/data/corpus.txt" value={draft.dataset}
              onInput={(e) => set({ dataset: e.currentTarget.value })} />
            <datalist id={datasets}>{known.map((uri) => <option key={uri} value={uri} />)}</datalist>
          </label>
          <label class="long">Tokenizer: byte, or a tiktoken file on the workers
            <input required value={draft.tokenizer} onInput={(e) => set({ tokenizer: e.currentTarget.value })} /></label>
          <label>Steps <input type="number" min="1" required value={draft.steps}
            onInput={(e) => set({ steps: e.currentTarget.valueAsNumber })} /></label>
          <label>Learning rate <input type="number" min="0" step="any" required value={draft.learningRate}
            onInput={(e) => set({ learningRate: e.currentTarget.valueAsNumber })} /></label>
          <label>Slots (0: all of a worker) <input type="number" min="0" required value={draft.slots}
            onInput={(e) => set({ slots: e.currentTarget.valueAsNumber })} /></label>
          <label>Pool <input required value={draft.pool} onInput={(e) => set({ pool: e.currentTarget.value })} /></label>
        </div>
        <Constraints list={draft.constraints} change={(constraints) => set({ constraints })} />
        {error !== null && <Failure error={error} />}
        <div class="dialog-buttons">
          <button type="button" onClick={() => dialog.current?.close()}>Back</button>
          <button type="submit" class="primary" disabled={busy}>{busy ? 'Please wait' : 'Submit'}</button>
        </div>
      </form>
    </dialog>
  );
}

// Of the latest jobs: what is trained on again is seldom typed anew.
function useKnownDatasets(project: string): string[] {
  const [known, setKnown] = useState<string[]>([]);
  useEffect(() => {
    listJobs(project, '', 50, '').then(
      (page) => setKnown([...new Set(page.jobs.map((job) => job.spec?.dataset?.uri ?? '').filter(Boolean))]), () => {});
  }, [project]);
  return known;
}
