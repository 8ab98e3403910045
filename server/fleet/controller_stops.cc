// Trainers that are to stop: of jobs that are cancelled, of those whose worker is being drained, and of those that make room.
// What a job was asked is in the store, so that a server that is started anew goes on with it; the agent is told again whenever
// it connects.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/fleet/controller.h"
#include "server/jobs/stop.h"

namespace legoai::server {
namespace {

// What is left of the time to save. A clock that was set back gives no more than there was.
absl::Duration GraceLeft(const v1::StopRequest& stop, int64_t now_us) {
  const int64_t all = stop.deadline_time_us() - stop.request_time_us(), left = stop.deadline_time_us() - now_us;
  return absl::Microseconds(std::clamp<int64_t>(left, 0, std::max<int64_t>(all, 0)));
}

// Whether the agent, in this session of its, is to hear nothing more of it. Trainers that were told to leave out the save cannot
// be told otherwise; those that save hear of another deadline, since a job that is being moved may be cancelled with more time.
bool HasBeenTold(const Lease& lease, uint64_t session, bool saves, int64_t deadline_us) {
  if (lease.stop_session != session) return false;
  return !lease.stop_saves || (saves && lease.stop_until_us == deadline_us);
}

}  // namespace

absl::StatusOr<v1::Worker> Controller::Drain(const v1::DrainWorkerRequest& request) {
  ASSIGN_OR_RETURN(const absl::Duration grace, StopGrace("grace_seconds", request.grace_seconds()));
  const std::string& name = request.name();
  MutexLock facts_lock(facts_mutex_);
  auto facts = agents_.StoredFacts(name);
  if (!facts)
    return FieldError("name", name, "is no worker that the server knows: `lego workers` lists them", absl::StatusCode::kNotFound);
  facts->set_state(request.undo() ? v1::READY : v1::DRAINING);
  facts->set_lets_finish(!request.undo() && request.let_finish());
  facts->set_drain_grace_seconds(request.undo() ? 0 : absl::ToDoubleSeconds(grace));
  const absl::Status kept = store_->Write([&](store::Transaction& transaction) { return transaction.PutWorker(*facts); });
  if (!kept.ok()) return kept;
  agents_.SetDraining(*facts);
  const v1::Worker worker = WithLeases(agents_.FindWorker(name).value_or(*facts), book_.All());
  notifier_->WorkersChanged();
  bell_.Ring();
  return worker;
}

// A lease that was given while its worker began to drain is seen here, too.
void Controller::MoveJobsOfDraining() {
  for (const v1::Worker& worker : agents_.Draining()) {
    for (const Lease& lease : book_.OfWorker(worker.name())) {
      const ActiveJob* const job = jobs_.Find(lease.job);
      if (job == nullptr || job->epoch != lease.epoch || job->stop) continue;
      MoveJob(lease, absl::StrCat(lease.worker, " is being drained"),
              StopGrace("", worker.drain_grace_seconds()).value_or(kDefaultStopGrace));
    }
  }
}

void Controller::MakeRoom(const std::vector<ToStop>& to_stop) {
  if (to_stop.empty()) return;
  const std::vector<Lease> leases = book_.All();
  for (const ToStop& stop : to_stop) {
    const auto first = std::find_if(leases.begin(), leases.end(),
                                    [&](const Lease& lease) { return lease.job == stop.job && lease.IsFirst(); });
    if (first != leases.end()) MoveJob(*first, stop.because, options_.preempt_grace);
  }
}

void Controller::MoveJob(const Lease& lease, const std::string& why, absl::Duration grace) {
  bool asked = false;
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    asked = false;
    ASSIGN_OR_RETURN(auto stored, transaction.GetJob(lease.job));
    if (!stored || stored->epoch() != lease.epoch) return absl::OkStatus();
    effects->changed_jobs.push_back(lease.job);
    ASSIGN_OR_RETURN(asked, AskToMove(transaction, why, grace, options_.now_us(), &*stored));
    return absl::OkStatus();
  });
  if (!status.ok()) LogError(absl::StrCat("it is not moved yet: ", status.message()), About(lease));
  if (asked) LogInfo(absl::StrCat("is to save and go on where there is room: ", why), About(lease));
}

void Controller::SendStops() {
  for (const Lease& lease : book_.All()) {
    const ActiveJob* const job = jobs_.Find(lease.job);
    if (job == nullptr || !job->stop || job->epoch != lease.epoch) continue;
    if (!lease.IsFirst()) continue;  // its trainers hear of it from the first worker's
    const auto place = agents_.PlaceOf(lease.worker);
    if (!place || place->session == 0) continue;
    const absl::Duration grace = GraceLeft(*job->stop, options_.now_us());
    const bool saves = job->stop->save() && grace > absl::ZeroDuration();
    const int64_t deadline_us = job->stop->deadline_time_us();
    if (HasBeenTold(lease, place->session, saves, deadline_us)) continue;
    v1::ToAgent message;
    v1::StopAttempt& stop = *message.mutable_stop();
    stop.mutable_lease()->set_job(lease.job);
    stop.mutable_lease()->set_epoch(lease.epoch);
    stop.set_save(saves);
    stop.set_reason(job->stop->reason());
    if (saves) stop.set_grace_seconds(absl::ToDoubleSeconds(grace));
    if (agents_.Send(place->session, message)) book_.ToldToStop(lease.job, lease.epoch, place->session, saves, deadline_us);
  }
}

}  // namespace legoai::server
