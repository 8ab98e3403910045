#include "worker/graph/module_attribution.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <limits>

namespace legoai::graph {

ModuleAttribution::ModuleAttribution(Interner* interner) : interner_(interner), first_sequence_(at::sequence_number::peek()) {}

uint32_t ModuleAttribution::Current(const Annotation& annotation) {
  const uint32_t module = annotation.module != nullptr ? interner_->Module(*annotation.module) : OfCurrentNode();
  if (std::this_thread::get_id() == forward_thread_) {
    const uint64_t sequences = at::sequence_number::peek() - first_sequence_;
    if (sequences > module_of_sequence_.size()) module_of_sequence_.resize(sequences, module);
  }
  return last_ = module;
}

uint32_t ModuleAttribution::OfCurrentNode() {
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return 0;
  const uint64_t sequence = node->sequence_nr();
  // AccumulateGrad: it runs right after the node that computed the gradient.
  if (sequence == std::numeric_limits<uint64_t>::max()) return last_;
  if (sequence < first_sequence_ || sequence - first_sequence_ >= module_of_sequence_.size()) return 0;
  return module_of_sequence_[sequence - first_sequence_];
}

}  // namespace legoai::graph
