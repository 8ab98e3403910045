// What the server tells of itself while the page is open: server-sent events with a connection that is mended.
import { useEffect, useRef, useState } from 'preact/hooks';

export type Connection = 'connecting' | 'open' | 'lost';

export interface LiveHandlers {
  [event: string]: (data: string) => void;
}

// Opens `url` (null: none) and calls the handler named by each event. A lost connection is tried again: by the browser itself,
// or, where the server has refused it, every five seconds. `onOpen` runs after each connection, also to catch up with what was
// missed. A server that has ended the stream with "end", or has nothing more to say (204), is left in peace.
export function useEvents(url: string | null, handlers: LiveHandlers, onOpen?: () => void): Connection {
  const [connection, setConnection] = useState<Connection>('connecting');
  const latest = useRef({ handlers, onOpen });
  latest.current = { handlers, onOpen };
  useEffect(() => {
    if (url === null) return undefined;
    let source: EventSource | null = null;
    let timer = 0;
    let over = false;
    const events = Object.keys(latest.current.handlers);
    const open = () => {
      const opened = new EventSource(url);
      source = opened;
      opened.onopen = () => {
        setConnection('open');
        latest.current.onOpen?.();
      };
      for (const name of events)
        opened.addEventListener(name, (event) => latest.current.handlers[name]((event as MessageEvent).data));
      opened.addEventListener('end', () => {
        over = true;
        opened.close();
      });
      opened.onerror = () => {
        if (over) return;
        setConnection('lost');
        if (opened.readyState !== EventSource.CLOSED) return;
        opened.close();
        timer = window.setTimeout(open, 5000);
      };
    };
    open();
    return () => {
      over = true;
      window.clearTimeout(timer);
      source?.close();
    };
  }, [url]);
  return connection;
}

export interface Refresh {
  (): void; // because something has changed
  now: () => void; // because the reader wants something else
}

// Runs `work` whenever asked, never twice at once: after a change at most once per `milliseconds`, for the reader without delay.
export function useThrottled(work: () => Promise<void>, milliseconds: number): Refresh {
  const latest = useRef(work);
  latest.current = work;
  const state = useRef({ running: false, wanted: false, urgent: false, last: -Infinity, timer: 0, gone: false });
  useEffect(() => {
    state.current.gone = false;
    return () => {
      state.current.gone = true;
      window.clearTimeout(state.current.timer);
      state.current.timer = 0;
    };
  }, []);
  const refresh = useRef<Refresh | null>(null);
  if (refresh.current === null) {
    const run = async () => {
      const s = state.current;
      Object.assign(s, { timer: 0, running: true, wanted: false, urgent: false, last: performance.now() });
      try {
        await latest.current();
      } finally {
        s.running = false;
        if (s.wanted) request(s.urgent);
      }
    };
    const request = (urgent: boolean) => {
      const s = state.current;
      s.wanted = true;
      s.urgent ||= urgent;
      if (s.running || s.gone || (s.timer && !urgent)) return;
      window.clearTimeout(s.timer);
      s.timer = window.setTimeout(run, urgent ? 0 : Math.max(0, s.last + milliseconds - performance.now()));
    };
    refresh.current = Object.assign(() => request(false), { now: () => request(true) });
  }
  return refresh.current;
}

// The time, to redraw ages by.
export function useNow(milliseconds = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), milliseconds);
    return () => window.clearInterval(timer);
  }, [milliseconds]);
  return now;
}
