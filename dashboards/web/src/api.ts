// Calls of the service as JSON over HTTP.
import type {
  Attempt, Checkpoint, FlightRecord, Job, LogLine, PlanResult, ServerInfo, StepMetrics, Transition, Worker,
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

async function call<T>(path: string, init: RequestInit = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`/v1/${path}`, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, 'the server cannot be reached');
  }
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

function query(fields: Record<string, string | number | boolean | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(fields)) {
    if (value !== null && value !== undefined && value !== '' && value !== false) search.set(key, String(value));
  }
  const text = search.toString();
  return text ? `?${text}` : '';
}

function post<T>(path: string, body: object): Promise<T> {
  return call(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
}

export interface JobPage {
  jobs: Job[];
  next_page_token: string;
  total_size: number;
}

export const listJobs = (filter: string, size: number, token: string, signal?: AbortSignal) =>
  call<JobPage>(`projects/default/jobs${query({ filter, page_size: size, page_token: token })}`, { signal });
export const getJob = (name: string) => call<Job>(name);
export const cancelJob = (name: string) => post<Job>(`${name}:cancel`, { reason: 'asked for on the page' });
export const retryJob = (name: string, requestId: string, fresh: boolean) =>
  post<Job>(`${name}:retry`, { request_id: requestId, fresh });
// 32 hexadecimal digits. randomUUID() is there on localhost and https only.
export function newRequestId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
export const getPlan = (name: string) => call<PlanResult>(`${name}/plan`);
export const getFlightRecord = (name: string) => call<FlightRecord>(`${name}/flightRecord`);
export const queryMetrics = (name: string, afterStep: number) =>
  call<{ points: StepMetrics[]; steps: number }>(`${name}/metrics${query({ after_step: afterStep || null, max_points: 1000 })}`);
export const getServerInfo = () => call<ServerInfo>('server');
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
export const listWorkers = () => all<Worker>('workers', 'workers');
