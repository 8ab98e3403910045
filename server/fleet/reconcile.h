// Decides what the fleet's jobs get now, from a snapshot, without store, locks or clock. The controller carries it out. Queued
// jobs get slots (scheduler/scheduler.h); jobs without a recipe, or with a recipe for slots they cannot get, are planned.
// gRPC-free. Not thread-safe: for the deciding thread.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/scheduler.h"
#include "server/fleet/active_jobs.h"
#include "server/fleet/lease_book.h"
#include "server/fleet/offers.h"

namespace legoai::server {

// State kept between decisions, for active jobs.
struct PlanningMemory {
  // Failed plans of a job that has a recipe for other slots.
  struct Refusal {
    std::map<std::string, int64_t> tries;  // by cluster name
    std::string text;                      // of the last one
    bool Refuses(const std::string& cluster) const;
  };
  // The kind of slots that a job's recipe was chosen for, and how often it was moved to free slots of another kind since it last
  // ran.
  struct Planned {
    std::string kind;
    int64_t moves = 0;
    bool in_domain = false;  // and for several workers in one NVLink domain
  };
  // What a waiting job would ask the planner (plan_cache.h), and of which version of it and which cluster that is the key.
  struct PlanKey {
    int64_t version = 0;
    std::string cluster;  // digest
    std::string key;
  };
  std::map<std::string, PlanKey> plan_keys;
  std::map<std::string, absl::Duration> too_large_since;  // since when a waiting job's gang is larger than any worker
  std::map<std::string, Refusal> refusals;
  std::map<std::string, Planned> planned;  // of jobs with a recipe
};

// After this many failed plans of a job for the same slots, it waits for the slots that it has a recipe for.
inline constexpr int64_t kMostTries = 3;

struct FleetSnapshot {
  int64_t now_us = 0;                          // UTC
  absl::Duration now;                          // monotonic
  absl::Duration replan_grace;                 // ControllerOptions
  const ActiveJobs* jobs = nullptr;            // not owned
  std::vector<scheduler::WorkerView> workers;  // with their free slots
  std::vector<Lease> leases;
  bool preempts = false;  // ControllerOptions
};

struct ToPlan {
  const ActiveJob* job = nullptr;      // of the snapshot
  const v1::Worker* worker = nullptr;  // of the offers: plan for slots like its
  int64_t slots = 0;                   // of each worker
  int64_t workers = 1;                 // so many like it
  std::string because = {};            // "its slots are gone: ", for a job with a recipe
  std::vector<std::string> kept_on = {};  // those slots are free, and kept for it on these workers; empty: it waits for any

  bool in_domain = false;  // the workers are of one NVLink domain, which joins their slots

  bool moves() const { return !kept_on.empty(); }
};

// A running job that is to save and make room.
struct ToStop {
  std::string job;
  std::string because;  // "projects/default/jobs/01J..., of priority 5, waits for its slots"
};

struct Reconciliation {
  std::vector<scheduler::Grant> grants;                        // in the order of the queue
  std::set<std::string> outside_domain;  // granted jobs whose recipe is for one NVLink domain, where their workers are of several
  std::vector<ToPlan> to_plan;                                 // the first is planned next
  WaitReasons::Waits waits;                                    // of all other waiting jobs
  std::vector<ToStop> to_stop;
  int64_t decide_at_us = std::numeric_limits<int64_t>::max();  // when the next back-off of a job with slots ends
};

// `offers`: of the workers of the snapshot; they must outlive the result. Updates `memory`.
Reconciliation Reconcile(const FleetSnapshot& snapshot, Offers* offers, PlanningMemory* memory);

}  // namespace legoai::server
