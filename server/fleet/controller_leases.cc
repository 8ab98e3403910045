// Leases: given to queued jobs, ended when nobody renews them.
#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "planner/explain.h"
#include "proto/status.h"
#include "proto/text.h"
#include "server/fleet/controller.h"
#include "server/fleet/failure_policy.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/names.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// Between two looks of the deciding thread, on a machine that is merely busy.
constexpr absl::Duration kLongestLook = absl::Seconds(2);

// `job` has the epoch and the number of it already.
v1::Attempt AttemptOf(const v1::Job& job, const scheduler::Grant& grant, int64_t now_us) {
  v1::Attempt attempt;
  attempt.set_name(FormatAttemptName(job.name(), job.attempts()));
  attempt.set_attempt(job.attempts());
  attempt.set_epoch(job.epoch());
  *attempt.mutable_recipe() = job.chosen().recipe();
  attempt.set_world_size(job.world_size());
  for (const std::string& worker : grant.workers) {
    const int64_t first_rank = attempt.placements_size() * grant.slots;
    v1::Placement& placement = *attempt.add_placements();
    placement.set_worker(worker);
    placement.set_slots(grant.slots);
    placement.set_first_rank(first_rank);
  }
  attempt.set_start_time_us(now_us);
  attempt.set_state("leased");
  attempt.set_predicted_step_seconds(job.chosen().step_time_seconds());
  attempt.set_predicted_peak_memory_bytes(job.chosen().peak_memory_bytes());
  *attempt.mutable_predicted_memory() = job.chosen().memory();
  return attempt;
}

// All but where to go on from, and the workers' own.
void Describe(const v1::Job& job, const v1::Attempt& attempt, v1::StartAttempt* start) {
  start->mutable_lease()->set_job(job.name());
  start->mutable_lease()->set_epoch(job.epoch());
  start->set_attempt(attempt.attempt());
  *start->mutable_model() = job.spec().model();
  *start->mutable_recipe() = attempt.recipe();
  *start->mutable_dataset() = job.spec().dataset();
  start->set_world_size(attempt.world_size());
  start->set_recipe_text(planner::Summarize(attempt.recipe()));
}

// The port of the first worker at which the others join: none of `taken`, where there is another. Attempts of one job that follow
// each other begin to look at ports that do, too, so that one that another program has fails no two of them.
int64_t GangPort(const v1::LeaseId& lease, const v1::Worker& first, const std::set<int64_t>& taken) {
  const auto chance = static_cast<int64_t>(std::hash<std::string>()(lease.job()) % 65536);
  const int64_t ports = std::max<int64_t>(1, first.gang_ports());
  const auto at = [&](int64_t i) { return first.first_gang_port() + (chance + lease.epoch() + i) % ports; };
  for (int64_t i = 0; i < ports; ++i) {
    if (taken.count(at(i)) == 0) return at(i);
  }
  return at(0);
}

// What each worker is told, of what all are. `first`: the facts of the first, where the others join. `taken`: as of GangPort.
std::vector<v1::StartAttempt> Spread(const v1::StartAttempt& start, const v1::Attempt& attempt, const v1::Worker& first,
                                     const std::set<int64_t>& taken) {
  std::vector<v1::StartAttempt> starts;
  const int64_t port = GangPort(start.lease(), first, taken);
  for (const v1::Placement& placement : attempt.placements()) {
    v1::StartAttempt& own = starts.emplace_back(start);
    *own.mutable_placement() = placement;
    if (attempt.placements_size() == 1) continue;
    v1::GangPart& gang = *own.mutable_gang();
    gang.set_workers(attempt.placements_size());
    gang.set_index(static_cast<int64_t>(starts.size()) - 1);
    gang.set_address(first.gang_address());
    gang.set_port(port);
    gang.set_first_worker(attempt.placements(0).worker());
  }
  return starts;
}

}  // namespace

void Controller::ExpireLeases() {
  // A server that was stopped, or whose machine slept, has heard nobody meanwhile.
  const auto now = std::chrono::steady_clock::now();
  const absl::Duration pause = absl::FromChrono(now - std::exchange(looked_, now));
  // One late look after the other is the server's own slowness: who is silent is to be noticed all the same.
  const bool stood = pause > kLongestLook, stood_before = std::exchange(stood_before_, stood);
  if (stood && !stood_before) {
    book_.ExtendAll(pause);
    agents_.ExtendAll(pause);
  }
  for (const Lease& lease : book_.Expired(options_.steady())) {
    const std::string reason = absl::StrCat("nothing was heard of ", lease.worker, " for ", DurationText(options_.lease_ttl));
    LogWarning(absl::StrCat("the lease has expired: ", reason), About(lease));
    LoseLease(lease, reason);
  }
}

// Gives nothing, and a job that has failed, where no checkpoint is whole to go on from. `outside_domain`: the time that the plan
// says is that of another link.
absl::StatusOr<Controller::Starts> Controller::StoreLease(const scheduler::Grant& grant, bool outside_domain, v1::Job* job,
                                                          v1::Attempt* attempt) {
  Starts starts;
  const int64_t now_us = options_.now_us();
  const v1::Worker first = agents_.StoredFacts(grant.workers.front()).value_or(v1::Worker());
  std::set<int64_t> taken;
  for (const Lease& lease : book_.All()) {
    if (lease.gang_port != 0 && lease.gang_address == first.gang_address()) taken.insert(lease.gang_port);
  }
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    starts.clear();
    ASSIGN_OR_RETURN(auto stored, transaction.GetJob(grant.job));
    if (!stored) return absl::NotFoundError(grant.job);
    *job = *stored;
    ASSIGN_OR_RETURN(const auto from, FindResumePoint(transaction, *job));
    effects->changed_jobs.push_back(job->name());
    // Since it was queued, another retry of the same job has found them damaged.
    if (from.NoneIsWhole()) return FailAsNoneIsWhole(transaction, job, from, "", now_us);
    job->clear_not_before_time_us();
    job->set_epoch(job->epoch() + 1);
    job->set_attempts(job->attempts() + 1);
    *attempt = AttemptOf(*job, grant, now_us);
    if (outside_domain) attempt->clear_predicted_step_seconds();
    v1::StartAttempt start;
    if (from.checkpoint) {
      attempt->set_resume_step(from.checkpoint->step());
      start.set_resume_step(from.checkpoint->step());
      start.set_resume_directory(from.checkpoint->directory());
      start.set_take_back(from.checkpoint->take_back());
    }
    Describe(*job, *attempt, &start);
    starts = Spread(start, *attempt, first, taken);
    RETURN_IF_ERROR(transaction.PutAttempt(job->name(), *attempt));
    const char* const of_link =
        outside_domain ? "; its recipe and the time of its plan are for workers in one NVLink domain, which these are not" : "";
    return Move(transaction, job, v1::LEASED,
                absl::StrCat(SlotsText(grant.slots, grant.workers, job->spec().resources()), of_link), now_us);
  });
  if (!status.ok()) return status;
  return starts;
}

// Whether its workers are still of the kind that the job is planned for, and of several, such as may train together.
bool Controller::CanServe(const scheduler::Grant& grant) const {
  const auto planned = memory_.planned.find(grant.job);
  const auto first = agents_.PlaceOf(grant.workers.front());
  return std::all_of(grant.workers.begin(), grant.workers.end(), [&](const std::string& worker) {
    const auto place = agents_.PlaceOf(worker);
    const bool together = grant.workers.size() == 1 || (place && !place->gang.empty() && place->gang == first->gang);
    return place && together && (planned == memory_.planned.end() || place->kind == planned->second.kind);
  });
}

// Why it cannot be sent; nothing: it is.
std::optional<std::string> Controller::SendStart(const Lease& part, const v1::StartAttempt& start) {
  v1::ToAgent message;
  *message.mutable_start() = start;
  const auto place = agents_.PlaceOf(part.worker);
  const bool same = place && place->instance == part.instance && place->session == part.told_session;
  const auto changed = !same || place->leaves ? std::optional(place.value_or(Agents::Place()))
                                              : agents_.SendIfStill(part.worker, *place, message);
  if (!changed) return std::nullopt;
  return absl::StrCat(part.worker, changed->leaves ? " has left" : " has connected anew, or is gone");
}

// The lease is durable before an agent hears of it. Since the decision, an agent of other facts may have connected under a
// worker's name, or this one may have left; and once more while that was stored. A worker that cannot have its part ends the
// lease for all: what the others have heard of it is over then.
void Controller::GrantLease(const scheduler::Grant& grant, bool outside_domain) {
  if (!CanServe(grant)) return;
  v1::Job job;
  v1::Attempt attempt;
  const auto starts = StoreLease(grant, outside_domain, &job, &attempt);
  const std::string reason(starts.ok() ? job.reason() : starts.status().message());
  if (!starts.ok() || starts->empty())
    return LogWarning(absl::StrCat("no lease: ", reason), {.job = grant.job, .worker = starts.ok() ? "" : grant.workers.front()});
  if (const auto planned = memory_.planned.find(grant.job); planned != memory_.planned.end()) planned->second.moves = 0;
  if (options_.metrics != nullptr) options_.metrics->Lease();
  std::vector<Lease> parts = PartsOf(attempt, job.name());
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto place = agents_.PlaceOf(parts[i].worker);
    parts[i].told_session = place ? place->session : 0;
    parts[i].gang_address = starts->at(i).gang().address();
    parts[i].gang_port = starts->at(i).gang().port();
  }
  LogInfo(absl::StrCat("leased: ", reason), About(parts.front()));
  // In the book before it is sent: whoever connects or leaves from now on finds it there.
  book_.Grant(parts);
  if (!CanServe(grant)) {
    const char* const others = parts.size() > 1 ? ", or another of its workers," : "";
    return LoseLease(parts.front(), absl::StrCat(parts.front().worker, others, " has other slots now"));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (const auto why = SendStart(parts[i], starts->at(i))) return LoseLease(parts[i], *why);
  }
}

// Nobody need wait until it expires.
void Controller::LoseLease(const Lease& lease, const std::string& reason) {
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) {
    return LoseAttempt(transaction, lease.job, lease.epoch, reason, options_.now_us(), effects);
  });
  if (!status.ok()) LogError(std::string(status.message()), About(lease));
}

}  // namespace legoai::server
