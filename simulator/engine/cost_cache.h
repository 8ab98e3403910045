// Costs of a Trace's operators, each distinct one computed once: layers repeat, so most instructions have been seen before.
//
// Two instructions are the same if operator, geometries, constants and the pattern of equal operands are. Torch-free. Not
// thread-safe. Refers to the Trace and the model, which must outlive it.
#pragma once

#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "simulator/cost/compute_cost.h"

namespace legoai::sim {

class CostCache {
 public:
  CostCache(const graph::Trace& trace, const ComputeCostModel& model) : trace_(trace), model_(model) {}

  absl::StatusOr<Cost> Time(const graph::Instruction& instruction);
  size_t distinct() const { return distinct_; }

 private:
  // Everything the cost may depend on, as numbers.
  void Key(const graph::Instruction& instruction, std::vector<uint32_t>* key) const;

  struct Entry {
    std::vector<uint32_t> key;
    Cost cost;
  };
  const graph::Trace& trace_;
  const ComputeCostModel& model_;
  std::unordered_map<uint64_t, std::vector<Entry>> entries_;
  std::vector<uint32_t> scratch_;
  size_t distinct_ = 0;
};

}  // namespace legoai::sim
