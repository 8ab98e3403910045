#include "scheduler/fleet.h"

#include <algorithm>

namespace legoai::scheduler {

Fleet::Fleet(absl::Time now, const Snapshot& snapshot) {
  for (const WorkerView& view : snapshot.workers) workers_.push_back({&view, view.free, {}});
  std::sort(workers_.begin(), workers_.end(), [](const Worker& a, const Worker& b) { return a.view->name < b.view->name; });
  std::map<std::string, int> index;
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    const WorkerView& view = *workers_[i].view;
    index[view.name] = i;
    if (!view.accepts) continue;
    accepting_[{view.pool, ""}].push_back(i);
    if (!view.device_type.empty()) accepting_[{view.pool, view.device_type}].push_back(i);
  }
  for (const RunningJob& job : snapshot.running) {
    const absl::Time end = std::max(now, job.expected_end.value_or(absl::InfiniteFuture()));
    for (const auto& [worker, slots] : job.slots) {
      if (auto found = index.find(worker); found != index.end()) workers_[found->second].uses.push_back({end, slots});
    }
  }
}

const std::vector<int>& Fleet::Accepting(const WaitingJob& job) const {
  static const std::vector<int>& none = *new std::vector<int>;
  const auto found = accepting_.find({job.pool, job.device_type});
  return found == accepting_.end() ? none : found->second;
}

void Fleet::Take(int worker, int64_t slots, absl::Time end) {
  workers_[worker].free -= slots;
  workers_[worker].uses.push_back({end, slots});
}

std::optional<absl::Time> Fleet::FreeAt(int worker, int64_t slots) const {
  std::vector<Use> uses = workers_[worker].uses;
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.end < b.end; });
  int64_t free = workers_[worker].free;
  for (const Use& use : uses) {
    free += use.slots;
    if (use.end == absl::InfiniteFuture()) return std::nullopt;
    if (free >= slots) return use.end;
  }
  return std::nullopt;
}

int64_t Fleet::FreeSlotsAt(int worker, absl::Time at) const {
  int64_t free = workers_[worker].free;
  for (const Use& use : workers_[worker].uses) free += use.end <= at ? use.slots : 0;
  return free;
}

}  // namespace legoai::scheduler
