import assert from 'node:assert/strict';
import test from 'node:test';
import { beginningOf } from './retry';
import type { Checkpoint } from './types';

const checkpoint = (damage: string) => ({ step: 400, damage }) as Checkpoint;

test('a retry goes on where it can, and asks for a new beginning only where checkpoints would be left aside', () => {
  const none = { committed_step: null, starts_from: null, steps_back: 0 };
  assert.deepEqual(beginningOf(none), { text: 'It begins anew, for this one has no checkpoint.', fresh: false });
  const saved = beginningOf({ ...none, committed_step: 1200, steps_back: 1 });
  assert.match(saved.text, /goes on from the last good checkpoint of this one, which reached step 1,200/);
  assert.equal(saved.fresh, false);
  assert.match(beginningOf({ ...none, starts_from: checkpoint('') }).text, /from where this one did: step 400/);
  const damaged = beginningOf({ ...none, starts_from: checkpoint('torn'), steps_back: 1 });
  assert.match(damaged.text, /That of step 400, from which this one went on, is damaged/);
  assert.equal(damaged.fresh, false);
  const lost = beginningOf({ ...none, steps_back: 2 });
  assert.match(lost.text, /None of its checkpoints is whole\. The new job begins anew/);
  assert.equal(lost.fresh, true);
});
