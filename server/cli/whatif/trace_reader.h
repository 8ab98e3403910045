// Reads trace files of a step, predicted (`lego simulate --trace`) or measured (metrics.trace_steps): docs/traces.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace legoai::cli {

// One operator, communication or wait.
struct TraceSlice {
  std::string name, category;          // "aten::mm", "compute"; "communication", "wait"
  std::string stream, phase, module;   // "compute", "forward", "model.layers.3.mlp"; "" where it has none
  std::string group;                   // of communication: "dp_shard"
  int64_t ranks = 0;                   // of a collective's group; 0: of no group, or a message
  int64_t begin_ns = 0, end_ns = 0;
  // Of an operator, where the file says it: the floating-point type it computes in, "bfloat16", its arithmetic and its traffic.
  std::string dtype = {};
  double flops = 0, bytes = 0;
};

struct TracedStage {
  int64_t rank = 0;
  std::vector<TraceSlice> slices;
  std::map<std::string, int64_t> peak_bytes;  // of each counter of live memory: "memory", "memory: activation"
};

struct StepTraceFile {
  std::map<std::string, std::string> about;  // the file's "otherData"
  std::map<int64_t, TracedStage> stages;

  std::string About(const std::string& name) const;  // "" where it is not said
};

// Plain, or compressed by gzip. Errors: FieldError of `field`: no file, no trace file of a step, one that leaves out operators,
// more than `most_bytes` of text.
absl::StatusOr<StepTraceFile> ReadStepTrace(const std::string& field, const std::string& path,
                                            int64_t most_bytes = int64_t{1} << 30);

}  // namespace legoai::cli
