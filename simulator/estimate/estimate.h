// Estimates one recipe: captures a rank of every pipeline stage on a fake device, replays memory, simulates time. `lego simulate`
// prints it and `lego plan` ranks by it.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/sim.pb.h"
#include "simulator/engine/chrome_trace.h"

namespace legoai::sim {

// The flag of `lego simulate` and lego-sim for TraceFileOptions::full.
inline constexpr char kFullTraceOption[] = "--full-trace";

// Blocking; one at a time in a process. Writes the trace files that the request names. `progress`, if given, is called during a
// benchmark, and, without a total, with what a file omits. Errors: FieldError of an illegal recipe; NotFound naming an operator
// without kernel, rule or cost.
absl::StatusOr<v1::Estimate> EstimateRecipe(const v1::SimRequest& request,
                                            const std::function<void(const v1::SimProgress&)>& progress = {},
                                            const TraceFileOptions& file_options = {});

}  // namespace legoai::sim
