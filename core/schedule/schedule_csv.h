// Schedules from files of PyTorch's format (torch/distributed/pipelining/schedules.py, "compute_only"): a line for each rank, a
// cell for each action, chunk first: "0F0,0F1,,0B0" or, with the gradients of a backward apart, "0I0,0W0". Empty cells, where a
// rank waits, say nothing here. The file says all: as many ranks as lines, and chunks that go round them or lie in a V. Pure
// functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/schedule/schedule.h"

namespace legoai::parallel {

// A sound schedule (CheckSchedule, CheckLowered) of every microbatch that `text` names. Errors: FieldErrors of `field` with the
// cell at fault, its line and column, both counted from 1: what is no action, or one of PyTorch's compiled format; chunks that
// lie in another way; work done twice, too early or not at all; ranks that wait for each other.
absl::StatusOr<Schedule> ParseScheduleCsv(absl::string_view field, const std::string& text);

// What ParseScheduleCsv reads back as the same schedule.
std::string ScheduleToCsv(const Schedule& schedule);

}  // namespace legoai::parallel
