import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accumulation, explanationParts, parallelismText, recipeFacts, recipeText } from './recipe';
import type { Job, Recipe } from './types';

const recipe = (parallelism: object, training: object, mode: string | null = null) =>
  ({ parallelism, training, activation_checkpoint: mode ? { mode } : null }) as unknown as Recipe;
const MANY = recipe(
  { data_parallel_replicate_degree: 2, data_parallel_shard_degree: 4, tensor_parallel_degree: 2, pipeline_parallel_degree: 1 },
  { local_batch_size: 2, global_batch_size: 64, mixed_precision_param: 'bfloat16' }, 'full');

test('a recipe has the words of the command line', () => {
  assert.equal(recipeText(MANY), 'replicate 2, shard 4, tp 2, local batch 2 accumulated 4 times, full checkpointing, bfloat16');
  const stages = recipe(
    { pipeline_parallel_degree: 2, pipeline_parallel_schedule: 'GPipe', pipeline_parallel_microbatch_size: 4 },
    { local_batch_size: 16, global_batch_size: 16, mixed_precision_param: 'float32' }, 'none');
  assert.equal(recipeText(stages), 'GPipe over 2 stages with microbatches of 4, local batch 16, no checkpointing, float32');
  const looped = recipe(
    { pipeline_parallel_degree: 2, pipeline_parallel_schedule: 'Interleaved1F1B', pipeline_parallel_layers_per_stage: 4 }, {});
  assert.equal(parallelismText(looped), 'Interleaved1F1B over 2 stages, 4 layers a chunk, with microbatches of 1');
  assert.equal(parallelismText(null), 'one device');
  assert.equal(parallelismText(recipe({ data_parallel_shard_degree: -1 }, {})), 'one device');
});

test('accumulation is what the batch leaves of the ranks that share it', () => {
  assert.equal(accumulation(MANY), 4);
  assert.equal(accumulation(recipe({}, { local_batch_size: 8, global_batch_size: 8 })), 1);
  assert.equal(accumulation(recipe({}, { local_batch_size: 8, global_batch_size: -1 })), null);
  assert.equal(accumulation(null), null);
});

test('a job without a plan says what was asked for, and no default', () => {
  const job = {
    spec: {
      model: { name: 'tiny' },
      dataset: { uri: '/text' },
      recipe: recipe(
        { data_parallel_shard_degree: -1 },
        { local_batch_size: 8, global_batch_size: 16, seq_len: 256, steps: 1000, mixed_precision_param: 'bfloat16' }),
      resources: { slots: 0, min_slots: 2, pool: 'default', device_type: null },
      planning: { constraints: ['parallelism.tensor_parallel_degree=2'] },
    },
    chosen: null,
  } as unknown as Job;
  const facts = Object.fromEntries(recipeFacts(job));
  assert.deepEqual(Object.keys(facts), ['model', 'dataset', 'global batch', 'steps', 'slots', 'constraints']);
  assert.equal(facts['global batch'], '16 sequences of 256 tokens');
  assert.equal(facts.slots, 'as many as a worker has, at least 2, of pool default');
  assert.equal(facts.constraints, 'parallelism.tensor_parallel_degree=2');
  const planned = Object.fromEntries(recipeFacts({ ...job, chosen: { recipe: MANY } } as unknown as Job));
  assert.equal(planned.parallelism, 'replicate 2, shard 4, tp 2');
  assert.equal(planned['local batch'], '2 accumulated 4 times');
});

test('an explanation is a head and its points', () => {
  assert.deepEqual(explanationParts('The fastest is tp 2 - really.\n- One: a.\n- Two: b\n  goes on.'),
    { head: 'The fastest is tp 2 - really.', points: ['One: a.', 'Two: b\n  goes on.'] });
  assert.deepEqual(explanationParts('Nothing fits.'), { head: 'Nothing fits.', points: [] });
});
