import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chooseProject, concerns, projectChoices, projectOf, rememberedProject, rememberProject } from './project';

test('the address says which project, then what was chosen last, then what may be seen', () => {
  assert.equal(chooseProject('mine', 'other', ['default']), 'mine'); // whether it is there, the server says
  assert.equal(chooseProject('mine', '', null), 'mine');
  assert.equal(chooseProject('', 'other', null), null);
  assert.equal(chooseProject('', 'other', ['default', 'other']), 'other');
  assert.equal(chooseProject('', 'gone', ['default', 'other']), 'default');
  assert.equal(chooseProject('', '', ['other', 'more']), 'other');
  assert.equal(chooseProject('', '', []), 'default'); // nobody has submitted anything
  assert.equal(chooseProject('', 'other', []), 'other'); // the server does not say
});

test('one project is no choice, and one that is not there is one', () => {
  assert.deepEqual(projectChoices('default', ['default']), []);
  assert.deepEqual(projectChoices('default', []), []);
  assert.deepEqual(projectChoices('other', ['default', 'b']), ['b', 'default', 'other']);
});

test('the choice is kept where storage is not there', () => {
  assert.equal(rememberedProject(), '');
  rememberProject('other');
  assert.equal(rememberedProject(), 'other');
});

test('events are told apart by project', () => {
  assert.equal(projectOf('projects/other/jobs/01J'), 'other');
  const of = (...jobs: string[]) => JSON.stringify({ jobs, all: false });
  assert.equal(concerns('a', of('projects/a/jobs/01J')), true);
  assert.equal(concerns('a', of('projects/ab/jobs/01J')), false);
  assert.equal(concerns('a', of()), false);
  assert.equal(concerns('a', of('projects/b/jobs/01J', 'projects/a/jobs/01K')), true);
  assert.equal(concerns('a', JSON.stringify({ jobs: [], all: true })), true);
});
