// The fake device: tensors that claim to be on the CPU but have no memory, so that a step of any size runs in microseconds per
// operator.
//
// ATen and autograd branch on device and dispatch keys, so these stay real; only below them, where the recorder passes on a leaf
// operator, are arguments replaced by twins on the meta device. The Meta kernel (or a rule of shape_rules.cc) gives the results'
// shapes, and results become CPU tensors without memory. Operators of the library `lego` without a Meta kernel run their own
// kernel: on a fake comm::Runtime they touch no memory (comm/ops.h).
//
// Create tensors for it by running factories under a Recorder that has it as its runner. Errors: c10::Error naming operator and
// current module if an operator has neither Meta kernel nor rule, or reads data. Not thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>

#include "worker/graph/recorder.h"

namespace legoai::sim {

class FakeDevice : public graph::OperatorRunner {
 public:
  FakeDevice();
  ~FakeDevice() override;
  void Run(const c10::OperatorHandle& op, c10::DispatchKeySet after, torch::jit::Stack* stack, size_t base) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace legoai::sim
