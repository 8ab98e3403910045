import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  clusterName, configFault, constraintTexts, FIRST_FORM, parseForm, planAddress, planRequest, rankedSoFar, sameQuestion,
  simulatedText, type PlanForm,
} from './plan_form';
import type { PlanningProgress, RankedRecipe } from './types';

const FORM: PlanForm = {
  model: 'llama3-70b', device: 'b200', perNode: 4, nodes: 3, batch: 96, seq: 4096, a: 2, b: 7,
  constraints: [{ key: 'parallelism.tensor_parallel_degree', value: '2' }, { key: 'job.description', value: 'a=b & c' }],
};

test('what is asked for survives its address', () => {
  for (const form of [FORM, FIRST_FORM, { ...FORM, model: '' }]) {
    assert.deepEqual(parseForm(new URL(planAddress(form), 'http://localhost').searchParams), form);
  }
});

test('what an address cannot mean is what the form begins with', () => {
  const form = parseForm(new URLSearchParams('gpus=0&nodes=-1&batch=1.5&seq=many&c=nonsense&c==3&a=x'));
  assert.deepEqual(form, FIRST_FORM);
});

test('another choice of what is compared is the same question', () => {
  assert.ok(sameQuestion(FORM, { ...FORM, a: 5, b: 1 }));
  assert.ok(!sameQuestion(FORM, { ...FORM, nodes: 4 }));
  assert.ok(!sameQuestion(FORM, { ...FORM, constraints: [] }));
});

test('the request has what the form says, and nothing half-written', () => {
  assert.equal(clusterName(FORM), 'b200:4x3');
  assert.deepEqual(constraintTexts([...FORM.constraints, { key: 'training.seq_len', value: '' }, { key: '', value: '1' }]),
    ['parallelism.tensor_parallel_degree=2', 'job.description=a=b & c']);
  const cluster = { name: 'b200:4x3' };
  assert.deepEqual(planRequest(FORM, null, cluster, 20).model, { name: 'llama3-70b' });
  const request = planRequest(FORM, { name: 'mine', text: '{}' }, cluster, 20);
  assert.deepEqual(request.model, { name: 'mine', config_json: '{}' });
  assert.deepEqual([request.global_batch, request.seq_len, request.budget_seconds], [96, 4096, 20]);
});

test('a file that is no config.json is told from one', () => {
  assert.equal(configFault('{"model_type": "llama"}'), '');
  assert.equal(configFault('{"architectures": ["GPT2LMHeadModel"]}'), '');
  assert.match(configFault('[1]'), /no JSON object/);
  assert.match(configFault('null'), /no JSON object/);
  assert.match(configFault('{"hidden_size": 1}'), /neither model_type nor architectures/);
  assert.match(configFault('{'), /no JSON: /);
});

test('what is known while planning goes on is drawn as the result will be', () => {
  const ranked = [{ rank: 1, step_time_seconds: 2 }, { rank: 2, step_time_seconds: 3 }] as RankedRecipe[];
  const progress = (best: RankedRecipe[]): PlanningProgress =>
    ({ space: 100, to_capture: 64, captured: 23, best_step_seconds: null, elapsed_seconds: 1, best });
  assert.equal(rankedSoFar(FIRST_FORM, null, null), null);
  assert.equal(rankedSoFar(FIRST_FORM, null, progress([])), null, 'nothing fits yet');
  assert.deepEqual(rankedSoFar(FIRST_FORM, null, progress(ranked)), {
    model: 'llama3-8b', cluster: 'h100-sxm-80:8x1', global_batch: 64, seq_len: 8192, ranked,
  });
  assert.equal(rankedSoFar(FIRST_FORM, { name: 'mine', text: '{}' }, progress(ranked))?.model, 'mine');
  assert.equal(simulatedText(progress([])), 'simulated 23 of 64');
  assert.equal(simulatedText({ ...progress([]), to_capture: 1234 }), 'simulated 23 of 1,234');
});
