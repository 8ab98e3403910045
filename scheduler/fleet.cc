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
    accepting_[{view.pool, ""}].workers.push_back(i);
    if (!view.device_type.empty()) accepting_[{view.pool, view.device_type}].workers.push_back(i);
  }
  for (auto& [of, group] : accepting_) Survey(&group);
  for (const RunningJob& job : snapshot.running) {
    const absl::Time end = std::max(now, job.expected_end.value_or(absl::InfiniteFuture()));
    for (const auto& [worker, slots] : job.slots) {
      if (auto found = index.find(worker); found != index.end()) workers_[found->second].uses.push_back({end, slots});
    }
  }
}

void Fleet::Survey(Group* group) const {
  group->most_free = 0;
  group->freest = -1;
  for (int worker : group->workers) {
    group->largest = std::max(group->largest, workers_[worker].view->slots);
    if (workers_[worker].free <= group->most_free) continue;
    group->most_free = workers_[worker].free;
    group->freest = worker;
  }
}

const Fleet::Group& Fleet::Accepting(const WaitingJob& job) const {
  static const Group& none = *new Group;
  const auto found = accepting_.find({job.pool, job.device_type});
  return found == accepting_.end() ? none : found->second;
}

void Fleet::Take(int worker, int64_t slots, absl::Time end) {
  workers_[worker].free -= slots;
  workers_[worker].uses.push_back({end, slots});
  const WorkerView& view = *workers_[worker].view;
  for (const std::string& type : {std::string(), view.device_type}) {
    const auto group = accepting_.find({view.pool, type});
    if (group != accepting_.end() && group->second.freest == worker) Survey(&group->second);
  }
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
