// The page: what is around every view, and which view the address asks for.
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { getServerInfo, getSession, signOut, whenStranger, type Session } from './api';
import { leader } from './format';
import { useKeys } from './keyboard';
import { navigate, onLinkClick, useView } from './navigation';
import { JobPage } from './pages/job';
import { JobsPage } from './pages/jobs';
import { PlanPage } from './pages/plan';
import { WorkersPage } from './pages/workers';
import { Empty } from './parts/basic';
import { SignIn } from './parts/sign_in';
import { poll } from './poll';
import type { ServerInfo } from './types';
import './style.css';

type Theme = 'light' | 'dark';

function systemTheme(): Theme {
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

function useTheme(): [Theme, () => void] {
  const chosen = () => document.documentElement.dataset.theme as Theme | undefined;
  const [theme, setTheme] = useState<Theme>(chosen() ?? systemTheme());
  useEffect(() => {
    const media = matchMedia('(prefers-color-scheme: dark)');
    const update = () => setTheme(chosen() ?? systemTheme());
    media.addEventListener('change', update);
    return () => media.removeEventListener('change', update);
  }, []);
  const toggle = () => {
    const next = theme === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem('theme', next);
    } catch {
      // Storage may be forbidden; the theme then holds until the page is closed.
    }
    setTheme(next);
  };
  return [theme, toggle];
}

const LEADER_MILLISECONDS = 5000;

// What the server says of itself, as soon as it says so; again and again where another may lead a moment later.
function useServer(): ServerInfo | null {
  const [info, setInfo] = useState<ServerInfo | null>(null);
  useEffect(() => poll(getServerInfo, (answer) => {
    setInfo(answer);
    return leader(answer) !== '';
  }, LEADER_MILLISECONDS), []);
  return info;
}

const HELP: [string, string][] = [
  ['j, k', 'next, previous row'], ['Enter', 'open the row'], ['/', 'search by name or id'], ['n, p', 'next, previous page'],
  ['1 … 5', 'tabs of a job'], ['g j', 'jobs'], ['g p', 'plan'], ['g w', 'workers'], ['t', 'light or dark'], ['?', 'this help'],
];

function App() {
  const view = useView();
  const [theme, toggleTheme] = useTheme();
  const help = useRef<HTMLDialogElement>(null);
  const server = useServer();
  const [stranger, setStranger] = useState(false);
  const [who, setWho] = useState<Session | null>(null);
  useEffect(() => {
    whenStranger(() => setStranger(true));
    getSession().then(setWho).catch(() => {});
  }, []);
  useKeys({
    'g j': () => navigate('/'), 'g p': () => navigate('/plan'), 'g w': () => navigate('/workers'),
    '?': () => help.current?.showModal(), t: toggleTheme,
  });
  const on = (kind: string) => (view.kind === kind ? 'page' : undefined);
  return (
    <div onClick={onLinkClick}>
      <a class="skip" href="#main">Skip to the content</a>
      <header class="top">
        <a class="brand" href="/"><img src="/favicon.svg" alt="" width="22" height="22" /> LegoAI</a>
        <nav aria-label="Main">
          <a href="/" aria-current={on('jobs') ?? (view.kind === 'job' ? 'true' : undefined)}>Jobs</a>
          <a href="/plan" aria-current={on('plan')}>Plan</a>
          <a href="/workers" aria-current={on('workers')}>Workers</a>
        </nav>
        <span class="spacer" />
        {server && leader(server) && (
          <span class="leader faint" title={`this is ${server.address || 'a server without an address'}`}>{leader(server)}</span>
        )}
        {server && <span class="version faint" title="build of the server">{server.build_version}</span>}
        {!stranger && who?.name && (
          <button type="button" class="quiet" title={`${who.name}: ${who.roles.map((r) => `${r.role} of ${r.project}`).join(', ')}`}
            onClick={() => signOut().finally(() => location.reload())}>Sign out</button>
        )}
        <button type="button" class="quiet" onClick={toggleTheme}
          aria-label={theme === 'dark' ? 'Use the light theme' : 'Use the dark theme'}
          title="light or dark (t)">{theme === 'dark' ? '☀' : '☾'}</button>
        <button type="button" class="quiet" onClick={() => help.current?.showModal()} aria-label="Keyboard help"
          title="keys (?)">?</button>
      </header>
      {stranger && <SignIn />}
      {!stranger && view.kind === 'jobs' && <JobsPage view={view} />}
      {!stranger && view.kind === 'job' && <JobPage key={view.name} view={view} theme={theme} />}
      {!stranger && view.kind === 'plan' && <PlanPage view={view} />}
      {!stranger && view.kind === 'workers' && <WorkersPage />}
      {!stranger && view.kind === 'unknown' && (
        <main id="main">
          <Empty title="There is no such page"><p><code>{view.path}</code> · <a href="/">all jobs</a></p></Empty>
        </main>
      )}
      <dialog ref={help} aria-label="Keyboard help">
        <h2>Keys</h2>
        <table class="keys"><tbody>
          {HELP.map(([keys, what]) => <tr key={keys}><th scope="row"><kbd>{keys}</kbd></th><td>{what}</td></tr>)}
        </tbody></table>
        <div class="dialog-buttons">
          <button type="button" class="primary" onClick={() => help.current?.close()}>Close</button>
        </div>
      </dialog>
    </div>
  );
}

render(<App />, document.getElementById('root')!);
