import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError } from './api';
import { poll } from './poll';

const seen = () => false;
const until = async (holds: () => boolean) => {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 1));
};
// Long enough for a question that is asked every millisecond to be asked again, if it is.
const wait = () => new Promise((resolve) => setTimeout(resolve, 50));

// Asks of a server that answers with these in turn, then with the last one for ever.
function server(...answers: (number | Error)[]) {
  let asked = 0;
  return {
    asked: () => asked,
    ask: async () => {
      const answer = answers[Math.min(asked++, answers.length - 1)];
      if (answer instanceof Error) throw answer;
      return answer;
    },
  };
}

test('a failure is tried again, whether it is the first question or a later one', async () => {
  const one = server(
    new ApiError(0, 'the server cannot be reached'), 1, new ApiError(503, 'nobody leads'), new TypeError(), 2, 3);
  const answers: number[] = [];
  poll(one.ask, (answer) => answers.push(answer) < 3, 1, seen);
  await until(() => answers.length === 3);
  assert.deepEqual(answers, [1, 2, 3]);
  await wait();
  assert.equal(one.asked(), 6, 'and no more than is wanted');
});

test('a stranger is told once', async () => {
  const one = server(1, new ApiError(401, 'a token is needed'));
  poll(one.ask, () => true, 1, seen);
  await until(() => one.asked() === 2);
  await wait();
  assert.equal(one.asked(), 2);
});

test('nothing is asked, or taken, after the end', async () => {
  const one = server(1);
  const end = poll(one.ask, () => true, 1, seen);
  await until(() => one.asked() > 2);
  end();
  const asked = one.asked();
  await wait();
  assert.equal(one.asked(), asked);
  let taken = 0;
  poll(one.ask, () => ++taken > 0, 1, seen)();
  await wait();
  assert.equal(taken, 0);
});

test('a page that nobody sees asks once, and goes on when it is seen', async () => {
  const one = server(1);
  let hidden = true;
  const end = poll(one.ask, () => true, 1, () => hidden);
  await wait();
  assert.equal(one.asked(), 1);
  hidden = false;
  await until(() => one.asked() > 2);
  end();
});
