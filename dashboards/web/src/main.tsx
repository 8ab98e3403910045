// The page: what is around every view, and which view the address asks for.
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, getServerInfo, getSession, listProjects, signOut, whenStranger, type Session } from './api';
import { leader } from './format';
import { useKeys } from './keyboard';
import { navigate, onLinkClick, useView } from './navigation';
import { JobPage } from './pages/job';
import { JobsPage } from './pages/jobs';
import { PlanPage } from './pages/plan';
import { WorkersPage } from './pages/workers';
import { Empty } from './parts/basic';
import { SignIn } from './parts/sign_in';
import { ProjectChoice } from './parts/project_choice';
import { poll } from './poll';
import { chooseProject, Project, projectOf, rememberedProject, rememberProject } from './project';
import type { ServerInfo } from './types';
import { jobsAddress, projectPlace, wholeAddress, type View } from './url';
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

function projectIn(view: View): string {
  return view.kind === 'job' ? projectOf(view.name) : view.kind === 'jobs' || view.kind === 'plan' ? view.project : '';
}

// The project that is shown (null: not known yet), those that the reader may see, and what is done when another one is chosen.
function useProjects(view: View) {
  const [visible, setVisible] = useState<string[] | null>(null);
  const [remembered, setRemembered] = useState(rememberedProject);
  // Of a server that does not say, what the reader chose or the first is shown; whoever has to sign in sees nothing yet.
  const look = () => {
    listProjects().then(setVisible, (error) => {
      if (!(error instanceof ApiError && error.code === 401)) setVisible((known) => known ?? []);
    });
  };
  useEffect(look, [view.kind]);  // a project may have got its first job meanwhile
  const inAddress = projectIn(view);
  const project = chooseProject(inAddress, remembered, visible);
  const remember = (chosen: string) => {
    rememberProject(chosen);
    setRemembered(chosen);
  };
  useEffect(() => {
    if (inAddress && visible?.includes(inAddress)) remember(inAddress);
  }, [inAddress, visible]);
  // Where there are several the address says which, so that it can be sent to somebody.
  useEffect(() => {
    if (view.kind === 'short' && project !== null) navigate(wholeAddress(view, project), true);
    if (inAddress || project === null || !(visible ?? []).some((other) => other !== project)) return;
    if (view.kind === 'jobs' || view.kind === 'plan') navigate(projectPlace(project, view.kind) + location.search, true);
  }, [view, project, visible]);
  const choose = (chosen: string) => {
    remember(chosen);
    if (view.kind === 'plan') navigate(projectPlace(chosen, 'plan') + location.search);
    if (view.kind === 'jobs') navigate(jobsAddress({ ...view, project: chosen, token: '', page: 1 }));
    if (view.kind === 'job') navigate(jobsAddress({ project: chosen }));
  };
  return { project, visible: visible ?? [], look, choose };
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
  const { project, visible, look, choose } = useProjects(view);
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
        {project !== null && <ProjectChoice project={project} visible={visible} look={look} choose={choose} />}
        <span class="spacer" />
        {server && leader(server) && (
          <span class="leader faint" title={`this is ${server.address || 'a server without an address'}`}>{leader(server)}</span>
        )}
        {server && <span class="version faint" title="build of the server">{server.build_version}</span>}
        {!stranger && who?.name && (
          <button type="button" class="quiet"
            title={`${who.name}: ${who.roles.map((r) => `${r.role} of ${r.project}`).join(', ')}`}
            onClick={() => signOut().finally(() => location.reload())}>Sign out</button>
        )}
        <button type="button" class="quiet" onClick={toggleTheme}
          aria-label={theme === 'dark' ? 'Use the light theme' : 'Use the dark theme'}
          title="light or dark (t)">{theme === 'dark' ? '☀' : '☾'}</button>
        <button type="button" class="quiet" onClick={() => help.current?.showModal()} aria-label="Keyboard help"
          title="keys (?)">?</button>
      </header>
      {stranger && <SignIn />}
      {!stranger && project !== null && (
        <Project.Provider value={project}>
          {view.kind === 'jobs' && <JobsPage key={project} view={view} />}
          {view.kind === 'job' && <JobPage key={view.name} view={view} theme={theme} />}
          {view.kind === 'plan' && <PlanPage view={view} />}
        </Project.Provider>
      )}
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
