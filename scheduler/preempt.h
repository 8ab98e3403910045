// Which running jobs are to stop for a waiting one of larger priority. Thread-safety: a pure function.
#pragma once

#include <string>
#include <vector>

#include "scheduler/scheduler.h"

namespace legoai::scheduler {

// Running jobs of smaller priority whose slots, with those that are free, or checked, or of jobs that stop already, are room for
// `job`, which waits in the snapshot. All of them are needed, and the largest priority among them is as small as can be; of equal
// ones those with fewer slots, then by name. They are stopped for room on workers of the kind that its recipe was chosen for, and
// in one NVLink domain if it was chosen for that, where there are such: whether it can train on others at all, only another plan
// says. Empty: it needs none, or all of them would not do.
//
// Schedule() keeps the room for the job, the first of its queue, until all of them have stopped.
std::vector<std::string> MakeRoom(const Snapshot& snapshot, const WaitingJob& job);

}  // namespace legoai::scheduler
