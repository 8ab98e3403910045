#include "server/fleet/reconcile.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/preempt.h"
#include "server/fleet/failure_policy.h"
#include "server/jobs/names.h"

namespace legoai::server {
namespace {

// So often a job is planned again because slots of another kind are free, before it waits for those that it is planned for: where
// two kinds are free by turns, it still starts.
constexpr int64_t kMostMoves = 2;

// Of the workers of each pool that accept jobs: the largest of each kind.
using Kinds = std::map<std::string, std::map<std::string, int64_t>>;

class Reconciler {
 public:
  Reconciler(const FleetSnapshot& snapshot, Offers* offers, PlanningMemory* memory)
      : snapshot_(snapshot), jobs_(*snapshot.jobs), offers_(*offers), memory_(*memory) {}

  Reconciliation Run() {
    GiveSlots();
    ForgetJobsThatAreOver();
    PlanOthers();
    SortAsTheScheduler();
    return std::move(out_);
  }

 private:
  // ---- Slots ----

  void GiveSlots() {
    scheduler::Snapshot snapshot;
    snapshot.workers = snapshot_.workers;
    const Kinds kinds = KindsOfPools();
    for (const auto& [name, job] : jobs_.all()) {
      if (job.state == v1::QUEUED || job.state == v1::RESTARTING) snapshot.waiting.push_back(AsWaiting(job, kinds));
    }
    if (snapshot.waiting.empty()) return;
    const absl::Time now = absl::FromUnixMicros(snapshot_.now_us);
    snapshot.running = Running(now);
    scheduler::Decision decision = scheduler::Schedule(now, snapshot);
    const auto stopped = MakeRoom(decision, &snapshot);
    if (!stopped.empty()) decision = scheduler::Schedule(now, snapshot);  // which lets nobody into that room
    std::set<std::string> kept;  // workers of domains for which jobs wait
    for (const scheduler::Grant& grant : decision.grants) {
      const bool uses_kept =
          std::any_of(grant.workers.begin(), grant.workers.end(), [&](const std::string& one) { return kept.count(one) > 0; });
      if (uses_kept) {
        KeepWaiting(*jobs_.Find(grant.job), "its slots are kept for a job before it, for which others leave one NVLink domain");
      } else if (const auto domain = AwaitsDomain(grant, snapshot, decision.grants); !domain.empty()) {
        kept.insert(domain.begin(), domain.end());
      } else {
        Take(grant);
      }
    }
    for (const scheduler::Wait& wait : decision.waits) Take(wait);
    for (const auto& [job, jobs] : stopped) {
      absl::StrAppend(&out_.waits[job].reason, "; ", jobs,
                      jobs == 1 ? " job of lower priority is" : " jobs of lower priority are", " asked to save and make room");
    }
  }

  // Asks jobs to stop for those that wait behind nobody who could use any of the same workers, marks them as stopping in the
  // snapshot, and returns how many for which job. Before its back-off is over a job would leave slots idle.
  std::map<std::string, size_t> MakeRoom(const scheduler::Decision& decision, scheduler::Snapshot* snapshot) {
    std::map<std::string, size_t> stopped_for;
    if (!snapshot_.preempts) return stopped_for;
    for (const scheduler::Wait& wait : decision.waits) {
      if (!wait.is_first) continue;
      const ActiveJob& job = *jobs_.Find(wait.job);
      if (BackOffLeft(job.not_before_us, snapshot_.now_us) != absl::ZeroDuration()) {
        out_.decide_at_us = std::min(out_.decide_at_us, job.not_before_us);
        continue;
      }
      const scheduler::WaitingJob& waiting = WaitingIn(*snapshot, wait.job);
      const std::vector<std::string> stopped =
          scheduler::MakeRoom(BesideEarlier(*snapshot, decision.grants, waiting), waiting);
      for (const std::string& name : stopped) out_.to_stop.push_back({name, NeedsSlotsText(job, name)});
      for (scheduler::RunningJob& one : snapshot->running)
        one.stopping = one.stopping || std::count(stopped.begin(), stopped.end(), one.name) > 0;
      if (!stopped.empty()) stopped_for[wait.job] = stopped.size();
    }
    return stopped_for;
  }

  static const scheduler::WaitingJob& WaitingIn(const scheduler::Snapshot& snapshot, const std::string& job) {
    return *std::find_if(snapshot.waiting.begin(), snapshot.waiting.end(),
                         [&](const scheduler::WaitingJob& one) { return one.name == job; });
  }

  // What slots that are given away now to those before it leave for `job`. Those behind it are given nothing where room is made.
  static scheduler::Snapshot BesideEarlier(scheduler::Snapshot snapshot, const std::vector<scheduler::Grant>& grants,
                                           const scheduler::WaitingJob& job) {
    for (const scheduler::Grant& grant : grants) {
      if (!scheduler::IsBefore(WaitingIn(snapshot, grant.job), job)) continue;
      for (scheduler::WorkerView& worker : snapshot.workers)
        worker.free -= std::count(grant.workers.begin(), grant.workers.end(), worker.name) * grant.slots;
    }
    return snapshot;
  }

  // Jobs of other projects are not named.
  static std::string NeedsSlotsText(const ActiveJob& job, const std::string& stopped) {
    const auto own = ParseJobName("name", job.name), other = ParseJobName("name", stopped);
    const bool is_one_project = own.ok() && other.ok() && own->project == other->project;
    return absl::StrCat(is_one_project ? job.name : "a job of another project", ", of priority ", job.priority,
                        ", waits for its slots");
  }

  Kinds KindsOfPools() const {
    Kinds kinds;
    for (const scheduler::WorkerView& worker : snapshot_.workers) {
      int64_t& largest = kinds[worker.pool][worker.kind];
      if (worker.accepts) largest = std::max(largest, worker.slots);
    }
    return kinds;
  }

  scheduler::WaitingJob AsWaiting(const ActiveJob& job, const Kinds& kinds) const {
    scheduler::WaitingJob waiting = {.name = job.name,
                                     .priority = job.priority,
                                     .restarting = job.epoch > 0,
                                     .submitted_us = job.submitted_us,
                                     .slots = job.world_size / job.workers,
                                     .pool = job.wanted.pool(),
                                     .device_type = job.wanted.device_type(),
                                     .workers = job.workers};
    if (job.time_left) waiting.expected_run = *job.time_left + jobs_.longest_start();
    const auto planned = memory_.planned.find(job.name);
    const auto there = kinds.find(waiting.pool);
    if (planned == memory_.planned.end() || there == kinds.end()) return waiting;
    waiting.kind = planned->second.kind;
    waiting.in_domain = KeepsToDomain(job, planned->second, waiting.slots);
    const auto own = there->second.find(waiting.kind);
    const bool stays = planned->second.moves >= kMostMoves && own != there->second.end() && own->second >= waiting.slots;
    std::vector<std::string> possible = {waiting.kind};
    bool all = !stays;
    for (const auto& [kind, largest] : there->second) {
      if (kind == waiting.kind) continue;
      // Whether the workers that it would get are of one NVLink domain is not known yet.
      const bool refused = Refused(job, kind, waiting.slots, /*in_domain=*/false) ||
                           (job.workers > 1 && Refused(job, kind, waiting.slots, /*in_domain=*/true));
      if (!stays && !refused) possible.push_back(kind);
      all = all && !refused;
    }
    if (!all) waiting.kinds = std::move(possible);
    return waiting;
  }

  // Whether it is planned again where its workers are not of one NVLink domain.
  bool KeepsToDomain(const ActiveJob& job, const PlanningMemory::Planned& planned, int64_t slots) const {
    return planned.in_domain && planned.moves < kMostMoves && !Refused(job, planned.kind, slots, /*in_domain=*/false);
  }

  // The workers of the domain that jobs that stop leave it, and checks that end, for which it waits: it keeps what it is given in
  // several meanwhile, and is not planned again for these. None: it does not wait.
  std::vector<std::string> AwaitsDomain(const scheduler::Grant& grant, const scheduler::Snapshot& snapshot,
                                        const std::vector<scheduler::Grant>& grants) {
    const ActiveJob& job = *jobs_.Find(grant.job);
    const auto planned = memory_.planned.find(grant.job);
    if (planned == memory_.planned.end() || !KeepsToDomain(job, planned->second, grant.slots) ||
        offers_.AreInDomain(grant.workers, grant.slots))
      return {};
    std::map<std::string, int64_t> leaves;  // by worker
    for (const scheduler::WorkerView& worker : snapshot.workers) leaves[worker.name] = worker.checked;
    for (const scheduler::RunningJob& one : snapshot.running) {
      for (const auto& [worker, slots] : one.slots) leaves[worker] += one.stopping ? slots : 0;
    }
    struct Workers {
      std::vector<std::string> hold;
      int64_t hold_now = 0;
    };
    std::map<std::tuple<std::string, std::string, std::string>, Workers> domains;  // by gang, rack and domain
    const scheduler::Snapshot beside = BesideEarlier(snapshot, grants, WaitingIn(snapshot, grant.job));
    for (const scheduler::WorkerView& worker : beside.workers) {
      const bool is_alike = worker.accepts && worker.pool == job.wanted.pool() && worker.kind == planned->second.kind;
      const bool in_domain = worker.place.size() > scheduler::kDomainLevel && !worker.place[scheduler::kDomainLevel].empty();
      if (!is_alike || !in_domain || worker.gang.empty() || worker.free + leaves[worker.name] < grant.slots) continue;
      Workers& there = domains[{worker.gang, worker.place[0], worker.place[scheduler::kDomainLevel]}];
      there.hold.push_back(worker.name);
      there.hold_now += worker.free >= grant.slots;
    }
    // One that holds it now is kept for somebody else.
    const auto made = std::find_if(domains.begin(), domains.end(), [&](const auto& domain) {
      return std::ssize(domain.second.hold) >= job.workers && domain.second.hold_now < job.workers;
    });
    if (made == domains.end()) return {};
    KeepWaiting(job, "starts as soon as jobs that are stopping, or checks of machines, have left it one NVLink domain");
    return made->second.hold;
  }

  void KeepWaiting(const ActiveJob& job, const std::string& reason) {
    const std::string befallen = job.state == v1::RESTARTING ? absl::StrCat(job.reason, "; ") : "";
    out_.waits[job.name] = {job.version, befallen + reason, 0};
  }

  // Whether plans of the job for such slots were in vain.
  bool Refused(const ActiveJob& job, const std::string& kind, int64_t slots, bool in_domain) const {
    const auto refusal = memory_.refusals.find(job.name);
    return refusal != memory_.refusals.end() && refusal->second.Refuses(ClusterName(kind, slots, job.workers, in_domain));
  }

  std::vector<scheduler::RunningJob> Running(absl::Time now) const {
    std::map<std::string, scheduler::RunningJob> running;
    for (const Lease& lease : snapshot_.leases) {
      scheduler::RunningJob& one = running[lease.job];
      one.name = lease.job;
      one.slots[lease.worker] += lease.slots;
      const ActiveJob* const job = jobs_.Find(lease.job);
      if (job != nullptr && job->time_left) one.expected_end = now + *job->time_left;  // of one that starts: the earliest
      one.priority = job == nullptr ? INT64_MAX : job->priority;
      one.stopping = job != nullptr && job->stop.has_value();
    }
    std::vector<scheduler::RunningJob> list;
    for (auto& [name, one] : running) list.push_back(std::move(one));
    return list;
  }

  void Take(const scheduler::Grant& grant) {
    const ActiveJob& job = *jobs_.Find(grant.job);
    if (BackOffLeft(job.not_before_us, snapshot_.now_us) != absl::ZeroDuration()) {
      // Its slots are kept for it meanwhile: failures of its trainers cost a job its time, and not its place.
      const std::string until = absl::FormatTime("%H:%M:%S", absl::FromUnixMicros(job.not_before_us), absl::UTCTimeZone());
      out_.waits[job.name] = {job.version, absl::StrCat(job.reason, "; waits until ", until, " UTC"), 0};
      out_.decide_at_us = std::min(out_.decide_at_us, job.not_before_us);
    } else if (auto move = Replan(job, grant)) {
      out_.to_plan.push_back(*std::move(move));
    } else {
      out_.grants.push_back(grant);
      const auto planned = memory_.planned.find(grant.job);
      if (planned != memory_.planned.end() && planned->second.in_domain && !offers_.AreInDomain(grant.workers, grant.slots))
        out_.outside_domain.insert(grant.job);
    }
  }

  // What becomes of slots that a job was given and its recipe was not chosen for; nothing: they are its own.
  std::optional<ToPlan> Replan(const ActiveJob& job, const scheduler::Grant& grant) const {
    const auto planned = memory_.planned.find(grant.job);
    const v1::Worker* const worker = offers_.Find(grant.workers.front());
    if (planned == memory_.planned.end() || worker == nullptr) return std::nullopt;
    const std::string kind = SlotKind(*worker);
    const bool in_domain = offers_.AreInDomain(grant.workers, grant.slots);
    const bool leaves_domain = !in_domain && KeepsToDomain(job, planned->second, grant.slots);
    if (kind == planned->second.kind && !leaves_domain) return std::nullopt;
    const std::string because =
        kind == planned->second.kind
            ? "its recipe is for workers in one NVLink domain, and those that are free are not: "
            : absl::StrCat("its recipe is for slots of ", planned->second.kind, ", and those that are free are of ", kind, ": ");
    return ToPlan{&job, worker, grant.slots, job.workers, because, grant.workers, in_domain};
  }

  void Take(const scheduler::Wait& wait) {
    const ActiveJob& job = *jobs_.Find(wait.job);
    std::string reason = wait.text;
    const bool refused = wait.why == scheduler::Wait::Why::kNoSuchWorker && memory_.refusals.count(wait.job) > 0;
    if (wait.why == scheduler::Wait::Why::kTooLarge || refused) absl::StrAppend(&reason, "; ", TooLargeText(job));
    // What has befallen a restarting job stays its reason.
    if (job.state == v1::RESTARTING) reason = absl::StrCat(job.reason, "; ", reason);
    out_.waits[wait.job] = {job.version, std::move(reason), wait.position};
  }

  // What becomes of a job whose recipe is for more slots than any worker has.
  std::string TooLargeText(const ActiveJob& job) {
    const Offer& offer = offers_.To(job.wanted);
    if (offer.worker == nullptr) return offers_.WhyNone(job.wanted);
    const auto refusal = memory_.refusals.find(job.name);
    if (refusal == memory_.refusals.end()) return "it is planned for fewer slots if they do not come back soon";
    // A restarting job has it as its reason already.
    const std::string tried = job.state == v1::RESTARTING ? "" : absl::StrCat(refusal->second.text, "; ");
    const int64_t each = job.world_size / job.workers;
    const std::string those = job.workers == 1 ? absl::StrCat("a worker with ", each, " slots")
                                               : absl::StrCat(job.workers, " workers with ", each, " slots each");
    return absl::StrCat(tried, "it waits for ", those, ", or for other slots to be planned for: connect one, or cancel the job");
  }

  // ---- Plans ----

  void ForgetJobsThatAreOver() {
    const auto is_over = [this](const auto& entry) { return jobs_.Find(entry.first) == nullptr; };
    std::erase_if(memory_.too_large_since, is_over);
    std::erase_if(memory_.refusals, is_over);
    std::erase_if(memory_.planned, is_over);
    std::erase_if(memory_.plan_keys, is_over);
  }

  void PlanOthers() {
    for (const auto& [name, job] : jobs_.all()) {
      const bool for_fewer = job.state != v1::SUBMITTED && MayPlanForFewer(job);
      if (job.state != v1::SUBMITTED && !for_fewer) continue;
      const Offer& offer = for_fewer ? NotRefused(job) : offers_.To(job.wanted);
      if (offer.worker != nullptr) {
        out_.to_plan.push_back({&job, offer.worker, offer.slots, offer.workers, for_fewer ? "its slots are gone: " : ""});
        out_.to_plan.back().in_domain = offer.in_domain;
      } else if (!for_fewer) {
        out_.waits[name] = {job.version, offers_.WhyNone(job.wanted), 0};
      }
    }
  }

  // What it can be planned for and has not been in vain: of several workers fewer and fewer slots are tried. The first offer
  // where there is nothing else.
  const Offer& NotRefused(const ActiveJob& job) {
    const Offer& first = offers_.To(job.wanted);
    const auto refusal = memory_.refusals.find(job.name);
    if (refusal == memory_.refusals.end()) return first;
    v1::Resources wanted = job.wanted;
    for (const Offer* offer = &first; offer->worker != nullptr; offer = &offers_.To(wanted)) {
      if (!refusal->second.Refuses(ClusterName(SlotKind(*offer->worker), offer->slots, offer->workers, offer->in_domain)))
        return *offer;
      const int64_t fewer = offer->slots * offer->workers - 1;
      if (offer->workers == 1 || fewer < wanted.min_slots()) break;
      wanted.set_slots(fewer);
    }
    return first;
  }

  // It waits for a gang that no worker can give any more, and has done so for the grace.
  bool MayPlanForFewer(const ActiveJob& job) {
    const bool waits = job.state == v1::QUEUED || job.state == v1::RESTARTING;
    const bool none = !waits || offers_.To(job.wanted).largest == 0;
    if (none || offers_.Has(job.wanted, job.workers, job.world_size / job.workers)) {
      memory_.too_large_since.erase(job.name);
      return false;
    }
    const absl::Duration since = memory_.too_large_since.try_emplace(job.name, snapshot_.now).first->second;
    return snapshot_.now - since >= snapshot_.replan_grace;
  }

  void SortAsTheScheduler() {
    std::stable_sort(out_.to_plan.begin(), out_.to_plan.end(), [](const ToPlan& a, const ToPlan& b) {
      const auto order = [](const ActiveJob& job) { return std::tuple(-job.priority, job.epoch == 0, job.submitted_us); };
      return order(*a.job) < order(*b.job);
    });
  }

  const FleetSnapshot& snapshot_;
  const ActiveJobs& jobs_;
  Offers& offers_;
  PlanningMemory& memory_;
  Reconciliation out_;
};

}  // namespace

bool PlanningMemory::Refusal::Refuses(const std::string& cluster) const {
  const auto found = tries.find(cluster);
  return found != tries.end() && found->second >= kMostTries;
}

Reconciliation Reconcile(const FleetSnapshot& snapshot, Offers* offers, PlanningMemory* memory) {
  return Reconciler(snapshot, offers, memory).Run();
}

}  // namespace legoai::server
