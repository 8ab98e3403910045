// Questions that are asked again and again.
import { ApiError } from './api';

// Asks at once, and again `milliseconds` after each answer for as long as `answered` says so, and after each failure; but for one
// that says that the server does not know who asks: whoever signs in loads the page anew. While `hidden` it waits. Ends when what
// it returns is called.
export function poll<T>(
  ask: () => Promise<T>, answered: (answer: T) => boolean, milliseconds: number, hidden = () => document.hidden): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let over = false;
  const later = () => {
    if (!over) timer = setTimeout(() => (hidden() ? later() : void run()), milliseconds);
  };
  const run = async () => {
    let again = true;
    try {
      const answer = await ask();
      again = !over && answered(answer);
    } catch (error) {
      again = !(error instanceof ApiError && error.code === 401);
    }
    if (again) later();
  };
  void run();
  return () => {
    over = true;
    clearTimeout(timer);
  };
}
