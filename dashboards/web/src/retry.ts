// What a retry of a job begins with, as far as the job tells. The server decides, and says it in the new job's first line.
import * as format from './format';
import type { Job } from './types';

export interface Beginning {
  text: string;
  fresh: boolean;  // it has to be asked for: checkpoints that are kept would be left aside
}

export function beginningOf(job: Pick<Job, 'committed_step' | 'starts_from' | 'steps_back'>): Beginning {
  if (job.committed_step !== null)
    return { text: `It goes on from the last good checkpoint of this one, which reached step ${format.count(job.committed_step)}.`, fresh: false };
  if (job.starts_from !== null) {
    const step = format.count(job.starts_from.step);
    return job.starts_from.damage === '' ? { text: `It goes on from where this one did: step ${step}.`, fresh: false }
      : { text: `That of step ${step}, from which this one went on, is damaged: it goes on from one before it, if one is whole.`, fresh: false };
  }
  if (job.steps_back > 0)
    return { text: 'None of its checkpoints is whole. The new job begins anew; `lego retry --from STEP` tries one of them once more.', fresh: true };
  return { text: 'It begins anew, for this one has no checkpoint.', fresh: false };
}
