import assert from 'node:assert/strict';
import { test } from 'node:test';
import { baseOfPlan, decidedConstraints, devicesOf, draftOfJob, draftOfRecipe, specOf } from './submission';
import type { Job, PlanResult, RankedRecipe, Recipe } from './types';

const RECIPE = {
  training: { local_batch_size: 2, global_batch_size: 16, seq_len: 256, mixed_precision_param: 'bfloat16', steps: 10 },
  parallelism: {
    data_parallel_replicate_degree: 1, data_parallel_shard_degree: 4, tensor_parallel_degree: 2, pipeline_parallel_degree: 1,
    pipeline_parallel_schedule: '1F1B', pipeline_parallel_microbatch_size: 1,
  },
  activation_checkpoint: { mode: 'full' },
} as unknown as Recipe;
const PLAN = { model: 'llama3-8b', global_batch: 16, seq_len: 256 } as PlanResult;

test('what a plan decided binds the job, the schedule of one stage excepted', () => {
  const texts = decidedConstraints(RECIPE).map(({ key, value }) => `${key}=${value}`);
  assert.deepEqual(texts, [
    'parallelism.data_parallel_replicate_degree=1', 'parallelism.data_parallel_shard_degree=4',
    'parallelism.tensor_parallel_degree=2', 'parallelism.pipeline_parallel_degree=1', 'activation_checkpoint.mode=full',
    'training.local_batch_size=2', 'training.mixed_precision_param=bfloat16',
  ]);
  const staged = { ...RECIPE, parallelism: { ...RECIPE.parallelism!, pipeline_parallel_degree: 2 } };
  assert.ok(decidedConstraints(staged).some(({ key }) => key === 'parallelism.pipeline_parallel_schedule'));
  assert.equal(devicesOf(RECIPE), 8);
  assert.equal(devicesOf(staged), 16);
});

test('a recipe of a plan becomes a submission', () => {
  const draft = draftOfRecipe(PLAN, { rank: 3, recipe: RECIPE } as RankedRecipe, '/data/text.txt');
  const spec = specOf(baseOfPlan({ name: 'llama3-8b' }, PLAN), { ...draft, steps: 500, learningRate: 1e-3 });
  assert.deepEqual(spec.model, { name: 'llama3-8b' });
  assert.deepEqual(spec.recipe!.training,
    { global_batch_size: 16, seq_len: 256, steps: 500, dataset_path: '/data/text.txt' });
  assert.equal(spec.recipe!.optimizer!.lr, 1e-3);
  assert.deepEqual(spec.dataset, { uri: '/data/text.txt' });
  assert.deepEqual(spec.resources, { pool: 'default', slots: 8, min_slots: 8 });
  assert.equal(spec.planning!.constraints.length, 7);
});

test('a clone is what was submitted, but for what was changed', () => {
  const job = {
    name: 'projects/default/jobs/01J', spec: {
      display_name: 'bible', model: { name: 'tiny', config_json: '{}', hidden_size: 32 },
      recipe: { training: { steps: 10, seq_len: 64, dataset_path: '/a' }, checkpoint: { interval: 5 }, optimizer: { lr: 0.1, beta1: 0.8 } },
      dataset: { uri: '/a', sha256: 'ab', bytes: 3 }, resources: { slots: 4, min_slots: 2, pool: 'gpus', device_type: 'cpu' },
      planning: { constraints: ['job.description=x=y'], budget_seconds: 7 }, policy: { priority: 3, max_restarts: 1 },
    },
  } as unknown as Job;
  const same = specOf(job.spec!, draftOfJob(job));
  assert.equal(same.display_name, 'bible-clone');
  assert.deepEqual(same.model, { name: 'tiny', config_json: '{}' });
  assert.deepEqual(same.recipe, { ...job.spec!.recipe, model: { tokenizer_path: 'byte' } });
  for (const key of ['dataset', 'resources', 'planning', 'policy'] as const) assert.deepEqual(same[key], job.spec![key]);
  const moved = specOf(job.spec!, { ...draftOfJob(job), dataset: '/b', slots: 1 });
  assert.deepEqual(moved.dataset, { uri: '/b' }); // the digest was of the other text
  assert.equal(moved.recipe!.training!.dataset_path, '/b');
  assert.equal(moved.resources!.min_slots, 1);
});
