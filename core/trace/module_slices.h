// The phases of a compute stream with their modules as nested slices of a trace file. Not thread-safe. Units: nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

// Recomputation belongs to the backward that it is for.
Phase SpanPhase(Phase phase);
// "forward of microbatch 3"; -1: of none.
std::string SpanName(Phase phase, int32_t microbatch);

struct ModuleSlice {
  std::string name;    // "forward of microbatch 0", "recompute", or the module's last part: "layers.3", "q_proj"
  std::string module;  // full path; empty for a phase
  Phase phase = Phase::kInit;
  int64_t start = 0, finish = 0;
};

class ModuleNesting {
 public:
  // The next operator: of the span `span_name`, in it of `phase` and of `module`; null: of none that is shown. The slices that
  // the operator before it was in, too, go on.
  void Add(const std::string& span_name, Phase span_phase, Phase phase, const std::string* module, int64_t start, int64_t finish);
  // From the first operator of each to its last; an outer slice comes before what is in it.
  std::vector<ModuleSlice> Take();

 private:
  void Open(const std::vector<ModuleSlice>& path, int64_t start, int64_t finish);

  std::map<std::string, std::vector<std::string>> paths_;  // to each module that was seen
  std::vector<ModuleSlice> slices_;
  std::vector<size_t> open_;  // those that the last operator was in
};

}  // namespace legoai::graph
