// The choice of the project in the page's head; nothing where there is only one.
import { projectChoices } from '../project';

interface Props {
  project: string;
  visible: string[];
  look: () => void; // for new ones
  choose: (project: string) => void;
}

export function ProjectChoice({ project, visible, look, choose }: Props) {
  const choices = projectChoices(project, visible);
  if (choices.length === 0) return null;
  return (
    <label class="project">
      <span class="hidden">Project</span>
      <select value={project} title="project" onFocus={look} onChange={(event) => choose(event.currentTarget.value)}>
        {choices.map((one) => <option key={one} value={one}>{one}</option>)}
      </select>
    </label>
  );
}
