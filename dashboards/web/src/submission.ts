// A job to submit: made from a recipe of a plan, or from another job.
import { DECIDED, type Constraint } from './plan_form';
import { flatten } from './compare';
import type { Job, JobSpec, PlanResult, RankedRecipe, Recipe } from './types';

// What the reader may change before a job is submitted.
export interface Draft {
  name: string;
  dataset: string; // absolute path on the workers
  tokenizer: string;
  steps: number;
  learningRate: number;
  slots: number; // 0: as many as a worker has
  pool: string;
  constraints: Constraint[];
}

// The keys that the plan has decided, so that the server's own planning comes to this recipe and to no other.
export function decidedConstraints(recipe: Recipe | null): Constraint[] {
  const flat = flatten(recipe);
  const stages = Number(flat.get('parallelism.pipeline_parallel_degree') ?? 1);
  return Object.keys(DECIDED)
    .filter((key) => flat.has(key) && (stages > 1 || !/pipeline_parallel_(schedule|layers|microbatch)/.test(key)))
    .map((key) => ({ key, value: flat.get(key)! }));
}

export function devicesOf(recipe: Recipe | null): number {
  const p = recipe?.parallelism;
  return [p?.data_parallel_replicate_degree, p?.data_parallel_shard_degree, p?.context_parallel_degree, p?.tensor_parallel_degree,
    p?.pipeline_parallel_degree]
    .reduce<number>((product, degree) => product * Math.max(1, degree ?? 1), 1);
}

export function draftOfRecipe(plan: PlanResult, ranked: RankedRecipe, dataset: string): Draft {
  return {
    name: `${plan.model}-${ranked.rank}`, dataset, tokenizer: 'byte', steps: 1000, learningRate: 8e-4,
    slots: devicesOf(ranked.recipe), pool: 'default', constraints: decidedConstraints(ranked.recipe),
  };
}

export function draftOfJob(job: Job): Draft {
  const spec = job.spec!;
  return {
    name: `${spec.display_name || spec.model?.name || 'job'}-clone`,
    dataset: spec.dataset?.uri ?? '',
    tokenizer: spec.recipe?.model?.tokenizer_path ?? 'byte',
    steps: spec.recipe?.training?.steps ?? 1000,
    learningRate: spec.recipe?.optimizer?.lr ?? 8e-4,
    slots: spec.resources?.slots ?? 0,
    pool: spec.resources?.pool ?? 'default',
    constraints: (spec.planning?.constraints ?? []).map((text) => {
      const at = text.indexOf('=');
      return { key: text.slice(0, at), value: text.slice(at + 1) };
    }),
  };
}

// `base`: the spec of the job that is cloned, or of the plan what it knows: model, batch, sequence.
export function specOf(base: JobSpec, draft: Draft): JobSpec {
  const recipe = base.recipe ?? ({} as Recipe);
  const moved = draft.dataset !== (base.dataset?.uri ?? '');
  return {
    ...base,
    display_name: draft.name,
    model: base.model?.config_json ? { name: base.model.name, config_json: base.model.config_json } : { name: base.model?.name ?? '' },
    recipe: {
      ...recipe,
      model: { ...recipe.model, tokenizer_path: draft.tokenizer } as Recipe['model'],
      training: { ...recipe.training, steps: draft.steps, dataset_path: draft.dataset } as Recipe['training'],
      optimizer: { ...recipe.optimizer, lr: draft.learningRate },
    },
    // Digest and size are those of the text that was given with them.
    dataset: moved || base.dataset === null ? { uri: draft.dataset } : base.dataset,
    resources: {
      ...base.resources, pool: draft.pool, slots: draft.slots,
      min_slots: draft.slots === 0 ? 1 : Math.min(draft.slots, base.resources?.min_slots ?? draft.slots),
    } as JobSpec['resources'],
    planning: {
      ...base.planning,
      constraints: draft.constraints.filter(({ key, value }) => key && value).map(({ key, value }) => `${key}=${value}`),
    } as JobSpec['planning'],
  };
}

export function baseOfPlan(model: { name: string; config_json?: string }, plan: PlanResult): JobSpec {
  return {
    display_name: '', model, dataset: null, resources: null, planning: null, policy: null,
    recipe: { training: { global_batch_size: plan.global_batch, seq_len: plan.seq_len } } as Recipe,
  };
}
