// The options by which `lego train` is one of several hosts that train together: torchrun's. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/legoai/v1/job.pb.h"
#include "proto/legoai/v1/recipe.pb.h"
#include "server/cli/arguments.h"
#include "worker/launch/gang_address.h"

namespace legoai::cli {

// Those options, for the command's help.
std::vector<Option> GangOptions();

// Unset: this host trains alone, without --nnodes or with --nnodes 1. --interface becomes GLOO_SOCKET_IFNAME and
// NCCL_SOCKET_IFNAME of this process, and so of its ranks. Errors: FieldErrors of the options.
absl::StatusOr<std::optional<launch::GangPlace>> ReadGang(const Arguments& arguments);

// What a gang of several hosts cannot do yet: a layout that is left to the planner, and a prediction, are of one machine. Errors:
// FieldErrors.
absl::Status CheckGang(const Arguments& arguments, const v1::JobSpec& spec, const v1::Recipe& recipe);

// A note if groups of tensor parallel ranks cross hosts with `ranks` each; otherwise empty.
std::string CrossingNote(const v1::Recipe& recipe, int64_t ranks);

// `ranks` of the whole gang, divided among its hosts. Errors: FieldError of --nnodes.
absl::StatusOr<int64_t> RanksOfEach(int64_t ranks, int64_t hosts);

}  // namespace legoai::cli
