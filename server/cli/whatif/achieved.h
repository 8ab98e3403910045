// What operators of a measured step achieve of what the device can: their time beside the least that its peaks allow for their
// arithmetic and their traffic (Williams et al. 2009). Thread-safety: pure functions. Units: seconds, FLOPs, bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/json/reflect.h"
#include "server/cli/whatif/trace_reader.h"

namespace legoai::cli {

// All calls of an operator in a type.
struct AchievedRow {
  std::string name, dtype;  // "aten::mm", "bfloat16", in which it computes; "" where it is not said
  int64_t count = 0;
  double flops = 0, bytes = 0;
  double measured = 0;
  double arithmetic = 0, traffic = 0;  // the least that either takes; 0: the device's peak is not known
  double least = 0;                    // the sum over the calls of what is more of the two
  const char* bound() const { return least == 0 ? "" : arithmetic >= traffic ? "compute" : "memory bandwidth"; }
  double share() const { return measured > 0 ? least / measured : 0; }  // above 1 where caches spare traffic
};

// Of the device for which `predicted` was made. Those that take longest first; none where `measured` does not say what its
// operators compute.
std::vector<AchievedRow> Achieved(const StepTraceFile& predicted, const TracedStage& measured);

// At most `rows` rows; "" for none.
std::string AchievedText(const std::vector<AchievedRow>& achieved, size_t rows);
Tree AchievedTree(const std::vector<AchievedRow>& achieved);

}  // namespace legoai::cli
