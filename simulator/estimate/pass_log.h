// What each pass of a recipe does to the step (core/trace/passes): operators and bytes, and what time and memory the simulators
// predict before and after it. Keeps a copy of the step for each pass. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/trace/passes/pipeline.h"
#include "core/trace/trace.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "simulator/capture/capture_stages.h"
#include "simulator/memory/memory_simulator.h"

namespace legoai::sim {

// The step after a pass; the first row is the captured step. Sums over the pipeline's stages, but for the times and the peak.
struct PassRow {
  std::string pass;
  graph::TraceStatistics statistics;
  double step_seconds = 0, exposed_seconds = 0;
  int64_t peak_bytes = 0;   // allocated, of the fullest stage
  double pass_seconds = 0;  // that the pass itself took
};

class PassLog {
 public:
  // `options` with this as the observer; it must outlive the capture.
  graph::PassOptions Observing(graph::PassOptions options);
  // Of CaptureStages.
  std::vector<graph::PassReport>* reports() { return &reports_; }

  // `stages`: what CaptureStages gave. Errors: those of the simulators.
  absl::StatusOr<std::vector<PassRow>> Rows(const std::vector<CapturedStage>& stages, const v1::Cluster& cluster,
                                            const MemoryOptions& memory) const;

 private:
  std::vector<std::pair<std::string, std::vector<graph::Trace>>> seen_;  // by pass, a Trace of each stage
  std::vector<graph::PassReport> reports_;
};

// A list of objects as JSON, with the fields of PassRow. Errors: FieldError of `field` if the file cannot be written.
absl::Status WritePassRows(const std::string& field, const std::string& path, const std::vector<PassRow>& rows);

}  // namespace legoai::sim
