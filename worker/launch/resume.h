// What a run keeps from its first step to its last, and what may change where it resumes from a checkpoint.
// Thread-safety: pure functions.
//
// As with TorchTitan, the layout may change (degrees, local batch, pipeline schedule, checkpointing, device), and so may what a
// checkpoint does not hold: the learning rate's schedule, the number of steps, clipping; such a change alters what is learned
// from then on, so it is said. What the state in the checkpoint is of must stay: model, text, tokenizer, order of the data,
// precision, and the optimizer with all its numbers, which TorchTitan takes from the checkpoint silently when a recipe says
// otherwise; here it is refused.
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
  kTold,   // another value is taken, and said
  kFree,   // another value is taken
};

// The rule for a recipe's key ("optimizer.lr"); nothing for what is no key.
std::optional<ResumeRule> RuleOf(std::string_view key);

// The model as checkpoints keep it: all that says how it computes, and its name.
v1::Model CanonicalModel(v1::Model model);

// Compares a checkpoint with the run that should resume from it. Returns, as sentences, what changed of that which is said.
// Errors: FieldError for what must stay, with both values and the remedies.
absl::StatusOr<std::vector<std::string>> CheckGoesOn(const v1::CheckpointManifest& manifest, const v1::Start& start);

}  // namespace legoai::launch
