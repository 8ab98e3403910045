// Which instructions of a Trace become one fused operator: the first half of the pass "fuse" (passes.h). Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/trace/effects.h"
#include "core/trace/fused_kernel.h"
#include "core/trace/trace.h"

namespace legoai::graph {

// An instruction that may become a statement.
struct FusionCandidate {
  const FusibleOp* op = nullptr;
  std::vector<uint32_t> reads;    // values, those written in place included
  std::vector<uint32_t> results;  // values; of an operator in place the one that it writes
  std::vector<double> scalars;
  std::vector<int64_t> sizes;     // of the loop
};
// Nothing: it is none, by its operator, its stream, or its tensors' types and shapes.
std::optional<FusionCandidate> FusionCandidateOf(const Trace& trace, const Instruction& instruction);

// The number at an argument's position, if there is one.
std::optional<double> NumberAt(const InstructionView& op, int i);

// Strides of a tensor in a loop over `sizes`, to which it is broadcast; nothing where it is not.
std::optional<std::vector<int64_t>> BroadcastStrides(const Geometry& geometry, const std::vector<int64_t>& sizes);
// Those of what a member makes: elements of the loop, or one number of each row, which has no last dimension, or one of size 1.
std::vector<int64_t> ResultStrides(const Geometry& geometry, const std::vector<int64_t>& sizes);

// Instructions that become one, at `place`: those before it wait until then, those behind it come forward.
struct FusionGroup {
  std::vector<uint32_t> members;  // ascending
  std::vector<int64_t> sizes;
  uint32_t place = 0;      // the instruction before which it runs
  bool is_pinned = false;  // the place stays, and members that come later come forward
  bool along_rows = false, rolls = false, in_place = false;
  // By storage: the value that a member made or wrote last, and the values that were read before any member wrote them.
  std::map<uint32_t, uint32_t> written;
  std::map<uint32_t, std::set<uint32_t>> read;
};

// Of one member, too. In each, what a member reads of another's results lies where that writes it, and running all of them at the
// place, in their order, gives what running them where they are gives. `trace` is of one level.
std::vector<FusionGroup> FindFusionGroups(const Trace& trace);

}  // namespace legoai::graph
