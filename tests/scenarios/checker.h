// Rules that hold whatever was killed: over what clients were told (told.h), what the store holds and what lies on the disk. The
// legal table of states is written here anew from the design (decisions 22), so that a fault of the service's own table is seen.
// Each function gives the rules that are broken, as sentences that name the job; none: empty. Pure but for the file system.
#pragma once

#include <cstdint>
#include <map>
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
};

struct StoreView {
  std::map<std::string, JobHistory> jobs;          // by name
  std::map<std::string, std::string> submissions;  // request_id -> job
  std::map<std::string, int64_t> slots;            // of each worker
};

// Everything of the project "projects/default", and the jobs of these request_ids, in one read.
absl::StatusOr<StoreView> ReadStore(store::Store& store, const std::set<std::string>& requests);

// One job by itself: versions, legal transitions, nothing after a final state, epochs of leases, at most one open attempt.
std::vector<std::string> CheckHistory(const JobHistory& history);

// Across jobs: no worker's slots are given twice.
std::vector<std::string> CheckSlots(const StoreView& view);

// No acknowledged job is lost, one job per request_id, and the store is nowhere behind what clients were told.
std::vector<std::string> CheckTold(const StoreView& view, const Told& told);

// Checkpoints that must be there: the last `keep_latest` of the newest epoch that has committed some. The very last may lie
// prepared beside its place: its verdict came when the trainers were no more, and whoever goes on from it finishes it. `scratch`
// is a folder for the check's own use.
std::vector<std::string> CheckCheckpoints(const JobHistory& history, int64_t keep_latest, const std::string& scratch);

}  // namespace legoai::scenarios
