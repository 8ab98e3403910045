// Estimates one recipe: captures a rank of every pipeline stage on a fake device, replays memory, simulates time. `lego simulate`
// prints it and `lego plan` ranks by it.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/estimate.pb.h"
#include "proto/legoai/v1/sim.pb.h"
#include "simulator/engine/chrome_trace.h"

namespace legoai::sim {

// The flag of `lego simulate` and lego-sim for TraceFileOptions::full.
inline constexpr char kFullTraceOption[] = "--full-trace";

// The flag of lego-sim for EstimateOptions::passes_path, with the path behind it, and of `lego simulate` without one.
inline constexpr char kPassesOption[] = "--passes";

struct EstimateOptions {
  TraceFileOptions files;
  std::string passes_path;  // what each pass does is written there (pass_log.h); empty: nowhere
};

// Blocking; one at a time in a process. Writes the files that the request and `options` name. `progress`, if given, is called
// during a benchmark, and, without a total, with what a file omits. Buckets that the recipe leaves to a plan are planned
// (bucket_search.h), and the estimate's recipe has them. Errors: FieldError of an illegal recipe; NotFound naming an operator
// without kernel, rule or cost.
absl::StatusOr<v1::Estimate> EstimateRecipe(const v1::SimRequest& request,
                                            const std::function<void(const v1::SimProgress&)>& progress = {},
                                            const EstimateOptions& options = {});

}  // namespace legoai::sim
