// What `lego train` makes of a file that says what is to be trained and leaves open how, as JOB.toml does: the planner fills in
// what is open, as `lego plan` would for this machine, and what was chosen is told. Not thread-safe.
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

// Whether `spec`, as its file says it, leaves the layout to the planner: it has a [planning] section, or a global batch without
// the local one. A file with training.local_batch_size is a recipe, and what it does not say is the default.
bool LeavesLayoutOpen(const v1::JobSpec& spec);

// The keys that the planner decides and `recipe` does not say.
std::vector<std::string> OpenKeys(const v1::Recipe& recipe);

struct LayoutRequest {
  v1::JobSpec spec;  // as its file says it, with the model's name
  v1::Model model;
  v1::Cluster cluster;  // what it is trained on: one node
  bool fresh = false;   // what a run in job.dump_folder was planned with does not count
};

struct ChosenLayout {
  std::optional<v1::Recipe> recipe;  // complete; nothing: no recipe fits
  std::string text;                  // what was chosen, or why nothing fits, for people
};

// What the recipe says binds. A run that goes on keeps what it was planned with, as long as that suits what is said now; else it
// is planned again with the checkpoint's batch, precision and optimizer. Errors: those of planner::Plan in the file's terms; no
// global batch; Cancelled by `guard`.
absl::StatusOr<ChosenLayout> ChooseLayout(const LayoutRequest& request, InterruptGuard* guard);

// Where `recipe`, as its file says it, leaves the precision at bfloat16 and this processor has that in software only: a line that
// says so; otherwise empty.
std::string PrecisionNote(const v1::Recipe& recipe, const v1::Cluster& cluster);

}  // namespace legoai::cli
