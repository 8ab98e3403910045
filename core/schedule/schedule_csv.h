// Schedules from files of PyTorch's format (torch/distributed/pipelining/schedules.py, "compute_only"): a line for each rank, a
// cell for each action, chunk first: "0F0,0F1,,0B0" or, with separate gradients, "0I0,0W0". Empty cells, where a rank waits, are
// ignored. The file defines everything: as many ranks as lines, and chunks that go round them or lie in a V. Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/schedule/schedule.h"

namespace legoai::parallel {

// A sound schedule (CheckSchedule, CheckLowered) of every microbatch that `text` names. Errors: FieldErrors of `field` with the
// cell at fault, its line and column, both counted from 1: not an action, or one of PyTorch's compiled format; chunks placed in
// another way; work done twice, too early or not at all; deadlock.
absl::StatusOr<Schedule> ParseScheduleCsv(absl::string_view field, const std::string& text);

// ParseScheduleCsv reads it back as the same schedule.
std::string ScheduleToCsv(const Schedule& schedule);

}  // namespace legoai::parallel
