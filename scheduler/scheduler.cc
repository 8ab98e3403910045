#include "scheduler/scheduler.h"

#include <algorithm>
#include <map>
#include <utility>

#include "scheduler/explanation.h"
#include "scheduler/fleet.h"
#include "scheduler/queue_order.h"
#include "scheduler/reservation.h"

namespace legoai::scheduler {
namespace {

// The worker that fits and where nobody's reservation is hurt: of the job's kind rather than of another, then with the fewest
// free slots; -1: none.
int BestFit(const Fleet& fleet, const Reservations& reservations, const WaitingJob& job, absl::Time end) {
  int best = -1;
  const Fleet::Group& group = fleet.Accepting(job);
  if (group.most_free < job.slots) return best;
  const auto order = [&](int worker) {
    return std::pair(fleet.workers()[worker].view->kind != job.kind, fleet.workers()[worker].free);
  };
  for (int worker : group.workers) {
    if (fleet.workers()[worker].free < job.slots || (best >= 0 && order(best) <= order(worker))) continue;
    if (reservations.Allow(worker, job.slots, end)) best = worker;
  }
  return best;
}

// Makes the job a head, unless there is no worker large enough or an earlier head could use one of them.
void KeepFor(const Fleet& fleet, const WaitingJob& job, Reservations* reservations) {
  std::vector<int> could_use;
  for (int worker : fleet.Accepting(job).workers) {
    if (fleet.workers()[worker].view->slots < job.slots) continue;
    if (reservations->KeptFor(worker) != nullptr) return;
    could_use.push_back(worker);
  }
  if (!could_use.empty()) reservations->Add(Reserve(fleet, job, could_use), could_use);
}

}  // namespace

Decision Schedule(absl::Time now, const Snapshot& snapshot) {
  Fleet fleet(now, snapshot);
  Reservations reservations(snapshot.workers.size());
  Decision decision;
  std::vector<const WaitingJob*> left;
  for (const WaitingJob* job : QueueOrder(snapshot.waiting)) {
    const absl::Time end = now + std::max(absl::ZeroDuration(), job->expected_run.value_or(absl::InfiniteDuration()));
    const int worker = BestFit(fleet, reservations, *job, end);
    if (worker < 0) {
      KeepFor(fleet, *job, &reservations);
      left.push_back(job);
      continue;
    }
    fleet.Take(worker, job->slots, end);
    reservations.Started(worker, job->slots, end);
    decision.grants.push_back({job->name, fleet.workers()[worker].view->name, job->slots});
  }
  std::map<std::string, int64_t> positions;  // by pool
  for (const WaitingJob* job : left) {
    decision.waits.push_back(Explain(now, fleet, reservations, *job, ++positions[job->pool]));
  }
  return decision;
}

}  // namespace legoai::scheduler
