// Which module an operator belongs to. In forward (and recomputation) the annotation says it. In backward, the autograd node
// that runs was created by an operator of forward, and its sequence number was given out then: so the recorder notes, as the
// counter grows, which module was at work.
//
// Every thread counts from zero: numbers count that are given out on the thread that made this object, where forward runs. On
// CUDA backward runs on a thread of autograd's, whose own numbers (of what recomputation makes, which has no backward) say
// nothing.
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
  // The module of the operator being dispatched now; 0 (the root) where nothing is known.
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
