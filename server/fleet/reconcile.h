// What the fleet's jobs are to get now: a decision over a snapshot, without store, locks or clock. The controller carries it out.
// Queued jobs get slots (scheduler/scheduler.h); those without a recipe, or whose recipe is for other slots than they can have,
// are to be planned. gRPC-free. Not thread-safe: of the deciding thread.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/scheduler.h"
#include "server/fleet/active_jobs.h"
#include "server/fleet/lease_book.h"
#include "server/fleet/offers.h"

namespace legoai::server {

// What is remembered from one decision to the next, of jobs that are not over.
struct PlanningMemory {
  // Failed plans of a job that has a recipe for other slots.
  struct Refusal {
    std::map<std::string, int64_t> tries;  // by name of the cluster
    std::string text;                      // of the last one
    bool Refuses(const std::string& cluster) const;
  };
  // What a job's recipe was chosen for, and how often that was changed since it last ran because other slots were free.
  struct Planned {
    std::string kind;
    int64_t moves = 0;
  };
  std::map<std::string, absl::Duration> too_large_since;  // of a waiting job: that its gang is larger than any worker
  std::map<std::string, Refusal> refusals;
  std::map<std::string, Planned> planned;  // of those that have a recipe
};

// Failures of one job for the same slots, before it is left to wait for those that it has a recipe for.
inline constexpr int64_t kMostTries = 3;

struct FleetSnapshot {
  int64_t now_us = 0;                          // UTC
  absl::Duration now;                          // monotonic
  absl::Duration replan_grace;                 // ControllerOptions
  const ActiveJobs* jobs = nullptr;            // not owned
  std::vector<scheduler::WorkerView> workers;  // with what is free there
  std::vector<Lease> leases;
};

struct ToPlan {
  const ActiveJob* job = nullptr;      // of the snapshot
  const v1::Worker* worker = nullptr;  // of the offers: for slots like its
  int64_t slots = 0;
  std::string because = {};  // "its slots are gone: ", of a job that has a recipe
  bool moves = false;        // those slots are free, and are kept for it
};

struct Reconciliation {
  std::vector<scheduler::Grant> grants;                        // in the order of the queue
  std::vector<ToPlan> to_plan;                                 // the first is to be planned next
  WaitReasons::Waits waits;                                    // of the other jobs that wait
  int64_t decide_at_us = std::numeric_limits<int64_t>::max();  // when the first job that would have slots may have them
};

// `offers`: of the workers of the snapshot, valid as long as what comes back. Brings the memory up to date.
Reconciliation Reconcile(const FleetSnapshot& snapshot, Offers* offers, PlanningMemory* memory);

}  // namespace legoai::server
