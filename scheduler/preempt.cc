#include "scheduler/preempt.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "scheduler/fleet.h"

namespace legoai::scheduler {
namespace {

int64_t SlotsOf(const RunningJob& job) {
  int64_t all = 0;
  for (const auto& [worker, slots] : job.slots) all += slots;
  return all;
}

// On which workers room is made: of the kind and in one NVLink domain, of the kind, or any that the job may use.
enum class Within { kDomain, kKind, kAny };

// The names of what a worker's slots must be in together for the job; nothing: they are no room for it.
std::optional<std::vector<std::string>> PlaceOf(const WorkerView& worker, const WaitingJob& job, Within within) {
  const bool alone = job.workers > 1 && worker.gang.empty();
  if (worker.slots < job.slots || alone || (within != Within::kAny && worker.kind != job.kind)) return std::nullopt;
  std::vector<std::string> place;
  if (job.workers > 1) place.push_back(worker.gang);
  if (within != Within::kDomain) return place;
  if (worker.place.size() <= kDomainLevel || worker.place[kDomainLevel].empty()) return std::nullopt;
  place.insert(place.end(), worker.place.begin(), worker.place.begin() + kDomainLevel + 1);
  return place;
}

// Where a job could be, if the slots of some running ones were free. Nothing here takes longer than what one running job uses.
class Room {
 public:
  Room(const Fleet& fleet, const WaitingJob& job, Within within) : slots_(job.slots), workers_(job.workers) {
    std::map<std::vector<std::string>, size_t> numbers;
    for (const int index : fleet.Accepting(job).workers) {
      const Fleet::Worker& worker = fleet.workers()[index];
      const auto names = PlaceOf(*worker.view, job, within);
      if (!names) continue;
      const size_t number = numbers.try_emplace(*names, places_.size()).first->second;
      if (number == places_.size()) places_.emplace_back();
      ++places_[number].workers;
      uses_[worker.view->name] = {number, 0};
      Add(worker.free + worker.view->checked, &uses_[worker.view->name]);
    }
  }

  // Whether there are such workers, used or free.
  bool IsThere() const {
    return std::any_of(places_.begin(), places_.end(), [&](const Place& place) { return place.workers >= workers_; });
  }
  bool Fits() const { return full_ > 0; }
  bool IsUsedBy(const RunningJob& job) const {
    return std::any_of(job.slots.begin(), job.slots.end(), [&](const auto& use) { return uses_.count(use.first) > 0; });
  }
  void Free(const RunningJob& job, int sign = 1) {
    for (const auto& [worker, slots] : job.slots) {
      if (const auto use = uses_.find(worker); use != uses_.end()) Add(sign * slots, &use->second);
    }
  }
  void FreeThoseThatStop(const Snapshot& snapshot) {
    for (const RunningJob& one : snapshot.running) {
      if (one.stopping) Free(one);
    }
  }

 private:
  struct Place {
    int64_t workers = 0, free = 0;  // of these, workers with as many free slots as the job wants of each
  };
  struct Use {
    size_t place = 0;
    int64_t free = 0;  // slots
  };

  void Add(int64_t slots, Use* use) {
    Place& place = places_[use->place];
    const int64_t before = place.free;
    place.free -= use->free >= slots_;
    use->free += slots;
    place.free += use->free >= slots_;
    full_ += (place.free >= workers_) - (before >= workers_);
  }

  const int64_t slots_, workers_;
  std::vector<Place> places_;
  std::map<std::string, Use> uses_;  // by worker
  int64_t full_ = 0;                 // places that hold the job
};

Room OwnRoom(const Fleet& fleet, const WaitingJob& job) {
  if (job.in_domain && job.workers > 1) {
    if (Room of_domain(fleet, job, Within::kDomain); of_domain.IsThere()) return of_domain;
  }
  if (Room of_kind(fleet, job, Within::kKind); of_kind.IsThere()) return of_kind;
  return Room(fleet, job, Within::kAny);
}

// Those that may be stopped and would leave something to the room, in the order in which they are.
std::vector<const RunningJob*> Others(const Snapshot& snapshot, const WaitingJob& job, const Room& room) {
  std::vector<const RunningJob*> others;
  for (const RunningJob& one : snapshot.running) {
    if (!one.stopping && one.priority < job.priority && room.IsUsedBy(one)) others.push_back(&one);
  }
  std::sort(others.begin(), others.end(), [](const RunningJob* a, const RunningJob* b) {
    return std::tuple(a->priority, SlotsOf(*a), a->name) < std::tuple(b->priority, SlotsOf(*b), b->name);
  });
  return others;
}

}  // namespace

std::vector<std::string> MakeRoom(const Snapshot& snapshot, const WaitingJob& job) {
  const Fleet fleet(absl::InfinitePast(), snapshot);
  Room anywhere(fleet, job, Within::kAny);
  anywhere.FreeThoseThatStop(snapshot);
  if (anywhere.Fits() || !anywhere.IsThere()) return {};
  Room room = OwnRoom(fleet, job);
  room.FreeThoseThatStop(snapshot);
  std::vector<const RunningJob*> stopped;
  for (const RunningJob* one : Others(snapshot, job, room)) {
    if (room.Fits()) break;
    room.Free(*one);
    stopped.push_back(one);
  }
  if (!room.Fits()) return {};
  std::vector<std::string> names;
  for (auto one = stopped.rbegin(); one != stopped.rend(); ++one) {
    room.Free(**one, -1);
    if (room.Fits()) continue;
    room.Free(**one);
    names.push_back((*one)->name);
  }
  return names;
}

}  // namespace legoai::scheduler
