// Which module an operator belongs to. In forward (and recomputation) it is the annotated one. In backward, the running autograd
// node was created by a forward operator and got its sequence number then, so the recorder notes the current module as the
// counter grows.
//
// Each thread has its own counter: only numbers from the thread that created this object, where forward runs, are used. On CUDA
// backward runs on an autograd thread, whose own numbers (for recomputed nodes, which have no backward) are irrelevant.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "core/trace/annotation.h"
#include "core/trace/interner.h"

namespace legoai::graph {

class ModuleAttribution {
 public:
  explicit ModuleAttribution(Interner* interner);
  // The module of the operator being dispatched; 0 (the root) if unknown.
  uint32_t Current(const Annotation& annotation);

 private:
  uint32_t OfCurrentNode();

  Interner* interner_;
  const std::thread::id forward_thread_ = std::this_thread::get_id();
  uint64_t first_sequence_;
  std::vector<uint32_t> module_of_sequence_;  // from first_sequence_
  uint32_t last_ = 0;
};

}  // namespace legoai::graph
