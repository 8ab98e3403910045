// Writes a step as it was measured as a trace file, with the processes, tracks and names of a predicted one (docs/traces.md).
// Torch-free. Thread-safety: a pure function but for the file.
//
// Operators have their arithmetic and traffic, as predictions count them; none of an operator that core/operators does not know.
//
// Besides operators and communication it has what the compute stream waits for: slices of category "wait" on its track; and
// counters of live memory, without what kernels take while they run, which is not recorded. Views and events, which take no time
// of the device, are left out as they are of predictions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "core/trace/trace.h"
#include "worker/comm/step_timeline.h"

namespace legoai::train {

// "RUN/traces/step-3-rank-0.json.gz"
std::string StepTracePath(const std::string& run_directory, int64_t step, int64_t rank);

struct MeasuredStep {
  const graph::Trace& trace;      // as it was recorded
  const comm::StepTimes& times;   // of its instructions
  int64_t stage = 0, rank = 0;
  std::map<std::string, std::string> about = {};  // goes into the file's "otherData"
};

// Makes the folder, too. What is there under that name is replaced. Errors: of the file system; then no file is there.
absl::Status WriteStepTrace(const std::string& path, const MeasuredStep& step);

}  // namespace legoai::train
