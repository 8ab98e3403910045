// A recipe in words: those of the recipe file and of `lego plan` (planner/explain.cc), so that a degree has one name everywhere.
import { isFinal } from './curve';
import type { Job, Recipe } from './types';

// "replicate 2, shard 4, tp 2, 1F1B over 2 stages with microbatches of 1": what is not 1.
export function parallelismText(recipe: Recipe | null | undefined): string {
  const p = recipe?.parallelism;
  const parts: string[] = [];
  const degree = (name: string, value: number | null | undefined) => {
    if (value && value > 1) parts.push(`${name} ${value}`);
  };
  degree('replicate', p?.data_parallel_replicate_degree);
  degree('shard', p?.data_parallel_shard_degree);
  if ((p?.zero_stage ?? 3) !== 3) parts.push(`ZeRO-${p?.zero_stage}`);
  if (p?.fsdp_reshard_after_forward_size) parts.push(`resharded over ${p.fsdp_reshard_after_forward_size}`);
  if ((p?.fsdp_prefetch_depth ?? 1) !== 1) parts.push(`gathered ${p?.fsdp_prefetch_depth} layers ahead`);
  degree('cp', p?.context_parallel_degree);
  degree('tp', p?.tensor_parallel_degree);
  if ((p?.tensor_parallel_degree ?? 1) > 1 && p?.sequence_parallel === false) parts.push('no sequence parallel');
  if (p?.sequence_parallel_gather_in_backward) parts.push('inputs gathered again');
  if (p && (p.pipeline_parallel_degree ?? 1) > 1) {
    const chunks = p.pipeline_parallel_layers_per_stage ? `, ${p.pipeline_parallel_layers_per_stage} layers a chunk,` : '';
    parts.push(`${p.pipeline_parallel_schedule_csv ? 'a listed schedule' : p.pipeline_parallel_schedule ?? '1F1B'} over ${p.pipeline_parallel_degree} stages${chunks} with microbatches of ${
      p.pipeline_parallel_microbatch_size ?? 1}`);
  }
  return parts.length ? parts.join(', ') : 'one device';
}

// Passes forward and backward before the optimizer's step; null where the recipe does not say.
export function accumulation(recipe: Recipe | null | undefined): number | null {
  const { local_batch_size: local, global_batch_size: global } = recipe?.training ?? {};
  if (!local || !global || local < 1 || global < 1) return null;
  const degree = (value: number | null | undefined) => Math.max(1, value ?? 1);
  const p = recipe?.parallelism;
  return Math.max(
    1, Math.floor(global / (local * degree(p?.data_parallel_replicate_degree) * degree(p?.data_parallel_shard_degree))));
}

export function localBatchText(recipe: Recipe | null | undefined): string {
  const passes = accumulation(recipe) ?? 1;
  return `${recipe?.training?.local_batch_size ?? '–'}${passes > 1 ? ` accumulated ${passes} times` : ''}`;
}

// All that a plan decides, in one line.
export function recipeText(recipe: Recipe | null | undefined): string {
  return [
    parallelismText(recipe),
    `local batch ${localBatchText(recipe)}`,
    `${recipe?.activation_checkpoint?.mode ?? 'no'} checkpointing`.replace(/^none /, 'no '),
    recipe?.training?.mixed_precision_param ?? '',
  ].filter(Boolean)
    .join(', ');
}

// An explanation is a sentence or two, then lines that begin with a dash.
export function explanationParts(text: string): { head: string; points: string[] } {
  const [head, ...points] = text.split(/^- /m).map((part) => part.trim());
  return { head, points };
}

export function notPlanned(job: Job): string {
  return isFinal(job.state) ? 'Never planned' : 'Not planned yet';
}

export type Fact = [string, string];

// What was asked for, whatever the planner makes of it.
function askedFacts(job: Job): Fact[] {
  const training = job.spec?.recipe?.training;
  return [
    ['model', job.spec?.model?.name ?? '–'],
    ['dataset', job.spec?.dataset?.uri || (training?.dataset_path ?? '–')],
    ['global batch', `${training?.global_batch_size ?? '–'} sequences of ${training?.seq_len ?? '–'} tokens`],
    ['steps', training?.steps?.toLocaleString('en-US') ?? '–'],
  ];
}

function slotsFact(job: Job): Fact {
  const resources = job.spec?.resources;
  const slots = resources?.slots ? String(resources.slots) : 'as many as a worker has';
  const type = resources?.device_type ? `, of type ${resources.device_type}` : '';
  return ['slots', `${slots}, at least ${resources?.min_slots ?? 1}, of pool ${resources?.pool ?? 'default'}${type}`];
}

// The recipe as it was planned; of a job that has no plan what was asked for, and nothing that only a plan can tell.
export function recipeFacts(job: Job): Fact[] {
  const recipe = job.chosen?.recipe;
  if (!recipe) {
    const constraints = job.spec?.planning?.constraints ?? [];
    return [...askedFacts(job), slotsFact(job), ['constraints', constraints.join(', ') || 'none']];
  }
  return [
    ...askedFacts(job),
    ['parallelism', parallelismText(recipe)],
    ['local batch', localBatchText(recipe)],
    ['checkpointing', recipe.activation_checkpoint?.mode ?? 'none'],
    ['precision', recipe.training?.mixed_precision_param ?? '–'],
  ];
}
