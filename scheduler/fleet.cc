#include "scheduler/fleet.h"

#include <algorithm>
#include <utility>

#include "scheduler/gang.h"

namespace legoai::scheduler {
namespace {

bool Suits(const WorkerView& worker, const WaitingJob& job) {
  return worker.accepts && worker.pool == job.pool && (job.device_type.empty() || worker.device_type == job.device_type) &&
         (job.kinds.empty() || std::find(job.kinds.begin(), job.kinds.end(), worker.kind) != job.kinds.end());
}

}  // namespace

Fleet::Fleet(absl::Time now, const Snapshot& snapshot) {
  for (const WorkerView& view : snapshot.workers) {
    workers_.push_back({&view, view.free, {}});
    if (view.checked > 0) workers_.back().uses.push_back({absl::InfinitePast(), view.checked});
  }
  std::sort(workers_.begin(), workers_.end(), [](const Worker& a, const Worker& b) { return a.view->name < b.view->name; });
  std::map<std::string, int> index;
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) index[workers_[i].view->name] = i;
  for (const WaitingJob& job : snapshot.waiting) {
    const auto [group, is_new] = accepting_.try_emplace(WantedBy(job));
    if (!is_new) continue;
    for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
      if (!Suits(*workers_[i].view, job)) continue;
      group->second.workers.push_back(i);
      if (!workers_[i].view->gang.empty()) group->second.gangs[workers_[i].view->gang].push_back(i);
    }
    Survey(&group->second);
  }
  for (const RunningJob& job : snapshot.running) {
    const absl::Time end =
        job.stopping ? absl::InfinitePast() : std::max(now, job.expected_end.value_or(absl::InfiniteFuture()));
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

const Fleet::Group& Fleet::Accepting(const WaitingJob& job) const { return accepting_.at(WantedBy(job)); }

void Fleet::Take(int worker, int64_t slots, absl::Time end) {
  workers_[worker].free -= slots;
  workers_[worker].uses.push_back({end, slots});
  for (auto& [wanted, group] : accepting_) {
    if (group.freest == worker) Survey(&group);
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

namespace {

Reservation ReserveOne(const Fleet& fleet, const WaitingJob& job, const std::vector<int>& could_use) {
  Reservation best{&job, {}, std::nullopt};
  int chosen = -1;
  for (int worker : could_use) {
    const auto at = fleet.FreeAt(worker, job.slots);
    if (!at.has_value()) continue;
    const bool earlier = !best.at.has_value() || *at < *best.at;
    const bool same = best.at.has_value() && *at == *best.at;
    if (!earlier && !(same && fleet.workers()[worker].free > fleet.workers()[chosen].free)) continue;
    chosen = worker;
    best.at = at;
  }
  if (chosen >= 0) best.left_over[chosen] = fleet.FreeSlotsAt(chosen, *best.at) - job.slots;
  return best;
}

// When each of them will have so many slots free, the earliest first; those of which that is not known are left out.
std::vector<std::pair<absl::Time, int>> ReadyTimes(const Fleet& fleet, const std::vector<int>& workers, int64_t slots) {
  std::vector<std::pair<absl::Time, int>> ready;
  for (int worker : workers) {
    if (fleet.workers()[worker].free >= slots) {
      ready.push_back({absl::InfinitePast(), worker});
    } else if (const auto at = fleet.FreeAt(worker, slots)) {
      ready.push_back({*at, worker});
    }
  }
  std::sort(ready.begin(), ready.end());
  return ready;
}

// All start when the last of them has its slots.
Reservation ReserveGang(const Fleet& fleet, const WaitingJob& job, const std::vector<int>& could_use) {
  Reservation best{&job, {}, std::nullopt};
  std::map<std::string, std::vector<int>> gangs;
  for (int worker : could_use) gangs[fleet.workers()[worker].view->gang].push_back(worker);
  const auto count = static_cast<size_t>(job.workers);
  for (const auto& [gang, workers] : gangs) {
    const auto ready = ReadyTimes(fleet, workers, job.slots);
    if (ready.size() < count || (best.at && ready[count - 1].first >= *best.at)) continue;
    best.at = ready[count - 1].first;
    std::vector<int> by_then;
    for (const auto& [at, worker] : ready) {
      if (at <= *best.at) by_then.push_back(worker);
    }
    best.left_over.clear();
    for (int worker : Nearest(fleet, by_then, count)) best.left_over[worker] = fleet.FreeSlotsAt(worker, *best.at) - job.slots;
  }
  return best;
}

}  // namespace

Reservation Reserve(const Fleet& fleet, const WaitingJob& job, const std::vector<int>& could_use) {
  return job.workers == 1 ? ReserveOne(fleet, job, could_use) : ReserveGang(fleet, job, could_use);
}

void Reservations::Add(const Reservation& reservation, const std::vector<int>& could_use) {
  Reservation& kept = reservations_[reservation.job] = reservation;
  for (int worker : could_use) keeps_[worker] = &kept;
}

const Reservation* Reservations::Of(const WaitingJob& job) const {
  const auto found = reservations_.find(&job);
  return found == reservations_.end() ? nullptr : &found->second;
}

bool Reservations::Outlasts(int worker, absl::Time end) const {
  const Reservation* kept = keeps_[worker];
  return kept != nullptr && kept->left_over.count(worker) > 0 && end > *kept->at;
}

bool Reservations::Allow(int worker, int64_t slots, absl::Time end) const {
  const Reservation* kept = keeps_[worker];
  if (kept != nullptr && kept->left_over.empty()) return false;
  return !Outlasts(worker, end) || slots <= kept->left_over.at(worker);
}

void Reservations::Started(int worker, int64_t slots, absl::Time end) {
  if (Outlasts(worker, end)) keeps_[worker]->left_over.at(worker) -= slots;
}

}  // namespace legoai::scheduler
