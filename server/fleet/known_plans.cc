#include "server/fleet/known_plans.h"

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "proto/status.h"
#include "server/fleet/plan_cache.h"
#include "server/fleet/resume_point.h"
#include "server/jobs/submission.h"
#include "server/metrics/log.h"

namespace legoai::server {

v1::PlanRequest PlanRequestOf(const v1::Job& job, const v1::Cluster& cluster, const std::optional<v1::Recipe>& kept) {
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

const KnownPlans::Place& KnownPlans::PlaceFor(const ToPlan& next) {
  const auto [place, is_new] =
      places_.try_emplace({next.worker->name(), next.slots, next.workers, next.in_domain}, Place{absl::UnknownError(""), ""});
  if (is_new) {
    place->second.cluster = ClusterOf(*next.worker, next.slots, next.workers, next.in_domain);
    if (place->second.cluster.ok()) place->second.digest = checkpoint::Sha256(DeterministicBytes(*place->second.cluster));
  }
  return place->second;
}

absl::StatusOr<const v1::Cluster*> KnownPlans::ClusterFor(const ToPlan& next) {
  const auto& cluster = PlaceFor(next).cluster;
  if (!cluster.ok()) return cluster.status();
  return &*cluster;
}

std::string KnownPlans::KeyOf(const ToPlan& next, PlanningMemory* memory) {
  const Place& place = PlaceFor(next);
  PlanningMemory::PlanKey& note = memory->plan_keys[next.job->name];
  if (note.version == next.job->version && note.cluster == place.digest) return note.key;
  if (read_ >= kMostRead) {
    has_more_ = true;
    return "";
  }
  ++read_;
  note = {next.job->version, place.digest, ""};
  const absl::Status status = store_->Read([&](store::ReadTransaction& read) -> absl::Status {
    ASSIGN_OR_RETURN(const auto job, read.GetJob(next.job->name));
    if (!job) return absl::NotFoundError(next.job->name);
    ASSIGN_OR_RETURN(const auto kept, RecipeToKeep(read, *job));
    note.key = PlanKey(PlanRequestOf(*job, *place.cluster, kept), planned_by_);
    return absl::OkStatus();
  });
  if (!status.ok()) {
    LogError(absl::StrCat("no plan yet: ", std::string(status.message())), {.job = next.job->name});
    memory->plan_keys.erase(next.job->name);
    return "";
  }
  return note.key;
}

KnownPlans::Entry& KnownPlans::EntryOf(const std::string& key) {
  const auto [entry, is_new] = entries_.try_emplace(key);
  if (!is_new) return entry->second;
  const absl::Status status = store_->Read([&](store::ReadTransaction& read) -> absl::Status {
    ASSIGN_OR_RETURN(entry->second.stored, read.GetCachedPlan(key));
    return absl::OkStatus();
  });
  if (!status.ok()) LogError(absl::StrCat("plans that were made before cannot be read: ", std::string(status.message())));
  return entry->second;
}

bool KnownPlans::Has(const std::string& key) { return !key.empty() && EntryOf(key).stored.has_value(); }

bool KnownPlans::MayTake() {
  if (taken_ >= kMostTaken) has_more_ = true;
  return taken_ < kMostTaken;
}

const v1::PlanResult* KnownPlans::Open(const std::string& key, const v1::PlanRequest& request) {
  const auto found = entries_.find(key);  // it may run within a transaction, where nothing is read beside it
  if (found == entries_.end() || !found->second.stored) return nullptr;
  Entry& entry = found->second;
  if (entry.opened) return &*entry.opened;
  auto opened = OpenCachedPlan(*entry.stored, key, request);
  if (opened.ok()) return &entry.opened.emplace(*std::move(opened));
  LogWarning(RefusedPlanText(opened.status()));
  entry.stored.reset();
  return nullptr;
}

}  // namespace legoai::server
