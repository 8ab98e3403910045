// The gradient of a norm in two parts, which share nothing but what they read: the gradient of its input, row by row, and those
// of its weights, sums over rows. The pass "fuse" takes the first into its kernels; the second stays an operator, since sums
// over rows that threads share would depend on their number. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

struct NormGradient {
  // Of the whole, and of its first part, which gives the first result alone.
  std::string_view name;
  std::string_view weight_name;   // of the second part, where it is an operator of its own: its result is the whole's second
  std::vector<int> weight_reads;  // argument positions of the whole, in the order of the second part's
  bool reads_once = false;        // the whole's kernel reads memory once for both parts: the second alone reads as much
};
// By either name; null of any other operator.
const NormGradient* FindNormGradient(std::string_view name);

struct SplitTrace {
  Trace trace;
  std::map<uint32_t, uint32_t> input_parts;  // instructions, by the whole's in the Trace before
};
// Each gradient of a norm whose first part may be fused as its two parts, one behind the other, but for those in `whole`.
SplitTrace SplitNormGradients(const Trace& trace, const std::set<uint32_t>& whole);

}  // namespace legoai::graph
