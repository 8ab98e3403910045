// In which order waiting jobs are looked at. Thread-safe.
#pragma once

#include <vector>

#include "scheduler/scheduler.h"

namespace legoai::scheduler {

// Whether `a` comes before `b`: by priority, lost slots, time of submission, name.
bool Before(const WaitingJob& a, const WaitingJob& b);

// The jobs of the snapshot, which must outlive the result, in that order.
std::vector<const WaitingJob*> QueueOrder(const std::vector<WaitingJob>& waiting);

}  // namespace legoai::scheduler
