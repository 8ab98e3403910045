// Files that the page makes for the reader.
import { lastSegment } from './format';
import type { Job } from './types';

export function download(name: string, type: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// "king-james-recipe.toml": letters, digits and dashes of the job's name, so that every system takes it.
export function fileName(job: Job, end: string): string {
  const name = (job.spec?.display_name || lastSegment(job.name)).replace(/[^\w.-]+/g, '-');
  return `${name}-${end}`;
}
