// Jobs get a recipe: for the slots that are free now, or that their pool has; again for fewer where slots are gone for good.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/process/mutex.h"
#include "planner/explain.h"
#include "planner/ranking.h"
#include "proto/rpc_status.h"
#include "proto/status.h"
#include "server/fleet/controller.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// In vain, of one job for the same slots, before it is left to wait for those that it has a recipe for.
constexpr int64_t kMostTries = 3;

// Between two attempts to store a plan, where the store refuses it.
constexpr absl::Duration kStoreAgain = absl::Seconds(2);

// `kept`: the recipe of the checkpoint that it goes on from.
v1::PlanRequest RequestOf(const v1::Job& job, const v1::Cluster& cluster, const std::optional<v1::Recipe>& kept) {
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
  request.set_objective(spec.planning().objective());
  request.set_min_headroom_bytes(spec.planning().min_headroom_bytes());
  if (kept) *request.mutable_resume_from() = *kept;
  return request;
}

// Why a plan names no recipe.
absl::Status NoRecipe(const v1::Job& job, const v1::PlanResult& result) {
  if (result.not_reached() > 0) {
    return absl::DeadlineExceededError(absl::StrCat(
        "planning ended after ", absl::StrFormat("%.0f", result.seconds()),
        " s without a recipe that is known to fit: ", result.captured(), " were simulated, ", result.not_reached(),
        " that may fit were not; submit it with a larger planning.budget_seconds than ", job.spec().planning().budget_seconds()));
  }
  return absl::ResourceExhaustedError(absl::StrCat("no recipe fits: ", result.explanation()));
}

// Of other slots, or at another time, planning may do better.
bool MayPass(const absl::Status& failure) {
  return absl::IsResourceExhausted(failure) || absl::IsDeadlineExceeded(failure) || absl::IsUnavailable(failure);
}

}  // namespace

bool Controller::Refusal::Refuses(const std::string& cluster) const {
  const auto found = tries.find(cluster);
  return found != tries.end() && found->second >= kMostTries;
}

// What the planner has found becomes the jobs' as soon as the store takes it.
void Controller::StorePlans() {
  if (options_.steady() < store_plans_after_) return;
  std::map<std::string, PlanUnderWay> ended;
  {
    const MutexLock lock(mutex_);
    for (const auto& [job, plan] : plans_) {
      if (plan.result) ended[job] = plan;
    }
  }
  for (const auto& [job, plan] : ended) {
    const absl::Status stored = StorePlan(job, plan.cluster, *plan.result);
    if (!stored.ok()) {
      store_plans_after_ = options_.steady() + kStoreAgain;
      LogError(absl::StrCat("its plan cannot be stored, and is kept: ", stored.message()), {.job = job});
      continue;
    }
    LogInfo("planned", {.job = job});
    const MutexLock lock(mutex_);
    plans_.erase(job);
  }
}

absl::Status Controller::StorePlan(const std::string& name, const v1::Cluster& cluster,
                                   const absl::StatusOr<v1::PlanResult>& result) {
  const int64_t slots = cluster.devices_per_node(), now_us = options_.now_us();
  absl::Status passing;  // why a job that has a recipe got no other
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    passing = absl::OkStatus();
    ASSIGN_OR_RETURN(auto stored, transaction.GetJob(name));
    if (!stored || stored->state() != v1::PLANNING) return absl::OkStatus();  // it was cancelled
    v1::Job job = *stored;
    effects->changed_jobs.push_back(name);
    absl::Status failure = result.status();
    if (result.ok() && !planner::HasRecipe(*result)) failure = NoRecipe(job, *result);
    if (!failure.ok() && job.has_world_size() && MayPass(failure)) {
      passing = failure;  // it keeps the plan that its recipe is of
      return Move(transaction, &job, job.attempts() > 0 ? v1::RESTARTING : v1::QUEUED,
                  absl::StrCat("waits for its ", job.world_size(), " slots: for ",
                               slots == job.world_size() ? cluster.name() : absl::StrCat(slots), ", ", failure.message()),
                  now_us);
    }
    if (result.ok()) {
      RETURN_IF_ERROR(transaction.PutPlan(name, *result));
    }
    if (!failure.ok()) {
      *job.mutable_outcome()->mutable_error() = ToRpcStatus(failure);
      return Move(transaction, &job, v1::FAILED, std::string(failure.message()), now_us);
    }
    *job.mutable_chosen() = result->ranked(0);
    job.set_world_size(slots);
    const bool by_memory = job.spec().planning().objective() == v1::MEMORY;
    return Move(
        transaction, &job, v1::QUEUED,
        absl::StrCat(by_memory ? "its recipe has the smallest peak memory of " : "its recipe is the fastest that fits of ",
                     result->space(), ": ", planner::Summarize(job.chosen().recipe())),
        now_us);
  });
  if (!status.ok()) return status;
  if (result.ok() && options_.metrics != nullptr) options_.metrics->Planning(result->seconds());
  if (passing.ok()) {
    refusals_.erase(name);
    planned_[name].kind = KindOf(cluster.name());
  } else {
    Refusal& refusal = refusals_[name];
    refusal.tries[cluster.name()] += absl::IsResourceExhausted(passing) ? kMostTries : 1;
    refusal.text = absl::StrCat("for ", slots, ", ", passing.message());
  }
  return absl::OkStatus();
}

// One job at a time is with the planner, so that the next is always the first of those that wait then; users' own plans take
// turns with them.
bool Controller::PlannerIsBusy() {
  const MutexLock lock(mutex_);
  bool busy = false;
  for (auto& [name, plan] : plans_) {
    const ActiveJob* const job = jobs_.Find(name);
    if (job == nullptr || job->state != v1::PLANNING) *plan.cancelled = true;  // the job was
    busy = busy || !(*plan.cancelled || plan.result);
  }
  return busy;
}

// `to_plan` comes from ScheduleJobs.
void Controller::StartPlanning(std::vector<ToPlan> to_plan, Offers* offers, WaitReasons::Waits* waits) {
  const auto is_over = [this](const auto& entry) { return jobs_.Find(entry.first) == nullptr; };
  std::erase_if(too_large_since_, is_over);
  std::erase_if(refusals_, is_over);
  std::erase_if(planned_, is_over);
  for (const auto& [name, job] : jobs_.all()) {
    const bool for_fewer = job.state != v1::SUBMITTED && MayPlanForFewer(job, offers);
    if (job.state != v1::SUBMITTED && !for_fewer) continue;
    const Offer& offer = offers->To(job.wanted);
    if (offer.worker != nullptr) {
      to_plan.push_back({&job, offer.worker, offer.slots, for_fewer ? "its slots are gone: " : ""});
    } else if (!for_fewer) {
      (*waits)[name] = {job.version, offers->WhyNone(job.wanted), 0};
    }
  }
  // As the scheduler takes them.
  std::stable_sort(to_plan.begin(), to_plan.end(), [](const ToPlan& a, const ToPlan& b) {
    const auto order = [](const ActiveJob& job) { return std::tuple(-job.priority, job.epoch == 0, job.submitted_us); };
    return order(*a.job) < order(*b.job);
  });
  bool busy = PlannerIsBusy();
  for (const ToPlan& next : to_plan) {
    if (!busy && PlanJob(next)) {
      busy = true;
    } else {
      const auto refusal = refusals_.find(next.job->name);
      const std::string why = refusal == refusals_.end() ? "waits for the planner" : refusal->second.text;
      waits->insert({next.job->name, {next.job->version, absl::StrCat(next.because, why), 0}});
    }
  }
}

// It waits for a gang that no worker can give any more, and has done so for the grace.
bool Controller::MayPlanForFewer(const ActiveJob& job, Offers* offers) {
  const bool waits = job.state == v1::QUEUED || job.state == v1::RESTARTING;
  const int64_t largest = waits ? offers->To(job.wanted).largest : 0;
  if (largest == 0 || largest >= job.world_size) {
    too_large_since_.erase(job.name);
    return false;
  }
  const absl::Duration now = options_.steady();
  const absl::Duration since = too_large_since_.try_emplace(job.name, now).first->second;
  return now - since >= options_.replan_grace;
}

// What becomes of a job whose recipe is for more slots than any worker has.
std::string Controller::TooLargeText(const ActiveJob& job, Offers* offers) const {
  const Offer& offer = offers->To(job.wanted);
  if (offer.worker == nullptr) return offers->WhyNone(job.wanted);
  const auto refusal = refusals_.find(job.name);
  if (refusal == refusals_.end()) return "it is planned for fewer slots if they do not come back soon";
  // A restarting job has it as its reason already.
  const std::string tried = job.state == v1::RESTARTING ? "" : absl::StrCat(refusal->second.text, "; ");
  return absl::StrCat(tried, "it waits for a worker with ", job.world_size,
                      " slots, or for other slots to be planned for: connect one, or cancel the job");
}

bool Controller::PlanJob(const ToPlan& next) {
  const ActiveJob& seen = *next.job;
  const std::string& name = seen.name;
  const auto cluster = ClusterOf(*next.worker, next.slots);
  if (!cluster.ok()) {
    LogError(absl::StrCat("no plan: ", cluster.status().message()), {.job = name, .worker = next.worker->name()});
    refusals_[name].tries[ClusterName(SlotKind(*next.worker), next.slots)] = kMostTries;
    refusals_[name].text = std::string(cluster.status().message());
    return false;
  }
  const auto refusal = refusals_.find(name);
  if (refusal != refusals_.end() && refusal->second.Refuses(cluster->name())) return false;
  const std::string why =
      absl::StrCat(next.because, "ranks recipes for ", SlotsText(next.slots, next.worker->name(), seen.wanted));
  v1::Job job;
  absl::StatusOr<std::optional<v1::Recipe>> kept;
  const absl::StatusOr<bool> moved = ChangeJob(seen, [&](store::Transaction& transaction, v1::Job* stored) {
    kept = RecipeToKeep(transaction, *stored);
    if (!kept.ok()) return kept.status();
    const absl::Status status = Move(transaction, stored, v1::PLANNING, why, options_.now_us());
    job = *stored;
    return status;
  });
  if (!moved.ok()) LogError(absl::StrCat("no plan: ", moved.status().message()), {.job = name});
  if (!moved.ok() || !*moved) return false;
  std::shared_ptr<std::atomic<bool>> cancelled;
  {
    const MutexLock lock(mutex_);
    PlanUnderWay& plan = plans_[name] = PlanUnderWay();
    plan.cluster = *cluster;
    if (next.moves) plan.keeps = next.worker->name();
    cancelled = plan.cancelled;
  }
  LogInfo(why, {.job = name, .worker = next.worker->name()});
  if (next.moves) ++planned_[name].moves;
  planning_->PlanLater(
      RequestOf(job, *cluster, *kept),
      [this, name](const planner::PlanProgress& progress) { notifier_->SetPlanning(name, ToProto(progress)); },
      [cancelled] { return cancelled->load(); },
      [this, name](absl::StatusOr<v1::PlanResult> result) {
        notifier_->ClearPlanning(name);
        {
          const MutexLock lock(mutex_);
          if (ending_) return;  // given up for that, which is no fault of the job: the next server plans it anew
          plans_[name].result = std::move(result);
        }
        Wake();
      });
  return true;
}

}  // namespace legoai::server
