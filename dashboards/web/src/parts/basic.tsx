// The small parts that pages are made of.
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api';
import * as format from '../format';
import type { Connection } from '../live';
import { parts } from '../curve';

const TONES: Record<string, string> = {
  submitted: 'info', planning: 'info', queued: 'wait', leased: 'info', starting: 'info', running: 'run', restarting: 'warn',
  cancelling: 'warn', succeeded: 'good', failed: 'bad', cancelled: 'calm', lost: 'bad', stopped: 'calm', ready: 'good',
  draining: 'wait',
};

export function Badge({ state }: { state: string }) {
  return <span class={`badge tone-${TONES[state] ?? 'calm'}`}>{state}</span>;
}

// Relative, and in full on hover.
export function Time({ us, now, bare = false }: { us: number | null; now: number; bare?: boolean }) {
  if (!us) return <span class="faint">–</span>;
  return (
    <time dateTime={new Date(us / 1000).toISOString()} title={format.absolute(us)}>
      {bare ? format.age(us, now) : format.ago(us, now)}
    </time>
  );
}

export function Meter({ share, label, tone = 'run' }: { share: number | null; label: string; tone?: string }) {
  const value = share === null ? 0 : Math.round(share * 100);
  return (
    <div class={`meter tone-${tone}`} role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100}
      aria-valuenow={share === null ? undefined : value}>
      <div class="meter-fill" style={{ width: `${value}%` }} />
    </div>
  );
}

export function Stat({ label, value, note, title }:
  { label: string; value: ComponentChildren; note?: ComponentChildren; title?: string }) {
  return (
    <div class="stat" title={title}>
      <div class="stat-label">{label}</div>
      <div class="stat-value">{value}</div>
      {note !== undefined && <div class="stat-note">{note}</div>}
    </div>
  );
}

export function Card({ title, children, aside, class: name = '' }:
  { title: string; children: ComponentChildren; aside?: ComponentChildren; class?: string }) {
  const id = useId();
  return (
    <section class={`card ${name}`} aria-labelledby={id}>
      <header class="card-head">
        <h2 id={id}>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <div class="empty-text">{children}</div>}
    </div>
  );
}

export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  // A message may name its fields itself.
  const details = error instanceof ApiError ? error.details.filter((d) => !error.message.includes(d.remedy)) : [];
  return (
    <div class="notice tone-bad" role="alert">
      <div>
        <strong>{error instanceof Error ? error.message : String(error)}</strong>
        {details.map((d) => <p key={d.field}><code>{d.field}{d.value && ` = ${d.value}`}</code> {d.remedy}</p>)}
      </div>
      {retry && <button type="button" onClick={retry}>Try again</button>}
    </div>
  );
}

export function Skeleton({ rows = 3, label }: { rows?: number; label: string }) {
  return (
    <div class="skeleton" role="status" aria-label={label}>
      {Array.from({ length: rows }, (_, i) => <div key={i} class="skeleton-row" />)}
    </div>
  );
}

export function LostConnection({ connection }: { connection: Connection }) {
  if (connection !== 'lost') return null;
  return (
    <div class="notice tone-warn floating" role="status">
      The connection to the server is lost. What you see may be old; the page tries to connect again.
    </div>
  );
}

// A whole and its parts, as one bar with a legend. Parts below one percent are in the legend only.
export function StackedBar({ values, show, label }: { values: object; show: (value: number) => string; label: string }) {
  const list = parts(values);
  if (list.length === 0) return <p class="faint">nothing known yet</p>;
  const text = list.map((p) => `${format.words(p.key)} ${show(p.value)}`).join(', ');
  return (
    <div>
      <div class="stack" role="img" aria-label={`${label}: ${text}`}>
        {list.filter((p) => p.share >= 0.01).map((p) => (
          <div key={p.key} class={`stack-part ${colourOf(p.key)}`} style={{ flexGrow: 100 * p.share }}
            title={`${format.words(p.key)}: ${show(p.value)} (${format.percent(p.share)})`} />
        ))}
      </div>
      <ul class="legend">
        {list.map((p) => (
          <li key={p.key}>
            <span class={`swatch ${colourOf(p.key)}`} />
            <span>{format.words(p.key.replace(/_seconds$/, ''))}</span>
            <span class="number">{show(p.value)}</span>
            <span class="faint number">{format.percent(p.share)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

// The same thing has the same colour in every bar.
const COLOURS: Record<string, number> = {
  sharded_parameter: 1, unsharded_parameter: 2, sharded_gradient: 3, unsharded_gradient: 4, activation: 5, activation_gradient: 6,
  optimizer_state: 7, all_gather_buffer: 8, reduce_scatter_buffer: 9, workspace: 10, input: 11, buffer: 12, other: 13,
  compute_seconds: 1, exposed_communication_seconds: 3, bubble_seconds: 5, launch_seconds: 8, optimizer_seconds: 7,
};

export function colourOf(key: string): string {
  return `colour-${COLOURS[key] ?? 13}`;
}

// A button that asks before it does something that cannot be taken back, and says what went wrong.
export function ConfirmButton({ label, question, detail, confirm, danger = false, action }:
  { label: string; question: string; detail: string; confirm: string; danger?: boolean; action: () => Promise<void> }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const title = useId();
  const run = async () => {
    setBusy(true);
    setError(null);
    try {
      await action();
      dialog.current?.close();
    } catch (caught) {
      setError(caught);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <button type="button" class={danger ? 'danger' : ''}
        onClick={() => { setError(null); dialog.current?.showModal(); }}>{label}</button>
      <dialog ref={dialog} aria-labelledby={title}>
        <h2 id={title}>{question}</h2>
        <p>{detail}</p>
        {error !== null && <Failure error={error} />}
        <div class="dialog-buttons">
          <button type="button" onClick={() => dialog.current?.close()}>Back</button>
          <button type="button" class={danger ? 'danger filled' : 'primary'} disabled={busy}
            onClick={run}>{busy ? 'Please wait' : confirm}</button>
        </div>
      </dialog>
    </>
  );
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · LegoAI` : 'LegoAI';
  }, [title]);
}
