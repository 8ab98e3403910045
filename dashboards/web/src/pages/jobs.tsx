// All jobs: filtered, paged and live. The filter, the page and its size are in the address.
import { useEffect, useRef, useState } from 'preact/hooks';
import { listJobs, type JobPage } from '../api';
import { doneShare, isFinal, secondsLeft, slotsText, whyOf } from '../curve';
import * as format from '../format';
import { useKeys } from '../keyboard';
import { useEvents, useNow, useThrottled } from '../live';
import { navigate } from '../navigation';
import { Badge, Empty, Failure, LostConnection, Meter, Skeleton, Time, useTitle } from '../parts/basic';
import { concerns, useProject } from '../project';
import type { Job } from '../types';
import { jobAddress, jobsAddress, jobsFilter, PAGE_SIZES, STATES, type JobsView } from '../url';

function usePage(project: string, view: JobsView) {
  const [loaded, setLoaded] = useState<{ page: JobPage; first: number; query: string } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const filter = jobsFilter(view.state, view.text);
  const query = `${filter}|${view.size}|${view.token}`;
  const current = useRef(query);
  current.current = query;
  const refresh = useThrottled(async () => {
    const asked = current.current;
    try {
      const got = await listJobs(project, filter, view.size, view.token);
      if (asked !== current.current) return;
      setLoaded({ page: got, first: (view.page - 1) * view.size + 1, query });
      setError(null);
    } catch (caught) {
      if (asked === current.current) setError(caught);
    }
  }, 1000);
  useEffect(refresh.now, [query]);
  // Until another page has come, the one before stays, and says so.
  return { page: loaded?.page ?? null, first: loaded?.first ?? 1, busy: loaded?.query !== query, error, refresh };
}

// Another project is another page.
export function JobsPage({ view }: { view: JobsView }) {
  useTitle('Jobs');
  const project = useProject();
  const now = useNow();
  const { page, first, busy, error, refresh } = usePage(project, view);
  const connection = useEvents(
    '/v1/events', { jobs: (data) => { if (concerns(project, data)) refresh(); }, workers: () => {} }, refresh);
  const [selected, setSelected] = useState(-1);
  const search = useRef<HTMLInputElement>(null);
  const rows = useRef<HTMLTableSectionElement>(null);
  const jobs = page?.jobs ?? [];

  const move = (by: number) => {
    const next = Math.max(0, Math.min(jobs.length - 1, selected + by));
    setSelected(next);
    rows.current?.children[next]?.scrollIntoView({ block: 'nearest' });
  };
  useKeys({
    j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
    Enter: () => jobs[selected] && navigate(jobAddress(jobs[selected].name)),
    '/': () => search.current?.focus(),
    n: () => nextPage(view, page), p: () => previousPage(view),
  });
  useEffect(() => setSelected(-1), [view.token, view.state, view.text]);

  return (
    <main id="main">
      <div class="page-head">
        <h1>Jobs</h1>
        <Filters view={view} search={search} />
      </div>
      <LostConnection connection={connection} />
      {error !== null && <Failure error={error} retry={refresh.now} />}
      {page === null ? error === null && <Skeleton rows={8} label="Loading jobs" /> : jobs.length === 0
        ? <NoJobs view={view} />
        : (
          <>
            <table class="list jobs" aria-label="Jobs, the latest created first" aria-busy={busy}>
              <thead>
                <tr>
                  <th scope="col">State</th><th scope="col">Job</th><th scope="col">Id</th><th scope="col">Progress</th>
                  <th scope="col" class="number">Loss</th><th scope="col" class="number">Tokens/s</th>
                  <th scope="col" class="number">Slots</th><th scope="col" class="number">Age</th>
                </tr>
              </thead>
              <tbody ref={rows}>
                {jobs.map((job, i) => <Row key={job.name} job={job} now={now} selected={i === selected} />)}
              </tbody>
            </table>
            <Pager view={view} page={page} first={first} />
          </>
        )}
    </main>
  );
}

function Filters({ view, search }: { view: JobsView; search: preact.RefObject<HTMLInputElement> }) {
  const [text, setText] = useState(view.text);
  const timer = useRef(0);
  // What this field itself has put into the address it knows; the reader may have typed on since.
  const told = useRef(view.text);
  useEffect(() => {
    if (view.text !== told.current) setText(view.text);
    told.current = view.text;
  }, [view.text]);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const type = (value: string) => {
    setText(value);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      told.current = value;
      navigate(jobsAddress({ ...view, text: value, token: '', page: 1 }), true);
    }, 250);
  };
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <label>
        <span class="hidden">State</span>
        <select value={view.state}
          onChange={(event) => navigate(jobsAddress({ ...view, state: event.currentTarget.value, token: '', page: 1 }))}>
          <option value="">all states</option>
          <option value="active">active (not ended)</option>
          {STATES.map((state) => <option key={state} value={state}>{state}</option>)}
        </select>
      </label>
      <label class="grow">
        <span class="hidden">Name or id contains</span>
        <input ref={search} type="search" placeholder="name or id contains …  ( / )" value={text}
          onInput={(event) => type(event.currentTarget.value)}
          onKeyDown={(event) => event.key === 'Escape' && event.currentTarget.blur()} />
      </label>
    </form>
  );
}

function Row({ job, now, selected }: { job: Job; now: number; selected: boolean }) {
  const name = job.spec?.display_name || format.lastSegment(job.name);
  return (
    <tr class={selected ? 'selected' : ''} aria-selected={selected}
      onClick={(event) => !(event.target as Element).closest('a, .id') && navigate(jobAddress(job.name))}>
      <td data-label="State">
        <Badge state={job.state} />
        {job.queue_position !== null && <span class="faint"> no. {job.queue_position}</span>}
        {whyOf(job) && <div class="why" title={whyOf(job)}>{whyOf(job)}</div>}
      </td>
      <td data-label="Job">
        <a class="name" href={jobAddress(job.name)}>{name}</a>
        <div class="sub">{job.spec?.model?.name ?? '–'}</div>
      </td>
      <td data-label="Id"><code class="id" title="a click selects it whole">{format.lastSegment(job.name)}</code></td>
      <td data-label="Progress"><Progress job={job} /></td>
      <td data-label="Loss" class="number">{format.loss(job.progress?.loss)}</td>
      <td data-label="Tokens/s" class="number">{format.large(job.progress?.tokens_per_second)}</td>
      <td data-label="Slots" class="number">{slotsText(job)}</td>
      <td data-label="Age" class="number"><Time us={job.create_time_us} now={now} bare /></td>
    </tr>
  );
}

function Progress({ job }: { job: Job }) {
  const share = doneShare(job);
  const left = secondsLeft(job);
  const progress = job.progress;
  if (!progress || progress.steps <= 0) return <span class="faint">–</span>;
  const tone = job.state === 'failed' ? 'bad' : isFinal(job.state) ? 'calm' : 'run';
  return (
    <div>
      <Meter share={share} label={`Progress of ${job.spec?.display_name || job.name}`}
        tone={job.state === 'succeeded' ? 'good' : tone} />
      <div class="sub">
        {format.count(progress.step)} / {format.count(progress.steps)}
        {left !== null && <span> · {format.duration(left, 1)} left</span>}
      </div>
    </div>
  );
}

function NoJobs({ view }: { view: JobsView }) {
  if (view.state || view.text) {
    return (
      <Empty title="No job matches">
        <p><a href={jobsAddress({ project: view.project })}>Show all jobs</a></p>
      </Empty>
    );
  }
  return (
    <Empty title="No jobs yet">
      <p>Submit one: <code>lego submit job.toml</code>. It shows up here at once.</p>
    </Empty>
  );
}

function nextPage(view: JobsView, page: JobPage | null): void {
  if (page?.next_page_token) navigate(jobsAddress({ ...view, page: view.page + 1, token: page.next_page_token }));
}

function previousPage(view: JobsView): void {
  if (view.page === 2) navigate(jobsAddress({ ...view, page: 1, token: '' }));
  else if (view.page > 2) history.back();
}

function Pager({ view, page, first }: { view: JobsView; page: JobPage; first: number }) {
  const last = first + page.jobs.length - 1;
  return (
    <nav class="pager" aria-label="Pages">
      <span class="number">{format.count(first)}–{format.count(last)} of {format.plural(page.total_size, 'job')}</span>
      <span class="spacer" />
      <label>
        rows{' '}
        <select value={view.size}
          onChange={(event) => navigate(jobsAddress({ ...view, size: Number(event.currentTarget.value), token: '', page: 1 }))}>
          {PAGE_SIZES.map((size) => <option key={size} value={size}>{size}</option>)}
        </select>
      </label>
      <button type="button" disabled={view.page === 1}
        onClick={() => navigate(jobsAddress({ ...view, page: 1, token: '' }))}>First</button>
      <button type="button" disabled={view.page === 1} onClick={() => previousPage(view)}>Previous</button>
      <button type="button" disabled={!page.next_page_token} onClick={() => nextPage(view, page)}>Next</button>
    </nav>
  );
}
