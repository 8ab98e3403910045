// Rules that hold whatever was killed: over what clients were told (told.h) and what the store holds; for the checkpoints see
// checkpoint_checker.h. The legal table of states is written here anew from the design, so that a fault of the service's own
// table is seen. Each function gives the rules that are broken, as sentences that name the job; none: empty. Pure but for
// ReadStore.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "server/store/store.h"
#include "tests/scenarios/told.h"

namespace legoai::scenarios {

struct JobHistory {
  v1::Job job;
  std::vector<v1::Transition> transitions;
  std::vector<v1::Attempt> attempts;
  std::vector<v1::Checkpoint> checkpoints;  // by step, then epoch
  // Job.starts_from as the job that saved it has it now: another retry of that job may have found it damaged.
  std::optional<v1::Checkpoint> start;
};

struct StoreView {
  std::map<std::string, JobHistory> jobs;          // by name
  std::map<std::string, std::string> submissions;  // request_id -> job
  std::map<std::string, int64_t> slots;            // of each worker
};

// Everything of the project "projects/default", and the jobs of these request_ids, in one read.
absl::StatusOr<StoreView> ReadStore(store::Store& store, const std::set<std::string>& requests);

// One job by itself: versions, legal transitions, nothing after a final state, an attempt for each epoch, at most one at a time.
std::vector<std::string> CheckHistory(const JobHistory& history);

// Across jobs: no worker's slots are given twice, now or ever before.
std::vector<std::string> CheckSlots(const StoreView& view);

// Of two reads: jobs, their histories and checkpoints are only added to.
std::vector<std::string> CheckOnlyAdded(const StoreView& before, const StoreView& after);

// No acknowledged job is lost, one job per request_id, each job is what was asked for, and the store is nowhere behind what
// clients were told.
std::vector<std::string> CheckTold(const StoreView& view, const Told& told);

}  // namespace legoai::scenarios
