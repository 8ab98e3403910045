// What a step holds in memory, instruction by instruction, as its Trace was recorded.
//
// External storages live from the start; others from the first instruction that mentions them until they are freed. What kernels
// take while they run is not in a Trace: the memory simulator adds it, and sizes results as the simulated device would
// (simulator/memory/memory_simulator.h). Not thread-safe. Units: bytes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/trace/trace.h"

namespace legoai::graph {

inline constexpr int kCategories = static_cast<int>(Category::kReduceScatterBuffer) + 1;

// In words: "unsharded parameter".
const char* CategoryText(Category category);

class LiveBytes {
 public:
  // The Trace must outlive this.
  explicit LiveBytes(const Trace& trace);

  // The Trace's next instruction.
  void Run(const Instruction& instruction);

  int64_t total() const { return total_; }
  int64_t of(Category category) const { return by_category_[static_cast<size_t>(category)]; }

 private:
  void Resize(uint32_t storage, int64_t bytes);
  void Mention(uint32_t value);

  const Trace& trace_;
  std::vector<int64_t> bytes_;  // by storage; negative: it was not mentioned yet
  std::array<int64_t, kCategories> by_category_{};
  int64_t total_ = 0;
};

}  // namespace legoai::graph
