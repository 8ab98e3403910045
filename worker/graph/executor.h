// Runs a Trace on real tensors, below autograd, in as many processes as it was captured for.
//
// Bind() every external storage once, Run() once per step, Output() after a run. Views are not executed: a value is a geometry of
// an existing storage. Not thread-safe. Uses the current comm::Runtime for collectives, streams and events, and notes its phases
// in the comm::StepTimeline that listens, as the captured code does when it runs by itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/trace/trace.h"

namespace legoai::graph {

class Executor {
 public:
  // `trace` is not owned and must outlive the executor. Fails naming an operator that this process does not have; errors of
  // PrepareKernels (fused_operator.h).
  static absl::StatusOr<std::unique_ptr<Executor>> Create(const Trace& trace, c10::Device device);
  ~Executor();

  // `tensor` must have the geometry and storage size of the input `name`. Its storage is used in place.
  absl::Status Bind(const std::string& name, const at::Tensor& tensor);
  absl::Status Run();
  // The same; the timeline has each operator, too, by the number of its instruction.
  absl::Status RunTraced();
  // The same as Run(); sets `(*seconds)[i]` to the time of instruction i on the dispatching thread, including argument handling
  // and the frees after it; 0 for what is not executed. `done`, if given, is incremented with each executed instruction, for
  // other threads to read.
  absl::Status RunTimed(std::vector<double>* seconds, std::atomic<int64_t>* done = nullptr);
  absl::StatusOr<at::Tensor> Output(const std::string& name);
  int64_t OperatorsPerRun() const;  // without views

  struct Impl;

 private:
  explicit Executor(std::unique_ptr<Impl> impl);
  absl::Status RunSteps(bool traced, std::vector<double>* seconds, std::atomic<int64_t>* done);
  std::unique_ptr<Impl> impl_;
};

}  // namespace legoai::graph
