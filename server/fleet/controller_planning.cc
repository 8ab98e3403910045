// Jobs get a recipe: for the slots that are free now, or that their pool has; again for fewer where slots are gone for good.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/process/mutex.h"
#include "planner/explain.h"
#include "planner/ranking.h"
#include "proto/rpc.h"
#include "proto/status.h"
#include "server/fleet/controller.h"
#include "server/fleet/known_plans.h"
#include "server/fleet/plan_cache.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/transition.h"

namespace legoai::server {
namespace {

// Between two attempts to store a plan, where the store refuses it.
constexpr absl::Duration kStoreAgain = absl::Seconds(2);

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

// "projects/default" of "projects/default/jobs/01J...".
std::string ProjectOf(const std::string& job) { return job.substr(0, job.find("/jobs/")); }

// `job` is planned for just the same. Those of other projects are not named.
std::string WaitsForPlanText(const std::string& job, const std::string& project) {
  return ProjectOf(job) == project ? absl::StrCat("waits for the plan of ", job, ", which asks for the same")
                                   : "waits for the plan of another project's job, which asks for the same";
}

void Wait(const ToPlan& next, const std::string& why, WaitReasons::Waits* waits) {
  waits->insert({next.job->name, {next.job->version, absl::StrCat(next.because, why), 0}});
}

// Plans that are being made.
struct UnderWay {
  std::map<std::string, std::string> job_of_key;
  std::set<std::string> projects;

  void Add(const PlansUnderWay::Running& plan) {
    job_of_key[plan.key] = plan.job;
    if (!plan.has_result) projects.insert(ProjectOf(plan.job));
  }
  bool MayBegin(const std::string& project) const {
    return projects.count(project) == 0 && static_cast<int64_t>(projects.size()) < Planning::kMostJobs;
  }
};

// A job whose plan must be made.
struct Unknown {
  const ToPlan* next;
  const v1::Cluster* cluster;
  std::string key;  // empty: not known yet
  std::string project;
};

// Planning may find a recipe for other slots, or at another time.
bool MayPlanLater(const absl::Status& failure) {
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

// What becomes of a job in planning. `passing`: why one that has a recipe got no other.
absl::Status Controller::TakePlan(store::Transaction& transaction, const v1::Cluster& cluster,
                                  const absl::StatusOr<v1::PlanResult>& result, v1::Job* job, absl::Status* passing) const {
  const int64_t slots = cluster.devices_per_node() * cluster.nodes(), now_us = options_.now_us();
  absl::Status failure = result.status();
  if (result.ok() && !planner::HasRecipe(*result)) failure = NoRecipe(*job, *result);
  if (!failure.ok() && job->has_world_size() && MayPlanLater(failure)) {
    *passing = failure;  // it keeps the plan that its recipe is of
    return Move(transaction, job, job->attempts() > 0 ? v1::RESTARTING : v1::QUEUED,
                absl::StrCat("waits for its ", job->world_size(), " slots: for ",
                             slots == job->world_size() || cluster.nodes() > 1 ? cluster.name() : absl::StrCat(slots), ", ",
                             failure.message()),
                now_us);
  }
  if (result.ok()) {
    RETURN_IF_ERROR(transaction.PutPlan(job->name(), *result));
  }
  if (!failure.ok()) {
    *job->mutable_outcome()->mutable_error() = ToRpcStatus(failure);
    return Move(transaction, job, v1::FAILED, std::string(failure.message()), now_us);
  }
  *job->mutable_chosen() = result->ranked(0);
  job->set_world_size(slots);
  job->clear_worker_count();
  if (cluster.nodes() > 1) job->set_worker_count(cluster.nodes());
  const bool by_memory = job->spec().planning().objective() == v1::MEMORY;
  return Move(transaction, job, v1::QUEUED,
              absl::StrCat(by_memory ? "its recipe has the smallest peak memory of " : "its recipe is the fastest that fits of ",
                           result->space(), ": ", planner::Summarize(job->chosen().recipe())),
              now_us);
}

// For later decisions about the job.
void Controller::Remember(const std::string& job, const v1::Cluster& cluster, const absl::Status& passing) {
  memory_.plan_keys.erase(job);
  if (passing.ok()) {
    memory_.refusals.erase(job);
    memory_.planned[job].kind = KindOf(cluster.name());
    memory_.planned[job].in_domain = IsInDomain(cluster.name());
    return;
  }
  PlanningMemory::Refusal& refusal = memory_.refusals[job];
  refusal.tries[cluster.name()] += absl::IsResourceExhausted(passing) ? kMostTries : 1;
  refusal.text = absl::StrCat("for ", cluster.devices_per_node() * cluster.nodes(), ", ", passing.message());
}

absl::Status Controller::StorePlan(const PlansUnderWay::Ended& plan) {
  absl::Status passing;
  const absl::Status status = Write([&](store::Transaction& transaction, Effects* effects) -> absl::Status {
    passing = absl::OkStatus();
    // Also where the job was cancelled meanwhile: others may ask for the same.
    if (options_.reuse_plans && plan.result.ok() && IsCacheable(*plan.result)) {
      RETURN_IF_ERROR(transaction.PutCachedPlan(MakeCachedPlan(plan.key, *plan.result, options_.now_us())));
    }
    ASSIGN_OR_RETURN(auto stored, transaction.GetJob(plan.job));
    if (!stored || stored->state() != v1::PLANNING) return absl::OkStatus();  // it was cancelled
    effects->changed_jobs.push_back(plan.job);
    return TakePlan(transaction, plan.cluster, plan.result, &*stored, &passing);
  });
  if (!status.ok()) return status;
  if (plan.result.ok() && options_.metrics != nullptr) options_.metrics->Planning(plan.result->seconds());
  Remember(plan.job, plan.cluster, passing);
  return absl::OkStatus();
}

// Each project has at most one plan under way, of the first of its jobs that wait then. Where more projects wait than may plan
// at once, those begin whose last turn is longest ago. Jobs that ask for what was planned before have it at once, whoever plans.
void Controller::PlanInTurn(const std::vector<ToPlan>& to_plan, WaitReasons::Waits* waits) {
  UnderWay under_way;
  const auto is_planned = [this](const std::string& name) {
    const ActiveJob* const job = jobs_.Find(name);
    return job != nullptr && job->state == v1::PLANNING;
  };
  for (const PlansUnderWay::Running& one : plans_.CancelOthers(is_planned)) under_way.Add(one);
  KnownPlans known(store_, options_.planned_by);
  std::vector<Unknown> unknown;
  for (const ToPlan& next : to_plan) {
    const auto cluster = known.ClusterFor(next);
    if (!cluster.ok()) RefuseCluster(next, cluster.status());
    const auto refusal = memory_.refusals.find(next.job->name);
    if (refusal != memory_.refusals.end() && (!cluster.ok() || refusal->second.Refuses((*cluster)->name()))) {
      Wait(next, refusal->second.text, waits);
      continue;
    }
    const std::string key = options_.reuse_plans ? known.KeyOf(next, &memory_) : next.job->name;
    const bool is_made = under_way.job_of_key.count(key) > 0;  // whatever there is of it is not to be trusted
    const bool is_known = options_.reuse_plans && !is_made && known.Has(key);
    if (is_known && !known.MayTake()) {
      Wait(next, "waits for the planner", waits);
      continue;
    }
    if (is_known && TakeKnown(next, **cluster, &known)) continue;
    unknown.push_back({&next, *cluster, key, ProjectOf(next.job->name)});
  }
  if (known.has_more()) decided_ = -absl::InfiniteDuration();  // to be gone on with as soon as others had their turn
  std::stable_sort(unknown.begin(), unknown.end(),
                   [this](const Unknown& a, const Unknown& b) { return turns_[a.project] < turns_[b.project]; });
  for (const Unknown& one : unknown) {
    const auto same = under_way.job_of_key.find(one.key);
    if (!one.key.empty() && same != under_way.job_of_key.end()) {
      Wait(*one.next, WaitsForPlanText(same->second, one.project), waits);
    } else if (!one.key.empty() && under_way.MayBegin(one.project) && PlanJob(*one.next, *one.cluster)) {
      under_way.Add({one.next->job->name, one.key});
      turns_[one.project] = ++turn_;
    } else {
      Wait(*one.next, "waits for the planner", waits);
    }
  }
}

void Controller::RefuseCluster(const ToPlan& next, const absl::Status& why) {
  const std::string cluster = ClusterName(SlotKind(*next.worker), next.slots, next.workers, next.in_domain), text(why.message());
  PlanningMemory::Refusal& refusal = memory_.refusals[next.job->name];
  if (refusal.Refuses(cluster) && refusal.text == text) return;  // every decision meets it again
  LogError(absl::StrCat("no plan: ", text), {.job = next.job->name, .worker = next.worker->name()});
  refusal.tries[cluster] = kMostTries;
  refusal.text = text;
}

// Gives the job a plan that was made before. False: it is no more what it was, or the plan is none of its own, or the store does
// not take it now.
bool Controller::TakeKnown(const ToPlan& next, const v1::Cluster& cluster, KnownPlans* known) {
  const std::string& name = next.job->name;
  absl::Status passing;
  bool taken = false;
  const std::string why = absl::StrCat(next.because, "has the plan that was made for the same before, for ",
                                       PlannedSlotsText(next.slots, next.workers, next.worker->name(), next.job->wanted));
  const absl::StatusOr<bool> moved = ChangeJob(*next.job, [&](store::Transaction& transaction, v1::Job* job) -> absl::Status {
    passing = absl::OkStatus();
    taken = false;
    ASSIGN_OR_RETURN(const auto kept, RecipeToKeep(transaction, *job));
    const v1::PlanRequest request = PlanRequestOf(*job, cluster, kept);
    const v1::PlanResult* const plan = known->Open(PlanKey(request, options_.planned_by), request);
    taken = plan != nullptr;
    if (!taken) return absl::OkStatus();
    RETURN_IF_ERROR(Move(transaction, job, v1::PLANNING, why, options_.now_us()));
    return TakePlan(transaction, cluster, *plan, job, &passing);
  });
  if (!moved.ok()) LogError(absl::StrCat("no plan: ", moved.status().message()), {.job = name});
  if (!moved.ok() || !*moved || !taken) return false;
  known->Taken();
  if (options_.metrics != nullptr) options_.metrics->PlanReused();
  LogInfo(why, {.job = name, .worker = next.worker->name()});
  if (next.moves()) ++memory_.planned[name].moves;
  Remember(name, cluster, passing);
  return true;
}

bool Controller::PlanJob(const ToPlan& next, const v1::Cluster& cluster) {
  const ActiveJob& seen = *next.job;
  const std::string& name = seen.name;
  const std::string why =
      absl::StrCat(next.because, "ranks recipes for ",
                   PlannedSlotsText(next.slots, next.workers, next.worker->name(), seen.wanted));
  v1::PlanRequest request;
  const absl::StatusOr<bool> moved = ChangeJob(seen, [&](store::Transaction& transaction, v1::Job* stored) -> absl::Status {
    ASSIGN_OR_RETURN(const auto kept, RecipeToKeep(transaction, *stored));
    request = PlanRequestOf(*stored, cluster, kept);
    return Move(transaction, stored, v1::PLANNING, why, options_.now_us());
  });
  if (!moved.ok()) LogError(absl::StrCat("no plan: ", moved.status().message()), {.job = name});
  if (!moved.ok() || !*moved) return false;
  const std::string key = options_.reuse_plans ? PlanKey(request, options_.planned_by) : name;
  const auto cancelled = plans_.Add(name, cluster, key, next.kept_on);
  LogInfo(why, {.job = name, .worker = next.worker->name()});
  if (next.moves()) ++memory_.planned[name].moves;
  planning_->PlanLater(
      ProjectOf(name), request,
      [this, name](const planner::PlanProgress& progress) { notifier_->SetPlanning(name, ProgressOf(progress)); },
      [cancelled] { return cancelled->load(); },
      [this, name](absl::StatusOr<v1::PlanResult> result) {
        notifier_->ClearPlanning(name);
        if (plans_.SetResult(name, std::move(result))) bell_.Ring();
      });
  return true;
}

absl::StatusOr<v1::PlanResult> Controller::Plan(const v1::PlanRequest& request,
                                                const std::function<void(const v1::PlanningProgress&)>& progress,
                                                const std::function<bool()>& cancel) {
  const std::string key = PlanKey(request, options_.planned_by);
  std::optional<v1::CachedPlan> cached;
  const absl::Status read = store_->Read([&](store::ReadTransaction& transaction) -> absl::Status {
    if (options_.reuse_plans) {
      ASSIGN_OR_RETURN(cached, transaction.GetCachedPlan(key));
    }
    return absl::OkStatus();
  });
  if (!read.ok()) LogError(absl::StrCat("plans that were made before cannot be read: ", read.message()));
  if (cached) {
    auto known = OpenCachedPlan(*cached, key, request);
    if (known.ok() && options_.metrics != nullptr) options_.metrics->PlanReused();
    if (known.ok()) return known;
    LogWarning(RefusedPlanText(known.status()));
  }
  ASSIGN_OR_RETURN(auto result, planning_->Plan(
                                    request,
                                    [&](const planner::PlanProgress& now) {
                                      if (progress) progress(ProgressOf(now));
                                    },
                                    cancel));
  if (!options_.reuse_plans || !IsCacheable(result)) return result;
  const absl::Status kept = store_->Write([&](store::Transaction& transaction) {
    return transaction.PutCachedPlan(MakeCachedPlan(key, result, options_.now_us()));
  });
  if (!kept.ok()) LogError(absl::StrCat("a plan is not kept for others: ", kept.message()));
  return result;
}

}  // namespace legoai::server
