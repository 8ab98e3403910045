// Calls of the service as JSON over HTTP.
import { readEvents } from './events';
import type {
  Attempt, Checkpoint, FlightRecord, Job, JobSpec, LogLine, PlanningProgress, PlanRequest, PlanResult, ServerInfo, StepMetrics,
  StepTraceInfo, Transition, Worker,
} from './types';

export interface Violation {
  field: string;
  value: string;
  remedy: string;
}

// What the server says, or that it cannot be reached (code 0).
export class ApiError extends Error {
  constructor(readonly code: number, message: string, readonly details: Violation[] = []) {
    super(message);
  }
}

export async function errorOf(response: Response): Promise<ApiError> {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.message, error.details ?? []);
  } catch {
    return new ApiError(response.status, `the server answered ${response.status} ${response.statusText}`);
  }
}

// What is done when the server answers that it does not know who calls.
let onStranger = () => {};
export function whenStranger(run: () => void) {
  onStranger = run;
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, 'the server cannot be reached');
  }
  if (response.status === 401) onStranger();
  if (!response.ok) throw await errorOf(response);
  return response;
}

export const get = async <T>(path: string): Promise<T> => (await ask(path)).json();
const call = async <T>(path: string, init: RequestInit = {}): Promise<T> => (await ask(`/v1/${path}`, init)).json();

// null: the job has none.
async function callIfAny<T>(path: string): Promise<T | null> {
  const response = await ask(`/v1/${path}`, { headers: { Prefer: 'absent=204' } });
  return response.status === 204 ? null : response.json();
}

function query(fields: Record<string, string | number | boolean | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(fields)) {
    if (value !== null && value !== undefined && value !== '' && value !== false) search.set(key, String(value));
  }
  const text = search.toString();
  return text ? `?${text}` : '';
}

function posted(body: object): RequestInit {
  return { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
}

function post<T>(path: string, body: object): Promise<T> {
  return call(path, posted(body));
}

// Who the browser is signed in as; without a name where the server asks nobody.
export interface Session {
  name: string;
  roles: { role: string; project: string }[];
}
export const getSession = () => get<Session>('/session');
export const signIn = async (token: string): Promise<Session> => (await ask('/session', posted({ token }))).json();
export const signOut = () => ask('/session', posted({ token: '' }));

export interface JobPage {
  jobs: Job[];
  next_page_token: string;
  total_size: number;
}

// Those that the caller may see, by name: "default".
export const listProjects = async (): Promise<string[]> =>
  (await call<{ projects: { name: string }[] }>('projects')).projects.map(({ name }) => name.replace(/^projects\//, ''));
const jobsOf = (project: string) => `projects/${encodeURIComponent(project)}/jobs`;
export const listJobs = (project: string, filter: string, size: number, token: string, signal?: AbortSignal) =>
  call<JobPage>(`${jobsOf(project)}${query({ filter, page_size: size, page_token: token })}`, { signal });
export const getJob = (name: string) => call<Job>(name);
// `save`: its trainers save the step at which they stop.
export const cancelJob = (name: string, save: boolean) =>
  post<Job>(`${name}:cancel`, { reason: 'asked for on the page', save });
export const retryJob = (name: string, requestId: string, fresh: boolean) =>
  post<Job>(`${name}:retry`, { request_id: requestId, fresh });
// 32 hexadecimal digits. randomUUID() is there on localhost and https only.
export function newRequestId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
export const createJob = (project: string, spec: JobSpec, requestId: string) =>
  post<Job>(jobsOf(project), { spec, request_id: requestId });
export const getPlan = (name: string) => callIfAny<PlanResult>(`${name}/plan`);
export const getFlightRecord = (name: string) => callIfAny<FlightRecord>(`${name}/flightRecord`);

// `onProgress` is called until the result is there; aborting `signal` ends the planning on the server too.
export async function plan(
  request: PlanRequest, onProgress: (progress: PlanningProgress) => void, signal: AbortSignal): Promise<PlanResult> {
  let result: PlanResult | null = null;
  await readEvents(await ask('/v1/plan', { ...posted(request), signal }), ({ event, data }) => {
    const message = JSON.parse(data);
    if (event === 'progress') onProgress(message.progress);
    if (event === 'result') result = message.result;
    if (event === 'failure') throw new ApiError(message.error.code, message.error.message, message.error.details ?? []);
  });
  if (result === null) throw new ApiError(0, 'the server went away before the plan was done');
  return result;
}
export const queryMetrics = (name: string, afterStep: number) =>
  call<{ points: StepMetrics[]; steps: number }>(`${name}/metrics${query({ after_step: afterStep || null, max_points: 1000 })}`);
// The latest reports with the rows of all ranks, at most `most`, ascending by step.
export const queryRankReports = async (name: string, most: number): Promise<StepMetrics[]> =>
  (await call<{ rank_reports: StepMetrics[] }>(`${name}/metrics${query({ max_points: 2, max_rank_reports: most })}`))
    .rank_reports;
export const listStepTraces = async (name: string): Promise<StepTraceInfo[]> =>
  (await call<{ step_traces: StepTraceInfo[] }>(`${name}/stepTraces`)).step_traces;
// Of a step's trace, or JOB/predictedTrace: where the file is, and its content.
export const traceAddress = (name: string) => `/v1/${name}`;
export const fetchTrace = (name: string) => ask(traceAddress(name));
export const getServerInfo = () => call<ServerInfo>('server');
export const getWorker = (name: string) => call<Worker>(name);
export const checkWorker = (name: string) => post<Worker>(`${name}:check`, {});
export const drainWorker = (name: string, undo: boolean) => post<Worker>(`${name}:drain`, { undo });

export interface LogQuery {
  after_sequence?: number;
  page_size: number;
  tail?: boolean;
  rank?: number | null;
}
export const listLogs = (name: string, of: LogQuery) =>
  call<{ lines: LogLine[]; last_sequence: number }>(`${name}/logs${query({ ...of })}`);

// The whole of a list that comes in pages.
async function all<T>(path: string, rows: string): Promise<T[]> {
  const list: T[] = [];
  let token = '';
  do {
    const page = await call<Record<string, unknown>>(`${path}${query({ page_size: 1000, page_token: token })}`);
    list.push(...(page[rows] as T[]));
    token = page.next_page_token as string;
  } while (token);
  return list;
}
export const listTransitions = (name: string) => all<Transition>(`${name}/transitions`, 'transitions');
export const listAttempts = (name: string) => all<Attempt>(`${name}/attempts`, 'attempts');
export const listCheckpoints = (name: string) => all<Checkpoint>(`${name}/checkpoints`, 'checkpoints');
// Of checks only what has not passed; getWorker has all of it.
export const listWorkers = () => all<Worker>('workers', 'workers');
