// How `lego train` handles a file that says what to train but leaves the layout open, like JOB.toml: the planner fills in the
// open keys, as `lego plan` would for this machine, and the choice is reported. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/model.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "server/cli/interrupt.h"

namespace legoai::cli {

// Whether `spec`, as written in its file, leaves the layout to the planner: it has a [planning] section, or a global batch
// without a local one. A file with training.local_batch_size is a recipe, with defaults for missing keys.
bool LeavesLayoutOpen(const v1::JobSpec& spec);

// The keys that the planner decides and `recipe` leaves unset.
std::vector<std::string> OpenKeys(const v1::Recipe& recipe);

struct LayoutRequest {
  v1::JobSpec spec;  // as written in its file, with the model's name
  v1::Model model;
  v1::Cluster cluster;  // one node to train on
  bool fresh = false;   // ignores the plan of an earlier run in job.dump_folder
};

struct ChosenLayout {
  std::optional<v1::Recipe> recipe;  // complete; unset: no recipe fits
  std::string text;                  // what was chosen, or why nothing fits, for people
};

// Keys set in the recipe are binding. A run that resumes keeps its earlier plan if that is consistent with the recipe, policy and
// buckets included; else it is planned again with the checkpoint's batch, precision and optimizer. With
// activation_checkpoint.mode = "auto" an earlier plan counts if it was made for the same budget, which the chosen recipe has as
// memory_budget_gib. Errors: those of planner::Plan in the file's terms; no global batch; Cancelled by `guard`; where an earlier
// run wrote its recipe, those of asking whether its checkpoints are still there.
absl::StatusOr<ChosenLayout> ChooseLayout(const LayoutRequest& request, InterruptGuard* guard);

// Of a recipe that names its layout and has compile.fsdp_bucketing = "auto": the buckets of the run in its job.dump_folder, if
// that goes on and its step is the same otherwise; nothing if they have to be planned. Errors: as above, of its checkpoints.
absl::StatusOr<std::optional<v1::CompileSection>> BucketsAsBefore(const LayoutRequest& request, const v1::Recipe& recipe);

// A note if `recipe` leaves the precision at bfloat16 and this processor only emulates it; otherwise empty.
std::string PrecisionNote(const v1::Recipe& recipe, const v1::Cluster& cluster);

}  // namespace legoai::cli
