// Which running jobs are to stop for a waiting one of larger priority. Thread-safety: a pure function.
#pragma once

#include <string>
#include <vector>

#include "scheduler/scheduler.h"

namespace legoai::scheduler {

// Running jobs of smaller priority whose slots, with those that are free and those of jobs that stop already, are room for `job`,
// which waits in the snapshot. All of them are needed, and the largest priority among them is as small as can be; of equal ones
// those with fewer slots, then by name. Empty: it needs none, or all of them would not do.
std::vector<std::string> MakeRoom(const Snapshot& snapshot, const WaitingJob& job);

}  // namespace legoai::scheduler
