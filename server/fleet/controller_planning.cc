// Jobs get a recipe: for the slots that are free now, or that their pool has; again for fewer where slots are gone for good.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rpc_status.h"
#include "server/fleet/controller.h"
#include "server/jobs/transition.h"
#include "simulator/hardware/catalog.h"

namespace legoai::server {
namespace {

// That wait for the planner or are with it: those behind them keep their place, and users' own plans theirs.
constexpr int64_t kMostPlans = 4;

bool Suits(const v1::Worker& worker, const v1::Resources& wanted) {
  return worker.pool() == wanted.pool() && (wanted.device_type().empty() || worker.device().type() == wanted.device_type());
}

// What a plan can be made for: a worker, and how many of its slots.
struct Offer {
  const v1::Worker* worker = nullptr;
  int64_t slots = 0;
};

// Slots that are free now count if they are enough to begin with; otherwise all that a worker has, for which the job then waits.
Offer BestOffer(const std::vector<v1::Worker>& workers, const v1::Resources& wanted) {
  const int64_t most = wanted.slots() > 0 ? wanted.slots() : INT64_MAX;
  Offer now, later;
  for (const v1::Worker& worker : workers) {
    if (!Suits(worker, wanted) || !worker.connected() || worker.state() != v1::READY) continue;
    int64_t used = 0;
    for (const v1::SlotUse& use : worker.used()) used += use.slots();
    const int64_t free = std::min(most, worker.slots() - used), all = std::min(most, worker.slots());
    if (free >= wanted.min_slots() && free > now.slots) now = {&worker, free};
    if (all >= wanted.min_slots() && all > later.slots) later = {&worker, all};
  }
  return now.worker != nullptr ? now : later;
}

// Why there is no offer, for people.
std::string NoOffer(const std::vector<v1::Worker>& workers, const v1::Resources& wanted) {
  int64_t largest = 0;
  for (const v1::Worker& worker : workers) {
    if (Suits(worker, wanted) && worker.connected() && worker.state() == v1::READY) largest = std::max(largest, worker.slots());
  }
  const std::string of = absl::StrCat("pool ", wanted.pool(), wanted.device_type().empty() ? "" : " of " + wanted.device_type());
  if (largest == 0) return absl::StrCat("no worker of ", of, " is connected and ready");
  return absl::StrCat("resources.min_slots is ", wanted.min_slots(), " and the largest worker of ", of, " has ", largest,
                      " slots");
}

// A job gets the share of the host's memory and cores that its slots are of the worker's: others may hold the rest.
absl::StatusOr<v1::Cluster> ClusterOf(const Offer& offer) {
  const v1::Worker& worker = *offer.worker;
  return sim::MakeHostCluster(worker.device(), offer.slots,
                              {.memory_bytes = worker.host_memory_bytes() / worker.slots() * offer.slots,
                               .cores = std::max<int64_t>(1, worker.host_cores() * offer.slots / worker.slots())});
}

v1::PlanRequest RequestOf(const v1::Job& job, const v1::Cluster& cluster) {
  const v1::JobSpec& spec = job.spec();
  v1::PlanRequest request;
  *request.mutable_model() = spec.model();
  *request.mutable_cluster() = cluster;
  *request.mutable_base() = spec.recipe();
  request.set_global_batch(spec.recipe().training().global_batch_size());
  request.set_seq_len(spec.recipe().training().seq_len());
  *request.mutable_constraints() = spec.planning().constraints();
  request.set_budget_seconds(spec.planning().budget_seconds());
  request.set_top(spec.planning().top());
  if (job.has_committed_step()) *request.mutable_resume_from() = job.chosen().recipe();
  return request;
}

// Why a plan names no recipe.
absl::Status NoRecipe(const v1::Job& job, const v1::PlanResult& result) {
  if (result.captured() == 0 && result.not_reached() > 0) {
    return absl::DeadlineExceededError(
        absl::StrCat("planning ended after ", job.spec().planning().budget_seconds(), " s, before any of ", result.not_reached(),
                     " recipes that may fit was simulated: submit it with a larger planning.budget_seconds"));
  }
  return absl::ResourceExhaustedError(absl::StrCat("no recipe fits: ", result.explanation()));
}

// Of other slots, or at another time, planning may do better.
bool MayPass(const absl::Status& failure) {
  return absl::IsResourceExhausted(failure) || absl::IsDeadlineExceeded(failure) || absl::IsUnavailable(failure);
}

}  // namespace

// A plan whose end could not be stored, on a full disk: it is made again.
void Controller::TakeUpLostPlans(const std::vector<v1::Job>& jobs) {
  for (const v1::Job& seen : jobs) {
    if (seen.state() != v1::PLANNING) continue;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (plans_.count(seen.name()) > 0) continue;
    }
    const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
      auto job = transaction.GetJob(seen.name());
      if (!job.ok()) return job.status();
      if (!*job || (*job)->version() != seen.version()) return absl::OkStatus();
      effects->changed_jobs.push_back(seen.name());
      const v1::JobState to = (*job)->attempts() > 0 ? v1::RESTARTING : v1::SUBMITTED;
      return Move(transaction, &**job, to, "its plan could not be stored, and is made again", options_.now_us());
    });
    if (!status.ok()) Say(LogLevel::kError, std::string(status.message()), seen.name());
  }
}

void Controller::StartPlanning(const std::vector<v1::Job>& jobs) {
  TakeUpLostPlans(jobs);
  const std::vector<v1::Worker> workers = Workers();
  std::set<std::string> planning;
  for (const v1::Job& job : jobs) {
    if (job.state() == v1::PLANNING) planning.insert(job.name());
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [job, plan] : plans_) {
      if (planning.count(job) == 0) *plan.cancelled = true;  // it was cancelled
    }
  }
  int64_t under_way = static_cast<int64_t>(planning.size());
  for (auto job = too_large_since_.begin(); job != too_large_since_.end();) {
    const bool active = std::any_of(jobs.begin(), jobs.end(), [&](const v1::Job& other) { return other.name() == job->first; });
    job = active ? std::next(job) : too_large_since_.erase(job);
  }
  for (const v1::Job& job : jobs) {
    const bool fresh = job.state() == v1::SUBMITTED;
    if (!fresh && !MayPlanForFewer(job, workers)) continue;
    if (under_way >= kMostPlans) continue;
    const Offer offer = BestOffer(workers, job.spec().resources());
    if (offer.worker == nullptr) {
      if (fresh) WaitUnplanned(job, NoOffer(workers, job.spec().resources()));
      continue;
    }
    const auto cluster = ClusterOf(offer);
    if (!cluster.ok()) {
      Say(LogLevel::kError, absl::StrCat("no plan: ", cluster.status().message()), job.name());
      continue;
    }
    PlanJob(job, *cluster,
            absl::StrCat(fresh ? "ranks recipes for " : "its slots are gone: ranks recipes for ", offer.slots, " slots of ",
                         offer.worker->name()));
  }
}

// It waits for a gang that no worker can give any more, and has done so for the grace.
bool Controller::MayPlanForFewer(const v1::Job& job, const std::vector<v1::Worker>& workers) {
  const bool waits = job.state() == v1::QUEUED || job.state() == v1::RESTARTING;
  if (!waits) {
    too_large_since_.erase(job.name());
    return false;
  }
  if (!job.has_world_size()) return true;  // its first plan was broken off
  int64_t largest = 0;
  for (const v1::Worker& worker : workers) {
    if (Suits(worker, job.spec().resources()) && worker.connected() && worker.state() == v1::READY)
      largest = std::max(largest, worker.slots());
  }
  if (largest == 0 || largest >= job.world_size()) {
    too_large_since_.erase(job.name());
    return false;
  }
  const absl::Duration now = options_.steady();
  const absl::Duration since = too_large_since_.try_emplace(job.name(), now).first->second;
  return now - since >= options_.replan_grace;
}

void Controller::WaitUnplanned(const v1::Job& seen, const std::string& reason) {
  if (seen.reason() == reason) return;
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    auto job = transaction.GetJob(seen.name());
    if (!job.ok()) return job.status();
    if (!*job || (*job)->version() != seen.version()) return absl::OkStatus();
    (*job)->set_reason(reason);
    effects->changed_jobs.push_back(seen.name());
    return Touch(transaction, &**job, options_.now_us());
  });
  if (!status.ok()) Say(LogLevel::kError, std::string(status.message()), seen.name());
}

void Controller::PlanJob(const v1::Job& seen, const v1::Cluster& cluster, std::string_view why) {
  const std::string name = seen.name();
  v1::Job job;
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    auto stored = transaction.GetJob(name);
    if (!stored.ok()) return stored.status();
    if (!*stored || (*stored)->version() != seen.version()) return absl::AbortedError("the job has changed");
    job = **stored;
    effects->changed_jobs.push_back(name);
    return Move(transaction, &job, v1::PLANNING, why, options_.now_us());
  });
  if (absl::IsAborted(status)) return;
  if (!status.ok()) return Say(LogLevel::kError, absl::StrCat("no plan: ", status.message()), name);
  std::shared_ptr<std::atomic<bool>> cancelled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled = (plans_[name] = PlanUnderWay()).cancelled;
  }
  Say(LogLevel::kInfo, std::string(why), name);
  planning_->PlanLater(
      RequestOf(job, cluster),
      [this, name](const planner::PlanProgress& progress) {
        v1::PlanningProgress proto;
        proto.set_space(progress.space);
        proto.set_to_capture(progress.to_capture);
        proto.set_captured(progress.captured);
        if (progress.best_step_seconds > 0) proto.set_best_step_seconds(progress.best_step_seconds);
        proto.set_elapsed_seconds(progress.elapsed_seconds);
        notifier_->SetPlanning(name, proto);
      },
      [cancelled] { return cancelled->load(); },
      [this, name, slots = cluster.devices_per_node()](absl::StatusOr<v1::PlanResult> result) {
        FinishPlanning(name, slots, result);
      });
}

void Controller::FinishPlanning(const std::string& name, int64_t slots, const absl::StatusOr<v1::PlanResult>& result) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ending_) return;  // the job stays in planning, and is planned again by the next server
  }
  notifier_->ClearPlanning(name);
  if (result.ok() && options_.metrics != nullptr) options_.metrics->Planning(result->seconds());
  const int64_t now_us = options_.now_us();
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    auto stored = transaction.GetJob(name);
    if (!stored.ok()) return stored.status();
    if (!*stored || (*stored)->state() != v1::PLANNING) return absl::OkStatus();  // it was cancelled
    v1::Job job = **stored;
    effects->changed_jobs.push_back(name);
    absl::Status failure = result.status();
    if (result.ok()) {
      if (absl::Status put = transaction.PutPlan(name, *result); !put.ok()) return put;
      if (result->ranked().empty()) failure = NoRecipe(job, *result);
    }
    // It has a recipe already, for more slots.
    if (!failure.ok() && job.has_world_size() && MayPass(failure)) {
      return Move(transaction, &job, job.attempts() > 0 ? v1::RESTARTING : v1::QUEUED,
                  absl::StrCat("waits for its ", job.world_size(), " slots: for ", slots, ", ", failure.message()), now_us);
    }
    if (!failure.ok()) {
      *job.mutable_outcome()->mutable_error() = ToRpcStatus(failure);
      return Move(transaction, &job, v1::FAILED, std::string(failure.message()), now_us);
    }
    *job.mutable_chosen() = result->ranked(0);
    job.set_world_size(slots);
    return Move(transaction, &job, v1::QUEUED, absl::StrCat("its recipe is chosen of ", result->space()), now_us);
  });
  Say(status.ok() ? LogLevel::kInfo : LogLevel::kError, status.ok() ? "planned" : std::string(status.message()), name);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    plans_.erase(name);
  }
  Wake();
}

}  // namespace legoai::server
