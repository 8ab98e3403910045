// Which project the page shows: that of the address, else the one that the reader chose last, else the first that they may see.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';

// What a server has before anybody has named another.
export const FIRST_PROJECT = 'default';

export const Project = createContext(FIRST_PROJECT);
export const useProject = () => useContext(Project);

const KEY = 'project';
let kept = ''; // where storage is forbidden, until the page is closed

export function rememberedProject(): string {
  try {
    return localStorage.getItem(KEY) ?? kept;
  } catch {
    return kept;
  }
}

export function rememberProject(project: string): void {
  kept = project;
  try {
    localStorage.setItem(KEY, project);
  } catch {
    // It is kept above.
  }
}

// `visible`: those that the reader may see, as far as the server says so; null: it has not answered yet, and where the address
// names none, neither is there a project (null).
export function chooseProject(inAddress: string, remembered: string, visible: string[] | null): string | null {
  if (inAddress) return inAddress;
  if (visible === null) return null;
  if (remembered && (visible.length === 0 || visible.includes(remembered))) return remembered;
  return visible.length === 0 || visible.includes(FIRST_PROJECT) ? FIRST_PROJECT : visible[0];
}

// What there is to choose from; one alone is no choice.
export function projectChoices(project: string, visible: string[]): string[] {
  const choices = [...new Set([...visible, project])].sort();
  return choices.length > 1 ? choices : [];
}

// "default" of "projects/default/jobs/01J..."
export const projectOf = (name: string): string => name.split('/')[1] ?? '';

// Whether an event of /v1/events tells of a job of this project.
export function concerns(project: string, data: string): boolean {
  const { jobs, all } = JSON.parse(data) as { jobs: string[]; all: boolean };
  return all || jobs.some((job) => job.startsWith(`projects/${project}/`));
}
