// A box for what may be wider than the window. Where it is, it says so, and the keyboard can scroll it.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [wide, setWide] = useState(false);
  const [more, setMore] = useState(false); // to the right of what is seen
  useEffect(() => {
    const element = box.current!;
    const look = () => {
      setWide(element.scrollWidth > element.clientWidth + 1);
      setMore(element.scrollWidth - element.clientWidth - element.scrollLeft > 1);
    };
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    if (element.firstElementChild) observer.observe(element.firstElementChild);
    element.addEventListener('scroll', look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', look);
    };
  }); // after every rendering, since what is inside may be another element
  const named = wide ? { role: 'region' as const, tabIndex: 0, 'aria-label': label } : {};
  return (
    <div class={`scroll-frame${more ? ' more' : ''}`}>
      {wide && <p class="scroll-hint" aria-hidden="true">{more ? 'more columns to the right →' : '← that was the last column'}</p>}
      <div class="scroll" ref={box} {...named}>{children}</div>
    </div>
  );
}
