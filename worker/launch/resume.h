// Which settings of a run may change when it resumes from a checkpoint. Thread-safety: pure functions.
//
// As in TorchTitan, the layout may change (degrees, local batch, pipeline schedule, checkpointing, device), and so may settings
// that a checkpoint does not hold: the learning rate schedule, the number of steps, clipping; these affect training from then on,
// so the change is reported. What the checkpoint's state depends on must stay: model, text, tokenizer, order of the data,
// precision, and the optimizer with all its numbers. TorchTitan silently takes the optimizer's numbers from the checkpoint; here
// a different recipe is refused. Masters in float32 are saved alike whether parameters are held beside them or not
// (optimizer.master_weights, with training.dtype), so that this may change too.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/checkpoint.pb.h"
#include "proto/legoai/v1/launch.pb.h"
#include "proto/legoai/v1/model.pb.h"

namespace legoai::launch {

enum class ResumeRule {
  kFixed,  // another value is refused
  kTold,   // another value is accepted and reported
  kFree,   // another value is accepted
};

// The rule for a recipe's key ("optimizer.lr"); nothing for an unknown key.
std::optional<ResumeRule> RuleOf(std::string_view key);

// The model as stored in checkpoints: everything that determines its computation, and its name.
v1::Model CanonicalModel(v1::Model model);

// Compares a checkpoint with the run that should resume from it. Returns the changes to report, as sentences. Errors: FieldError
// for a setting that must not change, with both values and the remedies.
absl::StatusOr<std::vector<std::string>> CheckGoesOn(const v1::CheckpointManifest& manifest, const v1::Start& start);

}  // namespace legoai::launch
