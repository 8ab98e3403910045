// One recipe's estimate: captures a rank of every pipeline stage on a fake device, replays memory, simulates time. What `lego
// simulate` prints and `lego plan` ranks by.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/sim.pb.h"
#include "simulator/engine/chrome_trace.h"

namespace legoai::sim {

// Of `lego simulate` and lego-sim: TraceFileOptions::full.
inline constexpr char kFullTraceOption[] = "--full-trace";

// Blocking; one at a time in a process. Writes the trace files that the request names. `progress`, if given, is called while a
// benchmark measures, and, without a total, with what a file leaves out. Errors: FieldError of a recipe that cannot be; NotFound
// naming an operator without kernel, rule or cost.
absl::StatusOr<v1::Estimate> EstimateRecipe(const v1::SimRequest& request,
                                            const std::function<void(const v1::SimProgress&)>& progress = {},
                                            const TraceFileOptions& file_options = {});

}  // namespace legoai::sim
