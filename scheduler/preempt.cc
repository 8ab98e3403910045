#include "scheduler/preempt.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "scheduler/fleet.h"

namespace legoai::scheduler {
namespace {

int64_t SlotsOf(const RunningJob& job) {
  int64_t all = 0;
  for (const auto& [worker, slots] : job.slots) all += slots;
  return all;
}

// Where a job could be, if the slots of some running ones were free.
class Room {
 public:
  Room(const Snapshot& snapshot, const WaitingJob& job) : job_(job), fleet_(absl::InfinitePast(), snapshot) {
    for (const Fleet::Worker& worker : fleet_.workers()) free_[worker.view->name] = worker.free;
  }

  void Free(const RunningJob& job, int sign = 1) {
    for (const auto& [worker, slots] : job.slots) free_[worker] += sign * slots;
  }
  bool Fits() const {
    return Has([&](const WorkerView& worker) { return free_.at(worker.name) >= job_.slots; });
  }
  // On workers of the kind that its recipe is for.
  bool FitsItsKind() const {
    return Has([&](const WorkerView& worker) { return worker.kind == job_.kind && free_.at(worker.name) >= job_.slots; });
  }
  // Whether there are such workers, used or free.
  bool HasItsKind() const {
    return Has([&](const WorkerView& worker) { return worker.kind == job_.kind && worker.slots >= job_.slots; });
  }

 private:
  template <class Holds>
  bool Has(Holds holds) const {
    const auto count = [&](const std::vector<int>& workers) {
      return std::count_if(workers.begin(), workers.end(), [&](int worker) { return holds(*fleet_.workers()[worker].view); });
    };
    const Fleet::Group& group = fleet_.Accepting(job_);
    if (job_.workers == 1) return count(group.workers) > 0;
    return std::any_of(group.gangs.begin(), group.gangs.end(),
                       [&](const auto& gang) { return count(gang.second) >= job_.workers; });
  }

  const WaitingJob& job_;
  const Fleet fleet_;
  std::map<std::string, int64_t> free_;
};

}  // namespace

std::vector<std::string> MakeRoom(const Snapshot& snapshot, const WaitingJob& job) {
  Room room(snapshot, job);
  std::vector<const RunningJob*> others;
  for (const RunningJob& one : snapshot.running) {
    if (one.stopping) room.Free(one);
    if (!one.stopping && one.priority < job.priority) others.push_back(&one);
  }
  if (room.Fits()) return {};
  const bool of_its_kind = room.HasItsKind();
  const auto fits = [&] { return of_its_kind ? room.FitsItsKind() : room.Fits(); };
  std::sort(others.begin(), others.end(), [](const RunningJob* a, const RunningJob* b) {
    return std::tuple(a->priority, SlotsOf(*a), a->name) < std::tuple(b->priority, SlotsOf(*b), b->name);
  });
  std::vector<const RunningJob*> stopped;
  for (const RunningJob* one : others) {
    if (fits()) break;
    room.Free(*one);
    stopped.push_back(one);
  }
  if (!fits()) return {};
  std::vector<std::string> names;
  for (auto one = stopped.rbegin(); one != stopped.rend(); ++one) {
    room.Free(**one, -1);
    if (fits()) continue;
    room.Free(**one);
    names.push_back((*one)->name);
  }
  return names;
}

}  // namespace legoai::scheduler
