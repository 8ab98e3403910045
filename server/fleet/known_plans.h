// For one decision: what the jobs that wait for the planner would ask it, and which of that was planned before. What is looked up
// is bounded, since others wait meanwhile. Not thread-safe. gRPC-free.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/plan.pb.h"
#include "server/fleet/reconcile.h"
#include "server/store/store.h"

namespace legoai::server {

// `kept`: the recipe of the checkpoint that the job goes on from.
v1::PlanRequest PlanRequestOf(const v1::Job& job, const v1::Cluster& cluster, const std::optional<v1::Recipe>& kept);

class KnownPlans {
 public:
  // Of jobs whose keys are not remembered so many are read, and so many get their plan.
  static constexpr int64_t kMostRead = 200, kMostTaken = 50;

  // The store is not owned. `planned_by`: plan_cache.h.
  KnownPlans(store::Store* store, std::string planned_by) : store_(store), planned_by_(std::move(planned_by)) {}

  // The cluster that is to be planned for. Valid as long as this object. Errors: those of ClusterOf().
  absl::StatusOr<const v1::Cluster*> ClusterFor(const ToPlan& next);
  // The key of its plan, from `memory` where it is remembered; empty: it is not known yet.
  std::string KeyOf(const ToPlan& next, PlanningMemory* memory);
  bool Has(const std::string& key);  // a plan
  // Whether one more may be taken in this decision.
  bool MayTake();
  // The plan of a key that was asked for by Has(); null if there is none, or none that can be trusted, which is then
  // forgotten here and logged.
  const v1::PlanResult* Open(const std::string& key, const v1::PlanRequest& request);
  void Taken() { ++taken_; }

  // Whether something was left to the next decision.
  bool has_more() const { return has_more_; }

 private:
  struct Place {
    absl::StatusOr<v1::Cluster> cluster;
    std::string digest;
  };
  struct Entry {
    std::optional<v1::CachedPlan> stored;
    std::optional<v1::PlanResult> opened;
  };
  const Place& PlaceFor(const ToPlan& next);
  Entry& EntryOf(const std::string& key);

  store::Store* const store_;
  const std::string planned_by_;
  // By worker, slots, number of workers, and whether they are in one NVLink domain.
  std::map<std::tuple<std::string, int64_t, int64_t, bool>, Place> places_;
  std::map<std::string, Entry> entries_;  // by key
  int64_t read_ = 0, taken_ = 0;
  bool has_more_ = false;
};

}  // namespace legoai::server
