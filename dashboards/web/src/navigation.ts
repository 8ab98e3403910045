// Where the page is: the address, parsed, and the way to another one.
import { useEffect, useState } from 'preact/hooks';
import { parseView, type View } from './url';

const CHANGED = 'legoai-navigated';

export function navigate(address: string, replace = false): void {
  if (replace) history.replaceState(null, '', address);
  else history.pushState(null, '', address);
  window.dispatchEvent(new Event(CHANGED));
}

export function useView(): View {
  const read = () => parseView(location.pathname, location.search);
  const [view, setView] = useState<View>(read);
  useEffect(() => {
    const update = () => setView(read());
    window.addEventListener('popstate', update);
    window.addEventListener(CHANGED, update);
    return () => {
      window.removeEventListener('popstate', update);
      window.removeEventListener(CHANGED, update);
    };
  }, []);
  return view;
}

// Links stay links (middle click, context menu); a plain click does not load the page anew.
export function onLinkClick(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element).closest('a');
  if (!link || link.origin !== location.origin || link.target || link.hasAttribute('download')) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
}
