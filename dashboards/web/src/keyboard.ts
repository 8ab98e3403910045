// Keys of the page. Nothing happens while somebody types, or holds a modifier.
import { useEffect, useRef } from 'preact/hooks';

export interface Keys {
  [key: string]: () => void; // "j", "Enter", "g w" (one after the other)
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName));
}

export function useKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    let before = '';
    let timer = 0;
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector('dialog[open]'))
        return;
      const pair = `${before} ${event.key}`;
      const action = latest.current[pair] ?? latest.current[event.key];
      before = event.key;
      window.clearTimeout(timer);
      timer = window.setTimeout(() => (before = ''), 1000);
      // Enter on a button or link is theirs.
      if (!action || (event.key === 'Enter' && event.target instanceof Element && event.target.closest('button, a, summary')))
        return;
      event.preventDefault();
      action();
    };
    window.addEventListener('keydown', onKey);
    return () => {
      window.removeEventListener('keydown', onKey);
      window.clearTimeout(timer);
    };
  }, []);
}
