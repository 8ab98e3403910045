// What the reader of the Plan page asks for, as it stands in the address, and the request that it makes.
import type { Cluster } from './catalog';
import * as format from './format';
import type { PlanningProgress, PlanRequest, RankedRecipe } from './types';

export interface Constraint {
  key: string; // "parallelism.tensor_parallel_degree"
  value: string;
}

export interface PlanForm {
  model: string; // a name of the catalog; empty where a config.json is given instead
  device: string; // "h100-sxm-80"
  perNode: number;
  nodes: number;
  batch: number;
  seq: number;
  constraints: Constraint[];
  a: number; // ranks of the two that are compared
  b: number;
}

// A config.json that was dropped. It is no part of the address.
export interface ConfigFile {
  name: string;
  text: string;
}

export const FIRST_FORM: PlanForm = {
  model: 'llama3-8b', device: 'h100-sxm-80', perNode: 8, nodes: 1, batch: 64, seq: 8192, constraints: [], a: 1, b: 2,
};

// What a plan decides, with the values that it may take where these are words.
export const DECIDED: Record<string, string[]> = {
  'parallelism.data_parallel_replicate_degree': [],
  'parallelism.data_parallel_shard_degree': [],
  'parallelism.zero_stage': ['3', '2', '1'],
  'parallelism.fsdp_reshard_after_forward_size': [],
  'parallelism.fsdp_prefetch_depth': [],
  'parallelism.sequence_parallel_gather_in_backward': ['false', 'true'],
  'parallelism.context_parallel_degree': [],
  'parallelism.tensor_parallel_degree': [],
  'parallelism.pipeline_parallel_degree': [],
  'parallelism.pipeline_parallel_schedule': ['1F1B', 'GPipe', 'Interleaved1F1B', 'LoopedBFS', 'InterleavedZeroBubble',
    'ZBVZeroBubble', 'DualPipeV'],
  'parallelism.pipeline_parallel_layers_per_stage': [],
  'parallelism.pipeline_parallel_microbatch_size': [],
  'activation_checkpoint.mode': ['none', 'selective', 'full'],
  'training.local_batch_size': [],
  'training.mixed_precision_param': ['bfloat16', 'float32'],
};

function whole(text: string | null, otherwise: number): number {
  const value = Number(text);
  return text !== null && Number.isSafeInteger(value) && value >= 1 ? value : otherwise;
}

export function parseForm(query: URLSearchParams): PlanForm {
  const constraints = query.getAll('c').map(parseConstraint).filter((one): one is Constraint => one !== null);
  return {
    model: query.get('model') ?? FIRST_FORM.model,
    device: query.get('device') ?? FIRST_FORM.device,
    perNode: whole(query.get('gpus'), FIRST_FORM.perNode),
    nodes: whole(query.get('nodes'), FIRST_FORM.nodes),
    batch: whole(query.get('batch'), FIRST_FORM.batch),
    seq: whole(query.get('seq'), FIRST_FORM.seq),
    constraints,
    a: whole(query.get('a'), 1),
    b: whole(query.get('b'), 2),
  };
}

// `place`: of the project that what is planned would be submitted to.
export function planAddress(form: PlanForm, place = '/plan'): string {
  const query = new URLSearchParams({
    model: form.model, device: form.device, gpus: String(form.perNode), nodes: String(form.nodes), batch: String(form.batch),
    seq: String(form.seq),
  });
  for (const { key, value } of form.constraints) query.append('c', `${key}=${value}`);
  if (form.a !== 1) query.set('a', String(form.a));
  if (form.b !== 2) query.set('b', String(form.b));
  return `${place}?${query}`;
}

export function parseConstraint(text: string): Constraint | null {
  const at = text.indexOf('=');
  return at < 1 ? null : { key: text.slice(0, at).trim(), value: text.slice(at + 1).trim() };
}

export function clusterName(form: PlanForm): string {
  return `${form.device}:${form.perNode}x${form.nodes}`;
}

// Of half-written constraints nothing is asked.
export function constraintTexts(constraints: Constraint[]): string[] {
  return constraints.filter(({ key, value }) => key && value).map(({ key, value }) => `${key}=${value}`);
}

// Whether the same is asked for, whichever recipes are compared.
export function sameQuestion(one: PlanForm, other: PlanForm): boolean {
  return planAddress({ ...one, a: 1, b: 2 }) === planAddress({ ...other, a: 1, b: 2 });
}

export const RANKED = 60;

export function planRequest(form: PlanForm, config: ConfigFile | null, cluster: Cluster, budgetSeconds: number): PlanRequest {
  return {
    model: config === null ? { name: form.model } : { name: config.name, config_json: config.text },
    cluster,
    global_batch: form.batch,
    seq_len: form.seq,
    constraints: constraintTexts(form.constraints),
    budget_seconds: budgetSeconds,
    top: RANKED,
  };
}

// What a ranking is drawn from: of a result, or of what is known of one while planning goes on.
export interface Ranked {
  model: string;
  cluster: string;
  global_batch: number;
  seq_len: number;
  ranked: RankedRecipe[];
}

// The best of what was simulated so far; null: nothing fits yet.
export function rankedSoFar(form: PlanForm, config: ConfigFile | null, progress: PlanningProgress | null): Ranked | null {
  if (progress === null || progress.best.length === 0) return null;
  return {
    model: config === null ? form.model : config.name,
    cluster: clusterName(form),
    global_batch: form.batch,
    seq_len: form.seq,
    ranked: progress.best,
  };
}

// "simulated 23 of 64".
export function simulatedText(progress: PlanningProgress): string {
  return `simulated ${format.count(progress.captured)} of ${format.count(progress.to_capture)}`;
}

// What is wrong with a file that was dropped, before it is sent; empty: nothing.
export function configFault(text: string): string {
  try {
    const config = JSON.parse(text);
    if (config === null || typeof config !== 'object' || Array.isArray(config)) return 'it is no JSON object';
    return 'model_type' in config || 'architectures' in config ? '' : 'it has neither model_type nor architectures';
  } catch (error) {
    return `it is no JSON: ${error instanceof Error ? error.message : error}`;
  }
}
