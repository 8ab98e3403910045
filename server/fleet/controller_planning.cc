// Jobs get a recipe: for the slots that are free now, or that their pool has; again for fewer where slots are gone for good.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/process/mutex.h"
#include "planner/explain.h"
#include "planner/ranking.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "server/fleet/controller.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

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

// What the planner has found becomes the jobs' as soon as the store takes it.
void Controller::StorePlans() {
  if (options_.steady() < store_plans_after_) return;
  for (const PlansUnderWay::Ended& plan : plans_.WithResults()) {
    const absl::Status stored = StorePlan(plan);
    if (!stored.ok()) {
      store_plans_after_ = options_.steady() + kStoreAgain;
      LogError(absl::StrCat("its plan cannot be stored, and is kept: ", stored.message()), {.job = plan.job});
      continue;
    }
    LogInfo("planned", {.job = plan.job});
    plans_.Erase(plan.job);
  }
}

absl::Status Controller::StorePlan(const PlansUnderWay::Ended& plan) {
  const std::string& name = plan.job;
  const v1::Cluster& cluster = plan.cluster;
  const absl::StatusOr<v1::PlanResult>& result = plan.result;
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
    memory_.refusals.erase(name);
    memory_.planned[name].kind = KindOf(cluster.name());
  } else {
    PlanningMemory::Refusal& refusal = memory_.refusals[name];
    refusal.tries[cluster.name()] += absl::IsResourceExhausted(passing) ? kMostTries : 1;
    refusal.text = absl::StrCat("for ", slots, ", ", passing.message());
  }
  return absl::OkStatus();
}

bool Controller::PlanJob(const ToPlan& next) {
  const ActiveJob& seen = *next.job;
  const std::string& name = seen.name;
  const auto cluster = ClusterOf(*next.worker, next.slots);
  if (!cluster.ok()) {
    LogError(absl::StrCat("no plan: ", cluster.status().message()), {.job = name, .worker = next.worker->name()});
    PlanningMemory::Refusal& refusal = memory_.refusals[name];
    refusal.tries[ClusterName(SlotKind(*next.worker), next.slots)] = kMostTries;
    refusal.text = std::string(cluster.status().message());
    return false;
  }
  const auto refusal = memory_.refusals.find(name);
  if (refusal != memory_.refusals.end() && refusal->second.Refuses(cluster->name())) return false;
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
  const auto cancelled = plans_.Add(name, *cluster, next.moves ? next.worker->name() : "");
  LogInfo(why, {.job = name, .worker = next.worker->name()});
  if (next.moves) ++memory_.planned[name].moves;
  planning_->PlanLater(
      RequestOf(job, *cluster, *kept),
      [this, name](const planner::PlanProgress& progress) { notifier_->SetPlanning(name, ProgressOf(progress)); },
      [cancelled] { return cancelled->load(); },
      [this, name](absl::StatusOr<v1::PlanResult> result) {
        notifier_->ClearPlanning(name);
        if (plans_.SetResult(name, std::move(result))) bell_.Ring();
      });
  return true;
}

}  // namespace legoai::server
