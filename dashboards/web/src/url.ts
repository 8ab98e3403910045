// The page's places: what is shown is in the address, so it can be sent to somebody, reloaded and gone back from.
import { parseForm, type PlanForm } from './plan_form';

export const STATES = [
  'submitted', 'planning', 'queued', 'leased', 'starting', 'running', 'restarting', 'cancelling', 'succeeded', 'failed',
  'cancelled',
] as const;
export const PAGE_SIZES = [25, 50, 100, 200];
export const JOB_TABS = ['overview', 'plan', 'step', 'history', 'logs', 'flight'] as const;
export const MOST_OTHERS = 5;
export type JobTab = (typeof JOB_TABS)[number];

export interface JobsView {
  kind: 'jobs';
  project: string; // "default"; '': the address names none
  state: string; // '' (all), 'active', or one of STATES
  text: string;
  size: number;
  page: number; // 1, 2, ...
  token: string; // of that page; '' for the first
}

export interface JobView {
  kind: 'job';
  name: string; // "projects/default/jobs/01J..."
  tab: JobTab;
  rank: number | null; // of the logs; null: all
  others: string[]; // ids of jobs whose curves are laid over
}

// `asked`: the address says what for.
export interface PlanView {
  kind: 'plan';
  project: string; // as of jobs
  form: PlanForm;
  asked: boolean;
}

// "/jobs/01J...": a job of the reader's own project, which the address does not name. `search`: of the job's address, too.
export interface ShortView {
  kind: 'short';
  id: string;
  search: string;
}

export type View = JobsView | JobView | PlanView | ShortView | { kind: 'workers' } | { kind: 'unknown'; path: string };

export function parseView(path: string, search: string): View {
  const query = new URLSearchParams(search);
  const short = /^\/jobs\/([^/]+)$/.exec(path);
  const id = short && decoded(short[1]);
  if (id) return { kind: 'short', id, search };
  const job = /^\/(projects\/[^/]+\/jobs\/[^/]+)$/.exec(path);
  const name = job && decoded(job[1]);
  if (name) {
    const tab = JOB_TABS.find((known) => known === query.get('tab')) ?? 'overview';
    const rank = query.get('rank');
    const others = (query.get('with') ?? '').split(',').filter(Boolean).slice(0, MOST_OTHERS);
    return { kind: 'job', name, tab, rank: rank !== null && /^\d+$/.test(rank) ? Number(rank) : null, others };
  }
  const of = /^\/projects\/([^/]+)(\/jobs|\/plan)$/.exec(path);
  const project = of ? decoded(of[1]) : '';
  const place = of ? of[2] : path;
  if (project === null) return { kind: 'unknown', path };
  if (place === '/plan') return { kind: 'plan', project, form: parseForm(query), asked: search.length > 1 };
  if (path === '/workers') return { kind: 'workers' };
  if (place !== '/' && place !== '/jobs') return { kind: 'unknown', path };
  const state = query.get('state') ?? '';
  const size = Number(query.get('size'));
  const page = Number(query.get('page'));
  const token = query.get('token') ?? '';
  return {
    kind: 'jobs',
    project,
    state: state === 'active' || STATES.some((known) => known === state) ? state : '',
    text: query.get('q') ?? '',
    size: PAGE_SIZES.includes(size) ? size : 50,
    page: token && Number.isInteger(page) && page > 1 ? page : 1,
    token,
  };
}

// null: a per cent sign that is followed by no two digits.
function decoded(path: string): string | null {
  try {
    return decodeURIComponent(path);
  } catch {
    return null;
  }
}

export function jobsAddress(view: Partial<JobsView>): string {
  const query = new URLSearchParams();
  if (view.state) query.set('state', view.state);
  if (view.text) query.set('q', view.text);
  if (view.size && view.size !== 50) query.set('size', String(view.size));
  if (view.token && view.page && view.page > 1) {
    query.set('page', String(view.page));
    query.set('token', view.token);
  }
  const text = query.toString();
  const place = view.project ? projectPlace(view.project, 'jobs') : '/';
  return text ? `${place}?${text}` : place;
}

// Of the lists and the plans of a project; without one, of the reader's own.
export function projectPlace(project: string, place: 'jobs' | 'plan'): string {
  return project ? `/projects/${encodeURIComponent(project)}/${place}` : `/${place}`;
}

export function jobAddress(name: string, tab: JobTab = 'overview', rank: number | null = null, others: string[] = []): string {
  const query = new URLSearchParams();
  if (tab !== 'overview') query.set('tab', tab);
  if (rank !== null) query.set('rank', String(rank));
  if (others.length) query.set('with', others.join(','));
  const text = query.toString().replace(/%2C/g, ',');
  return `/${name.split('/').map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

// The whole of a short address.
export const wholeAddress = ({ id, search }: ShortView, project: string) =>
  `${projectPlace(project, 'jobs')}/${encodeURIComponent(id)}${search}`;

// The filter of ListJobs. `text` is a part of a name or an id, or a whole resource name as `lego` prints it. In quoted text a
// backslash protects quotes and itself.
export function jobsFilter(state: string, text: string): string {
  const terms = [];
  if (state) terms.push(`state = ${state}`);
  const part = text.trim().replace(/^projects\/[^/]+\/jobs\//, '');
  if (part) terms.push(`text : "${part.replace(/[\\"]/g, '\\$&')}"`);
  return terms.join(' AND ');
}
